"""Accesses to LDS and global memory: where they may go, what they may see, and with whom they conflict."""

from __future__ import annotations

import numpy as np
import pytest
from small_hip_kernels import kinds, line_of, out, run

from tilegate import emulator

WAVES = 128


def test_a_race_between_waves_names_both_lines() -> None:
    body = "  lds[t] = t;  // here\n  out[t] = lds[t ^ 64];  // there"
    found = [f for f in run(body, {"out": out(WAVES)}, threads=WAVES).findings if f.kind == "race"]
    (race,) = found
    assert race.other is not None
    assert {race.line, race.other.line} == {line_of(body, "// here"), line_of(body, "// there")}
    assert {race.wave, race.other.wave} == {0, 1}
    assert "// here" in str(race)
    assert "// there" in str(race)
    assert "LDS" in race.message


@pytest.mark.parametrize("schedule", emulator.SCHEDULES, ids=str)
def test_a_race_is_found_under_every_schedule(schedule: emulator.Schedule) -> None:
    body = "  lds[t] = 1;\n  __syncthreads();\n  out[t] = lds[t ^ 64];\n  lds[t] = 2;"
    assert kinds(run(body, {"out": out(WAVES)}, threads=WAVES, schedule=schedule)) == ["race"]


def test_a_barrier_ends_a_race() -> None:
    body = "  lds[t] = 1;\n  __syncthreads();\n  out[t] = lds[t ^ 64];\n  __syncthreads();\n  lds[t] = 2;"
    done = run(body, {"out": out(WAVES)}, threads=WAVES)
    assert done.findings == ()
    assert done.hints == ()  # both are needed


def test_a_write_after_a_write_counts_only_if_the_values_differ() -> None:
    assert run("  lds[0] = 5;\n  out[t] = 1;", {"out": out(WAVES)}, threads=WAVES).findings == ()
    assert kinds(run("  lds[0] = t / 64;\n  out[t] = 1;", {"out": out(WAVES)}, threads=WAVES)) == ["race"]
    assert kinds(run("  lds[0] = t;\n  out[t] = 1;", {"out": out()})) == ["wave-race"]


def test_global_memory_races_between_waves_and_workgroups() -> None:
    assert kinds(run("  out[0] = t / 64;", {"out": out(1)}, threads=WAVES)) == ["race"]
    done = run("  out[t] = (int)blockIdx.x;", {"out": out()}, grid=(2,))
    (found,) = done.findings
    assert found.kind == "workgroup-race"
    assert found.other is not None
    assert (found.block, found.other.block) == ((1, 0, 0), (0, 0, 0))
    assert "out[0]" in found.message


@pytest.mark.parametrize("traced", [True, False])
def test_atomics_are_ordered_and_plain_additions_are_not(traced: bool) -> None:
    result = np.zeros(1, np.float32)
    parameters = "float* __restrict__ out"
    body = "  AtomicAdd(&out[0], 1.0f);"
    done = run(body, {"out": result}, parameters=parameters, threads=WAVES, grid=(3,), traced=traced)
    assert done.findings == ()
    assert done.atomics == 3 * WAVES
    assert result[0] == 3 * WAVES
    if traced:
        plain = run("  out[0] = out[0] + 1.0f;", {"out": result}, parameters=parameters, threads=WAVES, grid=(3,))
        assert kinds(plain) == ["race", "wave-race", "workgroup-race"]


@pytest.mark.parametrize(
    ("parameters", "body", "initial", "expected"),
    [
        ("int* __restrict__ out", "AtomicMax(&out[0], t)", np.int32(-5), 63),
        ("int* __restrict__ out", "AtomicMin(&out[0], t - 9)", np.int32(5), -9),
        ("int* __restrict__ out", "AtomicOr(&out[0], 1 << (t % 8))", np.int32(0), 255),
        ("float* __restrict__ out", "AtomicAddx2(&out[0], pair)", np.float32(0), 64),
        ("float* __restrict__ out", "AtomicAddx4(&out[0], pair)", np.float32(0), 64),
        ("int64_t* __restrict__ out", "AtomicAdd(&out[0], (int64_t)1 << 33)", np.int64(0), 64 << 33),
        ("half_t* __restrict__ out", "atomicAdd((half2*)out, half2{1, 2})", np.float16(0), 64),
        ("int* __restrict__ out", "atomicCAS(&out[0], t, t + 1)", np.int32(0), 64),
        ("int* __restrict__ out", "AtomicStore(&out[0], AtomicLoad(&out[0], 0) | 3, 0)", np.int32(0), 3),
    ],
)
def test_atomic_operations(parameters: str, body: str, initial: np.generic, expected: int) -> None:
    result = np.full(4, initial)
    done = run(f"  float pair[4] = {{1, 1, 1, 1}};\n  {body};", {"out": result}, parameters=parameters)
    assert done.findings == ()
    assert result[0] == expected


def test_an_atomic_and_a_plain_access_conflict() -> None:
    body = "  if (t < 64) {\n    AtomicAdd(&lds[0], 1);\n  } else {\n    out[t] = lds[0];\n  }"
    assert "race" in kinds(run(body, {"out": out(WAVES)}, threads=WAVES))


@pytest.mark.parametrize(
    ("at", "says"),
    [
        ("lds[t + 193]", "LDS at byte 1024"),
        ("out[t + 1]", "past the end of out"),
        ("out[t - 1]", "before the start of out"),
    ],
)
def test_out_of_bounds(at: str, says: str) -> None:
    body = f"  lds[t] = 0;\n  {at} = 1;  // wrong"
    found = [f for f in run(body, {"out": out()}).findings if f.kind == "out-of-bounds"]
    (bounds,) = found
    assert bounds.line == line_of(body, "wrong")
    assert says.split(" at ", maxsplit=1)[0] in bounds.message
    assert bounds.lane in (0, 63)


