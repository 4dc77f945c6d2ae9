"""Statistics of paired measurements: pure functions, deterministic, free of files and devices.

The unit is the log ratio of one pair, d = ln(head's seconds / base's), as `tilegate.judging.measured` takes it from launches.
Positive is slower. Nothing is assumed of the noise of d but that it is symmetric; all tests and intervals hold exactly for
small samples.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

# A tie is what would be a tie in exact arithmetic: times have at most about six digits, and ln and the shift round.
_TIE = 1e-12


@dataclass(frozen=True)
class Interval:
    """A location estimate and its one-sided bounds, all in log ratio; a bound that the data cannot give is infinite."""

    low: float
    estimate: float
    high: float


def medians_of_ratios(base: Sequence[Sequence[float]], head: Sequence[Sequence[float]]) -> Array:
    """Return, of every pair, the median of ln(head / base) over its launches, of which those of one number were neighbours.

    Args:
        base, head: for each pair, the seconds of each launch; of both sides as many.

    Raises:
        ValueError: unequal numbers, or a time that is not positive and finite.
    """
    found = []
    for turns in zip(base, head, strict=True):
        times = np.array(turns, dtype=np.float64)
        if not (np.isfinite(times) & (times > 0)).all():
            raise ValueError("every time must be a positive finite number of seconds")
        found.append(np.median(np.log(times[1] / times[0])))
    return np.array(found, dtype=np.float64)


def medians(turns: Sequence[Sequence[float]]) -> Array:
    """Return the median of every turn, given the seconds of each launch.

    Raises:
        ValueError: a median that is no positive finite number.
    """
    if len({len(turn) for turn in turns}) == 1:  # nearly always, and a hundred times as fast as one by one
        found: Array = np.median(np.asarray(turns, dtype=np.float64), axis=1)
    else:
        found = np.array([np.median(turn) for turn in turns], dtype=np.float64)
    if not (np.isfinite(found) & (found > 0)).all():
        raise ValueError("every median must be a positive finite number of seconds")
    return found


def walsh_averages(d: Array) -> Array:
    """Return the n(n+1)/2 averages (d[i] + d[j]) / 2 with i <= j, sorted."""
    i, j = _pairs_of(len(d))
    averages: Array = np.sort((d[i] + d[j]) / 2)
    return averages


def hodges_lehmann(d: Array) -> float:
    """Return the Hodges-Lehmann estimate of the centre of `d`: the median of its Walsh averages.

    Raises:
        ValueError: no data.
    """
    if len(d) == 0:
        raise ValueError("no pairs, so no estimate")
    return float(np.median(walsh_averages(d)))


def hodges_lehmann_interval(d: Array, tail: float) -> Interval:
    """Return the Hodges-Lehmann estimate with the exact distribution-free bounds that belong to the Wilcoxon test.

    Each bound alone is missed with a probability of at most `tail` if the noise is symmetric, whatever else it is. (With
    ties the true probability is lower still: Hollander, Wolfe & Chicken 2014, 3.3.) With too few pairs for that level,
    2**-n > tail, the bounds are infinite.
    """
    averages = walsh_averages(d)
    dropped = _critical(len(d), tail)
    if dropped < 0:
        return Interval(-math.inf, hodges_lehmann(d), math.inf)
    return Interval(float(averages[dropped]), hodges_lehmann(d), float(averages[-1 - dropped]))


def standard_error(d: Array) -> float:
    """Return the standard error of the Hodges-Lehmann estimate, from the width of its interval at about 1 sigma.

    Robust where the standard deviation is not: a single outlier cannot carry it away. Infinite for fewer than 3 pairs.
    """
    if len(d) < 3:
        return math.inf
    # The level nearest to one sigma that n pairs offer; for 3 pairs and up it exists.
    dropped = max(_critical(len(d), 1 - NormalDist().cdf(1.0)), 0)
    achieved = float(_tail_of_ranks(len(d))[dropped])
    averages = walsh_averages(d)
    return float(averages[-1 - dropped] - averages[dropped]) / (2 * -NormalDist().inv_cdf(achieved))


def wilcoxon_greater(d: Array, shift: float = 0.0) -> float:
    """Return the exact p-value of the Wilcoxon signed-rank test of "the centre of d is at most `shift`".

    Exact also with ties: the null distribution is that of the mid-ranks at hand under all 2**n sign patterns. (scipy's
    `wilcoxon(method="exact")` uses the distribution for distinct values even if there are ties.) Zeros keep their rank
    and count for neither side (Pratt 1959). No data: 1.
    """
    x = np.asarray(d, dtype=np.float64) - shift
    x = np.where(np.abs(x) <= _TIE, 0.0, x)
    if not x.any():
        return 1.0
    ranks = _doubled_ranks(np.abs(x))
    if not (ranks % 2).any():
        ranks = ranks // 2  # no ties: the same numbers again for every sample of this size
    statistic = int(ranks[x > 0].sum())
    distribution = _sum_distribution(tuple(int(r) for r in np.sort(ranks[x != 0])))
    return min(1.0, float(distribution[statistic:].sum()))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's step-down adjusted p-values: reject those <= alpha, and any false rejection has probability alpha.

    Holds however the tests depend on each other (Holm 1979).
    """
    order = np.argsort(p_values, kind="stable")
    adjusted = [0.0] * len(p_values)
    running = 0.0
    for position, index in enumerate(order):
        running = max(running, min(1.0, (len(p_values) - position) * p_values[index]))
        adjusted[index] = running
    return adjusted


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """Return Benjamini-Hochberg adjusted p-values: of those <= q, an expected share of at most q is false.

    For lists that somebody looks through (improvements, nightly reports), not for a check that blocks.
    """
    from scipy.stats import false_discovery_control  # noqa: PLC0415  (slow import, not needed for a verdict)

    return [float(p) for p in false_discovery_control(p_values)] if len(p_values) else []


