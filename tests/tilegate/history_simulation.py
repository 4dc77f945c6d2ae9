"""Histories whose truth is known, with comparisons drawn from real A/A noise: each is two replicates, weighed as the gate weighs them.

A bank of comparisons of a version with itself is drawn once from the traces (gate_simulation.py). A simulated edge takes one of them, of
the case's kernel, and adds the planted change: pairs of turns are log ratios, so that is what multiplying one side's times does.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace

import gate_simulation
import numpy as np

from tilegate.history.network import Edge, Network, interval, solve
from tilegate.judging import decision
from tilegate.judging.decision import Replicate

SHORTEST = 50e-6  # seconds: of shorter kernels two replicates say little (docs/gate-statistics.md)
PAIRS = 16
ALARM = 0.01  # the smallest slowdown that is an entry of the inbox


@dataclass(frozen=True)
class Drawn:
    """A comparison of a version with itself: what it says, and how sure it is."""

    log_ratio: float
    error: float
    freedom: float


@functools.cache
def bank(count: int = 60, seed: int = 0) -> tuple[tuple[Drawn, ...], ...]:
    """Return `count` comparisons for each kernel above `SHORTEST`."""
    rng = np.random.default_rng(seed)
    long = [trace for trace in gate_simulation.traces() if trace.seconds >= SHORTEST]
    pool = gate_simulation.Pool(tuple(long))
    return tuple(tuple(_drawn(pool, which, trace, rng) for _ in range(count)) for which, trace in enumerate(long))


def _drawn(pool: gate_simulation.Pool, which: int, trace: gate_simulation.Trace, rng: np.random.Generator) -> Drawn:
    ratios, orders = pool.draw(np.array([which, which]), np.zeros(2), PAIRS, rng)
    return weighed(ratios, orders, trace.bias(gate_simulation.CONFIG))


def weighed(ratios: np.ndarray, orders: np.ndarray, bias: float) -> Drawn:
    """Weigh replicates, a row each, as the gate does."""
    replicates = [
        Replicate(row, tuple(bool(first) for first in order)) for row, order in zip(ratios, orders, strict=True)
    ]
    evidence = decision.weigh_confirmation(replicates, gate_simulation.CONFIG, bias)
    return Drawn(evidence.interval.estimate, evidence.error, evidence.freedom)


def edges(
    truth: np.ndarray, pairs: list[tuple[int, int]], rng: np.random.Generator, found: tuple[Drawn, ...] | None = None
) -> list[Edge]:
    """Return a comparison for each pair of versions; `truth` is the level of each, in log ratio."""
    kernels = bank()
    drawn = found or kernels[int(rng.integers(len(kernels)))]
    made = []
    for base, head in pairs:
        noise = drawn[int(rng.integers(len(drawn)))]
        sign = 1 if rng.integers(2) else -1
        made.append(
            Edge(str(base), str(head), truth[head] - truth[base] + sign * noise.log_ratio, noise.error, noise.freedom)
        )
    return made


def chain(count: int, anchors: tuple[int, ...] = ()) -> list[tuple[int, int]]:
    """Neighbours, and the first version against each anchor."""
    return [(n, n + 1) for n in range(count - 1)] + [(0, n) for n in anchors]


def network(truth: np.ndarray, pairs: list[tuple[int, int]], rng: np.random.Generator) -> Network:
    """Draw and solve."""
    return solve([str(n) for n in range(len(truth))], edges(truth, pairs, rng))


def covered(found: Network, truth: np.ndarray, asked: list[tuple[int, int]]) -> list[bool]:
    """Whether each contrast's interval holds the truth; what nothing connects is left out."""
    contrasts = [(found.contrast(str(a), str(b)), truth[b] - truth[a]) for a, b in asked]
    return [c.low <= value <= c.high for c, value in contrasts if c is not None]


def coverage(histories: int, seed: int = 1) -> tuple[float, float]:
    """Return how often intervals of four contrasts hold the truth, and how often a history has a flagged edge though none is bad."""
    rng = np.random.default_rng(seed)
    inside: list[bool] = []
    flagged = 0
    for _ in range(histories):
        truth = np.cumsum(np.r_[0, rng.normal(0, 0.003, 19)])
        found = network(truth, chain(20, (5, 10, 15, 19)), rng)
        inside += covered(found, truth, [(0, 19), (3, 8), (9, 10), (0, 12)])
        flagged += bool(found.flagged)
    return float(np.mean(inside)), flagged / histories


@dataclass(frozen=True)
class Found:
    """What was made of planted steps: shares of steps that are certain, that are alarms, and false ones of each an edge."""

    certain: float
    alarms: float
    false_certain: float
    false_alarms: float


