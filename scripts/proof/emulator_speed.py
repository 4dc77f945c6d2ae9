"""What the emulator costs on this machine, as the tables of docs/emulator.md: `python scripts/proof/emulator_speed.py`.

Needs clang, and a machine with nothing else to do. Everything is built anew, into a folder of its own; generated kernels
are taken from where the library keeps them. Takes two or three minutes on two cores.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

sys.path[:0] = [str(Path(__file__).parents[2])]  # `benchmarks` is not installed

import tilegate  # noqa: E402
from benchmarks import emulated, kernels  # noqa: E402
from tilegate import emulator, tools  # noqa: E402
from tilegate.emulate import trial  # noqa: E402
from tilegate.measuring import environment  # noqa: E402
from tilegate.protocol import Artifact  # noqa: E402

ARCHS = ("gfx942", "gfx90a")
HEADS = (
    "bfloat16 d128 causal 128x64",
    "bfloat16 d128 full 128x64",
    "bfloat16 d128 causal 64x64",
    "bfloat16 d128 full 64x64",
)
ROWS = (1024, 4096)
REPEATS = 3  # the fastest is shown
LIMITS = emulator.Limits(seconds=600)

Kernel = tuple[str, str, Artifact]


def main() -> None:
    """Measure, and print Markdown."""
    torch.set_num_threads(1)  # as in the workers of `tilegate emulate`
    cores = tools.available_cores()
    print(
        f"{environment.cpu_model()}, {cores} cores, {emulator.toolchain().version}, tilegate {tilegate.__version__}\n"
    )
    forward = [(arch, id) for arch in ARCHS for id in kernels.configurations(arch) if id.startswith("forward ")]
    found = [(arch, id, *kernels.lower(id, arch)) for arch, id in forward]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(cores) as pool:
        os.environ["XDG_CACHE_HOME"] = folder
        smoke_set(found, lambda act, jobs: list(pool.map(act, jobs)))
        print()
        heads([kernel for kernel in found if kernel[0] == ARCHS[0]])


def smoke_set(found: list[Kernel], in_parallel: Callable[[Callable[[Kernel], object], list[Kernel]], object]) -> None:
    """Build every kernel, and execute each on its first problem: once, and under all schedules and roundings."""
    print(
        f"| {len(found)} forward kernels for {' and '.join(ARCHS)}, traced, as many at a time as cores | seconds |\n|---|---|"
    )
    row("build the runtime and the first kernel", lambda: build(found[0], traced=True))
    row("build the others", lambda: in_parallel(lambda kernel: build(kernel, traced=True), found[1:]))
    row(
        "execute and check each on its first problem, once",
        lambda: in_parallel(lambda k: execute(k, thorough=False), found),
    )
    row(
        f"the same {trial.RUNS} times: every schedule and rounding",
        lambda: in_parallel(lambda k: execute(k, thorough=True), found),
    )


def heads(found: list[Kernel]) -> None:
    """Execute single heads: untraced on all cores and on one, and traced."""
    print(
        f"| one head for {ARCHS[0]}, seconds | rows and keys | untraced | untraced, one process | traced |\n|---|---|---|---|---|"
    )
    for name in HEADS:
        kernel = next(kernel for kernel in found if name in kernel[1])
        for rows in ROWS:
            times = [
                head(kernel, rows, traced=traced, processes=n) for traced, n in ((False, None), (False, 1), (True, 1))
            ]
            print(f"| {name} | {rows:,} | {' | '.join(f'{seconds:.2f}' for seconds in times)} |", flush=True)


def row(what: str, act: Callable[[], object]) -> None:
    """Print one measured line."""
    started = time.perf_counter()
    act()
    print(f"| {what} | {time.perf_counter() - started:.1f} |", flush=True)


def build(kernel: Kernel, *, traced: bool) -> emulator.Program:
    """Compile for this machine."""
    arch, _, artifact = kernel
    shared_bytes = int(str(artifact.launch["dynamic_shared_bytes"]))
    return emulator.compile_kernel(artifact.source, artifact.name, arch=arch, shared_bytes=shared_bytes, traced=traced)


def execute(kernel: Kernel, *, thorough: bool) -> None:
    """Execute on the first problem, and compare with the reference."""
    arch, id, artifact = kernel
    done = trial.run_trial(emulated, id, arch, emulated.problems(id, arch)[0], [artifact], thorough=thorough)
    if done["findings"]:
        sys.exit(f"{arch} {id}: {done['findings'][0]['shown']}")


def head(kernel: Kernel, rows: int, *, traced: bool, processes: int | None) -> float:
    """Seconds of the fastest run."""
    arch, id, artifact = kernel
    arguments = emulated.arguments_of_one_head(id, arch, rows)
    grid = emulator.grid_of(artifact.launch["grid"], {n: v for n, v in arguments.items() if isinstance(v, int)})  # type: ignore[arg-type]
    program = build(kernel, traced=traced)
    times = []
    for _ in range(1 if traced else REPEATS):
        started = time.perf_counter()
        done = emulator.run(program, arguments, grid, artifact.launch["block"], limits=LIMITS, processes=processes)  # type: ignore[arg-type]
        times.append(time.perf_counter() - started)
        if not done.completed or done.findings:
            sys.exit(f"{arch} {id}: {done.findings}")
    return min(times)


if __name__ == "__main__":
    main()
