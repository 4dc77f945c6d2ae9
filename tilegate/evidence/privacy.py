"""Leaves out of a document what should not be in a public issue: host, user, paths, addresses, serial numbers."""

from __future__ import annotations

import contextlib
import getpass
import ipaddress
import os
import platform
import re
import socket
import unicodedata
from collections.abc import Mapping
from pathlib import Path

from tilegate.protocol import JSON

REMOVED = "[left out]"

_PATTERNS = (
    re.compile(r"\b[a-z][a-z0-9+.-]*://\S+", re.IGNORECASE),  # may name an internal server, or hold a password
    re.compile(r"(?<![\w.])(?:~|/)(?:[\w.+@-]+/)+[\w.+@-]*"),  # a path of at least one folder
    re.compile(  # the same after a letter, as in -I/home/…
        r"/(?:home|root|Users|usr|opt|mnt|media|data|work|scratch|lustre|gpfs|nfs|srv|var|tmp|etc|run)/[\w./+@-]+"
    ),
    re.compile(r"\b[A-Za-z]:\\[^\"'\n;,)]*|\\\\[\w.-]+\\[^\"'\n;,)]*"),  # on Windows, where a name may have blanks
    re.compile(r"\b[A-Za-z]:/[^\s\"']+"),
    re.compile(r"(?<![\w:])(?:[0-9a-f]{2}[:-]){5}[0-9a-f]{2}(?![\w:])", re.IGNORECASE),  # MAC
    re.compile(r"(?<![\w:])(?:[0-9a-f]{4}:){3,7}[0-9a-f]{4}(?![\w:])", re.IGNORECASE),  # an identifier of a port
    re.compile(r"\b(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\b", re.IGNORECASE),  # PCI
    re.compile(
        r"\b(?:GPU-|MIG-)?[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", re.IGNORECASE
    ),  # UUID
    re.compile(
        r"\b(?:0x[0-9a-f]{12,}|[0-9a-f]{32}|[0-9a-f]{64})\b", re.IGNORECASE
    ),  # of a chip, a machine, a container
    re.compile(r"\b(?:serial(?:[ _-]?(?:no|number|nr))?\.?|s/n|sn)\s*[:=#]\s*\S+", re.IGNORECASE),
    re.compile(r"\b(?:gh[opsur]_|github_pat_|glpat-|hf_|sk-|xox[abp]-|AKIA|eyJ)[\w.-]{10,}"),  # tokens
    re.compile(r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)*\b"),  # e-mail, user@host
)
_ADDRESS = re.compile(
    r"(?<![\w.:-])(?:[0-9a-f]*:[0-9a-f:]*:[0-9a-f:.]*(?:%\w+)?|\d+(?:\.\d+){3})(?![\w-]|\.\w)", re.IGNORECASE
)
_SHORTEST_NAME = 3  # characters; a user "a" would take every a out of the document
_COMMON_NAMES = frozenset(
    {"root", "user", "localhost", "linux", "ubuntu", "debian", "runner", "docker", "amd", "nvidia"}
)


def private_words() -> tuple[str, ...]:
    """Return what names this machine and its user: host, domain, login, home; longest first."""
    words = {platform.node(), socket.gethostname(), platform.node().partition(".")[0], str(Path.home())}
    words |= {name.partition(".")[2] for name in (platform.node(), socket.gethostname())}
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
    text = unicodedata.normalize("NFC", text)  # else a name with an accent is another one
    for word in words:  # first: what is left of a home with a blank in it would be no path any more
        named = re.escape(unicodedata.normalize("NFC", word))
        text = re.sub(rf"(?<![^\W_]){named}(?![^\W_])", REMOVED, text, flags=re.IGNORECASE)
    for pattern in _PATTERNS:
        text = pattern.sub(REMOVED, text)
    return _ADDRESS.sub(lambda found: REMOVED if _is_address(found[0]) else found[0], text)


def _is_address(text: str) -> bool:
    """Tell an address on a network from a version and a time of day."""
    try:
        return bool(ipaddress.ip_address(text.rstrip(".")))
    except ValueError:
        return False
