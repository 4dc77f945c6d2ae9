"""A kernel's arguments: checked against its parameters, and laid out in memory that its process shares."""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from tilegate.emulator.program import Program
from tilegate.emulator.source import Parameter


def checked(parameter: Parameter, arguments: Mapping[str, Any]) -> Any:
    """Return the argument for a parameter. Raises TypeError or ValueError, which name it, if it does not fit."""
    import numpy as np  # noqa: PLC0415 - importing the emulator costs nothing

    name = parameter.name
    if name not in arguments:
        raise ValueError(
            f"no argument for the kernel's parameter {name} ({parameter.type}{'*' if parameter.pointer else ''})"
        )
    value = arguments[name]
    if not parameter.pointer:
        if isinstance(value, bool | np.ndarray) or not isinstance(value, int | float | np.number):
            raise TypeError(f"{name} must be a number, got {type(value).__name__}")
        return value
    if not isinstance(value, np.ndarray):
        raise TypeError(f"{name} must be a numpy array, got {type(value).__name__}")
    if not value.flags.c_contiguous:
        raise ValueError(f"{name} must be C-contiguous")
    wanted = {"float": "f", "double": "f"}.get(parameter.type)
    right = (
        value.dtype.kind == wanted
        if wanted
        else value.dtype.kind in ("f" if parameter.type in ("half_t", "half", "_Float16") else "") + "iub"
    )
    if value.dtype.itemsize != parameter.bytes or not right:
        raise TypeError(
            f"{name} is {parameter.type}* of {parameter.bytes}-byte elements, got an array of {value.dtype}"
        )
    return value


def _scalar_bits(parameter: Parameter, value: float) -> int:
    if parameter.type in ("float", "double"):
        packed = struct.pack("<f" if parameter.type == "float" else "<d", value)
        return int.from_bytes(packed, "little")
    if parameter.type in ("half_t", "half", "_Float16", "bfloat16_t", "hip_bfloat16"):
        raise TypeError(f"{parameter.name}: numbers of type {parameter.type} are not passed by value here")
    if int(value) != value or not -(1 << (8 * parameter.bytes - 1)) <= value < 1 << (8 * parameter.bytes):
        raise ValueError(f"{parameter.name} = {value} is no {parameter.type}")
    return int(value) % (1 << (8 * parameter.bytes))


def _begin(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


def _together(arrays: Sequence[tuple[int, int, Any]]) -> list[list[tuple[int, int, Any]]]:
    """Put arrays that overlap, such as one that is passed twice, into one group: they stay one memory for the kernel."""
    groups: list[list[tuple[int, int, Any]]] = []
    end = 0
    for begin, number, array in sorted(arrays, key=lambda entry: entry[:2]):
        if groups and begin < end and array.nbytes:
            groups[-1].append((begin, number, array))
        else:
            groups.append([(begin, number, array)])
            end = 0
        end = max(end, begin + array.nbytes)
    return groups


class SharedMemory:
    """The arrays of one run in memory that this process and the one that runs the kernel share."""

    def __init__(self, program: Program, values: Sequence[Any]) -> None:
        """Lay them out; `lines` tells the process where each is."""
        self._values = values
        self.lines: list[str] = []
        self._places: list[tuple[Any, int]] = []
        total = 0
        arrays = [
            (_begin(v), number, v)
            for number, (p, v) in enumerate(zip(program.parameters, values, strict=True))
            if p.pointer
        ]
        at: dict[int, tuple[int, int]] = {}  # of each array: its memory, and where it begins there
        for memory, group in enumerate(_together(arrays)):
            begin, size = group[0][0], max(b + v.nbytes for b, _, v in group) - group[0][0]
            mapped = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
            # Without checks the end of an array is where a fault begins, as near as its alignment allows. With checks it
            # begins at a line's start, as the chip's allocator has it.
            skew = 0 if program.traced else (mapped - size) // 16 * 16
            self.lines.append(f"buffer {total} {mapped} {skew} {size} {group[0][1]}")
            for first, number, value in group:
                at[number] = (memory, first - begin)
                self._places.append((value, total + skew + first - begin))
            total += mapped
        for number, (parameter, value) in enumerate(zip(program.parameters, values, strict=True)):
            self.lines.append(
                "array {} {}".format(*at[number]) if parameter.pointer else f"scalar {_scalar_bits(parameter, value)}"
            )
        self.descriptor = os.memfd_create("tilegate-emulator")
        try:
            os.ftruncate(self.descriptor, max(total, mmap.PAGESIZE))
            self._map = mmap.mmap(self.descriptor, max(total, mmap.PAGESIZE))
        except BaseException:
            os.close(self.descriptor)
            raise

    def __enter__(self) -> SharedMemory:
        """Copy the arrays in."""
        for value, offset in self._places:
            if value.nbytes:
                self._map[offset : offset + value.nbytes] = value.tobytes()
        return self

    def __exit__(self, *_: object) -> None:
        """Let go of the memory."""
        self._map.close()
        os.close(self.descriptor)

    def fetch(self) -> None:
        """Copy what the kernel wrote into the arrays."""
        import numpy as np  # noqa: PLC0415

        for value, offset in self._places:
            if value.flags.writeable and value.nbytes:
                data = self._map[offset : offset + value.nbytes]
                value.reshape(-1).view(np.uint8)[:] = np.frombuffer(data, np.uint8)
