"""Which pull request a finished run was for, and which commits its results must be of: asked of GitHub, not of the run.

Everything follows from one thing that GitHub vouches for, the head commit of the run. A run cannot choose the pull request
that its results are shown in, nor the commits that they are compared with.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from tilegate.ci import labels
from tilegate.ci.event import FinishedRun, Labelled, moment, run_of
from tilegate.ci.github import Client
from tilegate.ci.plan import measured_paths, suite_path
from tilegate.config import GateConfig, load_config
from tilegate.files import UsageError
from tilegate.judging import waivers

WORKFLOWS = ".github/workflows"
WORKFLOW = f"{WORKFLOWS}/bench-pr.yml"
SAMPLES = "samples"
"""The artifact with what was measured."""
_JOB, _STEP = "measure on MI300X", "Hand the samples over"  # by which it is, as bench-pr.yml calls them
_FOLDER, _LINK = "040000", "120000"  # modes in git's trees
# What a change may edit but not decide by: named in the comment, so that nobody wonders why an edit has no effect.
_RULES = ("pyproject.toml", waivers.FILE, "tilegate", ".github")


class UnboundError(Exception):
    """The run belongs to no pull request that could be shown its result."""


@dataclass(frozen=True)
class Bound:
    """A pull request, and what its results have to be of.

    Attributes:
        number: of the pull request.
        outside: it comes from a fork.
        tip: the base branch's newest commit: thresholds and waivers are read from it.
        base, base_tree: where the change left the base branch: what it is measured against.
        head, head_tree: the change.
        config: the tip's.
        waived: the tip's, and the head's, which tell which expired ones the change removes.
        waived_by: the maintainer whose label lets the head's waivers count, None: they do not.
        package_same, suite_same: base and head have the same package (suite).
        suite_current: the base's suite is still the tip's.
        workflow_same: the change leaves alone the workflow that measured it.
        workflows_unread: it edits workflows, and no maintainer's label says that somebody has read the edit.
        edits: which of the files that rule the gate the change edits.
    """

    number: int
    outside: bool
    tip: str
    base: str
    base_tree: str
    head: str
    head_tree: str
    config: GateConfig
    waived: tuple[waivers.Waiver, ...]
    waived_by: str | None
    package_same: bool
    suite_same: bool
    suite_current: bool
    workflow_same: bool
    workflows_unread: bool
    edits: tuple[str, ...]


def bind(client: Client, run: FinishedRun) -> Bound:
    """Find the pull request of a run.

    Raises:
        UnboundError: there is none, or not one alone; the message says why.
        UsageError: GitHub does not answer, or the base branch has no valid settings.
    """
    # The name of a workflow is its author's choice, so a fork can have another one of the same name.
    if run.workflow != WORKFLOW or run.event != "pull_request":
        raise UnboundError("the run is not one of bench-pr.yml for a pull request")
    pull = _pull(client, run)
    # A check stays with its commit when a pull request is pointed at another branch, which starts no run.
    if pull["base"]["ref"] != run.default_branch:
        raise UnboundError(
            "the pull request is not for the default branch, and what passed against another branch would count there, "
            "too. Once it is for the default branch, close and reopen it"
        )
    comparison = client.get(f"/compare/{quote(pull['base']['ref'], safe='')}...{run.head}")
    tip, base = comparison["base_commit"], comparison["merge_base_commit"]
    tip_tree, base_tree = tip["commit"]["tree"]["sha"], base["commit"]["tree"]["sha"]
    head_tree = client.get(f"/git/commits/{run.head}")["tree"]["sha"]
    settings = client.text("/pyproject.toml", tip["sha"])
    if settings is None:
        raise UsageError(f"the base branch has no pyproject.toml at {tip['sha'][:12]}")
    config = load_config(settings)
    since = _ended(client, run) if pull["labels"] else run.created
    listing = _Trees(client)
    suite = suite_path(config)

    def same(path: str, one: str = base_tree, other: str = head_tree) -> bool:
        entry = listing.entry(one, path)
        # Of what a symbolic link leads to nothing is known.
        return entry == listing.entry(other, path) and (entry is None or entry[0] != _LINK)

    return Bound(
        number=pull["number"],
        outside=run.outside,
        tip=tip["sha"],
        base=base["sha"],
        base_tree=base_tree,
        head=run.head,
        head_tree=head_tree,
        config=config,
        waived=_waivers(client, tip["sha"], run.head),
        waived_by=labels.given_by(client, pull, labels.WAIVER, since),
        package_same=all(same(path) for path in measured_paths(config) if path != suite),
        suite_same=same(suite),
        suite_current=same(suite, base_tree, tip_tree),
        workflow_same=same(WORKFLOW),
        workflows_unread=not same(WORKFLOWS) and labels.given_by(client, pull, labels.WORKFLOWS, since) is None,
        edits=tuple(path for path in (suite, *_RULES) if not same(path)),
    )


def newest_run(client: Client, of: Labelled) -> FinishedRun | None:
    """Return the newest run that measured the head of a pull request, None if there is none or it has not ended.

    Raises:
        UsageError: GitHub does not answer as it should.
    """
    newest = _newest(client, of)
    if newest is None or newest["status"] != "completed":
        return None
    return run_of(newest, "completed", of.repository, of.default_branch)


def overtaken(client: Client, run: FinishedRun) -> bool:
    """Return whether the pull request of a run has a newer one for the same commit.

    What an older one says is past: whoever may run jobs again can have it reported once more, after a label that was
    set for something else in between.
    """
    newest = _newest(client, run)
    return newest is not None and int(newest["id"]) > run.id


def approved(client: Client, run: FinishedRun) -> bool:
    """Return whether somebody approved a run of a fork. An approval is for one run, and a run is for one commit."""
    reviews = client.get(f"/actions/runs/{run.id}/approvals")
    return any(review["state"] == "approved" for review in reviews)


def handed_over(client: Client, run: FinishedRun) -> bool:
    """Return whether it was the measuring job that left the samples of a run.

    Code of the change runs in the planning job, too, beside what a job uploads artifacts with. An artifact's name can be
    taken once, so where the measuring job could hand its own over nobody else has done it before.
    """
    return any(
        job["name"] == _JOB and any((s["name"], s["conclusion"]) == (_STEP, "success") for s in job["steps"])
        for job in _jobs(client, run)
    )


def _ended(client: Client, run: FinishedRun) -> datetime.datetime:
    """Return when the last of a run's jobs ended, and samples had been handed over if there are any."""
    found = client.pages(f"/actions/runs/{run.id}/artifacts", "artifacts")
    times = [each["created_at"] for each in found if each["name"] == SAMPLES]
    times += [job["completed_at"] for job in _jobs(client, run)]
    return max((moment(time) for time in times if time is not None), default=run.created)


