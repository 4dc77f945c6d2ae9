"""The event that started a workflow, as GitHub writes it to $GITHUB_EVENT_PATH: the few fields that are used, checked.

Titles, branch names and user names in it are whatever their authors liked. They are never part of a command line, a path
or an output; branch names are used in one place only, as an escaped parameter of a search.
"""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilegate import files
from tilegate.files import UsageError

_MOST_BYTES = 32 * 2**20
_HASH = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")


@dataclass(frozen=True)
class PullRequest:
    """A `pull_request` event.

    Attributes:
        number: of the pull request.
        base: tip of the base branch when the event was made.
        head: the commit that was proposed. Measured is this commit, whatever the branch points to by now.
        outside: the head is in another repository, a fork.
    """

    number: int
    base: str
    head: str
    outside: bool


@dataclass(frozen=True)
class FinishedRun:
    """A `workflow_run` event: another workflow's run was requested, or has ended.

    Attributes:
        action: "requested", "in_progress" or "completed".
        id: of that run.
        created: when it was; its commit had been pushed by then.
        url: of its page.
        workflow: path of its workflow file.
        event: what started it.
        conclusion: "success", "failure", "cancelled", …; None while it goes on.
        head: the commit it ran for.
        branch: the branch of the head, as its author named it.
        owner: who owns the head's repository, None if it was deleted.
        head_repository: number of that repository, None if it was deleted.
        outside: the head is in another repository, a fork.
        default_branch: of this repository.
    """

    action: str
    id: int
    created: datetime.datetime
    url: str
    workflow: str
    event: str
    conclusion: str | None
    head: str
    branch: str | None
    owner: str | None
    head_repository: int | None
    outside: bool
    default_branch: str


@dataclass(frozen=True)
class Labelled:
    """A `pull_request_target` event: a label was set or taken away, for which GitHub wants at least the role "triage".

    Attributes:
        head: the head commit at that moment.
        branch: the branch of the head, as its author named it.
        head_repository: number of the head's repository, None if it was deleted.
        repository: number of this repository.
        default_branch: of this repository.
    """

    head: str
    branch: str
    head_repository: int | None
    repository: int
    default_branch: str


def load(environment: Mapping[str, str] = os.environ) -> Mapping[str, Any]:
    """Read the payload. Raises UsageError."""
    path = environment.get("GITHUB_EVENT_PATH")
    if not path:
        raise UsageError("GITHUB_EVENT_PATH must name the event's payload, as GitHub sets it")
    payload = files.load_json(Path(path), max_bytes=_MOST_BYTES)
    if not isinstance(payload, dict):
        raise UsageError(f"{path} is not an event's payload")
    return payload


def pull_request(payload: Mapping[str, Any]) -> PullRequest:
    """Read a `pull_request` event. Raises UsageError."""
    try:
        of = payload["pull_request"]
        source = of["head"]["repo"]  # null if it was deleted
        outside = source is None or source["id"] != payload["repository"]["id"]
        return PullRequest(_number(of["number"]), _hash(of["base"]["sha"]), _hash(of["head"]["sha"]), outside)
    except (KeyError, TypeError) as error:
        raise UsageError(f"the event is no pull_request event: {error} is missing") from None


def finished_run(payload: Mapping[str, Any]) -> FinishedRun:
    """Read a `workflow_run` event. Raises UsageError."""
    try:
        here = payload["repository"]
        return run_of(payload["workflow_run"], str(payload["action"]), here["id"], str(here["default_branch"]))
    except (KeyError, TypeError) as error:
        raise UsageError(f"the event is no workflow_run event: {error} is missing") from None


def labelled(payload: Mapping[str, Any]) -> Labelled:
    """Read a `pull_request_target` event of a label. Raises UsageError."""
    try:
        here = payload["repository"]
        if payload["action"] not in ("labeled", "unlabeled"):
            raise UsageError("the event is of no label")
        head = payload["pull_request"]["head"]
        source = None if head["repo"] is None else _number(head["repo"]["id"])
        return Labelled(
            _hash(head["sha"]), str(head["ref"]), source, _number(here["id"]), str(here["default_branch"])
        )  # fmt: skip
    except (KeyError, TypeError) as error:
        raise UsageError(f"the event is no pull_request_target event: {error} is missing") from None


def run_of(run: Mapping[str, Any], action: str, here: int, default_branch: str) -> FinishedRun:
    """Read a run as the API and events describe it. Raises UsageError, KeyError or TypeError.

    Args:
        run: the description.
        action: what happened to it.
        here: number of this repository.
        default_branch: of this repository.
    """
    head = run["head_repository"]
    return FinishedRun(
        action=action,
        id=_number(run["id"]),
        created=moment(run["created_at"]),
        url=str(run["html_url"]),
        workflow=_workflow_file(str(run["path"])),
        event=str(run["event"]),
        conclusion=run["conclusion"],
        head=_hash(run["head_sha"]),
        branch=run["head_branch"],
        owner=head["owner"]["login"] if head else None,
        head_repository=_number(head["id"]) if head else None,
        outside=head is None or head["id"] != here,
        default_branch=default_branch,
    )


def moment(value: object) -> datetime.datetime:
    """Read a time as GitHub writes it ("2026-01-10T14:50:00Z"). Raises UsageError."""
    try:
        return datetime.datetime.strptime(str(value), "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=datetime.UTC)
    except ValueError:
        raise UsageError(f"GitHub names {str(value)[:80]!r} where a time belongs") from None


def _workflow_file(path: str) -> str:
    """Return the file of a workflow from what GitHub calls its path, which may end with "@" and a branch.

    A file may have an "@" in its name as well: "bench-pr.yml@other.yml" is another file than bench-pr.yml. Where that
    cannot be told apart, the path is returned whole, which is no file that is known.
    """
    file, _, branch = path.partition("@")
    return path if "@" in branch or branch.lower().endswith((".yml", ".yaml")) else file


def _hash(value: object) -> str:
    if not isinstance(value, str) or not _HASH.fullmatch(value):
        raise UsageError(f"the event names {str(value)[:80]!r} where the hash of a commit belongs")
    return value


def _number(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise UsageError(f"the event has {str(value)[:80]!r} where a number belongs")
    return value
