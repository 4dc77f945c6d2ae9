"""A small client of GitHub's REST API: retries, pages, rate limits, sizes. Standard library only.

The token comes from the environment and nowhere else, and no message shows it.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from tilegate.files import UsageError

TOKEN_VARIABLE = "GITHUB_TOKEN"  # noqa: S105 - a name
APP_VARIABLE = "TILEGATE_GITHUB_APP"
ACTIONS = "github-actions"
"""The app of all jobs."""
_API_VERSION = "2022-11-28"
_TIMEOUT = 60.0  # seconds a request
_ATTEMPTS = 5
_LONGEST_WAIT = 900.0  # seconds for a rate limit to end; a job that waits longer is better started again
_MOST_PAGES = 100
_MOST_BYTES = 32 * 2**20  # of a JSON answer
_NOT_AGAIN = 500  # statuses from here on are the server's trouble and worth another attempt


class GitHubError(UsageError):
    """GitHub refused or did not answer.

    Attributes:
        status: of HTTP; 0 if there was no answer.
    """

    def __init__(self, status: int, message: str) -> None:
        """Keep the status beside the message."""
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Client:
    """Access to one repository.

    Attributes:
        repository: "owner/name".
        token: see `from_environment`.
        api: the API's address, https unless it is this machine.
        app: whose token it is: the name in the address of the app's page. GitHub Actions, unless docs/security.md's app of
            one's own is used.
        sleep, now: time, for tests.
    """

    repository: str
    token: str = field(repr=False)
    api: str = "https://api.github.com"
    app: str = ACTIONS
    sleep: Callable[[float], None] = time.sleep
    now: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        """Refuse a repository that is no repository, and an address to which a token must not go."""
        if not re.fullmatch(r"[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+", self.repository):
            raise UsageError(f"{self.repository!r} is not owner/name; GITHUB_REPOSITORY names the repository")
        address = urllib.parse.urlsplit(self.api)
        if address.scheme != "https" and address.hostname not in ("127.0.0.1", "localhost"):
            raise UsageError(f"GITHUB_API_URL is {self.api!r}: the token is sent over https only")

    @property
    def bot(self) -> str:
        """The user as whom comments and issues are written."""
        return f"{self.app}[bot]"

    def get(self, path: str, /, **query: str) -> Any:
        """Return the JSON that a GET of `path`, below /repos/OWNER/NAME, gives. Raises GitHubError."""
        return json.loads(self._send("GET", self._address(path, query))[0])

    def find(self, path: str, /, **query: str) -> Any:
        """Do as `get`, and return None for what does not exist."""
        try:
            return self.get(path, **query)
        except GitHubError as error:
            if error.status == http.client.NOT_FOUND:
                return None
            raise

    def pages(self, path: str, key: str | None = None, /, **query: str) -> Iterator[Any]:
        """Yield the entries of all pages of a list; `key` names the list where it is wrapped in an object."""
        address: str | None = self._address(path, {"per_page": "100", **query})
        for _ in range(_MOST_PAGES):
            if address is None:
                return
            text, headers = self._send("GET", address)
            page = json.loads(text)
            yield from page if key is None else page[key]
            address = self._next(headers.get("Link") or "")
        raise GitHubError(0, f"{path} has more than {_MOST_PAGES} pages; it was not read to its end")

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """Create something. It is tried again only if it certainly was not created. Raises GitHubError."""
        return json.loads(self._send("POST", self._address(path, {}), body)[0])

    def patch(self, path: str, body: Mapping[str, Any]) -> Any:
        """Change something. Raises GitHubError."""
        return json.loads(self._send("PATCH", self._address(path, {}), body)[0])

    def text(self, path: str, commit: str, *, max_bytes: int = 2**20) -> str | None:
        """Return the text of the file at "/path" in a commit of this repository, None if it has no such file.

        Raises:
            GitHubError: it is larger than `max_bytes`, or no text.
        """
        address = self._address(f"/contents{quote(path)}", {"ref": commit})
        try:
            content, _ = self._send("GET", address, accept="application/vnd.github.raw+json", max_bytes=max_bytes)
            return content.decode("utf-8")
        except GitHubError as error:
            if error.status == http.client.NOT_FOUND:
                return None
            raise
        except UnicodeDecodeError:
            raise GitHubError(0, f"{path} of {commit[:12]} is not UTF-8 text") from None

    def download(self, path: str, *, max_bytes: int) -> bytes:
        """Return what is behind `path`, an artifact's zip, say. The token is not sent along to another host.

        Raises:
            GitHubError: there are more than `max_bytes`; no more than that are read.
        """
        return self._send("GET", self._address(path, {}), max_bytes=max_bytes)[0]

    def _address(self, path: str, query: Mapping[str, str]) -> str:
        text = urllib.parse.urlencode(query)
        return f"{self.api.rstrip('/')}/repos/{self.repository}{path}" + (f"?{text}" if text else "")

    def _next(self, links: str) -> str | None:
        found = re.search(r'<([^>]+)>;\s*rel="next"', links)
        if found is None:
            return None
        if urllib.parse.urlsplit(found[1])[:2] != urllib.parse.urlsplit(self.api)[:2]:
            raise GitHubError(0, "a list continues on another host; it was not read")
        return found[1]

    def _send(
        self,
        method: str,
        address: str,
        body: Mapping[str, Any] | None = None,
        *,
        accept: str = "application/vnd.github+json",
        max_bytes: int = _MOST_BYTES,
    ) -> tuple[bytes, Mapping[str, str]]:
        headers = {"Accept": accept, "X-GitHub-Api-Version": _API_VERSION, "User-Agent": "tilegate"}
        data = None if body is None else json.dumps(body).encode()
        if data is not None:
            headers["Content-Type"] = "application/json"
        what = f"{method} {urllib.parse.urlsplit(address).path}"
        for attempt in range(1, _ATTEMPTS + 1):
            request = urllib.request.Request(address, data, headers, method=method)  # noqa: S310 - https, see above
            # Not among the ordinary headers: those would follow a redirect to the host that stores artifacts.
            request.add_unredirected_header("Authorization", f"Bearer {self.token}")
            try:
                with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer:  # noqa: S310
                    content = answer.read(max_bytes + 1)
                    if len(content) > max_bytes:
                        raise GitHubError(0, f"{what}: the answer has more than {max_bytes} bytes; it was not read")
                    return content, dict(answer.headers)
            except urllib.error.HTTPError as error:
                wait = self._wait(error, method, attempt)
                if wait is None or attempt == _ATTEMPTS:
                    raise GitHubError(error.code, f"{what}: {_reason(error)}") from None
            except (OSError, http.client.HTTPException) as error:
                # No answer does not mean that nothing was created.
                if method == "POST" or attempt == _ATTEMPTS:
                    raise GitHubError(0, f"{what}: no answer from GitHub: {error}") from None
                wait = 2.0**attempt
            self.sleep(wait)
        raise AssertionError("the last attempt returns or raises")

    def _wait(self, error: urllib.error.HTTPError, method: str, attempt: int) -> float | None:
        """Return how many seconds to wait before another attempt, None if there should be none."""
        headers = error.headers
        limited = error.code in (403, 429) and (
            headers.get("Retry-After") or headers.get("X-RateLimit-Remaining") == "0"
        )
        if limited:
            after = headers.get("Retry-After")
            until = headers.get("X-RateLimit-Reset") or "0"
            wait = float(after) if after else max(1.0, float(until) - self.now())
            if wait > _LONGEST_WAIT:
                raise GitHubError(
                    error.code, f"GitHub's rate limit ends in {wait:.0f} s only; start the job again then"
                )
            return wait
        return 2.0**attempt if error.code >= _NOT_AGAIN and method != "POST" else None


def from_environment(environment: Mapping[str, str] = os.environ) -> Client:
    """Return a client for the repository and with the token that the environment names.

    Raises:
        UsageError: one of them is missing.
    """
    missing = [name for name in (TOKEN_VARIABLE, "GITHUB_REPOSITORY") if not environment.get(name)]
    if missing:
        raise UsageError(f"{' and '.join(missing)} must be set in the environment to talk to GitHub")
    api = environment.get("GITHUB_API_URL") or "https://api.github.com"
    app = environment.get(APP_VARIABLE) or ACTIONS
    return Client(environment["GITHUB_REPOSITORY"], environment[TOKEN_VARIABLE], api, app)


def _reason(error: urllib.error.HTTPError) -> str:
    try:
        message = json.loads(error.read(10_000)).get("message")
    except (OSError, ValueError, AttributeError):
        message = None
    hint = "; does the job's `permissions` allow it?" if error.code == http.client.FORBIDDEN else ""
    return f"HTTP {error.code} {message or error.reason}{hint}"
