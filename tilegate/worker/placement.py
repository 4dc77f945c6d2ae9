"""Where things lie in this process and on its device, drawn anew for each process and for each set-up of a case.

Why: see `tilegate.measuring.layout`. How: blocks of random sizes are allocated and every other one is freed again, so that
what is allocated next falls into holes at random places, or behind a random offset. Nothing is written into the blocks.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import random
import sys
from collections.abc import Sequence
from typing import Any, TypeVar

_T = TypeVar("_T")

_MIB = 1 << 20
_BLOCKS = 96
_SMALLEST, _LARGEST = 64, 2 * _MIB  # bytes of a block; sizes are spread evenly over their logarithms
_GRANULE = 16  # of malloc
_MOST_HOLES = 50_000  # that are filled: a second's work
_PAGE = 4096
_OBJECTS = 2000  # small ones, for which Python has an allocator of its own

# glibc gives a large buffer pages of its own, always at the same offset in its first one, until the first such buffer is
# freed; then it takes up to this size from the heap (mallopt(3), M_MMAP_THRESHOLD). Here it does so from the start.
_MMAP_THRESHOLD, _TRIM_THRESHOLD = (-3, 32 * _MIB), (-1, 64 * _MIB)

_DEVICE_BLOCKS = 24
_DEVICE_SMALLEST, _DEVICE_LARGEST = 512, 32 * _MIB  # torch's allocator rounds to 512 bytes, and by itself to 2 MiB
_DEVICE_RESERVE = 4096 * _MIB  # free memory that the case may need: with less nothing is taken


class Placement:
    """Draws places; from when it is made, for all that this process imports.

    Args:
        seed: of all that is drawn here.
    """

    def __init__(self, seed: int) -> None:
        """Draw where modules will lie."""
        self._random = random.Random(seed)  # noqa: S311 - not for secrets
        self._libc = _libc()
        self._heap: list[int] = []
        self._device: list[Any] = []
        # These stay, unlike those of a case.
        self._objects = [bytes(self._random.randrange(1, 500)) for _ in range(self._random.randrange(_OBJECTS))]
        self._offset = self._allocate(self._random.randrange(_GRANULE, _PAGE, _GRANULE))
        self._filled: list[int] = []

    def order(self, items: Sequence[_T]) -> list[_T]:
        """Return `items` in an order that is drawn."""
        return self._random.sample(list(items), len(items))

    def renew(self) -> None:
        """Draw the places of the buffers that are allocated next, in the host's memory and on the device."""
        self.release()
        if not self._filled:
            self._filled = self._fill_holes()
        blocks = [self._allocate(self._size(_SMALLEST, _LARGEST)) for _ in range(_BLOCKS)]
        mixed = self.order(blocks)
        for address in mixed[::2]:
            self._free(address)
        self._heap = mixed[1::2]
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_initialized() and torch.cuda.mem_get_info()[0] > _DEVICE_RESERVE:
            sizes = [self._size(_DEVICE_SMALLEST, _DEVICE_LARGEST) for _ in range(_DEVICE_BLOCKS)]
            self._device = self.order([torch.empty(size, dtype=torch.uint8, device="cuda") for size in sizes])[::2]

    def release(self) -> None:
        """Let go of the blocks between which the last case's buffers lay."""
        for address in self._heap:
            self._free(address)
        self._heap, self._device = [], []

    def _fill_holes(self) -> list[int]:
        """Take what imports have left free, for good: malloc would put every case's buffers there, the best fit first."""
        if self._libc is None:
            return []
        taken: list[int] = []
        size, end = _LARGEST, int(self._libc.sbrk(0))
        while size >= _SMALLEST:
            address = self._allocate(size)
            if 0 < address < end and len(taken) < _MOST_HOLES:
                taken.append(address)
            else:  # from behind all that was there: no hole of this size is left
                self._free(address)
                size //= 2
        return taken

    def _size(self, smallest: int, largest: int) -> int:
        return int(math.exp(self._random.uniform(math.log(smallest), math.log(largest))))

    def _allocate(self, size: int) -> int:
        return 0 if self._libc is None else int(self._libc.malloc(size) or 0)

    def _free(self, address: int) -> None:
        if self._libc is not None:
            self._libc.free(address)  # 0 is nothing


def _libc() -> Any:
    """Return the C library, set to take large buffers from the heap; None where it has no malloc that can be called so."""
    try:
        libc = ctypes.CDLL(None)
        libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
        libc.free.restype, libc.free.argtypes = None, [ctypes.c_void_p]
        libc.sbrk.restype, libc.sbrk.argtypes = ctypes.c_void_p, [ctypes.c_ssize_t]
    except (OSError, AttributeError):
        return None
    with contextlib.suppress(AttributeError):  # only glibc has it
        for option, size in (_MMAP_THRESHOLD, _TRIM_THRESHOLD):
            libc.mallopt(option, size)
    return libc
