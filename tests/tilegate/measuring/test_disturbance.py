"""Pairs that something else disturbed: recognised by sensors, marked, measured again, and never without end."""

from __future__ import annotations

import random

import pytest
from sample_builder import CONFIG

from tilegate.measuring import disturbance, duet
from tilegate.measuring.disturbance import Patience, reason
from tilegate.measuring.session import WorkerError
from tilegate.protocol import RECORDED, SHORT

QUIET = {"source": "nvml", "sm_clock_mhz": 1980, "throttle_reasons": [], "thermal_throttle_counter": 7, "busy_processes": [1, 2]}  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({}, None),
        ({"throttle_reasons": ["hw_thermal_slowdown"]}, "throttled"),
        ({"throttle_reasons": ["sw_power_cap"], "sm_clock_mhz": 1300}, None),  # a long kernel's own doing
        ({"thermal_throttle_counter": 8}, "throttled"),
        ({"busy_processes": [1, 2, 3]}, "other process"),
        ({"busy_processes": [1]}, None),
        ({"busy_processes": [901, 902]}, None),  # numbered otherwise, as in a container: two are ours
        ({"busy_processes": [901, 902, 903]}, "other process"),
        ({"busy_processes": [], "occupying_processes": [44]}, "other process"),
        ({"occupying_processes": [2]}, None),
        ({"sm_clock_mhz": 1700}, "clock drop"),
        ({"sm_clock_mhz": 1900}, None),
        ({"sm_clock_mhz": 345, "throttle_reasons": ["gpu_idle"]}, None),
    ],
    ids=str,
)
def test_reasons(changed, why):
    for after in ([QUIET, {**QUIET, **changed}], [{**QUIET, **changed}, QUIET]):
        assert reason(QUIET, after, workers={1, 2}, fastest=1980) == why


def test_what_cannot_be_read_disturbs_nobody():
    assert reason(None, [{"source": "amdgpu"}, {"source": "amdgpu"}], workers={1, 2}, fastest=0) is None


def test_patience_ends(monkeypatch):
    slept = []
    monkeypatch.setattr(disturbance.time, "sleep", slept.append)
    patience = Patience(5)
    for in_a_row in range(1, 7):
        patience.wait(in_a_row)
    assert slept == [0.5, 1, 2, 1.5]
    assert patience.seconds == 0


class WorkerPool:
    """Workers of one microsecond-exact machine; `sensors(turn)` is what they read after so many turns."""

    def __init__(self, sensors, seconds=1e-3, recordable=("base", "head"), target="cuda"):
        self.sensors, self.seconds, self.recordable, self.target = sensors, seconds, recordable, target
        self.turns: list[str] = []
        self.asked: list[tuple[str, str]] = []
        self.recorded: set[str] = set()

    def processes(self):
        return {1, 2}

    def busy_seconds(self, side):
        return None

    def request_all(self, operation, timeout, arguments):
        answers = {side: self._answer(side, operation, **given) for side, given in arguments.items()}
        return {side: lambda side=side: answers[side] for side in answers}

    def _answer(self, side, operation, launches=0, seconds=0.0, **_):
        self.asked.append((side, operation))
        if operation == "state":
            return self.sensors(len(self.turns))
        if operation == "record":
            able = side in self.recordable and seconds < SHORT
            self.recorded |= {side} if able else set()
            return RECORDED if able else 1
        if operation == "single":
            self.recorded.clear()
        if operation == "measure":
            self.turns.append(side)
            return [self.seconds] * launches
        return None


def _measure(pool, pairs=8, patience=0.0):
    return duet.measure(
        pool, "case", pairs, CONFIG, random.Random(1), warm_up=0.0, patience=Patience(patience)  # noqa: S311
    )  # fmt: skip


def test_a_disturbed_pair_is_kept_marked_and_measured_again():
    # Two turns decide the number of launches; then come the pairs, the second of them hot.
    pool = WorkerPool(lambda turns: {**QUIET, "throttle_reasons": ["hw_slowdown"] if turns in (5, 6) else []})
    pairs = _measure(pool)["pairs"]
    assert [pair.get("disturbed") for pair in pairs] == [None, "throttled", *[None] * 7]
    assert pairs[-1]["order"] == pairs[1]["order"]
    assert sum(pair["order"] for pair in pairs if "disturbed" not in pair) == 4  # still half each


def test_a_disturbance_that_stays_is_given_up_and_reported():
    pairs = _measure(WorkerPool(lambda turns: {**QUIET, "busy_processes": [1, 2, 3]}))["pairs"]
    assert len(pairs) == 16  # the judge allows no more
    assert {pair["disturbed"] for pair in pairs} == {"other process"}


def test_sensors_that_are_slow_to_read_are_not_read_after_every_turn():
    pool = WorkerPool(lambda turns: {**QUIET, "source": "nvidia-smi", "busy_processes": [1, 2, 3]})
    result = _measure(pool)
    assert [operation for _, operation in pool.asked].count("state") == 4  # before and after the case
    assert not any("disturbed" in pair for pair in result["pairs"])
    assert result["host_state"]["base"]["busy_processes"] == [1, 2, 3]


@pytest.mark.parametrize(
    ("seconds", "recordable", "recorded", "launches"),
    [
        (8e-6, ("base", "head"), {"base", "head"}, 12),  # 3 ms a turn, of recordings
        (8e-6, ("base",), set(), 30),  # both or neither
        (60e-6, ("base", "head"), set(), 30),
    ],
)
def test_short_launches_are_recorded_if_both_sides_can_be(seconds, recordable, recorded, launches):
    pool = WorkerPool(lambda turns: {}, seconds, recordable)
    result = _measure(pool)
    pairs = result["pairs"]
    assert pool.recorded == recorded
    assert result["recorded"] == (RECORDED if recorded else 1)
    assert {len(pair[side]) for pair in pairs for side in ("base", "head")} == {launches}
    assert not recorded or launches == -(-CONFIG.turn_seconds // (RECORDED * seconds))


def test_on_the_cpu_the_sides_alternate_launch_by_launch_each_first_in_half_of_the_pairs():
    pool = WorkerPool(lambda turns: {}, target="cpu")
    result = _measure(pool)
    trial = 2  # turns, which decide the number of launches
    launches = CONFIG.min_launches
    taken = pool.turns[trial:]
    for number, pair in enumerate(result["pairs"]):
        first, second = ("head", "base") if pair["order"] else ("base", "head")
        assert taken[2 * launches * number :][: 2 * launches] == [first, second] * launches
        assert len(pair["base"]) == len(pair["head"]) == launches
    assert len(taken) == 2 * launches * len(result["pairs"])
    assert sum(pair["order"] for pair in result["pairs"]) == len(result["pairs"]) // 2


def test_on_a_gpu_a_turn_is_taken_at_once():
    pool = WorkerPool(lambda turns: {})
    pairs = _measure(pool)["pairs"]
    assert len(pool.turns) == 2 + 2 * len(pairs)


def test_the_side_that_failed_is_named():
    class Failing(WorkerPool):
        def request_all(self, operation, timeout, arguments):
            answers = super().request_all(operation, timeout, arguments)
            if operation == "measure" and len(self.turns) > 5 and "head" in arguments:

                def fail():
                    raise WorkerError("crash", "gone", None)

                answers["head"] = fail
            return answers

    with pytest.raises(duet.SideError) as caught:
        _measure(Failing(lambda turns: QUIET))
    assert caught.value.side == "head"
