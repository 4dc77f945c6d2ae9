"""How much of a difference between equal code is the luck of its layout, with and without drawing layouts.

    python scripts/proof/layout_spread.py                                    a small numpy library, on the CPU
    python scripts/proof/layout_spread.py --target cuda -b 'pr-|adaptive'     this repository's suite, on a GPU

Heads that do identical work under other bytes: a comment and unused functions more, in a folder with a longer or shorter
name. Each is measured against the base in several fresh pairs of processes, by turns in two ways: `fixed`, every process
laid out the same, and `drawn`, as the gate does it. What all replicates of one head share is luck that no replicate shows;
what differs between them is in the gate's bias. docs/gate-statistics.md, "Layout", has the figures.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import re
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT)]

from tilegate.config import GateConfig, load_config  # noqa: E402
from tilegate.judging import stats  # noqa: E402
from tilegate.judging.measured import of_turns  # noqa: E402
from tilegate.measuring import duet, environment  # noqa: E402
from tilegate.measuring.disturbance import Patience  # noqa: E402
from tilegate.measuring.layout import Layouts  # noqa: E402
from tilegate.measuring.pool import WorkerPool  # noqa: E402
from tilegate.measuring.workspace import Workspace, make_workspace  # noqa: E402

WAYS = ("fixed", "drawn")

SMALL = {
    "pyproject.toml": '[tool.tilegate]\npackage = "small"\nsuite = "suite"\nmin_launches = 8\nwarm_up_seconds = 0.02\n',
    "suite/__init__.py": "from tilegate.protocol import register\nregister()\n",
    "suite/cases.py": """
import numpy as np
import small

class Double:
    params = ([1_000, 10_000, 100_000],)
    version = "1"
    def setup(self, length):
        self.values = np.random.default_rng(0).standard_normal(length)
        self.out = np.empty_like(self.values)
    def latency_double(self, length):
        small.double(self.values, self.out)
""",
    "small/__init__.py": """
import numpy as np

def double(values, out):
    for _ in range(40):
        np.multiply(values, 2, out=out)
