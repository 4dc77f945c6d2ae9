"""Duet timing: two processes, one a commit, take turns of a few launches, so that whatever the machine does meets both.

On the CPU they alternate launch by launch on one core (docs/gate-statistics.md, "On a CPU"): what else a shared machine does comes and
goes within a turn, and so meets neighbouring launches alike.

(Bulej et al., Duet benchmarking, ICPE 2020; there the two run at the same time, here in turns, since they share one
device.)
"""

from __future__ import annotations

import contextlib
import math
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Literal, TypedDict

from tilegate.config import GateConfig
from tilegate.measuring import crosscheck
from tilegate.measuring.disturbance import Patience, clock, reason
from tilegate.measuring.pool import WorkerPool
from tilegate.measuring.referee import Referee, in_time, new_draw, spots
from tilegate.measuring.session import WorkerError
from tilegate.protocol import is_call
from tilegate.protocol.device_state import FAST_SOURCES
from tilegate.schemas.samples import Pair, SideName

SIDES: tuple[SideName, ...] = ("base", "head")


class Result(TypedDict):
    """What was measured of one case in one pair of processes.

    Times are seconds, each the mean of `recorded` launches; pairs of the same place had the same buffers; `host_state`: what
    the sensors said last; `looks`: how many launches of each side were compared with the reference; `watch`: what the gate's
    own clock says.
    """

    pairs: list[Pair]
    host_state: dict[SideName, dict[str, Any]]
    recorded: int
    looks: int
    watch: crosscheck.Watch


LOOKS = 3
"""Launches of each side that are looked at in a replicate. A head that skips half of its work, and so every second launch at
least, gets past a screen and two confirmations in 1 of 512 runs."""

PLACING_SHARE = 0.05
"""How much of the measuring of a replicate may be spent on new places for its buffers."""
_LATER_SET_UP = 0.15  # of a case's first, which also imports and loads (59 ms, then 7 ms: this repository's, on a CPU)


class SideError(Exception):
    """One side of a pair failed.

    Attributes:
        side: "base" or "head".
        error: what happened.
        operation: what it had been asked to do.
    """

    def __init__(self, side: str, error: WorkerError, operation: str) -> None:
        """Say which side failed, and how."""
        super().__init__(f"{side}: {error}")
        self.side, self.error, self.operation = side, error, operation


@dataclass(frozen=True)
class Prepared:
    """How a case is timed in one pool.

    Attributes:
        seconds: of a launch, roughly.
        recorded: how many launches make a sample.
        launches: how many samples make a turn.
        set_up_seconds: how long the set-up took.
    """

    seconds: float
    recorded: int
    launches: int
    set_up_seconds: float