def _jobs(client: Client, run: FinishedRun) -> Iterator[Any]:
    return client.pages(f"/actions/runs/{run.id}/jobs", "jobs", filter="latest")


def _newest(client: Client, of: Labelled | FinishedRun) -> Any:
    """Return the newest run of a head commit from its own branch, as the API describes it, None if there is none."""
    path = f"/actions/workflows/{WORKFLOW.rpartition('/')[2]}/runs"
    found = client.pages(path, "workflow_runs", head_sha=of.head, event="pull_request")
    # Anybody may propose the commits of somebody else's pull request once more, from his own fork.
    same = [run for run in found if (_repository(run), run["head_branch"]) == (of.head_repository, of.branch)]
    return max(same, key=lambda run: int(run["id"]), default=None)


def _repository(run: Mapping[str, Any]) -> int | None:
    return None if run["head_repository"] is None else int(run["head_repository"]["id"])


def _waivers(client: Client, tip: str, head: str) -> tuple[waivers.Waiver, ...]:
    ours, theirs = (client.text(f"/{waivers.FILE}", commit) for commit in (tip, head))
    try:
        return waivers.of_revisions(ours, theirs)
    except UsageError:
        return waivers.of_revisions(ours, None)  # what only the head says badly is the measuring job's to refuse


def _pull(client: Client, run: FinishedRun) -> Any:
    if run.owner is None or run.branch is None:
        raise UnboundError("the repository or the branch that the run was for is gone")
    found = [
        pull
        for pull in client.pages("/pulls", state="open", head=f"{run.owner}:{run.branch}")
        if pull["head"]["sha"] == run.head
        and pull["head"]["repo"] is not None
        and pull["head"]["repo"]["id"] == run.head_repository
    ]
    if not found:
        raise UnboundError(
            "no open pull request has this commit as its head: it came too late, after a newer push or after the end"
        )
    if len(found) > 1:
        numbers = ", ".join(f"#{pull['number']}" for pull in found)
        raise UnboundError(f"several open pull requests have this commit as their head ({numbers}); close all but one")
    return found[0]


class _Trees:
    """Looks up files in trees of the repository, each tree once."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._known: dict[str, dict[str, tuple[str, str]]] = {}

    def entry(self, tree: str, path: str) -> tuple[str, str] | None:
        """Return mode and hash of a file or folder, or of the link or submodule that it lies in; None if there is none."""
        first, _, rest = path.partition("/")
        if tree not in self._known:
            answer = self._client.get(f"/git/trees/{tree}")
            if answer["truncated"]:
                raise UsageError(f"GitHub does not list the tree {tree[:12]} to its end")
            self._known[tree] = {e["path"]: (e["mode"], e["sha"]) for e in answer["tree"]}
        found = self._known[tree].get(first)
        return self.entry(found[1], rest) if found is not None and rest and found[0] == _FOLDER else found
