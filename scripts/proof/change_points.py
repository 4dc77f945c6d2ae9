"""Compare detectors of steps in series of independent runs, on recorded noise: precision, recall, false alarms.

    python scripts/proof/change_points.py [--series 200] [--length 60]

Each series consists of medians of real processes (tests/data/h200_process_noise.json), drawn anew, with one step planted. Prints the
table that docs/history.md quotes, as Markdown. ruptures and apache-otava are compared if they are installed
(pip install ruptures; pip install --no-deps apache-otava).
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

from tilegate.history import detect  # noqa: E402

STEPS = (0.003, 0.005, 0.01, 0.03)
NEAR = 3  # a step found within so many runs of the planted one is that one
Detector = Callable[[np.ndarray], list[int]]


def noise() -> dict[str, np.ndarray]:
    """Return, by kernel, ln of the medians of its processes, centred."""
    cases = json.loads((ROOT / "tests" / "data" / "h200_process_noise.json").read_text())["cases"]
    medians = {case: np.log([np.median(times) for times in processes]) for case, processes in cases.items()}
    return {case: values - np.median(values) for case, values in medians.items()}


def plain_cusum(series: np.ndarray, critical: float = 3.6) -> list[int]:
    """Binary segmentation by the CUSUM of the values themselves; their noise from the median absolute successive difference."""
    found: list[int] = []
    left = [(0, len(series))]
    while left:
        low, high = left.pop()
        part = series[low:high]
        count = len(part)
        if count < 2 * detect.SHORTEST:
            continue
        sigma = 1.4826 * np.median(np.abs(np.diff(part))) / math.sqrt(2)
        k = np.arange(detect.SHORTEST, count - detect.SHORTEST + 1)
        sums = np.abs(np.cumsum(part - part.mean())[k - 1]) / np.sqrt(k * (count - k) / count)
        if sums.max() > critical * sigma:
            at = low + int(k[np.argmax(sums)])
            found.append(at)
            left += [(low, at), (at, high)]
    return sorted(found)


def detectors() -> dict[str, Detector]:
    """Return what is compared, by name."""
    found: dict[str, Detector] = {
        "rank CUSUM (`detect.py`)": lambda series: [step.at for step in detect.steps(series)],
        "CUSUM of the values": plain_cusum,
    }
    try:
        ruptures = importlib.import_module("ruptures")
    except ImportError:
        print("ruptures is not installed: left out", file=sys.stderr)
    else:

        def pelt(series: np.ndarray) -> list[int]:
            sigma = 1.4826 * np.median(np.abs(np.diff(series))) / math.sqrt(2)
            penalty = 3 * math.log(len(series)) * sigma**2
            return list(ruptures.Pelt(model="l2", min_size=detect.SHORTEST, jump=1).fit(series).predict(penalty))[:-1]

        def rank_pelt(series: np.ndarray) -> list[int]:
            fitted = ruptures.Pelt(model="rank", min_size=detect.SHORTEST, jump=1).fit(series[:, None])
            return list(fitted.predict(3 * math.log(len(series))))[:-1]

        found["ruptures, PELT, l2"] = pelt
        found["ruptures, PELT, ranks"] = rank_pelt
    try:
        otava = importlib.import_module("otava.analysis")
    except ImportError:
        print("apache-otava is not installed: left out", file=sys.stderr)
    else:
        for chance in (0.001, 0.01):
            found[f"Otava, p < {chance:g}"] = lambda series, chance=chance: [  # type: ignore[misc]
                point.index for point in otava.compute_change_points(list(np.exp(series)), max_pvalue=chance)[0]
            ]
    return found


def planted(rng: np.random.Generator, pool: Sequence[np.ndarray], length: int, size: float) -> tuple[np.ndarray, int]:
    """Return a series with a step, and its place; places leave ten runs on either side."""
    values = rng.choice(pool[int(rng.integers(len(pool)))], length)
    at = int(rng.integers(10, length - 9))
    values[at:] += size
    return values, at


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", type=int, default=200, metavar="N", help="of each kind (default: 200)")
    parser.add_argument("--length", type=int, default=60, metavar="N", help="runs of each (default: 60)")
    args = parser.parse_args()
    pool = list(noise().values())
    print(
        "| detector | false alarms, no step | "
        + " | ".join(f"{100 * step:g} %" for step in STEPS)
        + " | staircase | spike | ms |"
    )
    print("|---|--:|" + "--:|" * (len(STEPS) + 3))
    for name, detector in detectors().items():
        rng = np.random.default_rng(1)
        since = time.perf_counter()
        alarms = sum(bool(detector(planted(rng, pool, args.length, 0.0)[0])) for _ in range(args.series))
        each = 1000 * (time.perf_counter() - since) / args.series
        cells = []
        for size in STEPS:
            hits = found = 0
            for _ in range(args.series):
                series, at = planted(rng, pool, args.length, size)
                places = detector(series)
                near = [place for place in places if abs(place - at) <= NEAR]
                hits += bool(near)
                found += len(places)
            cells.append(f"{hits / args.series:.2f} / {hits / found if found else math.nan:.2f}")
        stairs = spikes = 0
        for _ in range(args.series):
            series, _ = planted(rng, pool, args.length, 0.0)
            third = args.length // 3
            series[third:] += 0.04
            series[2 * third :] += 0.04
            places = detector(series)
            stairs += all(any(abs(place - at) <= NEAR for place in places) for at in (third, 2 * third))
            series, at = planted(rng, pool, args.length, 0.0)
            series[at] += 0.3
            spikes += bool(detector(series))
        cells += [f"{stairs / args.series:.2f}", f"{spikes / args.series:.2f}", f"{each:.1f}"]
        print(f"| {name} | {alarms / args.series:.3f} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
