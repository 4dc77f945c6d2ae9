"""The files of a history between a measuring job and the branch; where asv keeps results and site. Standard library only."""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import re
from pathlib import Path
from typing import Any

from tilegate.files import UsageError
from tilegate.history import records

FOLDER = "history"
"""The folder of the records, on the branch of results and in what a measuring job hands over."""

_CONFIG = "asv.conf.json"
_RECORD = re.compile(r"records/([a-z]{1,20})/([0-9a-f]{2})/([0-9a-f]{30})\.json")
_PACK = re.compile(r"packs/\d{4}-\d{2}-([0-9a-f]{16})\.jsonl\.xz")


class NoRecordsError(Exception):
    """A file does not hold the records that its name promises; the message says why."""


def is_named_as_records(name: str) -> bool:
    """Whether a file of a store, by its place in it, is one that holds records."""
    return bool(_RECORD.fullmatch(name) or _PACK.fullmatch(name))


def records_in(store: Path) -> list[str]:
    """Return the places of the files in a store that hold records, by their names alone."""
    names = (path.relative_to(store).as_posix() for part in ("records", "packs") for path in (store / part).rglob("*"))
    return sorted(name for name in names if is_named_as_records(name))


def check(name: str, content: bytes, limit: int) -> None:
    """Check that a file holds records, each whole, and is named by them.

    Args:
        name: its place in the store.
        content: what it holds.
        limit: the most bytes that it may have unpacked.

    Raises:
        NoRecordsError: it is something else.
    """
    try:
        if kept := _RECORD.fullmatch(name):
            text = content.decode().removesuffix("\n")
            if records.parse(text)["kind"] != kept[1] or records.name_of(text) != kept[2] + kept[3]:
                raise NoRecordsError("its content is not what its name says")
            return
        with lzma.open(io.BytesIO(content)) as file:
            unpacked = file.read(limit + 1)
        packed = _PACK.fullmatch(name)
        if len(unpacked) > limit or packed is None or hashlib.sha256(unpacked).hexdigest()[:16] != packed[1]:
            raise NoRecordsError("its content is not what its name says, or too large unpacked")
        for line in unpacked.decode().splitlines():
            records.parse(line)
    except (records.BrokenRecordError, UnicodeDecodeError, lzma.LZMAError, EOFError) as error:
        raise NoRecordsError(str(error)) from None


def results_folder(clone: Path) -> Path:
    """Return where asv keeps results in a clone. Raises UsageError if asv.conf.json is not as expected."""
    return _inside(clone, str(_settings(clone).get("results_dir", "results")))


def html_folder(clone: Path) -> Path:
    """Return where `asv publish` writes the site. Raises UsageError."""
    return _inside(clone, str(_settings(clone).get("html_dir", "html")))


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
