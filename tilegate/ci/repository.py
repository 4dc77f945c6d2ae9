"""Questions to git that `tilegate ci` asks."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from tilegate.files import UsageError
from tilegate.measuring import trees


def git(folder: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> str:
    """Run git in `folder` and return what it prints, without the last line end. Raises UsageError with git's reason."""
    done = subprocess.run(
        ["git", "-c", "core.hooksPath=/dev/null", *arguments],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",
        check=False,
    )
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["it gave no reason"])[-1]
        raise UsageError(f"git {arguments[0]} failed: {reason}")
    return done.stdout.rstrip("\n")


def fork_point(folder: Path, base: str, head: str) -> str:
    """Return the commit at which `head` left the history of `base`: what its change is measured against.

    Raises:
        UsageError: they have no common history here; the clone is shallow, say.
    """
    try:
        return git(folder, "merge-base", base, head)
    except UsageError:
        raise UsageError(
            f"no common commit of {base[:12]} and {head[:12]} is here; check out with `fetch-depth: 0`, and do not gate "
            "branches of unrelated history"
        ) from None


def same(folder: Path, base: str, head: str, path: str) -> bool:
    """Return whether a file or folder is the same in both commits; also if neither has it."""
    repository = trees.open_repository(folder)
    return trees.same_path(
        repository, trees.Revision(base, base, f"{base}^{{tree}}"), trees.Revision(head, head, f"{head}^{{tree}}"), path
    )


def tree_of(folder: Path, commit: str) -> str:
    """Return the hash of a commit's tree. Raises UsageError if the commit is not here."""
    return git(folder, "rev-parse", "--verify", f"{commit}^{{tree}}")


def release_tag(folder: Path) -> str | None:
    """Return the highest version tag (v1.2, v1.2.3) in the history of HEAD, not HEAD itself; None if there is none."""
    tags = git(folder, "tag", "--list", "v[0-9]*", "--merged", "HEAD", "--sort=-version:refname").splitlines()
    here = git(folder, "rev-parse", "HEAD")
    for tag in tags:
        name = f"refs/tags/{tag}"
        if "-" not in tag and git(folder, "rev-parse", f"{name}^{{commit}}") != here:
            return name
    return None
