"""Why a case may have become slower: what differs in its launch configuration and in its compiled code.

For information only: nothing here takes part in a verdict, so whatever goes wrong here becomes a sentence. Compiling
happens in child processes with time limits, since it is the head's text that is compiled.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from tilegate.judging import judge
from tilegate.measuring.pool import WorkerPool
from tilegate.measuring.samples import Record
from tilegate.measuring.session import WorkerError
from tilegate.progress import Reporter
from tilegate.protocol import Artifact, digest, is_call
from tilegate.schemas.samples import Case
from tilegate.schemas.verdict import Entry

CASE_SECONDS = 120.0  # of one comparison; a kernel that spills by the hundred takes a minute to compile
RUN_SECONDS = 300.0  # of all together
MOST_LINES = 12  # kept of a case; schemas/samples-1.json allows 20
LONGEST_LINE = 300  # characters; the schema allows 500

_LONGEST_VALUE = 60  # characters of a changed setting
_AT_ONCE = 4
_NO_TIME = f"the compiled code was not compared: no time was left of {RUN_SECONDS:.0f} s for all cases"

# Names of settings that have a direction: of these, less (or more) is no reason for slower. A tile has none.
_LESS_IS_BETTER = re.compile(r"spill|scratch|stack|register|vgpr|agpr|sgpr|shared|lds|smem", re.IGNORECASE)
_MORE_IS_BETTER = re.compile(r"occupancy|waves", re.IGNORECASE)

Kernels = tuple[Artifact, ...]


@dataclass(frozen=True)
class _Job:
    """One comparison: many cases may run the same two kernels.

    Attributes:
        base, head: the kernels.
        slower: the cases got slower; otherwise they are broken.
    """

    base: Kernels
    head: Kernels
    slower: bool


def unexplained(record: Record) -> list[str]:
    """Return the cases that look slower or are broken, and whose code both sides have: those to explain, worst first."""
    verdicts = judge.judge(record.document)["cases"]
    found = [name for name, case in record.cases.items() if "cause" not in case and _to_explain(case, verdicts[name])]
    return sorted(found, key=lambda name: -(verdicts[name]["ratio"] or 0.0))


def attach(pool: WorkerPool, record: Record, names: Sequence[str], arch: str | None, reporter: Reporter) -> None:
    """Enter in the record what differs in the code of each case, likeliest cause first; nothing where nothing does.

    Args:
        pool: workers "base" and "head", which are asked for the generated code.
        record: gets a "cause" in every case that there is something to say of.
        names: the cases, the most important first: time may run out.
        arch: the chip for which the code is compiled and compared; None compares launch configurations only.
        reporter: shows progress.
    """
    try:
        _attach(pool, record, names, arch, reporter)
    except (OSError, RecursionError) as error:  # no disk, no process; settings nested a thousand deep
        reporter.note(f"what changed in the code could not be looked for: {error}")


def _attach(pool: WorkerPool, record: Record, names: Sequence[str], arch: str | None, reporter: Reporter) -> None:
    deadline = time.monotonic() + RUN_SECONDS

    def enter(name: str, lines: Sequence[str]) -> None:
        if lines:
            record.cases[name]["cause"] = [_tidy(line, LONGEST_LINE) for line in lines[:MOST_LINES]]
        phase.done(name)

    jobs: dict[str, _Job] = {}  # by what is compared
    users: dict[str, list[str]] = {}
    with reporter.phase("explain", len(names)) as phase:
        for name in names:
            phase.doing(name)
            slower = looks_slower(record.cases[name])
            key = f"{_identities(record.cases[name])} {slower}"
            if key not in jobs:
                fetched = _fetch(pool, name, record.cases[name], deadline)
                if isinstance(fetched, str):
                    enter(name, [fetched])
                    continue
                jobs[key] = _Job(*fetched, slower)
            users.setdefault(key, []).append(name)
        pool.close()  # a machine has better uses for the memory of two idle suites than to hold it while it compiles
        compilable = {key: job for key, job in jobs.items() if not _is_call(record, users[key])}
        for key in jobs.keys() - compilable.keys():
            for name in users[key]:
                enter(name, settings_changed(jobs[key].base, jobs[key].head, slower=jobs[key].slower))
        for key, compared in _compare_all(compilable, arch, deadline):
            settings = settings_changed(jobs[key].base, jobs[key].head, slower=jobs[key].slower)
            for name in users[key]:
                enter(name, [*settings, *compared])


def looks_slower(case: Case) -> bool:
    """Return whether a case that is to be explained got slower: for that, what got better is no reason. Else it is broken."""
    return case["head"]["failure"] is None


def _is_call(record: Record, names: Sequence[str]) -> bool:
    """Whether these cases, which have their code in common, are calls: their caller waits for Python, not for a kernel."""
    return all(is_call(record.cases[name]["benchmark"]) for name in names)


def settings_changed(base: Kernels, head: Kernels, *, slower: bool) -> list[str]:
    """Return which settings of a case's kernels changed: launch configuration, and resources such as the tile.

    Args:
        base, head: the kernels.
        slower: leave out what got better, such as fewer kernels a launch or fewer bytes of shared memory.
    """
    pairs = _paired(base, head)
    lines = []
    if len(head) > len(base) or (len(head) < len(base) and not slower):
        lines.append(f"kernels of a launch {len(base)} -> {len(head)}")
    for before, after in pairs:
        of = f"{after.name}: " if len(pairs) > 1 else ""
        for kind in ("resources", "launch"):  # a tile is the choice, blocks and bytes follow from it
            old, new = (dict(_flat(getattr(kernel, kind))) for kernel in (before, after))
            for key in dict.fromkeys([*new, *old]):
                if old.get(key) != new.get(key) and not (slower and _better(key, old.get(key), new.get(key))):
                    shown = [_shown(values, key) for values in (old, new)]
                    # Two long values may differ where they are cut.
                    change = "changed" if shown[0] == shown[1] else " -> ".join(shown)
                    lines.append(f"{of}{_tidy(key, _LONGEST_VALUE)} {change}")
    return lines


def _better(key: str, before: Any, after: Any) -> bool:
    """Whether a setting got better, as far as its name says which way that is; one that is not there counts as 0."""
    old, new = (0 if value is None else value for value in (before, after))
    if isinstance(old, bool) or isinstance(new, bool) or not all(isinstance(v, int | float) for v in (old, new)):
        return False
    return bool(_LESS_IS_BETTER.search(key) and new < old) or bool(_MORE_IS_BETTER.search(key) and new > old)


def _to_explain(case: Case, verdict: Entry) -> bool:
    identities = [case[side]["identity"] for side in ("base", "head")]
    if case["role"] != "gated" or None in identities or identities[0] == identities[1]:
        return False
    slower = verdict["ratio"] is not None and verdict["ratio"] > 1
    return verdict["verdict"] in ("regressed", "warning", "broken") or (verdict["verdict"] == "inconclusive" and slower)


def _identities(case: Case) -> str:
    return f"{case['base']['identity']} {case['head']['identity']}"


def _fetch(pool: WorkerPool, name: str, case: Case, deadline: float) -> tuple[Kernels, Kernels] | str:
    """Return both sides' kernels, or a sentence on why there are none."""
    timeout = min(pool.config.for_case(name).compile_timeout, deadline - time.monotonic())
    if timeout <= 0:
        return _NO_TIME
    answers = pool.request_all("generated", timeout, {"base": {"case": name}, "head": {"case": name}})
    kernels = []
    for side in ("base", "head"):
        try:
            made = tuple(_artifact(values) for values in answers[side]())
            again = digest(made)
        except WorkerError as error:
            return f"the {side}'s code could not be generated again: {error.kind}"
        except (TypeError, ValueError):
            return f"the {side}'s code could not be generated again: its worker's answer makes no sense"
        if again != case[side]["identity"]:
            return f"the {side} generates other code when asked again, so its code was not compared"
        kernels.append(made)
    return kernels[0], kernels[1]


