"""What `tilegate calibrate` found out about a machine: the noise of every case, measured on identical code.

Pure: from replicates to a profile, from a profile to what it means for a gate. docs/gate-statistics.md, "Calibrated noise", explains it.
All sizes of noise are log ratios (0.01 is about 1 %), all times seconds.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from tilegate.config import Bias, GateConfig
from tilegate.judging import modes, stats
from tilegate.schemas import samples
from tilegate.schemas.samples import Environment

FEWEST_REPLICATES = 5
"""With fewer, the upper bound of a bias would be more than twice its estimate."""

_FOR_READERS = ("needs", "bias_same_layout")  # in the file of a case, and no part of its noise
_CONFIDENCE = 0.9  # of the upper bound of a bias, which is what decides
_SCREENS = (8, 16, 32, 64)  # pairs among which a screen's number is chosen
_PAIRS = (16, 32, 64)  # the same for each replicate of a confirmation
# Among how many confirmed cases the false-alarm budget is taken to be shared: of 200 changed cases some 14 are confirmed
# (docs/gate-proof.md). A constant: whether a case gates must not depend on what else a change touches.
_SUSPECTS = 14
_MODEL_WORTH = 5.0
_CLEAN_PASSES = 0.95  # probability that a case without a change needs no further look


@dataclass(frozen=True)
class Turn:
    """How much is launched in one turn. Noise that was measured with other turns says nothing.

    Attributes:
        min_launches, max_launches, turn_seconds: see `GateConfig`.
    """

    min_launches: int
    max_launches: int
    turn_seconds: float

    @staticmethod
    def of(config: GateConfig) -> Turn:
        """Return the turns of a configuration."""
        return Turn(config.min_launches, config.max_launches, config.turn_seconds)


@dataclass(frozen=True)
class CaseNoise:
    """The noise of one case, on identical code.

    Attributes:
        version: the benchmark's, when it was calibrated.
        turn: how much one turn launched.
        seconds: median time of a launch.
        replicates: fresh pairs of processes that were measured.
        pairs: in all of them.
        pair_noise: standard deviation of one pair's log ratio, as far as its replicate does not explain it.
        bias: standard deviation of a replicate's bias; 0 if the noise of pairs explains all that was seen.
        bias_high: upper confidence bound of the bias (90 %, one-sided); what decisions rest on.
        modes: gap between two modes, from turn to turn or from process to process; None if there is no sign of them.
    """

    version: str
    turn: Turn
    seconds: float
    replicates: int
    pairs: int
    pair_noise: float
    bias: float
    bias_high: float
    modes: float | None

    def to_json(self) -> samples.Noise:
        """Return plain values; `from_json` reads them back."""
        return cast(samples.Noise, dataclasses.asdict(self))

    @staticmethod
    def from_json(values: samples.Noise) -> CaseNoise:
        """Read what `to_json` wrote."""
        plain: dict[str, Any] = {key: value for key, value in values.items() if key not in _FOR_READERS}
        return CaseNoise(**{**plain, "turn": Turn(**values["turn"])})


@dataclass(frozen=True)
class Needs:
    """How much settles the promise for a case.

    Attributes:
        screen_pairs: pairs of the screen after which a case without a change usually passes.
        replicates, pairs: of the first confirmation.
    """

    screen_pairs: int
    replicates: int
    pairs: int


@dataclass(frozen=True)
class NoiseProfile:
    """The noise of a machine.

    Attributes:
        created: when it was finished, ISO 8601.
        environment: see `tilegate.measuring.environment.describe`.
        digest: sha256 of the file, in hex; what a report cites.
        cases: by id.
    """

    created: str
    environment: Environment
    digest: str
    cases: Mapping[str, CaseNoise]

    def of(self, case: str, version: str, config: GateConfig) -> CaseNoise | None:
        """Return the noise of a case; None if it was not calibrated as it is today.

        Args:
            case: its id.
            version: of its benchmark; another version is other work.
            config: by which the case is measured; other turns have other noise.
        """
        found = self.cases.get(case)
        return found if found is not None and (found.version, found.turn) == (version, Turn.of(config)) else None


def estimate(
    base: Sequence[Sequence[float]], head: Sequence[Sequence[float]], *, version: str, config: GateConfig
) -> CaseNoise:
    """Estimate the noise of one case from replicates in which both sides ran the same code.

    The true ratio is 1, so a replicate's bias is its estimate, and what one side always has over the other counts as bias,
    too. Variance of the bias: mean square of the estimates, less what the noise of pairs contributes. Its upper bound: the
    sum of squares of n normal values with variance s2 is s2 times a chi-square variable with n degrees of freedom. It is
    never below half the error that the pairs leave: less cannot be told from it.

    Args:
        base, head: for each replicate, the median seconds of each turn.
        version: of the benchmark.
        config: by which the case was measured.

    Raises:
        ValueError: fewer than `FEWEST_REPLICATES` replicates.
    """
    from scipy.stats import chi2  # noqa: PLC0415 (slow import, and only calibration needs it)

    if len(base) < FEWEST_REPLICATES:
        raise ValueError(f"{len(base)} replicates; a bias needs at least {FEWEST_REPLICATES}")
    ratios = [np.log(np.asarray(h) / np.asarray(b)) for b, h in zip(base, head, strict=True)]
    errors = np.array([stats.standard_error(r) for r in ratios])
    centres = np.array([stats.hodges_lehmann(r) for r in ratios])
    from_pairs = float(np.mean(errors**2))
    seen = float(np.sum(centres**2))
    highest = seen / float(chi2.ppf(1 - _CONFIDENCE, len(ratios)))
    smallest = math.log1p(config.tolerated)
    turns = [g for b, h in zip(base, head, strict=True) if (g := modes.between_turns(b, h, smallest)) is not None]
    return CaseNoise(
        version=version,
        turn=Turn.of(config),
        seconds=float(np.median(np.concatenate([*map(np.asarray, base), *map(np.asarray, head)]))),
        replicates=len(ratios),
        pairs=sum(map(len, ratios)),
        pair_noise=math.sqrt(float(np.mean(errors**2 * [len(r) for r in ratios]))),
        bias=math.sqrt(max(0.0, seen / len(ratios) - from_pairs)),
        bias_high=math.sqrt(max(highest - from_pairs, from_pairs / 4)),
        modes=float(np.median(turns))
        if 2 * len(turns) >= len(ratios)
        else modes.between_processes([float(c) for c in centres], smallest),
    )


def layout_share(drawn: Mapping[str, CaseNoise], alike: Mapping[str, CaseNoise]) -> float | None:
    """Return which part of the bias's variance is the layout's; None if no case was measured both ways.

    Processes with the same code and the same layout differ in the rest only. Each case counts by its own total, so that the
    noisiest does not decide alone; a single case's ratio of two variances would say little.

    Args:
        drawn: noise of the cases, each process with a layout of its own.
        alike: the same, both processes of a pair laid out alike.
    """
    shares = [(drawn[name].bias ** 2, found.bias**2) for name, found in alike.items() if name in drawn]
    totals = [whole + rest for whole, rest in shares]
    if not any(totals):
        return None
    whole, rest = (sum(part[i] / total for part, total in zip(shares, totals, strict=True) if total) for i in (0, 1))
    return max(0.0, 1 - rest / whole) if whole > 0 else 0.0


def needs(noise: CaseNoise, config: GateConfig) -> Needs | None:
    """Return the least that settles the promise for a case; None if nothing within `max_replicates` does.

    Settled: a slowdown of `promise` is called with probability `power`, and a case without a change passes with 95 %.

    Args:
        noise: of the case.
        config: by which it is judged.
    """
    counts = [config.replicates]
    while counts[-1] < config.max_replicates:
        counts.append(min(2 * counts[-1], config.max_replicates))
    for replicates, pairs in itertools.product(counts, _PAIRS):
        candidate = _with(config, Needs(config.screen_pairs, replicates, max(pairs, config.confirm_pairs)))
        if _settles(noise, candidate):
            return Needs(_screen_pairs(noise, config), candidate.replicates, candidate.confirm_pairs)
    return None


def _settles(noise: CaseNoise, config: GateConfig) -> bool:
    replicates = config.replicates
    error = math.hypot(
        noise.pair_noise / math.sqrt(replicates * config.confirm_pairs), noise.bias_high / math.sqrt(replicates)
    )
    called = stats.smallest_detectable_effect(
        error,
        tail=config.alpha / (config.looks() * _SUSPECTS),
        power=config.power,
        null=math.log1p(config.tolerated),
        least=math.log1p(config.regression),
    )
    passes = (stats.normal_quantile(config.miss / config.looks()) + stats.normal_quantile(1 - _CLEAN_PASSES)) * error
    return max(called, passes) <= math.log1p(config.promise)


def _screen_pairs(noise: CaseNoise, config: GateConfig) -> int:
    """Return after how many pairs a screen usually lets a clean case pass; the usual number if none does."""
    for pairs in _SCREENS:
        error = math.hypot(noise.pair_noise / math.sqrt(pairs), noise.bias_high)
        reach = (stats.normal_quantile(config.miss) + stats.normal_quantile(1 - _CLEAN_PASSES)) * error
        if pairs >= config.screen_pairs and reach <= math.log1p(config.promise):
            return pairs
    return config.screen_pairs


def bias_scale(confirmations: Sequence[tuple[Sequence[stats.Array], float]]) -> float:
    """Return by which factor the replicates of a run scatter more than the expected bias explains; at least 1.

    One case with two replicates says little about its own bias; all confirmed cases of a run together say a lot about the
    model. Each contributes (n - 1) times its variance between replicates over the expected one, which has a chi-square
    distribution with n - 1 degrees of freedom if the model is right. What it is right by counts as `_MODEL_WORTH` degrees
    of freedom, so that a run with few suspects is not carried away (Birge, The Calculation of Errors by the Method of
    Least Squares, 1932; the shrinkage is that of an inverse chi-square prior). A slowdown moves all replicates of its case
    and cancels.

    Args:
        confirmations: for each confirmed case, the log ratios of its fresh replicates, and the expected standard deviation
            of their bias.
    """
    seen, freedom = _MODEL_WORTH, _MODEL_WORTH
    for replicates, bias in confirmations:
        if len(replicates) < 2:
            continue
        errors = [stats.standard_error(r) for r in replicates]
        expected = bias**2 + float(np.mean(np.square(errors)))
        if expected > 0:
            free = len(replicates) - 1
            seen += free * float(np.var([stats.hodges_lehmann(r) for r in replicates], ddof=1)) / expected
            freedom += free
    return math.sqrt(max(1.0, seen / freedom))


def tuned(config: GateConfig, noise: CaseNoise) -> tuple[GateConfig, bool]:
    """Return the configuration for a case whose noise is known, and whether the case can be gated.

    Args:
        config: the one for this case without a profile.
        noise: of the case.
    """
    # The one bias that was measured, whichever of the built-in ones would apply.
    bias = dict.fromkeys(config.bias, Bias(seconds=0.0, relative=noise.bias_high))
    known = dataclasses.replace(config, bias=bias)
    needed = needs(noise, config)
    return (known, False) if needed is None else (_with(known, needed), True)


def _with(config: GateConfig, needed: Needs) -> GateConfig:
    return dataclasses.replace(
        config,
        screen_pairs=needed.screen_pairs,
        replicates=needed.replicates,
        confirm_pairs=needed.pairs,
        noisy_pairs=max(config.noisy_pairs, needed.pairs),
    )
