"""What others do to find a slower kernel: their rules, on launches of processes that ran one after the other.

- One run and a threshold: the median of one process at each commit.
- `asv continuous`: asv's own code, called with the samples that it would have stored. Its Mann-Whitney U test (p < 0.002)
  and its factor, 1.1 unless the user asks for another; one process a commit, or two with `--interleave-rounds`.
- TileLang's bot (regression workflow of tile-ai/tilelang): the old commit, then the new one; it fails if at least two
  benchmarks run at less than 0.90 of their speed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from asv.commands.compare import _is_result_better
from asv_runner.statistics import compute_stats

DATA = Path(__file__).parents[2] / "tests" / "data" / "h200_process_noise.json"


@dataclass(frozen=True)
class Rule:
    """A rule for a whole run.

    Attributes:
        name: as a legend shows it.
        processes: how many of each commit it measures a case with.
        factor: a case is slower if head takes more than `factor` times base.
        significant: asv's test must call the two different as well.
        needed: how many slower cases make the run red.
    """

    name: str
    processes: int
    factor: float
    significant: bool
    needed: int = 1


RULES = (
    Rule("one run, threshold 5 %", 1, 1.05, significant=False),
    Rule("asv continuous (factor 1.1)", 1, 1.1, significant=True),
    Rule("asv continuous, interleaved rounds, factor 1.02", 2, 1.02, significant=True),
    Rule("TileLang's bot", 1, 1 / 0.90, significant=False, needed=2),
)


def launches() -> dict[str, list[list[float]]]:
    """Read the seconds of each launch of each process of each kernel."""
    cases: dict[str, list[list[float]]] = json.loads(DATA.read_text())["cases"]
    return {name: [[1e-6 * us for us in process] for process in processes] for name, processes in cases.items()}


def slower(rule: Rule, base: list[float], head: list[float]) -> bool:
    """Return whether the rule calls a case slower, as asv's `continuous` asks: is the base better by the factor?"""
    if not rule.significant:
        return bool(np.median(head) > rule.factor * np.median(base))
    if not np.median(base) < np.median(head) / rule.factor:  # asv asks this second, after a test that takes long
        return False
    (time_base, stats_base), (time_head, stats_head) = compute_stats(base, 1), compute_stats(head, 1)
    return bool(
        _is_result_better(time_base, time_head, (stats_base, base), (stats_head, head), rule.factor, use_stats=True)
    )


def share_called(
    rule: Rule, processes: list[list[float]], effect: float, draws: int, rng: np.random.Generator
) -> float:
    """Return in which share of `draws` random choices of processes the rule calls one kernel slower."""
    called = 0
    for _ in range(draws):
        chosen = rng.choice(len(processes), size=2 * rule.processes, replace=False)
        base = [us for p in chosen[: rule.processes] for us in processes[p]]
        head = [us * (1 + effect) for p in chosen[rule.processes :] for us in processes[p]]
        called += slower(rule, base, head)
    return called / draws


def chance_of_red(rule: Rule, clean: float, planted: float | None, cases: int) -> float:
    """Return the probability that a run of `cases` cases is red.

    Args:
        rule: needs one slower case, or two.
        clean: probability that a case without a change is called slower.
        planted: the same for the one case with a change; None: there is none.
        cases: in all, independent of each other.
    """
    others = cases if planted is None else cases - 1
    none = (1 - clean) ** others
    one = others * clean * (1 - clean) ** (others - 1)
    p = planted or 0.0
    if rule.needed == 1:
        return 1 - none * (1 - p)
    return 1 - none - one * (1 - p)
