"""`tilegate gate`: measures the head against the base and judges the difference.

The order: both trees, everything compiled at both, correctness before any timing, then duet timing of what differs and
of a sample of what does not. Each step is saved as it is done, so a run that was killed continues where it was.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import shutil
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from tilegate import files, invocation
from tilegate.config import GateConfig, load_config
from tilegate.emulate import explain, gating
from tilegate.files import UsageError
from tilegate.judging import judge, noise_file, waivers
from tilegate.judging.noise import NoiseProfile
from tilegate.measuring import (
    causes,
    device_lock,
    duet,
    environment,
    git,
    inspection,
    itself,
    observation,
    probing,
    rounds,
    samples,
    trees,
)
from tilegate.measuring.budget import Budget
from tilegate.measuring.comparison import Comparison
from tilegate.measuring.pool import WorkerPool
from tilegate.measuring.referee import Referee
from tilegate.measuring.workspace import Workspace
from tilegate.progress import Phase, Reporter
from tilegate.protocol import TARGETS, TIERS
from tilegate.schemas.samples import Asked, Environment, Tier

_DESCRIPTION = """\
Measure the head against the base and judge every case. Suite and thresholds come from the base, so a change cannot
loosen its own gate. Interrupt it whenever you like: the same command continues.

examples:
  tilegate gate --base main --head HEAD            is this branch slower than main?
  tilegate gate --base HEAD --head WORKTREE        are my uncommitted changes slower?
  tilegate gate --base v1.2 --head main --tier full --target hip
  tilegate gate --base main --head HEAD -b 'forward.*decode'
