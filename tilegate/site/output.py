"""The folder of a site: only what changed is written, only what an earlier build wrote is removed."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tilegate.files import UsageError

MANIFEST = "tilegate-site.json"
_FORMAT = "tilegate-site/1"


class Output:
    """Files of one build.

    A file whose content is what the last build wrote is left alone, so that a build after one commit touches few. `finish`
    removes files of earlier builds that this one has not; nothing that a build did not write is ever touched.
    """

    def __init__(self, folder: Path) -> None:
        """Look at the folder.

        Raises:
            UsageError: it holds something else than a site.
        """
        self.folder = folder
        self.written = 0
        self._old, self._old_keys = _manifest(folder)
        self._new: dict[str, str] = {}
        self._keys: dict[str, str] = {}
        if not (
            folder / MANIFEST
        ).is_file():  # interrupted from here on, the folder is known as a site's, and built again
            self._note({}, {})

    @property
    def digests(self) -> Mapping[str, str]:
        """Of every file so far."""
        return self._new

    def text(self, name: str, text: str) -> None:
        """Put a file there, `name` with slashes."""
        self.content(name, text.encode())

    def content(self, name: str, content: bytes) -> None:
        """Put a file there.

        Raises:
            UsageError: it cannot be written.
        """
        digest = hashlib.sha256(content).hexdigest()[:32]
        self._new[name] = digest
        path = self.folder / name
        if self._old.get(name) == digest and path.is_file():
            return
        self._write(path, content)
        self.written += 1

    def script(self, name: str, content: object) -> None:
        """Put `data/NAME.js` there: one call that hands `content` to the page."""
        self.text(f"data/{name}.js", f"Tilegate.receive({compact(name)},{compact(content)});\n")

    def json(self, name: str, content: object) -> None:
        """Put `json/NAME.json` there, for other programs."""
        self.text(f"json/{name}.json", json.dumps(content, indent=1, allow_nan=False) + "\n")

    def unchanged(self, name: str, key: str) -> bool:
        """Whether the last build wrote this file from the same key; it then stays, and need not be made."""
        self._keys[name] = key
        if self._old_keys.get(name) != key or name not in self._old or not (self.folder / name).is_file():
            return False
        self._new[name] = self._old[name]
        return True

    def finish(self) -> None:
        """Remove what only earlier builds had, and note what this one has."""
        for name in self._old.keys() - self._new.keys():
            path = self.folder / name
            if path.resolve().is_relative_to(self.folder.resolve()):
                path.unlink(missing_ok=True)
        if dict(self._old) != self._new or dict(self._old_keys) != self._keys:
            self._note(self._new, self._keys)
            self.written += 1

    def _note(self, files: Mapping[str, str], keys: Mapping[str, str]) -> None:
        document = {"format": _FORMAT, "files": dict(sorted(files.items())), "keys": dict(sorted(keys.items()))}
        self._write(self.folder / MANIFEST, f"{json.dumps(document, indent=0)}\n".encode())

    @staticmethod
    def _write(path: Path, content: bytes) -> None:
        temporary = path.with_name(f".{path.name}.tmp")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(content)
            os.replace(temporary, path)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise UsageError(f"cannot write {path}: {error.strerror or error}") from error


def _manifest(folder: Path) -> tuple[Mapping[str, str], Mapping[str, str]]:
    path = folder / MANIFEST
    if not folder.exists():
        return {}, {}
    if not folder.is_dir():
        raise UsageError(f"{folder} is no folder")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["format"] == _FORMAT:
            files, keys = ({str(name): str(text) for name, text in found[part].items()} for part in ("files", "keys"))
            return {name: text for name, text in files.items() if ".." not in name.split("/")}, keys
    except FileNotFoundError:
        if not any(folder.iterdir()):
            return {}, {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass
    raise UsageError(f"{folder} holds something else than a site; name another folder with --out, or empty this one")


def compact(value: object) -> str:
    """Return JSON without spaces, in ASCII: in a script of its own nothing in it can end the script."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def floats(values: Iterable[float | None]) -> str:
    """Return numbers as base64 of little-endian Float32; None and infinity become NaN: not measured, not known."""
    array = np.array([math.nan if value is None else value for value in values], dtype="<f4")
    array[~np.isfinite(array)] = np.nan
    return base64.b64encode(array.tobytes()).decode()


def short(text: str) -> str:
    """Return a name for a URL that stays the same as long as the text does."""
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def number(value: float | None, digits: int = 6) -> float | None:
    """Return a number for JSON, rounded to so many significant digits; None if it is none."""
    if value is None or not math.isfinite(value):
        return None
    rounded: Any = float(f"{value:.{digits}g}")
    return float(rounded)
