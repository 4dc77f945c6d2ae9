"""What is ordered and what is not: workgroups, atomics beside plain accesses, barriers that do not wait."""

from __future__ import annotations

import numpy as np
import pytest
from small_hip_kernels import kinds, out, program, run

from tilegate import emulator

WAVES = 128


def under_all(
    body: str, arguments: dict[str, object], parameters: str, *, grid: int = 1, threads: int = 64
) -> list[str]:
    built = program(body, parameters=parameters, shared=1024)
    return kinds(emulator.run_schedules(built, arguments, [grid], [threads], registers=False))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "body",
    [
        "  int i = blockIdx.x * 64 + t;\n  int v = x[i] + x[i + 1];\n  __syncthreads();\n  x[i] = v;",
        "  int i = blockIdx.x * 64 + t + 1;\n  int v = x[i] + x[i - 1];\n  __syncthreads();\n  x[i] = v;",
    ],
    ids=["of the next workgroup", "of the one before"],
)
def test_a_workgroup_reads_what_another_overwrites(body: str) -> None:
    x = np.arange(257, dtype=np.int32)
    found = kinds(run(body, {"x": x}, parameters="int* __restrict__ x", grid=(4,)))
    assert found == ["workgroup-race"]
    assert under_all(body, {"x": x}, "int* __restrict__ x", grid=4) == ["schedule-dependent", "workgroup-race"]


def test_an_order_of_workgroups_that_is_assumed() -> None:
    body = "  if (t == 0) { int k = atomicAdd(c, 1); out[k] = blockIdx.x; }"
    arguments = {"out": out(4), "c": np.zeros(1, np.int32)}
    assert under_all(body, arguments, "int* __restrict__ out, int* __restrict__ c", grid=4) == ["schedule-dependent"]


def test_the_order_of_float_atomics_is_reported() -> None:
    v = (np.random.default_rng(0).standard_normal(256) * 10.0 ** np.arange(256).clip(0, 7)).astype(np.float32)
    arguments = {"out": np.zeros(1, np.float32), "v": v}
    parameters = "float* __restrict__ out, float* __restrict__ v"
    assert under_all("  atomicAdd(out, v[t]);", arguments, parameters, threads=256) == ["schedule-dependent"]
    whole = {"out": np.zeros(1, np.float32), "v": np.ones(256, np.float32)}
    assert under_all("  atomicAdd(out, v[t]);", whole, parameters, threads=256) == []


@pytest.mark.parametrize("schedule", [*emulator.SCHEDULES], ids=str)
@pytest.mark.parametrize("processes", [1, 3])
def test_every_schedule_runs_each_workgroup_once(schedule: emulator.Schedule, processes: int) -> None:
    result = np.zeros(30, np.int32)
    run(
        "  if (t == 0) out[blockIdx.y * 5 + blockIdx.x] += 1 + blockIdx.y * 5 + blockIdx.x;",
        {"out": result},
        grid=(5, 6),
        traced=False,
        schedule=schedule,
        processes=processes,
    )
    assert result.tolist() == list(range(1, 31))


CLEARED = "  if (t < 64) lds[t] = 0;\n  __syncthreads();\n"


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("  atomicAdd(lds + (t & 7), 1);\n  out[t] = lds[t & 7];", {"race", "wave-race"}),
        ("  atomicAdd(lds + (t & 7), 1);\n  out[t] = lds[(t + 1) & 7];", {"race", "wave-race"}),
        ("  if (t < 64) atomicAdd(lds, 1);\n  else out[t] = lds[0];", {"race"}),
        ("  atomicAdd(lds + (t & 7), 1);\n  __syncthreads();\n  out[t] = lds[t & 7];", set()),
        ("  atomicAdd(lds + t % 64, 1);\n  out[t] = atomicAdd(lds + t % 64, 0);", set()),
    ],
)
def test_an_atomic_and_a_plain_access_in_lds(body: str, found: set[str]) -> None:
    assert set(kinds(run(CLEARED + body, {"out": out(WAVES)}, threads=WAVES))) == found


