"""What a pull request shows: two checks on its head commit and one comment, updated in place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from tilegate.ci.checks import CheckResult, as_output, shortened
from tilegate.ci.github import Client

MARKER = "<!-- tilegate report -->"
# Set by us when we create a check; the checks that GitHub makes for a job have one that no job can choose.
_OURS = "tilegate:"
_LONGEST_SUMMARY = 65_000  # characters; the API's limits are 65,535 for a check and 65,536 for a comment
_LONGEST_COMMENT = 65_000


def announce(client: Client, head: str, check: str, url: str) -> None:
    """Show a check as under way, which also takes back what an earlier run concluded."""
    _publish(client, head, check, {"status": "in_progress", "details_url": url})


def complete(client: Client, head: str, result: CheckResult, url: str) -> None:
    """Show what a check found."""
    output = as_output(result, _LONGEST_SUMMARY)
    _publish(
        client,
        head,
        result.check,
        {"status": "completed", "conclusion": result.conclusion, "output": output, "details_url": url},
    )


def impostors(client: Client, head: str, check: str) -> list[str]:
    """Return the pages of other checks of that name on the commit: any job of any workflow may be called like ours."""
    return [run["html_url"] for run in _checks(client, head, check) if not _is_ours(client, run)]


def comment(
    client: Client, number: int, results: Sequence[CheckResult], notes: Sequence[str], links: Sequence[str]
) -> None:
    """Write the comment of a pull request, or change the one that is there.

    Args:
        client: may write to it.
        number: of the pull request.
        results: in the order in which they are shown.
        notes: sentences of our own for above.
        links: Markdown of our own for below.
    """
    body = _body([result.summary for result in results], notes, links)
    if len(body) > _LONGEST_COMMENT:
        body = _body([shortened(result.summary) for result in results], notes, links)
    for found in client.pages(f"/issues/{number}/comments"):
        # The marker alone proves nothing: everybody can write it into a comment.
        if found["user"] is not None and found["user"]["login"] == client.bot and found["body"].startswith(MARKER):
            if found["body"] != body:
                client.patch(f"/issues/comments/{found['id']}", {"body": body})
            return
    client.post(f"/issues/{number}/comments", {"body": body})


def _body(summaries: Sequence[str], notes: Sequence[str], links: Sequence[str]) -> str:
    parts = [MARKER, *(f"> [!NOTE]\n> {note}" for note in notes), *summaries, " · ".join(links)]
    return "\n\n".join(part.strip() for part in parts if part) + "\n"


def _publish(client: Client, head: str, check: str, values: dict[str, Any]) -> None:
    mine = next((run for run in _checks(client, head, check) if _is_ours(client, run)), None)
    if mine is not None and (values["status"] == "completed" or mine["status"] != "completed"):
        client.patch(f"/check-runs/{mine['id']}", values)
        return
    # A new one: what is completed cannot be taken back, but the newest of a name is the one that counts.
    client.post("/check-runs", {"name": check, "head_sha": head, "external_id": f"{_OURS}{check}", **values})


def _checks(client: Client, head: str, check: str) -> list[Any]:
    """Return the check runs of that name on a commit, newest first."""
    # Not only the "latest": which of several of one name that is, GitHub does not promise.
    found = client.pages(f"/commits/{quote(head)}/check-runs", "check_runs", check_name=check, filter="all")
    return sorted(found, key=lambda run: -int(run["id"]))


def _is_ours(client: Client, run: Any) -> bool:
    return run["app"] is not None and run["app"]["slug"] == client.app and str(run["external_id"]).startswith(_OURS)
