"""What a difference between two compiled kernels means: which changes fail, which warn, which are improvements.

A rule that fails is one whose loss is certain from the code alone: registers that now live in memory, waves that no longer
fit. What merely tends to be slower, or rests on an estimate, warns. The measurement decides; these say where to look.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from tilegate.isa.analysis import Analysis
from tilegate.isa.figures import Counts, Figures

REGRESSED, WAIVED, WARNING, IMPROVED, INFO = "regressed", "waived", "warning", "improved", "info"
_ORDER = (REGRESSED, WAIVED, WARNING, IMPROVED, INFO)

_NARROW = 2  # bytes a lane: an LDS access of so few moves at most half of what a bank could
_SHARE = 0.05  # relative change of an estimate that is worth a word
_COPIES = 16  # moves between VGPRs and AGPRs in a round; a handful comes and goes with the register allocator's mood


@dataclass(frozen=True)
class Change:
    """One difference.

    Attributes:
        rule: name of the rule, stable.
        severity: "regressed", "waived" (it would be "regressed"), "warning", "improved" or "info".
        message: what changed, with both numbers.
        waiver: name of the waiver that applies, or None.
    """

    rule: str
    severity: str
    message: str
    waiver: str | None = None


@dataclass(frozen=True)
class Difference:
    """All that changed between a kernel at the base and at the head.

    Attributes:
        verdict: "unchanged" (same source and launch), "pass", "improved", "warning", "waived", "regressed", "broken",
            "inconclusive" (the base itself is broken), "new" or "removed".
        changes: worst first.
    """

    verdict: str
    changes: tuple[Change, ...]


def compare(base: Analysis | None, head: Analysis | None) -> Difference:  # noqa: PLR0911 - one verdict each
    """Judge the head's kernel against the base's.

    Args:
        base: None: the base has no such kernel.
        head: None: the head has no such kernel.

    Raises:
        ValueError: neither is there, or they were compiled for different chips.
    """
    if base is None and head is None:
        raise ValueError("there is neither a base nor a head")
    if head is None:
        return Difference("removed", ())
    broken = tuple(Change(p.check, REGRESSED, p.message) for p in head.problems if p.severity == "broken")
    if base is None:
        return Difference("broken" if broken else "new", broken)
    if base.arch != head.arch:
        raise ValueError(f"kernels for {base.arch} and {head.arch} cannot be compared")
    if base.broken and broken:
        return Difference("inconclusive", broken)
    if broken:
        return Difference("broken", broken)
    if base.identity == head.identity:
        return Difference("unchanged", ())
    if base.figures is None or head.figures is None:
        return Difference("improved", (Change("launch", IMPROVED, "the base's kernel could not run, this one can"),))
    changes = tuple(sorted(_changes(base.figures, head.figures), key=lambda change: _ORDER.index(change.severity)))
    if base.broken:
        changes = (Change("launch", IMPROVED, "the base's kernel could not be launched, this one can"), *changes)
    return Difference(_verdict(changes), changes)


def waive(difference: Difference, waiver_of: Callable[[str], str | None]) -> Difference:
    """Return the difference with its failing changes waived for which `waiver_of` names a waiver, by their rule.

    A kernel that is broken stays broken: it can be slow for a while, but not wrong.
    """
    if difference.verdict != REGRESSED:
        return difference
    changes = tuple(
        replace(change, severity=WAIVED, waiver=name)
        if change.severity == REGRESSED and (name := waiver_of(change.rule)) is not None
        else change
        for change in difference.changes
    )
    return Difference(_verdict(changes), tuple(sorted(changes, key=lambda change: _ORDER.index(change.severity))))


def _verdict(changes: tuple[Change, ...]) -> str:
    severities = {change.severity for change in changes}
    return next((severity for severity in (REGRESSED, WAIVED, WARNING, IMPROVED) if severity in severities), "pass")


def _changes(base: Figures, head: Figures) -> Iterator[Change]:
    for rule, function in RULES.items():
        for severity, message in function(base, head):
            yield Change(rule, severity, message)


Changes = Iterator[tuple[str, str]]


def _spills(base: Figures, head: Figures) -> Changes:
    """More vector registers spill to memory: fails."""
    if head.vgpr_spills != base.vgpr_spills:
        text = f"spilled vector registers {base.vgpr_spills} -> {head.vgpr_spills}"
        text += f" (scratch {base.scratch} -> {head.scratch} bytes a lane)"
        yield (REGRESSED if head.vgpr_spills > base.vgpr_spills else IMPROVED), text


def _scratch(base: Figures, head: Figures) -> Changes:
    """More of a lane's data lives in scratch memory, spills aside: fails."""
    if head.scratch != base.scratch and head.vgpr_spills == base.vgpr_spills:
        severity = REGRESSED if head.scratch > base.scratch else IMPROVED
        yield severity, f"scratch memory {base.scratch} -> {head.scratch} bytes a lane"


