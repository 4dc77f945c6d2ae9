"""Every kernel of one revision, executed on every small problem that the suite has for it: in parallel, with a cache."""

from __future__ import annotations

import functools
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tilegate import emulator
from tilegate.emulate import trial
from tilegate.failures import MISSING
from tilegate.isa import survey as isa_survey
from tilegate.lowering.lowering import START_TIMEOUT, Lowering, LoweringError, hash_of_files
from tilegate.lowering.parallel import Say, in_parallel
from tilegate.lowering.store import Store, key_of
from tilegate.protocol import Artifact, digest
from tilegate.tools import package_version

SCHEMA = "tilegate-emulate/1"

ALL = sys.maxsize
"""Problems: as many as there are."""

_COMPILE_TIMEOUT = 300.0  # seconds, of one kernel
_OF_THE_MACHINE = ("time-limit", "memory-limit", "crash")  # findings that another moment may not have: never cached


@dataclass(frozen=True)
class Trial:
    """One kernel on one problem.

    Attributes:
        problem: the suite's name of it.
        findings, hints: as `tilegate.emulate.trial.run_trial` gives them.
        counters: by kernel of the launch, `emulator.Counters.to_json()`; empty if it did not run to its end.
        runs: how many there were.
    """

    problem: str
    findings: tuple[Mapping[str, Any], ...]
    hints: tuple[Mapping[str, Any], ...]
    counters: Mapping[str, Mapping[str, Any]]
    runs: int

    @property
    def total(self) -> dict[str, int]:
        """The counters of the whole launch, all its kernels added up."""
        totals = [counters["total"] for counters in self.counters.values()]
        return {name: sum(int(total[name]) for total in totals) for name in trial.COUNTED} if totals else {}


