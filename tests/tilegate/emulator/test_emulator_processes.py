"""Processes that share the workgroups of an untraced run: the same results, no finding lost, nothing left running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import attention_kernel
import numpy as np
import pytest
from processes import alive, wait_until
from small_hip_kernels import line_of, out, run, source

from tilegate import emulator
from tilegate.emulator import Limits

HEADERS = "#include <csignal>\n#include <cstdlib>\n#include <unistd.h>\n"
WHICH = "  out[blockIdx.x * 64 + t] = getpid();"
GRID = (12,)


def _line(body: str, text: str) -> int:
    return line_of(body, text) + HEADERS.count("\n")


def share(body: str, result: np.ndarray, *, traced: bool = False, seconds: float = 60, processes: int = 3):
    return run(
        body,
        {"out": result},
        prelude=HEADERS,
        grid=GRID,
        traced=traced,
        limits=Limits(seconds=seconds),
        processes=processes,
    )


def test_workgroups_are_shared_and_each_runs_once() -> None:
    result = out(64 * 12)
    # Long enough that no process can take them all before the others have begun.
    body = f"  if (t == 0) {{ usleep(50000); }}\n{WHICH}"
    assert share(body, result).completed
    rows = result.reshape(12, 64)
    assert (rows == rows[:, :1]).all()
    assert len(set(rows[:, 0])) == 3
    once = np.zeros(64 * 12, np.int32)
    assert share("  out[blockIdx.x * 64 + t] += t + 1;", once).completed
    assert np.array_equal(once.reshape(12, 64), np.tile(np.arange(64) + 1, (12, 1)))


@pytest.mark.parametrize("processes", [1, 3])
def test_no_more_processes_than_asked_for_or_than_workgroups(processes: int) -> None:
    result = out(64 * 12)
    assert share(WHICH, result, processes=processes).completed
    assert len(set(result)) <= processes
    assert run(WHICH, {"out": result}, prelude=HEADERS, traced=False, processes=99).completed
    with pytest.raises(ValueError, match="at least 1"):
        share(WHICH, result, processes=0)


@pytest.mark.parametrize(
    ("body", "traced"), [(WHICH, True), (f"{WHICH}\n  if (out[0] == 77) {{ AtomicAdd(&out[0], 1); }}", False)]
)
def test_checks_and_atomics_take_one_process(body: str, traced: bool) -> None:
    result = out(64 * 12)
    share(body, result, traced=traced)
    assert len(set(result)) == 1


@pytest.mark.parametrize("schedule", emulator.SCHEDULES, ids=str)
def test_results_are_those_of_one_process_bit_by_bit(schedule: emulator.Schedule) -> None:
    """Of a kernel with a race, too, if no two workgroups have it: the order of each is its own."""
    program = emulator.compile_kernel(attention_kernel.text(), attention_kernel.NAME, arch="gfx942", shared_bytes=16384, traced=False)  # fmt: skip
    one, three = (attention_kernel.arguments((1, 2, 1, 131, 195)) for _ in range(2))
    grid = emulator.grid_of(attention_kernel.GRID, {"heads": 2, "seqlen_q": 131, "batch": 1})
    for arguments, processes in ((one, 1), (three, 3)):
        assert emulator.run(program, arguments, grid, [256], schedule=schedule, processes=processes).completed
    for name in ("O", "LSE"):
        assert np.array_equal(one[name].view(np.uint8), three[name].view(np.uint8))
    racy = "  lds[0] = t;\n  __syncthreads();\n  out[blockIdx.x * 64 + t] = lds[0];"
    results = [out(64 * 12) for _ in range(2)]
    for result, processes in zip(results, (1, 3), strict=True):
        assert run(racy, {"out": result}, grid=GRID, traced=False, schedule=schedule, processes=processes).completed
    assert np.array_equal(*results)


def test_a_fault_of_one_workgroup_is_one_finding_and_the_result_is_not_fetched() -> None:
    body = "  if (blockIdx.x == 5) { out[t] = t / (int)(gridDim.x - 12); }  // fault\n  out[blockIdx.x * 64 + t] = 1;"
    result = out(64 * 12)
    done = share(body, result)
    (found,) = done.findings
    assert (found.kind, found.block, found.line) == ("fault", (5, 0, 0), _line(body, "// fault"))
    assert not done.completed
    assert set(result) == {77}


def test_a_fault_of_all_workgroups_is_that_of_the_first() -> None:
    for _ in range(5):
        (found,) = share("  out[t] = t / (int)(gridDim.x - 12);", out(64 * 12)).findings
        assert (found.kind, found.block) == ("fault", (0, 0, 0))


def test_workgroups_after_one_that_ends_the_run_are_not_begun() -> None:
    body = """  if (blockIdx.x == 0) { out[t] = t / (int)(gridDim.x - 12); }
  if (blockIdx.x == 1 && t == 0) { usleep(500000); }
  if (blockIdx.x > 1) { for (volatile int i = 0; i < 1;) { } }"""
    done = share(body, out(), processes=2, seconds=5)
    assert [(found.kind, found.block[0]) for found in done.findings] == [("fault", 0)]


def test_findings_of_several_processes_are_all_reported() -> None:
    body = """  if (blockIdx.x == 1 && t < 32) { out[t] = __shfl_xor(t, 32); }  // one
  if (blockIdx.x == 9) { out[t] = t / (int)(gridDim.x - 12); }  // nine"""
    findings = share(body, out(64 * 12)).findings
    assert [(found.kind, found.block[0], found.line) for found in findings] == [
        ("inactive-lane", 1, _line(body, "// one")),
        ("fault", 9, _line(body, "// nine")),
    ]
    (same,) = share("  if (t < 32) { out[t] = __shfl_xor(t, 32); }", out(64 * 12)).findings
    assert (same.block, same.count) == ((0, 0, 0), 12 * 32)


