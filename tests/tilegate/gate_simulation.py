"""Replays real A/A noise through the gate's rules, with planted changes: simulated pull requests of many cases.

A simulated replicate takes one of those that were really measured (tests/data/h200_pair_noise.json), at random and with
replacement, and a stretch of its pairs, so that what is alike in neighbouring pairs stays alike. Its sides are swapped at
random: they run the same code, so that is as likely. A slowdown of x % multiplies one side's times by 1 + x / 100.

What decides is tilegate/decision.py. Only the screen, which most cases never leave, has a twin here that takes all cases at
once (`screen_all`); tests/tilegate/test_gate_simulation.py holds the two against each other.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from tilegate import decision, stats
from tilegate.config import GateConfig
from tilegate.decision import Finding, Replicate

DATA = Path(__file__).parents[1] / "data" / "h200_pair_noise.json"
CONFIG = GateConfig(package="mykernels", suite="benchmarks")
TARGET = "cuda"

VERDICTS = {
    Finding.SLOWER: "regressed",
    Finding.FASTER: "improved",
    Finding.WARNING: "warning",
    Finding.UNDECIDED: "inconclusive",
    Finding.FAST_ENOUGH: "pass",
}

# Where a stretch is longer than its replicate its pairs repeat. Told apart by this, which no rule can see, they are no
# ties, whose exact distribution would have to be computed anew for every sample.
_APART = 1e-9


@dataclass(frozen=True)
class Trace:
    """A/A noise of one case: log ratio and order of each pair of each replicate, and the median time in seconds."""

    name: str
    seconds: float
    replicates: tuple[Replicate, ...]

    def bias(self, config: GateConfig) -> float:
        """The bias that the gate expects of this case."""
        return config.bias[TARGET].at(self.seconds)

    def amplified(self, factor: float) -> Trace:
        """The same pairs around biases that are `factor` times as large."""
        centres = [stats.hodges_lehmann(r.ratios) for r in self.replicates]
        moved = (
            Replicate(r.ratios + (factor - 1) * c, r.head_first) for r, c in zip(self.replicates, centres, strict=True)
        )
        return Trace(self.name, self.seconds, tuple(moved))


@dataclass(frozen=True)
class Pool:
    """The kernels that the cases of simulated pull requests are drawn from."""

    traces: tuple[Trace, ...]

    @cached_property
    def _flat(self) -> tuple[np.ndarray, ...]:
        """Every replicate of every trace, one after the other: ratios, orders; start and length of each; first and
        number of the replicates of each trace."""
        replicates = [r for t in self.traces for r in t.replicates]
        lengths = np.array([len(r.ratios) for r in replicates])
        counts = np.array([len(t.replicates) for t in self.traces])
        return (
            np.concatenate([r.ratios for r in replicates]),
            np.concatenate([np.array(r.head_first) for r in replicates]),
            np.cumsum(lengths) - lengths,
            lengths,
            np.cumsum(counts) - counts,
            counts,
        )

    def draw(
        self, which: np.ndarray, effects: np.ndarray, pairs: int, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draw one replicate for each case: log ratios and whether head was first, both (cases, pairs).

        Args:
            which: index of each case's trace.
            effects: by how much each case's head is slower, as a fraction.
            pairs: how many.
            rng: the source of chance.
        """
        ratios, orders, starts, lengths, first, counts = self._flat
        chosen = first[which] + rng.integers(counts[which])
        places = rng.integers(lengths[chosen])[:, None] + np.arange(pairs)
        places = starts[chosen][:, None] + places % lengths[chosen][:, None]
        swapped = rng.integers(2, size=len(which)).astype(bool)[:, None]
        drawn = np.where(swapped, -1.0, 1.0) * ratios[places] + np.log1p(effects)[:, None]
        if pairs > lengths.min():
            drawn = drawn + rng.uniform(-_APART, _APART, drawn.shape)
        return drawn, orders[places] ^ swapped


def traces() -> list[Trace]:
    """Read the measured noise."""
    found = []
    for name, replicates in json.loads(DATA.read_text())["cases"].items():
        pairs = [np.array(r) for r in replicates]
        found.append(
            Trace(
                name,
                float(np.median(np.concatenate([p[:, 1] for p in pairs]))) * 1e-6,
                tuple(Replicate(np.log(p[:, 2] / p[:, 1]), tuple(o == 1 for o in p[:, 0])) for p in pairs),
            )
        )
    return found


