"""How many faults the emulator finds: `python scripts/proof/emulator_mutations.py [--arch gfx942] [--only PATTERN] [--most N]`.

Each shipped kernel is broken in one place at a time: a barrier dropped, a bound of a tail shifted by one, a clear removed, a
bit of a swizzle lost. Each broken kernel runs on its first problem under the first schedule, as in `tilegate emulate
--schedules first`, and is found (by a finding or by wrong values) or has changed nothing there. Prints the table of
docs/emulator.md, and names what changed nothing on stderr. Takes a few seconds for each of some hundreds of mutations.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import torch

sys.path[:0] = [str(Path(__file__).parents[2])]  # `benchmarks` is not installed

from benchmarks import emulated, kernels  # noqa: E402
from tilegate import emulator, tools  # noqa: E402
from tilegate.emulate import trial  # noqa: E402
from tilegate.protocol import Artifact  # noqa: E402

# What is replaced, once at each place, and by what.
MUTATIONS = {
    "a barrier dropped": (re.compile(r"^\s*__syncthreads\(\);$", re.MULTILINE), ";"),
    "a bound shifted by one": (re.compile(r" < (?=seqlen_\w+\)|\(seqlen_\w+ \+ \d+\)\))"), " <= "),
    "a clear removed": (
        re.compile(r"^\s*(?:\w+\[[^]]*\] = 0\.0+e\+00f;|\*\(float\d\*\)\(\w+ \+ [^;]*\) = make_float\d\(broadcast_var[^;]*;)$", re.MULTILINE),
        ";",
    ),
    "a bit of a swizzle lost": (re.compile(r"& 1\) \* (?=8\)|16\)|32\))"), "& 0) * "),
}  # fmt: skip
CHANGED_NOTHING = "changes nothing"


def mutants(source: str) -> Iterator[tuple[str, int, str]]:
    """Give each mutation's sort, its line, and the source with it."""
    for sort, (pattern, by) in MUTATIONS.items():
        for found in pattern.finditer(source):
            indent = re.match(r"\s*", found[0])[0] if by == ";" else ""
            line = source.count("\n", 0, found.start() + len(indent)) + 1
            yield sort, line, source[: found.start()] + indent + by + source[found.end() :]


def outcome(arch: str, id: str, artifacts: tuple[Artifact, ...]) -> str:
    """Run a launch on its first problem: the kinds of what was found, or `CHANGED_NOTHING`."""
    problem = emulated.problems(id, arch)[0]
    found = trial.run_trial(emulated, id, arch, problem, artifacts, thorough=False)["findings"]
    return " + ".join(sorted({str(finding["kind"]) for finding in found})) or CHANGED_NOTHING


def main(words: list[str] | None = None) -> None:
    """Break and run every kernel, and print Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arch", default="gfx942", help="the chip (default: gfx942)")
    parser.add_argument("--only", default="", metavar="PATTERN", help="kernels whose id this regular expression finds")
    parser.add_argument("--most", type=int, default=sys.maxsize, metavar="N", help="mutations of a sort and kernel")
    args = parser.parse_args(words)
    torch.set_num_threads(1)  # as in the workers of `tilegate emulate`
    jobs: list[tuple[str, str, int, tuple[Artifact, ...]]] = []
    for id in kernels.configurations(args.arch):
        if not re.search(args.only, id):
            continue
        artifacts = tuple(kernels.lower(id, args.arch))
        for index, artifact in enumerate(artifacts):
            taken: Counter[str] = Counter()
            for sort, line, source in mutants(artifact.source):
                taken[sort] += 1
                if taken[sort] <= args.most:
                    broken = (*artifacts[:index], replace(artifact, source=source), *artifacts[index + 1 :])
                    jobs.append((sort, id, line, broken))
    print(f"emulator_mutations: {len(jobs)} mutations", file=sys.stderr, flush=True)

    def look(job: tuple[str, str, int, tuple[Artifact, ...]]) -> str:
        sort, id, line, broken = job
        came = outcome(args.arch, id, broken)
        if came == CHANGED_NOTHING:
            print(f"changes nothing: {sort}, line {line} of {id}", file=sys.stderr, flush=True)
        return came

    with ThreadPoolExecutor(tools.available_cores()) as pool:
        results = list(pool.map(look, jobs))
    print(f"| one place broken, {args.arch}, {emulator.toolchain().version} | mutations | found | change nothing |")
    print("|---|--:|--:|--:|")
    for sort in MUTATIONS:
        came = [result for (of, *_), result in zip(jobs, results, strict=True) if of == sort]
        silent = came.count(CHANGED_NOTHING)
        print(f"| {sort} | {len(came)} | {len(came) - silent} | {silent} |")
    kinds = Counter(kind for result in results if result != CHANGED_NOTHING for kind in result.split(" + "))
    print("\nFound as: " + ", ".join(f"{kind} {count}" for kind, count in kinds.most_common()))


if __name__ == "__main__":
    main()
