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
import itertools
import json
import math
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from short_kernels_bench import COPIES, Bench

ROOT = Path(__file__).resolve().parents[2]


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
