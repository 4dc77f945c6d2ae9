"""`tilegate ci report`: from what a pull request's run left to its checks and its comment.

Runs with rights, on the default branch's code, and runs nothing of the pull request. See docs/security.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilegate.ci import archive, binding, checks, labels, pull_requests
from tilegate.ci.binding import Bound, UnboundError
from tilegate.ci.checks import ISA, LATENCY, PLAN_FILE, SAMPLES_FILE, CheckResult, Delivery, Expected, refusal
from tilegate.ci.event import FinishedRun
from tilegate.ci.github import Client
from tilegate.ci.measure import MAX_NOISE_BYTES
from tilegate.ci.plan import suite_path
from tilegate.showing.markup import code

_CHECKS = (LATENCY, ISA)
_NIGHTLY = "/actions/workflows/bench-nightly.yml"
_PROFILES, _NIGHTS = 3, 30  # how many are taken, among how many nights
_ARTIFACTS = {"plan": PLAN_FILE, binding.SAMPLES: SAMPLES_FILE}


@dataclass(frozen=True)
class Outcome:
    """What was published.

    Attributes:
        results: by the checks' names; empty if the run has only begun, or a newer one has taken its place.
        number: of the pull request that has the comment, None if there is none.
    """

    results: tuple[CheckResult, ...]
    number: int | None


def publish(client: Client, run: FinishedRun, checkout: Path, expected: Expected) -> Outcome:
    """Work out and publish what a run says of a pull request.

    Args:
        client: may write checks and comments.
        run: the event.
        checkout: the default branch's files.
        expected: how it must have been measured.

    Raises:
        UsageError: GitHub does not answer, say. Then nothing says success: a check that was announced stays pending.
    """
    if run.action != "completed":
        announce(client, run)
        return Outcome((), None)
    if binding.overtaken(client, run):
        return Outcome((), None)
    try:
        bound = binding.bind(client, run)
    except UnboundError as error:
        found = tuple(refusal(check, str(error)) for check in _CHECKS)
        for result in found:
            pull_requests.complete(client, run.head, result, run.url)
        return Outcome(found, None)
    found, links = _examine(client, run, bound, checkout, expected)
    found = tuple(_alone(client, run, result) for result in found)
    for result in found:
        pull_requests.complete(client, run.head, result, run.url)
    pull_requests.comment(client, bound.number, found, _notes(bound), [f"[run {run.id}]({run.url})", *links])
    return Outcome(found, bound.number)


def announce(client: Client, run: FinishedRun) -> None:
    """Show both checks as pending, which takes back what they said. Raises UsageError as `publish`."""
    for check in _CHECKS:
        pull_requests.announce(client, run.head, check, run.url)


def _examine(
    client: Client, run: FinishedRun, bound: Bound, checkout: Path, expected: Expected
) -> tuple[tuple[CheckResult, ...], list[str]]:
    try:
        delivered, links = _fetch(client, run)
    except archive.HostileArchiveError as error:
        # Its words quote names of files, which are the sender's.
        return tuple(refusal(check, f"forged: {code(str(error))}", "failure") for check in _CHECKS), []
    suite = checkout / suite_path(bound.config)
    isa = checks.isa(bound, delivered, expected, suite)
    if delivered.samples is not None and not binding.handed_over(client, run):
        reason = (
            "the samples are not the measuring job's, which could hand none over. Any job of a run can leave an artifact "
            "of that name, the one that compiles the change as well"
        )
        return (refusal(LATENCY, reason, "failure"), isa), links
    if delivered.samples is not None and run.outside and not binding.approved(client, run):
        reason = (
            "a run of a fork was measured though nobody approved it. The environment that `outside_environment` in "
            "`.github/bench.toml` names must have required reviewers (docs/security.md)"
        )
        return (refusal(LATENCY, reason, "failure"), isa), links
    profiles = _profiles(client, run, expected.machine)
    return (checks.latency(bound, delivered, expected, suite, profiles), isa), links


def _fetch(client: Client, run: FinishedRun) -> tuple[Delivery, list[str]]:
    """Download what the run left. Raises HostileArchiveError."""
    newest: dict[str, Any] = {}
    for artifact in client.pages(f"/actions/runs/{run.id}/artifacts", "artifacts"):
        name = artifact["name"]
        if name in _ARTIFACTS and artifact["id"] > newest.get(name, {"id": 0})["id"]:
            newest[name] = artifact  # a job that ran again leaves a second one
    content: dict[str, bytes | None] = dict.fromkeys(_ARTIFACTS)
    links = []
    for name, artifact in newest.items():
        file = _ARTIFACTS[name]
        of = artifact["workflow_run"]  # null, says GitHub's schema, where that is not known
        if artifact["expired"] or of is None or of["head_sha"] != run.head:
            continue
        if artifact["size_in_bytes"] > archive.MAX_ARCHIVE_BYTES:
            raise archive.HostileArchiveError(f"the artifact {name} has {artifact['size_in_bytes']} bytes")
        packed = client.download(f"/actions/artifacts/{artifact['id']}/zip", max_bytes=archive.MAX_ARCHIVE_BYTES)
        content[name] = archive.read(packed, {file: checks.LIMITS[file]}).get(file)
        links.append(f"[{name}]({run.url}/artifacts/{artifact['id']})")
    return Delivery(content["plan"], content[binding.SAMPLES], _missing(run)), links


def _profiles(client: Client, run: FinishedRun, machine: str) -> list[str]:
    """Return the last noise profiles of our machine, the newest first: a run may have begun before the newest was kept.

    From what the nights' runs on the default branch left. On the branch of results are the same, but whoever may push
    branches can push others there.
    """
    answer = client.find(f"{_NIGHTLY}/runs", branch=run.default_branch, per_page=str(_NIGHTS))
    ours = [
        night
        for night in (answer or {"workflow_runs": []})["workflow_runs"]
        # A fork may have a branch of that name, too, and what it proposes runs as a pull request.
        if night["event"] in ("schedule", "workflow_dispatch") and night["head_branch"] == run.default_branch
    ]
    found: list[str] = []
    for night in sorted(ours, key=lambda night: -int(night["id"])):
        if len(found) < _PROFILES:
            found += _profile(client, int(night["id"]), f"noise-{machine}")
    return found


def _profile(client: Client, night: int, name: str) -> list[str]:
    """Return the noise profile of a night, as a list of one; of none if it left none. One that is no text is empty."""
    kept = [a for a in client.pages(f"/actions/runs/{night}/artifacts", "artifacts") if a["name"] == name]
    newest = max(kept, key=lambda artifact: int(artifact["id"]), default=None)
    if newest is None or newest["expired"]:
        return []
    packed = client.download(f"/actions/artifacts/{newest['id']}/zip", max_bytes=archive.MAX_ARCHIVE_BYTES)
    try:
        content = archive.read(packed, {"noise.json": MAX_NOISE_BYTES}).get("noise.json", b"")
        return [content.decode("utf-8")]
    except (archive.HostileArchiveError, UnicodeDecodeError):
        return [""]  # nothing to judge by, and the comment says so


def _missing(run: FinishedRun) -> str:
    if run.conclusion == "success":
        return (
            "the run delivered no samples: its measuring job was skipped, since `.github/bench.toml` names no machine, or "
            "no environment for pull requests from forks"
        )
    how = {
        "cancelled": "was cancelled",
        "timed_out": "took too long",
        "action_required": "still waits for a maintainer's approval",
        "stale": "waited too long for a maintainer's approval",
    }.get(run.conclusion or "", "failed")
    return f"the run {how} before there were samples; the log of the run says more"


def _alone(client: Client, run: FinishedRun, result: CheckResult) -> CheckResult:
    """Return the result, or a failure if a job of the same name tries to speak for it."""
    others = pull_requests.impostors(client, run.head, result.check)
    if not others:
        return result
    return refusal(
        result.check,
        f"a job of another workflow is called `{result.check}`, as this check is: <{others[0]}>. Rename it. Until then what "
        "a merge is allowed by may be that job",
        "failure",
    )


def _notes(bound: Bound) -> list[str]:
    notes = []
    if bound.edits:
        edited = ", ".join(f"`{path}`" for path in bound.edits)
        ours = "Suite, thresholds, waivers" if bound.waived_by is None else "Suite, thresholds"
        notes.append(
            f"This change edits {edited}. {ours} and the judge are the base branch's all the same; what the edit does counts "
            "once it is merged."
        )
    if bound.waived_by is not None:
        notes.append(
            f"The waivers of this change count: {code(bound.waived_by)} set the label `{labels.WAIVER}`. A push ends that."
        )
    elif set(bound.waived) - {waiver for waiver in bound.waived if waiver.origin == "base"}:
        notes.append(
            "A waiver of this change does not count before somebody with write permission, not its author, sets the label "
            f"`{labels.WAIVER}`, once this commit has been measured. If it is there already, take it off and set it again."
        )
    return notes
