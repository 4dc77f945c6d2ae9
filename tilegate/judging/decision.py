"""From the pairs of one case to what they say: suspicious or not, slower, faster, fast enough, or too noisy to tell.

Pure and free of samples, files and names, so that it can be simulated. docs/gate.md explains the rules and shows what
they do on real noise. All effects here are log ratios; positive is slower.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Literal

import numpy as np

from tilegate.config import GateConfig
from tilegate.judging import stats

# A replicate in `of` may disagree with a regression: none of two, one of four, two of eight. With many noisy replicates
# an honest slowdown nearly always has one that falls short.
_ONE_DISSENTER_IN = 4

# One-sided level at which an estimate between `tolerated` and `regression` is worth a warning; warnings block nothing.
_WARNING_LEVEL = 0.05


_CLEAN_PASSES = 0.95  # probability that a case without a change is decided in the end
_FINEST_PROMISE, _COARSEST_PROMISE, _PROMISE_STEP = 0.001, 0.5, 0.0001  # as the settings allow them


class Outcome(Enum):
    """What the evidence on one case says."""

    SLOWER = "slower"  # by `regression` or more
    FASTER = "faster"
    WARNING = "warning"  # perhaps slower, but by less than `promise`
    FAST_ENOUGH = "fast enough"  # a slowdown of `promise` is excluded
    UNDECIDED = "undecided"  # neither of these


@dataclass(frozen=True)
class Replicate:
    """All pairs of one fresh pair of processes.

    Attributes:
        ratios: log ratio of each pair.
        head_first: for each pair, whether head took its turn first.
    """

    ratios: stats.Array
    head_first: tuple[bool, ...]


@dataclass(frozen=True)
class Evidence:
    """What the replicates of one stage say together.

    Attributes:
        interval: Hodges-Lehmann estimate over all pairs, with bounds that hold for pair noise and replicate bias.
        error: standard error of the estimate, replicate bias included.
        pair_error: the part of it that comes from the noise of pairs.
        bias_error: the part that comes from the bias of the replicates, which count by their pairs.
        freedom: degrees of freedom of `error`; few where it was estimated from a few pairs, infinite if bias is all of it.
        bias: standard deviation of one replicate's bias: the model's, or what the replicates show if that is more.
        p_slower, p_faster: of "no slower (faster) than `tolerated`", adjusted for the number of looks.
        p_different: of "not slower at all", not adjusted.
        estimates: Hodges-Lehmann estimate of each replicate.
        pairs: number of pairs.
    """

    interval: stats.Interval
    error: float
    pair_error: float
    bias_error: float
    freedom: float
    bias: float
    p_slower: float
    p_faster: float
    p_different: float
    estimates: tuple[float, ...]
    pairs: int


@dataclass(frozen=True)
class Step:
    """What the gate should measure next for a case.

    Attributes:
        action: "screen": the first pairs; "confirm": fresh replicates; "done": nothing.
        replicates: how many more replicates, each in a fresh pair of processes.
        pairs: how many pairs in each.
    """

    action: Literal["done", "screen", "confirm"]
    replicates: int = 0
    pairs: int = 0


DONE = Step("done")


def weigh(replicates: Sequence[Replicate], config: GateConfig, bias: float, *, tail: float, looks: int) -> Evidence:
    """Weigh the pairs of one stage of one case.

    Args:
        replicates: at least one, none without pairs.
        config: thresholds.
        bias: standard deviation of a replicate's bias that is expected of this case, in log ratio.
        tail: level of each bound of the interval.
        looks: how often this stage may be looked at; multiplies the p-values (see `next_step`).
    """
    pooled = np.concatenate([r.ratios for r in replicates])
    estimates = [stats.hodges_lehmann(r.ratios) for r in replicates]
    errors = [stats.standard_error(r.ratios) for r in replicates]
    bias = max(bias, math.sqrt(stats.between_variance(estimates, errors)))
    bias_error = bias / math.sqrt(stats.effective_number([len(r.ratios) for r in replicates]))
    exact = stats.hodges_lehmann_interval(pooled, tail)
    # Pair noise has an exact bound and no model; bias has a model. Independent, so their widths add in squares.
    reach = stats.normal_quantile(tail) * bias_error
    interval = stats.Interval(
        low=exact.estimate - math.hypot(exact.estimate - exact.low, reach),
        estimate=exact.estimate,
        high=exact.estimate + math.hypot(exact.high - exact.estimate, reach),
    )
    pair_error = stats.standard_error(pooled)
    error = math.hypot(pair_error, bias_error)
    freedom = stats.freedom_of_sum([(pair_error**2, stats.freedom_of(len(pooled))), (bias_error**2, math.inf)])
    tolerated = math.log1p(config.tolerated)

    def p_value(ratios: stats.Array, estimate: float, null: float) -> float:
        # The exact test knows pairs only, whose noise is independent; the second term knows the bias they share.
        beyond = estimate - null
        biased = stats.student_tail(beyond / error, freedom) if error > 0 else float(beyond <= 0)
        return max(stats.wilcoxon_greater(ratios, null), biased)

    return Evidence(
        interval=interval,
        error=error,
        pair_error=pair_error,
        bias_error=bias_error,
        freedom=freedom,
        bias=bias,
        p_slower=min(1.0, looks * p_value(pooled, exact.estimate, tolerated)),
        p_faster=min(1.0, looks * p_value(-pooled, -exact.estimate, tolerated)),
        p_different=p_value(pooled, exact.estimate, 0.0),
        estimates=tuple(estimates),
        pairs=len(pooled),
    )


def weigh_screen(replicates: Sequence[Replicate], config: GateConfig, bias: float) -> Evidence:
    """Weigh the pairs of the screen. See `weigh`."""
    return weigh(replicates, config, bias, tail=config.miss, looks=1)


def weigh_confirmation(replicates: Sequence[Replicate], config: GateConfig, bias: float) -> Evidence:
    """Weigh the pairs of the confirmation; levels are shared among its looks. See `weigh`."""
    return weigh(replicates, config, bias, tail=config.miss / config.looks(), looks=config.looks())


def suspicious(screen: Evidence, one_order: bool, config: GateConfig) -> bool:
    """Return whether a case must be confirmed in fresh processes.

    So it must if its estimate is away from no change, either way; if its pairs, however close their centre is to no
    change, cannot exclude a slowdown of `promise`; or if one side was first in every pair, since being second may cost
    or save time by itself.
    """
    return (
        one_order
        or abs(screen.interval.estimate) > math.log1p(config.screen)
        or screen.interval.high >= math.log1p(config.promise)
    )


def plainly_slower(screen: Evidence, config: GateConfig) -> bool:
    """Return whether pairs and expected bias together exclude a slowdown of `tolerated` or less."""
    return screen.interval.low > math.log1p(config.tolerated)


def one_order(replicates: Sequence[Replicate]) -> bool:
    """Return whether one side was first in (nearly) all pairs: in more than 7 of 8."""
    orders = [order for r in replicates for order in r.head_first]
    rarer = min(sum(orders), len(orders) - sum(orders))
    return rarer < max(1, len(orders) // 8)


def outcome_of(evidence: Evidence, config: GateConfig, p_slower: float, p_faster: float) -> Outcome:
    """Return what a confirmation with enough replicates says.

    Args:
        evidence: the confirmation's.
        config: thresholds.
        p_slower, p_faster: the evidence's p-values, adjusted for the other cases that were confirmed.
    """
    least = math.log1p(config.regression)
    estimate = evidence.interval.estimate
    if estimate >= least and p_slower <= config.alpha and _agree(evidence.estimates, config):
        return Outcome.SLOWER
    if -estimate >= least and p_faster <= config.alpha and _agree([-e for e in evidence.estimates], config):
        return Outcome.FASTER
    if evidence.interval.high >= math.log1p(config.promise):
        return Outcome.UNDECIDED
    if estimate >= math.log1p(config.tolerated) and evidence.p_different <= _WARNING_LEVEL:
        return Outcome.WARNING
    return Outcome.FAST_ENOUGH


def completed(confirmation: Sequence[Replicate], config: GateConfig) -> Sequence[Replicate]:
    """Return the replicates of the last complete look at a confirmation; none before the first.

    Between two looks nothing is decided: the correction for several looks counts only those.
    """
    looks = [look for look in config.looked_at() if look <= len(confirmation)]
    return confirmation[: max(looks, default=0)]


def next_step(
    screen: Sequence[Replicate],
    confirmation: Sequence[Replicate],
    config: GateConfig,
    bias: float,
    *,
    suspects: int = 1,
    gating: bool = True,
) -> Step:
    """Return what to measure next for one case.

    A case is looked at after `replicates`, twice, four times … as many fresh replicates, until it is decided or
    `max_replicates` are there; between two looks nothing is decided. Why that cannot raise the false alarms: with K looks every p-value is multiplied by K,
    and P(some look has K p <= a) <= sum over the looks of P(p <= a / K) <= a, whatever decides to go on or to stop. The
    interval's level is divided by K for the same reason.

    Args:
        screen, confirmation: the replicates of each stage so far; too short ones left out.
        config: thresholds and numbers of pairs and replicates.
        bias: as in `weigh`.
        suspects: how many cases are being confirmed in this run, this one included.
        gating: the case's noise can support `promise`. Of one whose noise cannot, only a slowdown is confirmed that is
            plain in spite of the noise, and only once.
    """
    if not screen:
        return Step("screen", 1, config.screen_pairs)
    have = len(confirmation)
    if have == 0:
        first = weigh_screen(screen, config, bias)
        noticed = suspicious(first, one_order(screen), config) if gating else plainly_slower(first, config)
        if not noticed:
            return DONE
    if have < config.replicates:
        return Step("confirm", config.replicates - have, config.confirm_pairs)
    return _after_a_look(confirmation, config, bias, suspects) if gating else DONE


def _after_a_look(confirmation: Sequence[Replicate], config: GateConfig, bias: float, suspects: int) -> Step:
    """Return the next step of a case that has been looked at at least once."""
    have, seen = len(confirmation), completed(confirmation, config)
    coming = min((look for look in config.looked_at() if look > have), default=have)
    if coming == have:
        return DONE
    evidence = weigh_confirmation(seen, config, bias)
    # Bonferroni, not Holm: one case alone does not know the others' p-values. The judge, which does, is less strict.
    outcome = outcome_of(evidence, config, suspects * evidence.p_slower, suspects * evidence.p_faster)
    # What looks like a change, and may yet turn out to be large enough to be called one, is worth more replicates.
    shown = outcome in (Outcome.SLOWER, Outcome.FASTER)
    size = abs(evidence.interval.estimate)
    reach = size + stats.normal_quantile((1 - config.power) / 2) * evidence.error
    open_question = not shown and size >= math.log1p(config.tolerated) and reach >= math.log1p(config.regression)
    if have == len(seen) and not (outcome is Outcome.UNDECIDED or open_question):
        return DONE
    return Step("confirm", coming - have, _further_pairs(evidence, config))


def smallest_detectable_effect(evidence: Evidence, config: GateConfig, suspects: int) -> float:
    """Return the smallest true slowdown that the whole procedure calls a regression with probability `power`.

    It has to be noticed by the screen, must not look tolerable to the first confirmation, and has to be shown by, at
    most, `max_replicates` replicates; each of the three may fail with a third of what is left of `power`. Computed from the noise that this case showed, not from its estimate.

    Args:
        evidence: from either stage.
        config: thresholds and numbers of pairs and replicates.
        suspects: among how many confirmed cases `alpha` is shared, at least 1.
    """
    power = 1 - (1 - config.power) / 3
    variance_of_a_pair = evidence.pair_error**2 * evidence.pairs

    def error(pairs: Sequence[int]) -> float:
        """Standard error after replicates of so many pairs each."""
        return math.sqrt(variance_of_a_pair / sum(pairs) + evidence.bias**2 / stats.effective_number(pairs))

    first = error([config.screen_pairs])
    promised = math.log1p(config.promise) - stats.normal_quantile(config.miss) * first
    noticed = min(math.log1p(config.screen), promised) + stats.normal_quantile(1 - power) * first

    confirmed = [config.confirm_pairs] * config.replicates
    further = [_further_pairs(evidence, config)] * (config.max_replicates - config.replicates)
    shown = stats.smallest_detectable_effect(
        error(confirmed + further),
        tail=config.alpha / (config.looks() * max(1, suspects)),
        power=power,
        null=math.log1p(config.tolerated),
        least=math.log1p(config.regression),
    )
    kept = math.log1p(config.tolerated) + stats.normal_quantile(1 - power) * error(confirmed)
    return max(noticed, kept, shown)


def supportable_promise(evidence: Evidence, config: GateConfig, suspects: int) -> float | None:
    """Return the finest promise that a case's noise supports, with the same numbers of pairs and replicates; None: none does.

    Supported: a slowdown of that much is called with probability `power`, and a case without a change passes with 95 %.

    Args:
        evidence, config, suspects: as of `smallest_detectable_effect`.
    """
    passing = stats.normal_quantile(config.miss / config.looks()) + stats.normal_quantile(_CLEAN_PASSES)
    pairs = [config.confirm_pairs] * config.replicates
    pairs += [_further_pairs(evidence, config)] * (config.max_replicates - config.replicates)
    variance = evidence.pair_error**2 * evidence.pairs / sum(pairs) + evidence.bias**2 / stats.effective_number(pairs)

    def supported(promise: float) -> bool:
        effect = smallest_detectable_effect(evidence, config.promising(promise), suspects)
        return max(effect, passing * math.sqrt(variance)) <= math.log1p(promise)

    low, high = _FINEST_PROMISE, _COARSEST_PROMISE
    if not supported(high):
        return None
    while high - low > _PROMISE_STEP:
        middle = (low + high) / 2
        low, high = (low, middle) if supported(middle) else (middle, high)
    return high


def _further_pairs(evidence: Evidence, config: GateConfig) -> int:
    """Return how many pairs each further replicate gets: more only where it is not bias that rules the error."""
    return config.noisy_pairs if evidence.pair_error > evidence.bias_error else config.confirm_pairs


def _agree(estimates: Sequence[float], config: GateConfig) -> bool:
    falling_short = sum(e < math.log1p(config.replicate_regression) for e in estimates)
    return falling_short <= len(estimates) // _ONE_DISSENTER_IN
