"""What the commands that measure have in common before they do: arguments, what may be measured, how they are ended."""

from __future__ import annotations

import argparse
import contextlib
import math
import re
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Literal

from tilegate import files
from tilegate.files import UsageError
from tilegate.measuring import environment, git, trees
from tilegate.schemas.samples import Target

_LONGEST_BUDGET = 10_000.0  # minutes; a week


def refuse_dirty(repository: git.Repository, revisions: Mapping[str, trees.Revision], paths: list[str]) -> None:
    """Refuse commits that are checked out with uncommitted changes in `paths`: they would not be what is measured.

    Where one side is the files as they are, the changes are measured: that they are not in the other side is the point.

    Raises:
        UsageError: naming some of the files, and what to do.
    """
    commits = {rev: revision.commit for rev, revision in revisions.items() if revision.commit is not None}
    if len(commits) < len(revisions):
        return
    for rev, commit in commits.items():
        dirty = trees.dirty_files(repository, commit, paths)
        if dirty:
            some = ", ".join(map(_named, dirty[:3])) + (f" and {len(dirty) - 3} more" if len(dirty) > 3 else "")
            raise UsageError(
                f"{rev} is checked out and has uncommitted changes, which would not be measured: {some}; commit them, "
                f"measure them with --head {trees.WORKTREE}, or leave them out with --ignore-dirty"
            )


def _named(path: str) -> str:
    """Return the name of a file for a message: as it is if it is plain, else quoted, for it may hold anything."""
    return path if path.isprintable() else files.shown(path)


def target_named(name: Target | Literal["auto"]) -> Target:
    """Return the target that --target names; "auto" is the GPU that torch finds, else the CPU."""
    if name != "auto":
        return name
    torch = environment.probe_torch()
    if not torch.get("devices"):
        return "cpu"
    return "hip" if torch.get("rocm") else "cuda"


def default_folder(repository: git.Repository, name: str) -> Path:
    """Return the folder or file of that name in the repository's .tilegate, which git ignores; only .tilegate is made.

    Raises:
        UsageError: the repository has no working tree.
    """
    if repository.top is None:
        raise UsageError(f"{repository.git_dir} is a bare repository; say with --out DIR where the results go")
    folder = repository.top / ".tilegate"
    if not (folder / ".gitignore").exists():
        files.write_text(folder / ".gitignore", "*\n")
    return folder / name


def minutes(text: str) -> float:
    """Read the value of --budget. Raises ArgumentTypeError."""
    try:
        read = float(text)
    except ValueError:
        read = math.nan
    if not 0 < read <= _LONGEST_BUDGET:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of minutes above 0 and up to {_LONGEST_BUDGET:g}")
    return read


def pattern(text: str | None) -> re.Pattern[str] | None:
    """Read the value of -b. Raises UsageError if it is no regular expression."""
    try:
        return None if text is None else re.compile(text)
    except re.error as error:
        raise UsageError(f"-b {text!r} is not a regular expression: {error}") from None


@contextlib.contextmanager
def ending_on_signals() -> Iterator[None]:
    """Let SIGTERM (a cancelled job) and SIGHUP (a closed terminal) end the run as Ctrl-C does: samples kept, no trace."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    for number, handler in before.items():
        if handler != signal.SIG_IGN:  # nohup ignores SIGHUP
            signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
