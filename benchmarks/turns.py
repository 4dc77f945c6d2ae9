"""Several launches beside each other: they take turns in random order, timed by the clock that the gate uses."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Mapping

from tilegate.protocol import clock_for

_WARM_UP_SECONDS = 0.1


def take_turns(
    launches: Mapping[str, Callable[[], object]], target: str, *, rounds: int, order: random.Random
) -> dict[str, list[float]]:
    """Time every launch twice in each round.

    Args:
        launches: by name; each starts its kernels on the current stream and does not wait.
        target: "cpu", "cuda" or "hip": whose clock.
        rounds: turns of each.
        order: of the turns.

    Returns:
        Seconds of each launch, from a cold cache, by name.
    """
    clock = clock_for(target)
    for launch in launches.values():
        clock.warm_up(launch, _WARM_UP_SECONDS)
    seconds: dict[str, list[float]] = {name: [] for name in launches}
    for _ in range(rounds):
        for name in order.sample(list(launches), len(launches)):
            # The first launch of a turn meets what the one before it left behind.
            seconds[name] += clock.measure(launches[name], 3)[1:]
    return seconds


def quartiles(seconds: list[float], amount: float = 1.0) -> tuple[float, float, float]:
    """Lower quartile, median and upper quartile of `amount` a second."""
    low, middle, high = (amount / time for time in reversed(statistics.quantiles(seconds, n=4)))
    return low, middle, high
