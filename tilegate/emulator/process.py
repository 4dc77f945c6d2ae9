"""The process that runs a kernel: started, listened to, and ended at its limits, whatever the kernel does."""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import signal
import subprocess
import time
from dataclasses import dataclass

from tilegate.emulator.program import Program

_GRACE = 3.0  # seconds after the limit, for a process that does not end itself
_MAX_REPORT = 64 << 20
_MAX_ERRORS = 64 << 10


@dataclass(frozen=True)
class Limits:
    """What a run may take.

    Attributes:
        seconds: of wall time.
        memory_bytes: of address space; a traced run needs 80 times the bytes of its arguments, and 300 MiB.
    """

    seconds: float = 60.0
    memory_bytes: int = 4 << 30


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True)
class Ended:
    """How one of the processes ended: its report, its exit status (negative: a signal)."""

    report: bytes
    status: int


def execute(program: Program, request: str, memory: int, limits: Limits) -> tuple[list[Ended], str]:
    """Run the kernel; return how each process ended, and what they printed."""
    with contextlib.ExitStack() as stack:
        wanted = os.memfd_create("tilegate-emulator-request")
        stack.callback(os.close, wanted)
        os.write(wanted, request.encode())
        os.lseek(wanted, 0, os.SEEK_SET)
        read_end, write_end = os.pipe()
        # Whatever ends this process closes it, and that ends those started here (runtime/processes.cpp).
        stack.callback(os.close, read_end)
        try:
            child = subprocess.Popen(
                [str(program.runner), str(wanted), str(memory), str(write_end)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=(wanted, memory, write_end),
                cwd="/",
                env={},
                start_new_session=True,
            )
        finally:
            os.close(write_end)
        assert child.stderr is not None  # noqa: S101
        stack.callback(child.stderr.close)
        try:
            answer, errors = _collect(read_end, child.stderr.fileno(), time.monotonic() + limits.seconds + _GRACE)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            status = child.wait()
        return _split(answer) or [Ended(b"", status)], errors.decode(errors="replace")


def _collect(answer: int, errors: int, deadline: float) -> tuple[bytes, bytes]:
    """Read both pipes until the first ends or the deadline passes; of either no more than it may say."""
    kept: dict[int, bytearray] = {answer: bytearray(), errors: bytearray()}
    most = {answer: _MAX_REPORT, errors: _MAX_ERRORS}
    with selectors.DefaultSelector() as selector:
        for descriptor in kept:
            selector.register(descriptor, selectors.EVENT_READ)
        while answer in selector.get_map() and time.monotonic() < deadline:
            for key, _ in selector.select(max(0.0, deadline - time.monotonic())):
                part = os.read(key.fd, 1 << 16)
                kept[key.fd] += part
                if not part or len(kept[key.fd]) > most[key.fd]:
                    selector.unregister(key.fd)
    return bytes(kept[answer][:_MAX_REPORT]), bytes(kept[errors][:_MAX_ERRORS])


def _split(answer: bytes) -> list[Ended]:
    """Take the reports apart; nothing of an answer that is cut off, as of a process that was killed while it wrote."""
    ended, rest = [], memoryview(answer)
    while rest:
        head, _, _ = bytes(rest[:64]).partition(b"\n")
        found = re.fullmatch(rb"(-?\d+) (\d+)", head)
        if found is None:
            return []
        begin, size = len(head) + 1, int(found[2])
        ended.append(Ended(bytes(rest[begin : begin + size]), int(found[1])))
        rest = rest[begin + size :]
    return ended
