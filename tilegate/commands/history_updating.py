"""`tilegate history update`: code versions first, then the comparisons that tell most."""

from __future__ import annotations

import argparse
import datetime
import time
from collections.abc import Sequence
from datetime import UTC

from tilegate import invocation
from tilegate.commands.history_common import EXIT_DONE, author, name_broken, now, sha
from tilegate.files import UsageError
from tilegate.history import asv_results, inbox, update
from tilegate.history.bisecting import OutOfTimeError
from tilegate.history.store import Store
from tilegate.history.view import Case, History
from tilegate.progress import Reporter
from tilegate.schemas.samples import Tier


def update_(args: argparse.Namespace, store: Store) -> int:
    """Carry out `update`; return the exit code. Raises UsageError."""
    invocation.pattern(args.bench)
    reporter = Reporter()
    until = time.monotonic() + 60 * args.minutes
    target = invocation.target_named(args.target)
    tier: Tier = args.tier or ("smoke" if target == "cpu" else "pr")
    store.folder.mkdir(parents=True, exist_ok=True)
    where = update.Range(args.repo.resolve(), args.range, args.limit, args.tags, target, tier, args.bench)
    try:
        with invocation.ending_on_signals():
            surveyor = update.Surveyor.of(store, where, reporter.note)
            shas = [commit["sha"] for commit in update.survey_all(surveyor, until=until)]
            history = update.load(store)
            name_broken(history)
            wanted = update.plan(history, shas, args.bench)
            if args.plan or args.json:
                print(update.plan_to_json(history, wanted) if args.json else _plan_table(history, wanted))
                return EXIT_DONE
            failed: set[tuple[int, int]] = set()
            while (left := (until - time.monotonic()) / 60) > 0:
                todo = [one for one in update.plan(history, shas, args.bench) if (one.base, one.head) not in failed]
                if not todo:
                    break
                one = todo[0]
                failed.add((one.base, one.head))  # asked for once a run, whatever comes of it
                reporter.note(
                    f"{sha(history, one.base)} against {sha(history, one.head)}: {one.reason}, {len(one.cases)} cases"
                )
                try:
                    base, head = history.commits[one.base].sha, history.commits[one.head].sha
                    again = update.attempt(history, one)
                    got = update.measure(store, base, head, where, minutes=left, attempt=again)
                    reporter.note(f"  {got} comparisons")
                except OutOfTimeError:
                    reporter.note("  out of time before anything was measured")
                except UsageError as error:
                    reporter.note(f"  could not be measured: {error}")
                history = update.load(store)
            if args.isa:
                update.compile_missing(store, surveyor, args.isa, until=until)
                history = update.load(store)
    except KeyboardInterrupt:
        reporter.note(f"interrupted; what was found is kept in {store.folder}\nto resume: {args.resume}")
        raise
    folder = None if args.no_asv else asv_results.results_folder(where.folder)
    if folder is not None and (written := asv_results.write(history, folder)):
        reporter.note(f"{written} result files of asv in {folder}")
    found = inbox.entries(history, datetime.datetime.now(UTC).date())
    for event in inbox.unfiled(history, found, author(), now()):
        store.add(event)
    still = update.plan(history, shas, args.bench)
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
        lines.append(f"  {sha(history, one.base)} -> {sha(history, one.head)}  {len(one.cases):>4} cases  {one.reason}")
    return "\n".join(lines)


def _edges(case: Case) -> int:
    return sum(len(segment.edges) for segment in case.segments)
