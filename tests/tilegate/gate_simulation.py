"""Replays real A/A noise through the gate's rules, with planted changes; prints the figures that docs/gate.md quotes.

    python tests/tilegate/gate_simulation.py [--cases N] [--requests N] [--seed N] [--synthetic]

Every simulated case draws fresh replicates, without repeating one, from those that were really measured
(tests/data/h200_pair_noise.json) and pairs within them. The sides of a replicate are swapped at random: they run the
same code, so that is as likely. A slowdown of x % multiplies one side's times by 1 + x / 100.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tilegate import decision, stats
from tilegate.config import GateConfig
from tilegate.decision import Finding, Replicate

DATA = Path(__file__).parents[1] / "data" / "h200_pair_noise.json"
CONFIG = GateConfig(package="mykernels", suite="benchmarks")

VERDICTS = {
    Finding.SLOWER: "regressed",
    Finding.FASTER: "improved",
    Finding.WARNING: "warning",
    Finding.FAST_ENOUGH: "pass",
    Finding.UNDECIDED: "inconclusive",
}


@dataclass(frozen=True)
class Trace:
    """A/A noise of one case: log ratio and order of each pair of each replicate, and the median time in seconds."""

    name: str
    seconds: float
    replicates: tuple[Replicate, ...]


@dataclass
class Simulated:
    """One case of one run, on its way through the gate."""

    trace: Trace
    effect: float
    screen: list[Replicate]
    confirmation: list[Replicate]
    unused: list[int]

    @property
    def bias(self) -> float:
        return CONFIG.bias["cuda"].at(self.trace.seconds)

    def pairs(self) -> int:
        return sum(len(r.ratios) for r in (*self.screen, *self.confirmation))


def traces() -> list[Trace]:
    """Read the measured noise."""
    found = []
    for name, replicates in json.loads(DATA.read_text())["cases"].items():
        pairs = [np.array(r) for r in replicates]
        found.append(
            Trace(
                name,
                float(np.median(np.concatenate([p[:, 1] for p in pairs]))) * 1e-6,
                tuple(Replicate(np.log(p[:, 2] / p[:, 1]), tuple(o == 1 for o in p[:, 0])) for p in pairs),
            )
        )
    return found


def start(trace: Trace, effect: float, rng: np.random.Generator) -> Simulated:
    """Begin a case whose head takes 1 + effect times as long."""
    return Simulated(trace, effect, [], [], list(rng.permutation(len(trace.replicates))))


def measure(case: Simulated, pairs: int, rng: np.random.Generator) -> Replicate:
    """Draw a replicate that this case has not seen yet."""
    source = case.trace.replicates[case.unused.pop()]
    chosen = rng.choice(len(source.ratios), size=pairs, replace=pairs > len(source.ratios))
    sign = rng.choice((-1.0, 1.0))
    ratios = sign * source.ratios[chosen] + math.log1p(case.effect)
    return Replicate(ratios, tuple(source.head_first[i] == (sign > 0) for i in chosen))


def run(cases: list[Simulated], rng: np.random.Generator) -> list[str]:
    """Carry the cases of one run through the gate as `tilegate gate` does; return their verdicts."""
    suspects = 0
    active = cases
    while active:
        steps = [
            decision.next_step(c.screen, c.confirmation, CONFIG, c.bias, suspects=max(1, suspects)) for c in active
        ]
        going = [(c, s) for c, s in zip(active, steps, strict=True) if s.action != "done"]
        for case, step in going:
            into = case.screen if step.action == "screen" else case.confirmation
            for _ in range(min(step.replicates, len(case.unused))):
                into.append(measure(case, step.pairs, rng))
        active = [case for case, _ in going if case.unused]
        if not suspects and any(s.action == "confirm" for s in steps):
            suspects = len(going)
    confirmed = [c for c in cases if c.confirmation]
    evidence = [decision.weigh_confirmation(c.confirmation, CONFIG, c.bias) for c in confirmed]
    slower = stats.holm([e.p_slower for e in evidence])
    faster = stats.holm([e.p_faster for e in evidence])
    found = {
        id(c): VERDICTS[decision.conclude(e, CONFIG, s, f)]
        for c, e, s, f in zip(confirmed, evidence, slower, faster, strict=True)
    }
    return [found.get(id(c), "pass") for c in cases]


def rates(trace: Trace, effect: float, runs: int, rng: np.random.Generator) -> tuple[Counter[str], float]:
    """Return how often each verdict came out for a case alone in its run, and the mean number of pairs it took."""
    verdicts: Counter[str] = Counter()
    pairs = 0
    for _ in range(runs):
        case = start(trace, effect, rng)
        verdicts.update(run([case], rng))
        pairs += case.pairs()
    return verdicts, pairs / runs


def synthetic(effect: float, noise: float, runs: int, rng: np.random.Generator) -> tuple[Counter[str], float]:
    """Return verdicts and mean number of confirming replicates under heavy-tailed noise like that of a busy CPU."""
    bias = CONFIG.bias["cpu"].relative
    verdicts: Counter[str] = Counter()
    replicates = 0
    for _ in range(runs):
        stages: dict[str, list[Replicate]] = {"screen": [], "confirm": []}
        while (step := decision.next_step(stages["screen"], stages["confirm"], CONFIG, bias)).action != "done":
            for _ in range(step.replicates):
                # Student's t with 4 degrees of freedom has a variance of 2.
                pairs = noise / math.sqrt(2) * rng.standard_t(4, step.pairs)
                ratios = pairs + rng.normal(0, bias) + math.log1p(effect)
                stages[step.action].append(Replicate(ratios, tuple(i % 2 == 1 for i in range(step.pairs))))
        replicates += len(stages["confirm"])
        found = Finding.FAST_ENOUGH
        if stages["confirm"]:
            e = decision.weigh_confirmation(stages["confirm"], CONFIG, bias)
            found = decision.conclude(e, CONFIG, e.p_slower, e.p_faster)
        verdicts[VERDICTS[found]] += 1
    return verdicts, replicates / runs


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=1000, help="simulated runs of each case and change")
    parser.add_argument("--requests", type=int, default=200, help="simulated clean pull requests of 200 changed cases")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--synthetic", action="store_true", help="simulated noise of a busy CPU instead of the real")
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    columns = ("regressed", "warning", "inconclusive", "improved", "pass")
    if args.synthetic:
        print(f"| noise of a pair | change | {' | '.join(columns)} | replicates |")
        print(f"|--:|--:|{'--:|' * (len(columns) + 1)}")
        for noise in (0.02, 0.05, 0.1):
            for effect in (0.0, 0.03, 0.05):
                verdicts, replicates = synthetic(effect, noise, args.cases, rng)
                shares = " | ".join(f"{100 * verdicts[c] / args.cases:.1f}" for c in columns)
                print(f"| {100 * noise:g} % | {100 * effect:+g} % | {shares} | {replicates:.1f} |", flush=True)
        return

    known = traces()
    for effect in (0.0, 0.03, 0.02, -0.03, -0.1):
        print(f"\nchange {100 * effect:+.0f} %, {args.cases} runs a case; percent of runs\n")
        print(f"| case | median | {' | '.join(columns)} | pairs |\n|---|--:|{'--:|' * (len(columns) + 1)}")
        for trace in sorted(known, key=lambda t: t.seconds):
            verdicts, pairs = rates(trace, effect, args.cases, rng)
            shares = " | ".join(f"{100 * verdicts[c] / args.cases:.1f}" for c in columns)
            print(f"| {trace.name} | {1e6 * trace.seconds:.1f} µs | {shares} | {pairs:.0f} |", flush=True)

    long_enough = [t for t in known if t.seconds > 20e-6]
    for title, pool in (("all cases", known), ("cases above 20 µs", long_enough)):
        red = found = confirmed = 0
        for _ in range(args.requests):
            cases = [start(pool[i % len(pool)], 0.0, rng) for i in range(200)]
            verdicts = run(cases, rng)
            red += "regressed" in verdicts
            confirmed += sum(bool(c.confirmation) for c in cases)
            slow = int(rng.integers(200))
            cases = [start(pool[i % len(pool)], 0.03 if i == slow else 0.0, rng) for i in range(200)]
            found += run(cases, rng)[slow] == "regressed"
        print(
            f"\n{title}: {args.requests} clean pull requests of 200 changed cases: {red} with a false regression, "
            f"{confirmed / args.requests:.1f} cases confirmed in each; +3 % in one case called in {found}."
        )


if __name__ == "__main__":
    main()
