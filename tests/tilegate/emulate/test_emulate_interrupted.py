"""`tilegate emulate` that is interrupted or killed leaves nothing running, whatever the kernel does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import alive, wait_until

pytestmark = pytest.mark.usefixtures("clang")
ROOT = Path(__file__).parents[3]


def _descendants(of: int) -> dict[int, str]:
    every, found = alive(), {}
    wanted = [of]
    while wanted:
        parent = wanted.pop()
        children = {pid: args for pid, (its, args) in every.items() if its == parent}
        found |= children
        wanted += children
    return found


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda how: how.name)
def test_nothing_is_left_of_an_endless_kernel(toy, tmp_path, how):
    toy.replace("  int row", "  while (((volatile int*)&n)[0] > 0);\n  int row")
    command = subprocess.Popen(
        [sys.executable, "-m", "tilegate.cli", "emulate", "--repo", str(toy.path)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        # Two kernels, each in two processes, one of which watches, started by a worker.
        assert wait_until(
            lambda: sum("/tilegate/emulator/" in args for args in _descendants(command.pid).values()) >= 2
        )
        started = _descendants(command.pid)
        command.send_signal(how)
        sent = time.monotonic()
        command.wait(60)
        assert wait_until(lambda: not started.keys() & alive().keys()), started
        took = time.monotonic() - sent
    finally:
        command.kill()
        command.wait()
    if how == signal.SIGINT:
        assert command.returncode == 130
    assert took < 15  # of the 20 seconds that each run of the kernel may take, and it has only begun
