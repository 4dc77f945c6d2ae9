"""What git says of a branch: its commits in first-parent order, and its releases."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from tilegate.files import UsageError
from tilegate.history.records import Commit, Event

_FORMAT = "%H%x1f%P%x1f%an%x1f%cI%x1f%s%x1e"
_LONGEST = 4000  # characters of a subject or a name


def commits(folder: Path, range_: str, limit: int) -> list[Commit]:
    """Return the commits of a range (`main`, `v1.0..main`), the oldest first.

    Args:
        folder: the repository.
        range_: as `git log` takes it; only first parents are followed.
        limit: at most so many, the newest.

    Raises:
        UsageError: git does not know it.
    """
    text = _git(folder, "log", "--first-parent", f"--max-count={limit}", f"--format={_FORMAT}", range_, "--")
    found: list[Commit] = []
    for entry in text.split("\x1e"):
        parts = entry.strip("\n").split("\x1f")
        if len(parts) == 5:
            sha, parents, author, date, subject = parts
            found.append(
                Commit(
                    kind="commit",
                    sha=sha,
                    parents=parents.split(),
                    author=author[:_LONGEST],
                    subject=subject[:_LONGEST],
                    date=date,
                )
            )
    return found[::-1]


def hash_of(folder: Path, revision: str) -> str:
    """Return the hash of the commit that a revision names. Raises UsageError."""
    return _git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}").strip()


def releases(folder: Path, pattern: str) -> Iterator[Event]:
    """Yield an event for each tag that fits a glob ("v*"): the commit that it names is a release."""
    listed = _git(
        folder, "for-each-ref", "--format=%(refname:short)%1f%(objectname)%1f%(*objectname)%1f%(creatordate:iso-strict)", f"refs/tags/{pattern}"
    )  # fmt: skip
    for line in listed.splitlines():
        name, object_, peeled, date = line.split("\x1f")
        yield Event(kind="event", what="release", about=name, created=date, author="git", to=peeled or object_)


def contents(folder: Path, commit: str, paths: Sequence[str]) -> str:
    """Return what identifies these paths at a commit: equal where git has the same trees and files there."""
    return _git(folder, "ls-tree", "--full-tree", commit, "--", *paths)


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments], capture_output=True, text=True, errors="replace", check=False
    )
    if done.returncode != 0:
        said = done.stderr.strip()[:300] or f"no commit is called {arguments[-1]!r}"
        raise UsageError(f"git {arguments[0]}: {said}")
    return done.stdout
