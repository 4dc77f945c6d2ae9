"""A cache on disk: text by the hash of all that it follows from. Entries never change; the folder may be deleted."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import time
import zlib
from pathlib import Path

from tilegate import files
from tilegate.protocol.artifacts import JSON

_KEPT_SECONDS = 30 * 86_400  # an entry that nothing has read for a month is deleted


class Store:
    """Compressed texts in one folder.

    Args:
        folder: made when something is first put there; a folder that cannot be written is a cache that keeps nothing.
    """

    def __init__(self, folder: Path) -> None:
        """Touch nothing yet."""
        self._folder = folder

    def get(self, key: str) -> str | None:
        """Return the text, None if there is none or it is damaged."""
        path = self._folder / key
        try:
            text = zlib.decompress(path.read_bytes()).decode()
            os.utime(path)
        except (OSError, zlib.error, UnicodeDecodeError):
            return None
        return text

    def put(self, key: str, text: str) -> None:
        """Keep a text. Readers see all of it or nothing."""
        temporary = self._folder / f".{secrets.token_hex(8)}"
        with contextlib.suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            try:
                temporary.write_bytes(zlib.compress(text.encode(), 3))
                temporary.replace(self._folder / key)
            finally:
                temporary.unlink(missing_ok=True)

    def prune(self) -> None:
        """Delete what has not been read for a month."""
        now = time.time()
        with contextlib.suppress(OSError):
            for path in self._folder.iterdir():
                if now - path.stat().st_mtime > _KEPT_SECONDS:
                    path.unlink(missing_ok=True)


def key_of(*parts: JSON) -> str:
    """Return the name of an entry that follows from these values alone."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def default_store() -> Store:
    """Return the cache in $XDG_CACHE_HOME/tilegate/isa, by default under ~/.cache."""
    return Store(files.cache_folder("isa"))
