"""`tilegate report`: the Markdown that a maintainer asks for, from results that are there."""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilegate import files
from tilegate.evidence import figures, upstream
from tilegate.evidence.upstream import Material
from tilegate.files import UsageError
from tilegate.progress import Reporter

_LONGEST_LOG = 500  # commits

_DESCRIPTION = """\
Write the report that gets a slow kernel mended or a change merged: problem, cause, change, a table over lengths with
intervals, other architectures, correctness, environment, how to reproduce. Everything comes from stored results; what is not
there is named as missing, with the command that makes it.

examples:
  tilegate report issue --repro .tilegate/repro-… --profile .tilegate/profile-…   what is slow, and where the time goes
  tilegate report pr --repro repro --gate .tilegate/RUN --isa diff --base main --head HEAD
  tilegate report release --gate .tilegate/RUN --base v1.0 --head v1.1
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `tilegate report` to the command line."""
    parser = subparsers.add_parser(
        "report",
        help="write the report that an upstream project asks for",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "kind", choices=upstream.KINDS, help="a change, what is slow, or all cases between two versions"
    )
    parser.add_argument("--title", help="the first line (default: from the case)")
    parser.add_argument("--repro", type=Path, metavar="DIR", help="a folder of `tilegate repro`")
    parser.add_argument("--gate", type=Path, metavar="DIR", help="a folder of `tilegate gate`, with verdict.json")
    parser.add_argument("--profile", type=Path, metavar="DIR", help="a folder of `tilegate profile`")
    parser.add_argument(
        "--isa", type=Path, metavar="DIR", nargs="*", default=[], help="folders of `tilegate isa diff --out`"
    )
    parser.add_argument("--base", metavar="REV", help="with --head: the commits between them are listed")
    parser.add_argument("--head", metavar="REV")
    parser.add_argument(
        "--out", type=Path, default=Path("report"), metavar="DIR", help="report.md and figures (default: report)"
    )
    parser.add_argument("--repo", type=Path, default=Path(), metavar="DIR", help="the repository (default: this one)")


def run(args: argparse.Namespace) -> int:
    """Carry out `tilegate report`; return the exit code. Raises UsageError."""
    reporter = Reporter()
    if not any((args.repro, args.gate, args.profile, args.isa)):
        raise UsageError("nothing to report: name results with --repro, --gate, --profile or --isa")
    if bool(args.base) != bool(args.head):
        raise UsageError("--base and --head go together")
    material = Material(
        _repro(args.repro),
        None if args.gate is None else files.load_verdict(_path(args.gate, "verdict.json")),
        _document(args.profile, "profile.json"),
        tuple(_needed(folder, "isa.json") for folder in args.isa),
        _log(args.repo, args.base, args.head) if args.base else (),
    )
    differs = upstream.disagreement(material)
    if differs is not None:
        raise UsageError(f"these results do not belong together: {differs}")
    args.out.mkdir(parents=True, exist_ok=True)
    drawn = _figures(args.out, material, reporter)
    material = Material(material.repro, material.verdict, material.profile, material.isa, material.log, drawn)
    files.write_text(
        args.out / "report.md", upstream.render(args.kind, args.title or _title(args.kind, material), material)
    )
    reporter.note(f"report: {args.out / 'report.md'}")
    return 0


def _figures(out: Path, material: Material, reporter: Reporter) -> dict[str, str]:
    if not figures.available():
        reporter.note(f"no figures: matplotlib is not installed; {figures.INSTALL}")
        return {}
    drawn = {}
    if material.repro and material.repro["results"]:
        (file, _) = figures.lengths(material.repro["results"], out / "lengths")
        drawn["latency and throughput over length"] = file.name
    if material.verdict and (made := figures.roofline(material.verdict, out / "roofline")):
        drawn["roofline"] = made[0].name
    return drawn


def _repro(folder: Path | None) -> dict[str, Any] | None:
    if folder is None:
        return None
    results = folder / "results.json"
    return {
        "settings": _needed(folder, "settings.json"),
        "environment": _needed(folder, "environment.json"),
        "results": files.load_json(results) if results.is_file() else None,
    }


def _document(folder: Path | None, name: str) -> Mapping[str, Any] | None:
    return None if folder is None else _needed(folder, name)


def _path(folder: Path, name: str) -> Path:
    path = folder if folder.is_file() else folder / name
    if not path.is_file():
        raise UsageError(f"{folder} has no {name}; is it the folder that the command wrote?")
    return path


def _needed(folder: Path, name: str) -> Mapping[str, Any]:
    path = _path(folder, name)
    document = files.load_json(path)
    if not isinstance(document, dict):
        raise UsageError(f"{path} is not what tilegate wrote")
    return document


def _log(repo: Path, base: str, head: str) -> tuple[str, ...]:
    command = [
        "git",
        "-C",
        str(repo),
        "log",
        "--first-parent",
        f"-{_LONGEST_LOG}",
        "--format=%h %s",
        f"{base}..{head}",
        "--",
    ]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        raise UsageError(f"git knows no {base}..{head}: {done.stderr.strip()[:200]}")
    return tuple(done.stdout.splitlines())


def _title(kind: str, material: Material) -> str:
    if material.repro is not None:
        case = material.repro["settings"]["case"]
    elif material.profile is not None:
        case = material.profile["case"]
    else:
        case = "all cases"
    return {"issue": f"Slow: {case}", "pr": f"Speed of {case}", "release": "Performance since the last release"}[kind]
