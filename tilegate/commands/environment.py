"""`tilegate environment`: this machine as an issue needs it; `tilegate environment diff`: two of them beside each other."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from tilegate import files, invocation
from tilegate.evidence import environment
from tilegate.files import UsageError
from tilegate.protocol import JSON, TARGETS
from tilegate.showing.markup import code, plain

EXIT_EQUAL, EXIT_DIFFERENT = 0, 1

_DESCRIPTION = """\
Show what a measurement on this machine depends on: GPU, driver, compiler, torch, TileLang, clocks, power cap, container.
Host, user, paths, serial numbers and addresses are left out, so that it can go into a public issue.

examples:
  tilegate environment                         a table
  tilegate environment --markdown              a table for an issue
  tilegate environment --out environment.json  for a machine, and for `diff`
  tilegate environment diff old.json           what has changed here since
  tilegate environment diff a.json b.json      what differs between two machines; samples.json and verdict.json will do
"""
_EPILOG = "exit code: 0; diff: 0 nothing differs, 1 something does; 2 usage error"


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `tilegate environment` to the command line."""
    parser = subparsers.add_parser(
        "environment",
        help="show this machine as an issue needs it, nothing private",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        usage="tilegate environment [options]\n       tilegate environment diff A [B] [options]",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("words", nargs="*", metavar="diff A [B]", help="compare two files, or one with this machine")
    parser.add_argument(
        "--target", choices=("auto", *TARGETS), default="auto", help="default: the GPU that torch finds, else the CPU"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--markdown", action="store_true", help="print a Markdown table")
    parser.add_argument("--out", type=Path, metavar="FILE", help="also write the JSON here")


def run(args: argparse.Namespace) -> int:
    """Carry out `tilegate environment`; return the exit code. Raises UsageError."""
    if args.words and args.words[0] != "diff":
        raise UsageError(f"{args.words[0]!r} is no subcommand; `tilegate environment diff A [B]` compares")
    if args.words:
        return _diff(args)
    document = environment.collect(invocation.target_named(args.target))
    if args.out:
        files.write_json(args.out, document)
    if args.json:
        print(json.dumps(document, indent=1))
    else:
        rows = [(place, _text(value)) for place, value in environment.leaves(document) if place != "schema"]
        _print(("what", "value"), rows, markdown=args.markdown)
    return EXIT_EQUAL


def _diff(args: argparse.Namespace) -> int:
    paths = [Path(word) for word in args.words[1:]]
    if len(paths) not in (1, 2):
        raise UsageError("diff takes one or two files: tilegate environment diff A.json [B.json]")
    documents = [_load(path) for path in paths]
    if len(documents) == 1:
        documents.append(environment.collect(invocation.target_named(args.target)))
    found = environment.differences(documents[0], documents[1])
    if args.json:
        print(
            json.dumps([{"what": place, "before": before, "after": after} for place, before, after in found], indent=1)
        )
    elif not found:
        print("nothing differs")
    else:
        names = [path.name for path in paths] + (["here"] if len(paths) == 1 else [])
        if names[0] == names[1]:
            names = [str(path) for path in paths]
        rows = [(place, _text(before), _text(after)) for place, before, after in found]
        _print(("what", *names), rows, markdown=args.markdown)
    return EXIT_DIFFERENT if found else EXIT_EQUAL


def _load(path: Path) -> Mapping[str, JSON]:
    document = files.load_json(path)
    if isinstance(document, dict) and isinstance(document.get("environment"), dict):
        document = document["environment"]  # of samples or a verdict
    if not isinstance(document, dict) or not isinstance(document.get("device"), dict):
        raise UsageError(f"{path} holds no environment; `tilegate environment --out FILE` writes one")
    return document


def _text(value: JSON) -> str:
    return "-" if value is None else value if isinstance(value, str) else json.dumps(value)


def _print(columns: tuple[str, ...], rows: Sequence[tuple[str, ...]], *, markdown: bool) -> None:
    if markdown:
        print("| " + " | ".join(map(plain, columns)) + " |\n|" + "---|" * len(columns))
        for row in rows:
            print("| " + " | ".join((plain(row[0]), *map(code, row[1:]))) + " |")
        return
    table = Table(*map(plain, columns), box=SIMPLE_HEAD)
    for row in rows:
        table.add_row(*map(plain, row))
    Console(markup=False, highlight=False).print(table)