@pytest.mark.parametrize("order", ["atomicAdd(c, 1);\n  int v = c[0];", "int v = c[0];\n  atomicAdd(c, 1);"])
def test_an_atomic_and_a_plain_access_of_two_workgroups(order: str) -> None:
    body = f"  {order}\n  if (t == 0) out[blockIdx.x] = v;"
    arguments = {"out": out(4), "c": np.zeros(1, np.int32)}
    parameters = "int* __restrict__ out, int* __restrict__ c"
    assert kinds(run(body, arguments, parameters=parameters, grid=(4,), threads=1)) == ["workgroup-race"]


@pytest.mark.parametrize(
    ("barrier", "found"),
    [
        ("__builtin_amdgcn_s_barrier()", ["race"]),
        ("tl::wave_barrier()", ["race"]),
        ("__builtin_amdgcn_s_waitcnt(0); __builtin_amdgcn_s_barrier()", []),
        ('__builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup"); __builtin_amdgcn_s_barrier()', []),
        ("__syncthreads()", []),
    ],
)
def test_a_bare_barrier_does_not_wait_for_lds(barrier: str, found: list[str]) -> None:
    body = f"  lds[t] = t;\n  {barrier};\n  out[t] = lds[t ^ 64];"
    assert kinds(run(body, {"out": out(WAVES)}, threads=WAVES)) == found


def test_an_array_that_is_passed_twice_stays_one() -> None:
    x = np.arange(64, dtype=np.int32)
    parameters = "int* __restrict__ out, const int* __restrict__ v"
    found = run("  out[t] = v[63 - t] + 1;", {"out": x, "v": x}, parameters=parameters)
    assert kinds(found) == ["wave-race"]
    y = np.arange(96, dtype=np.int32)  # the second half of one is the first of the other
    done = run("  int r = v[t];\n  out[t] = r + 100;", {"out": y[32:], "v": y[:64]}, parameters=parameters)
    assert kinds(done) == ["wave-race"]
    z = np.arange(128, dtype=np.int32)
    apart = run("  out[t] = v[t] + 100;", {"out": z[64:], "v": z[:64]}, parameters=parameters)
    assert apart.findings == ()
    assert z[64:].tolist() == list(range(100, 164))


def test_a_store_of_what_is_there_is_a_race_with_a_read_and_not_with_a_store() -> None:
    assert run("  lds[0] = 5;\n  out[t] = 1;", {"out": out(WAVES)}, threads=WAVES).findings == ()
    reads = "  lds[t] = 5;\n  __syncthreads();\n  out[t] = lds[t ^ 64];\n  lds[t] = 5;"
    for schedule in emulator.SCHEDULES:
        assert kinds(run(reads, {"out": out(WAVES)}, threads=WAVES, schedule=schedule)) == ["race"]


@pytest.mark.parametrize(
    ("grid", "threads", "says"),
    [((1, 70_000), 1, "65536"), ((1 << 27,), 64, "2\\^32"), ((1,), 512, "__launch_bounds__")],
)
def test_launches_that_a_chip_refuses(grid: tuple[int, ...], threads: int, says: str) -> None:
    (found,) = run("  out[0] = 1;", {"out": out()}, grid=grid, threads=threads, traced=False).findings
    assert found.kind == "launch-limit"
    assert says.replace("\\", "") in found.message


@pytest.mark.parametrize(("words", "dynamic"), [(12_000, 40_000), (20_000, 0)])
def test_static_and_dynamic_lds_are_counted_together(words: int, dynamic: int) -> None:
    body = f"  __shared__ int s[{words}];\n  s[t] = t;\n  __syncthreads();\n  out[t] = s[63 - t];"
    (found,) = run(body, {"out": out()}, shared=dynamic).findings
    assert found.kind == "lds-overflow"
    assert run(body, {"out": out()}, shared=dynamic, arch="gfx950").findings == ()
