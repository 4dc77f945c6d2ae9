"""The few things that looking at a launch does with numpy arrays and torch tensors, alike for both."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

_INTEGER_POISON = 0x55  # of every byte: no count, index or small result is that
_LONGEST_HEADER = 1 << 16


def is_tensor(array: Any) -> bool:
    """Return whether it is torch's; nothing is imported for that."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def is_plain(array: Any) -> bool:
    """Return whether it is an array or a tensor itself, and not of a class of its own that may do things when it is read."""
    torch = sys.modules.get("torch")
    return type(array) is np.ndarray or (torch is not None and type(array) in (torch.Tensor, torch.nn.Parameter))


def is_floating(array: Any) -> bool:
    """Return whether its values are floating-point or complex numbers."""
    if is_tensor(array):
        return bool(array.is_floating_point() or array.is_complex())
    return bool(np.issubdtype(array.dtype, np.inexact))


def size(array: Any) -> int:
    """Return the bytes of its values."""
    return int(array.numel() * array.element_size()) if is_tensor(array) else int(array.nbytes)


def elements(array: Any) -> int:
    """Return the number of its values."""
    return int(array.numel()) if is_tensor(array) else int(array.size)


def twice(array: Any, more: int) -> Any:
    """Return its values as one dimension in memory of their own, followed by the first `more` of them again."""
    if is_tensor(array):
        flat = array.detach().reshape(-1)
        return sys.modules["torch"].cat([flat, flat[:more]])
    flat = np.ravel(array)
    return np.concatenate([flat, flat[:more]])


def window(pool: Any, offset: int, like: Any) -> Any:
    """Return `pool` from `offset` on as an array of the shape of `like`; a view."""
    return pool[offset : offset + elements(like)].reshape(tuple(like.shape))


def copy_all(targets: Sequence[Any], sources: Sequence[Any]) -> None:
    """Copy each source into its target, in place; tensors all together, which a GPU does in a launch or two."""
    tensors = [pair for pair in zip(targets, sources, strict=True) if is_tensor(pair[0])]
    if tensors:
        torch = sys.modules["torch"]
        with torch.no_grad():
            torch._foreach_copy_([target.detach() for target, _ in tensors], [source for _, source in tensors])
    for target, source in zip(targets, sources, strict=True):
        if not is_tensor(target):
            np.copyto(target, source)


def poison(array: Any) -> None:
    """Fill it with what no kernel computes: NaN, or bytes of 0x55. Booleans stay."""
    value = _poison_of(array)
    if value is not None and is_tensor(array):
        array.detach().fill_(value)
    elif value is not None:
        array.fill(value)


def part(array: Any, count: int, where: float) -> Any:
    """Return a view of at most `count` neighbouring values; None of an empty array.

    Args:
        array: any; of one whose values are not in one piece, from its first row.
        count: how many.
        where: from 0 to 1, at which place.
    """
    if not elements(array):
        return None
    if is_tensor(array):
        whole = array.detach()
        flat = whole.view(-1) if whole.is_contiguous() else whole[(0,) * (whole.ndim - 1)]
    else:
        flat = array.reshape(-1) if array.flags.c_contiguous else array[(0,) * (array.ndim - 1)]
    length = min(count, len(flat))
    start = int(where * (len(flat) - length + 1))
    return flat[start : start + length]


def some_poison(array: Any, count: int, where: float) -> tuple[Any, Any] | None:
    """Return a `part`, and what to copy there so that it is poisoned; None: it takes none."""
    value, spot = _poison_of(array), part(array, count, where)
    if value is None or spot is None:
        return None
    return spot, sys.modules["torch"].full_like(spot, value) if is_tensor(array) else np.full_like(spot, value)


def backwards(array: Any) -> Any:
    """Return a copy with its values, one dimension of them, in reverse order."""
    return array.flip(0) if is_tensor(array) else array[::-1].copy()


def is_poisoned(array: Any) -> bool:
    """Return whether all of it is as `poison` left it; waits for the device. Booleans and nothing at all are never."""
    value = _poison_of(array)
    if value is None or not elements(array):
        return False
    if is_floating(array):
        return bool(array.isnan().all() if is_tensor(array) else np.isnan(array).all())
    return bool((array == value).all())


def copy(array: Any) -> Any:
    """Return a copy in memory of its own; on a GPU only queued."""
    return array.detach().clone() if is_tensor(array) else np.array(array)