@dataclass
class Turns:
    """One case in one pool: what is asked of its workers.

    Attributes:
        pool: timed workers, one for each side.
        case: its id.
        config: launches, warm-up and timeouts.
        referee: compares launches with the reference.
        shown: the suite shows what launches read and write; known once the case is set up.
        draws: of each side, what decided the inputs of the turn that was looked at last.
        taken: of each side, its turns so far by both clocks; where the sides alternate, each launch is one.
        recorded: how many launches make a time.
    """

    pool: WorkerPool
    case: str
    config: GateConfig
    referee: Referee | None = None
    shown: bool = False
    draws: dict[str, str] = field(default_factory=dict)
    taken: defaultdict[str, list[crosscheck.Turn]] = field(default_factory=lambda: defaultdict(list))
    recorded: int = 1

    def ask(self, side: str, operation: str, timeout: float, **arguments: Any) -> Any:
        """Ask one side. Raises SideError."""
        return self.ask_all(operation, timeout, {side: arguments})[side]

    def ask_all(self, operation: str, timeout: float, arguments: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Ask several sides at once. Raises SideError."""
        answers = self.pool.request_all(operation, timeout, arguments)
        found = {}
        for side, answer in answers.items():
            try:
                found[side] = answer()
            except WorkerError as error:
                raise SideError(side, error, operation) from error
        return found

    def prepare(self, sides: Sequence[str], warm_up: float) -> Prepared:
        """Set the case up and warm it up."""
        config = self.config
        set_up_seconds = self._set_up(sides, warm_up)
        # The slower one's: a head that takes a thousand times as long must not be asked for as much as the base can do.
        seconds = max(median(self.turn(side, config.min_launches)) for side in sides)
        # All alike: a launch in a recording and one alone take different times.
        recorded = {self.ask(side, "record", config.measure_timeout, seconds=seconds) for side in sides}
        if len(recorded) > 1:
            for side in sides:
                self.ask(side, "single", config.measure_timeout)
            recorded = {1}
        (count,) = recorded
        return Prepared(seconds, count, launches_per_turn(seconds * count, config), set_up_seconds)

    def prepare_apart(self, sides: Sequence[str], warm_up: float) -> Prepared:
        """As `prepare`, but one side after the other, each torn down before the next. Raises SideError."""
        found = []
        for side in sides:
            found.append(self.prepare([side], warm_up))
            self.ask(side, "teardown", self.config.measure_timeout)
        seconds, set_up_seconds = max(p.seconds for p in found), max(p.set_up_seconds for p in found)
        recorded = found[0].recorded if len({p.recorded for p in found}) == 1 else 1
        return Prepared(seconds, recorded, launches_per_turn(seconds * recorded, self.config), set_up_seconds)

    def place_anew(self, sides: Sequence[str], prepared: Prepared) -> None:
        """Set the case up once more, its buffers at other places; it is then timed as before. Raises SideError."""
        self._set_up(sides, 0.0)
        for side in sides if prepared.recorded > 1 else ():
            if self.ask(side, "record", self.config.measure_timeout, seconds=prepared.seconds) != prepared.recorded:
                message = "it could be recorded at first, and then no more"
                raise SideError(side, WorkerError("error", message, None), "record")

    def _set_up(self, sides: Sequence[str], warm_up: float) -> float:
        """Set the case up, and launch for so long; return the seconds that the first took."""
        started = time.monotonic()
        shown = self.ask_all("setup", self.config.compile_timeout, {side: {"case": self.case} for side in sides})
        self.shown = all(shown.values())
        taken = time.monotonic() - started
        for side in sides:  # one after the other: they share the device
            self.ask(side, "warm_up", self.config.measure_timeout + warm_up, seconds=warm_up)
        return taken

    def turn(self, side: str, launches: int, spot: float | None = None) -> list[float]:
        """Take one turn, on new inputs: the seconds of each launch; look at the one at `spot`. Raises SideError."""
        extra: dict[str, Any] = {}
        if self.shown:
            extra["draw"] = new_draw()
            if spot is not None:
                extra["spot"], self.draws[side] = spot, extra["draw"]
        started, busy = time.monotonic(), self.pool.busy_seconds(side)
        times: list[float] = self.ask(side, "measure", self.config.measure_timeout, launches=launches, **extra)
        wall, busy_after = time.monotonic() - started, self.pool.busy_seconds(side)
        if len(times) != launches:
            message = f"{launches} launches were asked for, and {len(times)} times came"
            raise SideError(side, WorkerError("error", message, None), "measure")
        worked = None if busy is None or busy_after is None else busy_after - busy
        self.taken[side].append(crosscheck.Turn(launches, sum(times) * self.recorded, wall, worked))
        return times

    def alternately(
        self, sides: Sequence[SideName], launches: int, spot: float | None = None
    ) -> dict[SideName, list[float]]:
        """Take the turns of several sides at once, one launch each, again and again. Raises SideError."""
        taken: dict[SideName, list[float]] = {side: [] for side in sides}
        looked_at = None if spot is None else int(spot * launches)
        for launch in range(launches):
            for side in sides:
                taken[side] += self.turn(side, 1, spot if launch == looked_at else None)
        return taken

    def pair(
        self,
        sides: Sequence[SideName],
        prepared: Prepared,
        spot: float | None,
        *,
        apart: bool,
        after: Callable[[SideName], None],
    ) -> dict[SideName, list[float]]:
        """Take a turn of each side, in that order, and look at a launch of each if there is a spot. Raises SideError.

        Args:
            sides: who is first, and who is second.
            prepared: how.
            spot: from 0 to 1, the launch of the turn to look at.
            apart: set the case up before each turn, and tear it down after it.
            after: called after each turn, if they are taken one after the other.
        """
        if self.pool.target == "cpu" and not apart:
            taken = self.alternately(sides, prepared.launches, spot)
            for side in sides if spot is not None else ():
                self.look(side)
            return taken
        taken = {}
        for side in sides:
            if apart:
                self.place_anew([side], prepared)
            taken[side] = self.turn(side, prepared.launches, spot)
            after(side)
            if spot is not None:
                self.look(side)
            if apart:
                self.ask(side, "teardown", self.config.measure_timeout)
        return taken

    def look(self, side: str) -> None:
        """Have the launch compared that was looked at last. Raises SideError."""
        if self.referee is None:
            return
        try:
            self.referee.look(self.pool, side, self.case, self.draws[side])
        except WorkerError as error:
            raise SideError(side, in_time(error), "look") from error

    def watched(self, state: Mapping[SideName, Mapping[str, Any]], slower: list[float]) -> crosscheck.Watch:
        """Return what the gate's own clock says; without turns where clocks had to repeat launches, for those do not compare."""
        repeats = [{key: of.get(key) for key in ("flushes", "repeated_launches")} for of in state.values()]
        if repeats[0] != repeats[1]:
            return crosscheck.Watch(slower=slower)
        return crosscheck.Watch(self.taken["base"], self.taken["head"], slower)

    def spots(self, turns: int) -> dict[int, float]:
        """Return in which of so many turns a launch is looked at, and which; none if nobody can look."""
        return spots(turns, LOOKS) if self.referee is not None and self.shown else {}

    def state(self, side: str) -> dict[str, Any]:
        """Return what the sensors say. Raises SideError."""
        found: dict[str, Any] = self.ask(side, "state", self.config.measure_timeout)
        return found


def measure(
    pool: WorkerPool,
    case: str,
    pairs: int,
    config: GateConfig,
    order: random.Random,
    *,
    warm_up: float,
    patience: Patience,
    apart: bool = False,
    referee: Referee | None = None,
) -> Result:
    """Measure one case in one pair of processes.

    After every turn the sensors are read, where that takes no more than milliseconds. A pair that they show to be disturbed
    is kept and marked, and measured again when a while has passed; at most as many pairs are added as were asked for.

    Between pairs the case is set up again, its buffers at places that are drawn anew (`tilegate.worker.placement`), as often
    as that takes no more than `PLACING_SHARE` of the time: the luck of one place is then in the noise of the pairs.

    Args:
        pool: timed workers "base" and "head".
        case: its id.
        pairs: how many.
        config: launches and timeouts.
        order: decides who is first.
        warm_up: seconds of launches before the first turn.
        patience: how long may be waited for disturbances to pass.
        apart: only one process at a time can hold the case, so each turn has a set-up and a tear-down of its own.
        referee: compares some of the timed launches of both sides with the reference, if the suite shows what they wrote.

    Raises:
        SideError: one side failed; nothing of the case is kept.
    """
    turns = Turns(pool, case, config, referee)
    prepare = turns.prepare_apart if apart else turns.prepare
    prepared = prepare(order.sample(SIDES, 2), warm_up)
    turns.recorded, turns.taken = prepared.recorded, defaultdict(list)  # what prepared it was warm-up
    placing = _Placing(prepared.set_up_seconds)
    state = {side: turns.state(side) for side in SIDES}
    watched = state["head"].get("source") in FAST_SOURCES
    before, fastest = state["head"], clock(state["head"])
    pending, in_a_row = _orders(pairs, order), 0
    measured: list[Pair] = []
    looked_at, slower = turns.spots(pairs), list[float]()
    known = pool.processes() if referee is None else pool.processes() | referee.processes

    def read_sensors(side: SideName) -> None:
        if watched:
            state[side] = turns.state(side)

    while pending:
        if measured and not apart and placing.affordable():
            with placing.timed():
                turns.place_anew(order.sample(SIDES, 2), prepared)
        head_first = pending.pop(0)
        spot = looked_at.get(len(measured))
        in_order = SIDES[::-1] if head_first else SIDES
        turn = turns.pair(in_order, prepared, spot, apart=apart, after=read_sensors)
        place = len(measured) if apart else placing.place
        pair: Pair = {"order": head_first, "place": place, "base": turn["base"], "head": turn["head"]}
        measured.append(pair)
        if spot is not None:
            slower.append(crosscheck.looked_at(turn["base"], turn["head"], int(spot * prepared.launches)))
        if not watched:
            continue
        after = [state[side] for side in SIDES]
        fastest = max(fastest, *map(clock, after))
        why = reason(before, after, workers=known, fastest=fastest)
        before = state["base" if head_first else "head"]
        if why is None:
            in_a_row = 0
            continue
        pair["disturbed"] = why
        in_a_row += 1
        if len(measured) + len(pending) < 2 * pairs:
            pending.append(head_first)
            patience.wait(in_a_row)
    if not watched:
        state = {side: turns.state(side) for side in SIDES}
    turns.ask_all("teardown", config.measure_timeout, {side: {} for side in SIDES})
    scaled = is_call(case.partition("(")[0]) and prepared.recorded > 1  # to the seconds of another host
    return {
        "pairs": measured,
        "host_state": state,
        "recorded": prepared.recorded,
        "looks": len(looked_at),
        "watch": crosscheck.Watch(slower=slower) if scaled else turns.watched(state, slower),
    }


def measure_alone(
    pool: WorkerPool,
    side: str,
    case: str,
    count: int,
    config: GateConfig,
    *,
    warm_up: float,
    referee: Referee | None = None,
) -> list[list[float]]:
    """Measure a case that the base does not have, in one worker; return the seconds of each launch of `count` turns.

    Raises:
        SideError: it failed.
    """
    turns = Turns(pool, case, config, referee)
    prepared = turns.prepare([side], warm_up)
    looked_at, measured = turns.spots(count), []
    for index in range(count):
        measured.append(turns.turn(side, prepared.launches, looked_at.get(index)))
        if index in looked_at:
            turns.look(side)
    turns.ask(side, "teardown", config.measure_timeout)
    return measured


class _Placing:
    """Which places the buffers are at, counted from 0, and whether a new one can be paid for."""

    def __init__(self, set_up_seconds: float) -> None:
        self.place = 0
        self._started = time.monotonic()
        self._spent, self._last = 0.0, _LATER_SET_UP * set_up_seconds

    def affordable(self) -> bool:
        """Return whether one more, at the price of the last, stays within the share."""
        return self._spent + self._last <= PLACING_SHARE * (time.monotonic() - self._started)

    @contextlib.contextmanager
    def timed(self) -> Iterator[None]:
        """Move to a new place while the context lasts."""
        started = time.monotonic()
        yield
        self._last = time.monotonic() - started
        self._spent += self._last
        self.place += 1


def launches_per_turn(seconds: float, config: GateConfig) -> int:
    """Return how many launches (or recordings) of `seconds` each make one turn; the same for both sides."""
    wanted = math.ceil(config.turn_seconds / max(seconds, 1e-9))
    return max(config.min_launches, min(config.max_launches, wanted))


def _orders(pairs: int, order: random.Random) -> list[Literal[0, 1]]:
    """Return who is first in each pair (1: head): half each, shuffled, so that an advantage of the first cancels."""
    orders: list[Literal[0, 1]] = [1 if index % 2 else 0 for index in range(pairs)]
    order.shuffle(orders)
    return orders