"""
_EPILOG = "exit code: 0 pass, 1 regressed, 2 usage error, 3 broken, 4 inconclusive, 5 environment invalid"


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `tilegate gate` to the command line."""
    parser = subparsers.add_parser(
        "gate",
        help="measure one revision against another, and judge",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    revision = "a revision that git understands, or WORKTREE for the files as they are"
    parser.add_argument("--base", required=True, metavar="REV", help=f"what to compare with: {revision}")
    parser.add_argument(
        "--base-exact",
        action="store_true",
        help="compare with the base as it is, even if it is a branch that has moved on since the head left it (default: with "
        "the commit where the head left it; what others added to the branch since is not the head's doing)",
    )
    parser.add_argument("--head", required=True, metavar="REV", help="what is judged; likewise")
    parser.add_argument(
        "--target",
        choices=("auto", *TARGETS),
        default="auto",
        help="where to measure (default: auto, the GPU that torch finds, else the CPU)",
    )
    parser.add_argument("--tier", choices=TIERS, help="how much (default: smoke on the CPU, pr on a GPU)")
    parser.add_argument(
        "-b", "--bench", metavar="REGEX", help="only the cases whose id the expression is found in, as for `asv run -b`"
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="samples.json, verdict.json, report.md (default: a folder in .tilegate)"
    )
    parser.add_argument("--seed", type=int, metavar="N", help="seed of the orders and the choice of controls")
    parser.add_argument("--fresh", action="store_true", help="discard what an earlier run left in the output folder")
    parser.add_argument(
        "--budget",
        type=invocation.minutes,
        metavar="MINUTES",
        help="stop measuring in time: all cases are screened first, then the suspects that look worst for the time they "
        "take, noisy cases last; what could not be resolved is named and inconclusive. Compiling and checking count, but "
        "are never cut short. The same command without a budget, or with another, continues",
    )
    parser.add_argument(
        "--when-busy",
        choices=("wait", "refuse"),
        default="wait",
        help="if another run measures on the device: wait for it to end (default), or refuse",
    )
    parser.add_argument(
        "--ignore-dirty", action="store_true", help="measure the commit although its files are modified in the tree"
    )
    parser.add_argument(
        "--allow-head-waivers",
        action="store_true",
        help=f"let waivers count that the change itself adds to {waivers.FILE}; otherwise only the base's do",
    )
    parser.add_argument(
        "--no-emulate",
        action="store_true",
        help="do not execute changed kernels for the chips that `emulate` in [tool.tilegate] names (default: gfx942)",
    )
    parser.add_argument(
        "--noise-profile",
        type=Path,
        metavar="FILE",
        help="the noise of this machine, as `tilegate calibrate` wrote it (default: the base's `noise_profile`, if it names one)",
    )
    parser.add_argument(
        "--skip-unfit-noise",
        action="store_true",
        help="if the noise profile is of another machine or too old: say so and gate without one",
    )
    parser.add_argument("--repo", type=Path, default=Path(), metavar="DIR", help="the repository (default: this one)")
    parser.add_argument("--json", action="store_true", help="print the verdict as JSON instead of a table")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Carry out `tilegate gate`.

    Returns:
        The exit code.

    Raises:
        UsageError: it cannot be done as asked.
        KeyboardInterrupt: interrupted; how to resume has been printed.
    """
    reporter, started = Reporter(), time.monotonic()
    with invocation.ending_on_signals(), trees.scratch_folder(trees.cache_folder()) as scratch:
        with reporter.phase("plan", 3) as phase:
            comparison = _prepare(args, scratch, phase, reporter)
        planned = time.monotonic()
        who = f"tilegate gate --base {args.base} --head {args.head} in {comparison.out}"
        with device_lock.hold(comparison.target, wait=args.when_busy == "wait", who=who, say=reporter.note):
            budget = Budget.of_minutes(args.budget)  # what was waited for the device is nobody's measuring
            record = samples.open_record(comparison.out, comparison.describe(), seed=args.seed, fresh=args.fresh)
            try:
                _measure(comparison, record, budget, reporter, planning=planned - started)
            except KeyboardInterrupt:
                reporter.note(f"interrupted; what was measured is kept in {comparison.out}\nto resume: {args.resume}")
                raise
    return _judged(comparison, record, reporter, as_json=args.json)


def _prepare(args: argparse.Namespace, scratch: Path, phase: Phase, reporter: Reporter) -> Comparison:
    """Turn the arguments into a comparison, in three steps; everything that can be refused is refused here."""
    invocation.pattern(args.bench)
    phase.doing("revisions and settings")
    repository = trees.open_repository(args.repo.resolve())
    base = trees.resolve(repository, args.base, scratch / "base")
    head = trees.resolve(repository, args.head, scratch / "head")
    if not args.base_exact:
        base = trees.fork_point(repository, base, head)
        if base.ahead:
            reporter.note(_moved(base, args.head))
    cache = trees.cache_folder()
    # The settings decide which submodules are needed, and the settings are in the tree.
    try:
        config = load_config(trees.read_file(repository, base, "pyproject.toml"))
    except UsageError as error:
        raise UsageError(f"base {args.base}: {error}") from None
    waived = waivers.of_revisions(*(trees.file_if_any(repository, side, waivers.FILE) for side in (base, head)))
    package, suite = config.package.partition(".")[0], config.suite.replace(".", "/")
    needed = [package, f"src/{package}", suite]
    if not args.ignore_dirty:
        invocation.refuse_dirty(
            repository, {args.base: base, args.head: head}, [*needed, f"{package}.py", "pyproject.toml", waivers.FILE]
        )
    if ignored := trees.ignored_files(repository, [package, f"src/{package}", suite]):
        more = f" and {len(ignored) - 1} more" if len(ignored) > 1 else ""
        reporter.note(
            f"git ignores {files.shown(ignored[0])}{more}, so neither side has it; if it is needed, `git add --force` it or "
            "let the package do without"
        )
    phase.done("revisions and settings")
    phase.doing("devices and versions")
    target = invocation.target_named(args.target)
    tier: Tier = args.tier or ("smoke" if target == "cpu" else "pr")
    name = samples.folder_name((base.short, head.short, target, tier), args.bench)
    out = args.out or invocation.default_folder(repository, name)
    try:
        described = environment.describe(target)
    except environment.NoDeviceError as error:
        raise UsageError(str(error)) from None
    try:
        profile = _noise_profile(args.noise_profile, repository, base, config, described)
    except UsageError as error:
        if not args.skip_unfit_noise:
            raise
        print(f"tilegate: gating without a noise profile: {error}", file=sys.stderr)
        profile = None
    phase.done("devices and versions")
    phase.doing("files of both revisions")
    base_tree, head_tree = (trees.export(repository, revision, needed, cache) for revision in (base, head))
    phase.done("files of both revisions")
    return Comparison(
        base,
        head,
        base_tree,
        head_tree,
        config,
        target,
        tier,
        args.bench,
        described,
        out.resolve(),
        trees.same_path(repository, base, head, suite) or not trees.has_path(repository, base, suite),
        all(trees.same_path(repository, base, head, at) for at in (package, f"src/{package}", f"{package}.py")),
        waived,
        args.allow_head_waivers,
        not args.no_emulate,
        noise=profile,
        asked=_asked(args),
    )


def _moved(base: trees.Revision, head: str) -> str:
    commits = "1 commit" if base.ahead == 1 else f"{base.ahead} commits"
    return (
        f"{base.rev} is {commits} ahead of where {head} left it: comparing with that commit, {base.short}; "
        f"--base-exact compares with {base.rev} as it is now"
    )


def _asked(args: argparse.Namespace) -> Asked:
    asked: Asked = {"emulate": not args.no_emulate}
    if args.budget is not None:
        asked["budget"] = args.budget
    if args.noise_profile is not None:
        asked["noise_profile"] = str(args.noise_profile)
    if args.out is not None:
        asked["out"] = str(args.out)
    return asked


def _noise_profile(
    path: Path | None,
    repository: git.Repository,
    base: trees.Revision,
    config: GateConfig,
    described: Environment,
) -> NoiseProfile | None:
    """Read the noise of this machine: from the file that the command line names, else from the one of the base.

    Raises:
        UsageError: it cannot be read, or says nothing about this machine today.
    """
    today = datetime.now(UTC).date()
    if path is not None:
        return noise_file.load(path, described, today)
    if config.noise_profile is None:
        return None
    text = trees.file_if_any(repository, base, config.noise_profile)
    if text is None:
        raise UsageError(
            f"base {base.rev} has no {config.noise_profile}, which its [tool.tilegate] names as noise_profile"
        )
    return noise_file.parse(text, f"{config.noise_profile} of {base.rev}", described, today)


def _measure(
    comparison: Comparison, record: samples.Record, budget: Budget, reporter: Reporter, *, planning: float
) -> None:
    """Do everything that has not been done yet; `planning` is what it took to get here, in seconds."""
    if record.finished and not any("stopped" in case for case in record.cases.values()):
        reporter.note(f"{comparison.out} holds this run already, complete; --fresh measures it again")
        return
    record.reopen()
    record.add_seconds("plan", planning)
    if record.continued:
        reporter.note(f"continuing the run in {comparison.out}")
    workspaces = comparison.workspaces()
    logs = comparison.out / "logs"
    # Of what the base does not have there can be no referee.
    referee = Referee.of(workspaces["base"], logs, comparison.config) if "base" in workspaces else None
    with referee or contextlib.nullcontext():
        with WorkerPool(workspaces, logs, comparison.config, label="inspect") as pool:
            if not record.cases:
                inspection.inspect(pool, record, comparison.pattern, reporter)
            timed = any(case["replicates"] for case in record.cases.values())
            if "base" in workspaces and not comparison.same_package and not timed:
                observation.observe(pool, record, comparison.config, reporter)
            if comparison.emulated and "emulation" not in record.document:
                limit = comparison.config.emulate_seconds
                with record.timed("emulate"):
                    gating.enter(record, workspaces, comparison.emulated, logs=logs, reporter=reporter, seconds=limit)
            inspection.check(pool, record, comparison.config, reporter, referee)
            if referee is not None and not timed:
                everything = comparison.pattern is None
                probing.probe(pool, record, comparison.config, reporter, referee, everything=everything)
        timing = rounds.Timing(record, comparison.config, comparison.target, workspaces, logs, reporter, budget)
        rounds.run(dataclasses.replace(timing, referee=referee))
        if not comparison.same_package:
            itself.measure(timing)
    if slower := causes.unexplained(record):
        sides: dict[str, Workspace] = {name: workspaces[name] for name in duet.SIDES}
        with record.timed("explain"), WorkerPool(sides, logs, comparison.config, label="explain") as pool:
            causes.attach(pool, record, slower, comparison.arch, reporter)
            if comparison.emulate:
                explain.attach(record, sides, slower, comparison.arch, logs=logs, reporter=reporter)
    record.finish()
    shutil.rmtree(comparison.out / "work", ignore_errors=True)


def _judged(comparison: Comparison, record: samples.Record, reporter: Reporter, *, as_json: bool) -> int:
    """Judge what was measured, write verdict and report, show them; return the exit code."""
    from tilegate.showing import report, terminal  # noqa: PLC0415 - after the measuring

    verdict = judge.judge(record.document)
    files.write_json(comparison.out / "verdict.json", verdict)
    files.write_text(comparison.out / "report.md", report.render(verdict))
    if as_json:
        json.dump(verdict, sys.stdout, indent=1, allow_nan=False)
        sys.stdout.write("\n")
    else:
        terminal.show(verdict)
    reporter.note(f"report: {comparison.out / 'report.md'}")
    return int(verdict["exit_code"])
