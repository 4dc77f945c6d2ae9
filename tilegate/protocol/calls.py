"""The clock for calls: what a call of a public function costs its caller, while the device works behind it.

A host is a worse place to measure than a device. The same call takes 28 us in one process and 45 us in the next, for seconds
or for one turn (H200, a virtual machine of 16 cores); a process that shares its cores with others loses them for
milliseconds at any time. What helps against both (docs/short-kernels.md has the figures):

- Short blocks of calls, of which the fastest counts: a block of four is over before anything comes in between, often enough.
- A yardstick: after every block comes a fixed piece of work of the same kind (Python and small torch calls, none of it the
  package's). A sample is the fastest block divided by the fastest yardstick, so a slow core slows both and is not seen.
- One core: both sides take their turns on the same one.

Hence times of short calls are seconds on a host that does the yardstick in `YARDSTICK_SECONDS`, not this one's. What is slow
in only one call of five or more stays unseen; what is slow in each, or with each new argument, does not.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter_ns

from tilegate.protocol.artifacts import JSON
from tilegate.protocol.clocks import (
    Around,
    Clock,
    Timed,
    check_launches,
    no_garbage_collection,
    one_core,
    require_device,
)

YARDSTICK_SECONDS = 25e-6
"""By definition. About what a 2-core AMD EPYC virtual machine takes when it does nothing else."""

SHORT_CALL = 1e-3
"""Seconds. A longer call is timed by itself, unscaled: what it costs is hardly the host's overhead."""

_BLOCK, _BLOCKS = 4, 16
_WARM_UP_CALLS = 64
_UNCOUNTED_CALLS = 8  # at the start of a turn: they find the host's caches as the other process left them


def call_clock_for(target: str) -> Clock:
    """Return a new clock for calls, on the current device of `target`.

    Raises:
        ValueError, RuntimeError: as `clocks.clock_for`.
    """
    if target == "cpu":
        return CallClock(lambda: None)
    require_device(target)
    import torch  # noqa: PLC0415 - the protocol is imported without it

    return CallClock(torch.cuda.synchronize)


@dataclass(frozen=True)
class _Series:
    """Many calls that make one sample."""

    call: Callable[[], object]

    def __call__(self) -> None:
        self.call()


class CallClock:
    """The host's monotonic clock around calls that nobody waits for, until the last has been made.

    No cache is flushed: a caller's code is warm, and so is what it calls. All that is counted in calls and not in seconds
    is the same for both sides of a comparison, so both see the same sequence of arguments, however long a call takes.

    Args:
        synchronize: waits for the device; called before and after a series, never within.
    """

    name = "host-monotonic"

    def __init__(self, synchronize: Callable[[], object]) -> None:
        """See the class."""
        self._synchronize = synchronize
        self._yardstick: Callable[[], object] | None = None

    def warm_up(self, launch: Callable[[], object], seconds: float) -> None:
        """Call 64 times, whatever `seconds` is."""
        for _ in range(_WARM_UP_CALLS):
            launch()
        self._synchronize()

    def measure(self, launch: Callable[[], object], launches: int, around: Around | None = None) -> list[float]:
        """Return the seconds of each of `launches` calls, or of as many series that `record` made.

        `around` is around each call, or around each block of them: a result of before comes of use within a block at most.
        """
        check_launches(launches)
        with one_core(), no_garbage_collection():
            self._synchronize()
            for _ in range(_UNCOUNTED_CALLS):
                launch()
            if isinstance(launch, _Series):
                samples = [self._series(launch.call, around) for _ in range(launches)]
            else:
                samples = [_seconds(launch, 1, around) for _ in range(launches)]
            self._synchronize()
        return samples

    def record(self, launch: Callable[[], object], seconds: float) -> Timed | None:
        """See `Clock.record`: a short call is timed in blocks, against the yardstick."""
        return Timed(_Series(launch), _BLOCK * _BLOCKS, _BLOCKS) if seconds < SHORT_CALL else None

    def state(self) -> dict[str, JSON]:
        """Nothing: the kernels' clock reads the sensors."""
        return {}

    def _series(self, call: Callable[[], object], around: Around | None) -> float:
        if self._yardstick is None:
            self._yardstick = _yardstick()
        calls, yardsticks = [], []
        for _ in range(_BLOCKS):
            calls.append(_seconds(call, _BLOCK, around))
            yardsticks.append(_seconds(self._yardstick, _BLOCK))
        return _BLOCK * _BLOCKS * YARDSTICK_SECONDS * min(calls) / min(yardsticks)


def _seconds(call: Callable[[], object], count: int, around: Around | None = None) -> float:
    if around is not None:
        around.before()
        around.ready()
    start = perf_counter_ns()
    for _ in range(count):
        call()
    seconds = (perf_counter_ns() - start) * 1e-9
    if around is not None:
        around.after()
    return seconds


def _yardstick() -> Callable[[], object]:
    """Return the fixed work: what a checking, allocating function does, in torch where it is installed, else in Python.

    It depends on the interpreter alone, and so is the same on both sides whatever their packages import.
    """
    if importlib.util.find_spec("torch") is None:
        return lambda: [len(str(number)) for number in range(200)]
    import torch  # noqa: PLC0415 - the protocol is imported without it

    shape, dtype, device = (1, 33, 2, 64), torch.float32, torch.device("cpu")

    def work() -> object:
        made = None
        for _ in range(2):
            made = torch.empty(shape, dtype=dtype, device=device)
            if not isinstance(made, torch.Tensor) or made.ndim != 4 or not made.is_contiguous():
                raise TypeError
            {(tuple(made.shape), str(made.dtype), made.device.type): made}
        return made

    return work
