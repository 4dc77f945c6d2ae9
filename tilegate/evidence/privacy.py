"""Leaves out of a document what should not be in a public issue: host, user, paths, addresses, serial numbers."""

from __future__ import annotations

import contextlib
import getpass
import os
import platform
import re
import socket
from collections.abc import Mapping
from pathlib import Path

from tilegate.protocol import JSON

REMOVED = "[left out]"

_PATTERNS = (
    re.compile(r"(?<![\w.])(?:~|/)(?:[\w.+@-]+/)+[\w.+@-]*"),  # a path of at least one folder
    re.compile(r"\b[A-Za-z]:\\[^\s\"']+"),  # a path on Windows, of a cross-compiler
    re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b(?=$|[^\w.-])"),  # IPv4
    re.compile(r"(?<![\w:])(?:[0-9a-f]{0,4}:){3,7}[0-9a-f]{1,4}(?![\w:])", re.IGNORECASE),  # IPv6
    re.compile(r"(?<![\w:])(?:[0-9a-f]{2}:){5}[0-9a-f]{2}(?![\w:])", re.IGNORECASE),  # MAC
    re.compile(r"\b[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\b", re.IGNORECASE),  # PCI
    re.compile(
        r"\b(?:GPU-|MIG-)?[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", re.IGNORECASE
    ),  # UUID
    re.compile(r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+\b"),  # e-mail, user@host
    re.compile(r"\b(?:https?|ssh|git)://\S+"),  # may name an internal server
)
_SHORTEST_NAME = 3  # characters; a user "a" would take every a out of the document
_COMMON_NAMES = frozenset(
    {"root", "user", "localhost", "linux", "ubuntu", "debian", "runner", "docker", "amd", "nvidia"}
)


def private_words() -> tuple[str, ...]:
    """Return what names this machine and its user: host, domain, login, home; longest first."""
    words = {platform.node(), socket.gethostname(), platform.node().partition(".")[0], str(Path.home())}
    words |= {os.environ.get(key, "") for key in ("USER", "LOGNAME", "SUDO_USER", "HOSTNAME", "HOME")}
    with contextlib.suppress(KeyError, OSError):  # a user id without a name, in a container
        words.add(getpass.getuser())
    kept = {word for word in words if len(word) >= _SHORTEST_NAME and word.lower() not in _COMMON_NAMES}
    return tuple(sorted(kept, key=lambda word: (-len(word), word)))


def without_private(value: JSON, words: tuple[str, ...] | None = None) -> JSON:
    """Return `value` with everything private in its texts replaced by `REMOVED`; keys stay as they are.

    Args:
        value: plain JSON.
        words: further texts to remove, wherever they stand alone; None: `private_words()`.
    """
    words = private_words() if words is None else words
    if isinstance(value, str):
        return _clean(value, words)
    if isinstance(value, Mapping):
        return {key: without_private(item, words) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_private(item, words) for item in value]
    return value


def _clean(text: str, words: tuple[str, ...]) -> str:
    for pattern in _PATTERNS:
        text = pattern.sub(REMOVED, text)
    for word in words:
        text = re.sub(rf"(?<![A-Za-z0-9]){re.escape(word)}(?![A-Za-z0-9])", REMOVED, text, flags=re.IGNORECASE)
    return text
