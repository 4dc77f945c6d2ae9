"""`tilegate history`: when did it get slower, by how much, which commit, and is it still so?"""

from __future__ import annotations

import argparse
from pathlib import Path

from tilegate import invocation
from tilegate.commands import history_editing, history_reading, history_updating
from tilegate.commands.history_common import add_place, store_folder
from tilegate.history import exporting
from tilegate.history.records import STATES
from tilegate.history.store import Store
from tilegate.protocol import TARGETS, TIERS

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
  tilegate history export history.parquet
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
        add_place(made)
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
    updating.add_argument(
        "-b",
        "--bench",
        metavar="REGEX",
        help="only the cases whose id the expression is found in (default: all kernels)",
    )
    updating.add_argument(
        "--isa",
        metavar="LIST",
        help="also compile the kernels of these chips, and keep registers, LDS and occupancy: gfx942, say; needs no device",
    )
    updating.add_argument(
        "--no-asv", action="store_true", help="write no result files of asv (default: where there is an asv.conf.json)"
    )
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
    exporting_ = command("export", "Write a history as a table for other tools.")
    exporting_.add_argument(
        "out", type=Path, metavar="FILE", help="its ending decides the format: .csv, .json, .parquet"
    )
    exporting_.add_argument(
        "--table",
        choices=exporting.TABLES,
        default="levels",
        help="levels of every commit and case (default), comparisons, observations of independent runs, or runs: the machine's health",
    )
    exporting_.add_argument(
        "--format",
        choices=(*exporting.FORMATS, "asv"),
        help="whatever the ending says; asv: FILE is its folder of results",
    )
    triaging = command("triage", "Say what becomes of an entry of the inbox.")
    triaging.add_argument("id", metavar="ID", help="of an entry that `regressions` lists")
    triaging.add_argument("--state", choices=STATES, help="its state from now on")
    triaging.add_argument("--owner", metavar="NAME", help="who looks after it")
    triaging.add_argument("--note", metavar="TEXT", help="what the next reader should know")
    triaging.add_argument("--expires", metavar="DATE", help="the last day of an acceptance, YYYY-MM-DD")
    importing_ = command("import", "Take over samples of gates, results of asv, JSON of pytest-benchmark.")
    importing_.add_argument("files", nargs="+", type=Path, metavar="FILE")
    importing_.add_argument("--skip-missing", action="store_true", help="leave out files that are not there")
    alias = command("alias", "Let a renamed case go on under its new name.")
    alias.add_argument("old", metavar="OLD", help="the old id")
    alias.add_argument("new", metavar="NEW", help="the new one")
    packing = command("pack", "Pack the records of past months; nothing is lost.")
    packing.add_argument(
        "--all", action="store_true", help="pack all records there are, before a branch with them is committed"
    )
    packing.add_argument(
        "--until", metavar="MONTH", help="YYYY-MM, the last month to pack (default: the month before this one)"
    )


def run(args: argparse.Namespace) -> int:
    """Carry out `tilegate history`; return the exit code. Raises UsageError, KeyboardInterrupt."""
    store = Store(store_folder(args))
    return {
        "update": history_updating.update_,
        "show": history_reading.show,
        "compare": history_reading.compare,
        "regressions": history_reading.regressions,
        "export": history_reading.export,
        "triage": history_editing.triage,
        "import": history_editing.import_,
        "alias": history_editing.alias,
        "pack": history_editing.pack,
    }[args.history_command](args, store)
