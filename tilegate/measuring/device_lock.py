"""One gate at a time on one device, whoever started it: two would time each other."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import TextIO

from tilegate.files import UsageError

_LONGEST_HOLDER = 500  # characters
FOLDER_VARIABLE = "TILEGATE_LOCKS"
"""Names the folder of the locks. For containers that share a device: mount one folder into all of them."""
_FOLDERS = (Path("/run/lock"), Path("/tmp"))  # noqa: S108 - open to all users of the machine, as the lock has to be
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
    descriptor = _lock_file(device)
    writable = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDWR
    with open(descriptor, "r+" if writable else "r", encoding="utf-8", errors="replace") as file:
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
        if writable:
            file.seek(0)
            file.truncate()
            file.write(
                f"process {os.getpid()} ({who}), since {datetime.now().astimezone():%H:%M:%S},"[:_LONGEST_HOLDER]
            )
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


def _lock_file(device: str) -> int:
    """Open the lock of a device, the same file for everybody on this machine; return its descriptor.

    Where somebody else made it, it may be read, which is enough to lock it. Never through a link: these folders are open to
    everybody.

    Raises:
        UsageError: no such file can be opened.
    """
    named = os.environ.get(FOLDER_VARIABLE)
    folder = Path(named) if named else next((f for f in _FOLDERS if os.access(f, os.W_OK | os.X_OK)), _FOLDERS[-1])
    path = folder / f"tilegate-{device}.lock"
    for flags in (os.O_RDWR, os.O_RDONLY, os.O_RDWR | os.O_CREAT | os.O_EXCL, os.O_RDWR, os.O_RDONLY):
        try:
            descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        except OSError as error:
            reason = error.strerror
            continue
        if flags & os.O_CREAT:
            os.fchmod(descriptor, 0o666)  # whatever the umask: others write who holds it
        return descriptor
    raise UsageError(
        f"cannot open {path}, the lock by which runs on {device} keep out of each other's way: {reason}; let it be "
        f"readable by everybody, or name a folder for all users of this machine with {FOLDER_VARIABLE}"
    )