""",
}


@dataclass
class Found:
    """Of one case and way: for each head, the estimates of its replicates, their errors, and the seconds they took."""

    estimates: list[list[float]] = field(default_factory=list)
    errors: list[list[float]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def within(self) -> float:
        """Standard deviation between replicates of one head, which a gate sees."""
        return math.sqrt(float(np.mean([np.var(found, ddof=1) for found in self.estimates])))

    def shared(self) -> float:
        """Standard deviation of what all replicates of a head share, which it does not; the true difference is 0."""
        centres = [np.mean(found) for found in self.estimates]
        replicates = len(self.estimates[0])
        return math.sqrt(max(0.0, float(np.mean(np.square(centres))) - self.within() ** 2 / replicates))


def trees(folder: Path, small: bool, heads: int) -> tuple[Path, list[Path]]:
    """Write the base and the heads; return their folders."""
    base = folder / "base"
    if small:
        for name, text in SMALL.items():
            (base / name).parent.mkdir(parents=True, exist_ok=True)
            (base / name).write_text(text)
    else:
        for name in ("tilekernels", "benchmarks"):
            shutil.copytree(ROOT / name, base / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", base)
    made = []
    for number in range(heads):
        head = folder / ("head" + "-longer" * number)
        shutil.copytree(base, head)
        init = next(head / name / "__init__.py" for name in ("small", "tilekernels") if (head / name).is_dir())
        unused = "".join(f"def _unused_{i}(a, b): return a + b\n" for i in range(13 * number))
        init.write_text(f"{init.read_text()}\n# {'x' * 700 * number}\n{unused}")
        made.append(head)
    return base, made


def sides(folder: Path, config: GateConfig, base: Path, head: Path, target: str) -> dict[str, Workspace]:
    """Stage a base and a head."""
    suite = base / config.suite
    return {
        side: make_workspace(folder / side, config, exported=tree, suite_root=suite, target=target, tier=_tier(target))
        for side, tree in (("base", base), ("head", head))
    }


def replicate(
    workspaces: dict[str, Workspace], config: GateConfig, way: str, options: argparse.Namespace, label: str
) -> dict:
    """Measure one fresh pair of processes; return for each case estimate, error and seconds."""
    duet.PLACING_SHARE = 0.05 if way == "drawn" else 0.0
    drawn = (
        {side: Layouts().draw(random.getrandbits(31), label, side) for side in workspaces} if way == "drawn" else None
    )
    found = {}
    logs = next(iter(workspaces.values())).folder.parent / "logs"
    with WorkerPool(workspaces, logs, config, label=label, timed=True, layouts=drawn) as pool:
        cases = [c["id"] for c in pool.worker("base").catalogue()["cases"] if re.search(options.bench, c["id"])]
        pool.precompile(dict.fromkeys(workspaces, cases))
        for case in random.sample(cases, len(cases)) if way == "drawn" else cases:
            started = time.monotonic()
            measured = duet.measure(
                pool,
                case,
                options.pairs,
                config.for_case(case),
                random.Random(label),  # noqa: S311 - not for secrets
                warm_up=0.05,
                patience=Patience(9.0),
            )
            base, head = of_turns(measured["pairs"], options.target)
            ratios = np.log(head / base)
            found[case] = stats.hodges_lehmann(ratios), stats.standard_error(ratios), time.monotonic() - started
    return found


def table(found: dict[str, dict[str, Found]]) -> str:
    """Return Markdown."""
    lines = [
        "| case | way | error of its pairs | between replicates | shared by all of a head | seconds |",
        "|---|---|--:|--:|--:|--:|",
    ]
    for case, ways in found.items():
        for way, of in ways.items():
            error = math.sqrt(float(np.mean(np.square(of.errors))))
            sizes = (error, of.within(), of.shared())
            cells = " | ".join(f"{100 * size:.2f} %" for size in sizes)
            lines.append(f"| `{case}` | {way} | {cells} | {np.median(of.seconds):.2f} |")
    return "\n".join(lines)


def main() -> None:
    """Measure, and print Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", choices=("cpu", "cuda", "hip"), default="cpu")
    parser.add_argument("-b", "--bench", default="", metavar="REGEX", help="only these cases")
    parser.add_argument("--heads", type=int, default=5)
    parser.add_argument("--replicates", type=int, default=4, help="of each head and way")
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--minutes", type=float, default=30.0, help="start no replicate after that")
    parser.add_argument("--out", type=Path, help="all estimates, as JSON")
    options = parser.parse_args()
    end = time.monotonic() + 60 * options.minutes
    found: dict[str, dict[str, Found]] = {}
    with tempfile.TemporaryDirectory() as folder:
        base, heads = trees(Path(folder), options.target == "cpu", options.heads)
        config = load_config((base / "pyproject.toml").read_text())
        prepared = [sides(Path(folder, f"work{i}"), config, base, head, options.target) for i, head in enumerate(heads)]
        for round_number in range(options.replicates):
            if time.monotonic() > end:
                break
            for number, workspaces in enumerate(prepared):
                for way in WAYS:  # by turns: the machine is quieter at some times than at others
                    label = f"{way}-{number}-{round_number}"
                    for case, (estimate, error, seconds) in replicate(workspaces, config, way, options, label).items():
                        of = found.setdefault(case, {w: Found() for w in WAYS})[way]
                        if round_number == 0:
                            of.estimates.append([])
                            of.errors.append([])
                        of.estimates[number].append(estimate)
                        of.errors[number].append(error)
                        of.seconds.append(seconds)
            print(f"round {round_number + 1} of {options.replicates}", file=sys.stderr, flush=True)
            if options.out is not None:
                plain = {case: {way: vars(of) for way, of in ways.items()} for case, ways in found.items()}
                options.out.write_text(json.dumps(plain))
    print(f"{environment.cpu_model()}, target {options.target}; standard deviations\n\n{table(found)}")


def _tier(target: str) -> str:
    return "smoke" if target == "cpu" else "pr"


if __name__ == "__main__":
    main()
