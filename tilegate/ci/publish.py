"""`tilegate ci publish`: keeps result files on a branch, and builds a site that needs no other host.

The job that may write to the repository runs nothing but this: the measuring job hands over files, of which only those
are taken that look exactly like asv's results.
"""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilegate import files
from tilegate.ci import history, measure, repository, site
from tilegate.ci.github import TOKEN_VARIABLE
from tilegate.files import UsageError

BRANCH = "bench-results"
_NAME = re.compile(r"machine\.json|[0-9a-f]{8}-[A-Za-z0-9_.+-]{1,200}\.json")
_NOISE = "noise"  # the folder of noise profiles
_MACHINE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,60}")
_SUITE = Path("benchmarks.json")  # in which asv describes the benchmarks
_NOISE_SCHEMA = (
    "tilegate-noise/1"  # tilegate.judging.noise_file, which imports numpy, has the same; a test holds them together
)
_MOST_FILES = 10_000
_MOST_BYTES = 64 * 2**20
_AUTHOR = ("-c", "user.name=github-actions[bot]", "-c", "user.email=github-actions[bot]@users.noreply.github.com")
_ATTEMPTS = 3


def keep(delivered: Path, branch: Path, machine: str) -> int:
    """Add result files to a checkout of the branch of results, commit and push them.

    Args:
        delivered: what the measuring job handed over: a folder of its machine with result files.
        branch: the checkout.
        machine: asv's name for that machine; of another one it has nothing to say.

    Returns:
        How many files are new or changed; none if nothing was handed over, since nothing was missing.

    Raises:
        UsageError: something else was handed over, and then nothing is kept; or git fails.
    """
    found = _results(delivered, _checked(machine))
    if not found:
        return 0
    return _commit(branch, found, "Add results of {} files")


def noise_file(machine: str) -> str:
    """Return where on the branch of results the noise of a machine is. Not *.json: asv would take it for a result."""
    return f"{_NOISE}/{machine}.profile"


def keep_noise(profile: Path, branch: Path, machine: str) -> int:
    """Put a noise profile in the place of the one before on the branch of results, commit and push it.

    Args:
        profile: what `ci run --calibrate` left.
        branch: a checkout of the branch.
        machine: asv's name for the machine.

    Returns:
        1, or 0 if there is no profile.

    Raises:
        UsageError: it is no noise profile, and then nothing is kept; or git fails.
    """
    text = measure.take(profile.parent, profile.name, measure.MAX_NOISE_BYTES)
    if text is None:
        return 0
    try:
        document = files.parse_json(text.encode())  # refuses NaN, which asv's results may hold
    except UsageError as error:
        raise UsageError(f"{profile.name} {error}; nothing was kept") from None
    # Who uses it checks it against its schema; that needs more than the standard library.
    if not isinstance(document, dict) or document.get("schema") != _NOISE_SCHEMA or not document.get("cases"):
        raise UsageError(f"{profile.name} is no noise profile ({_NOISE_SCHEMA}) with cases; nothing was kept")
    return _commit(branch, {Path(noise_file(_checked(machine))): text}, "Keep the noise of a machine")


def _commit(branch: Path, found: Mapping[Path, str], message: str) -> int:
    """Write files into a checkout, commit and push them; return how many are new or changed."""
    for path, text in found.items():
        files.write_text(branch / path, text)
    repository.git(branch, "add", "--", *sorted({path.parts[0] for path in found}))
    changed = repository.git(branch, "diff", "--cached", "--name-only").splitlines()
    if changed:
        repository.git(branch, *_AUTHOR, "commit", "--quiet", "--message", message.format(len(changed)))
        _push(branch)
    return len(changed)


def build(clone: Path, assets: Path) -> Path:
    """Build asv's site from the results in a clone, with everything it needs inside; return its folder.

    Args:
        clone: the checkout, with the results where asv.conf.json has them.
        assets: the installed packages of .github/site.

    Raises:
        UsageError: asv fails, or the site would still load something from elsewhere.
    """
    done = subprocess.run([sys.executable, "-m", "asv", "publish"], cwd=clone, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        raise UsageError(f"asv publish ended with status {done.returncode}")
    html = history.html_folder(clone)
    site.vendor(html, assets)
    return html


def _results(delivered: Path, machine: str) -> dict[Path, str]:
    """Return the result files by their place in the branch; anything else is refused."""
    found: dict[Path, str] = {}
    for path in sorted(delivered.rglob("*")):
        if path.is_dir() and not path.is_symlink():
            continue
        place = path.relative_to(delivered)
        if place != _SUITE and (place.parent != Path(machine) or not _NAME.fullmatch(place.name)):
            raise UsageError(f"{str(place)[:200]!r} does not look like a result of asv on {machine}; nothing was kept")
        if len(found) >= _MOST_FILES:
            raise UsageError(f"more than {_MOST_FILES} files; nothing was kept")
        text = measure.take(delivered, str(place), _MOST_BYTES)
        _check(json.loads(text or "null"), place)
        found[place] = text or ""
    return found


def _checked(machine: str) -> str:
    if not _MACHINE.fullmatch(machine) or machine == _NOISE:
        raise UsageError(f"{machine!r} is no name of a machine: letters, digits, '.', '_' and '-', and not {_NOISE!r}")
    return machine


def _check(document: Any, place: Path) -> None:
    wanted: dict[str, type] = {"version": int}
    if place.name == "machine.json":
        wanted |= {"machine": str}
    elif place != _SUITE:
        wanted |= {"commit_hash": str, "env_name": str, "results": dict}
    if not isinstance(document, dict) or any(not isinstance(document.get(key), kind) for key, kind in wanted.items()):
        raise UsageError(f"{place} lacks {', '.join(wanted)} of asv's results; nothing was kept")
    if "commit_hash" in wanted and not document["commit_hash"].startswith(place.name[:8]):
        raise UsageError(f"{place} holds results of another commit than its name says; nothing was kept")


def _push(branch: Path) -> None:
    token = os.environ.get(TOKEN_VARIABLE)
    if not token:
        raise UsageError(f"{TOKEN_VARIABLE} must be set in the environment to push")
    # In the environment and not on a command line, which every process of the machine can read.
    secret = base64.b64encode(f"x-access-token:{token}".encode()).decode()
    environment = {
        **os.environ,
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "http.extraHeader",
        "GIT_CONFIG_VALUE_0": f"Authorization: Basic {secret}",
    }
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            repository.git(branch, "push", "--quiet", "origin", f"HEAD:refs/heads/{BRANCH}", environment=environment)
            return
        except UsageError:
            if attempt == _ATTEMPTS:
                raise
            # Another run may have pushed meanwhile; result files of two runs do not meet.
            repository.git(branch, "fetch", "--quiet", "origin", BRANCH, environment=environment)
            repository.git(branch, *_AUTHOR, "rebase", "--quiet", "FETCH_HEAD")
