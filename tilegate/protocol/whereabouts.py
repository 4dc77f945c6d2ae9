"""Where in an array the wrong values are, in words: a wrong result says most about its cause by its place."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    Mask = np.ndarray[Any, np.dtype[np.bool_]]

_MOST_BOXES = 4
_MOST_SPANS = 4
_PERIODS = 64
_WORTHWHILE = 0.8  # several boxes are told only if together they hold at most this part of what one would


@dataclass(frozen=True)
class Box:
    """A product of index sets that has wrong values in it, at least one at each of its indices of each axis.

    Attributes:
        indices: of each axis, ascending.
        wrong: how many values in it are wrong.
    """

    indices: tuple[tuple[int, ...], ...]
    wrong: int

    @property
    def size(self) -> int:
        """How many values it has."""
        return math.prod(map(len, self.indices))


def boxes(wrong: Mask) -> list[Box]:
    """Cover the true values of an array with boxes that share none.

    One box, the smallest, unless its parts along one axis have up to four different shadows and the boxes of these leave
    out a fifth of it.

    Args:
        wrong: of any shape, at least one axis.

    Returns:
        In the order of their first index; none if nothing is true.
    """
    import numpy as np  # noqa: PLC0415 - importing the protocol costs nothing

    if not wrong.any():
        return []
    best = [_around(wrong)]
    for axis in range(wrong.ndim if wrong.ndim > 1 else 0):
        groups: dict[tuple[bytes, ...], list[int]] = {}
        shadows: list[Mask] = [
            np.asarray(wrong.any(axis=tuple(set(range(wrong.ndim)) - {axis, other}))) for other in range(wrong.ndim)
        ]
        for index in np.flatnonzero(shadows[axis]):
            key = tuple(
                np.packbits(np.moveaxis(shadow, 0 if axis < other else -1, 0)[index]).tobytes()
                for other, shadow in enumerate(shadows)
                if other != axis
            )
            groups.setdefault(key, []).append(int(index))
            if len(groups) > _MOST_BOXES:
                break
        else:
            found = [_of_part(wrong, axis, indices) for indices in groups.values()]
            if sum(box.size for box in found) <= _WORTHWHILE * sum(box.size for box in best):
                best = found
    return best


def _around(wrong: Mask) -> Box:
    import numpy as np  # noqa: PLC0415

    every = range(wrong.ndim)
    shadows = (wrong.any(axis=tuple(set(every) - {axis})) for axis in every)
    indices = tuple(tuple(np.flatnonzero(shadow).tolist()) for shadow in shadows)
    return Box(indices, int(wrong.sum()))


def _of_part(wrong: Mask, axis: int, indices: Sequence[int]) -> Box:
    box = _around(wrong.take(indices, axis=axis))
    return Box((*box.indices[:axis], tuple(indices), *box.indices[axis + 1 :]), box.wrong)


def spelled(indices: Sequence[int]) -> str:
    """Spell ascending numbers: "0-63, 128", "0-127 that are 0-3 modulo 8", or "12 from 3 to 90" where neither is short."""
    found = _spans(indices)
    if len(found) <= _MOST_SPANS:
        return ", ".join(found)
    first, last, chosen = indices[0], indices[-1], set(indices)
    for period in range(2, min(_PERIODS, last - first) + 1):
        residues = sorted({index % period for index in indices})
        if len(residues) == period or len(_spans(residues)) > _MOST_SPANS:
            continue
        if chosen == {index for index in range(first, last + 1) if index % period in residues}:
            return f"{first}-{last} that are {', '.join(_spans(residues))} modulo {period}"
    return f"{len(indices)} from {first} to {last}"


def _spans(indices: Sequence[int]) -> list[str]:
    chosen = set(indices)
    starts = [index for index in indices if index - 1 not in chosen]
    ends = [index for index in indices if index + 1 not in chosen]
    return [str(a) if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True)]


def whereabouts(wrong: Mask, axes: Sequence[str]) -> str:
    """Say where the true values of an array are.

    Args:
        wrong: of any shape, at least one axis and one true value.
        axes: what indices of each axis are called: "rows", "columns".

    Returns:
        "all values", "all over" (some everywhere), or such as "all values of rows 128-130, columns 32-63" or "380 of the 384 values of rows 128-130"; several,
        joined by "; ", where one would hold much that is right. What is said of an axis is exact; one that is not named is
        meant whole.
    """
    parts = []
    for box in boxes(wrong):
        places = [
            f"{name} {spelled(indices)}"
            for name, indices, length in zip(axes, box.indices, wrong.shape, strict=True)
            if len(indices) < length
        ]
        amount = "all values" if box.wrong == box.size else f"{box.wrong:,} of the {box.size:,} values"
        parts.append(f"{amount} of {', '.join(places)}" if places else "all over" if box.wrong < box.size else amount)
    return "; ".join(parts)
