"""`tilegate bisect`: which commit made a case slower?"""

from __future__ import annotations

import argparse
import json
import math
import re
import time

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from tilegate import invocation
from tilegate.commands.history_common import add_place, store_folder
from tilegate.files import UsageError
from tilegate.history import branch, update
from tilegate.history.bisecting import CannotMeasureError, OutOfTimeError, Result, Search
from tilegate.history.network import Contrast
from tilegate.history.records import Commit
from tilegate.history.store import Store
from tilegate.history.view import Segment, concerns, version_of
from tilegate.progress import Reporter
from tilegate.protocol import TARGETS, TIERS
from tilegate.schemas.samples import Tier
from tilegate.showing.markup import change, plain

EXIT_FOUND, EXIT_NOT_FOUND = 0, 4
_MOST_COMMITS = 100_000

_DESCRIPTION = """\
Find the commit that changed a case. First both ends are measured against each other; if they do not differ there is nothing to look
for. Then the range is halved where the code changes. Commits with the same code are never measured, and an answer that is not sure
is never a step: the search measures again, or goes around that commit. If commits do not build, the answer may be a range.
Interrupt it whenever you like: the same command continues, and what it measured stays in the history.

examples:
  tilegate bisect --good v1.0 --bad main -b "latency_forward('s4096', 'adaptive')"
  tilegate bisect --good 1a2b3c4 --bad HEAD -b s4096.*adaptive --minutes 20 --json
"""
_EPILOG = "exit code: 0 a commit or a range was found, 2 usage error, 4 the ends do not differ, or time was too short"


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `tilegate bisect` to the command line."""
    parser = subparsers.add_parser(
        "bisect",
        help="which commit made a case slower?",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--good", required=True, metavar="REV", help="a commit before the change")
    parser.add_argument("--bad", required=True, metavar="REV", help="one after it; --good is on its first-parent line")
    parser.add_argument(
        "-b",
        "--bench",
        required=True,
        metavar="CASE",
        help="the case: its id, or an expression that only its id matches",
    )
    parser.add_argument(
        "--minutes", type=invocation.minutes, default=60.0, metavar="M", help="for all of it (default: 60)"
    )
    parser.add_argument(
        "--target", choices=("auto", *TARGETS), default="auto", help="default: the GPU that torch finds, else the CPU"
    )
    parser.add_argument("--tier", choices=TIERS, help="where the case is (default: smoke on the CPU, pr on a GPU)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_place(parser)


def run(args: argparse.Namespace) -> int:
    """Carry out `tilegate bisect`; return the exit code. Raises UsageError, KeyboardInterrupt."""
    invocation.pattern(args.bench)
    reporter = Reporter()
    until = time.monotonic() + 60 * args.minutes
    folder = args.repo.resolve()
    good, bad = (branch.hash_of(folder, rev) for rev in (args.good, args.bad))
    if good == bad:
        raise UsageError(f"--good {args.good} and --bad {args.bad} are the same commit")
    store = Store(store_folder(args))
    target = invocation.target_named(args.target)
    tier: Tier = args.tier or ("smoke" if target == "cpu" else "pr")
    where = update.Range(
        folder, f"{good}..{bad}", _MOST_COMMITS, "v*", target, tier, f"{args.bench}|{re.escape(args.bench)}", args.bench
    )
    try:
        with invocation.ending_on_signals():
            surveyor = update.Surveyor.of(store, where, reporter.note, boundary=good)
            commits = surveyor.commits
            if len(commits) < 2 or commits[1]["parents"][:1] != [good]:
                raise UsageError(
                    f"--good {args.good} is not on the first-parent line of --bad {args.bad}; "
                    f"`git log --first-parent {args.bad}` shows which commits are"
                )
            case, method = _case(surveyor, args.bench)
            result = _search(store, surveyor, case, method, until=until, reporter=reporter).run(0, len(commits) - 1)
    except KeyboardInterrupt:
        reporter.note(f"interrupted; what was measured is kept in {store.folder}\nto resume: {args.resume}")
        raise
    if args.json:
        print(json.dumps(_to_json(result, commits, case), indent=1))
    else:
        _show(result, commits, case)
        if result.state == "unfinished" and result.reason == "out of time":
            print(f"to continue: {args.resume}")
    return EXIT_FOUND if result.state in ("commit", "range") else EXIT_NOT_FOUND


def _case(surveyor: update.Surveyor, wanted: str) -> tuple[str, str]:
    """Return the one case that both ends have and that is meant, with its method version.

    Raises:
        UsageError: there is none, or several, or both ends measure it in different ways.
    """
    ends = [surveyor.versions(surveyor.commits[place]["sha"]) for place in (0, -1)]
    for commit, found in zip((surveyor.commits[0], surveyor.commits[-1]), ends, strict=True):
        if not found["cases"] and found["failed"]:
            raise UsageError(f"{commit['sha'][:12]} cannot be measured: {next(iter(found['failed'].values()))}")
    both = [case for case in ends[0]["cases"] if case in ends[1]["cases"]]
    named = [case for case in both if case == wanted] or [case for case in both if re.search(wanted, case)]
    named = named or [case for case in both if wanted in case]
    if len(named) != 1:
        some = "\n  ".join(plain(case) for case in (named or both)[:10])
        what = (
            f"{len(named)} cases match; name one" if named else "no case of both ends matches, for this target and tier"
        )
        raise UsageError(f"-b {wanted!r}: {what}" + (f":\n  {some}" if some else ""))
    before, after = (found["cases"][named[0]]["method"] for found in ends)
    if before != after:
        raise UsageError(
            f"{named[0]} is measured in another way at both ends (version {before} and {after} of the benchmark), so their times "
            "cannot be compared; choose ends with the same"
        )
    return named[0], before


def _search(
    store: Store, surveyor: update.Surveyor, case: str, method: str, *, until: float, reporter: Reporter
) -> Search:
    shas = [commit["sha"] for commit in surveyor.commits]

    def version(place: int) -> tuple[str | None, str]:
        if not surveyor.shared(shas[place]) and time.monotonic() > until:
            raise OutOfTimeError
        found = surveyor.versions(shas[place])
        entry = found["cases"].get(case)
        if entry is not None and entry["method"] == method:
            return version_of(entry["identity"], method), ""
        why = "it is measured in another way there" if entry is not None else "the case does not exist there"
        return None, next((reason for failed, reason in found["failed"].items() if concerns(failed, case)), why)

    def free(place: int) -> str | None:
        return version(place)[0] if surveyor.shared(shas[place]) else None

    def load() -> Segment | None:
        series = update.load(store).series(case, method)
        return series.segments[0] if series is not None and series.segments else None

    def compare(base: int, head: int) -> None:
        left = (until - time.monotonic()) / 60
        if left <= 0:
            raise OutOfTimeError
        pair = {version(base)[0], version(head)[0]}
        segment = load()
        edges = segment.edges if segment is not None else ()
        attempt = sum({edge.record["base"], edge.record["head"]} == pair for edge in edges)
        only = f"^{re.escape(case)}$"
        try:
            update.measure(
                store, shas[base], shas[head], surveyor.where, minutes=left, attempt=f"bisect-{attempt}", bench=only
            )
        except UsageError as error:
            raise CannotMeasureError(str(error)) from None

    contents = {place: surveyor.contents[sha] for place, sha in enumerate(shas)}
    return Search(
        names=[sha[:12] for sha in shas],
        load=load,
        version=version,
        free=free,
        contents=contents,
        compare=compare,
        say=reporter.note,
    )


def _to_json(result: Result, commits: tuple[Commit, ...], case: str) -> dict[str, object]:
    return {
        "case": case,
        "state": result.state,
        "reason": result.reason,
        "last_good": commits[result.good]["sha"],
        "first_bad": commits[result.bad]["sha"],
        "suspects": [commit["sha"] for commit in commits[result.good + 1 : result.bad + 1]]
        if result.state in ("commit", "range")
        else [],
        "change": _contrast_to_json(result.change),
        "whole": _contrast_to_json(result.whole),
        "commits": len(commits) - 1,
        "measured": result.measured,
        "answers": [
            {
                "commit": commits[answer.place]["sha"],
                "answer": answer.answer,
                "why": answer.why,
                "against_good": _contrast_to_json(answer.against_good),
            }
            for answer in result.answers
        ],
    }


def _contrast_to_json(contrast: Contrast | None) -> dict[str, float] | None:
    if contrast is None:
        return None
    return {"ratio": math.exp(contrast.estimate), "low": math.exp(contrast.low), "high": math.exp(contrast.high)}


def _show(result: Result, commits: tuple[Commit, ...], case: str) -> None:
    print(plain(case))
    table = Table("commit", "answer", "why", "against good", "95 %", "subject", box=SIMPLE_HEAD, pad_edge=False)
    for answer in sorted(result.answers, key=lambda answer: answer.place):
        commit, found = commits[answer.place], answer.against_good
        table.add_row(
            commit["sha"][:12], answer.answer, plain(answer.why), *_sizes(found), plain(commit["subject"], limit=60)
        )  # fmt: skip
    console = Console(markup=False, highlight=False)
    if result.answers:
        console.print(table)
    good, bad = commits[result.good], commits[result.bad]
    size, between = _sizes(result.change)
    if result.state == "commit":
        print(f"{bad['sha']} did it: {size} ({between}) after {result.measured} comparisons")
        print(f"  {plain(bad['author'])}, {bad['date'][:10]}: {plain(bad['subject'])}")
    elif result.state == "range":
        print(
            f"one of the {result.bad - result.good} commits {good['sha'][:12]}..{bad['sha'][:12]} did it: {size} ({between}) after "
            f"{result.measured} comparisons; nothing says which, since those before the last cannot be decided"
        )
    elif result.state == "same":
        whole, interval = _sizes(result.whole)
        known = f": {whole} ({interval})" if result.whole is not None else ""
        print(f"nothing to look for: {result.reason}{known}")
    else:
        print(f"not found: {result.reason}; what is known so far: {good['sha'][:12]}..{bad['sha'][:12]}")


def _sizes(contrast: Contrast | None) -> tuple[str, str]:
    if contrast is None:
        return "-", "-"
    return change(math.exp(contrast.estimate)), f"{change(math.exp(contrast.low))} … {change(math.exp(contrast.high))}"
