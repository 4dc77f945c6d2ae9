"""`tilegate ci publish`: keeps a history and noise profiles on a branch, and builds asv's site without other hosts.

The job that may write to the repository runs nothing but this: the measuring job hands over files, of which only those
are taken that hold records of a history, named by their content.
"""

from __future__ import annotations

import base64
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tilegate import files
from tilegate.ci import history, measure, repository, site
from tilegate.ci.github import TOKEN_VARIABLE
from tilegate.files import UsageError

BRANCH = "bench-results"
_NOISE = "noise"  # the folder of noise profiles
_MACHINE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,60}")
_NOISE_SCHEMA = (
    "tilegate-noise/1"  # tilegate.judging.noise_file, which imports numpy, has the same; a test holds them together
)
_MOST_FILES = 10_000
_MOST_BYTES = 64 * 2**20
_AUTHOR = ("-c", "user.name=github-actions[bot]", "-c", "user.email=github-actions[bot]@users.noreply.github.com")
_ATTEMPTS = 3


def keep(delivered: Path, branch: Path) -> int:
    """Add records of a history to a checkout of the branch of results, commit and push them.

    Args:
        delivered: what the measuring job handed over: a folder `history.FOLDER`.
        branch: the checkout.

    Returns:
        How many files are new; none if nothing was handed over, since nothing was missing.

    Raises:
        UsageError: something else was handed over, and then nothing is kept; or git fails.
    """
    found = _records(delivered)
    if not found:
        return 0
    return _commit(branch, found, "Add {} files of the history")


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
    return _commit(branch, {Path(noise_file(_checked(machine))): text.encode()}, "Keep the noise of a machine")


def _commit(branch: Path, found: Mapping[Path, bytes], message: str) -> int:
    """Write files into a checkout, commit and push them; return how many are new or changed."""
    for path, content in found.items():
        (branch / path).parent.mkdir(parents=True, exist_ok=True)
        (branch / path).write_bytes(content)
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


def _records(delivered: Path) -> dict[Path, bytes]:
    """Return the files by their place in the branch; if one holds anything else than records, all are refused."""
    found: dict[Path, bytes] = {}
    for path in sorted(delivered.rglob("*")):
        if path.is_dir() and not path.is_symlink():
            continue
        place = path.relative_to(delivered)
        name = place.relative_to(history.FOLDER).as_posix() if place.parts[0] == history.FOLDER else ""
        if not history.is_named_as_records(name):
            raise UsageError(f"{str(place)[:200]!r} does not look like a record of a history; nothing was kept")
        if len(found) >= _MOST_FILES:
            raise UsageError(f"more than {_MOST_FILES} files; nothing was kept")
        content = measure.take_bytes(delivered, str(place), _MOST_BYTES) or b""
        try:
            history.check(name, content, _MOST_BYTES)
        except history.NoRecordsError as error:
            raise UsageError(f"{place}: {error}; nothing was kept") from None
        found[place] = content
    return found


def _checked(machine: str) -> str:
    if not _MACHINE.fullmatch(machine) or machine == _NOISE:
        raise UsageError(f"{machine!r} is no name of a machine: letters, digits, '.', '_' and '-', and not {_NOISE!r}")
    return machine


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
            # Another run may have pushed meanwhile; records of two runs do not meet.
            repository.git(branch, "fetch", "--quiet", "origin", BRANCH, environment=environment)
            repository.git(branch, *_AUTHOR, "rebase", "--quiet", "FETCH_HEAD")
