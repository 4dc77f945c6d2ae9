"""The clocks: how long one launch takes, from a cold cache, one sample a launch (for calls see calls.py).

A launch shorter than `SHORT` is recorded: `RECORDED` of them become one CUDA or HIP graph, a sample is the time of one
replay divided by their number. Timed one by one, the same code in two fresh pairs of processes differs by about 80 ns for
all that process's kernels alike, whatever is done to their buffers; replayed, by a tenth of that (docs/short-kernels.md).

The functions that read time are taken when this module is imported, and the device's when a clock is made: make the
clock before importing the code under test, and a patch of `time` or `torch` does not reach them (a kernel once patched
the timer of a public competition, reference-kernels issue 162). Code that looks for this module can still change it.
"""

from __future__ import annotations

import ctypes
import gc
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns
from typing import Any, Protocol

from tilegate.protocol.artifacts import JSON
from tilegate.protocol.device_state import read_state
from tilegate.protocol.selection import selection

_MIB = 1 << 20

# At least twice the last-level cache. torch reports a GPU's L2 only (4 MB per XCD on MI300X), not the 256 MB Infinity
# Cache behind it, hence the floor. Written at 4.8 TB/s (H200) it also keeps the device busy for 0.1 ms meanwhile, in
# which the host queues the launch.
_DEVICE_FLUSH_BYTES = 512 * _MIB
# The CPU's caches are flushed alike, up to a size that takes a millisecond: several times a core's own caches. Of a larger
# last-level cache others use a part, and a virtual machine may get a sliver (docs/gate-statistics.md, "On a CPU").
_CPU_FLUSH_LIMIT = 16 * _MIB
_CPU_CACHE_DEFAULT = 32 * _MIB

SHORT = 50e-6
"""Seconds. Above it the bias of single launches is 0.1 % on an H200, and a recording gains nothing."""
RECORDED = 32
"""Launches of a recording: 0.1 to 1.6 ms, thousands of times the resolution of an event (32 ns on an H200)."""

_INFINITY_CACHE_BYTES = 256 * _MIB  # of MI300X, behind the L2 that torch reports

_set_affinity = getattr(os, "sched_setaffinity", None)  # Linux has it

_MAX_BATCH = 64  # launches queued between two synchronisations; well below the depth at which CUDA blocks the host
_LONGEST_REASON = 200  # characters
_MAX_FLUSHES = 64  # flushes queued before a launch, to hide a slow host: 7 ms at 4.8 TB/s


class Around(Protocol):
    """What is done around every launch, off the clock."""

    def before(self) -> None:
        """Called before each launch and before the cache is flushed; may queue work on the current stream."""

    def ready(self) -> None:
        """Called once the cache is flushed, right before the clock starts; likewise."""

    def after(self) -> bool:
        """Called right after each launch, before anybody waits for it; returns whether this launch is looked at."""

    def lag(self, launch: float, more: float) -> None:
        """Told of a launch that is looked at: its seconds, and how long the device was busy after its last event."""


class Clock(Protocol):
    """Times launches on one target.

    `launch` is a function without arguments that starts the kernel under test once: on a GPU on the current stream,
    without waiting for it.
    """

    @property
    def name(self) -> str:
        """ "cpu-monotonic", "cuda-events" or "hip-events"."""

    def warm_up(self, launch: Callable[[], object], seconds: float) -> None:
        """Launch repeatedly until `seconds` have passed, at least once; returns when the device is idle."""

    def measure(self, launch: Callable[[], object], launches: int, around: Around | None = None) -> list[float]:
        """Return the seconds of each of `launches` launches, each from a cold cache, with `around` around each.

        Raises:
            ValueError: `launches` is less than 1.
        """

    def record(self, launch: Callable[[], object], seconds: float) -> Timed | None:
        """Return what to time instead of a launch that takes about `seconds` and has been made before; None: itself.

        That many launches are made meanwhile. On a GPU they are cold if they use buffers of their own (see `cold_sets`),
        because only the start of a recording finds a flushed cache.
        """

    def state(self) -> dict[str, JSON]:
        """Return what the device's sensors say now (clock, temperature, why it throttles); {} on the CPU.

        Cheap enough between turns, too slow between launches. What cannot be read is listed under "unreadable".
        """


