"""One gate at a time on one device: two would time each other."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import TextIO

from tilegate.files import UsageError

_LONGEST_HOLDER = 500  # characters
_POLL = 0.5  # seconds between two attempts

# Which device a process sees first; the lock belongs to that one.
_VISIBLE = {
    "cuda": ("CUDA_VISIBLE_DEVICES",),
    "hip": ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
}


def device_name(target: str) -> str:
    """Return a name for the device that `target` means in this environment, such as "cpu" or "hip-0"."""
    for variable in _VISIBLE.get(target, ()):
        first = os.environ.get(variable, "").split(",")[0].strip()
        if first:
            return f"{target}-{''.join(c if c.isalnum() else '_' for c in first)}"
    return target if target == "cpu" else f"{target}-0"


@contextlib.contextmanager
def hold(target: str, *, wait: bool, who: str = "tilegate", say: Callable[[str], None]) -> Iterator[None]:
    """Hold the device for the length of the context. The system releases it however this process ends.

    Args:
        target: "cpu", "cuda" or "hip".
        wait: wait for another run to end; else refuse.
        who: what another run is told that has to wait for this one.
        say: gets a message if there is something to wait for, and when that is over.

    Raises:
        UsageError: another run holds it and `wait` is false.
    """
    device = device_name(target)
    path = _folder() / f"{device}.lock"
    with path.open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(file) or "another run"
            if not wait:
                raise UsageError(
                    f"{holder} is measuring on {device}; wait for it, or use --when-busy wait to wait here"
                ) from None
            say(f"waiting: {holder} is measuring on {device}")
            started = time.monotonic()
            _wait(file, lambda now: say(f"waiting: now {now} is measuring on {device}"), holder)
            say(f"waited {time.monotonic() - started:.0f} s for {device}")
        file.truncate(0)
        file.write(f"process {os.getpid()} ({who}), since {datetime.now().astimezone():%H:%M:%S},"[:_LONGEST_HOLDER])
        file.flush()
        yield


def _wait(file: TextIO, changed: Callable[[str], None], holder: str) -> None:
    """Wait for the lock; tell `changed` when another run got it first."""
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            now = _holder(file)
            if now and now != holder:  # empty while it is being written
                changed(now)
                holder = now
            time.sleep(_POLL)
        else:
            return


def _holder(file: TextIO) -> str:
    file.seek(0)
    return _printable(file.read(_LONGEST_HOLDER))


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text).strip()


def _folder() -> Path:
    """Return a folder of this user's that does not outlive the system's start by much."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and os.access(runtime, os.W_OK):
        folder = Path(runtime, "tilegate")
    else:
        folder = Path(tempfile.gettempdir(), f"tilegate-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise UsageError(f"{folder} belongs to another user; remove it, or set XDG_RUNTIME_DIR to a folder of yours")
    return folder
