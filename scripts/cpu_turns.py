"""How noisy a pair of turns is on this CPU, for several ways of taking them: the table of docs/gate.md, "On a CPU".

    python scripts/cpu_turns.py [--launches 2600]

One series of launches of one kernel in one process, cut into pairs of turns in each way: what differs is noise.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).parents[1])]  # `benchmarks` is not installed
os.environ |= {"TILEGATE_TARGET": "cpu", "TILEGATE_TIER": "smoke"}

from benchmarks.attention import Forward  # noqa: E402
from tilegate import environment  # noqa: E402
from tilegate.protocol import clock_for  # noqa: E402

CASE = ("cpu-g7-d128-s96", "adaptive")
SCREEN = 8  # pairs
WAYS = (
    (3, False, np.median, "the median"),
    (8, False, np.median, "the median"),
    (8, False, np.min, "the fastest"),
    (8, True, np.min, "the fastest"),
)


def main() -> None:
    """Measure, and print Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--launches", type=int, default=2600, help="at least 256 (default: 2600, half a minute)")
    launches = max(256, parser.parse_args().launches)
    forward = Forward()
    forward.setup(*CASE)
    clock = clock_for("cpu")
    clock.warm_up(lambda: forward.latency_forward(*CASE), 0.2)
    print(f"{environment.cpu_model()}, load {os.getloadavg()[0]:.1f} before", file=sys.stderr)
    series = np.array(clock.measure(lambda: forward.latency_forward(*CASE), launches))
    print(f"load {os.getloadavg()[0]:.1f} after; median {1e3 * np.median(series):.2f} ms", file=sys.stderr)
    print(
        "| a turn's launches | of which counts | robust standard deviation of a pair | standard deviation of a screen of 8 pairs |"
    )
    print("|---|---|--:|--:|")
    for count, alternating, centre, which in WAYS:
        pairs = series[: launches // (2 * count) * 2 * count].reshape(-1, 2 * count)
        one, other = (pairs[:, ::2], pairs[:, 1::2]) if alternating else (pairs[:, :count], pairs[:, count:])
        ratios = np.log(centre(one, axis=1) / centre(other, axis=1))
        screens = np.median(ratios[: len(ratios) // SCREEN * SCREEN].reshape(-1, SCREEN), axis=1)
        robust = 1.4826 * np.median(np.abs(ratios - np.median(ratios)))
        how = "alternating" if alternating else "one turn after the other"
        print(f"| {count}, {how} | {which} | {100 * robust:.1f} % | {100 * screens.std():.1f} % |")


if __name__ == "__main__":
    main()
