"""A promise of 1 % instead of 3 %: simulated on an H200's recorded noise, how often is it wrong, and what does it cost?

    python scripts/proof/one_percent.py [--clean 300] [--planted 400]

Every request has 200 changed cases. Prints a table in Markdown, which docs/gate-proof.md quotes.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "tilegate")]

import gate_simulation  # noqa: E402

from tilegate import config  # noqa: E402
from tilegate.judging import decision  # noqa: E402

SHORTEST = 100e-6  # seconds: below, a promise of 1 % asks for less noise than there is
SEED, CASES, PLANTED_ALIKE = 20261201, 200, 0.01
REQUESTED = {"package": "mykernels", "suite": "benchmarks"}


def main() -> None:
    """Simulate, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clean", type=int, default=300, metavar="N", help="requests without a change (default: 300)")
    parser.add_argument("--planted", type=int, default=400, metavar="N", help="requests with one (default: 400)")
    arguments = parser.parse_args()
    pool = gate_simulation.Pool(tuple(t for t in gate_simulation.traces() if t.seconds > SHORTEST))
    print(f"{len(pool.traces)} kernels of {1e6 * min(t.seconds for t in pool.traces):.0f} µs and more\n")
    print(
        "| promise | clean requests | red | undecided cases in 100 requests | +1 % in one case: regressed | pairs a case |"
    )
    print("|--:|--:|--:|--:|--:|--:|")
    for promise in (0.03, 0.01):
        settings = config.from_dict({**REQUESTED, "promise": promise})
        rng = np.random.default_rng(SEED)
        clean = gate_simulation.requests(pool, arguments.clean, rng, cases=CASES, config=settings)
        red = sum(r.verdicts["regressed"] > 0 or r.planted == "regressed" for r in clean)
        open_cases = sum(r.verdicts["inconclusive"] for r in clean)
        planted = gate_simulation.requests(
            pool, arguments.planted, rng, effect=PLANTED_ALIKE, cases=CASES, config=settings
        )
        found = Counter(r.planted for r in planted)
        pairs = np.mean([r.pairs for r in clean]) / CASES
        print(
            f"| {100 * promise:g} % | {len(clean)} | {red} | {100 * open_cases / len(clean):.1f} | "
            f"{found['regressed']} of {len(planted)} | {pairs:.1f} |",
            flush=True,
        )
        missed = Counter((pool.traces[r.which].name, r.planted) for r in planted if r.planted != "regressed")
        if promise < config.GateConfig(**REQUESTED).promise and missed:
            print(f"\nnot called at {100 * promise:g} %: {dict(missed)}", file=sys.stderr)
    for trace in pool.traces:
        settings = config.from_dict({**REQUESTED, "promise": 0.01})
        evidence = decision.weigh_screen([r for r in trace.replicates[:1]], settings, trace.bias(settings))
        possible = decision.supportable_promise(evidence, settings, 1)
        print(
            f"{trace.name}: {1e6 * trace.seconds:.0f} µs could promise {possible and 100 * possible:.2f} %",
            file=sys.stderr,
        )


if __name__ == "__main__":
    main()
