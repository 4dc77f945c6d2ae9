"""`tilegate ci`: the command line."""

from __future__ import annotations

import argparse
import datetime
import functools
import os
import shutil
import sys
from collections.abc import Mapping
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
  tilegate ci image      build the measuring container, propose its digest for .github/bench.toml

examples:
  tilegate ci run --release --unconfined --target cpu --tier smoke --out ../samples    main against the last release
  tilegate ci publish --site . --assets .github/site/node_modules                      the site of the results at hand
  tilegate ci report --help                                                            each has examples of its own

`admit`, `plan`, `report`, and `run` without an option that says what to measure, read the event that started them from the
file that GITHUB_EVENT_PATH names. What talks to GitHub takes GITHUB_TOKEN and GITHUB_REPOSITORY from the environment.
"""

# What each command does and how it is called, for its --help.
_HELP = {
    "admit": (
        "which environment a measuring job needs, if there may be one",
        "Reads .github/bench.toml of the base and says in which environment the job may measure: `bench` for this\n"
        "repository's own commits, that of forks for theirs, none if there is no machine. Sets the output `environment`.",
        ("GITHUB_EVENT_PATH=event.json tilegate ci admit --settings .github/bench.toml",),
    ),
    "plan": (
        "which cases a pull request changes, found without a GPU",
        "Generates and compiles the kernels at both sides of a pull request and writes plan.json. Sets the output `measure`.",
        ("GITHUB_EVENT_PATH=event.json tilegate ci plan --repo . --out plan",),
    ),
    "run": (
        "measure in a container, keep samples only",
        "Without an option that says what: the pull request of the event against the point where it left its base.",
        (
            "tilegate ci run --settings .github/bench.toml --repo ../change --out ../samples    as bench-pr.yml does",
            "tilegate ci run --release --settings .github/bench.toml --out ../samples           HEAD against the last tag",
            "tilegate ci run --calibrate --unconfined --target cpu --tier smoke --out ../noise",
            "tilegate ci run --history --unconfined --store .tilegate/history --target cpu --tier smoke --out ../results",
        ),
    ),
    "scrub": (
        "leave the machine as it was found",
        "Removes this runner's containers and scratch files. Exit status 5 if something is left: a process on the GPU, say.",
        ("tilegate ci scrub", "tilegate ci scrub ../change ../samples    these folders, too"),
    ),
    "report": (
        "checks and comment of a pull request, from what its run left",
        "For the event of a run of bench-pr.yml, or of a label of ours, which has the last run judged again. Believes the\n"
        "head commit that GitHub states and nothing else; judges the samples anew.",
        (
            "GITHUB_EVENT_PATH=event.json GITHUB_TOKEN=… GITHUB_REPOSITORY=owner/name tilegate ci report",
            "tilegate ci report --target hip --tier pr --arch gfx942 --machine mi300x    the defaults",
        ),
    ),
    "publish": (
        "keep a history on a branch; build asv's site",
        "Takes only records of a history, named by their content, or a noise profile. asv's site loads nothing from elsewhere.",
        (
            "tilegate ci publish --keep ../delivered --branch ../bench-results",
            "tilegate ci publish --noise noise.json --branch ../bench-results --machine mi300x",
            "tilegate ci publish --site . --assets .github/site/node_modules",
        ),
    ),
    "image": (
        "build the measuring container; propose its digest",
        "The change that enters the digest waits on a branch, and an issue leads to it; nothing is entered by itself.",
        (
            "GITHUB_REPOSITORY=owner/name GITHUB_SHA=$(git rev-parse HEAD) tilegate ci image --recipe .github/runner",
            "tilegate ci image --recipe .github/runner --push                      and push it, with GITHUB_TOKEN",
            "tilegate ci image --recipe .github/runner --propose ghcr.io/…@sha256:…    enter one that was pushed",
        ),
    ),
    "triage": (
        "open, update and close issues of regressed kernels",
        "One issue a kernel that is slower than at the last release; closed when it has recovered.",
        ("tilegate ci triage --samples nightly/samples.json --store results/history",),
    ),
}


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `tilegate ci` to the command line."""
    parser = subparsers.add_parser(
        "ci", help="what GitHub's workflows do", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )  # fmt: skip
    commands = parser.add_subparsers(dest="ci_command", metavar="COMMAND", required=True)
    added = {name: _add_command(commands, name) for name in _HELP}
    _add_measuring(added)
    _add_publishing(added)


