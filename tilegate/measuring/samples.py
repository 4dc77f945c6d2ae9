"""The samples document of a run in its output folder: started, continued, and saved after every step."""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tilegate import __version__, files
from tilegate.schemas.samples import SCHEMA, Case, Described, Failure, Samples, Side, Status

FILES = ("samples.json", "verdict.json", "report.md")

# What must be equal for a run to continue another: (place in the document, how a message calls it).
_SAME = (
    (("tilegate",), "tilegate version"),
    (("base", "tree"), "base"),
    (("head", "tree"), "head"),
    (("target",), "target"),
    (("tier",), "tier"),
    (("filter",), "filter"),
    (("config",), "configuration"),
    (("environment", "fingerprint"), "environment"),
    (("noise_profile", "digest"), "noise profile"),
)


@dataclass
class Record:
    """The samples of one run.

    Attributes:
        path: where they are kept.
        document: what is kept there.
        continued: some of it came from an earlier run.
    """

    path: Path
    document: Samples
    continued: bool = field(default=False)

    @property
    def cases(self) -> dict[str, Case]:
        """The cases by id."""
        return self.document["cases"]

    @property
    def finished(self) -> bool:
        """Whether everything was measured."""
        return self.document["finished"] is not None

    def save(self) -> None:
        """Write the document atomically: whenever the run is killed, what is on disk is whole."""
        files.write_json(self.path, self.document)

    def finish(self) -> None:
        """Say that everything was measured, and save."""
        self.document["finished"] = _now()
        self.save()

    def reopen(self) -> None:
        """Say that something is still to be measured."""
        self.document["finished"] = None

    @contextlib.contextmanager
    def timed(self, part: str) -> Iterator[None]:
        """Add the wall seconds that the context lasts to those of a part of the run; kept by the next `save`."""
        started = time.monotonic()
        try:
            yield
        finally:
            self.add_seconds(part, time.monotonic() - started)

    def add_seconds(self, part: str, seconds: float) -> None:
        """Add to the wall seconds of a part of the run."""
        parts = self.document.setdefault("stages", {})
        parts[part] = round(parts.get(part, 0.0) + seconds, 3)


def open_record(out: Path, described: Described, *, seed: int | None, fresh: bool) -> Record:
    """Continue the run in `out`, or start one.

    Args:
        out: the folder; made if missing.
        described: what is known of this run.
        seed: asked for; None takes the seed of the run that is continued, or draws one.
        fresh: discard what is there.

    Raises:
        UsageError: `out` cannot be written, or holds the samples of another run.
    """
    path = out / FILES[0]
    try:
        out.mkdir(parents=True, exist_ok=True)
        if fresh:
            for name in FILES:
                (out / name).unlink(missing_ok=True)
        for left_over in out.glob(f".{path.name}.*.tmp"):  # of a run that was killed while it wrote
            left_over.unlink(missing_ok=True)
        exists = path.exists()
    except OSError as error:
        raise files.UsageError(f"cannot write to {out}: {error.strerror or error}; name a folder with --out") from error
    document: Samples = {
        "schema": SCHEMA,
        "tilegate": __version__,
        "created": _now(),
        "finished": None,
        "base": described["base"],
        "head": described["head"],
        "target": described["target"],
        "tier": described["tier"],
        "filter": described["filter"],
        "config": described["config"],
        "environment": described["environment"],
        "seed": secrets.randbelow(2**31) if seed is None else seed,
        "cases": {},
    }
    if "noise_profile" in described:
        document["noise_profile"] = described["noise_profile"]
    _renew(document, described)
    if not exists:
        record = Record(path, document)
        record.save()
        return record
    try:
        found = files.load_samples(path)
    except files.UsageError as error:
        raise files.UsageError(f"{error}; --fresh discards it, another --out keeps it") from None
    differences = [name for place, name in _SAME if _at(found, place) != _at(document, place)]
    if seed is not None and found["seed"] != seed:
        differences.append("seed")
    if differences:
        raise files.UsageError(
            f"{out} holds the samples of another run (different {', '.join(differences)}); "
            "use another --out, or --fresh to discard them"
        )
    _renew(found, described)
    return Record(path, found, continued=True)


def _renew(document: Samples, described: Described) -> None:
    """Enter what no measurement depends on: a run that is continued takes it as it now is."""
    if "waivers" in described:
        document["waivers"] = described["waivers"]
    if "allow_head_waivers" in described:
        document["allow_head_waivers"] = described["allow_head_waivers"]
    if "asked" in described:
        document["asked"] = described["asked"]


def new_side(status: Status = "ok", failure: Failure | None = None) -> Side:
    """Return one side of a case, before anything is known but its status."""
    return {
        "status": status,
        "failure": failure,
        "identity": None,
        "resources": None,
        "checked": False,
        "host_state": [],
    }


def folder_name(parts: Sequence[str], pattern: str | None) -> str:
    """Return the name of a run's default output folder, from base, head, target and tier, and its filter."""
    # Runs with different filters are different runs, and neither should be in the other's way.
    suffix = f"-{hashlib.sha256(pattern.encode()).hexdigest()[:8]}" if pattern is not None else ""
    return "-".join(parts) + suffix


def _at(document: Samples, place: tuple[str, ...]) -> Any:
    value: Any = document
    for key in place:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