@pytest.mark.parametrize(
    ("what", "kind", "says"),
    [
        ("raise(9);", "crash", "SIGKILL"),
        ("exit(0);", "crash", "exit status 0"),
        ("_exit(5);", "crash", "exit status 5"),
        ("abort();", "fault", "SIGABRT"),
    ],
)
def test_one_process_that_ends_is_a_finding(what: str, kind: str, says: str) -> None:
    done = share(f"  if (blockIdx.x == 7) {{ {what} }}\n  out[blockIdx.x * 64 + t] = 1;", out(64 * 12))
    assert not done.completed
    (found,) = done.findings
    assert found.kind == kind
    assert says in found.message


@pytest.mark.parametrize(
    "loop", ["", "sigset_t all; sigfillset(&all); sigprocmask(SIG_BLOCK, &all, nullptr);"], ids=["plain", "deaf"]
)
def test_one_process_that_hangs_is_stopped_and_named(loop: str) -> None:
    body = f"  if (blockIdx.x == 3) {{ {loop} for (volatile int i = 0; i < 1;) {{ }} }}  // endless\n  out[blockIdx.x * 64 + t] = 1;"
    started = time.monotonic()
    done = share(body, out(64 * 12), seconds=1)
    (found,) = done.findings
    assert found.kind == "time-limit"
    if not loop:
        assert (found.block, found.line) == ((3, 0, 0), _line(body, "// endless"))
    assert not done.completed
    assert 1 <= time.monotonic() - started < 30


def test_a_fault_is_not_lost_behind_a_hang() -> None:
    body = "  if (blockIdx.x == 0) { for (volatile int i = 0; i < 1;) { } }\n  if (blockIdx.x == 1) { out[t] = t / (int)(gridDim.x - 12); }"
    findings = share(body, out(64 * 12), seconds=1).findings
    assert {(found.kind, found.block[0]) for found in findings} == {("time-limit", 0), ("fault", 1)}


