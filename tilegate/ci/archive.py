"""Taking files out of an artifact that may have been made by an enemy.

Nothing is unpacked to disk. Only names that are asked for are read, each up to a limit that counts bytes as they come out,
not as the archive declares them.
"""

from __future__ import annotations

import io
import stat
import zipfile
import zlib
from collections.abc import Mapping

from tilegate.files import UsageError

MAX_ARCHIVE_BYTES = 128 * 2**20
_MOST_ENTRIES = 16


class HostileArchiveError(UsageError):
    """The archive is not one that the measuring job makes."""


def read(archive: bytes, limits: Mapping[str, int]) -> dict[str, bytes]:
    """Return the files of a zip.

    Args:
        archive: the zip's bytes.
        limits: the names it may hold, each with the most bytes its file may have.

    Returns:
        The files that are there, by name.

    Raises:
        HostileArchiveError: no zip; other names, paths, links, folders or the same name twice; too many bytes; encrypted,
            damaged, or packed by a method that no upload uses.
    """
    if len(archive) > MAX_ARCHIVE_BYTES:
        raise HostileArchiveError(f"the artifact has more than {MAX_ARCHIVE_BYTES} bytes")
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as opened:
            entries = opened.infolist()
            if len(entries) > _MOST_ENTRIES:
                raise HostileArchiveError(f"the artifact holds {len(entries)} entries")
            found: dict[str, bytes] = {}
            for entry in entries:
                _check(entry, limits, found)
                found[entry.filename] = _content(opened, entry, limits[entry.filename])
            return found
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError, ValueError) as error:
        raise HostileArchiveError(f"the artifact is not a readable zip: {str(error)[:200]!r}") from None


def _check(entry: zipfile.ZipInfo, limits: Mapping[str, int], found: Mapping[str, bytes]) -> None:
    # Compared whole with names of our own: "..", absolute paths, other alphabets and the rest all fail alike.
    if entry.filename not in limits:
        raise HostileArchiveError(f"the artifact holds {entry.filename[:100]!r}, which does not belong there")
    if entry.filename in found:
        raise HostileArchiveError(f"the artifact holds {entry.filename} twice")
    kind = stat.S_IFMT(entry.external_attr >> 16)
    if kind not in (0, stat.S_IFREG):
        raise HostileArchiveError(f"{entry.filename} in the artifact is a link or a device, not a file")
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise HostileArchiveError(f"{entry.filename} in the artifact is packed by an unusual method")
    if entry.file_size > limits[entry.filename]:
        raise HostileArchiveError(f"{entry.filename} in the artifact has more than {limits[entry.filename]} bytes")


def _content(opened: zipfile.ZipFile, entry: zipfile.ZipInfo, limit: int) -> bytes:
    with opened.open(entry) as stream:
        content = stream.read(limit + 1)  # without a number it would inflate 2 GiB before it counts them
    if len(content) > limit:
        raise HostileArchiveError(f"{entry.filename} in the artifact has more than {limit} bytes")
    return content
