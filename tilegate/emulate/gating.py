"""The gate's question before it times anything: do the kernels that changed still work on chips that are not here?

What is found is kept raw in the samples ("emulation" of schemas/samples-1.json); `tilegate.judging.emulation` judges it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tilegate import emulator
from tilegate.emulate import excerpt
from tilegate.emulate.survey import Kernel, Wanted, execute, missing_seam
from tilegate.emulate.table import findings_of
from tilegate.failures import MISSING
from tilegate.isa import survey as isa_survey
from tilegate.judging import emulation
from tilegate.lowering.lowering import Lowering, LoweringError, hash_of_files
from tilegate.lowering.parallel import in_parallel
from tilegate.lowering.store import Store, default_store
from tilegate.lowering.worker import MODULE
from tilegate.measuring.samples import Record
from tilegate.measuring.workspace import Workspace
from tilegate.progress import Reporter
from tilegate.protocol import Artifact, digest
from tilegate.schemas.samples import EmulatedChip, EmulatedFailure, EmulatedKernel, EmulatedSide

_MOST_FINDINGS = 10  # of a kernel; schemas/samples-1.json allows 20
_LONGEST = 4000  # characters of a message; the schema allows 10,000

Generated = Mapping[str, "tuple[Artifact, ...] | LoweringError"]


@dataclass(frozen=True)
class _Means:
    """What the work is done with."""

    store: Store
    reporter: Reporter
    deadline: float  # on time.monotonic's clock
    pattern: str | None  # of the cases whose kernels are wanted; None: all kernels


@dataclass(frozen=True)
class _Side:
    """The wanted kernels of one revision for one chip: with the cases that run them, and as generated."""

    lowering: Lowering
    cases: Mapping[str, Sequence[str]]
    generated: Generated
    unselected: int


def enter(
    record: Record,
    workspaces: Mapping[str, Workspace],
    archs: Sequence[str],
    *,
    logs: Path,
    reporter: Reporter,
    seconds: float,
) -> None:
    """Execute what changed, enter it in the record, and mark the cases broken whose kernel is.

    Args:
        record: the run's, with its cases; saved. If it has a filter, only kernels that a case of it uses are looked at.
        workspaces: "head", and "base" if there is one, with the base's suite.
        archs: chips that are not here.
        logs: where the workers' output goes.
        reporter: shows progress.
        seconds: what may be spent on it in all, approximately.
    """
    head = workspaces["head"]
    if head.package_root is None or not (head.suite_root / f"{MODULE}.py").is_file():
        return  # a suite without kernels for chips that are not here
    sides = {name: for_amd(workspaces[name]) for name in ("base", "head") if name in workspaces}
    means = _Means(default_store(), reporter, time.monotonic() + seconds, record.document["filter"])
    folders = {name: logs / f"emulate-{name}" for name in sides}
    for folder in folders.values():
        folder.mkdir(parents=True, exist_ok=True)
    section = {}
    with Lowering(sides["head"], folders["head"], means.store) as after:
        if missing_seam(after) is not None:
            return
        before = Lowering(sides["base"], folders["base"], means.store) if "base" in sides else None
        try:
            for arch in archs:
                section[arch] = _of_a_chip(before, after, arch, means)
        finally:
            if before is not None:
                before.__exit__()
    record.document["emulation"] = section
    for broken in emulation.broken(section):
        for name in broken.cases:
            case = record.cases.get(name)
            if case is not None and case["head"]["status"] == "ok":
                case["head"]["status"] = "failed"
                case["head"]["failure"] = {"kind": "emulation", "message": broken.message, "log": None}
    record.save()


def for_amd(workspace: Workspace) -> Workspace:
    """As `tilegate isa` and `tilegate emulate` prepare it, whatever the gate's own target is."""
    return replace(workspace, target="hip", tier="full")