def _artifact(values: Any) -> Artifact:
    """Check what came from a process that has the commit's code in it. Raises TypeError, ValueError."""
    artifact = Artifact(**values)
    texts, settings = (artifact.name, artifact.source), (artifact.launch, artifact.resources)
    if not all(isinstance(text, str) for text in texts) or not all(isinstance(found, dict) for found in settings):
        raise ValueError("not an artifact")
    return artifact


def _paired(base: Kernels, head: Kernels) -> list[tuple[Artifact, Artifact]]:
    """Pair kernels by name; one alone on each side is a pair whatever it is called."""
    if len(base) == len(head) == 1:
        return [(base[0], head[0])]
    named = {kernel.name: kernel for kernel in base}
    return [(named[kernel.name], kernel) for kernel in head if kernel.name in named]


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _shown(values: Mapping[str, Any], key: str) -> str:
    if key not in values:
        return "none"
    value = values[key]
    if isinstance(value, str):
        return _tidy(value, _LONGEST_VALUE)
    return f"{value:,}" if type(value) is int else _tidy(json.dumps(value), _LONGEST_VALUE)


def _tidy(text: str, limit: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


# --- compiled code ----------------------------------------------------------------------------------------------------


@dataclass
class _Child:
    """A process that compiles and compares the kernels of one case."""

    process: subprocess.Popen[bytes]
    answer: IO[bytes]
    started: float

    def lines(self, deadline: float) -> list[str] | None:
        """Return what it found, or why it found nothing; None while it is at work."""
        if self.process.poll() is None:
            now = time.monotonic()
            if now < min(deadline, self.started + CASE_SECONDS):
                return None
            self.end()
            return [_NO_TIME if now >= deadline else f"the compiled code was not compared within {CASE_SECONDS:.0f} s"]
        self.answer.seek(0)
        try:
            lines = json.loads(self.answer.read())
        except ValueError:
            return [f"the compiled code was not compared: that ended with status {self.process.returncode}"]
        return [str(line) for line in lines]

    def end(self) -> None:
        """End it and the compilers that it started."""
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def _compare_all(jobs: Mapping[str, _Job], arch: str | None, deadline: float) -> Iterator[tuple[str, list[str]]]:
    """Compare the compiled code of every job, several at once; yield each with its lines when it is done."""
    if arch is None:
        yield from ((key, []) for key in jobs)
        return
    waiting = list(jobs)
    running: dict[str, _Child] = {}
    # Also what compilers leave behind that are killed, perhaps a moment after their parent.
    with tempfile.TemporaryDirectory(prefix="tilegate-causes-", ignore_cleanup_errors=True) as scratch:
        try:
            while waiting or running:
                while waiting and len(running) < min(_AT_ONCE, os.cpu_count() or 1):
                    key = waiting.pop(0)
                    if time.monotonic() >= deadline:
                        yield key, [_NO_TIME]
                        continue
                    running[key] = _start(jobs[key], arch, Path(scratch))
                for key, child in list(running.items()):
                    lines = child.lines(deadline)
                    if lines is not None:
                        del running[key]
                        yield key, lines
                time.sleep(0.02)
        finally:
            for child in running.values():
                child.end()


def _start(job: _Job, arch: str, scratch: Path) -> _Child:
    pairs = [[asdict(before), asdict(after)] for before, after in _paired(job.base, job.head)]
    answer = tempfile.TemporaryFile(dir=scratch)  # noqa: SIM115 - lives as long as the child
    with tempfile.TemporaryFile(dir=scratch) as request:
        request.write(json.dumps({"arch": arch, "pairs": pairs, "slower": job.slower}).encode())
        request.seek(0)
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tilegate.isa.explain"],
            stdin=request,
            stdout=answer,
            stderr=subprocess.DEVNULL,
            cwd=scratch,
            env={**os.environ, "TMPDIR": str(scratch), "PYTHONPATH": _python_path(), "PYTHONSAFEPATH": "1"},
            start_new_session=True,
        )
    return _Child(process, answer, time.monotonic())


def _python_path() -> str:
    return os.pathsep.join(filter(None, [str(Path(__file__).resolve().parents[2]), os.environ.get("PYTHONPATH")]))
