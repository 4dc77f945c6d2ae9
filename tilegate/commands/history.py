"""`tilegate history`: when did it get slower, by how much, which commit, and is it still so?"""

from __future__ import annotations

import argparse
import datetime
import getpass
import json
import math
import sys
import time
from collections.abc import Sequence
from datetime import UTC
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from tilegate import invocation
from tilegate.files import UsageError
from tilegate.history import importing, inbox, update
from tilegate.history.network import Contrast
from tilegate.history.records import STATES, Event
from tilegate.history.store import Store
from tilegate.history.view import Case, History
from tilegate.measuring import trees
from tilegate.progress import Reporter
from tilegate.protocol import TARGETS, TIERS
from tilegate.schemas.samples import Tier
from tilegate.showing.markup import change, code, duration, plain

EXIT_DONE, EXIT_REGRESSED, EXIT_NOTHING = 0, 1, 4
FOLDER = "history"
_DEFAULT_LIMIT = 30

_DESCRIPTION = """\
A history is a network: commits whose code for a case is the same are one code version, and comparisons in turns connect
versions. Most commits need no measuring, and every answer has an interval (docs/history.md).

examples:
  tilegate history update --minutes 20          code versions of the last commits, then what tells most
  tilegate history update v1.0..main --plan     what is missing, without measuring
  tilegate history show s4096                   a case, commit by commit
  tilegate history compare v1.0 main            any two commits, every case with its interval
  tilegate history regressions                  what got slower, and whether it still is
  tilegate history triage 1a2b3c4d --state accepted --expires 2026-12-31 --note "split keys come next"
  tilegate history import .tilegate/*/samples.json .asv/results/MACHINE/*.json
"""
_EPILOG = "exit code: 0 done; regressions: 0 none is open, 1 some are; 2 usage error, 4 nothing is known of what was asked for"


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `tilegate history` to the command line."""
    parser = subparsers.add_parser(
        "history",
        help="when did it get slower, by how much, and is it still so?",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="history_command", metavar="COMMAND", required=True)

    def command(name: str, summary: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=summary, description=summary)
        made.add_argument("--store", type=Path, metavar="DIR", help=f"the history (default: .tilegate/{FOLDER})")
        made.add_argument("--repo", type=Path, default=Path(), metavar="DIR", help="the repository (default: this one)")
        return made

    updating = command(
        "update", "Find code versions that are not known yet, then measure the comparisons that tell most."
    )
    updating.add_argument(
        "range", nargs="?", metavar="RANGE", default="HEAD", help="as `git log` takes it (default: HEAD)"
    )
    updating.add_argument(
        "--limit", type=int, default=_DEFAULT_LIMIT, metavar="N", help="at most N commits, the newest (default: 30)"
    )
    updating.add_argument(
        "--minutes", type=invocation.minutes, default=10.0, metavar="M", help="for all of it (default: 10)"
    )
    updating.add_argument("--plan", action="store_true", help="find code versions, and show what would be measured")
    updating.add_argument("--json", action="store_true", help="print the plan as JSON")
    updating.add_argument(
        "--target", choices=("auto", *TARGETS), default="auto", help="default: the GPU that torch finds"
    )
    updating.add_argument("--tier", choices=TIERS, help="how much (default: smoke on the CPU, pr on a GPU)")
    updating.add_argument("--tags", default="v*", metavar="GLOB", help="the tags that are releases (default: v*)")

    showing = command("show", "Show a case, commit by commit.")
    showing.add_argument("case", metavar="CASE", help="a part of its id")
    showing.add_argument("--json", action="store_true", help="print JSON")
    comparing = command("compare", "Compare any two commits or releases: every case that both have.")
    comparing.add_argument("base", metavar="A", help="the start of a commit's hash, or a release")
    comparing.add_argument("head", metavar="B", help="likewise")
    comparing.add_argument("--markdown", action="store_true", help="print a Markdown table")
    comparing.add_argument("--json", action="store_true", help="print JSON")
    regressing = command("regressions", "List what got slower: open entries first, recovered ones too.")
    regressing.add_argument("--json", action="store_true", help="print JSON")
    triaging = command("triage", "Say what becomes of an entry of the inbox.")
    triaging.add_argument("id", metavar="ID", help="of an entry that `regressions` lists")
    triaging.add_argument("--state", choices=STATES, help="its state from now on")
    triaging.add_argument("--owner", metavar="NAME", help="who looks after it")
    triaging.add_argument("--note", metavar="TEXT", help="what the next reader should know")
    triaging.add_argument("--expires", metavar="DATE", help="the last day of an acceptance, YYYY-MM-DD")
    importing_ = command("import", "Take over samples of gates, results of asv, JSON of pytest-benchmark.")
    importing_.add_argument("files", nargs="+", type=Path, metavar="FILE")
    alias = command("alias", "Let a renamed case go on under its new name.")
    alias.add_argument("old", metavar="OLD", help="the old id")
    alias.add_argument("new", metavar="NEW", help="the new one")
    packing = command("pack", "Pack the records of past months; nothing is lost.")
    packing.add_argument(
        "--until", metavar="MONTH", help="YYYY-MM, the last month to pack (default: the month before this one)"
    )


def run(args: argparse.Namespace) -> int:
    """Carry out `tilegate history`; return the exit code. Raises UsageError, KeyboardInterrupt."""
    store = Store((args.store or _default(args.repo)).resolve())
    return {
        "update": _update,
        "show": _show,
        "compare": _compare,
        "regressions": _regressions,
        "triage": _triage,
        "import": _import,
        "alias": _alias,
        "pack": _pack,
    }[args.history_command](args, store)


def _default(repo: Path) -> Path:
    return invocation.default_folder(trees.open_repository(repo.resolve()), FOLDER)


def _update(args: argparse.Namespace, store: Store) -> int:
    reporter = Reporter()
    until = time.monotonic() + 60 * args.minutes
    target = invocation.target_named(args.target)
    tier: Tier = args.tier or ("smoke" if target == "cpu" else "pr")
    store.folder.mkdir(parents=True, exist_ok=True)
    where = update.Range(args.repo.resolve(), args.range, args.limit, args.tags, target, tier)
    try:
        with invocation.ending_on_signals():
            commits = update.survey_missing(store, where, reporter.note, until=until)
            shas = [commit["sha"] for commit in commits]
            history = update.load(store)
            _name_broken(history)
            wanted = update.plan(history, shas)
            if args.plan or args.json:
                print(update.plan_to_json(history, wanted) if args.json else _plan_table(history, wanted))
                return EXIT_DONE
            failed: set[tuple[int, int]] = set()
            while (left := (until - time.monotonic()) / 60) > 0:
                todo = [one for one in update.plan(history, shas) if (one.base, one.head) not in failed]
                if not todo:
                    break
                one = todo[0]
                failed.add((one.base, one.head))  # asked for once a run, whatever comes of it
                reporter.note(
                    f"{_sha(history, one.base)} against {_sha(history, one.head)}: {one.reason}, {len(one.cases)} cases"
                )
                try:
                    got = update.measure(store, history, one, where, minutes=left)
                    reporter.note(f"  {got} comparisons")
                except UsageError as error:
                    reporter.note(f"  could not be measured: {error}")
                history = update.load(store)
    except KeyboardInterrupt:
        reporter.note(f"interrupted; what was found is kept in {store.folder}\nto resume: {args.resume}")
        raise
    found = inbox.entries(history, datetime.datetime.now(UTC).date())
    for event in inbox.unfiled(history, found, _author(), _now()):
        store.add(event)
    still = update.plan(history, shas)
    opened = sum(entry.open for entry in found)
    print(
        f"{len(history.commits)} commits, {len(history.cases)} cases, {sum(_edges(case) for case in history.cases.values())} "
        f"comparisons; still missing: {len(still)}; open regressions: {opened} (tilegate history regressions)"
    )
    return EXIT_DONE


def _plan_table(history: History, wanted: Sequence[update.Wanted]) -> str:
    if not wanted:
        return "nothing is missing"
    lines = [f"{len(wanted)} comparisons are missing, the most informative first:"]
    for one in wanted:
        lines.append(
            f"  {_sha(history, one.base)} -> {_sha(history, one.head)}  {len(one.cases):>4} cases  {one.reason}"
        )
    return "\n".join(lines)


def _show(args: argparse.Namespace, store: Store) -> int:
    history = update.load(store)
    _name_broken(history)
    case = _one_case(history, args.case)
    rows = _rows(history, case)
    if args.json:
        print(json.dumps({"case": case.id, "method": case.method, "commits": rows}, indent=1))
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
    Console(markup=False, highlight=False).print(table)
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


def _compare(args: argparse.Namespace, store: Store) -> int:
    history = update.load(store)
    _name_broken(history)
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
    if args.json:
        document = {
            "base": history.commits[base].sha,
            "head": history.commits[head].sha,
            "cases": [
                {
                    "case": id,
                    "ratio": math.exp(c.estimate),
                    "low": math.exp(c.low),
                    "high": math.exp(c.high),
                    "identical": same,
                }
                for id, c, same in rows
            ],
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
        Console(markup=False, highlight=False).print(table)
    if not args.json and excluded:
        print(f"not compared: {len(excluded)}")
        for id, reason in list(excluded.items())[:20]:
            print(f"  {plain(id)}: {reason}")
    return EXIT_DONE if rows else EXIT_NOTHING


def _regressions(args: argparse.Namespace, store: Store) -> int:
    history = update.load(store)
    _name_broken(history)
    found = inbox.entries(history, datetime.datetime.now(UTC).date())
    if args.json:
        print(json.dumps([_entry_to_json(history, entry) for entry in found], indent=1))
    elif not found:
        print("no regression is known")
    else:
        table = Table(
            "id", "state", "change", "95 %", "since", "kernel", "cases", "owner", box=SIMPLE_HEAD, pad_edge=False
        )
        for entry in found:
            state = "recovered" if entry.recovered else f"{entry.state} (expired)" if entry.expired else entry.state
            since = f"{_sha(history, entry.last_good)}..{_sha(history, entry.first_bad)}"
            worst = entry.worst
            table.add_row(
                entry.id, state, _changed(worst, same=False), _between(worst), since, plain(entry.benchmark), str(len(entry.affected)), plain(entry.owner)
            )  # fmt: skip
        Console(markup=False, highlight=False).print(table)
    return EXIT_REGRESSED if any(entry.open for entry in found) else EXIT_DONE


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
                "ratio": math.exp(a.contrast.estimate),
                "low": math.exp(a.contrast.low),
                "high": math.exp(a.contrast.high),
            }
            for a in entry.affected
        ],
    }


def _triage(args: argparse.Namespace, store: Store) -> int:
    history = update.load(store)
    known = {entry.id: entry for entry in inbox.entries(history)}
    if args.id not in known:
        raise UsageError(
            f"there is no entry {args.id!r}; `tilegate history regressions` lists {', '.join(known) or 'none'}"
        )
    if not any((args.state, args.owner, args.note, args.expires)):
        raise UsageError("nothing to change: give --state, --owner, --note or --expires")
    if args.expires:
        try:
            datetime.date.fromisoformat(args.expires)
        except ValueError:
            raise UsageError(f"--expires {args.expires!r} is no date such as 2026-12-31") from None
    if args.state == "accepted" and not (args.expires or known[args.id].expires):
        raise UsageError("an acceptance needs a last day: --expires YYYY-MM-DD")
    event = Event(
        kind="event", what="triage", about=args.id, created=_now(), author=_author(), marks=list(known[args.id].marks)
    )
    for key in ("state", "owner", "note", "expires"):
        if getattr(args, key):
            event[key] = getattr(args, key)
    store.add(event)
    print(
        f"{args.id}: {', '.join(f'{key} {event[key]}' for key in ('state', 'owner', 'note', 'expires') if key in event)}"
    )
    return EXIT_DONE


def _import(args: argparse.Namespace, store: Store) -> int:
    records = [(path, list(importing.from_file(path))) for path in args.files]  # all are read before any is kept
    store.folder.mkdir(parents=True, exist_ok=True)
    for path, found in records:
        new = sum(store.add(record) for record in found)
        kinds = [record["kind"] for record in found]
        print(
            f"{path}: {kinds.count('comparison')} comparisons, {kinds.count('observation')} observations; {new} records are new"
        )
    return EXIT_DONE


def _alias(args: argparse.Namespace, store: Store) -> int:
    history = update.load(store)
    for name in (args.old, args.new):
        if name not in history.cases:
            raise UsageError(f"no case is called {name!r}; `tilegate history show` lists what there is")
    store.add(Event(kind="event", what="alias", about=args.old, to=args.new, created=_now(), author=_author()))
    print(f"{args.old} continues as {args.new}")
    return EXIT_DONE


def _pack(args: argparse.Namespace, store: Store) -> int:
    first = datetime.datetime.now(UTC).date().replace(day=1)
    month = args.until or (first - datetime.timedelta(days=1)).strftime("%Y-%m")
    try:
        datetime.date.fromisoformat(f"{month}-01")
    except ValueError:
        raise UsageError(f"--until {month!r} is no month such as 2026-10") from None
    before = store.bytes()
    packed = store.pack(month)
    print(f"{packed} records packed: {before:,} -> {store.bytes():,} bytes")
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


def _name_broken(history: History) -> None:
    for broken in history.broken[:5]:
        print(f"tilegate: skipped {broken.path}: {broken.reason}", file=sys.stderr)
    if len(history.broken) > 5:
        print(f"tilegate: and {len(history.broken) - 5} more", file=sys.stderr)


def _edges(case: Case) -> int:
    return sum(len(segment.edges) for segment in case.segments)


def _sha(history: History, place: int) -> str:
    return history.commits[place].sha[:12]


def _changed(contrast: Contrast, same: bool) -> str:
    return "0 %" if same else change(math.exp(contrast.estimate))


def _between(contrast: Contrast) -> str:
    return f"{change(math.exp(contrast.low))} … {change(math.exp(contrast.high))}"


def _author() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


def _now() -> str:
    return datetime.datetime.now(UTC).isoformat(timespec="seconds")
