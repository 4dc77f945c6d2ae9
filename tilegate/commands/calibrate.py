"""`tilegate calibrate`: measures one revision against itself, and writes down how noisy this machine is.

Identical code is timed as if it were two commits, in several fresh pairs of processes. Whatever differs is noise.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import secrets
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tilegate import files, invocation
from tilegate.config import GateConfig, load_config
from tilegate.files import UsageError
from tilegate.judging import noise, noise_file
from tilegate.judging.measured import of_turns
from tilegate.judging.noise import CaseNoise, Needs
from tilegate.measuring import device_lock, duet, environment, layout, rounds, trees
from tilegate.measuring.budget import Budget
from tilegate.measuring.disturbance import Patience
from tilegate.measuring.pool import WorkerPool
from tilegate.measuring.session import WorkerError
from tilegate.measuring.workspace import Workspace, make_workspace
from tilegate.progress import Reporter
from tilegate.protocol import TARGETS, TIERS
from tilegate.schemas.samples import Target, Tier

EXIT_OK, EXIT_NOTHING = 0, 4
PARTIAL_SCHEMA = "tilegate-calibration/1"
MAX_REPLICATES = 1000

_PAIRS = 24  # of a replicate: enough that a bias of half a pair's noise is not drowned by the pairs
_DESCRIPTION = """\
Measure one revision against itself: identical code, timed as if it were two commits, in several fresh pairs of processes.
What differs is noise, and the noise of each case is written to a file that `tilegate gate` takes its numbers of pairs and
its expected bias from. Interrupt it whenever you like: the same command continues.

examples:
  tilegate calibrate                               the files as they are, the default target and tier
  tilegate calibrate --target cuda --tier pr --budget 15
  tilegate calibrate -b decode --replicates 20     short kernels, more exactly
  tilegate gate --base main --head HEAD --noise-profile .tilegate/noise-cuda.json

