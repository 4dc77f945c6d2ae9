"""Processes of this machine, for tests of what is left when something was interrupted."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable


def alive() -> dict[int, tuple[int, str]]:
    """Parent and command line of every process that has not ended."""
    command = ["ps", "-ww", "-eo", "pid,ppid,stat,args"]
    rows = [line.split(None, 3) for line in subprocess.check_output(command, text=True).splitlines()[1:]]
    return {int(pid): (int(parent), args) for pid, parent, state, args in rows if not state.startswith("Z")}


def wait_until(holds: Callable[[], object], seconds: float = 60) -> bool:
    """Return whether a condition holds before the time is up."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if holds():
            return True
        time.sleep(0.05)
    return False