def _occupancy(base: Figures, head: Figures) -> Changes:
    """Fewer waves of the kernel fit on a SIMD: fails."""
    if head.waves != base.waves:
        text = f"waves a SIMD {base.waves:g} -> {head.waves:g} (registers {base.registers} -> {head.registers}, "
        text += f"LDS {base.lds:,} -> {head.lds:,} bytes)"
        yield (REGRESSED if head.waves < base.waves else IMPROVED), text


def _scalar_spills(base: Figures, head: Figures) -> Changes:
    """More scalar registers spill (to lanes of vector registers): warns."""
    if head.sgpr_spills != base.sgpr_spills:
        severity = WARNING if head.sgpr_spills > base.sgpr_spills else IMPROVED
        yield severity, f"spilled scalar registers {base.sgpr_spills} -> {head.sgpr_spills}"


def _stack(base: Figures, head: Figures) -> Changes:
    """A function is no longer inlined and needs a stack of unknown size: warns."""
    if head.dynamic_stack and not base.dynamic_stack:
        yield WARNING, "a stack of unknown size: some function is called and no longer inlined"


def _narrow_lds(base: Figures, head: Figures) -> Changes:
    """More LDS reads or writes of two bytes or less in a round of the main loop: warns."""
    before, after = (_narrow(f.loop.counts) if f.loop else 0 for f in (base, head))
    if before != after and _same_work(base, head):
        severity = WARNING if after > before else IMPROVED
        yield severity, f"LDS accesses of at most {_NARROW} bytes a lane in the main loop {before} -> {after}"


def _agpr_copies(base: Figures, head: Figures) -> Changes:
    """More moves between VGPRs and AGPRs in a round of the main loop, by 16 or more: warns."""
    before, after = (f.loop.steady.agpr_copies if f.loop else 0 for f in (base, head))
    if abs(after - before) >= _COPIES and _same_work(base, head):
        severity = WARNING if after > before else IMPROVED
        yield severity, f"moves between VGPRs and AGPRs in the main loop {before} -> {after}"


def _barriers(base: Figures, head: Figures) -> Changes:
    """More barriers in every round of the main loop: warns."""
    before, after = (f.loop.steady.barriers if f.loop else 0 for f in (base, head))
    if before != after and _same_work(base, head):
        yield (WARNING if after > before else IMPROVED), f"barriers in the main loop {before} -> {after}"


def _drains(base: Figures, head: Figures) -> Changes:
    """The main loop waits more often until all of its memory accesses are done: warns."""
    before, after = (f.loop.counts.drains if f.loop else 0 for f in (base, head))
    if before != after and _same_work(base, head):
        severity = WARNING if after > before else IMPROVED
        yield severity, f"waits for all memory accesses in the main loop {before} -> {after}"