def _add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str) -> argparse.ArgumentParser:
    short, long, examples = _HELP[name]
    text = "\n".join(
        [f"{short[0].upper()}{short[1:]}.", "", long, "", "examples:", *(f"  {line}" for line in examples)]
    )
    return commands.add_parser(
        name, help=short, description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )  # fmt: skip


def _add_measuring(added: Mapping[str, argparse.ArgumentParser]) -> None:
    added["admit"].add_argument(
        "--settings", type=Path, required=True, metavar="FILE", help="the base's .github/bench.toml"
    )
    plan = added["plan"]
    _add_repository(plan)
    plan.add_argument("--arch", default="gfx942", help="the chip that it is compiled for (default: gfx942)")
    plan.add_argument("--out", type=Path, required=True, metavar="DIR", help="gets plan.json")

    run = added["run"]
    _add_repository(run)
    what = run.add_mutually_exclusive_group()
    what.add_argument("--history", action="store_true", help="bring the history of this branch up to date")
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
    run.add_argument(
        "--noise", type=Path, metavar="FILE", help="noise profile to gate by, if it is there and fits this machine"
    )
    run.add_argument("--store", type=Path, metavar="DIR", help="with --history: the history so far; it may be missing")
    run.add_argument(
        "--limit",
        type=int,
        default=30,
        metavar="N",
        help="with --history: how many commits to look back (default: 30)",
    )

    added["scrub"].add_argument("folders", type=Path, nargs="*", metavar="DIR", help="folders to remove")


def _add_publishing(added: Mapping[str, argparse.ArgumentParser]) -> None:
    report = added["report"]
    _add_measured(report)
    report.add_argument("--arch", default="gfx942", help="the chip, compiled for and measured on (default: gfx942)")
    _add_machine(report)
    report.add_argument("--checkout", type=Path, default=Path(), metavar="DIR", help="the default branch's files")

    publish = added["publish"]
    publish.add_argument("--keep", type=Path, metavar="DIR", help="result files to add to the branch of results")
    publish.add_argument("--noise", type=Path, metavar="FILE", help="noise profile to keep on the branch of results")
    publish.add_argument("--branch", type=Path, metavar="DIR", help="with --keep, --noise: a checkout of that branch")
    _add_machine(publish)
    publish.add_argument("--site", type=Path, metavar="DIR", help="build the site of this checkout")
    publish.add_argument("--assets", type=Path, metavar="DIR", help="with --site: node_modules of .github/site")
    publish.add_argument("--into", type=Path, metavar="DIR", help="with --site: copy it there, too")

    image = added["image"]
    image.add_argument("--recipe", type=Path, required=True, metavar="DIR", help="the folder with its Dockerfile")
    doing = image.add_mutually_exclusive_group()
    doing.add_argument("--push", action="store_true", help="push what was built to the repository's registry")
    doing.add_argument(
        "--propose", metavar="IMAGE", help="build nothing: put the change that enters IMAGE on a branch, open an issue"
    )

    triage = added["triage"]
    _add_repository(triage)
    triage.add_argument("--samples", type=Path, required=True, metavar="FILE", help="samples of `run --release`")
    triage.add_argument("--store", type=Path, metavar="DIR", help="the history of the branch; it may be missing")


