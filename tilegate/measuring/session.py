"""Worker processes as seen from the gate: start, ask, and tell what went wrong.

A worker is a fresh process in a process group of its own. Whatever the code under test does (crash, hang, exhaust the
memory, exit, print) ends as a `WorkerError` that says what happened and quotes the worker's log.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import select
import signal
import subprocess
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any, NotRequired, TypedDict, cast

from tilegate.config import GateConfig
from tilegate.measuring import replies
from tilegate.measuring.layout import Layout
from tilegate.measuring.workspace import Workspace, environment_of
from tilegate.schemas.samples import Failure, FailureKind, Work

_LOG_TAIL = 6000  # bytes of the log that a failure quotes
_EXCERPT = 80  # bytes of what was no answer that a message shows
_GRACE = 5.0  # seconds that the worker's own watchdog gets, which leaves a traceback, before the group is killed
_LONGEST_STACKS = 1 << 20  # bytes of the log in which the watchdog's line is looked for
_WATCHDOG_STATUS, _WATCHDOG_SAYS = (
    1,
    rb"^Timeout \((\d+):(\d\d):(\d\d(?:\.\d+)?)\)",
)  # of faulthandler.dump_traceback_later(exit=True)


class WorkerError(Exception):
    """A request failed.

    Attributes:
        kind: as in the samples schema, or "missing": this side has no such thing, or "skipped": nor does the suite
            want it to.
        message: one or a few lines.
        log: the end of what the worker printed during the request.
    """

    def __init__(self, kind: str, message: str, log: str | None) -> None:
        """See the attributes."""
        super().__init__(message)
        self.kind, self.message, self.log = kind, message, log

    def failure(self) -> Failure:
        """Return the failure as samples.json holds it."""
        # Too late for "missing" and "skipped": whoever takes those for an answer looks at the kind before.
        kind = "setup" if self.kind in ("missing", "skipped") else cast(FailureKind, self.kind)
        return {"kind": kind, "message": self.message, "log": self.log}


class ListedCase(TypedDict):
    """A case of a suite, as its worker lists it."""

    id: str
    benchmark: str
    params: list[str]
    version: str
    work: NotRequired[Work]


class BrokenModule(TypedDict):
    """Why a module of a suite could not be imported."""

    kind: str
    message: str
    log: NotRequired[str | None]


class Catalogue(TypedDict):
    """What a worker found: cases, and the modules that could not be imported; the module "" is the whole suite."""

    cases: list[ListedCase]
    broken: dict[str, BrokenModule]


def wants_to_be_alone(kind: str, operation: str) -> bool:
    """Return whether another process can be the reason for a failure: it holds the memory, or what a set-up needs."""
    return kind == "out-of-memory" or (operation == "setup" and kind in ("setup", "hang"))


class Worker:
    """A running worker process.

    Args:
        workspace: which side it loads.
        log: the file that gets its output.
        config: timeouts.
        timed: let it make a clock, for measuring.
        layout: what is drawn for this process; None: the same as of any other.
    """

    def __init__(
        self, workspace: Workspace, log: Path, config: GateConfig, *, timed: bool = False, layout: Layout | None = None
    ) -> None:
        """Start the process and its imports; returns at once (see `catalogue`)."""
        self.workspace, self._log, self._config = workspace, log, config
        self._buffer = b""
        self._catalogue: Catalogue | None = None
        self._mark = 0
        self._asked: deque[tuple[float, str]] = deque()  # of each request without an answer: when, and its ticket
        self._answered = 0.0  # when the last answer came
        scratch = workspace.folder.parent / "scratch"
        scratch.mkdir(exist_ok=True)
        log.parent.mkdir(parents=True, exist_ok=True)
        request_read, self._requests = os.pipe()
        self._replies, reply_write = os.pipe()
        try:
            with log.open("ab") as output:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "tilegate.worker", str(request_read), str(reply_write)],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    cwd=scratch,
                    env=environment_of(workspace, layout),
                    pass_fds=(request_read, reply_write),
                    start_new_session=True,  # a group of its own: Ctrl-C ends the gate, which then ends its workers
                )
        finally:
            os.close(request_read)
            os.close(reply_write)
        self.send(
            "start",
            config.import_timeout,
            suite=workspace.suite,
            suite_root=str(workspace.suite_root),
            package=workspace.package,
            package_root=str(workspace.package_root) if workspace.package_root else None,
            timed=timed,
            placement=None if layout is None else layout.seed,
        )
        self.send("load", config.import_timeout)

    @property
    def number(self) -> int:
        """The process's number."""
        return self._process.pid

    def busy_seconds(self) -> float | None:
        """Return how long the process's first thread has been on a processor; None where the system does not say.

        (Linux, /proc/PID/task/TID/schedstat: nanoseconds on the processor, nanoseconds waiting for one, time slices.)
        """
        try:
            return int(Path(f"/proc/{self.number}/task/{self.number}/schedstat").read_text().split()[0]) * 1e-9
        except (OSError, ValueError, IndexError):
            return None

    def catalogue(self) -> Catalogue:
        """Wait until the suite is imported; return its cases and the modules that could not be imported.

        Raises:
            WorkerError: it could not be loaded at all.
        """
        if self._catalogue is None:
            self.receive("start", self._config.import_timeout)
            found: Catalogue = self.receive("load", self._config.import_timeout)
            self._catalogue = found
        return self._catalogue

    def request(self, operation: str, timeout: float, **arguments: Any) -> Any:
        """Ask and wait for the answer.

        Raises:
            WorkerError: it failed, took longer than `timeout` seconds, or the process died.
        """
        self.catalogue()
        self.send(operation, timeout, **arguments)
        return self.receive(operation, timeout)

    def send(self, operation: str, timeout: float, **arguments: Any) -> None:
        """Ask without waiting, so that several workers can be busy at once; `receive` must follow."""
        self._mark = self._log.stat().st_size
        ticket = secrets.token_hex(8)
        self._asked.append((time.monotonic(), ticket))
        line = json.dumps({"op": operation, "timeout": timeout, "ticket": ticket, **arguments}) + "\n"
        with contextlib.suppress(BrokenPipeError):  # it died; `receive` finds out how
            _write_all(self._requests, line.encode())

    def receive(self, operation: str, timeout: float) -> Any:
        """Return the answer to the oldest request that has none yet. Raises as `request`."""
        asked, ticket = self._asked.popleft()
        started = max(asked, self._answered)
        line = self._read_line(started + timeout + _GRACE)
        self._answered = time.monotonic()
        if line is None:
            raise self._death(operation, timeout, self._answered - started)
        try:
            answer, failure = replies.decode(operation, ticket, line)
        except replies.NoReplyError:
            doing = operation.replace("_", " ")
            raise self._error(
                "error",
                f"no answer to {doing!r}, but {_excerpt(line)}; does the code under test write to the worker's pipe?",
            ) from None
        if failure is not None:
            raise self._error(*failure)
        return answer

    def close(self) -> None:
        """End the process and everything that it started."""
        self._kill()
        for descriptor in (self._requests, self._replies):
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def _kill(self) -> None:
        # Before the process is reaped: until then nothing else can have its number.
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _read_line(self, deadline: float) -> bytes | None:
        """Return the next line, or None if the process has died or the deadline has passed; too long a line, unended."""
        while b"\n" not in self._buffer:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return None
            ready, _, _ = select.select([self._replies], [], [], min(remaining, 0.5))
            if ready:
                chunk = os.read(self._replies, 1 << 16)
                if not chunk:
                    return None
                self._buffer += chunk
                if len(self._buffer) > replies.LONGEST:
                    return self._buffer  # which is no answer
            elif self._has_ended() and not select.select([self._replies], [], [], 0)[0]:
                return None  # something that it started still holds the pipe open
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _has_ended(self) -> bool:
        return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _death(self, operation: str, timeout: float, elapsed: float) -> WorkerError:
        """Explain why there will be no answer, and end what is left of the process group."""
        give_up = time.monotonic() + 1.0  # between closing its pipe and ending, a process needs a moment
        while not (ended := self._has_ended()) and elapsed < timeout and time.monotonic() < give_up:
            time.sleep(0.01)
        self._kill()
        status = self._process.returncode
        doing = operation.replace("_", " ")
        # The worker's watchdog and this clock do not start at the same moment, so whichever ended it, it hung.
        watchdog = self._watchdog_seconds() if status == _WATCHDOG_STATUS else None
        if watchdog is not None and watchdog < timeout:
            return self._error("hang", f"no answer to {doing!r} within {watchdog:g} s, the benchmark's own `timeout`")
        if watchdog is not None or elapsed >= timeout:
            return self._error(
                "hang", f"no answer to {doing!r} within {timeout:g} s; *_timeout in [tool.tilegate] sets the limit"
            )
        if not ended:
            return self._error("crash", f"its pipe was closed during {doing!r}; does the code under test close it?")
        if status == -signal.SIGKILL:
            return self._error(
                "out-of-memory", f"killed during {doing!r} by SIGKILL, most likely by the system for lack of memory"
            )
        if status < 0:
            return self._error("crash", f"killed by {_signal_name(-status)} during {doing!r}")
        return self._error("crash", f"exited with status {status} during {doing!r}")

    def _watchdog_seconds(self) -> float | None:
        """Return after how many seconds the worker's own watchdog ended it; None if it did not."""
        found = None
        with contextlib.suppress(OSError), self._log.open("rb") as log:
            log.seek(max(self._mark, log.seek(0, os.SEEK_END) - _LONGEST_STACKS))
            found = re.search(_WATCHDOG_SAYS, log.read(), re.MULTILINE)
        return None if found is None else 3600 * float(found[1]) + 60 * float(found[2]) + float(found[3])

    def _error(self, kind: str, message: str) -> WorkerError:
        return WorkerError(kind, self._tidy(message), self._tail())

    def _tail(self) -> str | None:
        try:
            with self._log.open("rb") as log:
                size = log.seek(0, os.SEEK_END)
                log.seek(max(self._mark, size - _LOG_TAIL))
                text = log.read().decode(errors="replace").strip()
        except OSError:
            return None
        return self._tidy(text) or None

    def _tidy(self, text: str) -> str:
        """Replace the folders of this run: a report should name the side, not a path on the runner."""
        for name, folder in self.workspace.trees.items():
            text = text.replace(str(folder), name)
        return text.replace(str(self.workspace.folder), f"<{self.workspace.name}>")


def _excerpt(line: bytes) -> str:
    return ascii(line[:_EXCERPT].decode(errors="replace")) + ("…" if len(line) > _EXCERPT else "")


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
