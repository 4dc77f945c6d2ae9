"""The history of a branch: which commits have no results yet, and measuring them with asv."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from tilegate.ci import repository
from tilegate.files import UsageError

_CONFIG = "asv.conf.json"
_HASH_DIGITS = 8  # of a commit, in the name of its result file


def missing(folder: Path, results: Path, machine: str, limit: int) -> list[str]:
    """Return the commits without results among the last `limit` of HEAD's first-parent history, the oldest first."""
    commits = repository.git(folder, "rev-list", "--first-parent", f"--max-count={limit}", "HEAD").splitlines()
    measured = {path.name[:_HASH_DIGITS] for path in (results / machine).glob("*-*.json")}
    return [commit for commit in reversed(commits) if commit[:_HASH_DIGITS] not in measured]


def results_folder(clone: Path) -> Path:
    """Return where asv keeps results in a clone. Raises UsageError if asv.conf.json is not as expected."""
    return _inside(clone, str(_settings(clone).get("results_dir", "results")))


def html_folder(clone: Path) -> Path:
    """Return where `asv publish` writes the site. Raises UsageError."""
    return _inside(clone, str(_settings(clone).get("html_dir", "html")))


def measure(clone: Path, commits: Path, machine: str) -> int:
    """Measure the commits that the file `commits` lists with asv; return asv's exit status."""
    asv = [sys.executable, "-m", "asv"]
    subprocess.run([*asv, "machine", "--yes", "--machine", machine], cwd=clone, stdin=subprocess.DEVNULL, check=True)
    run = [*asv, "run", "--machine", machine, "--skip-existing-commits", "--show-stderr", f"HASHFILE:{commits}"]
    return subprocess.run(run, cwd=clone, stdin=subprocess.DEVNULL, check=False).returncode


def _settings(clone: Path) -> dict[str, Any]:
    try:
        text = (clone / _CONFIG).read_text(encoding="utf-8")
        loaded = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {clone / _CONFIG}: {error}") from None
    if not isinstance(loaded, dict):
        raise UsageError(f"{clone / _CONFIG} holds no settings")
    return loaded


def _inside(clone: Path, name: str) -> Path:
    path = clone / name
    if not path.resolve().is_relative_to(clone.resolve()):
        raise UsageError(f"{_CONFIG} names {name!r}, outside of the repository")
    return path
