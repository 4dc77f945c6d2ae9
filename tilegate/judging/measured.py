"""The usable pairs of one case, taken out of its samples: which of them count, and whether they can be true at all."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilegate.config import Bias, GateConfig
from tilegate.judging import decision, modes, stats
from tilegate.judging.decision import Evidence, Replicate
from tilegate.protocol import is_call
from tilegate.schemas import samples
from tilegate.schemas.samples import Case, Pair, Stage, Target
from tilegate.schemas.verdict import Disturbances, Obstacle

Pairs = Sequence[Pair]


class UnsoundError(Exception):
    """The samples of a case cannot be used, for a reason that the message gives.

    Attributes:
        obstacle: as in the entry of a verdict.
    """

    def __init__(self, message: str, obstacle: Obstacle = "samples") -> None:
        """See the attributes."""
        super().__init__(message)
        self.obstacle = obstacle


@dataclass(frozen=True)
class Measured:
    """What was measured of one case.

    Attributes:
        screen, confirmation: the replicates of each stage that have enough undisturbed pairs, in the order of their numbers.
        short: how many replicates of either stage disturbances left with too few pairs, by stage.
        disturbed: how many pairs do not count, by reason.
        pairs: how many pairs there are, the disturbed ones included.
        bias: expected standard deviation of a replicate's bias, in log ratio.
        base_seconds, head_seconds: medians over the turns (`of_turns`) of the replicates that count; None if there are none.
        turns: of each replicate of both stages, the seconds of base's and of head's turns, pair by pair (`of_turns`).
    """

    screen: tuple[Replicate, ...]
    confirmation: tuple[Replicate, ...]
    short: Mapping[str, int]
    disturbed: Mapping[str, int]
    pairs: int
    bias: float
    base_seconds: float | None
    head_seconds: float | None
    turns: tuple[tuple[stats.Array, stats.Array], ...]

    def confirmed(self, config: GateConfig) -> Sequence[Replicate]:
        """The replicates of the last complete look at the confirmation; none before the first."""
        return decision.completed(self.confirmation, config)

    def counting(self, config: GateConfig) -> Sequence[Replicate]:
        """The replicates that count: selection by the screen has biased its own pairs, so they do not mix."""
        return self.confirmed(config) or self.screen

    def weigh(self, config: GateConfig) -> Evidence:
        """Weigh the replicates that count."""
        if confirmed := self.confirmed(config):
            return decision.weigh_confirmation(confirmed, config, self.bias)
        return decision.weigh_screen(self.screen, config, self.bias)

    def turn_modes(self, config: GateConfig) -> float | None:
        """Return the gap, in log ratio, between two modes from turn to turn that at least half of the replicates show."""
        gaps = [modes.between_turns(base, head, math.log1p(config.tolerated)) for base, head in self.turns]
        shown = [gap for gap in gaps if gap is not None]
        return float(np.median(shown)) if shown and 2 * len(shown) >= len(gaps) else None

    def process_modes(self, config: GateConfig) -> float | None:
        """Return the gap, in log ratio, between two modes from process to process."""
        # The screen was selected for what it showed, but the mode that it was in is no less true for that.
        estimates = [stats.hodges_lehmann(r.ratios) for r in (*self.screen, *self.confirmation)]
        return modes.between_processes(estimates, math.log1p(config.tolerated))


def measured(case: Case, config: GateConfig, target: Target, floor: float = 0.0) -> Measured:
    """Take the pairs out of a case.

    Args:
        case: one entry of "cases" of a samples document.
        config: by which this case is judged.
        target: decides the bias that is expected.
        floor: seconds below which no launch can be (tilegate.judging.roofline).

    Raises:
        UnsoundError: they cannot be what they are said to be.
    """
    replicates = case["replicates"]
    _check_replicates(replicates, config)
    wanted: dict[Stage, int] = {"screen": config.screen_pairs, "confirm": config.confirm_pairs}
    usable: dict[Stage, list[Pairs]] = {stage: [] for stage in wanted}
    turns: dict[Stage, list[tuple[stats.Array, stats.Array]]] = {stage: [] for stage in wanted}
    short: Counter[str] = Counter()
    disturbed: Counter[str] = Counter()
    for replicate in sorted(replicates, key=lambda r: r["replicate"]):
        stage, pairs = replicate["stage"], replicate["pairs"]
        left = [pair for pair in pairs if "disturbed" not in pair]
        disturbed.update(pair["disturbed"] for pair in pairs if "disturbed" in pair)
        if len(left) >= wanted[stage]:
            usable[stage].append(left)
            turns[stage].append(of_turns(left, target))
        elif len(left) < len(pairs):
            short[stage] += 1
    if len(usable["screen"]) > 1:
        raise UnsoundError("it was screened more than once, and the rules ask for one screen")
    if len(usable["confirm"]) > config.max_replicates:
        raise UnsoundError(f"it has more replicates than max_replicates ({config.max_replicates}) allows")
    screen, confirmation = (
        tuple(_replicate(pairs, *seconds) for pairs, seconds in zip(usable[stage], turns[stage], strict=True))
        for stage in wanted
    )
    if confirmation and not screen:
        raise UnsoundError("it was confirmed without a screen")
    if len(confirmation) >= config.replicates and decision.one_order(confirmation):
        raise UnsoundError("one side was first in nearly every pair, so the order is mistaken for a change")
    used = turns["confirm"][: len(decision.completed(confirmation, config))] or turns["screen"]
    seconds = [float(np.median(np.concatenate([of[i] for of in used]))) if used else None for i in (0, 1)]
    for side, median in zip(("base", "head"), seconds, strict=True):
        if median is not None and median < floor:
            raise UnsoundError(f"the {side}'s times are impossible: {impossible(median, floor)}", "times")
    base_seconds, head_seconds = seconds
    return Measured(
        screen=screen,
        confirmation=confirmation,
        short=short,
        disturbed=disturbed,
        pairs=sum(len(r["pairs"]) for r in replicates),
        bias=_expected_bias(case, config, target).at(base_seconds) if base_seconds else math.inf,
        base_seconds=base_seconds,
        head_seconds=head_seconds,
        turns=(*turns["screen"], *turns["confirm"]),
    )


def _expected_bias(case: Case, config: GateConfig, target: Target) -> Bias:
    if is_call(case["benchmark"]):
        return config.bias["call"]
    recorded = target != "cpu" and all(replicate.get("recorded", 1) > 1 for replicate in case["replicates"])
    return config.bias["recorded" if recorded else target]


def _check_replicates(replicates: Sequence[samples.Replicate], config: GateConfig) -> None:
    sessions = [r["session"] for r in replicates]
    if len(set(sessions)) < len(sessions):
        raise UnsoundError("two of its replicates come from the same pair of processes, so one of them is not fresh")
    numbers = [r["replicate"] for r in replicates]
    if len(set(numbers)) < len(numbers):
        raise UnsoundError("two of its replicates have the same number")
    for one, other in itertools.combinations((r["pairs"] for r in replicates), 2):
        if one and one == other:
            raise UnsoundError("two of its replicates hold the same times, so one of them is a copy")
    most = max(config.screen_pairs, config.noisy_pairs, config.confirm_pairs)
    for replicate in replicates:
        undisturbed = sum("disturbed" not in pair for pair in replicate["pairs"])
        # A disturbed pair may be measured again, once.
        if undisturbed > most or len(replicate["pairs"]) > 2 * most:
            raise UnsoundError("a replicate has more pairs than the rules ask for")
        for pair in replicate["pairs"]:
            if len(pair["base"]) != len(pair["head"]):
                raise UnsoundError("a pair has more launches of one side than of the other")
            if len(pair["base"]) < config.min_launches:
                raise UnsoundError(f"a turn has fewer than {config.min_launches} launches")


def of_turns(pairs: Pairs, target: Target) -> tuple[stats.Array, stats.Array]:
    """Return the seconds of base's and of head's turn of every pair, whose ratio is what the pair says.

    The medians of the turns' launches. On the CPU, where the two sides alternate launch by launch, the pair's ratio is the
    median of the ratios of neighbouring launches instead, around the geometric mean of both medians.

    Args:
        pairs: at least one.
        target: "cpu", "cuda" or "hip".
    """
    turns = [pair["base"] for pair in pairs], [pair["head"] for pair in pairs]
    base, head = map(stats.medians, turns)
    if target != "cpu":
        return base, head
    centre, half = np.sqrt(base * head), np.exp(stats.medians_of_ratios(*turns) / 2)
    return centre / half, centre * half


def _replicate(pairs: Pairs, base: stats.Array, head: stats.Array) -> Replicate:
    return Replicate(ratios=np.log(head) - np.log(base), head_first=tuple(pair["order"] == 1 for pair in pairs))


def impossible(seconds: float, floor: float) -> str:
    """Say why a time cannot be."""
    return f"{1e6 * seconds:.4g} µs for work that takes this chip at least {1e6 * floor:.4g} µs"


def disturbances(timed: Iterable[Measured]) -> Disturbances:
    """Return how many of all pairs were disturbed, and why."""
    reasons: Counter[str] = Counter()
    pairs = 0
    for m in timed:
        reasons.update(m.disturbed)
        pairs += m.pairs
    return {"pairs": reasons.total(), "of": pairs, "reasons": dict(reasons.most_common())}
