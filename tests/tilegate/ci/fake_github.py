"""A small GitHub on this machine: the parts of the REST API that tilegate uses, over a real git repository.

Answers have the fields that GitHub's have, as far as anything here could come to rely on them, and the same faults: lists
come in pages, archives are on another host, and what a token may not do is refused.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import re
import subprocess
import tempfile
import threading
import zipfile
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from tilegate.ci.github import Client

REPOSITORY = "octo-org/kernels"
REPOSITORY_ID = 1296269
TOKEN = "ghs_16C7e42F292c6912E7710c838347Ae178B4a"  # noqa: S105 - GitHub's own example
PAGE = 2  # entries, so that every list of the tests has several pages


@dataclass
class FakeGitHub:
    """The state of the repository on GitHub; tests read and write it."""

    git_dir: Path
    pulls: list[dict] = field(default_factory=list)
    artifacts: list[dict] = field(default_factory=list)
    archives: dict[int, bytes] = field(default_factory=dict)
    approvals: list[dict] = field(default_factory=list)
    checks: list[dict] = field(default_factory=list)
    comments: dict[int, list[dict]] = field(default_factory=dict)
    issues: list[dict] = field(default_factory=list)
    events: list[dict] = field(default_factory=list)  # of labels
    permissions: dict[str, str] = field(default_factory=dict)  # of users
    runs: list[dict] = field(default_factory=list)  # of bench-pr.yml
    nights: list[dict] = field(default_factory=list)  # runs of bench-nightly.yml
    jobs: list[dict] = field(default_factory=lambda: [job("plan"), job("measure on MI300X", "Hand the samples over")])
    app: str = "github-actions"  # whose token the client has
    requests: list[tuple[str, str]] = field(default_factory=list)
    authorized: list[tuple[str, str | None]] = field(default_factory=list)  # host, what token it was shown
    faults: list[tuple[int, dict]] = field(default_factory=list)  # status and headers of the next answers
    port: int = 0

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self, **options) -> Client:
        return Client(REPOSITORY, TOKEN, self.address, self.app, **options)

    def git(self, *arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=self.git_dir, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def check(self, name: str) -> dict:
        """Return the newest check of that name, the one that a branch protection looks at."""
        return max((check for check in self.checks if check["name"] == name), key=lambda check: check["id"])

    def add_pull(self, head: str, *, number=7, branch="topic", owner="stranger", repository_id=99, base="main", **more):
        self.pulls.append(
            {
                "number": number,
                "state": "open",
                "title": "Make it faster",
                "user": {"login": owner, "id": 5, "type": "User"},
                "labels": [],
                "head": {
                    "label": f"{owner}:{branch}",
                    "ref": branch,
                    "sha": head,
                    "user": {"login": owner},
                    "repo": {"id": repository_id, "full_name": f"{owner}/kernels", "fork": True},
                },
                "base": {"label": f"octo-org:{base}", "ref": base, "sha": self.git("rev-parse", base)},
                **more,
            }
        )

    def label(self, name: str, *, by="maintainer", at="2026-01-10T15:00:00Z", kind="User", number=7, event="labeled"):
        """Set a label of a pull request, or take it away (event="unlabeled")."""
        pull = next(pull for pull in self.pulls if pull["number"] == number)
        others = [label for label in pull["labels"] if label["name"] != name]
        pull["labels"] = others + ([{"name": name}] if event == "labeled" else [])
        actor = None if by is None else {"login": by, "type": kind}
        found = {"id": 900 + len(self.events), "event": event, "actor": actor, "created_at": at, "number": number}
        self.events += [{**found, "event": "closed", "label": None}, {**found, "label": {"name": name}}]

    def add_night(self, profile: bytes | str, *, name="noise-mi300x", packed=False, **changes):
        """Let a run of bench-nightly leave a noise profile."""
        number = 9000 + len(self.nights)
        self.nights.append({"id": number, "event": "schedule", "head_branch": "main", **changes})
        content = profile.encode() if isinstance(profile, str) else profile
        self.add_artifact(name, content if packed else {"noise.json": content}, "f" * 40, run=number)

    def add_artifact(self, name: str, content: dict[str, bytes] | bytes, head: str, *, run=30433642, **more):
        number = 11 + len(self.artifacts)
        packed = content if isinstance(content, bytes) else zipped(content)
        self.archives[number] = packed
        self.artifacts.append(
            {
                "id": number,
                "name": name,
                "size_in_bytes": len(packed),
                "expired": False,
                "created_at": "2026-01-10T14:59:22Z",
                "workflow_run": {"id": run, "head_sha": head, "head_branch": "topic", "repository_id": REPOSITORY_ID},
                **more,
            }
        )


def job(name: str, step: str = "Hand the plan over", conclusion="success", at="2026-01-10T14:59:22Z") -> dict:
    """Return a job of the run, as the API describes it."""
    steps = [{"name": n, "status": "completed", "conclusion": conclusion} for n in ("Set up job", step)]
    return {"name": name, "status": "completed", "conclusion": conclusion, "completed_at": at, "steps": steps}


def zipped(content: dict[str, bytes]) -> bytes:
    """Return a zip as an upload makes it."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in content.items():
            archive.writestr(name, data)
    return packed.getvalue()


