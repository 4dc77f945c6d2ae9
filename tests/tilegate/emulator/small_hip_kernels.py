"""Small kernels written for one behaviour each, and how to run them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tilegate import emulator
from tilegate.emulator import Limits, Run, Schedule

LIMITS = Limits(seconds=60)
HEADERS = ("gemm.h", "copy.h", "reduce.h", "scan.h", "ldsm.h", "threadblock_swizzle.h", "debug.h")


def source(body: str, parameters: str = "int* __restrict__ out", prelude: str = "") -> str:
    """A kernel `small` in the form of generated ones; `lds` is its dynamic shared memory, `t` the work-item."""
    includes = "".join(f"#include <tl_templates/hip/{name}>\n" for name in HEADERS)
    return f"""#include <hip/hip_runtime.h>
{includes}{prelude}
extern "C" __global__ void __launch_bounds__(256) small({parameters}) {{
  extern __shared__ __align__(1024) uchar buf_dyn_shmem[];
  int* lds = (int*)buf_dyn_shmem;
  int t = (int)threadIdx.x;
{body}
}}
"""


def program(
    body: str,
    *,
    parameters: str = "int* __restrict__ out",
    prelude: str = "",
    shared: int = 1024,
    arch: str = "gfx942",
    traced: bool = True,
) -> emulator.Program:
    return emulator.compile_kernel(
        source(body, parameters, prelude), "small", arch=arch, shared_bytes=shared, traced=traced
    )


def run(
    body: str,
    arguments: dict[str, Any],
    *,
    parameters: str = "int* __restrict__ out",
    prelude: str = "",
    threads: int = 64,
    grid: Sequence[int] = (1,),
    shared: int = 1024,
    arch: str = "gfx942",
    traced: bool = True,
    schedule: Schedule = emulator.SCHEDULES[0],
    rounding: str | None = None,
    limits: Limits = LIMITS,
    processes: int | None = None,
    runner: Path | None = None,
    registers: bool = False,
) -> Run:
    built = program(body, parameters=parameters, prelude=prelude, shared=shared, arch=arch, traced=traced)
    if runner is not None:
        built = replace(built, runner=runner)
    return emulator.run(
        built,
        arguments,
        grid,
        [threads],
        schedule=schedule,
        rounding=rounding,
        limits=limits,
        processes=processes,
        registers=registers,
    )


def out(count: int = 64, dtype: Any = np.int32) -> Any:
    return np.full(count, 77, dtype)


def kinds(result: Run) -> list[str]:
    return sorted({finding.kind for finding in result.findings})


def line_of(body: str, text: str) -> int:
    """The line of the generated source on which `text` of the body stands."""
    lines = source(body).splitlines()
    (number,) = [index + 1 for index, line in enumerate(lines) if text in line]
    return number