With `noise_profile = "noise.json"` in [tool.tilegate] and the file committed, every gate uses the base's.
"""
_EPILOG = "exit code: 0 written, 2 usage error, 4 nothing could be calibrated"


@dataclass(frozen=True)
class _Calibration:
    """What is calibrated, and where.

    Attributes:
        config: of the revision.
        workspaces: "base" and "head", both of the same files.
        partial: the document of what was measured so far; see `_open_partial`.
        path: where it is kept.
        logs: folder for the workers' output.
        budget: how long it may take.
        reporter: shows progress.
    """

    config: GateConfig
    workspaces: Mapping[str, Workspace]
    partial: dict[str, Any]
    path: Path
    logs: Path
    budget: Budget
    reporter: Reporter

    def save(self) -> None:
        files.write_json(self.path, self.partial)


def add_parser(subparsers: Any) -> None:
    """Add `tilegate calibrate` to the command line."""
    parser = subparsers.add_parser(
        "calibrate",
        help="measure how noisy this machine is, on identical code",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--rev", default=trees.WORKTREE, metavar="REV", help="what to measure (default: the files as they are)"
    )
    parser.add_argument("--target", choices=("auto", *TARGETS), default="auto", help="where (default: as `gate`)")
    parser.add_argument("--tier", choices=TIERS, help="how much (default: as `gate`)")
    parser.add_argument("-b", "--bench", metavar="REGEX", help="only the cases whose id the expression is found in")
    parser.add_argument(
        "--replicates",
        type=_replicates,
        default=8,
        metavar="N",
        help=f"fresh pairs of processes, at least {noise.FEWEST_REPLICATES} (default: 8); more narrow the bound of the bias",
    )
    parser.add_argument(
        "--same-layout",
        type=_same_layout,
        default=noise.FEWEST_REPLICATES,
        metavar="N",
        help="fresh pairs more in which both sides are laid out alike: how much of the bias is luck of the layout "
        f"(default: {noise.FEWEST_REPLICATES}; 0: do not ask)",
    )
    parser.add_argument(
        "--budget",
        type=invocation.minutes,
        metavar="MINUTES",
        help=f"start no replicate that would end later; a case with fewer than {noise.FEWEST_REPLICATES} is left out",
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="the profile (default: .tilegate/noise-TARGET.json)")
    parser.add_argument("--fresh", action="store_true", help="discard what an interrupted calibration left")
    parser.add_argument(
        "--when-busy", choices=("wait", "refuse"), default="wait", help="if another run measures on the device"
    )
    parser.add_argument("--repo", type=Path, default=Path(), metavar="DIR", help="the repository (default: this one)")
    parser.add_argument("--json", action="store_true", help="print the profile as JSON instead of a table")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Carry out `tilegate calibrate`.

    Returns:
        The exit code.

    Raises:
        UsageError: it cannot be done as asked.
        KeyboardInterrupt: interrupted; how to resume has been printed.
    """
    reporter = Reporter()
    pattern = invocation.pattern(args.bench)
    with invocation.ending_on_signals(), trees.scratch_folder(trees.cache_folder()) as scratch:
        repository = trees.open_repository(args.repo.resolve())
        revision = trees.resolve(repository, args.rev, scratch / "rev")
        config = load_config(trees.read_file(repository, revision, "pyproject.toml"))
        target = invocation.target_named(args.target)
        tier: Tier = args.tier or ("smoke" if target == "cpu" else "pr")
        out = (args.out or invocation.default_folder(repository, f"noise-{target}.json")).resolve()
        described = {
            "tree": revision.tree,
            "target": target,
            "tier": tier,
            "filter": args.bench,
            "environment": environment.describe(target),
        }
        suite = config.suite.replace(".", "/")
        exported = trees.export(repository, revision, [config.package.partition(".")[0], suite], trees.cache_folder())
        if not (exported / suite).is_dir():
            raise UsageError(f"{args.rev} does not have the suite {config.suite!r} that [tool.tilegate] names")
        workspaces: dict[str, Workspace] = {
            side: make_workspace(
                scratch / "work" / side,
                config,
                exported=exported,
                suite_root=exported / suite,
                target=target,
                tier=tier,
            )
            for side in duet.SIDES
        }
        who = f"tilegate calibrate of {args.rev}"
        with device_lock.hold(target, wait=args.when_busy == "wait", who=who, say=reporter.note):
            path = out.with_name(f"{out.name}.partial")
            calibration = _Calibration(
                config,
                workspaces,
                _open_partial(path, described, fresh=args.fresh),
                path,
                scratch / "logs",
                Budget.of_minutes(args.budget),
                reporter,
            )
            try:
                _measure(calibration, {"replicates": args.replicates, "same_layout": args.same_layout}, pattern)
            except KeyboardInterrupt:
                reporter.note(f"interrupted; what was measured is kept in {path}\nto resume: {args.resume}")
                raise
        return _written(calibration, out, as_json=args.json)


def _replicates(text: str) -> int:
    count = int(text) if text.isdecimal() and len(text) < 10 else 0
    if not noise.FEWEST_REPLICATES <= count <= MAX_REPLICATES:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no whole number from {noise.FEWEST_REPLICATES} to {MAX_REPLICATES}"
        )
    return count


def _same_layout(text: str) -> int:
    return 0 if text == "0" else _replicates(text)


# --- measuring --------------------------------------------------------------------------------------------------------


def _open_partial(path: Path, described: Mapping[str, Any], *, fresh: bool) -> dict[str, Any]:
    """Continue the calibration that was interrupted, or start one.

    The document: `described`, and for each case its version, what kept it from being measured, and its replicates, those
    with the same layout on both sides apart: for each pair who was first, and the seconds of both turns.

    Raises:
        UsageError: what is there belongs to another calibration, or is damaged.
    """
    begun = {"schema": PARTIAL_SCHEMA, **described, "cases": {}}
    if fresh or not path.exists():
        return begun
    try:
        found = files.load_json(path)
        different = [key for key in begun if key != "cases" and found[key] != begun[key]]
        for case in found["cases"].values():
            every = [*case["replicates"], *case["same_layout"]]
            _ = case["version"], case["failure"], [np.array(r, dtype=float)[:, 2] for r in every]
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise UsageError(f"{path} is damaged ({error!r}); --fresh discards it") from None
    if different:
        raise UsageError(
            f"{path} holds another, unfinished calibration (different {', '.join(different)}); --fresh discards it"
        )
    return dict(found)


