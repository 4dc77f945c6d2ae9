"""Events as GitHub writes them: the fields of its documented payloads, cut down to what could matter here."""

from __future__ import annotations

from fake_github import REPOSITORY, REPOSITORY_ID

RUN_ID = 30433642

_OWNER = {"login": "octo-org", "id": 6811672, "type": "Organization"}
_HERE = {
    "id": REPOSITORY_ID,
    "name": "kernels",
    "full_name": REPOSITORY,
    "private": False,
    "owner": _OWNER,
    "fork": False,
    "default_branch": "main",
}


def _elsewhere(owner: str, number: int) -> dict:
    return {
        "id": number,
        "name": "kernels",
        "full_name": f"{owner}/kernels",
        "private": False,
        "owner": {"login": owner, "id": 5, "type": "User"},
        "fork": number != REPOSITORY_ID,
    }


def pull_request(
    base: str, head: str, *, title="Make it faster", branch="topic", owner="stranger", action="synchronize"
):
    """A `pull_request` event."""
    return {
        "action": action,
        "number": 7,
        "pull_request": {
            "url": f"https://api.github.com/repos/{REPOSITORY}/pulls/7",
            "id": 279147437,
            "number": 7,
            "state": "open",
            "title": title,
            "body": title,
            "user": {"login": owner, "id": 5, "type": "User"},
            "merge_commit_sha": "c4295bd74fb0f4fda03689c3df3f2803b658fd85",
            "head": {
                "label": f"{owner}:{branch}",
                "ref": branch,
                "sha": head,
                "user": {"login": owner},
                "repo": _elsewhere(owner, REPOSITORY_ID if owner == "octo-org" else 99),
            },
            "base": {"label": "octo-org:main", "ref": "main", "sha": base, "user": _OWNER, "repo": _HERE},
            "draft": False,
            "author_association": "FIRST_TIME_CONTRIBUTOR",
        },
        "repository": _HERE,
        "sender": {"login": owner, "id": 5, "type": "User"},
    }


def workflow_run(head: str, *, action="completed", conclusion="success", branch="topic", owner="stranger", **changes):
    """A `workflow_run` event. For a fork `pull_requests` is empty, as it is on GitHub."""
    run = {
        "id": RUN_ID,
        "name": "bench-pr",
        "head_branch": branch,
        "head_sha": head,
        "path": ".github/workflows/bench-pr.yml",
        "display_title": "Make it faster",
        "run_number": 562,
        "event": "pull_request",
        "status": "completed" if action == "completed" else action,
        "conclusion": conclusion if action == "completed" else None,
        "workflow_id": 159038,
        "html_url": f"https://github.com/{REPOSITORY}/actions/runs/{RUN_ID}",
        "pull_requests": [],
        "created_at": "2026-01-10T14:50:00Z",
        "run_started_at": "2026-01-10T14:50:00Z",
        "run_attempt": 1,
        "actor": {"login": owner},
        "repository": _HERE,
        "head_repository": _elsewhere(owner, REPOSITORY_ID if owner == "octo-org" else 99),
        "head_commit": {"id": head, "message": "Make it faster"},
        **changes,
    }
    return {"action": action, "workflow_run": run, "workflow": {"name": "bench-pr"}, "repository": _HERE, "sender": {}}


def labelled(head: str, *, name="tilegate: waiver", action="labeled"):
    """A `pull_request_target` event: somebody set a label."""
    event = pull_request("0" * 40, head, action=action)
    return event | {"label": {"name": name}, "sender": {"login": "maintainer", "id": 6, "type": "User"}}
