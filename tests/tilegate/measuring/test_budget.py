"""What is measured first when time is short, and what is left out."""

from __future__ import annotations

import math
import time
from types import SimpleNamespace

import pytest
from sample_builder import CONFIG

from tilegate.judging.decision import Step
from tilegate.measuring import rounds
from tilegate.measuring.budget import Budget


def _budget(left, costs, startup=0.0):
    return Budget(time.monotonic() + left, startup, dict(costs))


def test_no_budget_never_ends():
    budget = Budget.of_minutes(None)
    assert not budget.limited
    assert budget.left == float("inf")
    assert 59 < Budget.of_minutes(1).left <= 60


def test_what_does_not_fit_is_left_out_for_what_does():
    budget = _budget(10.5, {"a": 0.1, "b": 0.5, "c": 0.1})
    pairs, replicates = dict.fromkeys("abc", 16), dict.fromkeys("abc", 2)
    assert budget.affordable("abc", pairs, replicates) == ["a", "c"]  # 3.2 s, 16 s, 3.2 s
    assert budget.affordable("b", pairs, replicates) == []


def test_fresh_processes_cost_once_a_round():
    pairs, replicates = dict.fromkeys("ab", 10), {"a": 2, "b": 1}
    assert _budget(10.5, {"a": 0.1, "b": 0.1}, startup=3.5).affordable("ab", pairs, replicates) == ["a", "b"]
    assert _budget(9.5, {"a": 0.1, "b": 0.1}, startup=3.5).affordable("ab", pairs, replicates) == ["a"]


def test_an_unknown_case_is_taken_to_cost_what_others_do():
    budget = _budget(1, {"a": 0.2, "b": 0.4})
    assert budget.cost("c", 10) == pytest.approx(3)
    budget.paid("c", 10, 1.0)
    assert budget.cost("c", 10) == pytest.approx(1)


@pytest.mark.parametrize(("target", "launches"), [("cuda", [1.0]), ("cpu", [1.0, 20.0, 300.0])])
def test_suspects_come_by_slowdown_a_second_then_the_faster_then_the_noisy(target, launches):
    def screened(ratio, scatter=0.0):
        slower = [ratio * math.exp(scatter * (-1) ** i) for i in range(8)]
        # One launch of the head is fast, so that medians show another ratio than neighbours.
        pairs = [
            {"order": 0, "base": launches, "head": [s * t * (0.01 if t == 20.0 else 1) for t in launches]}
            for s in slower
        ]
        return {"replicates": [{"stage": "screen", "pairs": pairs}]}

    cases = {
        "noisy": screened(1.0, 0.2),
        "dear noisy": screened(1.0, 0.2),
        "faster": screened(0.9),
        "slower": screened(1.1),
        "much slower, dear": screened(1.2),
        "much slower": screened(1.2),
    }
    costs = dict.fromkeys(cases, 0.1) | {"dear noisy": 0.2, "much slower, dear": 1.0}
    timing = SimpleNamespace(
        record=SimpleNamespace(cases=cases), config=CONFIG, budget=_budget(1000, costs), target=target
    )  # fmt: skip
    steps = {name: Step("confirm", 2, 16) for name in cases}
    assert list(rounds._within_budget(timing, "confirm", steps)) == [
        "much slower",
        "slower",
        "much slower, dear",
        "faster",
        "noisy",
        "dear noisy",
    ]
