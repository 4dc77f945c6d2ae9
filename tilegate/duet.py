"""Duet timing: two processes, one a commit, take turns of a few launches, so that whatever the machine does meets both.

(Bulej et al., Duet benchmarking, ICPE 2020; there the two run at the same time, here in turns, since they share one
device.)
"""

from __future__ import annotations

import math
import random
from statistics import median
from typing import Any

from tilegate.config import GateConfig
from tilegate.protocol import RECORDED, SHORT
from tilegate.session import Crew, WorkerError

SIDES = ("base", "head")


class SideError(Exception):
    """One side of a pair failed.

    Attributes:
        side: "base" or "head".
        error: what happened.
    """

    def __init__(self, side: str, error: WorkerError) -> None:
        """Say which side failed, and how."""
        super().__init__(f"{side}: {error}")
        self.side, self.error = side, error


def measure(crew: Crew, case: str, pairs: int, config: GateConfig, order: random.Random) -> dict[str, Any]:
    """Measure one case in one pair of processes.

    Args:
        crew: timed workers "base" and "head".
        case: its id.
        pairs: how many.
        config: launches, warm-up and timeouts.
        order: decides who is first.

    Returns:
        ``{"pairs": [{"order", "base", "head"}], "host_state": {"base": state, "head": state}}``, times in seconds.

    Raises:
        SideError: one side failed; nothing of the case is kept.
    """

    def ask(side: str, operation: str, timeout: float, **arguments: Any) -> Any:
        try:
            return crew.request(side, operation, timeout, **arguments)
        except WorkerError as error:
            raise SideError(side, error) from error

    def turn_of(side: str, launches: int) -> list[float]:
        times: list[float] = ask(side, "measure", patience, launches=launches)
        if len(times) != launches:
            message = f"{launches} launches were asked for, and {len(times)} times came"
            raise SideError(side, WorkerError("error", message, None))
        return times

    crew.start()
    patience = config.measure_timeout
    for side in order.sample(SIDES, 2):
        ask(side, "setup", config.compile_timeout, case=case)
        ask(side, "warm_up", patience + config.warm_up_seconds, seconds=config.warm_up_seconds)
    # The slower one's: a head that takes a thousand times as long must not be asked for as much as the base can do.
    seconds = max(median(turn_of(side, config.min_launches)) for side in order.sample(SIDES, 2))
    if seconds < SHORT:
        # Both or neither: a launch in a recording and one alone take different times.
        recorded = {side: ask(side, "record", patience) for side in SIDES}
        if all(recorded.values()):
            seconds *= RECORDED
        else:
            for side in SIDES:
                ask(side, "single", patience)
    launches = launches_per_turn(seconds, config)
    measured = []
    for head_first in _orders(pairs, order):
        turn = {side: turn_of(side, launches) for side in (reversed(SIDES) if head_first else SIDES)}
        measured.append({"order": head_first, "base": turn["base"], "head": turn["head"]})
    states = {side: ask(side, "state", patience) for side in SIDES}
    for side in SIDES:
        ask(side, "teardown", patience)
    return {"pairs": measured, "host_state": states}


def launches_per_turn(seconds: float, config: GateConfig) -> int:
    """Return how many launches (or recordings) of `seconds` each make one turn; the same for both sides."""
    wanted = math.ceil(config.turn_seconds / max(seconds, 1e-9))
    return max(config.min_launches, min(config.max_launches, wanted))


def _orders(pairs: int, order: random.Random) -> list[int]:
    """Return who is first in each pair (1: head): half each, shuffled, so that an advantage of the first cancels."""
    orders = [index % 2 for index in range(pairs)]
    order.shuffle(orders)
    return orders
