"""Running a built kernel in a process of its own, under limits."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tilegate.emulator.arguments import SharedMemory, checked
from tilegate.emulator.findings import Finding
from tilegate.emulator.outcome import Run, outcome
from tilegate.emulator.process import DEFAULT_LIMITS, Limits, execute
from tilegate.emulator.program import Program
from tilegate.emulator.source import Parameter
from tilegate.tools import available_cores

if TYPE_CHECKING:
    import numpy as np

_LDS_BYTES = {"gfx90a": 65536, "gfx942": 65536, "gfx950": 163840}
_MAX_THREADS = 1024
_LANES = ("up", "down")
_WAVES = ("greedy", "robin", "random")
ROUNDINGS = ("fma", "exact", "groups")
"""How a matrix instruction rounds: float32 fused multiply-adds in order of depth; once, at the end; sums of four rounded
products, subnormal sums flushed. Which of them a chip is closest to is not known; a kernel must be right under each."""


@dataclass(frozen=True)
class Schedule:
    """An order of execution. The chip promises none between waves.

    Attributes:
        lanes: of a wave, "up" or "down".
        waves: "greedy" runs one until it must wait, "robin" takes turns, "random" draws the next lane.
        seed: of "random".
    """

    lanes: str = "up"
    waves: str = "greedy"
    seed: int = 0

    def __str__(self) -> str:
        """Spell it in a few words."""
        return f"lanes {self.lanes}, waves {self.waves}" + (f" (seed {self.seed})" if self.waves == "random" else "")


SCHEDULES = (
    Schedule(),
    Schedule(lanes="down"),
    Schedule(waves="robin"),
    Schedule(lanes="down", waves="robin"),
    Schedule(waves="random", seed=1),
    Schedule(waves="random", seed=2),
)


def run(
    program: Program,
    arguments: Mapping[str, np.ndarray[Any, Any] | int | float],
    grid: Sequence[int],
    block: Sequence[int],
    *,
    schedule: Schedule = SCHEDULES[0],
    rounding: str = "fma",
    limits: Limits = DEFAULT_LIMITS,
    processes: int | None = None,
) -> Run:
    """Run a kernel once.

    The processes that run it are ended at the limits, and whatever happens in them is a finding and never an exception.

    Args:
        program: what `compile_kernel` made.
        arguments: by the names of `program.parameters`: arrays, C-contiguous, of the element's size (bfloat16 as uint16),
            which hold what the kernel wrote afterwards if the run completes and they are writeable; and numbers.
        grid: workgroups in x, y, z.
        block: work-items of a workgroup in x, y, z.
        schedule: the order of execution.
        rounding: one of `ROUNDINGS`.
        limits: time and memory; the latter of each process.
        processes: that share the workgroups of an untraced program; by default one for each processor that this process may
            use. Always one for traced programs and for those with atomics, whose order is then the same each time.

    Raises:
        TypeError, ValueError: arguments that do not fit the kernel; names them.
        EmulatorError: the emulator itself does not run here.
    """
    dimensions = _check_launch(program, grid, block, schedule, rounding)
    shared_among = _processes(program, math.prod(dimensions[0]), processes)
    values = [checked(parameter, arguments) for parameter in program.parameters]
    unknown = sorted(set(arguments) - {parameter.name for parameter in program.parameters})
    if unknown:
        raise ValueError(f"the kernel has no parameter {', '.join(unknown)}")
    overflow = _lds_overflow(program)
    if overflow is not None:
        return Run(False, (overflow,), (), None, 0.0)
    memory = SharedMemory(program, values)
    with memory:
        lines = [
            f"library {program.library}",
            f"traced {int(program.traced)}",
            f"flushes {int(program.arch == 'gfx90a')}",
            f"rounding {ROUNDINGS.index(rounding)}",
            "grid {} {} {}".format(*dimensions[0]),
            "block {} {} {}".format(*dimensions[1]),
            f"schedule {_LANES.index(schedule.lanes)} {_WAVES.index(schedule.waves)} {schedule.seed}",
            f"limits {limits.seconds} {limits.memory_bytes}",
            f"processes {shared_among}",
            *memory.lines,
        ]
        started = time.monotonic()
        ended, errors = execute(program, "\n".join(lines) + "\n", memory.descriptor, limits)
        seconds = time.monotonic() - started
        result = outcome(program, ended, errors, dimensions[0], values=values, limits=limits, seconds=seconds)
        if result.completed:
            memory.fetch()
    return result


def run_schedules(
    program: Program,
    arguments: Mapping[str, np.ndarray[Any, Any] | int | float],
    grid: Sequence[int],
    block: Sequence[int],
    *,
    schedules: Sequence[Schedule] = SCHEDULES,
    rounding: str = "fma",
    limits: Limits = DEFAULT_LIMITS,
    processes: int | None = None,
    workers: int = 1,
) -> Run:
    """Run a kernel under several schedules, all from the same arguments.

    Args:
        program, arguments, grid, block, rounding, limits, processes: as `run`; the arrays hold the results of the first
            schedule.
        schedules: at least one.
        workers: runs at a time.

    Returns:
        The run of the first schedule, with the findings of all. If the kernel has no atomics, results that differ in any
        bit are a finding of kind "schedule-dependent".
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
        if first.completed and other.completed and not first.atomics:
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
    if schedule.lanes not in _LANES or schedule.waves not in _WAVES:
        raise ValueError(f"unknown schedule {schedule}; lanes are {_LANES}, waves {_WAVES}")
    if rounding not in ROUNDINGS:
        raise ValueError(f"unknown rounding {rounding!r}; expected one of {ROUNDINGS}")
    return three[0], three[1]


def _lds_overflow(program: Program) -> Finding | None:
    available = _LDS_BYTES[program.arch]
    if program.shared_bytes <= available:
        return None
    return Finding(
        "lds-overflow",
        f"{program.shared_bytes} bytes of dynamic LDS, {program.arch} has {available}: it cannot be launched",
    )
