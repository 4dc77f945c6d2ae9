"""Git commands that leave a repository's index, refs, hooks and working tree alone."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tilegate.files import UsageError

QUIET = ("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "gc.auto=0")
"""Options of commands that write: no hook, no watcher and no clean-up of the user's runs."""

# Set inside git hooks; they would redirect every command here to another index or repository.
_LOCAL_VARIABLES = (
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_DIR",
    "GIT_INDEX_FILE",
    "GIT_NAMESPACE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_PREFIX",
    "GIT_WORK_TREE",
)


@dataclass(frozen=True)
class Repository:
    """A git repository.

    Attributes:
        git_dir: its git directory.
        top: the root of its working tree; None in a bare repository.
    """

    git_dir: Path
    top: Path | None


def in_repository(
    repository: Repository,
    arguments: Sequence[str],
    environment: Mapping[str, str] | None = None,
    *,
    check: bool = True,
) -> subprocess.CompletedProcess[str]:
    """Run a git command in the repository's working tree, or in a bare repository itself (see `run`)."""
    return run(arguments, repository.top or repository.git_dir, environment, check=check)


def run(
    arguments: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None, *, check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run a git command in `folder`, with `environment` added and without what git sets inside a hook.

    Raises:
        UsageError: it failed (only with `check`), git is not installed, or there is no such folder.
    """
    clean = {key: value for key, value in os.environ.items() if key not in _LOCAL_VARIABLES}
    try:
        done = subprocess.run(
            ["git", *arguments],
            cwd=folder,
            env={**clean, "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", **(environment or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",
            check=False,
        )
    except FileNotFoundError as error:
        if not folder.is_dir():
            raise UsageError(f"there is no folder {folder}") from error
        raise UsageError("git is not installed or not on PATH; install it") from error
    except NotADirectoryError as error:
        raise UsageError(f"{folder} is not a folder") from error
    if check and done.returncode != 0 and re.search("git-lfs|filter 'lfs' failed", done.stderr):
        raise UsageError(without_lfs("a file of this repository"))
    if check and done.returncode != 0:
        command = next(
            a for a, before in zip(arguments, ("", *arguments), strict=False) if a[0] != "-" and before != "-c"
        )
        raise UsageError(f"git {command} failed: {last_line(done.stderr)}")
    return done


def object_variables(git_dir: Path, objects: Path | None) -> dict[str, str]:
    """Return the environment in which new objects go to `objects` and the repository's own are still found."""
    if objects is None:
        return {}
    environment = {"GIT_DIR": str(git_dir)}
    real = Path(run(["rev-parse", "--git-path", "objects"], git_dir, environment).stdout.strip())
    real = real if real.is_absolute() else git_dir / real
    return {"GIT_OBJECT_DIRECTORY": str(objects), "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(real)}


@contextlib.contextmanager
def private_index() -> Iterator[dict[str, str]]:
    """Yield the environment that gives git an index of its own."""
    with tempfile.TemporaryDirectory(prefix="tilegate-index-") as folder:
        yield {"GIT_INDEX_FILE": str(Path(folder, "index"))}


def without_lfs(what: str) -> str:
    """Say that `what` cannot be read without git-lfs, and how to install it."""
    return f"{what} is kept in git-lfs, which is not set up here; install git-lfs, then `git lfs install && git lfs fetch --all`"


def last_line(text: str) -> str:
    """Return the last line of what git printed."""
    lines = text.strip().splitlines()
    return lines[-1] if lines else "git gave no reason"
