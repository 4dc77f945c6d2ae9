"""Cases that have a fast and a slow mode: from turn to turn, or from process to process.

Some kernels alternate between two speeds, by where their buffers lie or how workgroups fall onto the chip. Their mean
says nothing, and more pairs do not narrow it. Information for the report: no verdict depends on it.

The test: sort the values, cut them into the groups that explain most of their variance, and compare that share with what
the same cut explains of uniformly distributed values, which of all shapes with a single hump come nearest to two groups
(Hartigan & Hartigan, The Dip Test of Unimodality, Annals of Statistics 1985, argue the same for theirs). A few outliers
are no mode: each of two groups must hold a fifth of the values. docs/gate-statistics.md has how often this errs.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tilegate.judging.stats import Array

_TURNS_LEVEL = 0.001  # of one replicate; there are hundreds in a run
_PROCESSES_LEVEL = 0.01  # of one case: a handful of replicates cannot show more
_SHARE = 0.2  # of all values, the least that each of two modes holds
_MOST_TURNS = 64  # more would show modes hardly any better, and there are as many cuts as pairs of them
_SIMULATED = 8000
_ROWS = 250  # simulated at once, so that memory stays small


class Groups(NamedTuple):
    """The best cut of some values into groups.

    Attributes:
        p_value: of values with a single hump being cut as well.
        cut: midway between the two neighbours of different groups that lie furthest apart.
        gap: between the centres of these two groups.
    """

    p_value: float
    cut: float
    gap: float


def grouped(values: Sequence[float] | Array, groups: int, least: int) -> Groups | None:
    """Cut `values` into `groups` groups of at least `least` values each; None if there are too few.

    Args:
        values: finite numbers.
        groups: 2 or 3.
        least: at least 1.
    """
    x = np.sort(np.asarray(values, dtype=np.float64))
    if len(x) < max(groups * least, groups + 2) or x[0] == x[-1]:
        return None
    cuts = _cuts(len(x), groups, least)
    shares = _explained(x[np.newaxis], cuts)[0]
    bounds = cuts[int(shares.argmax())]
    reference = _reference(len(x), groups, least)
    beyond = len(reference) - int(np.searchsorted(reference, shares.max(), side="left"))
    inner = range(1, groups)
    widest = max(inner, key=lambda i: x[bounds[i]] - x[bounds[i] - 1])
    centres = [x[bounds[i] : bounds[i + 1]].mean() for i in range(groups)]
    return Groups(
        p_value=(1 + beyond) / (1 + len(reference)),
        cut=float(x[bounds[widest] - 1] + x[bounds[widest]]) / 2,
        gap=float(centres[widest] - centres[widest - 1]),
    )


def between_turns(base: Sequence[float] | Array, head: Sequence[float] | Array, smallest: float) -> float | None:
    """Return how far apart the modes are between which a side switches from turn to turn, or None.

    Looked for in the pairs' ratios, which fall into two groups if one side switches and into three if both do, and in
    each side's own times. A clock that steps up or down makes those fall into groups, too, but the same pairs of both
    sides, and then it cancels in the ratio and is no mode. So the sides must disagree in a fifth of the pairs.

    Args:
        base, head: median seconds of each turn of one replicate, pair by pair.
        smallest: gap, in log ratio, below which a mode is of no interest.
    """
    if len(base) < 2:
        return None
    logs = np.log(np.asarray([base[:_MOST_TURNS], head[:_MOST_TURNS]], dtype=np.float64))
    least = max(2, math.ceil(_SHARE * logs.shape[1]))
    ratios = logs[1] - logs[0]
    mine = logs[0], logs[1] - float(np.median(ratios))
    found = [grouped(ratios, 2, least), grouped(ratios, 3, least)]
    for one, other in (mine, mine[::-1]):
        groups = grouped(one, 2, least)
        if groups is not None and np.mean((one > groups.cut) != (other > groups.cut)) >= _SHARE:
            found.append(groups)
    level = _TURNS_LEVEL / 4  # four places to look
    return max((g.gap for g in found if g is not None and g.p_value <= level and g.gap >= smallest), default=None)


def between_processes(estimates: Sequence[float], smallest: float) -> float | None:
    """Return how far apart the modes are into which processes fall, or None.

    With a fast and a slow mode on one side a replicate's ratio has two values; on both sides it has three: fast over
    slow, equal, slow over fast.

    Args:
        estimates: log ratio of each replicate; fewer than 5 show nothing.
        smallest: as in `between_turns`.
    """
    for groups, least in ((2, 2), (3, 1)):
        found = grouped(estimates, groups, least) if len(estimates) >= 5 else None
        # Both shapes are tried, so each gets half of the level.
        if found is not None and found.p_value <= _PROCESSES_LEVEL / 2 and found.gap >= smallest:
            return found.gap
    return None


def _cuts(n: int, groups: int, least: int) -> list[tuple[int, ...]]:
    """Return all ways to cut n sorted values: the bounds of the groups, 0 and n included."""
    every = ((0, *inner, n) for inner in itertools.combinations(range(1, n), groups - 1))
    return [bounds for bounds in every if all(b - a >= least for a, b in itertools.pairwise(bounds))]


def _explained(x: Array, cuts: Sequence[tuple[int, ...]]) -> Array:
    """Return, for each sorted row of `x` and each cut, the share of the row's variance that lies between the groups."""
    centred = x - x.mean(axis=1, keepdims=True)
    sums = np.concatenate([np.zeros((len(x), 1)), np.cumsum(centred, axis=1)], axis=1)
    bounds = np.array(cuts)
    within_groups = sums[:, bounds[:, 1:]] - sums[:, bounds[:, :-1]]
    between = (within_groups**2 / np.diff(bounds, axis=1)).sum(axis=2)
    explained: Array = between / (centred**2).sum(axis=1, keepdims=True)
    return explained


@functools.lru_cache(maxsize=64)
def _reference(n: int, groups: int, least: int) -> Array:
    """Return, sorted, what the best cut explains of n uniformly distributed values: simulated, the same every time."""
    rng = np.random.default_rng(1985)
    cuts = _cuts(n, groups, least)
    best = [_explained(np.sort(rng.random((_ROWS, n)), axis=1), cuts).max(axis=1) for _ in range(_SIMULATED // _ROWS)]
    return np.sort(np.concatenate(best))
