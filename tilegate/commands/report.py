"""`tilegate report`: the Markdown that a maintainer asks for, from results that are there."""

from __future__ import annotations

import argparse
import dataclasses
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tilegate import files
from tilegate.evidence import figures, upstream
from tilegate.evidence.upstream import Material
from tilegate.files import UsageError
from tilegate.judging.judge import judge
from tilegate.progress import Reporter
from tilegate.schemas.verdict import Verdict

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
    parser.add_argument(
        "--gate",
        type=Path,
        metavar="DIR",
        help="a folder of `tilegate gate`: verdict.json, else samples.json is judged",
    )
    parser.add_argument(
        "--profile",
        type=Path,
        nargs="+",
        default=[],
        metavar="DIR",
        help="a folder of `tilegate profile`; of two that were profiled apart, the first is the base",
    )
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
    commits, log, behind = _log(args.repo, args.base, args.head) if args.base else (None, (), False)
    material = Material(
        _repro(args.repro),
        None if args.gate is None else _verdict(args.gate),
        _profile(args.profile),
        tuple(_needed(folder, "isa.json", "pairs") for folder in args.isa),
        log,
        behind,
        commits,
    )
    try:
        differs = upstream.disagreement(material)
        if differs is not None:
            raise UsageError(f"these results do not belong together: {differs}")
        title = args.title or _title(args.kind, material)
        text = upstream.render(args.kind, title, material)
        files.write_text(args.out / "report.md", text)  # before the figures: it says whether the folder can be written
        if drawn := _figures(args.out, material, reporter):
            text = upstream.render(args.kind, title, dataclasses.replace(material, figures=drawn))
            files.write_text(args.out / "report.md", text)
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise UsageError(
            f"one of these results is not whole, or of another version ({type(error).__name__}: {error}); make it again"
        ) from error
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
    for document in (material.verdict, material.profile):
        if document and "roofline" not in drawn and (made := figures.roofline(document, out / "roofline")):
            drawn["roofline"] = made[0].name
    return drawn


def _repro(folder: Path | None) -> dict[str, Any] | None:
    if folder is None:
        return None
    results = folder / "results.json"
    return {
        "settings": _needed(folder, "settings.json", "case", "lengths", "revisions", "sides"),
        "environment": _needed(folder, "environment.json", "device", "versions"),
        "results": _needed(folder, "results.json", "rows", "wrong") if results.is_file() else None,
    }


def _verdict(folder: Path) -> Verdict:
    samples = folder / "samples.json"
    if folder.is_dir() and samples.is_file() and not (folder / "verdict.json").is_file():
        return judge(files.load_samples(samples))
    return files.load_verdict(_path(folder, "verdict.json"))


def _profile(folders: Sequence[Path]) -> Mapping[str, Any] | None:
    if len(folders) > 2:
        raise UsageError("--profile takes one folder, or two: the base's and the head's")
    found = [_needed(folder, "profile.json") for folder in folders]
    for folder, document in zip(folders, found, strict=True):
        try:
            files.check(document, "profile-1.json")
        except UsageError as error:
            raise UsageError(f"{folder}: {error}") from None
    if len(found) < 2:
        return found[0] if found else None
    base, head = found
    devices = [each["environment"]["device"]["name"] for each in found]
    if devices[0] != devices[1] or base["target"] != head["target"]:
        raise UsageError(f"the profiles were made on different devices: {devices[0]} and {devices[1]}")
    return {**head, "base": {**base["head"], "case": base["case"]}, "head": {**head["head"], "case": head["case"]}}


def _path(folder: Path, name: str) -> Path:
    path = folder if folder.is_file() else folder / name
    if not path.is_file():
        raise UsageError(f"{folder} has no {name}; is it the folder that the command wrote?")
    return path


def _needed(folder: Path, name: str, *keys: str) -> Mapping[str, Any]:
    path = _path(folder, name)
    document = files.load_json(path)
    lacking = [key for key in keys if not isinstance(document, dict) or key not in document]
    if lacking or not isinstance(document, dict):
        raise UsageError(f"{path} is not what tilegate wrote: it has no {', '.join(map(repr, lacking))}")
    return document


def _log(repo: Path, base: str, head: str) -> tuple[dict[str, str], tuple[str, ...], bool]:
    """Return the two commits, the subjects between them, and whether the head is the one that lacks them."""
    commits = {
        role: _git(repo, "rev-parse", "--verify", "--end-of-options", f"{rev}^{{commit}}")[0]
        for role, rev in (("base", base), ("head", head))
    }
    listed = ("log", "--first-parent", f"-{_LONGEST_LOG}", "--abbrev=9", "--format=%h %s")
    log = _git(repo, *listed, f"{commits['base']}..{commits['head']}", "--")
    if log:
        return commits, log, False
    return commits, _git(repo, *listed, f"{commits['head']}..{commits['base']}", "--"), True


def _git(repo: Path, *arguments: str) -> tuple[str, ...]:
    try:
        done = subprocess.run(
            ["git", "-C", str(repo), *arguments], capture_output=True, text=True, errors="replace", check=False
        )
    except OSError as error:
        raise UsageError(f"git cannot be run: {error.strerror or error}") from None
    if done.returncode != 0:
        raise UsageError(f"git in {repo} does not know {arguments[-1]!r}: {done.stderr.strip()[:200]}")
    return tuple(done.stdout.splitlines())


def _title(kind: str, material: Material) -> str:
    if material.repro is not None:
        case = material.repro["settings"]["case"]
    elif material.profile is not None:
        case = material.profile["case"]
    else:
        case = "all cases"
    return {"issue": f"Slow: {case}", "pr": f"Speed of {case}", "release": "Performance since the last release"}[kind]
