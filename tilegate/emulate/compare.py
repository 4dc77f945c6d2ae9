"""`tilegate emulate diff`: what a change does to the results of the kernels and to what they execute."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tilegate import emulator, files
from tilegate.emulate import excerpt, table
from tilegate.emulate.revision import Kernels, depth, header, identity, run_survey, verdict_of
from tilegate.emulate.survey import Kernel
from tilegate.isa.compare import pair
from tilegate.isa.survey import refuse_unmatched
from tilegate.lowering.lowering import Lowering
from tilegate.lowering.revision import lowering_of
from tilegate.lowering.store import default_store
from tilegate.measuring import trees
from tilegate.showing.markup import plain

SCHEMA = "tilegate-emulate-diff/1"

_LONGEST_LINE = 200

_ORDER = ("broken", "inconclusive", "removed", "changed", "new", "unchanged")

# What costs time on a chip, in words; what is a model says so.
_TOLD = (
    ("matrix instructions", "mfma"),
    ("LDS cycles (model)", "lds_cycles_modelled"),
    ("LDS cycles without conflicts", "lds_cycles_ideal"),
    ("LDS reads", "lds_reads"),
    ("LDS writes", "lds_writes"),
    ("LDS bytes", "lds_bytes"),
    ("lines of global memory requested", "lines_requested"),
    ("least lines", "lines_least"),
    ("global bytes", "global_bytes"),
    ("barriers", "barriers"),
    ("exchanges between lanes", "exchanges"),
    ("atomics", "atomics"),
)


@dataclass(frozen=True)
class Change:
    """One counter that is another one.

    Attributes:
        name: in words.
        key: as in a result.
        base, head: summed up over the problems that both executed.
    """

    name: str
    key: str
    base: int
    head: int

    @property
    def ratio(self) -> float:
        """Head to base, infinite for what the base does not do."""
        return self.head / self.base if self.base else math.inf

    def __str__(self) -> str:
        """Spell it: "LDS cycles (model) 1,280 -> 2,560 (+100.0 %)"."""
        share = f" ({100 * (self.ratio - 1):+.1f} %)" if self.base else ""
        return f"{self.name} {self.base:,} -> {self.head:,}{share}"


@dataclass(frozen=True)
class Pair:
    """A kernel of the base and the one of the head that took its place.

    Attributes:
        arch: the chip.
        base, head: the kernels; None where a side has none.
        cases: the cases that ran the base's and now run the head's.
        changes: of the counters, worst first.
        source: what differs in the generated source, if the head's values alone are wrong.
    """

    arch: str
    base: Kernel | None
    head: Kernel | None
    cases: tuple[str, ...]
    changes: tuple[Change, ...]
    source: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """One of the kernels' verdicts, or "removed", "new", "changed", "unchanged"."""
        if self.head is None:
            return "removed"
        if self.head.verdict != "pass":
            # What the base does wrong, too, is not the change's doing.
            blamed = self.base is None or self.base.verdict != "broken"
            return self.head.verdict if blamed else "inconclusive"
        if self.base is None:
            return "new"
        return "changed" if self.changes else "unchanged"

    @property
    def badness(self) -> tuple[int, float]:
        """Order of the report: verdict, then the largest growth of a counter."""
        return _ORDER.index(self.verdict), -max((change.ratio for change in self.changes), default=0.0)

    def to_json(self) -> dict[str, Any]:
        """Return plain values, as schemas/emulate-diff-1.json describes them."""
        sides = {"base": self.base, "head": self.head}
        return {
            "arch": self.arch,
            "verdict": self.verdict,
            "cases": list(self.cases),
            **{side: None if k is None else {"id": k.id, **k.to_json(counters=False)} for side, k in sides.items()},
            "source": list(self.source),
            "changes": {change.key: {"base": change.base, "head": change.head} for change in self.changes},
        }


