"""Whether something else than the two kernels shaped a pair: judged from the device's sensors, never from the times."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

State = Mapping[str, Any]

# Of nvml.h, see protocol/device_state.py. Not "sw_power_cap": a long kernel reaches its card's power limit, at the base as
# at the head, and turns of a few launches meet the same limit.
_THROTTLING = frozenset({"hw_slowdown", "hw_thermal_slowdown", "sw_thermal_slowdown", "hw_power_brake"})
# Clocks fall for these reasons without anybody's fault: between two turns, and under that limit.
_HARMLESS = frozenset({"gpu_idle", "sw_power_cap"})
_CLOCK_DROP = 0.9  # of the fastest clock that the replicate has seen; below the steps in which a card adapts its clock

_FIRST_WAIT, _LONGEST_WAIT = 0.5, 8.0  # seconds


def reason(before: State | None, after: Sequence[State], *, workers: Collection[int], fastest: float) -> str | None:
    """Return why a pair does not count; None if nothing speaks against it.

    Args:
        before: the sensors before the pair, if they were read.
        after: the sensors after each of its turns.
        workers: process numbers of the two workers.
        fastest: the fastest clock in MHz that the replicate has seen; 0 if none could be read.
    """
    counters = {state.get("thermal_throttle_counter") for state in (before, *after) if state} - {None}
    if any(_THROTTLING & set(state.get("throttle_reasons", ())) for state in after) or len(counters) > 1:
        return "throttled"
    if any(_others(state, workers) for state in after):
        return "other process"
    if any(_dropped(state, fastest) for state in after):
        return "clock drop"
    return None


def clock(state: State) -> float:
    """Return the clock in MHz, 0 if it could not be read."""
    found = state.get("sm_clock_mhz")
    return float(found) if isinstance(found, int | float) else 0.0


@dataclass
class Patience:
    """How long a run may wait, in all, for disturbances to pass.

    Attributes:
        seconds: what is left.
    """

    seconds: float

    def wait(self, times_in_a_row: int) -> None:
        """Wait a little, longer the more pairs in a row were disturbed; not at all once nothing is left."""
        pause = min(_FIRST_WAIT * 2 ** (times_in_a_row - 1), _LONGEST_WAIT, self.seconds)
        if pause > 0:
            self.seconds -= pause
            time.sleep(pause)


def _others(state: State, workers: Collection[int]) -> bool:
    """Whether other processes than the workers used the device.

    In a container the driver may number processes otherwise than we do; then they can only be counted.
    """
    if set(state.get("occupying_processes", ())) - set(workers):  # read while the workers are idle
        return True
    busy = set(state.get("busy_processes", ()))
    return bool(busy - set(workers)) if busy & set(workers) else len(busy) > len(workers)


def _dropped(state: State, fastest: float) -> bool:
    if _HARMLESS & set(state.get("throttle_reasons", ())):
        return False
    return 0 < clock(state) < _CLOCK_DROP * fastest