@contextlib.contextmanager
def serve(git_dir: Path):
    """Yield a FakeGitHub that answers while the context lasts."""
    state = FakeGitHub(git_dir)
    handler = type("Handler", (_Handler,), {"state": state})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    state.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _RefusedError(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class _Handler(BaseHTTPRequestHandler):
    state: FakeGitHub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        self._answer("GET")

    def do_POST(self):
        self._answer("POST")

    def do_PATCH(self):
        self._answer("PATCH")

    def _answer(self, method):
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else {}
        parts = urlsplit(self.path)
        self.state.requests.append((method, self.path))
        self.state.authorized.append((self.headers["Host"].split(":")[0], self.headers.get("Authorization")))
        if self.state.faults:
            status, headers = self.state.faults.pop(0)
            return self._send(status, b'{"message": "fault"}', headers)
        if parts.path.startswith("/blob/"):
            return self._send(200, self.state.archives[int(parts.path.split("/")[2])], {})
        try:
            if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                raise _RefusedError(401, "Bad credentials")
            prefix = f"/repos/{REPOSITORY}"
            if not parts.path.startswith(prefix):
                raise _RefusedError(404, "Not Found")
            query = {key: values[0] for key, values in parse_qs(parts.query).items()}
            return self._route(method, parts.path.removeprefix(prefix), query, body)
        except _RefusedError as refused:
            return self._send(refused.status, json.dumps({"message": str(refused)}).encode(), {})
        except subprocess.CalledProcessError:
            return self._send(404, b'{"message": "Not Found"}', {})

    def _route(self, method, path, query, body):
        for wanted, pattern, act in _ROUTES:
            found = re.fullmatch(pattern, path)
            if wanted == method and found:
                return act(self, query, body, *map(unquote, found.groups()))
        raise _RefusedError(404, f"Not Found: {method} {path}")

    # --- repository

    def repository(self, query, body):
        self._json({"id": REPOSITORY_ID, "full_name": REPOSITORY, "default_branch": "main"})

    def ref(self, query, body, name):
        self._json({"ref": f"refs/heads/{name}", "object": {"sha": self.state.git("rev-parse", f"refs/heads/{name}")}})

    def add_ref(self, query, body):
        self.state.git("update-ref", body["ref"], body["sha"], "")  # fails if it exists
        self._json(body, 201)

    def change_ref(self, query, body, name):
        old = self.state.git("rev-parse", f"refs/heads/{name}")
        if not body.get("force") and self.state.git("merge-base", old, body["sha"]) != old:
            raise _RefusedError(422, "Update is not a fast forward")
        self.state.git("update-ref", f"refs/heads/{name}", body["sha"], old)
        self._json(body)

    def add_tree(self, query, body):
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "GIT_INDEX_FILE": f"{folder}/index"}

            def git(*arguments, given=None):
                command = ["git", *arguments]
                options = {"cwd": self.state.git_dir, "env": environment, "capture_output": True, "text": True}
                return subprocess.run(command, input=given, check=True, **options).stdout.strip()

            git("read-tree", body["base_tree"])
            for file in body["tree"]:
                blob = git("hash-object", "-w", "--stdin", given=file["content"])
                git("update-index", "--add", "--cacheinfo", f"{file['mode']},{blob},{file['path']}")
            self._json({"sha": git("write-tree")}, 201)

    def add_commit(self, query, body):
        parents = [word for parent in body["parents"] for word in ("-p", parent)]
        identity = ("-c", "user.name=bot", "-c", "user.email=bot@example.invalid")
        self._json(
            {"sha": self.state.git(*identity, "commit-tree", body["tree"], *parents, "-m", body["message"])}, 201
        )

    def commit(self, query, body, sha):
        self._json({"sha": sha, "tree": {"sha": self._tree(sha)}, "parents": [], "message": "…"})

    def compare(self, query, body, basehead):
        base, _, head = basehead.partition("...")
        tip, fork = self.state.git("rev-parse", base), self.state.git("merge-base", base, head)

        def described(sha):
            return {"sha": sha, "commit": {"tree": {"sha": self._tree(sha)}, "message": "…"}}

        self._json(
            {"base_commit": described(tip), "merge_base_commit": described(fork), "status": "ahead", "files": []}
        )

    def tree(self, query, body, sha):
        entries = []
        for line in self.state.git("ls-tree", "-z", sha).split("\0"):
            if line:
                description, name = line.split("\t", 1)
                mode, kind, entry = description.split()
                entries.append({"path": name, "mode": mode, "type": kind, "sha": entry})
        self._json({"sha": sha, "tree": entries, "truncated": False})

    def contents(self, query, body, path):
        assert self.headers["Accept"] == "application/vnd.github.raw+json"
        shown = subprocess.run(
            ["git", "cat-file", "blob", f"{query['ref']}:{path}"],
            cwd=self.state.git_dir,
            capture_output=True,
            check=True,
        )
        self._send(200, shown.stdout, {"Content-Type": "application/vnd.github.raw+json"})

    def _tree(self, sha):
        return self.state.git("rev-parse", f"{sha}^{{tree}}")

    # --- pull requests and runs

    def list_pulls(self, query, body):
        self._page(
            [p for p in self.state.pulls if p["state"] == query["state"] and p["head"]["label"] == query["head"]], query
        )

    def list_artifacts(self, query, body, run):
        found = [a for a in self.state.artifacts if (a["workflow_run"] or {"id": a.get("of")})["id"] == int(run)]
        self._page(found, query, "artifacts")

    def list_jobs(self, query, body, run):
        assert query["filter"] == "latest"
        self._page(self.state.jobs, query, "jobs")

    def archive(self, query, body, number):
        # Another name for this machine: another host, as far as a client can tell.
        self._send(302, b"", {"Location": f"http://localhost:{self.state.port}/blob/{number}"})

    def list_runs(self, query, body, workflow):
        if workflow == "bench-nightly.yml":
            found = [night for night in self.state.nights[::-1] if night["head_branch"] == query["branch"]]
            return self._json({"total_count": len(found), "workflow_runs": found[: int(query["per_page"])]})
        assert workflow == "bench-pr.yml"
        found = [r for r in self.state.runs if (r["head_sha"], r["event"]) == (query["head_sha"], query["event"])]
        self._page(found, query, "workflow_runs")

    def list_events(self, query, body, number):
        self._page([event for event in self.state.events if event["number"] == int(number)], query)

    def permission(self, query, body, user):
        if user not in self.state.permissions:
            raise _RefusedError(404, "Not Found")
        self._json({"permission": self.state.permissions[user], "user": {"login": user}})

    def list_approvals(self, query, body, run):
        self._json(self.state.approvals)

    # --- checks

    def list_checks(self, query, body, sha):
        assert query["filter"] == "all"
        found = [c for c in self.state.checks if c["head_sha"] == sha and c["name"] == query["check_name"]]
        self._page(found, query, "check_runs")

    def add_check(self, query, body):
        check = {
            "id": 4000 + len(self.state.checks),
            "app": {"id": 15368, "slug": self.state.app},
            "html_url": f"https://github.com/{REPOSITORY}/runs/{4000 + len(self.state.checks)}",
            "conclusion": None,
            "status": "queued",
            **body,
        }
        self._check_check(check)
        self.state.checks.append(check)
        self._json(check, 201)

    def change_check(self, query, body, number):
        check = next(c for c in self.state.checks if c["id"] == int(number))
        check.update(body)
        self._check_check(check)
        self._json(check)

    def _check_check(self, check):
        summary = (check.get("output") or {}).get("summary", "")
        if len(summary) > 65535 or (check["status"] == "completed") != (check["conclusion"] is not None):
            raise _RefusedError(422, "Validation Failed")

    # --- comments and issues

    def list_comments(self, query, body, number):
        self._page(self.state.comments.get(int(number), []), query)

    def add_comment(self, query, body, number):
        comment = {"id": 500 + sum(map(len, self.state.comments.values())), "user": self._bot(), **self._text(body)}
        self.state.comments.setdefault(int(number), []).append(comment)
        self._json(comment, 201)

    def change_comment(self, query, body, number):
        comment = next(c for cs in self.state.comments.values() for c in cs if c["id"] == int(number))
        comment.update(self._text(body))
        self._json(comment)

    def list_issues(self, query, body):
        found = [
            issue
            for issue in self.state.issues
            if issue["state"] == query["state"]
            and query["labels"] in [label["name"] for label in issue["labels"]]
            and issue["user"]["login"] == query["creator"]
        ]
        self._page(found, query)

    def add_issue(self, query, body):
        issue = {"number": 100 + len(self.state.issues), "state": "open", "user": self._bot(), **self._text(body)}
        issue["labels"] = [{"name": name} for name in body["labels"]]
        self.state.issues.append(issue)
        self._json(issue, 201)

    def change_issue(self, query, body, number):
        issue = next(i for i in self.state.issues if i["number"] == int(number))
        issue.update(body)
        self._json(issue)

    def _bot(self):
        return {"login": f"{self.state.app}[bot]", "id": 41898282, "type": "Bot"}

    def _text(self, body):
        if len(body["body"]) > 65536:
            raise _RefusedError(422, "body is too long (maximum is 65536 characters)")
        return body

    # --- answers

    def _page(self, entries, query, key=None):
        page = int(query.get("page", 1))
        part = entries[(page - 1) * PAGE : page * PAGE]
        headers = {}
        if page * PAGE < len(entries):
            rest = "&".join([*(f"{k}={v}" for k, v in query.items() if k != "page"), f"page={page + 1}"])
            headers["Link"] = f'<{self.state.address}{urlsplit(self.path).path}?{rest}>; rel="next"'
        self._json(part if key is None else {"total_count": len(entries), key: part}, headers=headers)

    def _json(self, value, status=200, headers=None):
        self._send(status, json.dumps(value).encode(), {"Content-Type": "application/json", **(headers or {})})

    def _send(self, status, content, headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        with contextlib.suppress(ConnectionError):  # a client that has read enough hangs up
            self.wfile.write(content)


_ROUTES = (
    ("GET", r"", _Handler.repository),
    ("GET", r"/git/ref/heads/(.+)", _Handler.ref),
    ("POST", r"/git/refs", _Handler.add_ref),
    ("PATCH", r"/git/refs/heads/(.+)", _Handler.change_ref),
    ("POST", r"/git/trees", _Handler.add_tree),
    ("POST", r"/git/commits", _Handler.add_commit),
    ("GET", r"/git/commits/(\w+)", _Handler.commit),
    ("GET", r"/compare/(.+)", _Handler.compare),
    ("GET", r"/git/trees/(\w+)", _Handler.tree),
    ("GET", r"/contents/(.+)", _Handler.contents),
    ("GET", r"/pulls", _Handler.list_pulls),
    ("GET", r"/actions/runs/(\d+)/artifacts", _Handler.list_artifacts),
    ("GET", r"/actions/runs/(\d+)/jobs", _Handler.list_jobs),
    ("GET", r"/actions/artifacts/(\d+)/zip", _Handler.archive),
    ("GET", r"/actions/runs/(\d+)/approvals", _Handler.list_approvals),
    ("GET", r"/actions/workflows/([\w.-]+)/runs", _Handler.list_runs),
    ("GET", r"/issues/(\d+)/events", _Handler.list_events),
    ("GET", r"/collaborators/([^/]+)/permission", _Handler.permission),
    ("GET", r"/commits/(\w+)/check-runs", _Handler.list_checks),
    ("POST", r"/check-runs", _Handler.add_check),
    ("PATCH", r"/check-runs/(\d+)", _Handler.change_check),
    ("GET", r"/issues/(\d+)/comments", _Handler.list_comments),
    ("POST", r"/issues/(\d+)/comments", _Handler.add_comment),
    ("PATCH", r"/issues/comments/(\d+)", _Handler.change_comment),
    ("GET", r"/issues", _Handler.list_issues),
    ("POST", r"/issues", _Handler.add_issue),
    ("PATCH", r"/issues/(\d+)", _Handler.change_issue),
)


def decoded(header: str) -> str:
    """Return what a basic authorization says."""
    return base64.b64decode(header.rpartition(" ")[2]).decode()
