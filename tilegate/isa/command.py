"""`tilegate isa`: what the compiler made of every kernel, for chips that need not be here."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tilegate import __version__, files, invocation, trees
from tilegate.config import load_config
from tilegate.files import UsageError
from tilegate.isa import table
from tilegate.isa.chips import CHIPS, chip_of
from tilegate.isa.lowering import Lowering
from tilegate.isa.parallel import with_progress
from tilegate.isa.store import Store, default_store
from tilegate.isa.survey import SCHEMA, Choice, Survey, matching, survey
from tilegate.isa.toolchain import COMPILER_VARIABLE, Toolchain, ToolchainError, find_toolchain
from tilegate.session import stage

EXIT_PASS, EXIT_REGRESSED, EXIT_BROKEN, EXIT_NOTHING, EXIT_ENVIRONMENT = 0, 1, 3, 4, 5

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


def exit_code(found: Survey) -> int:
    """Return the exit code of one survey: nothing to look at never passes."""
    kernels = [kernel for kernels in found.kernels.values() for kernel in kernels]
    if not kernels:
        print("tilegate: no kernel matches; nothing was looked at (without -b all are)", file=sys.stderr)
        return EXIT_NOTHING
    return EXIT_BROKEN if any(kernel.analysis.broken for kernel in kernels) else EXIT_PASS


def document(found: Survey, revision: trees.Revision) -> dict[str, Any]:
    """Return the JSON document of one survey."""
    return {
        "schema": SCHEMA,
        "tilegate": __version__,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "revision": {"rev": revision.rev, "commit": revision.commit, "tree": revision.tree},
        **found.to_json(),
    }


def survey_of(args: argparse.Namespace, rev: str) -> tuple[Survey, trees.Revision]:
    """Survey one revision with its own suite. Raises as `run`."""
    toolchains = toolchains_of(args)
    with tempfile.TemporaryDirectory(prefix="tilegate-isa-") as scratch:
        repository = trees.open_repository(args.repo.resolve())
        revision = trees.resolve(repository, rev, Path(scratch, "objects"))
        with lowering_of(repository, revision, revision, Path(scratch, "side"), default_store()) as lowering:
            return run_survey(lowering, toolchains, matching(args.bench), "isa"), revision


def toolchains_of(args: argparse.Namespace) -> tuple[Toolchain, ...]:
    """Return a compiler for every chip asked for. Raises ToolchainError, UsageError."""
    invocation.pattern(args.bench)
    archs = dict.fromkeys(part.strip() for part in args.arch.split(",") if part.strip())
    for arch in archs:
        chip_of(arch)
    return tuple(find_toolchain(arch, args.compiler) for arch in archs)


@contextlib.contextmanager
def lowering_of(
    repository: trees.Repository, revision: trees.Revision, suite: trees.Revision, folder: Path, store: Store
) -> Iterator[Lowering]:
    """Stage a revision's package with the suite of another (the base's, in a comparison).

    Raises:
        UsageError: there is no such suite, or the settings do not name one.
    """
    try:
        config = load_config(trees.read_file(repository, suite, "pyproject.toml"))
    except UsageError as error:
        raise UsageError(f"{suite.rev}: {error}") from None
    package, suite_path = config.package.partition(".")[0], config.suite.replace(".", "/")
    needed = [package, f"src/{package}", suite_path]
    cache = trees.cache_folder()
    suite_root = trees.export(repository, suite, needed, cache) / suite_path
    if not suite_root.is_dir():
        raise UsageError(f"{suite.rev} has no suite {config.suite!r}, which [tool.tilegate] names")
    exported = trees.export(repository, revision, needed, cache)
    folder.mkdir(parents=True)
    staged = stage(folder / "stage", config, exported=exported, suite_root=suite_root, target="hip", tier="full")
    with Lowering(staged, folder, store) as lowering:
        yield lowering


def run_survey(lowering: Lowering, toolchains: Sequence[Toolchain], choice: Choice, name: str) -> Survey:
    """Survey with progress on stderr.

    Raises:
        UsageError: the suite cannot list its kernels.
    """
    store = default_store()
    store.prune()
    return with_progress(
        name, "generate and compile", lambda say: survey(lowering, toolchains, store, choice=choice, say=say)
    )
