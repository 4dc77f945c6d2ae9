"""What the commands of a history share: where it is, and how it is named to people."""

from __future__ import annotations

import argparse
import datetime
import getpass
import sys
from datetime import UTC
from pathlib import Path

from tilegate import invocation
from tilegate.history.view import History
from tilegate.measuring import trees

FOLDER = "history"
EXIT_DONE, EXIT_REGRESSED, EXIT_NOTHING = 0, 1, 4


def add_place(parser: argparse.ArgumentParser) -> None:
    """Add the options that say where the history and the repository are."""
    parser.add_argument("--store", type=Path, metavar="DIR", help=f"the history (default: .tilegate/{FOLDER})")
    parser.add_argument("--repo", type=Path, default=Path(), metavar="DIR", help="the repository (default: this one)")


def store_folder(args: argparse.Namespace) -> Path:
    """Return where the history is. Raises UsageError."""
    given: Path = args.store or _default(args.repo)
    return given.resolve()


def _default(repo: Path) -> Path:
    return invocation.default_folder(trees.open_repository(repo.resolve()), FOLDER)


def name_broken(history: History) -> None:
    """Name on stderr what the store could not read."""
    for broken in history.broken[:5]:
        print(f"tilegate: skipped {broken.path}: {broken.reason}", file=sys.stderr)
    if len(history.broken) > 5:
        print(f"tilegate: and {len(history.broken) - 5} more", file=sys.stderr)


def sha(history: History, place: int) -> str:
    """Return a commit's hash, shortened."""
    return history.commits[place].sha[:12]


def author() -> str:
    """Return who decides something here."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


def now() -> str:
    """Return the time, as records have it."""
    return datetime.datetime.now(UTC).isoformat(timespec="seconds")