def _measure(calibration: _Calibration, wanted: Mapping[str, int], pattern: Any) -> None:
    """Measure until every case has as many replicates of either kind as are `wanted`, or the time is up."""
    cases, reporter = calibration.partial["cases"], calibration.reporter
    if cases:
        reporter.note(f"continuing: {min(len(c['replicates']) for c in cases.values())} replicates are there")
    else:
        cases.update(_catalogue(calibration, pattern))
        calibration.save()
    for kind, count in wanted.items():
        title = "replicate" if kind == "replicates" else "same-layout replicate"
        while pending := [n for n, c in cases.items() if c["failure"] is None and len(c[kind]) < count]:
            fewest = min(len(cases[name][kind]) for name in pending)
            turn = [name for name in pending if len(cases[name][kind]) == fewest]
            cost = calibration.budget.startup + sum(calibration.budget.cost(name, _PAIRS) for name in turn)
            if calibration.budget.left < cost:
                reporter.note(f"the time budget is used up after {fewest} of {count} {title}s")
                return
            _replicate(calibration, turn, f"{title} {fewest + 1}/{count}", kind)


def _catalogue(calibration: _Calibration, pattern: Any) -> dict[str, Any]:
    """Return the cases that are to be calibrated, none of them measured."""
    with WorkerPool(
        {"base": calibration.workspaces["base"]}, calibration.logs, calibration.config, label="list"
    ) as pool:
        try:
            listed = pool.worker("base").catalogue()
        except WorkerError as error:
            raise UsageError(f"the suite cannot be loaded: {error.message}") from None
    for module, failure in listed["broken"].items():
        calibration.reporter.note(f"left out: {module or 'the suite'} cannot be imported: {failure['message']}")
    cases: dict[str, Any] = {
        case["id"]: {"version": case["version"], "failure": None, "replicates": [], "same_layout": []}
        for case in listed["cases"]
        if pattern is None or pattern.search(case["id"])
    }
    if not cases:
        raise UsageError("there is no case for this target, tier and -b")
    return cases


def _replicate(calibration: _Calibration, names: Sequence[str], title: str, kind: str) -> None:
    """Measure each case once more in one fresh pair of processes, which is replaced if one of them fails."""
    names = layout.order(secrets.randbits(48), title, names)
    config, cases, budget = calibration.config, calibration.partial["cases"], calibration.budget
    patience = Patience(rounds.PATIENCE)
    pool: WorkerPool | None = None
    try:
        with calibration.reporter.phase(title, len(names)) as phase:
            for index, name in enumerate(names):
                phase.doing(name)
                warm_up = config.for_case(name).warm_up_seconds * (1.0 if pool is None else rounds.LATER_WARM_UP)
                if pool is None:
                    pool = _start(calibration, names[index:], alike=kind == "same_layout")
                started = time.monotonic()
                order = random.Random(secrets.randbits(64))  # noqa: S311 - not for secrets
                try:
                    measured = duet.measure(
                        pool, name, _PAIRS, config.for_case(name), order, warm_up=warm_up, patience=patience
                    )
                except duet.SideError as failed:
                    cases[name]["failure"] = failed.error.message
                    pool.close()
                    pool = None
                else:
                    budget.paid(name, _PAIRS, time.monotonic() - started)
                    cases[name][kind].append(_turns(measured, pool.target))
                calibration.save()
                phase.done(name if cases[name]["failure"] is None else f"{name}: failed")
    finally:
        if pool is not None:
            pool.close()


def _start(calibration: _Calibration, names: Sequence[str], *, alike: bool) -> WorkerPool:
    """Start a fresh pair of processes, laid out alike or each for itself, and let both load all kernels at once."""
    started = time.monotonic()
    label = f"calibrate-{secrets.token_hex(4)}"
    seed, sides = secrets.randbits(48), layout.Layouts()
    layouts: dict[str, layout.Layout] = {
        side: sides.draw(seed, label, "both" if alike else side) for side in duet.SIDES
    }
    pool = WorkerPool(
        calibration.workspaces, calibration.logs, calibration.config, label=label, timed=True, layouts=layouts
    )
    pool.start()
    for answer in pool.precompile(dict.fromkeys(duet.SIDES, names)).values():
        with contextlib.suppress(WorkerError):  # fails again, with its case
            answer()
    calibration.budget.startup = max(calibration.budget.startup, time.monotonic() - started)
    return pool


