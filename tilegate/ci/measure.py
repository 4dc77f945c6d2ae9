"""`tilegate ci run`: measures on a machine of ours, in a container, and keeps nothing of it but samples.

The host's part, this module, needs Python and git only: what it starts on behalf of a pull request runs in the container.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import secrets
import shutil
import signal
import stat
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import tilegate
from tilegate import files
from tilegate.ci import container, history, repository
from tilegate.files import UsageError
from tilegate.measuring import device_lock

EXIT_MEASURED, EXIT_NOT_MEASURED = 0, 4
MAX_SAMPLES_BYTES = files.MAX_BYTES
MAX_NOISE_BYTES = 8 * 2**20
_MAX_RESULT_BYTES = 64 * 2**20
# Of the time, for the timing alone; the rest is for compiling and checking. Out of budget the gate says what it could not
# decide, which is better than to be stopped in the middle.
_SHARE = 0.7
_INSIDE = {"judge": "/judge", "repository": "/repository", "out": "/out"}


@dataclass(frozen=True)
class Place:
    """Where and how to measure.

    Attributes:
        repository: a clone that has all commits asked for.
        target, tier: as for `tilegate gate`.
        out: gets what was measured and nothing else.
        image: the container's; None runs without one, which is for code of one's own only.
        minutes: the most that it may take.
        noise: a noise profile from a place that no change writes to; used if it is there and fits this machine.
    """

    repository: Path
    target: str
    tier: str
    out: Path
    image: str | None
    minutes: float
    noise: Path | None = None


def gate(place: Place, base: str, head: str) -> int:
    """Measure `head` against `base`; leave samples.json in `place.out`.

    Returns:
        0 if there are samples, complete or not, whatever they say: the verdict is somebody else's. Else 4.

    Raises:
        UsageError: it cannot be done as asked.
    """
    for commit in (base, head):
        repository.tree_of(place.repository, commit)
    command = ["gate", "--base", base, "--head", head, "--target", place.target, "--tier", place.tier]
    command += ["--budget", f"{_SHARE * place.minutes:g}"]
    with _workspace(place) as work:
        profile = None if place.noise is None else take(place.noise.parent, place.noise.name, MAX_NOISE_BYTES)
        if profile is not None:
            files.write_text(work / "noise.json", profile)
            command += ["--noise-profile", "{out}/noise.json", "--skip-unfit-noise"]
        status = _tilegate(place, work, [*command, "--repo", "{repository}", "--out", "{out}/run", "--json"])
        samples = take(work, "run/samples.json", MAX_SAMPLES_BYTES)
        if samples is None:
            print(f"tilegate: no samples; the gate ended with status {status}", file=sys.stderr)
            return EXIT_NOT_MEASURED
        files.write_text(place.out / "samples.json", samples)
    print(f"tilegate: samples are in {place.out}; the gate ended with status {status}", file=sys.stderr)
    return EXIT_MEASURED


def update_history(place: Place, store: Path, *, limit: int) -> int:
    """Bring the history of the checked-out branch up to date with `tilegate history update`, the newest first.

    Args:
        place: see `Place`; `out` gets the new records, packed, in `history.FOLDER`.
        store: the history so far; it may be missing.
        limit: how many commits back to look.

    Returns:
        0 if it was carried out, whatever is still missing; else 4.

    Raises:
        UsageError: it cannot be done as asked.
    """
    with _workspace(place) as work:
        folder = work / "history"
        if store.is_dir():
            shutil.copytree(store, folder, symlinks=True)
        before = set(history.records_in(folder))
        where = ["--repo", "{repository}", "--store", "{out}/history"]
        update = [
            "history",
            "update",
            "HEAD",
            *where,
            "--target",
            place.target,
            "--tier",
            place.tier,
            "--limit",
            str(limit),
        ]
        status = _tilegate(place, work, [*update, "--minutes", f"{_SHARE * place.minutes:g}", "--no-asv"])
        # What was measured before a failure is kept, too.
        packed = _tilegate(place, work, ["history", "pack", "--all", *where]) if folder.is_dir() else status
        new = [name for name in history.records_in(folder) if name not in before]
        for name in new:
            content = take_bytes(work, f"history/{name}", _MAX_RESULT_BYTES)
            if content is not None:
                target = place.out / history.FOLDER / name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)
    print(f"tilegate: {len(new)} new files of the history; the update ended with status {status}", file=sys.stderr)
    return EXIT_MEASURED if status == packed == 0 else EXIT_NOT_MEASURED


def calibrate(place: Place) -> int:
    """Measure the noise of this machine with `tilegate calibrate`; leave its profile in `place.out`. As `gate`."""
    with _workspace(place) as work:
        command = [
            "calibrate",
            "--repo",
            "{repository}",
            "--rev",
            "HEAD",
            "--target",
            place.target,
            "--tier",
            place.tier,
        ]
        command += ["--budget", f"{_SHARE * place.minutes:g}"]
        status = _tilegate(place, work, [*command, "--out", "{out}/noise.json"])
        profile = take(work, "noise.json", MAX_NOISE_BYTES)
        if profile is None:
            print(f"tilegate: no noise profile; calibration ended with status {status}", file=sys.stderr)
            return EXIT_NOT_MEASURED
        files.write_text(place.out / "noise.json", profile)
    return EXIT_MEASURED


def take(folder: Path, name: str, limit: int) -> str | None:
    """Return the text of a JSON file that somebody else left in a folder of ours, None if there is none. As `take_bytes`."""
    content = take_bytes(folder, name, limit)
    if content is None:
        return None
    try:
        text = content.decode("utf-8")
        json.loads(text)
    except (ValueError, RecursionError):
        raise UsageError(f"{name} is not JSON") from None
    return text


def take_bytes(folder: Path, name: str, limit: int) -> bytes | None:
    """Return a file that somebody else left in a folder of ours, None if there is none.

    Args:
        folder: ours.
        name: of the file, below it. Neither it nor a folder on the way may be a link, which could lead anywhere.
        limit: the most bytes it may have.

    Raises:
        UsageError: there is a link, a pipe, or too much there.
    """
    try:
        with open(name, "rb", opener=functools.partial(_as_it_is, folder)) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise UsageError(f"{name} is not a regular file")
            content = file.read(limit + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror}") from None
    if len(content) > limit:
        raise UsageError(f"{name} has more than {limit} bytes")
    return content


def _as_it_is(folder: Path, name: str, flags: int) -> int:
    """Open a file below a folder, every step without following a link, and without waiting for a pipe."""
    *between, last = Path(name).parts
    here = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for part in between:
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=here)
            os.close(here)
            here = inner
        return os.open(last, flags | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=here)
    finally:
        os.close(here)


def _tilegate(place: Place, work: Path, command: Sequence[str]) -> int:
    """Run a tilegate command on the device, which is locked meanwhile; return its exit status."""
    judge = Path(tilegate.__file__).resolve().parents[1]
    where = _INSIDE if place.image else {"judge": str(judge), "repository": str(place.repository), "out": str(work)}
    words = [word.format(**where) for word in command]
    python = "python3" if place.image else sys.executable
    environment = {
        "PYTHONPATH": where["judge"],
        "PYTHONDONTWRITEBYTECODE": "1",
        "HOME": f"{where['out']}/home",
        "XDG_CACHE_HOME": f"{where['out']}/cache",
        "TILEGATE_TARGET": place.target,
        "TILEGATE_TIER": place.tier,
        # The files were checked out by the user who runs the container, but git asks who owns the folder above them.
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "safe.directory",
        "GIT_CONFIG_VALUE_0": "*",
    }
    (work / "home").mkdir(exist_ok=True)
    # In the container everybody has a /tmp, and so a lock, of his own: it has to be held here.
    with _lock(place), _ending_on_signals():
        full = [python, "-P", "-m", "tilegate.cli", *words]
        if place.image is None:
            return _here(full, {**os.environ, **environment}, place.minutes)
        box = container.Box(
            image=container.checked_image(place.image),
            name=f"tilegate-{container.runner_name()}-{secrets.token_hex(6)}",
            read_only=[(judge, where["judge"]), (place.repository, where["repository"])],
            writable=(work, where["out"]),
            environment=environment,
            render_node=_render_node(place),
            engine=os.environ.get("TILEGATE_CONTAINER_ENGINE") or "docker",
        )
        return container.run(box, full, where["out"], seconds=60 * place.minutes)


def _here(command: Sequence[str], environment: Mapping[str, str], minutes: float) -> int:
    import subprocess  # noqa: PLC0415 - without a container: a workstation

    try:
        return subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, timeout=60 * minutes, check=False
        ).returncode
    except subprocess.TimeoutExpired:
        raise UsageError(f"stopped after {minutes:g} minutes, the limit") from None


def _render_node(place: Place) -> str | None:
    if place.target == "cpu":
        return None
    return container.checked_render_node(os.environ.get(container.DEVICE_VARIABLE))


def _say(text: str) -> None:
    print(f"tilegate: {text}", file=sys.stderr)


@contextlib.contextmanager
def _lock(place: Place) -> Iterator[None]:
    if place.image is None:  # the gate itself takes it
        yield
        return
    node = _render_node(place)
    if node is not None:
        os.environ["HIP_VISIBLE_DEVICES"] = Path(node).name  # by which the lock names the device
    who = f"tilegate ci run, job {os.environ.get('GITHUB_RUN_ID', 'by hand')}"
    with device_lock.hold(place.target, wait=True, who=who, say=_say):
        yield


@contextlib.contextmanager
def _workspace(place: Place) -> Iterator[Path]:
    """Make the one folder that the container may write to; it is gone afterwards, with all that was left in it."""
    place.out.mkdir(parents=True, exist_ok=True)
    if any(place.out.iterdir()):
        raise UsageError(f"{place.out} is not empty; what is in it would be taken for results of this run")
    with tempfile.TemporaryDirectory(
        prefix="tilegate-ci-", dir=os.environ.get("RUNNER_TEMP"), ignore_cleanup_errors=True
    ) as folder:
        yield Path(folder)


@contextlib.contextmanager
def _ending_on_signals() -> Iterator[None]:
    """Let SIGTERM, which a cancelled job gets, end the container and not this process alone."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
