"""Bombs and lies in archives; what else a hostile one may hold is tested where it must not pass (test_ci_report.py)."""

import contextlib
import io
import resource
import struct
import tracemalloc
import zipfile
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilegate.ci import archive
from tilegate.ci.archive import HostileArchiveError

LIMITS = {"samples.json": 2**20}


def bomb(declared=None, size=64 * 2**20):
    """Zeros, packed a thousandfold; `declared` is what the archive says of their number."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as opened, opened.open("samples.json", "w") as entry:
        for _ in range(size // 2**20):
            entry.write(bytes(2**20))
    content = bytearray(made.getvalue())
    if declared is not None:
        central = content.rindex(b"PK\x01\x02")
        struct.pack_into("<I", content, central + 24, declared)
    return bytes(content)


def test_an_ordinary_archive_is_read():
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as opened:
        opened.writestr("samples.json", b"{}")
    assert archive.read(made.getvalue(), LIMITS) == {"samples.json": b"{}"}


@pytest.mark.parametrize("declared", [None, 100, 2**20], ids=["honest", "declares 100 bytes", "declares the limit"])
def test_a_bomb_is_not_unpacked(declared):
    content = bomb(declared)
    tracemalloc.start()
    with pytest.raises(HostileArchiveError):
        archive.read(content, LIMITS)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 * 2**20  # of the 64 MiB that it unpacks to


def zeros(gigabytes, declared):
    """An archive of so many zeros, made without packing them: a block of deflate that ends at a byte can be repeated."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = packer.compress(bytes(2**20)) + packer.flush(zlib.Z_FULL_FLUSH)
    data = block * (gigabytes * 1024) + packer.flush()
    name = b"samples.json"
    common = struct.pack("<HHHHHIIIHH", 20, 0, 8, 0, 0, 0, len(data), declared, len(name), 0)
    local = b"PK\x03\x04" + common + name
    central = b"PK\x01\x02" + struct.pack("<H", 20) + common + struct.pack("<HHHII", 0, 0, 0, 0o100644 << 16, 0) + name
    end = b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, 1, 1, len(central), len(local) + len(data), 0)
    return local + data + central + end


@pytest.mark.parametrize("declared", [2**32 - 2, 100, 2**20])
def test_ten_gigabytes_of_zeros_cost_no_memory(declared):
    content = zeros(10, declared)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(HostileArchiveError):
        archive.read(content, LIMITS)
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < 256 * 2**20


def test_bombs_in_bombs_and_overlapping_entries_are_counted():
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as opened:
        for n in range(17):
            opened.writestr(f"{n}.json", b"{}")
    with pytest.raises(HostileArchiveError, match="17 entries"):
        archive.read(made.getvalue(), {f"{n}.json": 10 for n in range(17)})


def test_the_same_name_twice_is_refused():
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as opened:
        opened.writestr("samples.json", b"good")
        with pytest.warns(UserWarning, match="Duplicate"):
            opened.writestr("samples.json", b"evil")
    with pytest.raises(HostileArchiveError, match="twice"):
        archive.read(made.getvalue(), LIMITS)


def test_an_unusual_method_is_refused():
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_LZMA) as opened:
        opened.writestr("samples.json", b"{}")
    with pytest.raises(HostileArchiveError, match="unusual"):
        archive.read(made.getvalue(), LIMITS)


def test_a_password_is_refused():
    content = bytearray(bomb(size=2**20))
    for mark in (content.index(b"PK\x03\x04") + 6, content.rindex(b"PK\x01\x02") + 8):
        content[mark] |= 1
    with pytest.raises(HostileArchiveError):
        archive.read(bytes(content), LIMITS)


def test_a_whole_archive_that_is_too_large_is_not_opened():
    with pytest.raises(HostileArchiveError, match="the artifact has more than"):
        archive.read(bytes(archive.MAX_ARCHIVE_BYTES + 1), LIMITS)


@given(st.binary(max_size=200), st.integers(0, 150))
def test_damage_is_an_error_and_never_another_one(noise, where):
    content = bytearray(bomb(size=2**20))
    content[where : where + len(noise)] = noise
    with contextlib.suppress(HostileArchiveError):
        assert set(archive.read(bytes(content), LIMITS)) <= set(LIMITS)
