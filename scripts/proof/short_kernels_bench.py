"""Every way in which `short_kernels.py` times a kernel, in the process of one worker."""

from __future__ import annotations

import gc
import itertools
import math
import os
import random
import re
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tilegate.protocol import call_clock_for, clock_for, recorded
from tilegate.protocol.clocks import one_core

# name: batch, heads, kv_heads, seqlen_q, seqlen_k, head_dim; causal
GPU_SHAPES = {
    "s64": (1, 28, 4, 64, 64, 128),
    "s128": (1, 28, 4, 128, 128, 128),
    "s256": (1, 28, 4, 256, 256, 128),
    "s512": (1, 28, 4, 512, 512, 128),
    "s1024": (1, 28, 4, 1024, 1024, 128),
    "decode-k512": (1, 28, 4, 1, 512, 128),
    "decode-b16-k1024": (16, 28, 4, 1, 1024, 128),
    "b8-s128": (8, 28, 4, 128, 128, 128),
}
CPU_SHAPES = {"s8": (1, 2, 1, 8, 8, 64), "s32": (1, 4, 1, 32, 32, 64)}

COPIES = 4  # of the code, for the ways that take turns among several
EVENT_LAUNCHES = 20  # in one turn of the ways that time each launch
CALLS = 50
SETTLED_ROUNDS = 16
LONGEST_FLUSHES = 256  # 28 ms at 4.8 TB/s; a host that needs longer to queue a batch is reported
MIB = 1 << 20

Turn = Callable[[], list[float]]


