"""One gate at a time on one device: two would time each other."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from tilegate.files import UsageError

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
def hold(target: str, *, wait: bool, say: Callable[[str], None]) -> Iterator[None]:
    """Hold the device for the length of the context. The system releases it however this process ends.

    Args:
        target: "cpu", "cuda" or "hip".
        wait: wait for another run to end; else refuse.
        say: gets a message if there is something to wait for.

    Raises:
        UsageError: another run holds it and `wait` is false.
    """
    device = device_name(target)
    path = _folder() / f"{device}.lock"
    with path.open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read(200).strip() or "another run"
            if not wait:
                raise UsageError(
                    f"{holder} is measuring on {device}; wait for it, or leave out --no-wait to wait here"
                ) from None
            say(f"waiting: {holder} is measuring on {device}")
            fcntl.flock(file, fcntl.LOCK_EX)
        file.truncate(0)
        file.write(f"process {os.getpid()}")
        file.flush()
        yield


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
