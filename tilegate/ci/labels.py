"""Labels by which a maintainer allows a pull request what its author may not decide.

GitHub lets everybody with the role "triage" set labels, so a label alone proves little. One counts if somebody with write
permission set it, not the author, and did so after the run for the head commit had ended. A label that was set before says
nothing of what was pushed since.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from tilegate.ci.event import moment
from tilegate.ci.github import Client

WAIVER = "tilegate: waiver"
"""The waivers that the change itself brings count for it."""
WORKFLOWS = "tilegate: workflows"
"""Somebody has read what the change does to .github/workflows."""

_MAY_WRITE = ("admin", "write")  # GitHub maps "maintain" to "write" and "triage" to "read" here


def given_by(client: Client, pull: Mapping[str, Any], label: str, since: datetime.datetime) -> str | None:
    """Return who gave a pull request a label that counts, None if nobody did.

    Args:
        client: may read the repository.
        pull: the pull request, as the API describes it.
        label: its name.
        since: a label that was set earlier, or in the same second, does not count.

    Raises:
        UsageError: GitHub does not answer.
    """
    if label not in {found["name"] for found in pull["labels"]}:
        return None
    events = [
        found
        for found in client.pages(f"/issues/{pull['number']}/events")
        if found["event"] in ("labeled", "unlabeled") and found["label"]["name"] == label
    ]
    last = max(events, key=lambda found: int(found["id"]), default=None)
    if last is None or last["event"] != "labeled" or moment(last["created_at"]) <= since:
        return None
    actor = last["actor"]
    # A workflow that labels by itself acts for whoever made the pull request.
    if actor is None or actor["type"] != "User":
        return None
    if pull["user"] is not None and actor["login"] == pull["user"]["login"]:
        return None  # the author decides nothing here, whatever permission he has
    granted = client.find(f"/collaborators/{quote(actor['login'], safe='')}/permission")
    return str(actor["login"]) if granted is not None and granted["permission"] in _MAY_WRITE else None
