"""`tilegate judge`: the verdict, computed again from raw samples alone."""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from pathlib import Path
from typing import Any

from tilegate import files
from tilegate.config import load_config
from tilegate.judging import judge as judging
from tilegate.judging import noise_file, waivers
from tilegate.showing import report, terminal

_DESCRIPTION = """\
Recompute the verdict from raw samples alone, believing no conclusion that came with them. Needs no device.

examples:
  tilegate judge .tilegate/RUN/samples.json
  tilegate judge samples.json --out again          verdict.json and report.md, into the folder again
  tilegate judge samples.json --config pyproject.toml --waivers tilegate-waivers.toml    by your rules, not the samples'
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `tilegate judge` to the command line."""
    parser = subparsers.add_parser(
        "judge",
        help="recompute the verdict from a samples file",
        description=_DESCRIPTION,
        epilog="exit code: 0 pass, 1 regressed, 2 usage error, 3 broken, 4 inconclusive, 5 environment invalid",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("samples", type=Path, metavar="SAMPLES", help="samples.json, as `tilegate gate` wrote it")
    parser.add_argument(
        "--config",
        type=Path,
        metavar="PYPROJECT",
        help="thresholds from this pyproject.toml instead of the samples'; waivers and noise profile then count only if "
        "they are given, too",
    )
    parser.add_argument(
        "--waivers",
        type=Path,
        metavar="FILE",
        help="the base's waivers from this tilegate-waivers.toml instead of the samples', as of today; "
        "an empty file: none",
    )
    parser.add_argument(
        "--head-waivers", type=Path, metavar="FILE", help="with --waivers: the head's file, if it is another one"
    )
    parser.add_argument(
        "--allow-head-waivers", action="store_true", help="with --head-waivers: what the head adds counts, too"
    )
    parser.add_argument(
        "--noise-profile",
        type=Path,
        metavar="FILE",
        help="this profile of `tilegate calibrate` instead of the samples'",
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="write verdict.json and report.md into this folder")
    parser.add_argument("--json", action="store_true", help="print the verdict as JSON instead of a table")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Carry out `tilegate judge`. Returns the exit code; raises UsageError."""
    config = None if args.config is None else load_config(_read(args.config), str(args.config))
    samples = files.load_samples(args.samples)
    profile = None
    if args.noise_profile is not None:
        profile = noise_file.load(args.noise_profile, samples["environment"], judging.day_of(samples))
    verdict = judging.judge(samples, config, profile=profile, **_replaced_waivers(args))
    if args.out is not None:
        files.write_json(args.out / "verdict.json", verdict)
        files.write_text(args.out / "report.md", report.render(verdict))
    if args.json:
        json.dump(verdict, sys.stdout, indent=1, allow_nan=False)
        sys.stdout.write("\n")
    else:
        terminal.show(verdict)
    return int(verdict["exit_code"])


def _replaced_waivers(args: argparse.Namespace) -> dict[str, Any]:
    if args.waivers is None:
        if args.head_waivers is not None or args.allow_head_waivers:
            raise files.UsageError("--head-waivers and --allow-head-waivers go with --waivers, the base's file")
        return {}
    of_base, of_head = args.waivers, args.head_waivers or args.waivers
    return {
        "waived": waivers.of_revisions(_read(of_base), _read(of_head), names=(str(of_base), str(of_head))),
        "allow_head_waivers": args.allow_head_waivers,
        "today": datetime.datetime.now(datetime.UTC).date(),
    }


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise files.UsageError(f"cannot read {path}: {error}") from error