def _turns(result: duet.Result, target: Target) -> list[list[float]]:
    """Return order and seconds of both turns of each pair of `duet.measure` that nothing disturbed."""
    pairs = [pair for pair in result["pairs"] if "disturbed" not in pair]
    base, head = of_turns(pairs, target)
    return [[pair["order"], float(b), float(h)] for pair, b, h in zip(pairs, base, head, strict=True)]


# --- the profile ------------------------------------------------------------------------------------------------------


def _written(calibration: _Calibration, out: Path, *, as_json: bool) -> int:
    """Write the profile, remove what was only needed to get there, and show it."""
    known: dict[str, CaseNoise] = {}
    alike: dict[str, CaseNoise] = {}
    for name, case in calibration.partial["cases"].items():
        config = calibration.config.for_case(name)
        for found, kind in ((known, "replicates"), (alike, "same_layout")):
            usable = [np.array(r) for r in case[kind] if 2 * len(r) >= _PAIRS]
            if case["failure"] is None and len(usable) >= noise.FEWEST_REPLICATES:
                base, head = ([r[:, side].tolist() for r in usable] for side in (1, 2))
                found[name] = noise.estimate(base, head, version=case["version"], config=config)
    left_out = [name for name in calibration.partial["cases"] if name not in known]
    for name in left_out[:10]:
        why = calibration.partial["cases"][name]["failure"] or f"fewer than {noise.FEWEST_REPLICATES} usable replicates"
        calibration.reporter.note(f"not calibrated: {name}: {why}")
    if len(left_out) > 10:
        calibration.reporter.note(f"not calibrated: {len(left_out) - 10} more")
    if not known:
        calibration.reporter.note("nothing could be calibrated, so no profile was written")
        return EXIT_NOTHING
    wanted = {name: noise.needs(found, calibration.config.for_case(name)) for name, found in known.items()}
    created = datetime.now(UTC).isoformat(timespec="seconds")
    document = noise_file.to_document(created, calibration.partial["environment"], known, wanted, alike)
    files.check(document, noise_file.SCHEMA_FILE)
    files.write_json(out, document)
    calibration.path.unlink(missing_ok=True)
    shutil.rmtree(calibration.logs, ignore_errors=True)
    if as_json:
        json.dump(document, sys.stdout, indent=1, allow_nan=False)
        sys.stdout.write("\n")
    else:
        _show(known, wanted, calibration.config, document["layout_share"])
    calibration.reporter.note(f"profile: {out}; use it with `tilegate gate --noise-profile {out}`")
    return EXIT_OK


def _show(
    known: Mapping[str, CaseNoise], wanted: Mapping[str, Needs | None], config: GateConfig, share: float | None
) -> None:
    table = Table(box=None, header_style="bold")
    table.add_column("case", overflow="fold")
    for heading in ("time", "a pair", "bias", "at most", "promise", "to settle it"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, found in sorted(known.items(), key=lambda item: -item[1].bias_high):
        needed = wanted[name]
        table.add_row(
            escape(name) + (" (two modes)" if found.modes else ""),
            f"{1e6 * found.seconds:.1f} µs",
            *(f"{100 * size:.2f} %" for size in (found.pair_noise, found.bias, found.bias_high)),
            f"{100 * config.for_case(name).promise:g} %",
            "not gating" if needed is None else f"{needed.replicates} x {needed.pairs} pairs",
        )
    console = Console()
    console.print(table)
    blind = sum(needed is None for needed in wanted.values())
    console.print(
        f"{len(known)} cases calibrated. Standard deviations of a pair and of a fresh pair of processes (bias); at most: its "
        "90 % upper bound, on which a gate rests."
        + (
            f" {blind} are too noisy for the promise: measured and shown by a gate, never called a pass."
            if blind
            else ""
        ),
        highlight=False,
    )
    if share is not None:
        console.print(
            f"About {100 * share:.0f} % of the bias (of its variance, over all cases) is the layout's: it is not there "
            "between processes that are laid out alike.",
            highlight=False,
        )
