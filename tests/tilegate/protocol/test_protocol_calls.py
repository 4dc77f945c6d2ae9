"""The clock for calls, on a host whose every time is known."""

from __future__ import annotations

import pytest

from tilegate.protocol import calls as module
from tilegate.protocol import recorded
from tilegate.protocol.calls import SHORT_CALL, YARDSTICK_SECONDS, CallClock, call_clock_for

CALL, YARDSTICK = 30, 10  # microseconds


class Host:
    """Counts microseconds; `slowness(now)` is by what factor it is slower than usual."""

    def __init__(self, monkeypatch, slowness=lambda now: 1.0):
        self.now, self.slowness = 0.0, slowness
        self.calls = 0
        self.waits = []
        monkeypatch.setattr(module, "perf_counter_ns", lambda: int(self.now * 1000))
        monkeypatch.setattr(module, "_yardstick", lambda: lambda: self.work(YARDSTICK))
        self.clock = CallClock(lambda: self.waits.append(self.calls))

    def work(self, microseconds):
        self.now += microseconds * self.slowness(self.now)

    def call(self, extra=lambda number: 0):
        self.calls += 1
        self.work(CALL + extra(self.calls))

    def sample(self, extra=lambda number: 0):
        (seconds,) = recorded(self.clock, lambda: self.call(extra), 1e-5).measure(self.clock, 1)
        return seconds


def test_a_call_is_timed_until_it_returns_and_the_device_is_waited_for_outside(monkeypatch):
    host = Host(monkeypatch)
    assert host.clock.measure(host.call, 5) == pytest.approx([30e-6] * 5)
    assert host.waits == [0, 8 + 5]


def test_a_short_call_is_told_in_yardsticks(monkeypatch):
    usual = CALL / YARDSTICK * YARDSTICK_SECONDS
    assert Host(monkeypatch).sample() == pytest.approx(usual)
    assert Host(monkeypatch, lambda now: 1.6).sample() == pytest.approx(usual)  # on a slow core
    # Something else has the core for a millisecond of every two.
    assert Host(monkeypatch, lambda now: 9.0 if now % 2000 < 1000 else 1.0).sample() == pytest.approx(usual)


@pytest.mark.parametrize(
    ("extra", "shows"),
    [
        (lambda number: 6, 0.2),  # each call waits for the device, or compiles a kernel for its length
        (lambda number: 24 * (number % 4 == 0), 0.2),  # one in four
        (lambda number: 1000 * (number % 32 == 0), 0.0),  # documented: what is rare is not seen
    ],
    ids=["each", "one in four", "rare"],
)
def test_what_is_slow_in_every_block_shows(monkeypatch, extra, shows):
    assert Host(monkeypatch).sample(extra) / Host(monkeypatch).sample() == pytest.approx(1 + shows)


def test_a_long_call_is_timed_by_itself(monkeypatch):
    host = Host(monkeypatch)
    assert host.clock.record(host.call, SHORT_CALL) is None
    assert recorded(host.clock, host.call, 1.0).launches == 1


def test_calls_are_counted_so_that_both_sides_meet_the_same_arguments(monkeypatch):
    host = Host(monkeypatch)
    host.clock.warm_up(host.call, 5.0)
    host.clock.measure(host.call, 3)
    recorded(host.clock, host.call, 1e-5).measure(host.clock, 2)
    assert host.calls == 64 + (8 + 3) + (8 + 2 * 64)


@pytest.mark.parametrize("torch", [True, False])
def test_the_yardstick_works_with_torch_and_without(monkeypatch, torch):
    if not torch:
        monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    clock = call_clock_for("cpu")
    assert all(seconds > 0 for seconds in recorded(clock, lambda: None, 1e-6).measure(clock, 3))


def test_no_calls_are_refused():
    with pytest.raises(ValueError, match="at least 1"):
        call_clock_for("cpu").measure(lambda: None, 0)