def _add_repository(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repo", type=Path, default=Path(), metavar="DIR", help="a clone with the commits' history")


def _add_measured(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--target", choices=TARGETS, default="hip", help="where it is measured (default: hip)")
    parser.add_argument("--tier", choices=TIERS, default="pr", help="how much is measured (default: pr)")


def _add_machine(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--machine", default="mi300x", help="asv's name for the measuring machine (default: mi300x)")


def run(args: argparse.Namespace) -> int:
    """Carry out `tilegate ci`; return the exit code. Raises UsageError."""
    return {
        "admit": _admit,
        "plan": _plan,
        "run": _run,
        "scrub": _scrub,
        "report": _report,
        "publish": _publish,
        "triage": _triage,
        "image": _image,
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
    place = measure.Place(folder, args.target, args.tier, args.out.resolve(), image, args.minutes, args.noise)
    if args.calibrate:
        return measure.calibrate(place)
    if args.history:
        if args.store is None:
            raise UsageError("--history needs --store DIR, the history so far")
        return measure.update_history(place, args.store.resolve(), limit=args.limit)
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


def _report(args: argparse.Namespace) -> int:
    from tilegate.ci import binding, checks, event, github, listing, outputs, report  # noqa: PLC0415

    client, payload = github.from_environment(), event.load()
    if "workflow_run" in payload:
        run = event.finished_run(payload)
    else:
        found = binding.newest_run(client, event.labelled(payload))
        if found is None:
            print("no run has ended for this commit; the report of the one that ends will see the label")
            return EXIT_DONE
        run = found
        report.announce(client, run)  # should what follows fail, what was said before the label must not stand
    today = datetime.datetime.now(datetime.UTC).date()
    cases = functools.partial(listing.cases_of, args.checkout, args.target, args.tier)
    expected = checks.Expected(args.target, args.tier, args.arch, args.machine, today, cases)
    outcome = report.publish(client, run, args.checkout, expected)
    for result in outcome.results:
        outputs.show(result.summary)
        print(f"{result.check}: {result.conclusion}")
    if not outcome.results:
        print("nothing to conclude: the run has not ended, or a newer one replaces it")
    return EXIT_DONE


def _publish(args: argparse.Namespace) -> int:
    from tilegate.ci import publish  # noqa: PLC0415

    if sum(what is not None for what in (args.keep, args.noise, args.site)) != 1:
        raise UsageError("say --keep DIR --branch DIR, or --noise FILE --branch DIR, or --site DIR --assets DIR")
    if args.site is None and args.branch is None:
        raise UsageError("--keep and --noise need --branch DIR, a checkout of the branch of results")
    if args.noise is not None:
        kept = publish.keep_noise(args.noise, args.branch, args.machine)
        print(f"the noise of {args.machine} is kept" if kept else "there is no new noise profile")
        return EXIT_DONE
    if args.keep is not None:
        print(f"{publish.keep(args.keep, args.branch)} files are new")
        return EXIT_DONE
    if args.assets is None:
        raise UsageError("--site needs --assets DIR; `npm ci --prefix .github/site --ignore-scripts` fills it")
    html = publish.build(args.site.resolve(), args.assets.resolve())
    if args.into is not None:
        shutil.copytree(html, args.into, dirs_exist_ok=True)
    print(f"the site is in {args.into or html}")
    return EXIT_DONE


def _triage(args: argparse.Namespace) -> int:
    from tilegate import files  # noqa: PLC0415
    from tilegate.ci import github, outputs, repository, triage  # noqa: PLC0415
    from tilegate.history import update  # noqa: PLC0415
    from tilegate.history.store import Store  # noqa: PLC0415
    from tilegate.judging import judge  # noqa: PLC0415

    if not args.samples.exists():
        print(
            f"there is no {args.samples}: nothing was measured, so there is nothing to triage; "
            "`tilegate ci run --release` measures the last release against main"
        )
        return EXIT_DONE
    verdict = judge.judge(files.load_samples(args.samples))
    if not verdict["cases"]:
        print(f"{args.samples} holds no case, so there is nothing to triage; the log of `tilegate ci run` says why")
        return EXIT_DONE
    tag = repository.release_tag(args.repo) or str(verdict["base"]["commit"])[:12]
    done = triage.publish(
        github.from_environment(),
        verdict,
        tag.removeprefix("refs/tags/"),
        _run_url(),
        history=update.load(Store(args.store)) if args.store is not None and args.store.is_dir() else None,
        today=datetime.datetime.now(datetime.UTC).date(),
    )
    outputs.show(
        f"Nightly: {verdict['reason']} Opened {len(done.opened)}, updated {len(done.updated)}, closed {len(done.closed)}."
    )
    print(f"{verdict['verdict']}: opened {done.opened}, updated {done.updated}, closed {done.closed}")
    return EXIT_DONE


def _image(args: argparse.Namespace) -> int:
    from tilegate.ci import github, image, outputs  # noqa: PLC0415

    base = image.base_of(args.recipe / "Dockerfile")
    if args.propose:
        number = image.propose(github.from_environment(), args.propose, base, _run_url())
        print(
            "entered already" if number is None else f"issue #{number} leads to the change that enters {args.propose}"
        )
        return EXIT_DONE
    tag = image.build(args.recipe)
    print(f"built {tag} on {base}")
    if args.push:
        pushed = image.push(tag)
        outputs.set_outputs({"image": pushed})
        outputs.show(f"Built `{pushed}` on `{base}`.")
        print(f"pushed {pushed}")
    return EXIT_DONE


def _run_url() -> str:
    server, repository, number = (
        os.environ.get(name, "") for name in ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_RUN_ID")
    )  # fmt: skip
    return f"{server}/{repository}/actions/runs/{number}"
