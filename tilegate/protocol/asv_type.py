"""The `latency_` and `call_` benchmark types for asv."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

from asv_runner.benchmarks._base import Benchmark, _get_first_attr

from tilegate.protocol.calls import call_clock_for
from tilegate.protocol.clocks import Clock, clock_for, recorded
from tilegate.protocol.selection import selection

_TRIAL_LAUNCHES = 3


class LatencyBenchmark(Benchmark):  # type: ignore[misc]  # asv_runner is untyped
    """A benchmark whose body is exactly one launch of the kernel under test, timed launch by launch.

    asv's own `time_` benchmarks run `setup` before every timed call and count it as warm-up, which leaves a GPU cold,
    and read the host's clock. This one sets up once, warms up in time, and takes the samples from the target's clock.

    Attributes (of the class or the function; seconds unless said otherwise):
        warmup_time: how long to launch before the first sample; default 0.1.
        min_samples, max_samples: bounds of the number of samples; defaults 10 and 200.
        sample_time: stop between these bounds once sampling has taken this long; default 0.5.
    """

    name_regex = re.compile(r"^(Latency[A-Z_].+)|(latency_.+)$")
    kind = "latency"
    clock_maker: Callable[[str], Clock] = staticmethod(clock_for)

    def __init__(self, name: str, func: Any, attr_sources: list[Any]) -> None:
        """Collect the attributes; asv calls this for every function whose name matches."""
        super().__init__(name, func, attr_sources)
        self.type = self.kind
        self.unit = "seconds"
        self.rounds = int(_get_first_attr(attr_sources, "rounds", 1))

    def _number(self, attribute: str, default: float) -> float:
        # Read when it is needed: `setup` may set it on the instance, and `asv run -a` adds a source before that.
        return float(_get_first_attr(self._attr_sources, attribute, default))

    def run(self, *params: object) -> dict[str, Any]:
        """Measure; returns ``{"samples": [seconds…], "number": 1}``, which asv stores as it stores its own timings.

        A short launch is recorded (see `clocks`): each sample is then the mean of a recording.
        """
        clock = _clock(type(self).clock_maker, selection().target)

        def launch() -> None:
            self.func(*params)

        if self._number("repeat", 0) == 1:  # asv's --quick: can it run at all?
            return {"samples": clock.measure(launch, 1), "number": 1}
        fewest, most = int(self._number("min_samples", 10)), int(self._number("max_samples", 200))
        clock.warm_up(launch, self._number("warmup_time", 0.1))
        timed = recorded(clock, launch, median(clock.measure(launch, _TRIAL_LAUNCHES)))
        end = perf_counter() + self._number("sample_time", 0.5)
        samples = timed.measure(clock, fewest)
        while len(samples) < most and perf_counter() < end:
            samples += timed.measure(clock, min(fewest, most - len(samples)))
        return {"samples": samples, "number": 1}


class CallBenchmark(LatencyBenchmark):
    """A benchmark whose body is exactly one call of a public function, timed on the host.

    What the caller pays before it has control again: checks, allocation, launch. The device works behind it. Attributes
    as of `LatencyBenchmark`; `warmup_time` has no effect, since calls are counted.
    """

    name_regex = re.compile(r"^call_.+$")
    kind = "call"
    clock_maker = staticmethod(call_clock_for)


@functools.cache
def _clock(make: Callable[[str], Clock], target: str) -> Clock:
    return make(target)
