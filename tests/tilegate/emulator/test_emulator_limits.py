"""Kernels that do not end, take too much or attack the process they run in: reported, and the caller lives on."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from processes import alive, wait_until
from small_hip_kernels import line_of, out, run, source

from tilegate import emulator
from tilegate.emulator import Limits

SHORT = Limits(seconds=1.0)


@pytest.mark.parametrize("traced", [True, False])
def test_an_endless_loop_is_named(traced: bool) -> None:
    body = "  volatile int i = 0;\n  while (i < 1) { i = 0; }  // endless\n  out[t] = i;"
    started = time.monotonic()
    done = run(body, {"out": out()}, limits=SHORT, traced=traced)
    (found,) = done.findings
    assert not done.completed
    assert (found.kind, found.line) == ("time-limit", line_of(body, "// endless"))
    assert "1 s" in found.message
    assert time.monotonic() - started < 30


def test_an_endless_loop_over_a_barrier() -> None:
    done = run("  for (int i = 0; i >= 0; i = 1) { __syncthreads(); }\n  out[t] = 1;", {"out": out()}, limits=SHORT)
    assert [found.kind for found in done.findings] == ["time-limit"]
    assert done.findings[0].line


def test_waiting_for_another_workgroup() -> None:
    body = "  if (blockIdx.x == 0) { while (*(volatile int*)(out + 64) == 77) { } }\n  out[64] = 1;"
    done = run(body, {"out": out(65)}, grid=(2,), limits=SHORT, traced=False, processes=1)
    assert [found.kind for found in done.findings] == ["time-limit"]
    assert "another" in done.findings[0].message


HOSTILE = {
    "exits": ("exit(0);", "", {"crash"}),
    "aborts": ("abort();", "", {"fault"}),
    "kills itself": ("raise(9);", "", {"crash"}),
    "blocks the alarm": (
        "sigset_t all; sigfillset(&all); sigprocmask(SIG_BLOCK, &all, nullptr); for (volatile int i = 0; i < 1;) { }",
        "",
        {"time-limit"},
    ),
    "takes all memory": (
        "for (;;) { char* volatile p = (char*)malloc(1 << 26); p[0] = 1; memset(p, 1, 1 << 26); }",
        "",
        {"fault"},
    ),
    "recurses": (
        "out[t] = deeper(t);",
        "__attribute__((noinline)) int deeper(int n) { volatile int x[999]; x[n % 999] = n; return n < 0 ? 0 : deeper(n + 1) + x[5]; }",
        {"fault", "crash", "out-of-bounds"},
    ),
    "writes over the report": ('for (int d = 0; d < 64; ++d) { if (write(d, "{]", 2)) { } }', "", {"crash"}),
    "floods the report": (
        "for (int d = 3; d < 64; ++d) { for (int i = 0; i < 99999; ++i) { if (write(d, buf_dyn_shmem, 1024) < 0) { break; } } }",
        "",
        {"crash"},
    ),
    "divides by zero": ("if (t / (out[0] - 77) == 5) { out[0] = 3; }", "", {"fault"}),
    "starts another process": ("if (fork() == 0) { for (volatile int i = 0; i < 1;) { } }", "", set()),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_kernels(name: str) -> None:
    body, prelude, expected = HOSTILE[name]
    headers = "#include <csignal>\n#include <cstdlib>\n#include <unistd.h>\n"
    started = time.monotonic()
    done = run(
        f"  {body}\n  out[t] = 1;",
        {"out": out()},
        prelude=headers + prelude,
        traced=False,
        limits=Limits(seconds=4, memory_bytes=512 << 20),
    )
    assert {found.kind for found in done.findings} == expected or expected >= {f.kind for f in done.findings} != set()
    assert time.monotonic() - started < 60
    assert run("  out[t] = 2;", {"out": out()}, traced=False).findings == ()


def test_a_process_that_lives_on_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # the path of the runner there is nobody else's
    body, prelude, _ = HOSTILE["starts another process"]
    run(
        f"  {body}\n  out[t] = 1;",
        {"out": out()},
        prelude="#include <unistd.h>\n" + prelude,
        traced=False,
        limits=SHORT,
    )
    program = emulator.compile_kernel(
        source(f"  {body}\n  out[t] = 1;", prelude="#include <unistd.h>\n"),
        "small",
        arch="gfx942",
        shared_bytes=1024,
        traced=False,
    )
    # Killed is not gone yet on a machine with much to do.
    assert wait_until(lambda: not any(str(program.runner) in args for _, args in alive().values()))


def test_a_frame_that_no_lane_has_room_for() -> None:
    with pytest.raises(emulator.UnsupportedKernel, match="stack frame"):
        run("  volatile int big[16384];\n  big[t] = 1;\n  out[t] = big[t];", {"out": out()})


def test_arguments_that_the_memory_limit_excludes() -> None:
    big = np.zeros(1 << 22, np.int32)
    (found,) = run("  out[t] = 1;", {"out": big}, limits=Limits(memory_bytes=400 << 20)).findings
    assert found.kind == "memory-limit"
    assert "400 MiB" in found.message


def test_no_file_is_written(tmp_path: object) -> None:
    body = f'  int file = open("{tmp_path}/written", 0101, 0600);\n  if (t == 0 && write(file, "x", 1)) {{ }}\n  out[t] = 1;'
    run(body, {"out": out()}, prelude="#include <fcntl.h>\n#include <unistd.h>\n", traced=False)
    from pathlib import Path

    assert not Path(f"{tmp_path}/written").exists() or Path(f"{tmp_path}/written").read_bytes() == b""
