"""`tilegate repro`: a folder that shows a case's speed and error with torch and tilelang alone."""

from __future__ import annotations

import argparse
import hashlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilegate import files, invocation
from tilegate.evidence import repro
from tilegate.evidence.cases import Side, asked
from tilegate.files import UsageError
from tilegate.measuring import device_lock, trees
from tilegate.progress import Reporter
from tilegate.protocol import TARGETS
from tilegate.showing.markup import quoted

EXIT_DONE, EXIT_WRONG = 0, 3
_TIMEOUT = 3600.0  # seconds

_DESCRIPTION = """\
Write a folder that anybody with torch and tilelang can run: one script, the kernel's own source, inputs and a float64
reference, the environment, and a README with what was seen here. With --base both kernels take turns, and the ratio of their
times is shown with its interval.

examples:
  tilegate repro "latency_forward('prefill-7b-b4-s4096', 'adaptive')"      the files as they are
  tilegate repro 'b4 h28/4 s4096 d128 causal adaptive'               the same, by the shape that reports show
  tilegate repro 's4096.*adaptive' --base main --lengths 1024,4096,16384
  tilegate repro "('…-s16384', 'adaptive')" --against "('…-s16384', 'fixed')"    two cases of one revision
  tilegate repro 's4096.*adaptive' --no-run --out repro              write it, and run it elsewhere
"""
_EPILOG = "exit code: 0 done, 2 usage error, 3 a result is wrong"


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `tilegate repro` to the command line."""
    parser = subparsers.add_parser(
        "repro",
        help="write a folder that reproduces a case with torch and tilelang alone",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "case", metavar="CASE", help="the id of one case, a part of it, an expression, or a shape and a policy"
    )
    parser.add_argument("--rev", default=trees.WORKTREE, metavar="REV", help="the revision (default: WORKTREE)")
    parser.add_argument("--base", metavar="REV", help="the revision whose kernel takes turns with it")
    parser.add_argument(
        "--against", metavar="CASE", help="another case as the base, such as the same work under another tile policy"
    )
    parser.add_argument("--lengths", type=_lengths, default=[], metavar="LIST", help="default: up to the case's own")
    parser.add_argument("--rounds", type=int, default=20, metavar="N", help="launches of each kernel (default: 20)")
    parser.add_argument(
        "--target", choices=("auto", *TARGETS), default="auto", help="default: the GPU that torch finds"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="the folder (default: one in .tilegate)")
    parser.add_argument("--no-run", action="store_true", help="only write it")
    parser.add_argument("--repo", type=Path, default=Path(), metavar="DIR", help="the repository (default: this one)")


def run(args: argparse.Namespace) -> int:
    """Carry out `tilegate repro`; return the exit code. Raises UsageError."""
    if args.rounds < 1:
        raise UsageError(f"--rounds {args.rounds}: at least one launch is needed")
    reporter, target = Reporter(), invocation.target_named(args.target)
    repository = trees.open_repository(args.repo.resolve())
    wanted = {"head": (args.rev, args.case)}
    if args.base or args.against:
        wanted = {"base": (args.base or args.rev, args.against or args.case), **wanted}
    if args.out:
        _refuse(args.out)
    with (
        invocation.ending_on_signals(),
        tempfile.TemporaryDirectory(prefix="tilegate-repro-") as scratch,
        reporter.phase("repro", 2) as phase,
    ):
        phase.doing("asking the suite")
        sides = asked(repository, wanted, Path(scratch), target=target, lengths=args.lengths)
        case = sides["head"].case
        folder = args.out or invocation.default_folder(
            repository, f"repro-{sides['head'].revision.short}-{hashlib.sha256(case.encode()).hexdigest()[:8]}"
        )
        _refuse(folder)
        _clear(folder)
        revisions = {role: side.revision.short for role, side in sides.items()}
        labels = revisions
        if args.against:
            labels = {role: f"{sides[role].case} of {short}" for role, short in revisions.items()}
        repro.write(
            folder,
            case,
            _described(sides),
            target=target,
            revisions=revisions,
            labels=labels,
            rounds=args.rounds,
            command=_again(args, sides),
        )
        phase.done("written")
        status = EXIT_DONE
        if not args.no_run:
            phase.doing("running it")
            with device_lock.hold(target, wait=True, who=f"tilegate repro {args.case}", say=reporter.note):
                status = _run(folder)
        results = repro.load_results(folder)
        text = repro.readme(case, labels, files.load_json(folder / "environment.json"), results)
        files.write_text(folder / "README.md", text)
        phase.done("seen")
    reporter.note(f"reproduction: {folder / 'README.md'}")
    return status


def _again(args: argparse.Namespace, sides: Mapping[str, Side]) -> str:
    """Return the line that makes the folder again: whole ids, and commits where there are some."""
    head = sides["head"]
    words = ["tilegate", "repro", head.case, "--rev", head.revision.commit or args.rev]
    if args.base:
        words += ["--base", sides["base"].revision.commit or args.base]
    if args.against:
        words += ["--against", sides["base"].case]
    return " ".join([*map(quoted, words), "--lengths", ",".join(map(str, head.answer["lengths"]))])


def _run(folder: Path) -> int:
    command = [sys.executable, "-P", "repro.py", "--json", repro.RESULTS]
    try:
        done = subprocess.run(command, cwd=folder, timeout=_TIMEOUT, check=False, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        raise UsageError(
            f"repro.py took longer than {_TIMEOUT:.0f} s; --lengths asks for fewer, --no-run only writes"
        ) from None
    results = repro.load_results(folder)
    if results is None:
        raise UsageError(f"repro.py ended with status {done.returncode} and left no results; its output says why")
    shutil.rmtree(folder / "__pycache__", ignore_errors=True)
    return EXIT_WRONG if results["wrong"] else EXIT_DONE


def _described(sides: Mapping[str, Side]) -> dict[str, Mapping[str, Any]]:
    return {role: side.answer for role, side in sides.items()}


def _refuse(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is no folder; name another one with --out")
    if folder.exists() and any(folder.iterdir()) and not (folder / "repro.py").is_file():
        raise UsageError(f"{folder} holds something else; name another folder with --out")


def _clear(folder: Path) -> None:
    """Take away what an earlier call left: its results belong to other kernels, also if this call is interrupted."""
    for name in (repro.RESULTS, "README.md"):
        (folder / name).unlink(missing_ok=True)
    for role in ("base", "head"):
        shutil.rmtree(folder / role, ignore_errors=True)


def _lengths(text: str) -> list[int]:
    try:
        lengths = [int(part) for part in text.split(",")]
    except ValueError:
        lengths = []
    if not lengths or not all(0 < length <= 1 << 20 for length in lengths):
        raise argparse.ArgumentTypeError(f"{text!r} is no list of lengths such as 1024,4096")
    return lengths
