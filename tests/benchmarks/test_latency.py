"""The suite's cases under pytest-benchmark, for the inner loop: the same launches, timed by the same clock.

    pytest tests/benchmarks/test_latency.py --benchmark-enable -k 's1024 and adaptive'

All of pytest-benchmark's options work (--benchmark-autosave, --benchmark-compare, …), and its statistics are of the
device's seconds, not the host's. Without --benchmark-enable each case is launched once, to see that it runs.
"""

from __future__ import annotations

import itertools
from statistics import median

import pytest

from benchmarks.families import suite_classes
from benchmarks.launches import SELECTION
from tilegate.protocol import Timed, clock_for, recorded

CLOCK = clock_for(SELECTION.target)
ROUNDS = 30
CASES = [(timed, case) for timed in suite_classes() for case in itertools.product(*timed.params)]


class _MeasuredSeconds:
    """A timer for pytest-benchmark: the seconds that the clock has measured so far."""

    __name__ = CLOCK.name

    def __init__(self) -> None:
        self.total = 0.0

    def __call__(self) -> float:
        return self.total


TIMER = _MeasuredSeconds()


@pytest.mark.benchmark(timer=TIMER)
@pytest.mark.parametrize("case", CASES, ids=lambda case: " ".join([case[0].family.name, *case[1]]))
def test_a_launch(benchmark, case):
    timed_class, values = case
    instance = timed_class()
    instance.setup(*values)
    name, _, method = instance.family.case.rpartition(".")
    benchmark.group = name

    def launch() -> None:
        getattr(instance, method)(*values)

    timed = Timed(launch)

    def measure() -> None:
        (seconds,) = timed.measure(CLOCK, 1)
        TIMER.total += seconds

    if benchmark.enabled:
        CLOCK.warm_up(launch, timed_class.warmup_time)
        timed = recorded(CLOCK, launch, median(CLOCK.measure(launch, 3)))
        benchmark.extra_info["flops"] = instance.workload.flops
    before = TIMER.total
    benchmark.pedantic(measure, rounds=ROUNDS, iterations=1)
    assert TIMER.total > before
    if benchmark.enabled:
        assert benchmark.stats.stats.total == pytest.approx(TIMER.total - before)