@dataclass(frozen=True)
class Timed:
    """What is timed as one sample.

    Attributes:
        run: starts it.
        launches: how many launches of the kernel under test that is.
        parts: how often `around` is done around a part of it.
    """

    run: Callable[[], object]
    launches: int = 1
    parts: int = 1

    def measure(self, clock: Clock, samples: int, around: Around | None = None) -> list[float]:
        """Return `samples` times, each the mean of its launches, in seconds; `around` is around each sample."""
        taken = clock.measure(self.run, samples) if around is None else clock.measure(self.run, samples, around)
        return [seconds / self.launches for seconds in taken]


def recorded(clock: Clock, launch: Callable[[], object], seconds: float) -> Timed:
    """Return what to time of a launch that takes about `seconds`: a recording if it is short, and can be recorded."""
    return clock.record(launch, seconds) or Timed(launch)


def cold_sets(size: int) -> int:
    """Return how many sets of buffers a short kernel should take in turn, so that it finds none of them in a cache.

    Args:
        size: bytes of one set: everything that a launch reads and writes.

    Returns:
        At least 1, at most RECORDED: a recording uses no more, and starts with a flushed cache. 1 on the CPU, where a
        flush comes before every launch.
    """
    target = selection().target
    if target == "cpu":
        return 1
    import torch  # noqa: PLC0415 - the protocol is imported without it

    cache = int(torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size)
    if target == "hip":
        cache = max(cache, _INFINITY_CACHE_BYTES)
    return max(1, min(RECORDED, math.ceil(2 * cache / size)))


def clock_for(target: str) -> Clock:
    """Return a new clock for "cpu", "cuda" or "hip", on the current device.

    Raises:
        ValueError: another target.
        RuntimeError: torch here cannot reach such a device.
    """
    return CpuClock() if target == "cpu" else DeviceClock(target)


class CpuClock:
    """The monotonic clock of the system, for kernels that return when they are done; launched on one core."""

    name = "cpu-monotonic"

    def __init__(self) -> None:
        """Allocate the buffer that flushes the caches."""
        self._size = min(2 * last_level_cache_bytes(), _CPU_FLUSH_LIMIT)
        self._buffer = bytearray(self._size)
        self._address = ctypes.addressof((ctypes.c_char * self._size).from_buffer(self._buffer))
        self._byte = 0

    def warm_up(self, launch: Callable[[], object], seconds: float) -> None:
        """See `Clock.warm_up`."""
        end = perf_counter_ns() + int(seconds * 1e9)
        launch()
        while perf_counter_ns() < end:
            launch()

    def measure(self, launch: Callable[[], object], launches: int, around: Around | None = None) -> list[float]:
        """See `Clock.measure`."""
        check_launches(launches)
        samples = []
        with one_core(), no_garbage_collection():
            for _ in range(launches):
                if around is not None:
                    around.before()
                self._byte ^= 1
                ctypes.memset(self._address, self._byte, self._size)
                if around is not None:
                    around.ready()
                start = perf_counter_ns()
                launch()
                samples.append((perf_counter_ns() - start) * 1e-9)
                if around is not None:
                    around.after()
        return samples

    def record(self, launch: Callable[[], object], seconds: float) -> None:
        """Record nothing: there are no graphs here, and a flush before each launch."""

    def state(self) -> dict[str, JSON]:
        """See `Clock.state`."""
        return {}