def between_variance(estimates: Sequence[float], errors: Sequence[float]) -> float:
    """Return the variance between replicates beyond what their standard errors explain; 0 where there is none.

    Moment estimate: sample variance of the replicates' estimates minus the mean of their squared errors.
    """
    if len(estimates) < 2:
        return 0.0
    return max(0.0, float(np.var(estimates, ddof=1)) - float(np.mean(np.square(errors))))


def effective_number(weights: Sequence[float]) -> float:
    """Return how many values of equal weight average as well as these do: (sum w)**2 / sum w**2 (Kish 1965, 11.7).

    Independent values of variance s2, weighted by `weights`, have a mean of variance s2 over this number.
    """
    return sum(weights) ** 2 / sum(w * w for w in weights)


def freedom_of(pairs: int) -> float:
    """Return the degrees of freedom of `standard_error` squared: two thirds of the number of pairs.

    Simulated: 5.3, 10, 20 and 42 for 8, 16, 32 and 64 normal values. With heavier tails it scatters more, and is too large
    by more than that takes away, so that Student's t with this many errs to the safe side (tests/tilegate/judging/test_stats.py).
    """
    return 2 * pairs / 3


def freedom_of_sum(parts: Sequence[tuple[float, float]]) -> float:
    """Return the degrees of freedom of a sum of independent variance estimates (Welch 1947, Satterthwaite 1946).

    Args:
        parts: each variance and its degrees of freedom; infinite ones for a variance that is known.
    """
    uncertain = sum(variance**2 / freedom for variance, freedom in parts)
    return sum(variance for variance, _ in parts) ** 2 / uncertain if uncertain > 0 else math.inf


def student_quantile(tail: float, freedom: float) -> float:
    """Return which value of Student's t leaves `tail` beyond it on one side; the normal one if `freedom` is infinite."""
    from scipy.special import stdtrit  # noqa: PLC0415 (slow import)

    return -float(stdtrit(freedom, tail)) if math.isfinite(freedom) else normal_quantile(tail)


def student_tail(t: float, freedom: float) -> float:
    """Return the probability that Student's t exceeds `t`; the normal one if `freedom` is infinite."""
    from scipy.special import stdtr  # noqa: PLC0415 (slow import)

    return float(stdtr(freedom, -t)) if math.isfinite(freedom) else normal_tail(t)


def normal_quantile(tail: float) -> float:
    """Return how many standard deviations leave `tail` beyond them on one side."""
    return -NormalDist().inv_cdf(tail)


def normal_tail(z: float) -> float:
    """Return the probability that a standard normal variable exceeds `z`, accurate far out."""
    return 0.5 * math.erfc(z / math.sqrt(2))


def smallest_detectable_effect(error: float, *, tail: float, power: float, null: float, least: float) -> float:
    """Return the smallest true effect that is called with probability `power`.

    A call needs an estimate of at least `least` that also rejects "at most `null`" at level `tail`.

    Args:
        error: standard error of the estimate, bias included, in log ratio.
        tail: one-sided level of the test, after all corrections.
        power: wanted probability of a call, in (0.5, 1).
        null, least: in log ratio.
    """
    threshold = max(least, null + normal_quantile(tail) * error)
    return threshold + normal_quantile(1 - power) * error


@functools.lru_cache(maxsize=64)  # 2 MB for 512 pairs; making them takes longer than sorting what they index
def _pairs_of(n: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the indices i <= j of all pairs of n values."""
    i, j = np.triu_indices(n)
    return i, j


@functools.lru_cache(maxsize=256)
def _tail_of_ranks(n: int) -> Array:
    """Return P(W <= w) for the signed-rank sum W of n distinct values under the null, for every w."""
    return np.cumsum(_sum_distribution(tuple(range(1, n + 1))))


def _critical(n: int, tail: float) -> int:
    """Return the largest w with P(W <= w) <= tail, or -1: so many Walsh averages may be dropped on one side."""
    return int(np.searchsorted(_tail_of_ranks(n), tail * (1 + 1e-9), side="right")) - 1


def _doubled_ranks(values: Array) -> npt.NDArray[np.int64]:
    """Return twice the mid-rank of every value, so that it is whole; values within a rounding error are tied."""
    order = np.argsort(values, kind="stable")
    ranks = np.empty(len(values), dtype=np.int64)
    start = 0
    for end in range(1, len(values) + 1):
        if end == len(values) or values[order[end]] - values[order[end - 1]] > _TIE:
            ranks[order[start:end]] = start + end + 1
            start = end
    return ranks


@functools.lru_cache(maxsize=32)  # a megabyte each for 500 pairs with ties
def _sum_distribution(ranks: tuple[int, ...]) -> Array:
    """Return the distribution of a sum that holds each of `ranks` with probability one half."""
    distribution = np.zeros(sum(ranks) + 1)
    distribution[0] = 1.0
    top = 1  # entries beyond are still zero
    for rank in ranks:
        half = distribution[:top] / 2
        distribution[:top] = half
        distribution[rank : rank + top] += half
        top += rank
    return distribution
