"""Replays real A/A noise through the gate's rules, with planted changes: simulated pull requests of many cases.

A simulated replicate takes one of those that were really measured (tests/data/h200_pair_noise.json, h200_short_noise.json), at random and with
replacement, and a stretch of its pairs, so that what is alike in neighbouring pairs stays alike. Its sides are swapped at
random: they run the same code, so that is as likely. A slowdown of x % multiplies one side's times by 1 + x / 100.

What decides is tilegate/judging/decision.py. Only the screen, which most cases never leave, has a twin here that takes all cases at
once (`screen_all`); tests/tilegate/judging/test_gate_simulation.py holds the two against each other.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from tilegate.config import GateConfig
from tilegate.judging import decision, noise, run_verdict, stats
from tilegate.judging.decision import Outcome, Replicate

DATA = Path(__file__).parents[1] / "data"
# File, and which of the expected biases is that of launches timed so.
SOURCES = {"h200_pair_noise.json": "cuda", "h200_short_noise.json": "recorded"}
CONFIG = GateConfig(package="mykernels", suite="benchmarks")

VERDICTS = {
    Outcome.SLOWER: "regressed",
    Outcome.FASTER: "improved",
    Outcome.WARNING: "warning",
    Outcome.UNDECIDED: "inconclusive",
    Outcome.FAST_ENOUGH: "pass",
}

# Where a stretch is longer than its replicate its pairs repeat. Told apart by this, which no rule can see, they are no
# ties, whose exact distribution would have to be computed anew for every sample.
_APART = 1e-9


@dataclass(frozen=True)
class Trace:
    """A/A noise of one case.

    Attributes:
        name: of the kernel.
        seconds: median time of a launch.
        replicates: log ratio and order of each pair of each.
        timed: how: "cuda", launch by launch, or "recorded", as the gate times what is short.
    """

    name: str
    seconds: float
    replicates: tuple[Replicate, ...]
    timed: str = "cuda"

    def bias(self, config: GateConfig) -> float:
        """The bias that the gate expects of this case."""
        return config.bias[self.timed].at(self.seconds)

    def amplified(self, factor: float) -> Trace:
        """The same pairs around biases that are `factor` times as large."""
        centres = [stats.hodges_lehmann(r.ratios) for r in self.replicates]
        moved = (
            Replicate(r.ratios + (factor - 1) * c, r.head_first) for r, c in zip(self.replicates, centres, strict=True)
        )
        return dataclasses.replace(self, replicates=tuple(moved))


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


def traces(source: str = "h200_pair_noise.json") -> list[Trace]:
    """Read the measured noise of one of `SOURCES`."""
    found = []
    for name, replicates in json.loads((DATA / source).read_text())["cases"].items():
        pairs = [np.array(r) for r in replicates]
        found.append(
            Trace(
                name,
                float(np.median(np.concatenate([p[:, 1] for p in pairs]))) * 1e-6,
                tuple(Replicate(np.log(p[:, 2] / p[:, 1]), tuple(o == 1 for o in p[:, 0])) for p in pairs),
                SOURCES[source],
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
    expected = np.array([t.bias(config) for t in pool.traces])
    ratios, orders = pool.draw(which.ravel(), effects.ravel(), config.screen_pairs, rng)
    screens = ratios.reshape(count, cases, -1), orders.reshape(count, cases, -1)
    return [
        _Run(pool, config, w, e, expected[w], r, o).carried_out(rng)
        for w, e, r, o in zip(which, effects, *screens, strict=True)
    ]


@dataclass(frozen=True)
class _Run:
    """One pull request on its way through the gate, all its cases screened.

    Attributes:
        pool, config: what it is measured on, and by what it is judged.
        which, effects: of each case, the index of its trace and its slowdown.
        bias: of each case, the one that the model expects.
        ratios, orders: of each case, the pairs of the screen.
    """

    pool: Pool
    config: GateConfig
    which: np.ndarray
    effects: np.ndarray
    bias: np.ndarray
    ratios: np.ndarray
    orders: np.ndarray

    def carried_out(self, rng: np.random.Generator) -> Request:
        """Confirm suspects until none is open, as `tilegate gate` does, and judge as `tilegate judge` does."""
        confirmed: dict[int, list[Replicate]] = {}
        scale, rounds = 1.0, 1
        while steps := self._steps(confirmed, scale):
            rounds += max(step.replicates for step in steps.values())
            for i, step in steps.items():
                each = np.ones(step.replicates)
                drawn = self.pool.draw(each.astype(int) * self.which[i], each * self.effects[i], step.pairs, rng)
                confirmed.setdefault(i, []).extend(Replicate(r, tuple(o)) for r, o in zip(*drawn, strict=True))
            scale = self._scale(confirmed)
        evidence = {
            i: decision.weigh_confirmation(replicates, self.config, self.bias[i] * scale)
            for i, replicates in confirmed.items()
        }
        slower = stats.holm([e.p_slower for e in evidence.values()])
        faster = stats.benjamini_hochberg([e.p_faster for e in evidence.values()])
        verdicts = ["pass"] * len(self.which)
        for (i, e), p_slower, p_faster in zip(evidence.items(), slower, faster, strict=True):
            verdicts[i] = VERDICTS[decision.outcome_of(e, self.config, p_slower, p_faster)]
        return Request(
            verdicts=Counter(verdicts[1:]),
            planted=verdicts[0],
            which=int(self.which[0]),
            suspects=len(confirmed),
            pairs=self.ratios.size + sum(e.pairs for e in evidence.values()),
            rounds=rounds,
        )

    def _steps(self, confirmed: dict[int, list[Replicate]], scale: float) -> dict[int, decision.Step]:
        suspicious = screen_all(self.ratios, self.orders, self.config, self.bias * scale)
        suspects = sorted({*confirmed, *np.flatnonzero(suspicious).tolist()})
        steps = {}
        for i in suspects:
            # That it is suspicious is known; `next_step` then asks only whether there was a screen.
            screen, done = (Replicate(self.ratios[i], tuple(self.orders[i])),), confirmed.get(i, [])
            if done:
                steps[i] = decision.next_step(screen, done, self.config, self.bias[i] * scale, suspects=len(suspects))
            else:
                steps[i] = decision.Step("confirm", self.config.replicates, self.config.confirm_pairs)
        return {i: step for i, step in steps.items() if step.action == "confirm"}

    def _scale(self, confirmed: dict[int, list[Replicate]]) -> float:
        return noise.bias_scale([([r.ratios for r in done], self.bias[i]) for i, done in confirmed.items()])


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
        found = Outcome.FAST_ENOUGH
        if stages["confirm"]:
            e = decision.weigh_confirmation(stages["confirm"], CONFIG, bias)
            found = decision.outcome_of(e, CONFIG, e.p_slower, e.p_faster)
        verdicts[VERDICTS[found]] += 1
    return verdicts, replicates / runs


def controls(
    count: int,
    runs: int,
    rng: np.random.Generator,
    *,
    pair_noise: float,
    screen_noise: float,
    config: GateConfig,
    expected: float,
    shift: float = 0.0,
) -> float:
    """Return the share of runs that `count` controls, all of them identical code, make environment-invalid.

    Args:
        count: of controls.
        runs: how many.
        rng: the source of chance.
        pair_noise, screen_noise: standard deviations of a pair and of a screen's estimate; the bias explains the rest.
        config: of the controls.
        expected: the bias that the gate expects.
        shift: what the machine adds to every head.
    """
    bias = math.sqrt(max(0.0, screen_noise**2 - pair_noise**2 / config.screen_pairs))

    def measure(pairs: int) -> Replicate:
        ratios = shift + rng.normal(0, bias) + rng.normal(0, pair_noise, pairs)
        return Replicate(ratios, tuple(i % 2 == 1 for i in range(pairs)))

    invalid = 0
    for _ in range(runs):
        screens = [measure(config.screen_pairs) for _ in range(count)]
        confirmed = {
            i: [measure(config.confirm_pairs) for _ in range(config.replicates)]
            for i, screen in enumerate(screens)
            if decision.next_step([screen], [], config, expected).action == "confirm"
        }
        scale = noise.bias_scale([([r.ratios for r in found], expected) for found in confirmed.values()])
        known = {i: decision.weigh_confirmation(found, config, expected * scale) for i, found in confirmed.items()}
        slower, faster = (stats.holm([getattr(e, p) for e in known.values()]) for p in ("p_slower", "p_faster"))
        findings = {
            i: decision.outcome_of(e, config, s, f) for (i, e), s, f in zip(known.items(), slower, faster, strict=True)
        }
        evidence = [known.get(i) or decision.weigh_screen([s], config, expected * scale) for i, s in enumerate(screens)]
        report = run_verdict.control_test(
            {str(i): run_verdict.Control(e, config, findings.get(i)) for i, e in enumerate(evidence)}, config.alpha
        )
        invalid += run_verdict.moved(report)
    return invalid / runs


def pools() -> dict[str, Pool]:
    """The kernels by length and by how they were timed.

    "long": above 25 microseconds, where a replicate's bias is a small part of 3 %. "short": below, launch by launch, where it
    rules. "recorded": below, as the gate times them.
    """
    launches, recorded = (traces(source) for source in SOURCES)
    return {
        "long": Pool(tuple(t for t in launches if t.seconds > 25e-6)),
        "short": Pool(tuple(t for t in launches if t.seconds <= 25e-6)),
        "recorded": Pool(tuple(t for t in recorded if t.seconds <= 25e-6)),
    }