class Bench:
    """Every shape in every way of timing, in this process."""

    def __init__(self, target: str) -> None:
        """Take the device and make the flush buffer."""
        import torch  # noqa: PLC0415

        self._torch, self._target = torch, target
        self._cpu = target == "cpu"
        self._device = "cpu" if self._cpu else "cuda"
        self._dtype = torch.float32 if self._cpu else torch.bfloat16
        self._notes: set[str] = set()
        self._flushes = 1
        if self._cpu:
            self._l2 = 1 * MIB
            self._flush_buffer = torch.zeros(64 * MIB // 4)
        else:
            properties = torch.cuda.get_device_properties(0)
            # MI300X: 256 MiB of Infinity Cache behind the 4 MiB of each XCD that torch reports.
            self._l2 = max(properties.L2_cache_size, 256 * MIB if target == "hip" else 0)
            self._flush_buffer = torch.empty(512 * MIB // 4, dtype=torch.int32, device="cuda")
            torch.cuda.synchronize()
        self._clock, self._call_clock = clock_for(target), call_clock_for(target)
        gc.disable()

    def hello(self) -> bool:
        """Answer once the device is there."""
        return True

    def compile(self) -> str:
        """Compile every kernel into the cache; return the device's name."""
        for shape in self._shapes().values():
            self._kernel(shape).compile()
        return "CPU" if self._cpu else str(self._torch.cuda.get_device_name(0))

    def prepare(self, seed: int, ways: str) -> dict[str, Any]:
        """Load the kernels, allocate, record graphs; return the ways that work and how many launches a batch has."""
        torch = self._torch
        started = time.monotonic()
        self._random = random.Random(seed)  # noqa: S311 - places of buffers
        generator = torch.Generator(device=self._device).manual_seed(seed)
        self._inputs = torch.randn((64 if self._cpu else 512) * MIB // 4, device=self._device, generator=generator).to(
            self._dtype
        )
        self._outputs = torch.empty_like(self._inputs)
        self._sums = torch.empty(16 * MIB // 4, device=self._device)
        self._turns: dict[tuple[str, str], Turn] = {}
        launches = {}
        kernels = self._copies()
        for name, shape in self._shapes().items():
            launches[name] = self._add(name, shape, [kernels[copy][self._key(shape)] for copy in range(COPIES)])
        self._turns = {key: turn for key, turn in self._turns.items() if re.search(ways, " ".join(key))}
        self._synchronize()
        for turn in self._turns.values():  # the first finds out how much flushing hides the host
            turn()
        return {
            "seconds": time.monotonic() - started,
            "ways": list(self._turns),
            "launches": launches,
            "notes": sorted(self._notes),
        }

    def warm_up(self) -> bool:
        """Bring the device's clocks up."""
        end = time.monotonic() + (0.1 if self._cpu else 0.5)
        turns = list(self._turns.values())
        while time.monotonic() < end:
            for turn in turns:
                turn()
        return True

    def turn(self, shape: str, way: str) -> list[float]:
        """Take one turn; seconds a launch."""
        return self._turns[shape, way]()

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        return CPU_SHAPES if self._cpu else GPU_SHAPES

    def _kernel(self, shape: tuple[int, ...]) -> Any:
        import tilekernels  # noqa: PLC0415

        dtype = str(self._dtype).removeprefix("torch.")
        problem = tilekernels.AttentionProblem(*shape, dtype=dtype, causal=True)
        return tilekernels.forward_kernel(problem, device=self._device)

    def _key(self, shape: tuple[int, ...]) -> tuple[Any, ...]:
        kernel = self._kernel(shape)
        return kernel.problem_key, kernel.tile

    def _copies(self) -> list[dict[tuple[Any, ...], Any]]:
        """Load every kernel COPIES times, each from a cache of its own, so that its code lies somewhere else."""
        from tilelang import cache  # noqa: PLC0415

        from tilekernels import ForwardKernel  # noqa: PLC0415

        found: list[dict[tuple[Any, ...], Any]] = []
        first = Path(os.environ["TILEKERNELS_CACHE"])
        for copy in range(COPIES):
            os.environ["TILEKERNELS_CACHE"] = str(first.with_name(f"cache-{copy}"))
            for loaded in cache._dispatch_map.values():  # it would hand out the copy that it has
                loaded._memory_cache.clear()
            found.append({})
            for shape in self._shapes().values():
                kernel = self._kernel(shape)
                if self._key(shape) not in found[copy]:
                    made = ForwardKernel(kernel.chip, kernel.problem_key, kernel.tile)
                    (found[copy][self._key(shape)],) = made.compile()
        os.environ["TILEKERNELS_CACHE"] = str(first)
        for shape in self._shapes().values():
            self._kernel(shape).compile()
        return found

    def _add(self, name: str, shape: tuple[int, ...], copies: list[Any]) -> int:
        """Add the turns of a shape; return the launches of a batch."""
        import tilekernels  # noqa: PLC0415

        batch, heads, kv_heads, rows, columns, head_dim = shape
        scale = head_dim**-0.5
        sizes = [(batch, rows, heads, head_dim), *[(batch, columns, kv_heads, head_dim)] * 2]
        sizes += [sizes[0], (batch, heads, rows)]
        footprint = 2 * (2 * math.prod(sizes[0]) + 2 * math.prod(sizes[1]))
        # As many buffers as exceed the cache twice; as many launches as last milliseconds at most.
        ring = 4 if self._cpu else min(128, max(8, math.ceil(2 * self._l2 / footprint)))
        count = 8 if self._cpu else max(32, ring)

        def arguments(*, placed: bool) -> tuple[Any, ...]:
            return (*(self._tensor(size, at, placed=placed) for at, size in enumerate(sizes)), scale)

        buffers = [arguments(placed=False) for _ in range(max(ring, COPIES))]
        one, ringed = buffers[:1], buffers[:ring]
        kernel = copies[:1]
        for loaded in copies:  # code reaches the device with its first launch, which cannot be recorded
            loaded(*one[0])
        self._synchronize()

        def placed(launches: int) -> list[tuple[Any, ...]]:
            return [arguments(placed=True) for _ in range(launches)]

        turns: dict[str, Turn] = {
            "events": lambda: self._each(schedule(kernel, one, EVENT_LAUNCHES)),
            "placed": lambda: self._each(schedule(kernel, placed(EVENT_LAUNCHES), EVENT_LAUNCHES)),
            "instances": lambda: self._each(schedule(copies, buffers[:COPIES], EVENT_LAUNCHES)),
            "batch_warm": lambda: self._batch(schedule(kernel, one, count)),
            "batch_cold": lambda: self._batch(schedule(kernel, ringed, count)),
            "batch_placed": lambda: self._batch(schedule(kernel, placed(count), count)),
            "batch_instances": lambda: self._batch(schedule(copies, ringed, count)),
        }
        if self._cpu:
            self._notes.add("there are no graphs on the CPU")
        else:
            for way, used in (("graph_warm", one), ("graph_cold", ringed)):
                try:
                    turns[way] = self._graph(schedule(kernel, used, count))
                except RuntimeError as error:
                    self._notes.add(f"{way} of {name} cannot be recorded: {str(error).splitlines()[0]}")
        q, k, v = one[0][:3]

        def call() -> object:
            return tilekernels.attention(q, k, v, causal=True)

        turns["call"] = lambda: self._calls(call)
        turns["call_settled"] = lambda: self._settled_calls(call)
        turns["call_pinned"] = lambda: self._pinned(lambda: self._settled_calls(call))
        turns["call_clock"] = self._by_clock(self._call_clock, call)
        rounds = itertools.cycle(schedule(kernel, ringed, len(ringed)))

        def launch() -> object:
            return next(rounds)()

        turns["clock"] = self._by_clock(self._clock, launch)
        self._turns |= {(name, way): turn for way, turn in turns.items()}
        return count

    def _tensor(self, size: tuple[int, ...], index: int, *, placed: bool) -> Any:
        """A tensor at a random place, inputs filled with random numbers; else where the allocator puts it."""
        pool = self._sums if index == 4 else self._outputs if index == 3 else self._inputs
        count = math.prod(size)
        # 256 bytes: what the allocator aligns to.
        step = 256 // pool.element_size()
        start = step * self._random.randrange((len(pool) - count) // step)
        view = pool[start : start + count].view(size)
        return view if placed else view.clone()

    def _flush(self) -> None:
        self._flush_buffer.zero_()

    def _synchronize(self) -> None:
        if not self._cpu:
            self._torch.cuda.synchronize()

    def _each(self, launches: list[Callable[[], object]]) -> list[float]:
        """Time each launch, behind a flush."""
        if self._cpu:
            return [self._host(launch, 1) for launch in launches]
        cuda = self._torch.cuda
        timed = [(cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)) for _ in launches]
        self._synchronize()
        for (start, end), launch in zip(timed, launches, strict=True):
            self._flush()
            start.record()
            launch()
            end.record()
        self._synchronize()
        return [start.elapsed_time(end) * 1e-3 for start, end in timed]

    def _batch(self, launches: list[Callable[[], object]]) -> list[float]:
        """Time all launches in one region, queued while the device is busy flushing."""

        def all_of_them() -> None:
            for launch in launches:
                launch()

        return [self._region(all_of_them) / len(launches)]

    def _graph(self, launches: list[Callable[[], object]]) -> Turn:
        """Record all launches once; a turn replays them in one region."""
        graph = self._torch.cuda.CUDAGraph()
        self._synchronize()
        with self._torch.cuda.graph(graph):
            for launch in launches:
                launch()
        return lambda: [self._region(graph.replay) / len(launches)]

    def _region(self, run: Callable[[], object]) -> float:
        """Seconds of what `run` queues; taken again behind more flushing if the device had to wait for the host."""
        if self._cpu:
            return self._host(run, 1)
        while True:
            start, end = (self._torch.cuda.Event(enable_timing=True) for _ in range(2))
            self._synchronize()
            for _ in range(self._flushes):
                self._flush()
            start.record()
            run()
            end.record()
            late = start.query()
            self._synchronize()
            if not late:
                return float(start.elapsed_time(end)) * 1e-3
            if self._flushes >= LONGEST_FLUSHES:
                self._notes.add("the host is too slow to queue a batch: its regions hold host time")
                return float(start.elapsed_time(end)) * 1e-3
            self._flushes *= 2

    def _calls(self, call: Callable[[], object]) -> list[float]:
        """Host seconds of each of many calls that nobody waits for."""
        self._synchronize()
        found = []
        for _ in range(CALLS):
            started = time.perf_counter_ns()
            call()
            found.append((time.perf_counter_ns() - started) * 1e-9)
        self._synchronize()
        return found

    def _by_clock(self, clock: Any, launch: Callable[[], object]) -> Turn:
        """Take a turn of the gate: three samples, of recordings where there can be any."""
        timed = recorded(clock, launch, statistics.median(clock.measure(launch, 3)))
        return lambda: timed.measure(clock, 3)

    def _settled_calls(self, call: Callable[[], object]) -> list[float]:
        """Many more calls, of which the first half brings caches and clock of the core up."""
        found = []
        for _ in range(SETTLED_ROUNDS):
            found += self._calls(call)
        return found[len(found) // 2 :]

    def _pinned(self, turn: Turn) -> list[float]:
        """Take a turn on one core, which both processes choose alike."""
        with one_core():
            return turn()

    def _host(self, run: Callable[[], object], launches: int) -> float:
        self._flush()
        started = time.perf_counter_ns()
        run()
        return (time.perf_counter_ns() - started) * 1e-9 / launches


def schedule(kernels: list[Any], arguments: list[tuple[Any, ...]], launches: int) -> list[Callable[[], object]]:
    """Bind `launches` launches: code and buffers each in turn."""

    def bind(kernel: Any, given: tuple[Any, ...]) -> Callable[[], object]:
        return lambda: kernel(*given)

    return [bind(kernels[i % len(kernels)], arguments[i % len(arguments)]) for i in range(launches)]
