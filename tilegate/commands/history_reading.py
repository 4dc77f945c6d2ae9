"""`tilegate history show`, `compare`, `regressions` and `export`: questions to a history."""

from __future__ import annotations

import argparse
import datetime
import json
import math
from collections.abc import Sequence
from datetime import UTC

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from tilegate.commands.history_common import EXIT_DONE, EXIT_NOTHING, EXIT_REGRESSED, name_broken, sha
from tilegate.files import UsageError
from tilegate.history import asv_results, detect, exporting, inbox, update
from tilegate.history.network import Contrast, interval
from tilegate.history.store import Store
from tilegate.history.view import Case, History
from tilegate.showing.markup import change, code, duration, plain


def show(args: argparse.Namespace, store: Store) -> int:
    """Carry out `show`; return the exit code. Raises UsageError."""
    history = update.load(store)
    name_broken(history)
    case = _one_case(history, args.case)
    rows, steps = _rows(history, case), detect.suspicions(case)
    if args.json:
        suspected = [_suspicion_to_json(history, one) for one in steps]
        document = {"case": case.id, "method": case.method, "commits": rows, "suspected": suspected}
        print(json.dumps(document, indent=1))
        return EXIT_DONE
    print(plain(case.id))
    for segment in case.segments:
        described = history.environments.get(segment.environment, {})
        device = str(described.get("device", {}).get("name", segment.environment[:12]))
        spread = segment.network.card_spread
        cards = f", spread between cards {100 * spread:.2f} %" if spread else ""
        print(f"  on {plain(device)}: {len(segment.edges)} comparisons, {len(segment.network.flagged)} flagged{cards}")
    table = Table("commit", "version", "level", "95 %", "time", "subject", box=SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        table.add_row(*(plain(str(row[key])) for key in ("commit", "version", "level", "interval", "time", "subject")))
    _print(table)
    if steps:
        print("steps in independent runs (asv, pytest-benchmark), much less sure than comparisons:")
        _print(_suspicions(history, steps, with_case=False))
    return EXIT_DONE


def _rows(history: History, case: Case) -> list[dict[str, object]]:
    segment = case.segments[0] if case.segments else None
    rows: list[dict[str, object]] = []
    for place, commit in enumerate(history.commits):
        version = case.versions[place]
        known = segment is not None and version in segment.levels
        level = interval = seconds = "-"
        if segment is not None and version is not None and known:
            contrast = segment.network.contrast(segment.reference, version)
            level = change(math.exp(segment.levels[version]))
            interval = _between(contrast) if contrast else "-"
            seconds = duration(segment.seconds.get(version))
        names = f" [{', '.join(commit.releases)}]" if commit.releases else ""
        rows.append(
            {
                "commit": commit.sha[:12],
                "version": version or case.failed.get(place, "not known")[:40],
                "level": level,
                "interval": interval,
                "time": seconds,
                "subject": f"{commit.subject}{names}",
            }
        )
    return rows


def compare(args: argparse.Namespace, store: Store) -> int:
    """Carry out `compare`; return the exit code. Raises UsageError."""
    history = update.load(store)
    name_broken(history)
    base, head = (_place(history, name) for name in (args.base, args.head))
    rows, excluded = [], {}
    for case in history.cases.values():
        before, after = case.versions[base], case.versions[head]
        contrast = case.contrast(base, head)
        if contrast is not None:
            rows.append((case.id, contrast, before == after))
        else:
            side = next((side for side, version in (("A", before), ("B", after)) if version is None), None)
            excluded[case.id] = f"no code version at {side}" if side else "no comparisons connect the two"
    rows.sort(key=lambda row: -abs(row[1].estimate) / max(row[1].error, 1e-9) if not row[2] else 0.0)
    mean = _geometric_mean([contrast for _, contrast, _ in rows])
    if args.json:
        document = {
            "base": history.commits[base].sha,
            "head": history.commits[head].sha,
            "cases": [
                {
                    "case": id,
                    **_ratio(c),
                    "identical": same,
                }
                for id, c, same in rows
            ],
            "geomean": None if mean is None else {"cases": len(rows), **_ratio(mean)},
            "excluded": excluded,
        }
        print(json.dumps(document, indent=1))
    elif args.markdown:
        print("| case | change | 95 % |\n|---|--:|---|")
        for id, contrast, same in rows:
            print(f"| {code(id)} | {_changed(contrast, same)} | {'identical code' if same else _between(contrast)} |")
    else:
        table = Table("case", "change", "95 %", box=SIMPLE_HEAD, pad_edge=False)
        for id, contrast, same in rows:
            table.add_row(plain(id), _changed(contrast, same), "identical code" if same else _between(contrast))
        _print(table)
    if not args.json and mean is not None:
        print(f"geometric mean of the {len(rows)} cases that both have: {_changed(mean, False)} ({_between(mean)})")
    if not args.json and excluded:
        print(f"not compared: {len(excluded)}")
        for id, reason in list(excluded.items())[:20]:
            print(f"  {plain(id)}: {reason}")
    return EXIT_DONE if rows else EXIT_NOTHING


def regressions(args: argparse.Namespace, store: Store) -> int:
    """Carry out `regressions`; return the exit code. Raises UsageError."""
    history = update.load(store)
    name_broken(history)
    found = inbox.entries(history, datetime.datetime.now(UTC).date())
    suspected = [one for case in history.cases.values() for one in detect.suspicions(case) if one.slower]
    if args.json:
        shown = [_entry_to_json(history, entry) for entry in found]
        print(json.dumps(shown + [_suspicion_to_json(history, one) for one in suspected], indent=1))
        return EXIT_REGRESSED if any(entry.open for entry in found) else EXIT_DONE
    if not found:
        print("no regression is known")
    else:
        table = Table(
            "id", "state", "change", "95 %", "since", "kernel", "cases", "owner", box=SIMPLE_HEAD, pad_edge=False
        )
        for entry in found:
            state = "recovered" if entry.recovered else f"{entry.state} (expired)" if entry.expired else entry.state
            since = f"{sha(history, entry.last_good)}..{sha(history, entry.first_bad)}"
            worst = entry.worst
            table.add_row(
                entry.id, state, _changed(worst, same=False), _between(worst), since, plain(entry.benchmark), str(len(entry.affected)), plain(entry.owner)
            )  # fmt: skip
        _print(table)
    if suspected:
        print("suspected, from independent runs alone; not in the inbox, and much less sure:")
        _print(_suspicions(history, suspected, with_case=True))
        one = suspected[0]
        print(f"to find out: tilegate bisect --good {sha(history, one.before)} --bad {sha(history, one.after)} -b CASE")
    return EXIT_REGRESSED if any(entry.open for entry in found) else EXIT_DONE


def _suspicions(history: History, found: Sequence[detect.Suspicion], *, with_case: bool) -> Table:
    columns = ["about", "between", "runs of", *(["case"] if with_case else [])]
    table = Table(*columns, box=SIMPLE_HEAD, pad_edge=False)
    for one in found:
        size = (
            f"{change(math.exp(one.step.size))} ({change(math.exp(one.step.low))} … {change(math.exp(one.step.high))})"
        )
        between = f"{sha(history, one.before)}..{sha(history, one.after)}"
        table.add_row(size, between, plain(one.source), *([plain(one.case)] if with_case else []))
    return table


def _suspicion_to_json(history: History, one: detect.Suspicion) -> dict[str, object]:
    return {
        "id": None,
        "kind": "suspected",
        "open": False,
        "source": one.source,
        "environment": one.environment,
        "last_good": history.commits[one.before].sha,
        "first_bad": history.commits[one.after].sha,
        "chance": one.step.chance,
        "cases": [
            {
                "case": one.case,
                "ratio": math.exp(one.step.size),
                "low": math.exp(one.step.low),
                "high": math.exp(one.step.high),
            }
        ],
    }


def _print(table: Table) -> None:
    Console(markup=False, highlight=False).print(table)


def _entry_to_json(history: History, entry: inbox.Entry) -> dict[str, object]:
    return {
        "id": entry.id,
        "kind": entry.kind,
        "state": entry.state,
        "open": entry.open,
        "recovered": entry.recovered,
        "expired": entry.expired,
        "owner": entry.owner,
        "note": entry.note,
        "expires": entry.expires,
        "benchmark": entry.benchmark,
        "last_good": history.commits[entry.last_good].sha,
        "first_bad": history.commits[entry.first_bad].sha,
        "cases": [
            {
                "case": a.case,
                **_ratio(a.contrast),
            }
            for a in entry.affected
        ],
    }


def export(args: argparse.Namespace, store: Store) -> int:
    """Carry out `export`; return the exit code."""
    format = args.format or args.out.suffix.lstrip(".").lower()
    if format not in (*exporting.FORMATS, "asv"):
        raise UsageError(
            f"{args.out} does not end in .csv, .json or .parquet; --format says which of them it is to be, or asv"
        )
    history = update.load(store)
    name_broken(history)
    if format == "asv":
        print(f"{asv_results.write(history, args.out)} result files of asv in {args.out} are new or changed")
        return EXIT_DONE
    written = exporting.write(history, args.out, args.table, format)
    print(f"{written} rows of {args.table} are in {args.out}")
    return EXIT_DONE


def _one_case(history: History, text: str) -> Case:
    names = [id for id in history.cases if id == text] or [id for id in history.cases if text in id]
    if len(names) != 1:
        some = "\n  ".join(names[:10] or list(history.cases)[:10])
        what = f"{len(names)} cases match" if names else "no case matches; some that there are"
        raise UsageError(f"{text!r}: {what}:\n  {some}")
    return history.cases[names[0]]


def _place(history: History, name: str) -> int:
    place = history.place(name)
    if place is None:
        newest = ", ".join(commit.sha[:12] for commit in history.commits[-3:])
        raise UsageError(f"{name!r} is no commit or release of this history; the newest are {newest}")
    return place


def _geometric_mean(found: Sequence[Contrast]) -> Contrast | None:
    """Of the ratios of different cases, which are measured independently; only of cases that both commits have."""
    if not found:
        return None
    error = math.sqrt(sum(contrast.error**2 for contrast in found)) / len(found)
    return interval(sum(contrast.estimate for contrast in found) / len(found), error)


def _ratio(contrast: Contrast) -> dict[str, float]:
    return {"ratio": math.exp(contrast.estimate), "low": math.exp(contrast.low), "high": math.exp(contrast.high)}


def _changed(contrast: Contrast, same: bool) -> str:
    return "0 %" if same else change(math.exp(contrast.estimate))


def _between(contrast: Contrast) -> str:
    return f"{change(math.exp(contrast.low))} … {change(math.exp(contrast.high))}"
