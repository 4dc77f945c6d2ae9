"""`tilegate emulate`: are the kernels right on chips that are not here, and what would they execute there?"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
from pathlib import Path
from urllib.parse import quote

from tilegate import emulator, files, invocation
from tilegate.emulate import table
from tilegate.emulate.revision import EXIT_ENVIRONMENT, Kernels, depth, header, identity, run_survey, verdict_of
from tilegate.emulate.survey import SCHEMA
from tilegate.files import UsageError
from tilegate.isa.survey import refuse_unmatched
from tilegate.lowering.lowering import Lowering, LoweringError
from tilegate.lowering.revision import lowering_of
from tilegate.lowering.store import default_store
from tilegate.measuring import trees
from tilegate.protocol.selection import EMULATED

_DESCRIPTION = """\
Execute the HIP code of every kernel that the suite lists, lane by lane on this machine's processor, on small problems of
odd lengths: results are compared with the suite's reference under several orders of execution, and races, accesses out of
bounds, uninitialised LDS, divergent barriers and the like are named with the line of the generated source. Needs no GPU,
but clang. Says nothing about time: counters are counts, and what is a model is called one (docs/emulator.md).

examples:
  tilegate emulate                               every kernel of the files as they are, for the MI300X
  tilegate emulate d128 --problems first         only kernels and cases in whose name "d128" is found, in a hurry
  tilegate emulate --arch gfx942,gfx90a --json
  tilegate emulate d128 --sources hip            and the generated source that the lines are of, into the folder hip
  tilegate emulate 128x64 --counters             matrix instructions, LDS cycles, coalescing: by kernel and by line
  tilegate emulate diff --base main --head HEAD  what a change does to results and counters
"""
_EPILOG = (
    "exit code: 0 pass, 2 usage error, 3 broken (a wrong result, a race, …), 4 inconclusive (nothing was executed, or the "
    "emulator does not know something that a kernel uses), 5 no clang here"
)


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `tilegate emulate` to the command line."""
    parser = subparsers.add_parser(
        "emulate",
        help="execute kernels for chips that are not here, and check what they compute",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        usage="tilegate emulate [REGEX] [options]\n       tilegate emulate diff [REGEX] --base REV --head REV [options]",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "words", nargs="*", metavar="REGEX", help="only kernels in whose id or cases the expression is found"
    )
    parser.add_argument("-b", "--bench", metavar="REGEX", help="the same, anywhere on the line")
    parser.add_argument(
        "--arch", default="gfx942", metavar="LIST", help=f"chips, separated by commas: {', '.join(EMULATED)} (default: gfx942)"
    )  # fmt: skip
    parser.add_argument("--rev", metavar="REV", help="the revision (default: WORKTREE, the files as they are)")
    parser.add_argument(
        "--base", metavar="REV", help="diff: what to compare with, or WORKTREE; its suite is used for both"
    )
    parser.add_argument("--head", metavar="REV", help="diff: what is judged, or WORKTREE")
    parser.add_argument(
        "--schedules",
        choices=("all", "first"),
        default="all",
        help="every order of execution and every model of rounding (default), or one run of each problem",
    )
    parser.add_argument(
        "--problems",
        choices=("all", "first"),
        default="all",
        help="all small problems that the suite has (default), or the first of each kernel",
    )
    parser.add_argument("--counters", action="store_true", help="show counters of every kernel and of every line")
    parser.add_argument(
        "--sources",
        type=Path,
        metavar="DIR",
        help="write the generated source of every kernel here, which the lines are of",
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="also write the JSON here")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    parser.add_argument("--repo", type=Path, default=Path(), metavar="DIR", help="the repository (default: this one)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Carry out `tilegate emulate` and `tilegate emulate diff`; return the exit code.

    Raises:
        UsageError: it cannot be done as asked.
        KeyboardInterrupt: interrupted; what was executed is in the cache.
    """
    diff = args.words[:1] == ["diff"]
    words = args.words[diff:] + ([] if args.bench is None else [args.bench])
    if len(words) > 1:
        raise UsageError(f"one expression at a time, not {' and '.join(map(repr, words))}; 'one|other' finds both")
    pattern = words[0] if words else None
    invocation.pattern(pattern)
    try:
        emulator.prepare(emulator.toolchain())
        archs = _archs(args.arch)
        return _diff(args, archs, pattern) if diff else _show(args, archs, pattern)
    except emulator.ToolchainMissing as error:
        print(f"tilegate: {error}", file=sys.stderr)
        return EXIT_ENVIRONMENT


def _archs(text: str) -> tuple[str, ...]:
    archs = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    unknown = [arch for arch in archs if arch not in EMULATED]
    if unknown or not archs:
        raise UsageError(f"--arch {text!r}: the emulator has {', '.join(EMULATED)}")
    return archs


def _show(args: argparse.Namespace, archs: tuple[str, ...], pattern: str | None) -> int:
    if args.base or args.head:
        raise UsageError("--base and --head belong to `tilegate emulate diff`; one revision is named with --rev")
    store = default_store()
    with tempfile.TemporaryDirectory(prefix="tilegate-emulate-") as scratch:
        repository = trees.open_repository(args.repo.resolve())
        revision = trees.resolve(repository, args.rev or trees.WORKTREE, Path(scratch, "objects"))
        with lowering_of(repository, revision, revision, Path(scratch, "side"), store) as lowering:
            refuse_unmatched(pattern, archs, [lowering])
            kernels = run_survey(lowering, archs, store, pattern, "emulate", **depth(args))
            if args.sources:
                _write_sources(args.sources, lowering, kernels)
    verdict, code = verdict_of([kernel.verdict for found in kernels.values() for kernel in found])
    document = {
        **header(SCHEMA),
        "revision": identity(revision),
        "verdict": verdict,
        "exit_code": code,
        "schedules": args.schedules,
        "problems": args.problems,
        "toolchain": emulator.toolchain().version,
        "kernels": {
            arch: {kernel.id: kernel.to_json(counters=args.counters) for kernel in found}
            for arch, found in kernels.items()
        },
    }
    if args.out:
        files.write_json(args.out, document)
    print(json.dumps(document, indent=1) if args.json else table.render(kernels, verdict, counters=args.counters))
    return code


def _write_sources(folder: Path, lowering: Lowering, kernels: Kernels) -> None:
    """Write FOLDER/ARCH/ID NAME.hip for each generated kernel; what cannot be generated has no file."""
    for arch, found in kernels.items():
        for kernel in found:
            with contextlib.suppress(LoweringError):  # the table says why
                for artifact in lowering.lower(kernel.id, arch):
                    name = quote(f"{kernel.id} {artifact.name}", safe=" =,+()")
                    files.write_text(folder / arch / f"{name}.hip", artifact.source)


def _diff(args: argparse.Namespace, archs: tuple[str, ...], pattern: str | None) -> int:
    from tilegate.emulate import compare  # noqa: PLC0415

    if args.sources:
        raise UsageError("--sources is for one revision: tilegate emulate --rev REV --sources DIR")
    if not args.base or not args.head or args.rev:
        raise UsageError("diff compares two revisions: tilegate emulate diff --base main --head HEAD")
    return compare.run_diff(args, archs, pattern)
