"""`tilegate ci`: the command line."""

from __future__ import annotations

import argparse
import datetime
import os
import sys
from pathlib import Path

from tilegate.files import UsageError
from tilegate.protocol import TARGETS, TIERS

EXIT_DONE, EXIT_TROUBLE = 0, 5

DESCRIPTION = """\
What the workflows in .github/workflows do, for one's own eyes: every step can be run here. docs/security.md says which
of them sees whose code with which rights.

without rights, near code of strangers:
  tilegate ci admit      which environment does a measuring job need? runs nothing of the change
  tilegate ci plan       which cases does a pull request change? no GPU needed
  tilegate ci run        measure, in a container; hand over samples and nothing else
  tilegate ci scrub      leave the machine as it was found
with rights, never near code of strangers:
  tilegate ci report     samples of a finished run -> checks and comment of its pull request
  tilegate ci publish    results -> branch and site
  tilegate ci triage     samples of the nightly gate -> issues
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `tilegate ci` to the command line."""
    parser = subparsers.add_parser(
        "ci", help="what GitHub's workflows do", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )  # fmt: skip
    commands = parser.add_subparsers(dest="ci_command", metavar="COMMAND", required=True)

    admit = commands.add_parser("admit", help="which environment a measuring job needs, if there may be one")
    admit.add_argument("--settings", type=Path, required=True, metavar="FILE", help="the base's .github/bench.toml")

    plan = commands.add_parser("plan", help="which cases a pull request changes, found without a GPU")
    _add_repository(plan)
    plan.add_argument("--arch", default="gfx942", help="the chip that it is compiled for (default: gfx942)")
    plan.add_argument("--out", type=Path, required=True, metavar="DIR", help="gets plan.json")

    run = commands.add_parser("run", help="measure in a container, keep samples only")
    _add_repository(run)
    what = run.add_mutually_exclusive_group()
    what.add_argument("--backfill", action="store_true", help="the commits of this branch that have no results yet")
    what.add_argument("--release", action="store_true", help="HEAD against the last release tag")
    what.add_argument("--calibrate", action="store_true", help="the noise of this machine")
    _add_measured(run)
    run.add_argument("--out", type=Path, required=True, metavar="DIR", help="an empty folder for what is measured")
    where = run.add_mutually_exclusive_group(required=True)
    where.add_argument(
        "--settings", type=Path, metavar="FILE", help="the base's .github/bench.toml: names the container"
    )
    where.add_argument("--unconfined", action="store_true", help="without a container: only for code that you trust")
    run.add_argument(
        "--minutes", type=float, default=110.0, metavar="N", help="the most that it may take (default: 110)"
    )
    run.add_argument("--results", type=Path, metavar="DIR", help="with --backfill: asv's results so far")
    run.add_argument("--machine", default="mi300x", help="with --backfill: asv's name for this machine")
    run.add_argument(
        "--limit", type=int, default=30, metavar="N", help="with --backfill: how many commits to look back"
    )

    scrub = commands.add_parser("scrub", help="leave the machine as it was found")
    scrub.add_argument("folders", type=Path, nargs="*", metavar="DIR", help="folders to remove")

    history = commands.add_parser("history", help="run asv over commits (inside the container of `run --backfill`)")
    history.add_argument("--clone", type=Path, required=True, metavar="DIR", help="the repository to run asv in")
    history.add_argument("--commits", type=Path, required=True, metavar="FILE", help="hashes, one a line")
    history.add_argument("--machine", required=True, help="asv's name for this machine")

    report = commands.add_parser("report", help="checks and comment of a pull request, from what its run left")
    _add_measured(report)
    report.add_argument("--arch", default="gfx942", help="the chip of the compiled kernels (default: gfx942)")
    report.add_argument("--checkout", type=Path, default=Path(), metavar="DIR", help="the default branch's files")

    publish = commands.add_parser("publish", help="keep results on a branch; build the site")
    publish.add_argument("--keep", type=Path, metavar="DIR", help="result files to add to the branch of results")
    publish.add_argument("--branch", type=Path, metavar="DIR", help="with --keep: a checkout of that branch")
    publish.add_argument("--site", type=Path, metavar="DIR", help="build the site of this checkout")
    publish.add_argument("--assets", type=Path, metavar="DIR", help="with --site: node_modules of .github/site")

    triage = commands.add_parser("triage", help="open, update and close issues of regressed kernels")
    _add_repository(triage)
    triage.add_argument("--samples", type=Path, required=True, metavar="FILE", help="samples of `run --release`")


