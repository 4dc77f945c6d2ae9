"""Generating the kernels of a revision, in worker processes that load it, with a cache.

Nothing of the code under test is imported here. A worker that dies (a compiler pass can end its process) takes one
kernel along, which is then broken with the signal's name, and is replaced.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import queue
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tilegate.failures import MISSING
from tilegate.lowering.store import Store, key_of
from tilegate.lowering.worker import MODULE
from tilegate.measuring.workspace import Workspace
from tilegate.protocol.artifacts import JSON, Artifact
from tilegate.tools import package_version

START_TIMEOUT = 300.0
"""Seconds; a first import of a compiler from a cold disk takes a minute."""

_LOWER_TIMEOUT = 300.0


class LoweringError(Exception):
    """A kernel could not be generated.

    Attributes:
        kind: "compile", "crash", "hang", …; "missing" if this revision has no such thing.
    """

    def __init__(self, kind: str, message: str) -> None:
        """Keep the kind beside the message."""
        super().__init__(message)
        self.kind = kind


class Lowering:
    """The kernels of one prepared revision. Used from several threads, each request has a worker to itself.

    Args:
        workspace: package and suite; see `tilegate.measuring.workspace.make_workspace`.
        logs: an existing folder for what the workers print.
        store: the cache.

    Attributes:
        workspace: as given.
        suite_hash: of the suite's files.
    """

    def __init__(self, workspace: Workspace, logs: Path, store: Store) -> None:
        """Start nothing yet: with a warm cache there is nothing to do."""
        self.workspace, self._logs, self._store = workspace, logs, store
        self.suite_hash = hash_of_files(workspace.suite_root)
        self._identity = key_of(
            "lowering", package_version("tilelang"), hash_of_files(workspace.package_root), self.suite_hash
        )
        self._idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        self._all: list[_Worker] = []
        self._closed = False

    def __enter__(self) -> Lowering:
        """Return itself; leaving the context ends the workers."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the workers; whoever still waits for one gets no other."""
        self._closed = True
        for worker in list(self._all):
            worker.close()

    def configurations(self, arch: str) -> dict[str, list[str]]:
        """Return the kernels for a chip: their ids, each with the ids of the cases that run it.

        Raises:
            LoweringError: the suite's module cannot be loaded, or fails.
        """
        answer = self._cached({"op": "configurations", "arch": arch}, START_TIMEOUT)
        return {str(id): list(cases) for id, cases in answer.items()}

    def lower(self, id: str, arch: str) -> tuple[Artifact, ...]:
        """Return the generated kernels of one configuration.

        Raises:
            LoweringError: it cannot be generated.
        """
        answer = self._cached({"op": "lower", "id": id, "arch": arch}, START_TIMEOUT + _LOWER_TIMEOUT)
        return tuple(Artifact(**values) for values in answer)

    def _cached(self, request: Mapping[str, JSON], timeout: float) -> Any:
        key = key_of(self._identity, dict(request))
        known = self._store.get(key)
        if known is not None:
            return json.loads(known)
        answer = self.ask(request, timeout)
        self._store.put(key, json.dumps(answer))
        return answer

    def ask(self, request: Mapping[str, JSON], timeout: float) -> Any:
        """Return a worker's answer; see `tilegate.lowering.worker`. Nothing is kept of it.

        Args:
            request: plain values.
            timeout: seconds, in which a worker may have to start and import first.

        Raises:
            LoweringError: it failed, took longer, or the process died, twice.
        """
        for last in (False, True):
            with self._worker() as worker:
                try:
                    return worker.ask(request, timeout)
                except LoweringError as error:
                    # A compiler that crashes on a kernel does so every time; once may have been the machine's fault.
                    if error.kind != "crash" or last:
                        raise
        raise AssertionError("the second attempt returns or raises")

    @contextlib.contextmanager
    def _worker(self) -> Iterator[_Worker]:
        try:
            worker = self._idle.get_nowait()
        except queue.Empty:
            worker = _Worker(self.workspace, self._logs / f"lowering-{len(self._all)}.log")
            self._all.append(worker)
        # After the line above: either this thread sees it, or the one that ends the workers sees this one.
        if self._closed:
            worker.close()
            raise LoweringError("error", "stopped before it was done")
        try:
            yield worker
        finally:
            if worker.alive:
                self._idle.put(worker)


