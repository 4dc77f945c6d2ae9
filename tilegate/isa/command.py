"""`tilegate isa`: what the compiler made of every kernel, for chips that need not be here."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from tilegate import files
from tilegate.isa import table
from tilegate.isa.chips import CHIPS
from tilegate.isa.revision import EXIT_ENVIRONMENT, document, exit_code, survey_of
from tilegate.isa.toolchain import COMPILER_VARIABLE, ToolchainError
from tilegate.measuring import trees

DESCRIPTION = """\
Generate and compile every kernel that the suite's `kernels` module lists, and read registers, LDS, occupancy and
instruction counts from the result. Needs no GPU: ROCm's hipcc where it is installed, any clang that knows the chip
elsewhere.

examples:
  tilegate isa                                    all kernels of the files as they are, for the MI300X
  tilegate isa --arch gfx942,gfx90a,gfx950 -b d128
  tilegate isa --rev v1.0 --json
  tilegate isa diff --base main --head HEAD       what a change does to registers, LDS, occupancy, instructions
  tilegate isa page --arch gfx942,gfx90a,gfx950 --out docs/isa-tiles.md
                                                  write the page of the documentation; --check: is it current?
"""
_DIFF = """\
Compare the compiled kernels of two revisions, with the base's suite: registers, spills, LDS, occupancy, instructions. A
kernel is compared with the one that took its place for the same benchmark cases, whatever their ids.

examples:
  tilegate isa diff --base main --head WORKTREE              what I have in the editor
  tilegate isa diff --base main --head HEAD -b 'Decode|d64'  some kernels; only these and their counterparts are compiled
  tilegate isa diff --base v1.0 --head HEAD --arch gfx942,gfx90a --out diff
  tilegate isa diff --base main --head HEAD --json | jq '.pairs[].difference.verdict'
"""
_PAGE = """\
Write the numbers of every kernel as a page of the documentation, or check that the page is current.

examples:
  tilegate isa page --arch gfx942,gfx90a,gfx950 --out docs/isa-tiles.md    all of it: a chip that is not named is left out
  tilegate isa page --arch gfx942 --out docs/isa-tiles.md --check          exit 1 if it says something else of this chip
"""
EPILOG = "exit code: 0 pass, 1 regressed, 2 usage error, 3 broken, 4 nothing to look at, 5 no compiler for the chip"


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `tilegate isa` to the command line."""
    parser = subparsers.add_parser(
        "isa",
        help="check compiled kernels for chips that are not here",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_common(parser, default=None)
    parser.add_argument(
        "--rev", default=trees.WORKTREE, metavar="REV", help="the revision (default: the files as they are)"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="also write the JSON here")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    parser.set_defaults(run=run, isa_command="show")
    commands = parser.add_subparsers(dest="isa_command", metavar="", required=False)
    diff = commands.add_parser(
        "diff", help="compare the compiled kernels of two revisions", epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter, description=_DIFF,
    )  # fmt: skip
    diff.add_argument("--base", required=True, metavar="REV", help="what to compare with, or WORKTREE")
    diff.add_argument("--head", required=True, metavar="REV", help="what is judged, or WORKTREE")
    diff.add_argument("--out", type=Path, metavar="DIR", help="write isa.json and isa.md to this folder")
    diff.add_argument("--json", action="store_true", help="print JSON instead of the report")
    diff.add_argument(
        "--allow-head-waivers",
        action="store_true",
        help="let waivers count that the change itself adds to tilegate-waivers.toml; otherwise only the base's do",
    )
    page = commands.add_parser(
        "page", help="write the page of all tiles' numbers", epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter, description=_PAGE,
    )  # fmt: skip
    page.add_argument("--out", type=Path, required=True, metavar="FILE", help="the Markdown file")
    page.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 if what it says of these chips is out of date"
    )
    for command in (diff, page):
        _add_common(command, default=argparse.SUPPRESS)


def _add_common(parser: argparse.ArgumentParser, default: object) -> None:
    # SUPPRESS in the subcommands: an option given before the subcommand keeps its value.
    parser.add_argument(
        "--arch", default=default or "gfx942", metavar="LIST", help=f"chips, separated by commas: {', '.join(CHIPS)} (default: gfx942)"
    )  # fmt: skip
    parser.add_argument(
        "-b",
        "--bench",
        default=default,
        metavar="REGEX",
        help="only kernels in whose id or cases the expression is found (diff: and those that they are compared with)",
    )
    parser.add_argument(
        "--compiler",
        default=default,
        metavar="PATH",
        help=f"the compiler to use (default: ${COMPILER_VARIABLE}, hipcc, clang)",
    )
    parser.add_argument(
        "--repo", type=Path, default=default or Path(), metavar="DIR", help="the repository (default: this one)"
    )


def run(args: argparse.Namespace) -> int:
    """Carry out `tilegate isa` and its subcommands; return the exit code.

    Raises:
        UsageError: it cannot be done as asked.
        KeyboardInterrupt: interrupted; what was compiled is in the cache.
    """
    try:
        if args.isa_command == "diff":
            from tilegate.isa.compare import run_diff  # noqa: PLC0415

            return run_diff(args)
        if args.isa_command == "page":
            from tilegate.isa.page import run_page  # noqa: PLC0415

            return run_page(args)
        return _show(args)
    except ToolchainError as error:
        print(f"tilegate: {error}", file=sys.stderr)
        return EXIT_ENVIRONMENT


def _show(args: argparse.Namespace) -> int:
    found, revision = survey_of(args, args.rev)
    if args.out:
        files.write_json(args.out, document(found, revision))
    if args.json:
        print(json.dumps(document(found, revision), indent=1))
    elif any(found.kernels.values()):
        print(table.render(found))
    return exit_code(found)
