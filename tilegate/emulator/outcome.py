"""What came of running a kernel, from the reports that its processes wrote or failed to write."""

from __future__ import annotations

import json
import math
import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tilegate.emulator.counters import Counters, counters_of
from tilegate.emulator.findings import Finding, Hint, Scene, finding_of
from tilegate.emulator.places import Places
from tilegate.emulator.process import Ended, Limits
from tilegate.emulator.program import Program
from tilegate.emulator.toolchain import EmulatorError


@dataclass(frozen=True)
class Run:
    """What came of running a kernel.

    Attributes:
        completed: all workgroups ran to their end, and the arrays hold what the kernel wrote.
        findings: what is wrong; empty for a kernel that is clean as far as this run shows.
        hints: barriers that no conflict of this run needed (traced runs).
        counters: None if the program is not traced or the run did not complete.
        seconds: wall time.
    """

    completed: bool
    findings: tuple[Finding, ...]
    hints: tuple[Hint, ...]
    counters: Counters | None
    seconds: float
    atomics: int = 0


def outcome(
    program: Program,
    library: Path,
    ended: Sequence[Ended],
    errors: str,
    grid: tuple[int, int, int],
    *,
    values: Sequence[Any],
    limits: Limits,
    seconds: float,
) -> Run:
    """Return what came of a run of a program's build, from the reports of its processes and what they printed."""
    sizes = [
        value.nbytes if parameter.pointer else 0 for parameter, value in zip(program.parameters, values, strict=True)
    ]
    lost = [_without_report(one.status, errors, limits, seconds) for one in ended if not one.report]
    try:
        reports = [json.loads(one.report) for one in ended if one.report]
        raw = _merged([finding for report in reports for finding in report["findings"]])
        rows = [row for report in reports for row in report["counters"]["places"]]
        executed, needed = (
            [site for report in reports for site in report["barriers"][key]] for key in ("executed", "needed")
        )
        sites = [finding[key] for finding in raw for key in ("site", "other_site")]
        sites += [row[0] for row in rows] if program.traced else []
        places = Places(library, program.symbolizer, program.source, [*sites, *executed])
        scene = Scene(places, grid, program.parameters, sizes, limits.seconds, limits.memory_bytes)
        findings = _one_expiry([*_by_line(finding_of(finding, scene) for finding in raw), *dict.fromkeys(lost)])
        completed = not lost and all(report["completed"] is True for report in reports)
        done = sum(report["counters"]["workgroups"] for report in reports)
        if completed and done != math.prod(grid):
            raise ValueError(f"{done} workgroups")
        counters = (
            counters_of(reports[0]["counters"], places)
            if library == program.library and program.traced and completed
            else None
        )
        atomics = sum(row[-1] for row in rows)
        hints = _redundant_barriers(executed, needed, places) if completed and not findings else ()
    except (KeyError, TypeError, ValueError, IndexError) as error:
        # The kernel runs in the process that writes the report, and can write over anything there.
        broken = Finding(
            "crash", f"the report of the run cannot be read ({error!r}): the kernel wrote where it must not"
        )
        return Run(False, (broken,), (), None, seconds)
    return Run(completed, findings, hints, counters, seconds, atomics)


def _merged(findings: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Make one finding of those that several processes have at the same places, that of the first workgroup."""
    merged: dict[tuple[Any, ...], dict[str, Any]] = {}
    for finding in sorted(findings, key=lambda found: found["workgroup"]):
        key = (finding["kind"], *sorted((finding["site"], finding["other_site"])))
        known = merged.setdefault(key, {**finding, "count": 0})
        known["count"] += finding["count"]
    return list(merged.values())


def _by_line(findings: Iterable[Finding]) -> Iterable[Finding]:
    """Make one finding of those at the same lines, the first: an unrolled loop has many places for one of them."""
    merged: dict[tuple[Any, ...], Finding] = {}
    for finding in findings:
        lines = {finding.line} | ({finding.other.line} if finding.other else set())
        apart = 0 in lines or finding.kind == "time-limit"  # whose places are weighed against each other
        key = (len(merged) if apart else -1, finding.kind, frozenset(lines))
        first = merged.get(key)
        merged[key] = finding if first is None else replace(first, count=first.count + finding.count)
    return merged.values()


def _without_report(status: int, errors: str, limits: Limits, seconds: float) -> Finding:
    last = next(iter(errors.strip().splitlines()[-1:]), "")
    if status == 2 and "undefined symbol" in last:
        name = last.rsplit("undefined symbol: ", 1)[-1]
        return Finding("unsupported", f"the kernel calls {name}, which the emulator does not know")
    if status == 2 and last.startswith("emulator: "):
        raise EmulatorError(last.removeprefix("emulator: "))
    if seconds >= limits.seconds or -status in (signal.SIGXCPU, signal.SIGALRM):
        return Finding("time-limit", f"not done after {limits.seconds:g} s, and ended from outside")
    how = signal.Signals(-status).name if status < 0 else f"exit status {status}"
    return Finding("crash", f"the process that ran the kernel ended without a report ({how}) {last}".rstrip())


def _one_expiry(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Keep, of all places that a kernel was seen at when its time was up, the one that it was seen at most.

    An instruction that the compiler made of two lines has neither, so a place with a line comes first.
    """
    expired = [finding for finding in findings if finding.kind == "time-limit"]
    shown = max(expired, key=lambda finding: (finding.line > 0, finding.count), default=None)
    others = [finding for finding in findings if finding.kind != "time-limit"]
    return (*others, *([] if shown is None else [replace(shown, count=1)]))


def _redundant_barriers(executed: Sequence[int], needed_sites: Sequence[int], places: Places) -> tuple[Hint, ...]:
    lines = {places.of(site).line: places.of(site) for site in executed}
    needed = {places.of(site).line for site in needed_sites}
    return tuple(
        Hint(line, place.text, "no two accesses of this run conflict across this barrier alone")
        for line, place in sorted(lines.items())
        if line and line not in needed
    )