@pytest.mark.parametrize("at", ["lds[t + 4096]", "out[t + 4096]", "lds[t - 2048]"])
def test_far_out_of_bounds_faults_without_checks(at: str) -> None:
    done = run(f"  {at} = 1;  // wrong", {"out": out()}, traced=False)
    assert not done.completed
    (found,) = done.findings
    assert (found.kind, found.line) == ("out-of-bounds", line_of(f"  {at} = 1;  // wrong", "wrong"))


def test_a_wild_pointer() -> None:
    done = run("  *(int*)(uintptr_t)(t + 16) = 1;  // wild\n  out[t] = 1;", {"out": out()}, traced=False)
    (found,) = done.findings
    assert found.kind == "fault"
    assert "SIGSEGV" in found.message
    assert found.line


def test_reading_lds_that_nothing_wrote() -> None:
    body = "  if (t < 60) { lds[t] = t; }\n  __syncthreads();\n  out[t] = lds[t];  // reads"
    (found,) = run(body, {"out": out()}).findings
    assert (found.kind, found.line, found.count) == ("uninitialised", line_of(body, "// reads"), 4)
    assert found.lane in range(60, 64)


def test_lds_is_fresh_in_every_workgroup() -> None:
    body = "  if (blockIdx.x == 0) { lds[t] = t; }\n  __syncthreads();\n  out[64 * blockIdx.x + t] = lds[t];"
    (found,) = run(body, {"out": out(128)}, grid=(2,)).findings
    assert (found.kind, found.block) == ("uninitialised", (1, 0, 0))


def test_lds_that_nothing_wrote_holds_nan() -> None:
    result = out(64, np.float32)
    run("  out[t] = ((float*)lds)[t];", {"out": result}, parameters="float* __restrict__ out", traced=False)
    assert np.isnan(result).all()


def test_a_misaligned_access() -> None:
    body = "  *(uint4*)(lds + 4 * t) = make_uint4(1, 2, 3, 4);\n  __syncthreads();\n  uint2 x = *(uint2*)((char*)lds + 4 + 8 * (t & 1));  // odd\n  out[t] = x.x + x.y;"
    (found,) = run(body, {"out": out()}).findings
    assert (found.kind, found.line) == ("misaligned", line_of(body, "odd"))


def test_static_shared_memory() -> None:
    result = out(WAVES)
    body = "  __shared__ int table[128];\n  __shared__ float scale[2];\n  table[t] = 3 * t;\n  scale[t & 1] = 2;\n  __syncthreads();\n  out[t] = table[127 - t] * (int)scale[0];"
    done = run(body, {"out": result}, threads=WAVES, grid=(2,), shared=0)
    assert [f.kind for f in done.findings] == []
    assert result.tolist() == [6 * (127 - t) for t in range(WAVES)]
    raced = run(body.replace("__syncthreads();", ";"), {"out": out(WAVES)}, threads=WAVES, shared=0)
    assert "race" in kinds(raced)


def test_an_asynchronous_copy_is_done_at_its_wait() -> None:
    parameters = "int* __restrict__ out, int* __restrict__ source"
    body = "  tl::cp_async_gs<16>(lds + 4 * t, source + 4 * t);\n  tl::cp_async_commit();\n  {wait}\n  __syncthreads();\n  out[t] = lds[4 * (t ^ 64)];  // read"
    given = np.arange(4 * WAVES, dtype=np.int32)
    result = out(WAVES)
    arguments = {"out": result, "source": given}
    done = run(
        body.format(wait="tl::cp_async_wait<0>();"), arguments, parameters=parameters, threads=WAVES, shared=2048
    )
    assert done.findings == ()
    assert result.tolist() == [4 * (t ^ 64) for t in range(WAVES)]
    for wait in (";", "tl::cp_async_wait<1>();"):
        late = run(body.format(wait=wait), arguments, parameters=parameters, threads=WAVES, shared=2048)
        (found,) = late.findings
        assert found.kind == "copy-race"
        assert found.line == line_of(body, "// read")


def test_copies_are_done_in_order_and_a_false_condition_writes_zeros() -> None:
    parameters = "int* __restrict__ out, int* __restrict__ source"
    body = """  tl::cp_async_gs<4>(lds + t, source + t);
  tl::cp_async_gs_conditional<16>(lds + 64 + 4 * t, source, t < 0);
  tl::cp_async_wait<1>();
  __syncthreads();
  int first = lds[t ^ 1];
  tl::cp_async_wait<0>();
  __syncthreads();
  out[t] = first + lds[64 + t];"""
    result = out()
    done = run(body, {"out": result, "source": np.arange(64, dtype=np.int32)}, parameters=parameters, shared=2048)
    assert done.findings == ()
    assert result.tolist() == [t ^ 1 for t in range(64)]


def test_a_barrier_that_nothing_needs_is_a_hint() -> None:
    body = "  lds[t] = t;\n  __syncthreads();  // needed\n  out[t] = lds[t ^ 64];\n  __syncthreads();  // not needed\n  out[t] += 1;"
    done = run(body, {"out": out(WAVES)}, threads=WAVES)
    assert done.findings == ()
    assert [hint.line for hint in done.hints] == [line_of(body, "// not needed")]


def test_more_lds_than_the_chip_has() -> None:
    (found,) = run("  out[t] = 1;", {"out": out()}, shared=65537).findings
    assert found.kind == "lds-overflow"
    assert "65536" in found.message
    assert run("  out[t] = 1;", {"out": out()}, shared=65537, arch="gfx950").findings == ()
