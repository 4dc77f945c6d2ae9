"""Looks for the cheapest way to time short kernels so that two pairs of processes agree about the same code.

A replicate, a fresh pair of processes that run identical code, shows a difference that its own pairs of turns cannot
average away: its bias. Below 25 us that bias rules. This experiment measures it for several ways of timing, on the
forward kernel at shapes of about 4 to 40 us, all of them in the same replicates and in random order:

    events           one launch between two events, behind a flush of the cache; one buffer
    placed           the same, every launch on buffers at new random places
    instances        the same, launches take turns among several copies of the code and of the buffers
    batch_warm       many launches in one timed region, all on one buffer
    batch_cold       many launches in one timed region, on a ring of buffers larger than the cache
    batch_placed     the same, on buffers at new random places
    batch_instances  the same ring, launches take turns among several copies of the code
    graph_warm       batch_warm, recorded once and replayed as a CUDA or HIP graph
    graph_cold       batch_cold, likewise
    call             host time of the public function, for many calls that are not waited for
    call_settled     the same, for more calls and after as many that are not counted
    call_pinned      the same, both processes on the same core
    clock            what `tilegate gate` does: graph_cold by its own clock
    call_clock       the same for calls: the fastest of short blocks, against a yardstick

Half of the replicates are processes started one by one, the other half is forked from one that has imported everything.
For each way it prints the bias, the noise of one pair, the device time of a pair, and what the cheapest combination of
replicates and pairs costs with which a 3 % slowdown is found (see `cost`). Raw medians go to --out.

    python scripts/proof/short_kernels.py --target cuda --minutes 5 --out short.json
    python scripts/proof/short_kernels.py --target cpu --minutes 2 --out rehearsal.json
    python scripts/proof/short_kernels.py --read short.json        # print the tables again
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import itertools
import json
import math
import os
import random
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tilegate.protocol import call_clock_for, clock_for, recorded
from tilegate.protocol.clocks import one_core

ROOT = Path(__file__).resolve().parents[2]

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


def main() -> int:
    """Parse the command line; measure or read; print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", choices=("cuda", "hip", "cpu"), help="where to measure")
    parser.add_argument("--out", type=Path, metavar="JSON", help="where the medians of all turns go")
    parser.add_argument("--minutes", type=float, default=5.0, help="all in all, start-up included (default: 5)")
    parser.add_argument("--pairs", type=int, default=8, help="pairs of turns a replicate (default: 8)")
    parser.add_argument("--replicates", type=int, default=32, help="at most (default: 32)")
    parser.add_argument("--at-once", type=int, default=5, help="pairs of processes started together (default: 5)")
    parser.add_argument("--seed", type=int, default=0, help="of orders and places (default: 0)")
    parser.add_argument("--ways", default="", metavar="REGEX", help="only ways and shapes whose 'shape way' it matches")
    parser.add_argument("--read", type=Path, metavar="JSON", help="measure nothing, print the tables of an earlier run")
    parser.add_argument("--worker", metavar="SOCKET", help=argparse.SUPPRESS)
    parser.add_argument("--children", type=int, default=0, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.read:
        show(json.loads(args.read.read_text(encoding="utf-8")))
        return 0
    if not args.target:
        parser.error("--target is needed (or --read)")
    if args.worker:
        return work(args)
    if not args.out:
        parser.error("--out is needed: the medians of every turn are kept there")
    if args.pairs < 3:
        parser.error("--pairs must be at least 3: the noise of pairs is measured between them")
    show(measure(args))
    return 0


# The parent: starts pairs of processes and lets them take turns.


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Run replicates until the time is used up; save after each round."""
    end = time.monotonic() + 60 * args.minutes
    document: dict[str, Any] = {
        "target": args.target,
        "pairs": args.pairs,
        "seed": args.seed,
        "forks": True,
        "rounds": [],
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="short-kernels-") as folder:
        caches = [Path(folder, f"cache-{copy}") for copy in range(COPIES)]
        started = time.monotonic()
        with pool(args, folder, count=1, forked=False) as (workers, _):
            document["device"] = workers[0].ask("compile")
        for copy in caches[1:]:
            shutil.copytree(caches[0], copy)
        say(f"compiled in {time.monotonic() - started:.1f} s on {document['device']}")
        slowest = 0.0
        for number in itertools.count():
            replicates = min(args.at_once, args.replicates - number * args.at_once)
            if replicates <= 0 or (number >= 2 and time.monotonic() + 1.15 * slowest > end):
                break
            started = time.monotonic()
            forked = number % 2 == 1 and document["forks"]
            try:
                document["rounds"].append(one_round(args, folder, number, replicates, forked=forked))
            except LostWorkerError as error:
                if not forked:
                    raise
                say(f"{error}; going on without forks")
                document["forks"] = False
            slowest = max(slowest, time.monotonic() - started)
            args.out.write_text(json.dumps(document) + "\n", encoding="utf-8")
    return document


def one_round(args: argparse.Namespace, folder: str, number: int, replicates: int, *, forked: bool) -> dict[str, Any]:
    """Start pairs of processes together, then measure one pair after the other while the rest waits."""
    with pool(args, folder, count=2 * replicates, forked=forked) as (workers, seconds):
        seeds = [args.seed * 1000 + number * 100 + index for index in range(len(workers))]
        ready = [worker.ask("prepare", seed=seed, ways=args.ways) for worker, seed in zip(workers, seeds, strict=True)]
        say(
            f"round {number}: {len(workers)} processes {'forked' if forked else 'started'} in {seconds:.1f} s, "
            f"prepared in {max(r['seconds'] for r in ready):.1f} s; "
            + "; ".join(sorted({note for r in ready for note in r["notes"]}))
        )
        found = []
        for index in range(replicates):
            started = time.monotonic()
            found.append(replicate(workers[2 * index : 2 * index + 2], ready[0]["ways"], args, f"{number}/{index}"))
            say(f"round {number}, replicate {index}: {time.monotonic() - started:.1f} s")
        return {
            "forked": forked,
            "start_seconds": seconds,
            "prepare_seconds": [r["seconds"] for r in ready],
            "launches": ready[0]["launches"],
            "notes": sorted({note for r in ready for note in r["notes"]}),
            "replicates": found,
        }


def replicate(pair: list[Worker], ways: list[list[str]], args: argparse.Namespace, name: str) -> dict[str, Any]:
    """Let two processes take turns; return for each shape and way [[who was first, A, B, seconds of the pair]…]."""
    order = random.Random(f"{args.seed}/{name}")  # noqa: S311 - an order of turns, not a secret
    found: dict[str, Any] = {}
    for shape, way in ways:
        found.setdefault(shape, {})[way] = []
    for worker in pair:
        worker.ask("warm_up")
    for _ in range(args.pairs):
        for shape, way in order.sample(ways, len(ways)):
            first = order.randrange(2)
            started = time.monotonic()
            times = {who: worker_time(pair[who], shape, way) for who in (first, 1 - first)}
            entry = [first, times[0], times[1], round(time.monotonic() - started, 5)]
            found[shape][way].append(entry)
    return found


def worker_time(worker: Worker, shape: str, way: str) -> float:
    """One turn: the median of its launches, in seconds."""
    return float(np.median(worker.ask("turn", shape=shape, way=way)))


class LostWorkerError(Exception):
    """A worker ended early; what it said is on stderr."""


class Worker:
    """A process at the other end of a socket."""

    def __init__(self, connection: socket.socket) -> None:
        """Take over a connection."""
        connection.settimeout(300)
        self._file = connection.makefile("rw", encoding="utf-8")
        self._connection = connection

    def ask(self, operation: str, **arguments: Any) -> Any:
        """Send a request and wait for its answer."""
        self._file.write(json.dumps({"do": operation, **arguments}) + "\n")
        self._file.flush()
        line = self._file.readline()
        if not line:
            raise LostWorkerError(f"a worker ended during {operation}; its message is above")
        return json.loads(line)

    def close(self) -> None:
        """Hang up: the process ends."""
        self._file.close()
        self._connection.close()


@contextlib.contextmanager
def pool(args: argparse.Namespace, folder: str, *, count: int, forked: bool) -> Iterator[tuple[list[Worker], float]]:
    """Start `count` workers, one by one or forked from one; yield them and the seconds until all had a device."""
    path = str(Path(folder, f"socket-{time.monotonic_ns()}"))
    command = [sys.executable, str(Path(__file__).resolve()), "--target", args.target, "--worker", path]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "TILEKERNELS_CACHE": str(Path(folder, "cache-0")),
        # With it torch asks the management library whether there is a device, and a process can still be forked.
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
        # The host's threads are of no use here, and two for each core of each process disturb.
        "OMP_NUM_THREADS": "1",
    }
    started = time.monotonic()
    workers: list[Worker] = []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(count)
        listener.settimeout(240)
        command += ["--children", str(count)] if forked else []
        processes = [subprocess.Popen(command, env=environment) for _ in range(1 if forked else count)]
        try:
            for _ in range(count):
                workers.append(Worker(listener.accept()[0]))
            for worker in workers:
                worker.ask("hello")
            yield workers, time.monotonic() - started
        finally:
            for worker in workers:
                worker.close()
            for process in processes:
                try:
                    process.wait(timeout=30)
                except subprocess.TimeoutExpired:
                    process.kill()


def say(text: str) -> None:
    """Show progress."""
    print(text, file=sys.stderr, flush=True)


# The worker: one process, one device context.


def work(args: argparse.Namespace) -> int:
    """Import everything, fork if asked to, and answer requests until the parent hangs up."""
    import tilelang  # noqa: F401, PLC0415 - 2 s that a fork need not spend again
    import torch  # noqa: F401, PLC0415

    import tilekernels  # noqa: F401, PLC0415

    children = []
    for _ in range(args.children):
        child = os.fork()
        if child == 0:
            children = []
            break
        children.append(child)
    if children:
        for child in children:
            os.waitpid(child, 0)
        return 0
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(args.worker)
        file = connection.makefile("rw", encoding="utf-8")
        bench = Bench(args.target)
        for line in file:
            request = json.loads(line)
            answer = getattr(bench, request.pop("do"))(**request)
            file.write(json.dumps(answer) + "\n")
            file.flush()
    return 0


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
                    found[copy][self._key(shape)] = made.compile()
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


# The tables.


def show(document: dict[str, Any]) -> None:
    """Print bias, noise and cost of every way, for each shape and over all."""
    rounds = document["rounds"]
    print(f"\n{document.get('device')}, target {document['target']}; {document['pairs']} pairs a replicate")
    for note in sorted({note for one in rounds for note in one["notes"]}):
        print(f"note: {note}")
    for forked in (False, True):
        chosen = [one for one in rounds if one["forked"] == forked]
        if chosen:
            seconds = [one["start_seconds"] for one in chosen]
            count = sum(len(one["replicates"]) for one in chosen)
            each = np.mean([2 * len(one["replicates"]) for one in chosen])
            how = "forked from one" if forked else "started one by one"
            print(
                f"{how}: {count} replicates; {each:.0f} processes at a time were there after {np.mean(seconds):.1f} s"
            )
    everything = [one for entry in rounds for one in entry["replicates"]]
    started = [one for entry in rounds if not entry["forked"] for one in entry["replicates"]]
    forked_ones = [one for entry in rounds if entry["forked"] for one in entry["replicates"]]
    header = "time us | bias % (all) | started | forked | worst % | pair % | s a pair | replicates x pairs | s for 3 %"
    for shape in everything[0]:
        print(f"\n{shape} ({rounds[0]['launches'][shape]} launches a batch)\n{'':17}| {header}")
        for way in everything[0][shape]:
            found = [figures(group, shape, way) for group in (everything, started, forked_ones)]
            print(row(way, found))
    print("\nover all shapes below 25 us (root mean square; sum of seconds)")
    print(f"{'':17}| bias % | pair % | s for 3 %")
    short = [s for s, ways in everything[0].items() if figures(everything, s, next(iter(ways)))["time"] < 25e-6]
    short = short or list(everything[0])
    for way in everything[0][short[0]]:
        found = [figures(everything, shape, way) for shape in short if way in everything[0][shape]]
        bias, pair = (math.sqrt(np.mean([f[key] ** 2 for f in found])) for key in ("bias", "pair"))
        print(f"{way:17}| {bias:6.2%} | {pair:6.2%} | {sum(f['cost'][0] for f in found):6.1f}")
    print("\ncorrelation of the bias between two shapes of one replicate (1: one control would tell the other's)")
    for way in everything[0][short[0]]:
        table = np.array([[centre(one, shape, way) for one in everything] for shape in short])
        if len(everything) > 2 and len(short) > 1 and (table.std(axis=1) > 0).all():
            between = np.corrcoef(table)[np.triu_indices(len(short), 1)]
            print(f"{way:17}| {np.mean(between):5.2f}")


def row(way: str, found: list[dict[str, Any]]) -> str:
    """One line of a table."""
    whole, *halves = found
    seconds, replicates, pairs = whole["cost"]
    cells = [f"{whole['time'] * 1e6:7.2f}", f"{whole['bias']:12.2%}", *(f"{half['bias']:7.2%}" for half in halves)]
    cells += [f"{whole['worst']:7.2%}", f"{whole['pair']:6.2%}", f"{whole['seconds']:8.4f}"]
    cells += [f"{replicates:12d} x {pairs:<3d}", f"{seconds:9.2f}"]
    return f"{way:17}| " + " | ".join(cells)


def centre(one: dict[str, Any], shape: str, way: str) -> float:
    """The replicate's estimate of ln(B / A): Hodges-Lehmann."""
    from tilegate.judging.stats import hodges_lehmann  # noqa: PLC0415 - not needed by a worker

    return hodges_lehmann(np.array([math.log(b / a) for _, a, b, _ in one[shape][way]]))


def figures(replicates: list[dict[str, Any]], shape: str, way: str) -> dict[str, Any]:
    """Time, bias and noise of a way: the bias is the spread of the replicates beyond what their pairs explain."""
    if not replicates:
        return {"bias": math.nan}
    pairs = [one[shape][way] for one in replicates]
    ratios = [np.array([math.log(b / a) for _, a, b, _ in entries]) for entries in pairs]
    # 1.4826: the median absolute deviation of a normal distribution, as a standard deviation.
    noise = [1.4826 * np.median(np.abs(r - np.median(r))) for r in ratios]
    pair = math.sqrt(np.mean(np.square(noise)))
    centres = np.array([centre(one, shape, way) for one in replicates])
    # Identical code: the true centre is 0, so the mean square is the variance, without a degree of freedom lost.
    # pi / 3: variance of a Hodges-Lehmann estimate of normal data over that of their mean.
    bias = math.sqrt(max(0.0, float(np.mean(centres**2)) - math.pi / 3 * pair**2 / len(ratios[0])))
    seconds = float(np.median([entry[3] for entries in pairs for entry in entries]))
    return {
        "time": float(np.median([t for entries in pairs for entry in entries for t in entry[1:3]])),
        "bias": bias,
        "worst": float(np.abs(centres).max()),
        "pair": pair,
        "seconds": seconds,
        "cost": cost(bias, pair, seconds),
    }


def cost(bias: float, pair: float, seconds: float) -> tuple[float, int, int]:
    """The cheapest (device seconds, replicates, pairs in each) that finds 3 % 99 times in 100, start-up not counted.

    The test is against "at most 1 %" at 0.5 % over 200 cases (z = 4.06 one-sided at 0.005 / 200), the power 99 %
    (z = 2.33): the estimate's standard error has to be 2 % / 6.39 = 0.31 %. At least 2 replicates and 8 pairs in all. One
    more replicate also costs 0.1 s, the part of its start-up that one of 100 cases bears.
    """
    wanted = 0.02 / (4.06 + 2.33)
    best = (math.inf, 0, 0)
    for replicates in range(2, 257):
        for pairs in (4, 6, 8, 12, 16, 24, 32, 64):
            if (bias**2 + math.pi / 3 * pair**2 / pairs) / replicates <= wanted**2:
                best = min(best, (replicates * (pairs * seconds + 0.1), replicates, pairs))
    return best


if __name__ == "__main__":
    sys.exit(main())
