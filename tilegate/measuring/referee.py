"""The referee: compares what the sides computed with the reference, in a process that never imported the head.

It loads the base's suite beside the base's package, draws each case's inputs itself and gets nothing from the sides but the
bytes that their launches wrote (tilegate.worker.looks has their half). So whatever the head does to its inputs, to the
reference or to the comparison in its own process does not count.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tilegate.config import GateConfig
from tilegate.measuring.pool import WorkerPool
from tilegate.measuring.session import WorkerError
from tilegate.measuring.workspace import Workspace

NAME = "referee"


@dataclass(frozen=True)
class Referee:
    """Judges results.

    Attributes:
        pool: its worker, untimed, of the base's package and suite.
        folder: where results lie while they are looked at.
        config: timeouts.
    """

    pool: WorkerPool
    folder: Path
    config: GateConfig

    @staticmethod
    def of(workspace: Workspace, logs: Path, config: GateConfig) -> Referee:
        """Return a referee with that side's suite; its process starts when it is asked, or by `start`."""
        folder = workspace.folder.parent / "looks"
        folder.mkdir(exist_ok=True)
        workspaces = {NAME: replace(workspace, only_data=True)}
        return Referee(WorkerPool(workspaces, logs, config, label=NAME), folder, config)

    def __enter__(self) -> Referee:
        """Return itself; leaving the context ends its process."""
        return self

    def __exit__(self, *_: object) -> None:
        """End its process."""
        self.pool.close()

    def start(self) -> None:
        """Start its process, beside what else is done."""
        self.pool.start()

    @property
    def processes(self) -> set[int]:
        """The numbers of its processes: no strangers on the device."""
        return self.pool.processes()

    def look(self, pool: WorkerPool, side: str, case: str, draw: str) -> None:
        """Have a side hand out the launch that it was told to look at last, and compare it with the reference.

        Args:
            pool: has the side's worker, with the case set up.
            side: its name there.
            case: the case's id.
            draw: of the turn that was looked at.

        Raises:
            WorkerError: what is wrong with that launch.
        """
        path = self.folder / secrets.token_hex(8)
        try:
            choice = secrets.SystemRandom().random()
            about = pool.request(side, "deliver", self.config.check_timeout, path=str(path), choice=choice)
            self.pool.request(
                NAME, "verify", self.config.check_timeout, case=case, path=str(path), about={**about, "draw": draw}
            )
        finally:
            path.unlink(missing_ok=True)

    def probe(
        self, pool: WorkerPool, sides: Sequence[str], case: str, seed: int
    ) -> dict[str, WorkerError | None] | None:
        """Have sides launch a case's kernel on a problem drawn from `seed`, and compare the results with the reference.

        Returns:
            By side what is wrong, None if nothing is; None if the suite has no such problems.
        """
        limit = self.config.for_case(case).check_timeout + self.config.for_case(case).compile_timeout
        paths = {side: self.folder / secrets.token_hex(8) for side in sides}
        asked = {side: {"case": case, "seed": seed, "path": str(path)} for side, path in paths.items()}
        found: dict[str, WorkerError | None] = {}
        try:
            for side, answer in pool.request_all("probe", limit, asked).items():
                try:
                    if not answer():
                        return None
                    self.pool.request(NAME, "verify_probe", limit, **asked[side])
                except WorkerError as error:
                    found[side] = error
                else:
                    found[side] = None
        finally:
            for path in paths.values():
                path.unlink(missing_ok=True)
        return found


def new_draw() -> str:
    """Return what decides the inputs of one turn; nobody can know it before."""
    return secrets.token_hex(8)


def spots(pairs: int, looks: int) -> dict[int, float]:
    """Return in which of `pairs` pairs a launch of either side is looked at, and which, as a part of the turn."""
    chance = secrets.SystemRandom()
    return {index: chance.random() for index in chance.sample(range(pairs), min(looks, pairs))}


def in_time(error: WorkerError) -> WorkerError:
    """Return the error of a launch that was timed, so worded."""
    if error.kind != "wrong-result" or "timed launch" in error.message:
        return error
    return WorkerError(error.kind, f"the result of a timed launch is wrong: {error.message}", error.log)