@dataclass(frozen=True)
class Kernel:
    """One kernel of a survey.

    Attributes:
        id: as the suite's `kernels` module spells it.
        cases: the benchmark cases that run it.
        trials: in the suite's order; those that there was no time for are not among them.
        failure: why it could not be generated or executed, if so: the kind of a `LoweringError`, and its message.
        unfinished: there was no time for all problems.
    """

    id: str
    cases: tuple[str, ...]
    trials: tuple[Trial, ...] = ()
    failure: tuple[str, str] | None = None
    unfinished: bool = False

    @property
    def findings(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """All findings, each with its problem."""
        return ((done.problem, finding) for done in self.trials for finding in done.findings)

    @property
    def verdict(self) -> str:
        """ "broken", "inconclusive" (it could not be executed, or not with this suite) or "pass"."""
        kinds = {finding["kind"] for _, finding in self.findings}
        if kinds - {trial.UNKNOWN}:
            return "broken"
        whole = bool(self.trials) and self.failure is None and not self.unfinished
        return "pass" if whole and not kinds else "inconclusive"

    @property
    def hints(self) -> list[Mapping[str, Any]]:
        """Hints that every problem gives."""
        if not self.trials:
            return []
        everywhere = set.intersection(*({hint["line"] for hint in done.hints} for done in self.trials))
        return [hint for hint in self.trials[0].hints if hint["line"] in everywhere]

    def to_json(self, *, counters: bool) -> dict[str, Any]:
        """Return plain values, as schemas/emulate-1.json describes them."""
        trials = {}
        for done in self.trials:
            values = asdict(done)
            del values["problem"]
            if not counters:
                del values["counters"]
            trials[done.problem] = values
        failure = None if self.failure is None else dict(zip(("kind", "message"), self.failure, strict=True))
        return {"verdict": self.verdict, "cases": list(self.cases), "failure": failure, "problems": trials}


@dataclass(frozen=True)
class Wanted:
    """A kernel to execute.

    Attributes:
        arch, id, cases: as in the survey.
        artifacts: what was generated.
    """

    arch: str
    id: str
    cases: tuple[str, ...]
    artifacts: tuple[Artifact, ...]


def missing_seam(lowering: Lowering) -> str | None:
    """Return what the suite lacks for its kernels to be executed, None if it lacks nothing."""
    if not (lowering.workspace.suite_root / f"{trial.MODULE}.py").is_file():
        return f"the suite {lowering.workspace.suite} has no module {trial.MODULE}, which has problems for the kernels (docs/protocol.md)"
    return None


def survey(
    lowering: Lowering,
    archs: Sequence[str],
    store: Store,
    *,
    pattern: str | None = None,
    thorough: int = ALL,
    first: bool = False,
    say: Say = lambda done, total, what: None,
) -> dict[str, tuple[Kernel, ...]]:
    """Execute every kernel of a revision whose id, or one of whose cases, `pattern` is found in.

    Args:
        lowering: the revision.
        archs: the chips.
        store: the cache.
        pattern: a regular expression; all kernels without it.
        thorough: so many problems of each kernel are run under all schedules and roundings, the others once.
        first: only each kernel's first problem.
        say: told of progress.

    Returns:
        By chip, in the suite's order.

    Raises:
        LoweringError: the revision's kernels cannot even be listed.
    """
    wanted = [
        (arch, id, tuple(cases))
        for arch in archs
        for id, cases in lowering.configurations(arch).items()
        if isa_survey.found(pattern, (id, *cases))
    ]

    def look(job: tuple[str, str, tuple[str, ...]]) -> Kernel | None:
        arch, id, cases = job
        try:
            artifacts = lowering.lower(id, arch)
        except LoweringError as error:
            return None if error.kind == MISSING else Kernel(id, cases, failure=(error.kind, str(error)))
        return execute(lowering, Wanted(arch, id, cases, artifacts), store, thorough=thorough, first=first)

    kernels: dict[str, tuple[Kernel, ...]] = dict.fromkeys(archs, ())
    names = [f"{arch} {id}" for arch, id, _ in wanted]
    if wanted:
        say(0, len(wanted), "")
    for (arch, _, _), kernel in zip(wanted, in_parallel(look, wanted, names, lowering, say), strict=True):
        kernels[arch] += () if kernel is None else (kernel,)
    return kernels


def execute(
    lowering: Lowering,
    wanted: Wanted,
    store: Store,
    *,
    thorough: int,
    first: bool = False,
    deadline: float = float("inf"),
) -> Kernel:
    """Execute one kernel on all its problems; never raises for what the kernel or the suite does.

    Args:
        lowering: a revision with the suite whose problems they are.
        wanted: the kernel.
        store: the cache.
        thorough, first: as for `survey`.
        deadline: on `time.monotonic`'s clock; problems that there is no time for are left out.
    """
    described = {"arch": wanted.arch, "id": wanted.id}
    trials: list[Trial] = []
    try:
        problems = _cached(
            lowering, store, {"op": "problems", "by": trial.__name__, **described}, START_TIMEOUT, deadline
        )
        asked = {
            "op": "emulate",
            "by": trial.__name__,
            **described,
            "artifacts": [asdict(artifact) for artifact in wanted.artifacts],
        }
        timeout = START_TIMEOUT + _COMPILE_TIMEOUT * len(wanted.artifacts) + trial.RUNS * trial.LIMITS.seconds
        for number, problem in enumerate(problems[:1] if first else problems):
            request = {**asked, "problem": problem, "thorough": number < thorough}
            found = _cached(lowering, store, request, timeout, deadline)
            trials.append(
                Trial(problem, tuple(found["findings"]), tuple(found["hints"]), found["counters"], found["runs"])
            )
            if any(finding["kind"] in _OF_THE_MACHINE for finding in found["findings"]):
                break  # a kernel that hangs on one problem would take its time on each
    except _OutOfTime:
        return Kernel(wanted.id, wanted.cases, tuple(trials), unfinished=True)
    except LoweringError as error:
        return Kernel(wanted.id, wanted.cases, tuple(trials), (error.kind, str(error)))
    return Kernel(wanted.id, wanted.cases, tuple(trials))


class _OutOfTime(Exception):  # noqa: N818 - no error
    pass


def _cached(lowering: Lowering, store: Store, request: Mapping[str, Any], timeout: float, deadline: float) -> Any:
    """Ask a worker, unless the same suite has been asked the same about the same code."""
    keyed = dict(request)
    if "artifacts" in keyed:
        keyed["artifacts"] = digest([Artifact(**values) for values in keyed["artifacts"]])
    key = key_of("emulation", lowering.suite_hash, *_identity(), keyed)
    known = store.get(key)
    if known is not None:
        return json.loads(known)
    remaining = deadline - time.monotonic()
    if remaining <= 0:
        raise _OutOfTime
    try:
        answer = lowering.ask(request, min(timeout, remaining))
    except LoweringError as error:
        if error.kind == "hang" and remaining < timeout:
            raise _OutOfTime from None
        raise
    transient = isinstance(answer, dict) and any(found["kind"] in _OF_THE_MACHINE for found in answer["findings"])
    if not transient:
        store.put(key, json.dumps(answer))
    return answer


def _identity() -> tuple[str | None, ...]:
    """What a result follows from beside suite, problem and code: emulator, compiler, and whose arithmetic checks it."""
    return (emulator.toolchain().version, *_versions())


@functools.cache
def _versions() -> tuple[str | None, ...]:
    here = Path(__file__).parent
    files = (hash_of_files(path) for path in (here / "trial.py", here.with_name("emulator")))
    return (*files, package_version("tilelang"), package_version("torch"))