def _of_a_chip(before: Lowering | None, after: Lowering, arch: str, means: _Means) -> EmulatedChip:
    result: EmulatedChip = {"note": None, "unchanged": 0, "unselected": 0, "kernels": {}}
    try:
        emulator.prepare(emulator.toolchain())
    except emulator.ToolchainMissing as error:
        result["note"] = str(error)
        return result
    sides = [lowering for lowering in (before, after) if lowering is not None]
    if len({hash_of_files(lowering.workspace.package_root) for lowering in sides}) == len(sides) - 1 > 0:
        return result  # not a byte of the package differs
    left = max(0.0, means.deadline - time.monotonic())
    means.reporter.note(
        f"kernels for {arch} that the change touches are executed on this machine's processor: about {left:.0f} s at most "
        "(emulate_seconds); --no-emulate leaves it out"
    )
    try:
        head = _generate(after, arch, means)
    except LoweringError as error:
        result["note"] = f"its kernels could not be listed at the head ({error.kind}): {error}"[:_LONGEST]
        return result
    try:
        base = None if before is None else _generate(before, arch, means)
    except LoweringError:  # then the head has no base to blame
        base = None
    changed = [id for id in head.generated if base is None or not _same(base.generated.get(id), head.generated[id])]
    result["unchanged"] = len(head.generated) - len(changed)
    result["unselected"] = head.unselected

    def look(id: str) -> EmulatedKernel:
        found = _execute(head, arch, id, means)
        old = None
        # As in a check of timed results: is it the head's doing?
        if base is not None and id in base.generated and emulation.blames(found):
            old = _execute(base, arch, id, means)
            if not emulation.blames(old):
                _show_changes(found, base.generated[id], head.generated[id])
        return {"cases": list(head.cases[id]), "base": old, "head": found}

    with means.reporter.phase(f"emulate {arch}", len(changed)) as phase:
        executed = in_parallel(look, changed, changed, after, lambda done, total, what: phase.done(what))
    result["kernels"] = dict(zip(changed, executed, strict=True))
    return result


def _show_changes(found: EmulatedSide, base: object, head: object) -> None:
    """Add what differs in the source to the first finding if none has a line of it."""
    findings = found["findings"]
    if isinstance(base, tuple) and isinstance(head, tuple) and excerpt.wanted_for(one["kind"] for one in findings):
        findings[0]["message"] = "\n".join([findings[0]["message"], *excerpt.differing_lines(base, head)])[:_LONGEST]


def _generate(lowering: Lowering, arch: str, means: _Means) -> _Side:
    """Generate every kernel that is wanted. Raises LoweringError if they cannot even be listed."""
    every = lowering.configurations(arch)
    cases = {id: of for id, of in every.items() if isa_survey.found(means.pattern, of)}

    def lower(id: str) -> tuple[Artifact, ...] | LoweringError:
        if time.monotonic() > means.deadline:
            return LoweringError("error", "there was no time left to generate it (emulate_seconds)")
        try:
            return lowering.lower(id, arch)
        except LoweringError as error:
            return error

    with means.reporter.phase(f"generate {lowering.workspace.name}", len(cases)) as phase:
        made = in_parallel(lower, list(cases), list(cases), lowering, lambda done, total, what: phase.done(what))
    found = dict(zip(cases, made, strict=True))
    generated = {id: one for id, one in found.items() if not _is_missing(one)}
    return _Side(lowering, cases, generated, len(every) - len(cases))


def _is_missing(made: tuple[Artifact, ...] | LoweringError) -> bool:
    return isinstance(made, LoweringError) and made.kind == MISSING


def _same(one: object, other: object) -> bool:
    return isinstance(one, tuple) and isinstance(other, tuple) and digest(one) == digest(other)


def _execute(side: _Side, arch: str, id: str, means: _Means) -> EmulatedSide:
    made = side.generated[id]
    if isinstance(made, LoweringError):
        return _plain(Kernel(id, (), failure=(made.kind, str(made))))
    return _plain(execute(side.lowering, Wanted(arch, id, (), made), means.store, thorough=1, deadline=means.deadline))


def _plain(kernel: Kernel) -> EmulatedSide:
    """Return what the samples hold of a kernel: each different finding once."""
    failure: EmulatedFailure | None = None
    if kernel.failure is not None:
        failure = {"kind": kernel.failure[0], "message": kernel.failure[1][:_LONGEST]}
    return {
        "problems": len(kernel.trials),
        "complete": not kernel.unfinished,
        "findings": [
            {"kind": shown.partition(":")[0], "message": shown[:_LONGEST], "where": where}
            for shown, where in list(findings_of(kernel))[:_MOST_FINDINGS]
        ],
        "failure": failure,
    }
