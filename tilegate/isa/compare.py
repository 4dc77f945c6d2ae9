"""`tilegate isa diff`: the compiled kernels of two revisions, paired by the benchmark cases that run them."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import fnmatch
import functools
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tilegate import __version__, files
from tilegate.config import load_config
from tilegate.isa.analysis import Analysis
from tilegate.isa.revision import EXIT_NOTHING, run_survey, toolchains_of
from tilegate.isa.rules import INFO, Difference, compare, waive
from tilegate.isa.survey import Survey, found, unmatched
from tilegate.judging import waivers
from tilegate.judging.waivers import ResolvedWaivers, Waiver
from tilegate.lowering.lowering import Lowering
from tilegate.lowering.revision import lowering_of
from tilegate.lowering.store import default_store
from tilegate.measuring import trees
from tilegate.showing.markup import code, prose

SCHEMA = "tilegate-isa-diff/1"

_WORST_FIRST = (
    *("broken", "regressed", "inconclusive", "waived", "warning", "removed", "improved", "new", "pass", "unchanged"),
)
_LONGEST = 500  # characters of a message or an id
_NO_WAIVERS = ResolvedWaivers()
_EXIT = {"broken": 3, "regressed": 1, "inconclusive": 4}


@dataclass(frozen=True)
class Pair:
    """A kernel of the base and the kernel of the head that took its place.

    Attributes:
        arch: the chip.
        base, head: ids of the kernels; None where a side has none. They differ when a policy chooses another tile.
        cases: the benchmark cases that ran the base's and now run the head's.
        difference: what changed.
    """

    arch: str
    base: str | None
    head: str | None
    cases: tuple[str, ...]
    difference: Difference

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def pair(
    base: Mapping[str, tuple[str, ...]], head: Mapping[str, tuple[str, ...]]
) -> dict[tuple[str | None, str | None], tuple[str, ...]]:
    """Pair the kernels of two revisions.

    Kernels are paired by the cases that run them: when a policy now gives a case another tile, that tile is compared with
    the one it replaces. Kernels that no case runs are paired by id.

    Args:
        base: the base's kernels: id to cases.
        head: the head's.

    Returns:
        (base id or None, head id or None) to the cases they share, in the base's order.
    """
    pairs: dict[tuple[str | None, str | None], list[str]] = {}
    # Kernels of one configuration are told apart by the name after " #".
    after = {(case, _suffix(id)): id for id, cases in head.items() for case in cases}
    before = {(case, _suffix(id)): id for id, cases in base.items() for case in cases}
    for key, id in before.items():
        pairs.setdefault((id, after.get(key)), []).append(key[0])
    for key, id in after.items():
        if key not in before:
            pairs.setdefault((None, id), []).append(key[0])
    for id in base:
        if not any(id == known for known, _ in pairs):
            pairs[id, id if id in head else None] = []
    for id in head:
        if not any(id == known for _, known in pairs):
            pairs[None, id] = []
    return {key: tuple(cases) for key, cases in pairs.items()}


def run_diff(args: argparse.Namespace, today: datetime.date | None = None) -> int:
    """Carry out `tilegate isa diff`; return the exit code. Raises as `tilegate.isa.command.run`.

    Args:
        args: the command line's.
        today: the day on which waivers must not have expired; by default the day that it is (UTC).
    """
    now = datetime.datetime.now(datetime.UTC)
    toolchains = toolchains_of(args)
    store = default_store()
    with tempfile.TemporaryDirectory(prefix="tilegate-isa-") as scratch:
        repository = trees.open_repository(args.repo.resolve())
        surveys, revisions = {}, {}
        for side in ("base", "head"):
            revisions[side] = trees.resolve(repository, getattr(args, side), Path(scratch, f"{side}-objects"))
        ours, theirs = (trees.file_if_any(repository, revision, waivers.FILE) for revision in revisions.values())
        brought = waivers.of_revisions(ours, theirs)
        resolved = waivers.resolve(brought, today=today or now.date(), allow_head=args.allow_head_waivers).about("isa")

        def lowering(side: str) -> contextlib.AbstractContextManager[Lowering]:
            return lowering_of(repository, revisions[side], revisions["base"], Path(scratch, side), store)

        with lowering("head") as after:  # starts its workers when it is first asked
            with lowering("base") as before:
                none = unmatched(args.bench, [toolchain.arch for toolchain in toolchains], [before, after])
                concerned = _concerned(args.bench, before, after)
                surveys["base"] = run_survey(before, toolchains, lambda arch, _: concerned(arch)[0], "base")
            surveys["head"] = run_survey(after, toolchains, lambda arch, _: concerned(arch)[1], "head")
        allowed = load_config(trees.read_file(repository, revisions["base"], "pyproject.toml")).allow_removed
    compared = pairs_of(surveys["base"], surveys["head"])
    pairs = tuple(waived(kept, resolved.counting) for kept in compared if _matches(kept, args.bench))
    if not pairs and none is not None:
        print(f"tilegate: {none}", file=sys.stderr)
    verdict, status = verdict_of(pairs, allowed, resolved)
    document = {
        "schema": SCHEMA,
        "tilegate": __version__,
        "created": now.isoformat(timespec="seconds"),
        **{side: {"rev": r.rev, "commit": r.commit, "tree": r.tree} for side, r in revisions.items()},
        "verdict": verdict,
        "exit_code": status,
        "waivers": {
            group: [waiver.to_json() for waiver in getattr(resolved, group)]
            for group in ("counting", "expired", "refused")
        },
        "toolchains": {arch: dict(identity) for arch, identity in surveys["base"].toolchains.items()},
        "pairs": [kept.to_json() for kept in pairs],
    }
    report = render(pairs, verdict, f"{revisions['base'].short} -> {revisions['head'].short}", resolved)
    if args.out:
        files.write_json(args.out / "isa.json", document)
        files.write_text(args.out / "isa.md", report)
    print(json.dumps(document, indent=1) if args.json else report)
    return status


def _concerned(
    pattern: str | None, before: Lowering, after: Lowering
) -> Callable[[str], tuple[Collection[str], Collection[str]]]:
    """Return a function that says, for a chip, which kernels of base and head have to be compiled.

    They are those of all pairs in which the pattern is found: a tile that replaces a matching one need not match itself.
    """

    @functools.cache
    def of(arch: str) -> tuple[Collection[str], Collection[str]]:
        listed = [{id: tuple(cases) for id, cases in side.configurations(arch).items()} for side in (before, after)]
        pairs = pair(*listed)
        ids = [ids for ids, cases in pairs.items() if found(pattern, (*filter(None, ids), *cases))]
        # Found nowhere: perhaps in what is known of a kernel only once it is generated, its name after " #".
        left, right = zip(*(ids or pairs), strict=True) if pairs else ((), ())
        return set(filter(None, left)), set(filter(None, right))

    return of


def waived(kept: Pair, counting: Sequence[Waiver]) -> Pair:
    """Return a pair with its failing findings waived for which a waiver gives leave."""

    def waiver_of(rule: str) -> str | None:
        waiver = waivers.for_finding(counting, rule, kept.cases, kept.head or "")
        return None if waiver is None else waiver.name

    return replace(kept, difference=waive(kept.difference, waiver_of))


def pairs_of(base: Survey, head: Survey) -> Iterator[Pair]:
    """Compare two surveys, which must have been made with the same toolchains.

    Raises:
        ValueError: they were not.
    """
    if base.toolchains != head.toolchains:
        raise ValueError("two revisions are compared under one toolchain only")
    for arch in base.kernels:
        sides = [{kernel.id: kernel for kernel in side.kernels[arch]} for side in (base, head)]
        for (before, after), cases in pair(*({k.id: k.cases for k in side.values()} for side in sides)).items():
            analyses: list[Analysis | None] = [
                side[id].analysis if id is not None else None for side, id in zip(sides, (before, after), strict=True)
            ]
            yield Pair(arch, before, after, cases, compare(*analyses))


def verdict_of(
    pairs: tuple[Pair, ...], allowed: Sequence[str] = (), resolved: ResolvedWaivers = _NO_WAIVERS
) -> tuple[str, int]:
    """Return the run's verdict and exit code: the worst of its pairs, and never a pass for nothing.

    Args:
        pairs: what was compared.
        allowed: the base's `allow_removed`, globs of cases that may lose their kernel.
        resolved: the waivers that speak of compiled code; an expired one never passes.
    """
    verdicts = {kept.difference.verdict for kept in pairs}
    # A case that lost its kernel is a hole in the comparison; a kernel that no case ran may go.
    lost = [case for kept in pairs if kept.difference.verdict == "removed" for case in kept.cases]
    if not all(any(fnmatch.fnmatchcase(case, glob) for glob in allowed) for case in lost):
        verdicts.add("inconclusive")
    if resolved.expired:
        verdicts.add("inconclusive")
    if not pairs:
        return "inconclusive", EXIT_NOTHING
    return next(((v, _EXIT[v]) for v in _EXIT if v in verdicts), ("pass", 0))


def render(pairs: tuple[Pair, ...], verdict: str, title: str, resolved: ResolvedWaivers = _NO_WAIVERS) -> str:
    """Return the report as Markdown: worst first, kernels without consequences only counted.

    Every string that comes from a revision is inside a code span.
    """
    counts = Counter(kept.difference.verdict for kept in pairs)
    lines = [f"## Compiled kernels: {verdict}", "", title, ""]
    lines.append(
        ", ".join(f"{counts[name]} {name}" for name in _WORST_FIRST if counts[name]) or "no kernel was compared"
    )
    for waiver in resolved.expired:
        lines += ["", f"Waiver {prose(waiver.name)} expired on {waiver.expires}: renew or remove it."]
    for waiver in resolved.refused:
        lines += [
            "",
            f"Waiver {prose(waiver.name)} is this change's own and does not count without --allow-head-waivers.",
        ]
    for kept in sorted(pairs, key=lambda kept: _WORST_FIRST.index(kept.difference.verdict)):
        difference = kept.difference
        if difference.verdict in ("pass", "unchanged") and not difference.changes:
            continue
        name = (
            _shown(kept.head or kept.base or "")
            if kept.base in (None, kept.head) or kept.head is None
            else (f"{_shown(kept.base or '')} -> {_shown(kept.head)}")
        )
        cases = f", {len(kept.cases)} cases" if kept.cases else ""
        lines += ["", f"**{difference.verdict}** {kept.arch} {name}{cases}", ""]
        lines += [
            f"- {change.severity}{f' by {prose(change.waiver)}' if change.waiver else ''}: {_shown(change.message)}"
            for change in difference.changes
            if change.severity != INFO
        ]
        rest = [change.message for change in difference.changes if change.severity == INFO]
        if rest:
            lines.append(f"- also: {'; '.join(_shown(message) for message in rest)}")
    return "\n".join(lines) + "\n"


def _shown(text: str) -> str:
    return code(text, _LONGEST)


def _suffix(id: str) -> str:
    return id.partition(" #")[2]


def _matches(kept: Pair, pattern: str | None) -> bool:
    return found(pattern, (kept.base or "", kept.head or "", *kept.cases))