def test_a_process_that_skips_workgroups_is_found_out() -> None:
    """A kernel can write over the memory that the processes share their work by."""
    body = """  if (t == 0) {
    char line[512]; FILE* maps = fopen("/proc/self/maps", "r");
    while (fgets(line, 512, maps)) {
      unsigned long long begin = 0, end = 0; char rights[5];
      if (sscanf(line, "%llx-%llx %4s", &begin, &end, rights) == 3 && rights[1] == 'w' && rights[3] == 's' && strstr(line, "/dev/zero")) {
        *(volatile unsigned long long*)begin = 1000;
      }
    }
  }
  out[blockIdx.x * 64 + t] = 1;"""
    done = run(body, {"out": out(64 * 12)}, prelude=HEADERS + "#include <cstdio>\n#include <cstring>\n", grid=GRID, traced=False, processes=1)  # fmt: skip
    (found,) = done.findings
    assert found.kind == "crash"
    assert not done.completed


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For processes of their own: the path of the runner there is nobody else's."""
    return tmp_path_factory.mktemp("cache")


RUNS = """
import sys
import numpy as np
from pathlib import Path
from tilegate import emulator
text = Path(sys.argv[1]).read_text()
program = emulator.compile_kernel(text, "small", arch="gfx942", shared_bytes=1024, traced=sys.argv[2] == "traced")
print(program.runner.name, flush=True)
emulator.run(program, {"out": np.zeros(64, np.int32)}, [4], [64], limits=emulator.Limits(seconds=300), processes=2)
"""


def _running(name: str) -> list[int]:
    """Processes whose program is of that name."""
    return [pid for pid, (_, args) in alive().items() if name in args]


@pytest.mark.parametrize(
    ("how", "traced"),
    [(signal.SIGKILL, "traced"), (signal.SIGKILL, "untraced"), (signal.SIGINT, "traced"), (signal.SIGTERM, "untraced")],
    ids=str,
)
def test_all_of_it_ends_with_the_process_that_started_it(
    how: signal.Signals, traced: str, tmp_path: Path, cache: Path
) -> None:
    (tmp_path / "small.hip").write_text(source("  for (volatile int i = 0; i < 1;) { }\n  out[t] = 1;"))
    parent = subprocess.Popen(
        [sys.executable, "-c", RUNS, str(tmp_path / "small.hip"), traced],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "XDG_CACHE_HOME": str(cache)},
        cwd=Path(__file__).parents[3],
        text=True,
    )
    assert parent.stdout is not None
    try:
        name = str(cache / "tilegate/emulator" / parent.stdout.readline().strip())
        expected = 2 if traced == "traced" else 3  # the one that watches, and those that run
        assert wait_until(lambda: len(_running(name)) == expected, 30)
        parent.send_signal(how)
        parent.wait(30)
    finally:
        parent.kill()
        parent.stdout.close()
        parent.wait()
    assert wait_until(lambda: not _running(name), 30), _running(name)


def test_the_processes_end_with_the_one_that_watches_them(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from concurrent.futures import ThreadPoolExecutor

    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    body = "  for (volatile int i = 0; i < 1;) { }\n  out[t] = 1;"
    program = emulator.compile_kernel(source(body), "small", arch="gfx942", shared_bytes=1024, traced=False)
    name = str(program.runner)
    with ThreadPoolExecutor(1) as pool:
        going = pool.submit(run, body, {"out": out()}, grid=(4,), traced=False, processes=2, limits=Limits(seconds=60))
        assert wait_until(lambda: len(_running(name)) == 3, 30)
        watcher = next(pid for pid in _running(name) if os.getsid(pid) == pid)
        os.kill(watcher, signal.SIGKILL)
        (found,) = going.result(30).findings
    assert found.kind == "crash"
    assert wait_until(lambda: not _running(name), 30)
