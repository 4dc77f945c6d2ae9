"""What a history finds among commits whose truth is known, on recorded noise: the tables of docs/history-proof.md, part 1.

    python scripts/proof/history_network.py [--histories 300]

Comparisons are drawn from real A/A noise of an H200 (tests/tilegate/history_simulation.py), independent runs from medians of real
processes on it. Takes a minute or two on any machine.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "tilegate")]

import history_simulation as simulation  # noqa: E402

percent = simulation.percent


def main() -> None:
    """Print the tables as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--histories", type=int, default=300, metavar="N", help="of each kind (default: 300)")
    count = parser.parse_args().histories

    print("| planted step | certain | alarm | false, certain | false alarms | one run a commit: alarm | false alarms |")
    print("|--:|--:|--:|--:|--:|--:|--:|")
    for size in (0.0, 0.003, 0.005, 0.01, 0.03):
        found, (alarm, false) = simulation.planted(size, count), simulation.independent(size, count)
        cells = (found.certain, found.alarms, found.false_certain, found.false_alarms, alarm, false)
        print(f"| {100 * size:g} % | " + " | ".join(map(percent, cells)) + " |")
    print("\n| head against release, 60 commits of 0.05 % | standard error | interval holds the truth | certain |")
    print("|---|--:|--:|--:|")
    kinds = {"neighbours alone": (), "every tenth against the release": (10, 20, 30, 40, 50), "head against it": (59,)}
    for name, anchors in kinds.items():
        inside, error, certain = simulation.creep(count, anchors)
        print(f"| {name} | {100 * error:.2f} % | {percent(inside)} | {percent(certain)} |")
    inside, flagged = simulation.coverage(count)
    caught, wrong = simulation.bad_edge(count, 0.02)
    print("\n| what | share |\n|---|--:|")
    print(f"| intervals of 95 % that hold the truth | {percent(inside)} |")
    print(f"| the same, every process in one of two modes 1.5 % apart | {percent(simulation.bimodal(count, 0.015))} |")
    print(f"| histories without a bad comparison that have one flagged | {percent(flagged)} |")
    print(f"| a comparison that is off by 2 % is flagged | {percent(caught)} |")
    print(f"| and a good one besides | {percent(wrong)} |")


if __name__ == "__main__":
    main()