def _add_repository(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repo", type=Path, default=Path(), metavar="DIR", help="a clone with the commits' history")


def _add_measured(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--target", choices=TARGETS, default="hip", help="where it is measured (default: hip)")
    parser.add_argument("--tier", choices=TIERS, default="pr", help="how much is measured (default: pr)")


def run(args: argparse.Namespace) -> int:
    """Carry out `tilegate ci`; return the exit code. Raises UsageError."""
    return {
        "admit": _admit,
        "plan": _plan,
        "run": _run,
        "scrub": _scrub,
        "history": _history,
        "report": _report,
        "publish": _publish,
        "triage": _triage,
    }[args.ci_command](args)


# Each imports what it needs when it is used: `run` and `scrub` work where nothing but Python and git is installed.


def _admit(args: argparse.Namespace) -> int:
    from tilegate.ci import event, outputs, settings  # noqa: PLC0415

    payload = event.load()
    outside = "pull_request" in payload and event.pull_request(payload).outside
    environment = settings.load(args.settings).environment(outside=outside)
    outputs.set_outputs({"environment": environment})
    print(f"environment: {environment}" if environment else f"not measured: {args.settings} names no machine for this")
    return EXIT_DONE


def _plan(args: argparse.Namespace) -> int:
    from tilegate import files  # noqa: PLC0415
    from tilegate.ci import event, outputs, plan, repository  # noqa: PLC0415

    change = event.pull_request(event.load())
    base = repository.fork_point(args.repo, change.base, change.head)
    made = plan.make(args.repo.resolve(), base, change.head, args.arch, outside=change.outside)
    files.write_json(args.out / "plan.json", made)
    outputs.set_outputs({"measure": made["measure"]})
    outputs.show(f"Measure on a GPU: {'yes' if made['measure'] else 'no'}: {made['reason']}.")
    print(f"measure: {made['reason']}" if made["measure"] else f"nothing to measure: {made['reason']}")
    if made["isa_missing"]:
        print(f"not compiled: {made['isa_missing']}", file=sys.stderr)
    return EXIT_DONE


def _run(args: argparse.Namespace) -> int:
    from tilegate.ci import container, event, measure, repository, settings  # noqa: PLC0415

    folder = args.repo.resolve()
    image = None if args.unconfined else container.checked_image(settings.load(args.settings).image)
    place = measure.Place(folder, args.target, args.tier, args.out.resolve(), image, args.minutes)
    if args.calibrate:
        return measure.calibrate(place)
    if args.backfill:
        if args.results is None:
            raise UsageError("--backfill needs --results DIR, what was measured so far")
        return measure.backfill(place, args.results.resolve(), machine=args.machine, limit=args.limit)
    if args.release:
        tag = repository.release_tag(folder)
        if tag is None:
            print("tilegate: there is no release tag (v1.2) to compare with yet; nothing was measured", file=sys.stderr)
            return EXIT_DONE
        head = repository.git(folder, "rev-parse", "HEAD")
        return measure.gate(place, repository.git(folder, "rev-parse", f"{tag}^{{commit}}"), head)
    change = event.pull_request(event.load())
    return measure.gate(place, repository.fork_point(folder, change.base, change.head), change.head)


def _scrub(args: argparse.Namespace) -> int:
    from tilegate.ci import scrub  # noqa: PLC0415

    trouble = scrub.scrub(args.folders, os.environ.get("TILEGATE_CONTAINER_ENGINE") or "docker")
    for line in trouble:
        print(f"tilegate: {line}", file=sys.stderr)
    return EXIT_TROUBLE if trouble else EXIT_DONE


def _history(args: argparse.Namespace) -> int:
    from tilegate.ci import history  # noqa: PLC0415

    return history.measure(args.clone, args.commits.resolve(), args.machine)


def _report(args: argparse.Namespace) -> int:
    from tilegate.ci import event, findings, github, outputs, report  # noqa: PLC0415

    run = event.finished_run(event.load())
    today = datetime.datetime.now(datetime.UTC).date()
    expected = findings.Expected(args.target, args.tier, args.arch, today)
    outcome = report.publish(github.from_environment(), run, args.checkout, expected)
    for finding in outcome.findings:
        outputs.show(finding.summary)
        print(f"{finding.check}: {finding.conclusion}")
    if not outcome.findings:
        print("announced: the checks are pending")
    return EXIT_DONE


def _publish(args: argparse.Namespace) -> int:
    from tilegate.ci import publish  # noqa: PLC0415

    if (args.keep is None) == (args.site is None):
        raise UsageError("say either --keep DIR --branch DIR or --site DIR --assets DIR")
    if args.keep is not None:
        if args.branch is None:
            raise UsageError("--keep needs --branch DIR, a checkout of the branch of results")
        print(f"{publish.keep(args.keep, args.branch)} files are new or changed")
        return EXIT_DONE
    if args.assets is None:
        raise UsageError("--site needs --assets DIR; `npm ci --prefix .github/site --ignore-scripts` fills it")
    print(f"the site is in {publish.build(args.site.resolve(), args.assets.resolve())}")
    return EXIT_DONE


def _triage(args: argparse.Namespace) -> int:
    from tilegate import files, judge  # noqa: PLC0415
    from tilegate.ci import github, outputs, repository, triage  # noqa: PLC0415

    if not args.samples.exists():
        print("nothing was measured, so there is nothing to triage")
        return EXIT_DONE
    verdict = judge.judge(files.load_samples(args.samples))
    tag = repository.release_tag(args.repo) or str(verdict["base"]["commit"])[:12]
    server, number = (os.environ.get(name, "") for name in ("GITHUB_SERVER_URL", "GITHUB_RUN_ID"))
    url = f"{server}/{os.environ.get('GITHUB_REPOSITORY', '')}/actions/runs/{number}"
    done = triage.publish(github.from_environment(), verdict, tag.removeprefix("refs/tags/"), url)
    outputs.show(
        f"Nightly: {verdict['reason']} Opened {len(done.opened)}, updated {len(done.updated)}, closed {len(done.closed)}."
    )
    print(f"{verdict['verdict']}: opened {done.opened}, updated {done.updated}, closed {done.closed}")
    return EXIT_DONE
