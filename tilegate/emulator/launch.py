"""Running a built kernel in a process of its own, under limits."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilegate.emulator.arguments import SharedMemory, checked
from tilegate.emulator.findings import LDS_USED, Finding
from tilegate.emulator.outcome import Run, outcome
from tilegate.emulator.process import DEFAULT_LIMITS, Limits, execute
from tilegate.emulator.program import Program, shadowed_library
from tilegate.emulator.source import Parameter, launch_bounds
from tilegate.tools import available_cores

if TYPE_CHECKING:
    import numpy as np

_LDS_BYTES = {"gfx90a": 65536, "gfx942": 65536, "gfx950": 163840}
_MAX_THREADS = 1024
# hipLaunchKernel: "gridDim x blockDim >= 2^32" is not supported in any dimension. maxGridSize is what ROCm's
# hipGetDeviceProperties reports (ROCm/clr, hipamd/src/hip_device.cpp).
_MOST_WORK_ITEMS = 1 << 32
_MOST_WORKGROUPS = ((1 << 31) - 1, 1 << 16, 1 << 16)
_LANES = ("up", "down")
_WAVES = ("greedy", "robin", "random")
_WORKGROUPS = ("up", "down", "random")
ROUNDINGS = ("chip", "fma", "exact", "groups")
"""How a matrix instruction rounds: as was found by probing CDNA2 and CDNA3 (runtime/rounding.h); float32 fused
multiply-adds in order of depth; once, at the end; sums of four rounded products, subnormal sums flushed."""


@dataclass(frozen=True)
class Schedule:
    """An order of execution. The chip promises none between waves.

    Attributes:
        lanes: of a wave, "up" or "down".
        waves: "greedy" runs one until it must wait, "robin" takes turns, "random" draws the next lane.
        seed: of "random".
        workgroups: one after the other, "up" from the first, "down" from the last, or "random", by lot.
    """

    lanes: str = "up"
    waves: str = "greedy"
    seed: int = 0
    workgroups: str = "up"

    def __str__(self) -> str:
        """Spell it in a few words."""
        seeded = f" (seed {self.seed})" if "random" in (self.waves, self.workgroups) else ""
        return f"lanes {self.lanes}, waves {self.waves}, workgroups {self.workgroups}{seeded}"


SCHEDULES = (
    Schedule(),
    Schedule(lanes="down", workgroups="down"),
    Schedule(waves="robin"),
    Schedule(lanes="down", waves="robin", workgroups="down"),
    Schedule(waves="random", seed=1, workgroups="random"),
    Schedule(waves="random", seed=2, workgroups="random"),
)


def run(
    program: Program,
    arguments: Mapping[str, np.ndarray[Any, Any] | int | float],
    grid: Sequence[int],
    block: Sequence[int],
    *,
    schedule: Schedule = SCHEDULES[0],
    rounding: str | None = None,
    limits: Limits = DEFAULT_LIMITS,
    processes: int | None = None,
    registers: bool = True,
) -> Run:
    """Run a kernel once, and a traced one once more to follow what is initialised.

    The processes that run it are ended at the limits, and whatever happens in them is a finding and never an exception.

    Args:
        program: what `compile_kernel` made.
        arguments: by the names of `program.parameters`: arrays, C-contiguous, of the element's size (bfloat16 as uint16),
            which hold what the kernel wrote afterwards if the run completes and they are writeable; and numbers.
        grid: workgroups in x, y, z.
        block: work-items of a workgroup in x, y, z.
        schedule: the order of execution.
        rounding: one of `ROUNDINGS`; by default "chip" of a traced program, and "fma", the fastest, of an untraced one.
        limits: time and memory; the latter of each process.
        processes: that share the workgroups of an untraced program; by default one for each processor that this process may
            use. Always one for traced programs and for those with atomics, whose order is then the same each time.
        registers: of a traced program, also look for variables that are used before they are written.

    Raises:
        TypeError, ValueError: arguments that do not fit the kernel; names them.
        EmulatorError: the emulator itself does not run here.
    """
    rounding = rounding or ("chip" if program.traced else "fma")
    dimensions = _check_launch(program, grid, block, schedule, rounding)
    shared_among = _processes(program, math.prod(dimensions[0]), processes)
    values = [checked(parameter, arguments) for parameter in program.parameters]
    unknown = sorted(set(arguments) - {parameter.name for parameter in program.parameters})
    if unknown:
        raise ValueError(f"the kernel has no parameter {', '.join(unknown)}")
    refused = _refused(program, *dimensions)
    if refused is not None:
        return Run(False, (refused,), (), None, 0.0)
    request = [
        f"lds {_LDS_BYTES[program.arch]} {64 if program.arch == 'gfx950' else 32}",
        f"flushes {int(program.arch == 'gfx90a')}",
        f"rounding {ROUNDINGS.index(rounding)}",
        "grid {} {} {}".format(*dimensions[0]),
        "block {} {} {}".format(*dimensions[1]),
        f"schedule {_LANES.index(schedule.lanes)} {_WAVES.index(schedule.waves)} {schedule.seed}"
        f" {_WORKGROUPS.index(schedule.workgroups)}",
        f"limits {limits.seconds} {limits.memory_bytes}",
        f"processes {shared_among}",
    ]

    def go(build: Path, *, shadowed: bool) -> Run:
        with SharedMemory(program, values) as memory:
            own = [f"library {build}", f"traced {int(program.traced and not shadowed)}", f"shadowed {int(shadowed)}"]
            started = time.monotonic()
            lines = "\n".join([*own, *request, *memory.lines]) + "\n"
            ended, errors = execute(program, lines, memory.descriptor, limits)
            seconds = time.monotonic() - started
            came = outcome(program, build, ended, errors, dimensions[0], values=values, limits=limits, seconds=seconds)
            if came.completed and not shadowed:
                memory.fetch()
        return came

    followed = go(shadowed_library(program), shadowed=True) if program.traced and registers else None
    result = go(program.library, shadowed=False)
    return result if followed is None else _joined(result, followed)


_FOLLOWED = ("uninitialised", "overflow", "private-bounds")


def _joined(run: Run, followed: Run) -> Run:
    """Add what the build that follows every value found.

    LDS that is read and not used, such as padding of a wide load, is no fault: a read of LDS that nothing wrote counts if
    something depends on one.
    """
    used = any(found.kind == LDS_USED for found in followed.findings)
    own = [found for found in run.findings if found.kind != "uninitialised" or used or not followed.completed]
    here = {(found.kind, found.line) for found in own}
    registers = [
        found
        for found in followed.findings
        if found.kind in _FOLLOWED
        or (run.completed and found.kind != LDS_USED and (found.kind, found.line) not in here)
    ]
    completed = run.completed and followed.completed
    return replace(run, completed=completed, findings=(*own, *registers), seconds=run.seconds + followed.seconds)


def run_schedules(
    program: Program,
    arguments: Mapping[str, np.ndarray[Any, Any] | int | float],
    grid: Sequence[int],
    block: Sequence[int],
    *,
    schedules: Sequence[Schedule] = SCHEDULES,
    rounding: str | None = None,
    limits: Limits = DEFAULT_LIMITS,
    processes: int | None = None,
    workers: int = 1,
    registers: bool = True,
) -> Run:
    """Run a kernel under several schedules, all from the same arguments.

    Args:
        program, arguments, grid, block, rounding, limits, processes, registers: as `run`; the arrays hold the results of
            the first schedule, and registers are followed under that one alone.
        schedules: at least one.
        workers: runs at a time.

    Returns:
        The run of the first schedule, with the findings of all. Results that differ in any bit are a finding of kind
        "schedule-dependent", those of floating-point atomics too.
    """
    if not schedules:
        raise ValueError("run_schedules needs at least one schedule")
    inputs = [
        {name: value if isinstance(value, int | float) else value.copy() for name, value in arguments.items()}
        for _ in schedules[1:]
    ]

    def go(index: int) -> Run:
        own = inputs[index - 1] if index else arguments
        return run(
            program,
            own,
            grid,
            block,
            schedule=schedules[index],
            rounding=rounding,
            limits=limits,
            processes=processes,
            registers=registers and index == 0,
        )

    with ThreadPoolExecutor(max(1, workers)) as pool:
        later = [pool.submit(go, index) for index in range(1, len(schedules))]
        others = [future.result() for future in later]
    first = go(0)
    findings = dict.fromkeys(first.findings)
    differing: set[str] = set()
    for schedule, other, own in zip(schedules[1:], others, inputs, strict=True):
        known = {(finding.kind, finding.line, finding.other and finding.other.line) for finding in findings}
        for finding in other.findings:
            if (finding.kind, finding.line, finding.other and finding.other.line) not in known:
                findings[replace(finding, message=f"{finding.message} [{schedule}]")] = None
        if first.completed and other.completed:
            for parameter in program.parameters:
                difference = None if parameter.name in differing else _difference(parameter, arguments, own)
                if difference:
                    differing.add(parameter.name)
                    findings[Finding("schedule-dependent", f"{difference} under '{schedule}' and '{schedules[0]}'")] = (
                        None
                    )
    completed = first.completed and all(other.completed for other in others)
    return replace(first, completed=completed, findings=tuple(findings))


def _processes(program: Program, workgroups: int, wanted: int | None) -> int:
    if wanted is not None and wanted < 1:
        raise ValueError(f"processes must be at least 1, got {wanted}")
    if program.traced or program.atomics:
        return 1
    return max(1, min(workgroups, wanted or available_cores()))


def _difference(parameter: Parameter, one: Mapping[str, Any], two: Mapping[str, Any]) -> str | None:
    if not parameter.pointer:
        return None
    import numpy as np  # noqa: PLC0415

    bits = f"u{parameter.bytes}"
    a, b = (np.asarray(x[parameter.name]).reshape(-1).view(bits) for x in (one, two))
    differing = np.flatnonzero(a != b)
    if not differing.size:
        return None
    return f"{differing.size} values of {parameter.name} differ, {parameter.name}[{differing[0]}] first,"


def _check_launch(
    program: Program, grid: Sequence[int], block: Sequence[int], schedule: Schedule, rounding: str
) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    three: list[tuple[int, int, int]] = []
    for name, extents, least in (("grid", grid, 0), ("block", block, 1)):
        padded = [int(extent) for extent in extents] + [1] * (3 - len(extents))
        if len(padded) != 3 or any(extent < least or extent > 1 << 31 for extent in padded):
            raise ValueError(f"{name} must have up to three extents of at least {least}, got {list(extents)}")
        three.append((padded[0], padded[1], padded[2]))
    if three[1][0] * three[1][1] * three[1][2] > _MAX_THREADS:
        raise ValueError(f"a workgroup has at most {_MAX_THREADS} work-items, got block {three[1]}")
    if schedule.lanes not in _LANES or schedule.waves not in _WAVES or schedule.workgroups not in _WORKGROUPS:
        raise ValueError(f"unknown schedule {schedule}; lanes are {_LANES}, waves {_WAVES}, workgroups {_WORKGROUPS}")
    if rounding not in ROUNDINGS:
        raise ValueError(f"unknown rounding {rounding!r}; expected one of {ROUNDINGS}")
    return three[0], three[1]


def _refused(program: Program, grid: tuple[int, int, int], block: tuple[int, int, int]) -> Finding | None:
    """Say why a chip would not start the kernel, if so."""
    available = _LDS_BYTES[program.arch]
    if program.shared_bytes > available:
        return Finding(
            "lds-overflow",
            f"{program.shared_bytes} bytes of dynamic LDS, {program.arch} has {available}: it cannot be launched",
        )
    threads, bound = math.prod(block), launch_bounds(program.source, program.name)
    if bound is not None and threads > bound:
        return Finding(
            "launch-limit",
            f"{threads} work-items a workgroup, the kernel is built for {bound} (__launch_bounds__): it cannot be launched",
        )
    for axis, (workgroups, size, most) in zip("xyz", zip(grid, block, _MOST_WORKGROUPS, strict=True), strict=True):
        if workgroups > most:
            return Finding("launch-limit", f"{workgroups} workgroups in {axis}, HIP's limit is {most}")
        if workgroups * size >= _MOST_WORK_ITEMS:
            return Finding(
                "launch-limit",
                f"{workgroups} workgroups of {size} work-items in {axis}, HIP's limit is below 2^32 work-items",
            )
    return None