def planted(size: float, histories: int, seed: int = 2) -> Found:
    """Return what becomes of one step among 40 edges."""
    rng = np.random.default_rng(seed)
    counts = np.zeros(4)
    for _ in range(histories):
        truth = np.zeros(41)
        at = int(rng.integers(1, 41))
        truth[at:] += size
        for edge in edges(truth, chain(41), rng):
            contrast = interval(edge.log_ratio, edge.error, edge.freedom)
            certain = contrast.low > 0
            alarm = certain and contrast.estimate >= ALARM
            place = 0 if edge.head == str(at) else 2
            counts[place : place + 2] += certain, alarm
    return Found(counts[0] / histories, counts[1] / histories, *(counts[2:] / (39 * histories)))


def creep(histories: int, anchors: tuple[int, ...], seed: int = 3) -> tuple[float, float, float]:
    """0.05 % a commit over 60: return coverage, standard error and certainty of head against release."""
    rng = np.random.default_rng(seed)
    truth = np.arange(60) * 0.0005
    inside, errors, certain = [], [], []
    for _ in range(histories):
        contrast = network(truth, chain(60, anchors), rng).contrast("0", "59")
        inside.append(contrast.low <= truth[-1] <= contrast.high)
        errors.append(contrast.error)
        certain.append(contrast.low > 0)
    return float(np.mean(inside)), float(np.median(errors)), float(np.mean(certain))


def bad_edge(histories: int, off: float, seed: int = 4) -> tuple[float, float]:
    """One edge of a well anchored chain is off: return how often it, and how often a good one, is flagged."""
    rng = np.random.default_rng(seed)
    caught = wrong = 0
    for _ in range(histories):
        made = edges(np.zeros(12), chain(12, tuple(range(2, 12))), rng)
        bad = int(rng.integers(len(made)))
        made[bad] = replace(made[bad], log_ratio=made[bad].log_ratio + off, name="bad")
        names = [edge.name for edge, _ in solve([str(n) for n in range(12)], made).flagged]
        caught += "bad" in names
        wrong += any(name != "bad" for name in names)
    return caught / histories, wrong / histories


def bimodal(histories: int, gap: float, seed: int = 5) -> float:
    """Coverage where every process is in one of two modes: a replicate is off by `gap`, by none, or by as much the other way."""
    rng = np.random.default_rng(seed)
    long = [trace for trace in gate_simulation.traces() if trace.seconds >= SHORTEST]
    pool = gate_simulation.Pool(tuple(long))
    inside: list[bool] = []
    for _ in range(histories):
        which = int(rng.integers(len(long)))
        drawn = []
        for _ in range(6):
            ratios, orders = pool.draw(np.full(4, which), np.zeros(4), PAIRS, rng)
            modes = gap * (rng.integers(2, size=4) - rng.integers(2, size=4))
            drawn.append(weighed(ratios + modes[:, None], orders, long[which].bias(gate_simulation.CONFIG)))
        made = [Edge(str(n), str(n + 1), each.log_ratio, each.error, each.freedom) for n, each in enumerate(drawn)]
        found = solve([str(n) for n in range(7)], made)
        inside += covered(found, np.zeros(7), [(0, 6), (0, 3), (2, 3), (5, 6)])
    return float(np.mean(inside))


def independent(size: float, histories: int, seed: int = 6) -> tuple[float, float]:
    """The same steps judged by one independent run a commit: shares of |difference| >= ALARM at the step, and elsewhere.

    What is done without turns: neighbours are compared, and 1 % is an alarm.
    """
    rng = np.random.default_rng(seed)
    cases = process_medians()
    hits = false = 0
    for _ in range(histories):
        values = rng.choice(cases[int(rng.integers(len(cases)))], 41)
        at = int(rng.integers(1, 41))
        values[at:] += size
        alarms = np.diff(values) >= ALARM
        hits += bool(alarms[at - 1])
        false += int(alarms.sum() - alarms[at - 1])
    return hits / histories, false / (39 * histories)


@functools.cache
def process_medians() -> tuple[np.ndarray, ...]:
    """ln of the medians of fresh processes of one code, by kernel, centred."""
    import json

    cases = json.loads((gate_simulation.DATA / "h200_process_noise.json").read_text())["cases"]
    medians = [np.log([np.median(times) for times in processes]) for processes in cases.values()]
    return tuple(values - np.median(values) for values in medians)


def percent(value: float) -> str:
    """A share as people read it."""
    return "-" if math.isnan(value) else f"{100 * value:.1f} %"
