"""How noisy a pair of turns is on this CPU, for several ways of taking them. docs/gate-statistics.md, "On a CPU", shows some.

    python scripts/proof/cpu_turns.py [--pairs 256]

Two processes launch one kernel of one version: what differs is noise.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
from contextlib import nullcontext
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).parents[2])]  # `benchmarks` is not installed
os.environ |= {"TILEGATE_TARGET": "cpu", "TILEGATE_TIER": "smoke"}

from benchmarks.attention import Forward  # noqa: E402
from tilegate.judging import stats  # noqa: E402
from tilegate.measuring import environment  # noqa: E402
from tilegate.protocol import clocks  # noqa: E402

CASE = ("cpu-g7-d128-s96", "adaptive")
LAUNCHES = 8  # a turn
SCREEN = 8  # pairs
COUNTS = {
    "the medians": lambda base, head: np.log(np.median(head, axis=1) / np.median(base, axis=1)),
    "the fastest": lambda base, head: np.log(np.min(head, axis=1) / np.min(base, axis=1)),
    "the median of neighbours' ratios": stats.medians_of_ratios,
}


def side(asked: Connection) -> None:
    """Launch as often as asked, on one core or on any."""
    one_core = clocks.one_core
    forward = Forward()
    forward.setup(*CASE)
    clock = clocks.clock_for("cpu")
    clock.warm_up(lambda: forward.latency_forward(*CASE), 0.2)
    for core, launches in iter(asked.recv, None):
        clocks.one_core = one_core if core == "one" else nullcontext
        asked.send(clock.measure(lambda: forward.latency_forward(*CASE), launches))


def pair(sides: list[Connection], core: str, alternating: bool, head_first: bool) -> tuple[list[float], list[float]]:
    """Take one turn of both sides; return the seconds of base's and of head's launches."""
    times: tuple[list[float], list[float]] = [], []
    at_once = 1 if alternating else LAUNCHES
    for _ in range(LAUNCHES // at_once):
        for which in (1, 0) if head_first else (0, 1):
            sides[which].send((core, at_once))
            times[which].extend(sides[which].recv())
    return times


def main() -> None:
    """Measure, and print Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=256, help="at least 64 (default: 256, three minutes)")
    screens = max(64, parser.parse_args().pairs) // SCREEN
    print(f"{environment.cpu_model()}, load {os.getloadavg()[0]:.1f} before", file=sys.stderr)
    ways = {(core, alternating): [] for core in ("any", "one") for alternating in (False, True)}
    fresh, sides = multiprocessing.get_context("spawn"), []
    for _ in range(2):
        ours, theirs = fresh.Pipe()
        fresh.Process(target=side, args=(theirs,), daemon=True).start()
        theirs.close()  # else nobody would notice that it died
        sides.append(ours)
    for screen in range(screens):
        # By turns: the machine is quieter at some times than at others.
        for (core, alternating), taken in ways.items():
            taken.extend(pair(sides, core, alternating, bool(number % 2)) for number in range(SCREEN))
        print(f"\r{screen + 1}/{screens}", end="", file=sys.stderr, flush=True)
    for asked in sides:
        asked.send(None)
    print(f", load {os.getloadavg()[0]:.1f} after", file=sys.stderr)
    print("| cores | turns of 8 launches | what counts | a pair | a screen of 8 pairs |")
    print("|---|---|---|--:|--:|")
    for (core, alternating), taken in ways.items():
        for what, ratios_of in COUNTS.items():
            ratios = ratios_of(*(np.array(of_side) for of_side in zip(*taken, strict=True)))
            robust = 1.4826 * np.median(np.abs(ratios - np.median(ratios)))
            found = [stats.hodges_lehmann(of_screen) for of_screen in ratios.reshape(-1, SCREEN)]
            how = "alternating launch by launch" if alternating else "one after the other"
            print(f"| {core} | {how} | {what} | {100 * robust:.1f} % | {100 * np.std(found):.1f} % |")


if __name__ == "__main__":
    main()