def screen_all(ratios: np.ndarray, head_first: np.ndarray, config: GateConfig, bias: np.ndarray) -> np.ndarray:
    """Return for each case whether its screen is suspicious: `decision.suspicious` for all rows of (cases, pairs)."""
    pairs = ratios.shape[1]
    i, j = np.triu_indices(pairs)
    averages = np.sort((ratios[:, i] + ratios[:, j]) / 2, axis=1)
    estimate = np.median(averages, axis=1)
    highest = averages[:, -1 - stats._critical(pairs, config.miss)]
    high = estimate + np.hypot(highest - estimate, stats.normal_quantile(config.miss) * bias)
    first = head_first.sum(axis=1)
    one_order = np.minimum(first, pairs - first) < max(1, pairs // 8)
    away = np.abs(estimate) > math.log1p(config.screen)
    return np.asarray(one_order | away | (high >= math.log1p(config.promise)))


def confirm(
    pool: Pool, which: int, effect: float, *, config: GateConfig, bias: float, suspects: int, rng: np.random.Generator
) -> list[Replicate]:
    """Measure a suspect in fresh replicates, as often as the gate would."""
    done: list[Replicate] = []
    step = decision.Step("confirm", config.replicates, config.confirm_pairs)
    # The screen has been looked at; from here on the rules ask only whether there was one.
    screen = (Replicate(np.zeros(config.screen_pairs), (True, False) * (config.screen_pairs // 2)),)
    while step.action == "confirm":
        drawn = pool.draw(np.full(step.replicates, which), np.full(step.replicates, effect), step.pairs, rng)
        done += [Replicate(r, tuple(o)) for r, o in zip(*drawn, strict=True)]
        step = decision.next_step(screen, done, config, bias, suspects=suspects)
    return done


@dataclass(frozen=True)
class Request:
    """One simulated pull request.

    Attributes:
        verdicts: of the cases without the planted one.
        planted: verdict of the planted case.
        which: index of its trace.
        suspects: how many cases were confirmed.
        pairs: measured, of all cases together.
        rounds: fresh pairs of processes that the run took.
    """

    verdicts: Counter[str]
    planted: str
    which: int
    suspects: int
    pairs: int
    rounds: int


def requests(
    pool: Pool,
    count: int,
    rng: np.random.Generator,
    *,
    effect: float = 0.0,
    cases: int = 200,
    config: GateConfig = CONFIG,
) -> list[Request]:
    """Carry `count` pull requests of `cases` changed cases through the gate; in each, the first case has `effect`."""
    which = rng.integers(len(pool.traces), size=(count, cases))
    effects = np.zeros((count, cases))
    effects[:, 0] = effect
    bias = np.array([t.bias(config) for t in pool.traces])
    drawn = pool.draw(which.ravel(), effects.ravel(), config.screen_pairs, rng)
    suspicious = screen_all(*drawn, config, bias[which.ravel()]).reshape(count, cases)
    return [
        _request(pool, w, e, s, bias=bias, config=config, rng=rng)
        for w, e, s in zip(which, effects, suspicious, strict=True)
    ]


def _request(
    pool: Pool,
    which: np.ndarray,
    effects: np.ndarray,
    suspicious: np.ndarray,
    *,
    bias: np.ndarray,
    config: GateConfig,
    rng: np.random.Generator,
) -> Request:
    suspects = np.flatnonzero(suspicious)
    confirmed = [
        confirm(pool, which[i], effects[i], config=config, bias=bias[which[i]], suspects=len(suspects), rng=rng)
        for i in suspects
    ]
    evidence = [
        decision.weigh_confirmation(replicates, config, bias[which[i]])
        for i, replicates in zip(suspects, confirmed, strict=True)
    ]
    slower = stats.holm([e.p_slower for e in evidence])
    faster = stats.holm([e.p_faster for e in evidence])
    verdicts = ["pass"] * len(which)
    for i, e, s, f in zip(suspects, evidence, slower, faster, strict=True):
        verdicts[i] = VERDICTS[decision.conclude(e, config, s, f)]
    return Request(
        Counter(verdicts[1:]),
        verdicts[0],
        int(which[0]),
        len(suspects),
        config.screen_pairs * len(which) + sum(e.pairs for e in evidence),
        1 + max((len(replicates) for replicates in confirmed), default=0),
    )


def rates(
    trace: Trace, effect: float, runs: int, rng: np.random.Generator, config: GateConfig = CONFIG
) -> tuple[Counter[str], float]:
    """Return how often each verdict came out for a case alone in its run, and the mean number of pairs it took."""
    done = requests(Pool((trace,)), runs, rng, effect=effect, cases=1, config=config)
    return Counter(r.planted for r in done), sum(r.pairs for r in done) / runs


def synthetic(effect: float, noise: float, runs: int, rng: np.random.Generator) -> tuple[Counter[str], float]:
    """Return verdicts and mean number of confirming replicates under heavy-tailed noise like that of a busy CPU."""
    bias = CONFIG.bias["cpu"].relative
    verdicts: Counter[str] = Counter()
    replicates = 0
    for _ in range(runs):
        stages: dict[str, list[Replicate]] = {"screen": [], "confirm": []}
        while (step := decision.next_step(stages["screen"], stages["confirm"], CONFIG, bias)).action != "done":
            for _ in range(step.replicates):
                # Student's t with 4 degrees of freedom has a variance of 2.
                pairs = noise / math.sqrt(2) * rng.standard_t(4, step.pairs)
                ratios = pairs + rng.normal(0, bias) + math.log1p(effect)
                stages[step.action].append(Replicate(ratios, tuple(i % 2 == 1 for i in range(step.pairs))))
        replicates += len(stages["confirm"])
        found = Finding.FAST_ENOUGH
        if stages["confirm"]:
            e = decision.weigh_confirmation(stages["confirm"], CONFIG, bias)
            found = decision.conclude(e, CONFIG, e.p_slower, e.p_faster)
        verdicts[VERDICTS[found]] += 1
    return verdicts, replicates / runs


def pools(known: Sequence[Trace]) -> dict[str, Pool]:
    """The kernels by length: above 25 microseconds a replicate's bias is a small part of 3 %, below it rules."""
    return {
        "long": Pool(tuple(t for t in known if t.seconds > 25e-6)),
        "short": Pool(tuple(t for t in known if t.seconds <= 25e-6)),
    }
