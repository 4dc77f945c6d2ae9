"""What lanes do together: exchange, votes, barriers, and what becomes of lanes that do not come."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from small_hip_kernels import line_of, out, run

from tilegate import emulator

LANES = np.arange(64)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("__shfl_xor(t, 5)", LANES ^ 5),
        ("__shfl_xor(t, 16, 32)", LANES ^ 16),
        ("__shfl_down(t, 3)", np.where(LANES + 3 < 64, LANES + 3, LANES)),
        ("__shfl_up(t, 3)", np.where(LANES >= 3, LANES - 3, LANES)),
        ("__shfl_up(t, 3, 16)", np.where(LANES % 16 >= 3, LANES - 3, LANES)),
        ("__shfl(t, 9)", np.full(64, 9)),
        ("__shfl(t, 9, 16)", LANES // 16 * 16 + 9),
        ("(int)tl::shfl_xor(half_t(t), 1)", LANES ^ 1),
        ("(int)(float)tl::shfl_xor(bfloat16_t((float)t), 1)", LANES ^ 1),
        (
            "(int)(__ballot(t % 3 == 0) >> 32)",
            np.full(64, sum(1 << (lane - 32) for lane in range(32, 64) if lane % 3 == 0)),
        ),
        ("__any(t == 63)", np.ones(64)),
        ("__all(t < 63)", np.zeros(64)),
        ("__all(t < 64)", np.ones(64)),
        ("__builtin_amdgcn_ds_bpermute((63 - t) * 4, t)", 63 - LANES),
        ("(int)__builtin_amdgcn_readfirstlane(t + 7)", np.full(64, 7)),
        ("(int)(__shfl_xor((unsigned long long)t << 40, 1) >> 40)", LANES ^ 1),
        ("tl::warp_reduce_sum(t)", np.where(LANES < 32, sum(range(32)), sum(range(32, 64)))),
        ("tl::AllReduce<tl::MaxOp, 64, 16, 0>::run(t, (int*)nullptr)", LANES % 16 + 48),
    ],
)
@pytest.mark.parametrize("schedule", [emulator.SCHEDULES[0], emulator.SCHEDULES[3], emulator.SCHEDULES[4]], ids=str)
def test_exchange(expression: str, expected: np.ndarray, schedule: emulator.Schedule) -> None:
    result = out()
    done = run(f"  out[t] = {expression};", {"out": result}, schedule=schedule)
    assert done.findings == ()
    assert result.tolist() == expected.astype(np.int32).tolist()


def test_a_reduction_over_waves_goes_through_lds() -> None:
    result = out(256)
    body = "  out[t] = tl::AllReduce<tl::SumOp, 256, 1, 0>::run(t, lds);"
    assert run(body, {"out": result}, threads=256).findings == ()
    assert set(result) == {sum(range(256))}


def test_a_scan() -> None:
    result = out()
    body = "  lds[t] = t;\n  __syncthreads();\n  tl::CumSum1D<64>::run(lds, lds + 64, 64);\n  __syncthreads();\n  out[t] = lds[64 + t];"
    assert run(body, {"out": result}).findings == ()
    assert result.tolist() == np.cumsum(LANES).tolist()


def test_lanes_that_take_part_may_exchange_under_a_condition() -> None:
    result = out()
    body = "  int x = -1;\n  if (t < 32) { x = __shfl_xor(t, 1); } else { x = __shfl_xor(t, 2); }\n  out[t] = x + (int)__popcll(__ballot(t < 40));"
    assert run(body, {"out": result}).findings == ()
    assert result.tolist() == (np.where(LANES < 32, LANES ^ 1, LANES ^ 2) + 40).tolist()


def test_reading_a_lane_that_does_not_take_part() -> None:
    body = "  out[t] = 0;\n  if (t < 32) { out[t] = __shfl_xor(t, 32); }"
    (found,) = run(body, {"out": out()}).findings
    assert (found.kind, found.line, found.count) == ("inactive-lane", line_of(body, "xor"), 32)
    assert "lane 32" in found.message
    assert "lanes 0-31" in found.message


def test_a_partial_wave_exchanges_among_its_lanes() -> None:
    result = out(40)
    assert run("  out[t] = __shfl_xor(t, 1);", {"out": result}, threads=40).findings == ()
    assert result.tolist() == (np.arange(40) ^ 1).tolist()


def test_a_wave_barrier_orders_the_lanes_of_a_wave() -> None:
    body = "  lds[t] = t;\n  {order}\n  out[t] = lds[t ^ 1];"
    result = out()
    assert run(body.format(order="__builtin_amdgcn_wave_barrier();"), {"out": result}).findings == ()
    assert result.tolist() == (LANES ^ 1).tolist()
    found = run(body.format(order=";"), {"out": out()}).findings
    assert {finding.kind for finding in found} == {"wave-race", "uninitialised"}


def test_lanes_of_a_wave_at_different_barriers() -> None:
    body = "  if (t < 32) {\n    __syncthreads();  // one\n    lds[t] = 1;\n  } else {\n    __syncthreads();  // two\n    lds[t] = 2;\n  }\n  out[t] = 1;"
    done = run(body, {"out": out()})
    (found,) = done.findings
    assert not done.completed
    assert found.kind == "divergent-barrier"
    assert found.other is not None
    assert {found.line, found.other.line} == {line_of(body, "one"), line_of(body, "two")}


def test_a_barrier_that_only_one_wave_reaches() -> None:
    body = "  if (t < 64) {\n    __syncthreads();\n  }\n  out[t] = 1;"
    (found,) = run(body, {"out": out(128)}, threads=128).findings
    assert found.kind == "divergent-barrier"
    assert found.line == line_of(body, "__sync")
    assert "has ended" in found.message


def test_a_wave_that_skips_a_barrier_and_meets_the_next() -> None:
    body = "  if (t < 64) {\n    __syncthreads();  // first\n    lds[0] = 1;\n  }\n  __syncthreads();  // second\n  out[t] = 1;"
    (found,) = run(body, {"out": out(128)}, threads=128).findings
    assert found.kind == "divergent-barrier"
    assert found.other is not None
    assert (found.line, found.other.line) == (line_of(body, "first"), line_of(body, "second"))


def test_a_matrix_instruction_under_a_condition_of_lanes() -> None:
    body = "  float32x4 c = {0, 0, 0, 0};\n  if (t & 32) {\n    c = __builtin_amdgcn_mfma_f32_16x16x4f32(1.0f, 1.0f, c, 0, 0, 0);\n  }\n  out[t] = (int)c[0];"
    done = run(body, {"out": out()})
    (found,) = done.findings
    assert (found.kind, found.line) == ("divergent-operation", line_of(body, "mfma"))
    assert "lanes 32-63" in found.message


def test_indices_of_a_launch_in_three_dimensions() -> None:
    body = """  int n = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  int i = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  out[n * blockDim.x * blockDim.y * blockDim.z + i] = n * 1000 + i;"""
    from small_hip_kernels import source

    program = emulator.compile_kernel(source(body), "small", arch="gfx942", shared_bytes=0)
    result = out(2 * 3 * 2 * 96)
    assert emulator.run(program, {"out": result}, (2, 3, 2), (4, 8, 3)).findings == ()
    assert result.tolist() == [n * 1000 + i for n in range(12) for i in range(96)]


@pytest.mark.parametrize("traced", [True, False])
def test_a_barrier_between_two_branches_of_one_condition_stays_one_barrier(traced: bool) -> None:
    """The optimiser would like to make one branch of both, each with a barrier of its own."""
    result = np.arange(128, dtype=np.int32)
    body = "  bool odd = out[t] & 1;\n  if (odd) { lds[t] = 3; } else { lds[t] = out[t] * 5; }\n  tl::wave_barrier();\n  __syncthreads();\n  if (odd) { out[t] = lds[t ^ 64]; } else { out[t] = lds[t ^ 65] + 1; }"
    assert run(body, {"out": result}, threads=128, traced=traced).findings == ()
    assert result.tolist() == [3 if t % 2 else 4 for t in range(128)]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("__builtin_amdgcn_mov_dpp(t, 0x111, 0xf, 0xf, true)", lambda t: t - 1 if t % 16 else 0),  # row_shr:1
        ("__builtin_amdgcn_update_dpp(7, t, 0x102, 0xf, 0xf, false)", lambda t: t + 2 if t % 16 < 14 else 7),  # row_shl:2
        ("__builtin_amdgcn_update_dpp(7, t, 0x142, 0xa, 0xf, false)", lambda t: t // 16 * 16 - 1 if t // 16 % 2 else 7),
        ("__builtin_amdgcn_update_dpp(0, t, 0x1b, 0xf, 0xf, false)", lambda t: t ^ 3),  # quad_perm:[3,2,1,0]
        ("__builtin_amdgcn_update_dpp(0, t, 0x140, 0xf, 0xf, false)", lambda t: t ^ 15),  # row_mirror
        ("__builtin_amdgcn_ds_permute(4 * (63 - t), t)", lambda t: 63 - t),
        ("__builtin_amdgcn_ds_swizzle(t, 0x041f)", lambda t: t ^ 1),
        ("__builtin_amdgcn_ds_swizzle(t, 0x80b1)", lambda t: t ^ 1),  # quad_perm:[1,0,3,2]
        ("(int)__builtin_amdgcn_ballot_w64(t & 1)", lambda t: -0x55555556),
        ("__builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0))", lambda t: t),
        ("__syncthreads_count(t & 1)", lambda t: 32),
        ("__syncthreads_and(t < 64)", lambda t: 1),
        ("__builtin_amdgcn_raw_buffer_load_b32(__builtin_amdgcn_make_buffer_rsrc(out, 0, 128, 0), t * 4, 0, 0)", lambda t: 77 if t < 32 else 0),
        ("__ldg(out + t)", lambda t: 77),
        ("(int)__hadd2(half2{1, 2}, half2{3, 4}).y", lambda t: 6),
        ("(int)(make_float4(1, 2, 3, 4) * 2.0f + make_float4(1, 1, 1, 1)).w", lambda t: 9),
        ("__builtin_bit_cast(char2, (unsigned short)(t + 256)).x", lambda t: t),
    ],
)  # fmt: skip
def test_what_lanes_and_vectors_give(expression: str, expected: Callable[[int], int]) -> None:
    result = out()
    assert run(f"  out[t] = {expression};", {"out": result}).findings == ()
    assert result.tolist() == [expected(t) for t in range(64)]


def test_a_swizzled_order_of_workgroups() -> None:
    result = out(12)
    body = "  const dim3 blockIdx = tl::rasterization2DRow<2>();\n  if (t == 0) out[blockIdx.y * 3 + blockIdx.x] = 1;"
    assert run(body, {"out": result}, grid=(3, 4)).findings == ()
    assert set(result) == {1}


@pytest.mark.parametrize("traced", [True, False])
def test_8_bit_floats_in_an_array_of_fixed_size_in_lds(traced: bool) -> None:
    body = "  __shared__ fp8_e4_t s[64];\n  s[t].data = t;\n  __syncthreads();\n  out[t] = s[63 - t].data;"
    result = out()
    prelude = "#include <tl_templates/hip/hip_fp8.h>"
    assert run(body, {"out": result}, prelude=prelude, traced=traced).findings == ()
    assert result.tolist() == list(range(63, -1, -1))


def test_shuffles_under_a_branch_that_is_unlikely() -> None:
    body = "  int y = 0;\n  if (__builtin_expect(t >= 32, 0)) y = __shfl_xor(t, 1);\n  int z = __shfl(t, 63 - t);\n  out[t] = z + 1000 * y;"
    for text in (body, body.replace("if (__builtin_expect(t >= 32, 0))", "if (t >= 32) [[unlikely]]")):
        result = out()
        assert run(text, {"out": result}).findings == ()
        assert result.tolist() == [63 - t + 1000 * (t ^ 1 if t >= 32 else 0) for t in range(64)]


def test_a_copy_of_4_bytes_goes_by_the_first_lane_that_takes_part() -> None:
    body = "  lds[t] = -1;\n  lds[t + 64] = -1;\n  __syncthreads();\n  if (t >= 4) tl::cp_async_gs<4>(lds + t, g + t);\n  tl::cp_async_wait<0>();\n  __syncthreads();\n  out[t] = lds[t];"
    result = out()
    parameters = "int* __restrict__ out, int* __restrict__ g"
    run(body, {"out": result, "g": np.arange(64, dtype=np.int32)}, parameters=parameters)
    assert result.tolist() == [-1] * 8 + list(range(4, 60))


def test_infinity_is_no_8_bit_float_of_gfx942() -> None:
    given = np.array([np.inf, -np.inf, np.nan, 1000], np.float32)
    result = np.zeros(4, np.uint8)
    parameters = "unsigned char* __restrict__ out, float* __restrict__ v"
    prelude = "#include <tl_templates/hip/hip_fp8.h>"
    run(
        "  if (t < 4) out[t] = fp8_e4_t(v[t]).data;",
        {"out": result, "v": given},
        parameters=parameters,
        prelude=prelude,
    )
    assert result.tolist() == [0x80, 0x80, 0x80, 0x7F]


@pytest.mark.parametrize("name", ["rcpf", "rsqf", "sqrtf", "logf"])
def test_bare_instructions_take_subnormal_inputs_for_zero(name: str) -> None:
    result = out(64, np.float32)
    body = f"  float x = __uint_as_float(0x000fffffu);\n  out[t] = __builtin_amdgcn_{name}(x);"
    run(body, {"out": result}, parameters="float* __restrict__ out")
    assert set(result.tolist()) == {{"rcpf": np.inf, "rsqf": np.inf, "sqrtf": 0.0, "logf": -np.inf}[name]}
