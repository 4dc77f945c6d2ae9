"""The workers of a run, one for each workspace, as a pool: started together, asked together, replaced when one fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tilegate.config import GateConfig
from tilegate.measuring.layout import Layout
from tilegate.measuring.session import Worker, WorkerError
from tilegate.measuring.workspace import Workspace
from tilegate.schemas.samples import Target

_COMPILED_AT_ONCE = 8  # for the timeout: how many cases a suite's precompile takes the time of one for
_SAFE_KINDS = (
    "wrong-result",
    "missing",
    "skipped",
)  # after any other failure the process may be damaged (a GPU context is)


class WorkerPool:
    """Keeps a worker for each workspace, and replaces one that has failed.

    Args:
        workspaces: by name.
        logs: the folder for log files.
        config: timeouts.
        label: distinguishes the log files of this pool.
        timed: the workers measure; each pool is then one fresh set of processes.
        layouts: by workspace, what is drawn for its process.
    """

    def __init__(
        self,
        workspaces: Mapping[str, Workspace],
        logs: Path,
        config: GateConfig,
        *,
        label: str,
        timed: bool = False,
        layouts: Mapping[str, Layout] | None = None,
    ) -> None:
        """Note what to start; nothing is started yet."""
        self.workspaces, self.config, self.label = workspaces, config, label
        self.layouts = layouts or {}
        self._logs, self._timed = logs, timed
        self._workers: dict[str, Worker] = {}
        self._started = 0

    def __enter__(self) -> WorkerPool:
        """Return itself; leaving the context ends the workers."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the workers."""
        self.close()

    @property
    def target(self) -> Target:
        """What is measured: "cpu", "cuda" or "hip"."""
        return next(iter(self.workspaces.values())).target

    def start(self) -> None:
        """Start all workers that are not running, at once."""
        for name in self.workspaces:
            self.worker(name)

    def worker(self, name: str) -> Worker:
        """Return the worker of that workspace, started if there is none; it may still be importing."""
        if name not in self._workers:
            self._started += 1
            log = self._logs / f"{self.label}-{self._started}-{name}.log"
            self._workers[name] = Worker(
                self.workspaces[name], log, self.config, timed=self._timed, layout=self.layouts.get(name)
            )
        return self._workers[name]

    def request(self, name: str, operation: str, timeout: float, **arguments: Any) -> Any:
        """Ask one worker and wait. Raises WorkerError; the worker is then ended, unless it is certainly unharmed."""
        return self.request_all(operation, timeout, {name: arguments})[name]()

    def request_all(self, operation: str, timeout: float, arguments: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Ask several workers the same at once, and wait for all.

        Returns:
            by workspace, a function that returns the answer or raises WorkerError.
        """
        for name in arguments:
            self.worker(name)
        answers: dict[str, Any] = {}
        for name, values in arguments.items():
            answers[name] = self._attempt(name, lambda worker, v=values: self._send(worker, operation, timeout, v))
        for name in arguments:
            if isinstance(answers[name], WorkerError):
                continue
            answers[name] = self._attempt(name, lambda worker: worker.receive(operation, timeout))
        return {name: _outcome(answer) for name, answer in answers.items()}

    def precompile(self, wanted: Mapping[str, Sequence[str]]) -> dict[str, Any]:
        """Let the suites of several workers compile or load these cases' kernels at once, before one is asked for.

        The time that it may take grows with the number of cases; one that a suite takes longer for than its own
        `compile_timeout` still ends as that case's failure when it is set up.

        Args:
            wanted: by workspace, the ids of the cases.

        Returns:
            as `request_all`.
        """
        most = max(map(len, wanted.values()), default=0)
        ids = {case for cases in wanted.values() for case in cases}
        longest = max((self.config.for_case(case).compile_timeout for case in ids), default=self.config.compile_timeout)
        timeout = longest * (1 + most / _COMPILED_AT_ONCE)
        return self.request_all(
            "precompile", timeout, {workspace: {"cases": list(cases)} for workspace, cases in wanted.items()}
        )

    def processes(self) -> set[int]:
        """Return the numbers of the running workers."""
        return {worker.number for worker in self._workers.values()}

    def busy_seconds(self, name: str) -> float | None:
        """Return how long a worker's first thread has been on a processor, if the system says so."""
        return self.worker(name).busy_seconds()

    def drop(self, name: str) -> None:
        """End one worker; the next request to it starts a fresh one."""
        worker = self._workers.pop(name, None)
        if worker is not None:
            worker.close()

    def close(self) -> None:
        """End all workers."""
        for name in list(self._workers):
            self.drop(name)

    @staticmethod
    def _send(worker: Worker, operation: str, timeout: float, arguments: Mapping[str, Any]) -> None:
        worker.catalogue()
        worker.send(operation, timeout, **arguments)

    def _attempt(self, name: str, act: Any) -> Any:
        try:
            return act(self._workers[name])
        except WorkerError as error:
            if error.kind not in _SAFE_KINDS:
                self.drop(name)
            return error


def _outcome(answer: Any) -> Any:
    def take() -> Any:
        if isinstance(answer, WorkerError):
            raise answer
        return answer

    return take
