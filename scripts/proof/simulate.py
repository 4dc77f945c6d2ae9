"""Simulate thousands of pull requests on recorded noise: how often is the gate wrong, and what does it find?

    python scripts/proof/simulate.py [--quick] [--jobs 2] [--out FILE]

Writes the counts to FILE (docs/gate-proof/simulation.json) and the plots beside it, and prints the tables that
docs/gate-proof.md quotes. Interrupt it whenever you like: finished blocks are kept in .tilegate as long as neither the rules
nor the noise changes, and the same command continues.

    python scripts/proof/simulate.py --synthetic

prints what the rules make of noise like that of a busy CPU instead.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "tilegate"), str(Path(__file__).parent)]

import figures  # noqa: E402
import gate_simulation  # noqa: E402
import rivals  # noqa: E402

from tilegate import config, files  # noqa: E402
from tilegate.judging import decision, noise, stats  # noqa: E402

OUT = ROOT / "docs" / "gate-proof" / "simulation.json"
SEED = 20261129
CASES = 200
BLOCK = 50  # pull requests that one job simulates
EFFECTS = (0.005, 0.0075, 0.01, 0.0125, 0.015, 0.0175, 0.0225, 0.025, 0.0275, 0.035, 0.04, 0.05, 0.1)
# Kernels of which both kinds of traces exist: turns of two processes, and processes one after the other.
COMMON = ("prefill_1k", "b8_512", "prefill_4k", "prefill_16k")
RIVAL_DRAWS = 300
DECIDING = (
    *config.THRESHOLDS,
    *("alpha", "miss", "power", "screen_pairs", "confirm_pairs", "noisy_pairs", "replicates", "max_replicates"),
)


@dataclass(frozen=True)
class Experiment:
    """Many pull requests of one kind.

    Attributes:
        pool: which kernels: "long" (above 25 us), "recorded" (below, as the gate times them), "common" (those that rivals.py
            knows), or the name of one short kernel, timed launch by launch.
        effect: slowdown of the first case; 0: nothing is slower.
        requests: how many.
        bias: by what every replicate's bias is multiplied, beyond what was measured.
        cases: in each request.
    """

    pool: str
    effect: float
    requests: int
    bias: float = 1.0
    cases: int = CASES

    @property
    def key(self) -> str:
        """What distinguishes it from the others, and seeds its chance."""
        return f"{self.pool} {self.effect:g} bias*{self.bias:g} cases={self.cases}"


def experiments(quick: bool) -> list[Experiment]:
    """Return what is simulated; `quick`: a hundredth of it, to see that it runs."""
    plan = [
        Experiment("long", 0.0, 10_000),
        Experiment("long", 0.03, 1_000),
        Experiment("long", 0.02, 1_000),
        *(Experiment("long", effect, 100) for effect in EFFECTS),
        *(Experiment("common", effect, 100) for effect in (*EFFECTS, 0.02, 0.03)),
        Experiment("common", 0.0, 500),
        Experiment("recorded", 0.0, 2_000),
        *(Experiment("recorded", effect, 300) for effect in (0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05, 0.1)),
        *(Experiment("long", 0.0, 100, bias=factor) for factor in (2.0, 3.0)),
        Experiment("long", 0.0, 50, bias=5.0),
        # A short kernel among four others like it; two hundred of them would be confirmed one and all.
        *(Experiment(name, effect, 50, cases=5) for name in _short_names() for effect in (0.0, 0.02, 0.03, 0.05, 0.1)),
    ]
    if not quick:
        return plan
    return [Experiment(e.pool, e.effect, max(BLOCK, e.requests // 100), e.bias, e.cases) for e in plan]


def run_block(work: tuple[Experiment, int]) -> dict[str, Any]:
    """Simulate one block of one experiment; the same block always gives the same."""
    experiment, block = work
    seed = int.from_bytes(hashlib.sha256(f"{SEED} {experiment.key} {block}".encode()).digest()[:8])
    done = gate_simulation.requests(
        _pool(experiment.pool, experiment.bias),
        min(BLOCK, experiment.requests - block * BLOCK),
        np.random.default_rng(seed),
        effect=experiment.effect,
        cases=experiment.cases,
    )
    names = [t.name for t in _pool(experiment.pool, experiment.bias).traces]
    total: Counter[str] = Counter()
    for request in done:
        total += request.verdicts
    return {
        "key": experiment.key,
        "block": block,
        "requests": len(done),
        "red": sum(r.verdicts["regressed"] > 0 for r in done),
        "undecided": sum(r.verdicts["inconclusive"] > 0 for r in done),
        "warned": sum(r.verdicts["warning"] > 0 for r in done),
        "others": dict(total),
        "planted": dict(Counter(f"{names[r.which]} {r.planted}" for r in done)),
        "suspects": sum(r.suspects for r in done),
        "pairs": sum(r.pairs for r in done),
        "rounds": sum(r.rounds for r in done),
    }


@cache
def _pools() -> dict[str, gate_simulation.Pool]:
    return gate_simulation.pools()


def _short_names() -> list[str]:
    return [t.name for t in sorted(_pools()["short"].traces, key=lambda t: t.seconds)]


@cache
def _pool(name: str, bias: float) -> gate_simulation.Pool:
    if name == "common":
        chosen = tuple(t for t in _pools()["long"].traces if t.name in COMMON)
    elif name in _pools():
        chosen = _pools()[name].traces
    else:
        chosen = tuple(t for t in _pools()["short"].traces if t.name == name)
    return gate_simulation.Pool(tuple(t.amplified(bias) for t in chosen) if bias != 1.0 else chosen)


def deciding() -> dict[str, Any]:
    """Return the settings that the simulated verdicts depend on."""
    settings = config.to_dict(gate_simulation.CONFIG)
    bias = {timed: settings["bias"][timed] for timed in gate_simulation.SOURCES.values()}
    return {**{key: settings[key] for key in DECIDING}, "bias": bias}


def _inputs() -> str:
    """Return a digest of everything that decides the results: finished blocks of other rules are not used."""
    digest = hashlib.sha256(repr(deciding()).encode())
    for module in (decision, noise, stats, gate_simulation):
        digest.update(Path(str(module.__file__)).read_bytes())
    for source in gate_simulation.SOURCES:
        digest.update((gate_simulation.DATA / source).read_bytes())
    return digest.hexdigest()[:16]


def simulate(plan: list[Experiment], partial: Path, jobs: int, console: Console) -> dict[str, dict[str, Any]]:
    """Run every block that `partial` does not hold yet; return the sums of each experiment."""
    inputs = _inputs()
    blocks = {(b["key"], b["block"]): b for b in _read(partial, inputs)}
    wanted = [(e, block) for e in plan for block in range(-(-e.requests // BLOCK))]
    open_blocks = [w for w in wanted if (w[0].key, w[1]) not in blocks]
    partial.parent.mkdir(parents=True, exist_ok=True)
    columns = (TextColumn("simulating"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with (
        partial.open("a", encoding="utf-8") as file,
        multiprocessing.get_context("fork").Pool(jobs) as workers,
        Progress(*columns, console=console) as bar,
    ):
        task = bar.add_task("", total=len(wanted), completed=len(wanted) - len(open_blocks))
        for done in workers.imap_unordered(run_block, open_blocks):
            blocks[done["key"], done["block"]] = done
            file.write(json.dumps({"inputs": inputs, **done}) + "\n")
            file.flush()
            bar.advance(task)
    return {e.key: _sum(e, [blocks[e.key, block] for block in range(-(-e.requests // BLOCK))]) for e in plan}


def _read(partial: Path, inputs: str) -> Iterator[dict[str, Any]]:
    if not partial.exists():
        return
    for line in partial.read_text(encoding="utf-8").splitlines():
        try:
            block = json.loads(line)
        except ValueError:  # the last line of a run that was killed
            continue
        if block.pop("inputs") == inputs:
            yield block


def _sum(experiment: Experiment, blocks: list[dict[str, Any]]) -> dict[str, Any]:
    others: Counter[str] = Counter()
    planted: dict[str, Counter[str]] = {}
    for block in blocks:
        others.update(block["others"])
        for text, count in block["planted"].items():
            name, verdict = text.rsplit(" ", 1)
            planted.setdefault(name, Counter())[verdict] += count
    sums = {key: sum(b[key] for b in blocks) for key in ("red", "undecided", "warned", "suspects", "pairs", "rounds")}
    return {
        **asdict(experiment),
        **{key: sums[key] for key in ("red", "undecided", "warned")},
        **{f"mean_{key}": sums[key] / experiment.requests for key in ("suspects", "pairs", "rounds")},
        "others": dict(others),
        "planted": {name: dict(planted[name]) for name in sorted(planted)},
    }


def compare(draws: int) -> dict[str, Any]:
    """Return for each rival rule how often it calls a case slower, per slowdown, and the runs that are then red."""
    known = rivals.launches()
    effects = (0.0, *sorted((*EFFECTS, 0.02, 0.03)))
    found = {}
    for rule in rivals.RULES:
        rng = np.random.default_rng(SEED)
        called = {
            effect: float(np.mean([rivals.share_called(rule, known[name], effect, draws, rng) for name in COMMON]))
            for effect in effects
        }
        found[rule.name] = {
            "called": {f"{effect:g}": share for effect, share in called.items()},
            "red_clean": rivals.chance_of_red(rule, called[0.0], None, CASES),
            "red_planted": {
                f"{effect:g}": rivals.chance_of_red(rule, called[0.0], share, CASES)
                for effect, share in called.items()
                if effect
            },
            "draws": draws * len(COMMON),
        }
    return found


def synthetic(runs: int) -> str:
    """Return a table of what becomes of one case in noise like that of a busy CPU, of a pair's standard deviation."""
    columns = ("regressed", "warning", "inconclusive", "improved", "pass")
    lines = [
        f"| noise of a pair | change | {' | '.join(columns)} | replicates |",
        f"|--:|--:|{'--:|' * (len(columns) + 1)}",
    ]
    rng = np.random.default_rng(SEED)
    for noise_of_a_pair in (0.02, 0.05, 0.1):
        for effect in (0.0, 0.03, 0.05):
            verdicts, replicates = gate_simulation.synthetic(effect, noise_of_a_pair, runs, rng)
            shares = " | ".join(f"{100 * verdicts[c] / runs:.1f}" for c in columns)
            lines.append(f"| {100 * noise_of_a_pair:g} % | {100 * effect:+g} % | {shares} | {replicates:.1f} |")
    return "\n".join(lines)


def main() -> None:
    """Simulate, plot, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a hundredth of the pull requests: does it run?")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes (default: 2)")
    parser.add_argument(
        "--out", type=Path, default=OUT, metavar="FILE", help="where the counts go; the plots lie beside it"
    )
    parser.add_argument("--synthetic", action="store_true", help="simulated noise of a busy CPU instead of the real")
    args = parser.parse_args()
    if args.synthetic:
        print(synthetic(300))
        return
    console = Console(stderr=True)
    plan = experiments(args.quick)
    try:
        counted = simulate(plan, ROOT / ".tilegate" / f"{args.out.stem}.partial", args.jobs, console)
    except KeyboardInterrupt:
        console.print("interrupted; the same command continues")
        sys.exit(130)
    result = {
        "about": "Written by scripts/proof/simulate.py; docs/gate-proof.md explains it.",
        "seed": SEED,
        "inputs": _inputs(),
        "config": deciding(),
        "experiments": list(counted.values()),
        "rivals": compare(RIVAL_DRAWS // 10 if args.quick else RIVAL_DRAWS),
    }
    files.write_json(args.out, result)
    figures.draw(result, args.out.parent)
    print(figures.tables(result))


if __name__ == "__main__":
    main()