def _matrix_share(base: Figures, head: Figures) -> Changes:
    """The estimated share of the matrix units' peak changes by 5 % of itself: warns when it falls."""
    if base.loop is None or head.loop is None or not base.loop.matrix_share:
        return
    before, after = base.loop.matrix_share, head.loop.matrix_share
    if abs(after - before) >= _SHARE * before:
        text = f"estimated share of the matrix peak {before:.0%} -> {after:.0%} (limited by {base.loop.limiter}"
        text += f" -> {head.loop.limiter})" if base.loop.limiter != head.loop.limiter else ")"
        yield (WARNING if after < before else IMPROVED), text


def _figures(base: Figures, head: Figures) -> Changes:
    """Every other number that changed: for information."""
    for _, message in figures_changed(base, head):
        yield INFO, message


def figures_changed(base: Figures, head: Figures) -> Iterator[tuple[bool, str]]:
    """Yield of every number that no rule judges and that changed, whether it got better for speed, and a sentence.

    What is better in one direction only under conditions that do not hold here, such as a count in loops that do other
    work, did not get better.
    """
    for name, before, after, good in (
        ("threads", base.threads, head.threads, 0),
        ("VGPRs", base.vgprs, head.vgprs, -1),
        ("AGPRs", base.agprs, head.agprs, -1),
        ("SGPRs", base.sgprs, head.sgprs, -1),
        ("LDS bytes", base.lds, head.lds, -1),
        ("workgroups on a compute unit", base.workgroups, head.workgroups, 1),
        ("code bytes", base.code_bytes, head.code_bytes, -1),
    ):
        if before != after:
            better = None not in (before, after) and good * ((after or 0) - (before or 0)) > 0
            yield better, f"{name} {_show(before)} -> {_show(after)}"
    if base.loop and head.loop:
        yield from _counts(base.loop.counts, head.loop.counts, comparable=_same_work(base, head))


def _counts(base: Counts, head: Counts, *, comparable: bool) -> Iterator[tuple[bool, str]]:
    for name in ("matrix", "vector", "transcendental", "lds_permutes", "atomics", "scratch", "spills"):
        before, after = getattr(base, name), getattr(head, name)
        if before != after:
            better = comparable and after < before
            yield better, f"main loop, {name.replace('_', ' ')} instructions {before} -> {after}"
    for name in ("lds_reads", "lds_writes", "global_loads", "global_stores"):
        widths: tuple[Mapping[str, int], Mapping[str, int]] = getattr(base, name), getattr(head, name)
        if widths[0] != widths[1]:
            shown = (" ".join(f"{count}x{width}" for width, count in w.items()) or "none" for w in widths)
            accesses, moved = (
                [sum(count * (int(width) if by_width else 1) for width, count in w.items()) for w in widths]
                for by_width in (False, True)
            )
            better = comparable and accesses[1] <= accesses[0] and moved[1] <= moved[0]
            yield better, f"main loop, {name.replace('_', ' ')} (count x bytes a lane) {' -> '.join(shown)}"


def _narrow(counts: Counts) -> int:
    both = [*counts.lds_reads.items(), *counts.lds_writes.items()]
    return sum(count for width, count in both if int(width) <= _NARROW)


def _same_work(base: Figures, head: Figures) -> bool:
    """Whether a round of the main loop does the same matrix work in as many threads: only then counts compare."""
    if base.loop is None or head.loop is None:
        return False
    return (base.threads, base.loop.counts.matrix) == (head.threads, head.loop.counts.matrix)


def _show(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"


RULES: Mapping[str, Callable[[Figures, Figures], Changes]] = {
    "spills": _spills,
    "scratch": _scratch,
    "occupancy": _occupancy,
    "scalar-spills": _scalar_spills,
    "stack": _stack,
    "narrow-lds": _narrow_lds,
    "agpr-copies": _agpr_copies,
    "barriers": _barriers,
    "memory-waits": _drains,
    "matrix-share": _matrix_share,
    "figures": _figures,
}
"""Every rule by name; each function's docstring says when it fails or warns."""