def same(one: Any, other: Any) -> bool:
    """Return whether all values are the same, NaN and NaN being the same; waits for the device."""
    if is_tensor(one):
        torch = sys.modules["torch"]
        if torch.equal(one, other):
            return True
        return bool(is_floating(one) and torch.equal(one.isnan(), other.isnan()) and _alike(one, other))
    return bool(np.array_equal(one, other, equal_nan=is_floating(one)))


def _alike(one: Any, other: Any) -> bool:
    return bool(((one == other) | one.isnan()).all())


def overlap(one: Any, other: Any) -> bool:
    """Return whether they share memory, as far as their bounds tell."""
    if is_tensor(one) != is_tensor(other):
        return False
    if not is_tensor(one):
        return bool(np.may_share_memory(one, other))
    if one.device != other.device or not one.numel() or not other.numel():
        return False
    (first, last), (other_first, other_last) = _bounds(one), _bounds(other)
    return first < other_last and other_first < last


def _bounds(tensor: Any) -> tuple[int, int]:
    reach = sum((length - 1) * stride for length, stride in zip(tensor.shape, tensor.stride(), strict=True))
    start = int(tensor.data_ptr())
    return start, start + int(reach + 1) * int(tensor.element_size())


def write(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write arrays to a file that `read` understands: a line of JSON, then the bytes of each."""
    header = [
        [name, "torch" if is_tensor(array) else "numpy", _dtype(array), [int(n) for n in array.shape]]
        for name, array in arrays.items()
    ]
    with path.open("wb") as file:
        file.write(json.dumps(header).encode() + b"\n")
        for array in arrays.values():
            file.write(_bytes(array))


def read(path: Path, device: Any) -> dict[str, Any]:
    """Read what `write` wrote, tensors onto `device`. Whoever wrote it is not trusted: nothing but numbers comes of it.

    Raises:
        ValueError: it is something else.
    """
    with path.open("rb") as file:
        try:
            header = json.loads(file.readline(_LONGEST_HEADER))
            return {str(name): _read(file, kind, dtype, shape, device) for name, kind, dtype, shape in header}
        except (TypeError, AttributeError, RecursionError, OverflowError, RuntimeError) as error:
            raise ValueError(f"no results of a launch: {type(error).__name__}: {error}") from error


def _read(file: Any, kind: str, dtype: str, shape: list[int], device: Any) -> Any:
    count = math.prod(shape)
    if any(type(n) is not int or n < 0 for n in shape):
        raise ValueError(f"no shape: {shape!r:.80}")
    if kind == "numpy":
        found = np.dtype(dtype)
        if found.hasobject:
            raise ValueError(f"no numbers: {dtype!r:.80}")
        return np.frombuffer(_exactly(file, count * found.itemsize), dtype=found).reshape(shape).copy()
    import torch  # noqa: PLC0415 - only suites that use it need it

    known = getattr(torch, dtype)
    if not isinstance(known, torch.dtype):
        raise ValueError(f"no dtype of torch: {dtype!r:.80}")
    data = _exactly(file, count * known.itemsize)
    if not data:
        return torch.empty(shape, dtype=known, device=device)
    return torch.frombuffer(data, dtype=torch.uint8).view(known).reshape(shape).to(device)


def _exactly(file: Any, count: int) -> bytearray:
    data = bytearray(file.read(count))
    if len(data) != count:
        raise ValueError(f"{count} bytes were promised, and {len(data)} came")
    return data


def _dtype(array: Any) -> str:
    return str(array.dtype).removeprefix("torch.") if is_tensor(array) else str(array.dtype.str)


def _bytes(array: Any) -> Any:
    if not is_tensor(array):
        return np.ascontiguousarray(array).tobytes()
    flat = array.detach().contiguous().cpu().reshape(-1)
    return flat.view(sys.modules["torch"].uint8).numpy().data if flat.numel() else b""


def _poison_of(array: Any) -> float | int | None:
    if is_floating(array):
        return math.nan
    if is_tensor(array):
        boolean, signed = array.dtype == sys.modules["torch"].bool, array.dtype.is_signed
        each = array.element_size()
    else:
        boolean, signed = array.dtype == bool, bool(np.issubdtype(array.dtype, np.signedinteger))
        each = array.itemsize
    return None if boolean else int.from_bytes(bytes([_INTEGER_POISON]) * each, "big", signed=signed)
