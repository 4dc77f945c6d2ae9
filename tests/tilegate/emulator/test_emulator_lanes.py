"""What lanes do together: exchange, votes, barriers, and what becomes of lanes that do not come."""

from __future__ import annotations

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