class DeviceClock:
    """Device events around each launch, CUDA's or HIP's, through torch.

    Before each launch the cache is flushed, outside the timed region. The flush is queued first, so the device is still
    at it while the host queues start event, launch and end event: the time between the events is the device's alone.
    Whether that held is checked sample by sample. If the device had passed the start event before the host had queued
    the end event, the sample may hold host time: it is thrown away and taken again, behind twice as much flushing if
    that happens twice running. A launch too slow to hide even behind 64 flushes (it waits for the device, say) is kept
    and counted in `state()`.
    """

    def __init__(self, target: str) -> None:
        """Bind the current device, its events and a flush buffer of at least 512 MiB.

        Raises:
            RuntimeError: torch here cannot reach a device of this target.
        """
        require_device(target)
        import torch  # noqa: PLC0415 - the protocol is imported without it

        self.name = f"{target}-events"
        self._target = target
        self._properties: Any = torch.cuda.get_device_properties(torch.cuda.current_device())
        size = max(2 * int(getattr(self._properties, "L2_cache_size", 0)), _DEVICE_FLUSH_BYTES)
        buffer = torch.empty(size // 4, dtype=torch.int32, device=torch.device("cuda", torch.cuda.current_device()))
        self._flush = buffer.zero_
        self._event = torch.cuda.Event
        self._record = torch.cuda.Event.record
        self._passed = torch.cuda.Event.query
        self._wait = torch.cuda.Event.synchronize
        self._elapsed_ms = torch.cuda.Event.elapsed_time
        self._stream = torch.cuda.current_stream
        self._synchronize = torch.cuda.synchronize
        self._graph: Any = torch.cuda.CUDAGraph
        self._capture: Any = torch.cuda.graph
        self._replay = torch.cuda.CUDAGraph.replay
        self._not_recorded: str | None = None
        self._flushes = 1
        self._repeated = 0
        self._host_bound = 0

    def warm_up(self, launch: Callable[[], object], seconds: float) -> None:
        """See `Clock.warm_up`."""
        end = perf_counter_ns() + int(seconds * 1e9)
        batch = 1
        while True:
            start = perf_counter_ns()
            for _ in range(batch):
                launch()
            self._synchronize()
            now = perf_counter_ns()
            if now >= end:
                return
            # Grow until waiting for the device no longer lets it idle: otherwise its clock stays low.
            if now - start < 5_000_000:
                batch = min(2 * batch, _MAX_BATCH)

    def measure(self, launch: Callable[[], object], launches: int, around: Around | None = None) -> list[float]:
        """See `Clock.measure`."""
        check_launches(launches)
        samples: list[float] = []
        late_before = False
        with no_garbage_collection():
            while len(samples) < launches:
                batch = self._measure_batch(launch, min(launches - len(samples), _MAX_BATCH), around)
                late = sum(host_late for _, host_late in batch)
                hopeless = late_before and late > 0 and self._flushes >= _MAX_FLUSHES
                samples += [seconds for seconds, host_late in batch if hopeless or not host_late]
                if hopeless:
                    self._host_bound += late
                else:
                    self._repeated += late
                if not hopeless and late_before and late > 0:  # once may be chance: the system took the processor away
                    self._flushes *= 2
                late_before = late > 0
        return samples

    def record(self, launch: Callable[[], object], seconds: float) -> Timed | None:
        """See `Clock.record`; why a short one is not recorded is in `state()`. The launches use the current stream."""
        if seconds >= SHORT:
            return None
        graph = self._graph()
        self._synchronize()
        try:
            with self._capture(graph):
                for _ in range(RECORDED):
                    launch()
        except Exception as error:  # it waits for the device, or allocates: no harm done, it is timed launch by launch
            self._not_recorded = f"{type(error).__name__}: {error}"[:_LONGEST_REASON]
            return None
        replay = self._replay
        return Timed(lambda: replay(graph), RECORDED)

    def _measure_batch(
        self, launch: Callable[[], object], launches: int, around: Around | None
    ) -> list[tuple[float, bool]]:
        """Queue `launches` launches and wait once; return for each its seconds, and whether they may hold host time."""
        timed = [(self._event(enable_timing=True), self._event(enable_timing=True)) for _ in range(launches)]
        stream = self._stream()
        host_late = []
        lags: list[tuple[int, float]] = []
        self._synchronize()
        for start, end in timed:
            if around is not None:
                around.before()
            for _ in range(self._flushes):
                self._flush()
            if around is not None:
                around.ready()
            self._record(start, stream)
            launch()
            self._record(end, stream)
            host_late.append(self._passed(start))
            if around is not None and around.after():
                lags.append((len(host_late) - 1, self._lag(stream)))
        self._synchronize()
        seconds = [self._elapsed_ms(start, end) * 1e-3 for start, end in timed]
        for index, lag in lags:
            if around is not None:
                around.lag(seconds[index], lag)
        return list(zip(seconds, host_late, strict=True))

    def _lag(self, stream: Any) -> float:
        """Return the seconds that the device is busy, on whatever stream, after all work of `stream` is done."""
        end = self._event()
        self._record(end, stream)
        self._wait(end)
        done = perf_counter_ns()
        self._synchronize()
        return (perf_counter_ns() - done) * 1e-9

    def state(self) -> dict[str, JSON]:
        """See `Clock.state`; also what the clock did so far.

        "host_bound_launches": samples that may hold host time; "repeated_launches": those that were thrown away for that;
        "flushes": how many come before a launch by now; "not_recorded": why.
        """
        notes: dict[str, JSON] = {
            "host_bound_launches": self._host_bound,
            "repeated_launches": self._repeated,
            "flushes": self._flushes,
        }
        if self._not_recorded is not None:
            notes["not_recorded"] = self._not_recorded
        return {**read_state(self._target, self._properties), **notes}


def require_device(target: str) -> None:
    """Raise ValueError for another target than "cuda" and "hip", RuntimeError if torch here cannot reach such a device."""
    if target not in ("cuda", "hip"):
        raise ValueError(f"there is no clock for target {target!r}; choose one of cpu, cuda, hip")
    import torch  # noqa: PLC0415 - the protocol is imported without it

    built_for = "hip" if torch.version.hip else "cuda"
    if not torch.cuda.is_available() or built_for != target:
        found = built_for if torch.cuda.is_available() else "no device"
        raise RuntimeError(
            f"target {target!r} cannot be timed here: torch {torch.__version__} finds {found}. "
            "`tilegate doctor` shows what is missing; TILEGATE_TARGET=cpu measures on the CPU."
        )


def last_level_cache_bytes(root: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> int:
    """Return the size of this CPU's largest cache, 32 MiB where Linux does not say."""
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    sizes = []
    for file in root.glob("index*/size"):
        text = file.read_text(encoding="ascii", errors="replace").strip()
        if text[:-1].isdigit() and text[-1] in units:
            sizes.append(int(text[:-1]) * units[text[-1]])
    return max(sizes, default=_CPU_CACHE_DEFAULT)


def check_launches(launches: int) -> None:
    """Raise ValueError for a number of launches below 1."""
    if launches < 1:
        raise ValueError(f"launches is {launches}; at least 1 is needed")


@contextmanager
def one_core() -> Iterator[None]:
    """Keep this thread on one core while the context lasts, the same one in every process that may use the same cores.

    Two sides of a comparison then meet the same neighbour on the core's other hardware thread (docs/gate-statistics.md, "On a CPU").
    Where the system has no such thing or forbids it, times are noisier and as right.
    """
    if _set_affinity is None:
        yield
        return
    allowed = os.sched_getaffinity(0)
    with suppress(OSError):
        _set_affinity(0, {max(allowed)})
    try:
        yield
    finally:
        with suppress(OSError):
            _set_affinity(0, allowed)


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Collect no garbage while the context lasts."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