class _Worker:
    """One process."""

    def __init__(self, workspace: Workspace, log: Path) -> None:
        if workspace.package_root is None:
            raise LoweringError(MISSING, f"this revision has no package {workspace.package}")
        if not (workspace.suite_root / f"{MODULE}.py").is_file():
            raise LoweringError(
                MISSING, f"the suite {workspace.suite} has no module {MODULE}, which lists and generates the kernels"
            )
        self.alive = True
        self._workspace, self._log = workspace, log
        request_read, self._requests = os.pipe()
        self._replies, reply_write = os.pipe()
        command = [sys.executable, "-P", "-m", "tilegate.lowering.worker", str(request_read), str(reply_write)]
        scratch = workspace.folder.parent / "scratch"
        scratch.mkdir(exist_ok=True)
        try:
            with log.open("ab") as output:
                self._process = subprocess.Popen(
                    [*command, workspace.suite, workspace.package, str(workspace.package_root)],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    cwd=scratch,
                    env=_environment(workspace),
                    pass_fds=(request_read, reply_write),
                    start_new_session=True,
                )
        finally:
            os.close(request_read)
            os.close(reply_write)

    def ask(self, request: Mapping[str, JSON], timeout: float) -> Any:
        """Send a request and wait for its answer. Raises LoweringError; the worker may be dead after that."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._requests, (json.dumps(dict(request)) + "\n").encode())
        line = self._read_line(time.monotonic() + timeout)
        if line is None:
            raise self._death(timeout)
        try:
            reply = json.loads(line)
            if "ok" in reply:
                return reply["ok"]
            kind, message = str(reply["failure"]["kind"]), str(reply["failure"]["message"])
        except (ValueError, KeyError, TypeError):
            self.close()
            raise LoweringError(
                "error", "no answer that makes sense; does the code under test write to the worker's pipe?"
            ) from None
        raise LoweringError(kind, self._tidy(message))

    def close(self) -> None:
        """End the process and all that it started."""
        self.alive = False
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        for descriptor in (self._requests, self._replies):
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def _read_line(self, deadline: float) -> bytes | None:
        parts: list[bytes] = []
        while time.monotonic() < deadline:
            ready, _, _ = select.select([self._replies], [], [], 0.5)
            if not ready:
                continue
            chunk = os.read(self._replies, 1 << 16)
            if not chunk:
                return None
            parts.append(chunk)
            if chunk.endswith(b"\n"):
                return b"".join(parts)
        return None

    def _death(self, timeout: float) -> LoweringError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        status = self._process.returncode
        self.close()
        last = self._tidy(self._log.read_text(errors="replace").strip().splitlines()[-1:] or [""])
        if status is None:
            return LoweringError("hang", f"no answer within {timeout:.0f} s")
        how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"exited with status {status}"
        return LoweringError("crash", f"the process that generates it was {how}" + (f": {last}" if last else ""))

    def _tidy(self, text: str | list[str]) -> str:
        shown = text if isinstance(text, str) else text[0]
        for name, folder in self._workspace.trees.items():
            shown = shown.replace(str(folder), name)
        return shown.replace(str(self._workspace.folder), f"<{self._workspace.name}>")


def _environment(workspace: Workspace) -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(workspace.folder), os.environ.get("PYTHONPATH")]))
    return {
        **os.environ,
        "PYTHONPATH": path,
        "PYTHONSAFEPATH": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "PYTHONHASHSEED": "0",  # code generated from a set must come out the same in every process
        "OMP_NUM_THREADS": "1",  # there is a worker for every core
        "TILEGATE_TARGET": workspace.target,
        "TILEGATE_TIER": workspace.tier,
    }


def hash_of_files(root: Path | None) -> str | None:
    """Hash the files of a package: what a generated kernel follows from, beside its compiler."""
    if root is None:
        return None
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*")) if root.is_dir() else [root]:
        if path.is_file() and "__pycache__" not in path.parts:
            digest.update(f"{path.relative_to(root)}\0".encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
