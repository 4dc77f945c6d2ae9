"""Steps in series of independent runs: where the times change for longer than chance lets them.

Only for series that no comparison in turns connects. Runs of one code differ by percents, so what is found here is a suspicion, to be
measured by `tilegate bisect`, and never a regression of the inbox.

The statistic is the largest cumulative sum of rank scores (a rank CUSUM: Bhattacharyya and Frierson 1981, doi 10.1214/aos/1176345458;
normal scores as van der Waerden's), standardised at every place. Its null distribution depends on nothing but the length, since runs of
one code can stand in any order: no noise is estimated, and one spike is one rank. What is left and right of a step is searched
in turn (binary segmentation). docs/history.md has precision and recall beside other detectors, on real noise.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from tilegate.history.inbox import SMALLEST
from tilegate.history.view import Case

CHANCE = 0.01
"""Of a step where there is none, for each stretch that is searched."""

SHORTEST = 4
"""Runs on either side of a step, at least: of fewer, ranks can say too little."""

_DRAWS = 4000
_LONGEST = 1000  # runs of a stretch that is searched as a whole; a longer one is searched in halves that overlap


@dataclass(frozen=True)
class Step:
    """A change between two runs of a series.

    Attributes:
        at: the first run after it.
        size: ln of after over before: the median of all differences between runs of both sides (Hodges and Lehmann 1963).
        low, high: its interval at 95 %, after a search that chose the place: no more than a hint.
        chance: of so large a sum where nothing changes.
    """

    at: int
    size: float
    low: float
    high: float
    chance: float


def steps(values: Sequence[float]) -> list[Step]:
    """Return the steps of a series, in its order.

    Args:
        values: ln seconds, a run each.
    """
    series = np.asarray(values, dtype=float)
    places: dict[int, float] = {}
    left = _windows(len(series))
    while left:
        low, high = left.pop()
        found = _largest(series[low:high])
        if found is None:
            continue
        at, chance = low + found[0], found[1]
        if at in places:
            continue
        places[at] = chance
        left += [(low, at), (at, high)]
    bounds = [0, *sorted(places), len(series)]
    made = [
        _step(series[before:at], series[at:after], at, places[at])
        for before, at, after in zip(bounds, bounds[1:], bounds[2:], strict=False)
    ]
    return [step for step in made if step is not None]


def _windows(length: int) -> list[tuple[int, int]]:
    if length <= _LONGEST:
        return [(0, length)]
    half = _LONGEST // 2
    return [(low, min(length, low + _LONGEST)) for low in range(0, length - half, half)]


def _largest(series: NDArray[np.float64]) -> tuple[int, float] | None:
    """Return the place of the largest sum, and its chance; None if it is not beyond chance."""
    if len(series) < 2 * SHORTEST:
        return None
    sums = _sums(_scores(series)[None, :])[0]
    place = int(np.argmax(sums))
    null = _null(len(series))
    chance = float((1 + len(null) - np.searchsorted(null, sums[place] - 1e-12)) / (1 + len(null)))
    return (place + SHORTEST, chance) if chance < CHANCE else None


def _scores(series: NDArray[np.float64]) -> NDArray[np.float64]:
    """Normal scores of the ranks, ties shared, with mean 0 and variance 1."""
    scores = stats.norm.ppf(stats.rankdata(series) / (len(series) + 1))
    centred = scores - scores.mean()
    spread = float(centred.std())
    return np.asarray(centred / spread if spread > 0 else centred)


def _sums(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """The standardised cumulative sums of each row, at every place that has `SHORTEST` runs on both sides."""
    count = scores.shape[1]
    before = np.arange(SHORTEST, count - SHORTEST + 1)
    sums = np.cumsum(scores, axis=1)[:, before - 1]
    return np.asarray(np.abs(sums) / np.sqrt(before * (count - before) / count))


@functools.lru_cache(maxsize=4096)
def _null(count: int) -> NDArray[np.float64]:
    """The largest sums of series in which nothing changes, sorted; the same ones every time."""
    scores = stats.norm.ppf(np.arange(1, count + 1) / (count + 1))
    scores /= scores.std()
    rng = np.random.default_rng(count)
    drawn = [_sums(rng.permuted(np.tile(scores, (part, 1)), axis=1)).max(axis=1) for part in (_DRAWS // 8,) * 8]
    return np.sort(np.concatenate(drawn))


def _step(before: NDArray[np.float64], after: NDArray[np.float64], at: int, chance: float) -> Step | None:
    differences = np.sort((after[:, None] - before[None, :]).ravel())
    size = float(np.median(differences))
    if size == 0:
        return None
    # Moses' interval: the differences that the Wilcoxon rank-sum test does not exclude, by its normal approximation.
    m, n = len(before), len(after)
    reach = 1.96 * math.sqrt(m * n * (m + n + 1) / 12)
    first = max(0, math.floor(m * n / 2 - reach))
    return Step(at, size, float(differences[first]), float(differences[m * n - 1 - first]), chance)


@dataclass(frozen=True)
class Suspicion:
    """A step in the independent runs of a case that no comparison confirms or refutes.

    Attributes:
        case: its id.
        environment, source: of the runs.
        before, after: places of the last commit before the step and the first one after it that have runs.
        step: what was found.
    """

    case: str
    environment: str
    source: str
    before: int
    after: int
    step: Step

    @property
    def slower(self) -> bool:
        """Whether it is for the worse, and by as much as makes an entry of the inbox."""
        return self.step.low > 0 and self.step.size >= SMALLEST


def suspicions(case: Case) -> list[Suspicion]:
    """Return the steps of a case's independent runs, in order of the branch.

    One value a commit and series: the median of its runs. A step between two commits that comparisons connect is left out: the
    comparisons know better.
    """
    series: dict[tuple[str, str], dict[int, list[float]]] = {}
    for place, found in case.observations.items():
        for record in found:
            values = series.setdefault((record["environment"], record["source"]), {})
            values.setdefault(place, []).append(math.log(record["seconds"]))
    made = []
    for (environment, source), values in sorted(series.items()):
        places = sorted(values)
        for step in steps([float(np.median(values[place])) for place in places]):
            before, after = places[step.at - 1], places[step.at]
            if case.contrast(before, after) is None:
                made.append(Suspicion(case.id, environment, source, before, after, step))
    return sorted(made, key=lambda one: (one.after, one.environment))