def run_diff(args: argparse.Namespace, archs: tuple[str, ...], pattern: str | None) -> int:
    """Carry out `tilegate emulate diff`; return the exit code. Raises as `tilegate.emulate.command.run`."""
    store = default_store()
    with tempfile.TemporaryDirectory(prefix="tilegate-emulate-") as scratch:
        repository = trees.open_repository(args.repo.resolve())
        revisions = {
            side: trees.resolve(repository, getattr(args, side), Path(scratch, f"{side}-objects"))
            for side in ("base", "head")
        }
        surveys: dict[str, Kernels] = {}
        sides: dict[str, Lowering] = {}
        with contextlib.ExitStack() as stack:
            for side, revision in revisions.items():
                opened = lowering_of(repository, revision, revisions["base"], Path(scratch, side), store)
                sides[side] = stack.enter_context(opened)
            refuse_unmatched(pattern, archs, list(sides.values()))
            for side in revisions:
                surveys[side] = run_survey(sides[side], archs, store, pattern, side, **depth(args))
            found = [_with_source(kept, sides) for kept in pairs_of(surveys["base"], surveys["head"])]
    pairs = sorted(found, key=lambda kept: kept.badness)
    verdict, code = verdict_of([_of_a_run(kept.verdict) for kept in pairs])
    document = {
        **header(SCHEMA),
        **{side: identity(revision) for side, revision in revisions.items()},
        "verdict": verdict,
        "exit_code": code,
        "schedules": args.schedules,
        "problems": args.problems,
        "toolchain": emulator.toolchain().version,
        "pairs": [kept.to_json() for kept in pairs],
    }
    if args.out:
        files.write_json(args.out, document)
    title = f"{revisions['base'].short} -> {revisions['head'].short}"
    print(json.dumps(document, indent=1) if args.json else render(pairs, verdict, title))
    return code


def pairs_of(base: Kernels, head: Kernels) -> Iterator[Pair]:
    """Pair the kernels of two surveys by the cases that run them, those that none runs by id."""
    for arch in base:
        sides = [{kernel.id: kernel for kernel in found[arch]} for found in (base, head)]
        paired = pair(*({kernel.id: kernel.cases for kernel in side.values()} for side in sides))
        for (before, after), cases in paired.items():
            one, other = (None if id is None else side[id] for side, id in zip(sides, (before, after), strict=True))
            yield Pair(arch, one, other, cases, () if one is None or other is None else changes(one, other))


def _with_source(kept: Pair, sides: Mapping[str, Lowering]) -> Pair:
    """Add what differs in the source where nothing else says which lines are to blame."""
    base, head = kept.base, kept.head
    if base is None or head is None or (base.verdict, head.verdict) != ("pass", "broken"):
        return kept
    if not excerpt.wanted_for(finding["kind"] for _, finding in head.findings):
        return kept
    # Both were generated for the survey, and the store has kept them.
    before, after = sides["base"].lower(base.id, kept.arch), sides["head"].lower(head.id, kept.arch)
    return replace(kept, source=tuple(excerpt.differing_lines(before, after)))


def changes(base: Kernel, head: Kernel) -> tuple[Change, ...]:
    """Return the counters that differ, summed up over the problems that both kernels ran to their end, worst first."""
    before, after = ({done.problem: done.total for done in kernel.trials if done.counters} for kernel in (base, head))
    shared = [problem for problem in before if problem in after]
    found = [
        Change(name, key, *(sum(side[problem][key] for problem in shared) for side in (before, after)))
        for name, key in _TOLD
    ]
    return tuple(sorted((c for c in found if c.base != c.head), key=lambda c: -c.ratio))


def render(pairs: Sequence[Pair], verdict: str, title: str) -> str:
    """Return the comparison as text, worst first; kernels of which nothing changed are only counted."""
    lines = [f"emulated: {title}", ""]
    for kept in pairs:
        if kept.verdict == "unchanged":
            continue
        lines.append(f"{kept.verdict}  {kept.arch}  {_names(kept)}{f', {len(kept.cases)} cases' * bool(kept.cases)}")
        if kept.head is not None and kept.head.verdict != "pass":
            lines += table.below(kept.head)
        if kept.verdict == "inconclusive" and kept.base is not None and kept.base.verdict == "broken":
            lines.append("    the base has findings, too, so the change need not be to blame")
        lines += [f"    {plain(line, limit=_LONGEST_LINE)}" for line in kept.source]
        lines += [f"    {change}" for change in kept.changes]
        lines.append("")
    counts = {name: sum(kept.verdict == name for kept in pairs) for name in _ORDER}
    counted = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    return "\n".join([*lines, f"{verdict.upper()}: {counted or 'no kernel was compared'}."])


def _names(kept: Pair) -> str:
    ids = dict.fromkeys(plain(kernel.id) for kernel in (kept.base, kept.head) if kernel is not None)
    return " -> ".join(ids)


def _of_a_run(verdict: str) -> str:
    return {"broken": "broken", "inconclusive": "inconclusive"}.get(verdict, "pass")
