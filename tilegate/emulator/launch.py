"""Running a built kernel in a process of its own, under limits."""

from __future__ import annotations

import contextlib
import json
import math
import mmap
import os
import re
import selectors
import signal
import struct
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tilegate.emulator.counters import Counters, counters_of
from tilegate.emulator.findings import Finding, Hint, Scene, finding_of
from tilegate.emulator.places import Places
from tilegate.emulator.program import Program
from tilegate.emulator.source import Parameter
from tilegate.emulator.toolchain import EmulatorError
from tilegate.tools import available_cores

if TYPE_CHECKING:
    import numpy as np

_LDS_BYTES = {"gfx90a": 65536, "gfx942": 65536, "gfx950": 163840}
_MAX_THREADS = 1024
_GRACE = 3.0  # seconds after the limit, for a process that does not end itself
_MAX_REPORT = 64 << 20
_MAX_ERRORS = 64 << 10
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


@dataclass(frozen=True)
class Limits:
    """What a run may take.

    Attributes:
        seconds: of wall time.
        memory_bytes: of address space; a traced run needs 44 times the bytes of its arguments, and 300 MiB.
    """

    seconds: float = 60.0
    memory_bytes: int = 4 << 30


@dataclass(frozen=True)
class Run:
    """What came of running a kernel.

    Attributes:
        completed: all workgroups ran to their end, and the arrays hold what the kernel wrote.
        findings: what is wrong; empty for a kernel that is clean as far as this run shows.
        hints: barriers that no conflict of this run needed (traced runs).
        counters: None if the program is not traced or the run did not complete.
        seconds: wall time.
    """

    completed: bool
    findings: tuple[Finding, ...]
    hints: tuple[Hint, ...]
    counters: Counters | None
    seconds: float
    atomics: int = 0


def run(
    program: Program,
    arguments: Mapping[str, np.ndarray[Any, Any] | int | float],
    grid: Sequence[int],
    block: Sequence[int],
    *,
    schedule: Schedule = SCHEDULES[0],
    rounding: str = "fma",
    limits: Limits = Limits(),
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
    values = [_check_argument(parameter, arguments) for parameter in program.parameters]
    unknown = sorted(set(arguments) - {parameter.name for parameter in program.parameters})
    if unknown:
        raise ValueError(f"the kernel has no parameter {', '.join(unknown)}")
    overflow = _lds_overflow(program)
    if overflow is not None:
        return Run(False, (overflow,), (), None, 0.0)
    memory = _Memory(program, values)
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
        ended, errors = _execute(program, "\n".join(lines) + "\n", memory.descriptor, limits)
        seconds = time.monotonic() - started
        result = _result(program, ended, errors, dimensions[0], values=values, limits=limits, seconds=seconds)
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
    limits: Limits = Limits(),
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


def _check_argument(parameter: Parameter, arguments: Mapping[str, Any]) -> Any:
    import numpy as np  # noqa: PLC0415 - importing the emulator costs nothing

    name = parameter.name
    if name not in arguments:
        raise ValueError(
            f"no argument for the kernel's parameter {name} ({parameter.type}{'*' if parameter.pointer else ''})"
        )
    value = arguments[name]
    if not parameter.pointer:
        if isinstance(value, bool | np.ndarray) or not isinstance(value, int | float | np.number):
            raise TypeError(f"{name} must be a number, got {type(value).__name__}")
        return value
    if not isinstance(value, np.ndarray):
        raise TypeError(f"{name} must be a numpy array, got {type(value).__name__}")
    if not value.flags.c_contiguous:
        raise ValueError(f"{name} must be C-contiguous")
    wanted = {"float": "f", "double": "f"}.get(parameter.type)
    right = (
        value.dtype.kind == wanted
        if wanted
        else value.dtype.kind in ("f" if parameter.type in ("half_t", "half", "_Float16") else "") + "iub"
    )
    if value.dtype.itemsize != parameter.bytes or not right:
        raise TypeError(
            f"{name} is {parameter.type}* of {parameter.bytes}-byte elements, got an array of {value.dtype}"
        )
    return value


def _scalar_bits(parameter: Parameter, value: float) -> int:
    if parameter.type in ("float", "double"):
        packed = struct.pack("<f" if parameter.type == "float" else "<d", value)
        return int.from_bytes(packed, "little")
    if parameter.type in ("half_t", "half", "_Float16", "bfloat16_t", "hip_bfloat16"):
        raise TypeError(f"{parameter.name}: numbers of type {parameter.type} are not passed by value here")
    if int(value) != value or not -(1 << (8 * parameter.bytes - 1)) <= value < 1 << (8 * parameter.bytes):
        raise ValueError(f"{parameter.name} = {value} is no {parameter.type}")
    return int(value) % (1 << (8 * parameter.bytes))


def _lds_overflow(program: Program) -> Finding | None:
    available = _LDS_BYTES[program.arch]
    if program.shared_bytes <= available:
        return None
    return Finding(
        "lds-overflow",
        f"{program.shared_bytes} bytes of dynamic LDS, {program.arch} has {available}: it cannot be launched",
    )


class _Memory:
    """The arrays of one run in memory that this process and the one that runs the kernel share."""

    def __init__(self, program: Program, values: Sequence[Any]) -> None:
        self._values = values
        self.lines: list[str] = []
        self._places: list[tuple[Any, int]] = []
        total = 0
        for parameter, value in zip(program.parameters, values, strict=True):
            if not parameter.pointer:
                self.lines.append(f"scalar {_scalar_bits(parameter, value)}")
                continue
            mapped = -(-value.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
            # Without checks the end of an array is where a fault begins, as near as its alignment allows. With checks it
            # begins at a line's start, as the chip's allocator has it.
            skew = 0 if program.traced else (mapped - value.nbytes) // 16 * 16
            self.lines.append(f"buffer {total} {mapped} {skew} {value.nbytes}")
            self._places.append((value, total + skew))
            total += mapped
        self.descriptor = os.memfd_create("tilegate-emulator")
        try:
            os.ftruncate(self.descriptor, max(total, mmap.PAGESIZE))
            self._map = mmap.mmap(self.descriptor, max(total, mmap.PAGESIZE))
        except BaseException:
            os.close(self.descriptor)
            raise

    def __enter__(self) -> _Memory:
        for value, offset in self._places:
            if value.nbytes:
                self._map[offset : offset + value.nbytes] = value.tobytes()
        return self

    def __exit__(self, *_: object) -> None:
        self._map.close()
        os.close(self.descriptor)

    def fetch(self) -> None:
        """Copy what the kernel wrote into the arrays."""
        import numpy as np  # noqa: PLC0415

        for value, offset in self._places:
            if value.flags.writeable and value.nbytes:
                data = self._map[offset : offset + value.nbytes]
                value.reshape(-1).view(np.uint8)[:] = np.frombuffer(data, np.uint8)


@dataclass(frozen=True)
class _Ended:
    """How one of the processes ended: its report, its exit status (negative: a signal)."""

    report: bytes
    status: int


def _execute(program: Program, request: str, memory: int, limits: Limits) -> tuple[list[_Ended], str]:
    """Run the kernel; return how each process ended, and what they printed."""
    with contextlib.ExitStack() as stack:
        wanted = os.memfd_create("tilegate-emulator-request")
        stack.callback(os.close, wanted)
        os.write(wanted, request.encode())
        os.lseek(wanted, 0, os.SEEK_SET)
        read_end, write_end = os.pipe()
        # Whatever ends this process closes it, and that ends those started here (runtime/processes.cpp).
        stack.callback(os.close, read_end)
        try:
            child = subprocess.Popen(
                [str(program.runner), str(wanted), str(memory), str(write_end)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=(wanted, memory, write_end),
                cwd="/",
                env={},
                start_new_session=True,
            )
        finally:
            os.close(write_end)
        assert child.stderr is not None  # noqa: S101
        stack.callback(child.stderr.close)
        try:
            answer, errors = _collect(read_end, child.stderr.fileno(), time.monotonic() + limits.seconds + _GRACE)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            status = child.wait()
        return _split(answer) or [_Ended(b"", status)], errors.decode(errors="replace")


def _collect(answer: int, errors: int, deadline: float) -> tuple[bytes, bytes]:
    """Read both pipes until the first ends or the deadline passes; of either no more than it may say."""
    kept: dict[int, bytearray] = {answer: bytearray(), errors: bytearray()}
    most = {answer: _MAX_REPORT, errors: _MAX_ERRORS}
    with selectors.DefaultSelector() as selector:
        for descriptor in kept:
            selector.register(descriptor, selectors.EVENT_READ)
        while answer in selector.get_map() and time.monotonic() < deadline:
            for key, _ in selector.select(max(0.0, deadline - time.monotonic())):
                part = os.read(key.fd, 1 << 16)
                kept[key.fd] += part
                if not part or len(kept[key.fd]) > most[key.fd]:
                    selector.unregister(key.fd)
    return bytes(kept[answer][:_MAX_REPORT]), bytes(kept[errors][:_MAX_ERRORS])


def _split(answer: bytes) -> list[_Ended]:
    """Take the reports apart; nothing of an answer that is cut off, as of a process that was killed while it wrote."""
    ended, rest = [], memoryview(answer)
    while rest:
        head, _, _ = bytes(rest[:64]).partition(b"\n")
        found = re.fullmatch(rb"(-?\d+) (\d+)", head)
        if found is None:
            return []
        begin, size = len(head) + 1, int(found[2])
        ended.append(_Ended(bytes(rest[begin : begin + size]), int(found[1])))
        rest = rest[begin + size :]
    return ended


def _result(
    program: Program,
    ended: Sequence[_Ended],
    errors: str,
    grid: tuple[int, int, int],
    *,
    values: Sequence[Any],
    limits: Limits,
    seconds: float,
) -> Run:
    sizes = [
        value.nbytes if parameter.pointer else 0 for parameter, value in zip(program.parameters, values, strict=True)
    ]
    lost = [_without_report(one.status, errors, limits, seconds) for one in ended if not one.report]
    try:
        reports = [json.loads(one.report) for one in ended if one.report]
        raw = _merged([finding for report in reports for finding in report["findings"]])
        rows = [row for report in reports for row in report["counters"]["places"]]
        executed, needed = (
            [site for report in reports for site in report["barriers"][key]] for key in ("executed", "needed")
        )
        sites = [finding[key] for finding in raw for key in ("site", "other_site")]
        sites += [row[0] for row in rows] if program.traced else []
        places = Places(program.library, program.symbolizer, program.source, [*sites, *executed])
        scene = Scene(places, grid, program.parameters, sizes, limits.seconds, limits.memory_bytes)
        findings = _one_expiry([*_by_line(finding_of(finding, scene) for finding in raw), *dict.fromkeys(lost)])
        completed = not lost and all(report["completed"] is True for report in reports)
        done = sum(report["counters"]["workgroups"] for report in reports)
        if completed and done != math.prod(grid):
            raise ValueError(f"{done} workgroups")
        counters = counters_of(reports[0]["counters"], places) if program.traced and completed else None
        atomics = sum(row[-1] for row in rows)
        hints = _redundant_barriers(executed, needed, places) if completed and not findings else ()
    except (KeyError, TypeError, ValueError, IndexError) as error:
        # The kernel runs in the process that writes the report, and can write over anything there.
        broken = Finding(
            "crash", f"the report of the run cannot be read ({error!r}): the kernel wrote where it must not"
        )
        return Run(False, (broken,), (), None, seconds)
    return Run(completed, findings, hints, counters, seconds, atomics)


def _merged(findings: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Make one finding of those that several processes have at the same places, that of the first workgroup."""
    merged: dict[tuple[Any, ...], dict[str, Any]] = {}
    for finding in sorted(findings, key=lambda found: found["workgroup"]):
        key = (finding["kind"], *sorted((finding["site"], finding["other_site"])))
        known = merged.setdefault(key, {**finding, "count": 0})
        known["count"] += finding["count"]
    return list(merged.values())


def _by_line(findings: Iterable[Finding]) -> Iterable[Finding]:
    """Make one finding of those at the same lines, the first: an unrolled loop has many places for one of them."""
    merged: dict[tuple[Any, ...], Finding] = {}
    for finding in findings:
        lines = {finding.line} | ({finding.other.line} if finding.other else set())
        apart = 0 in lines or finding.kind == "time-limit"  # whose places are weighed against each other
        key = (len(merged) if apart else -1, finding.kind, frozenset(lines))
        first = merged.get(key)
        merged[key] = finding if first is None else replace(first, count=first.count + finding.count)
    return merged.values()


def _without_report(status: int, errors: str, limits: Limits, seconds: float) -> Finding:
    last = next(iter(errors.strip().splitlines()[-1:]), "")
    if status == 2 and "undefined symbol" in last:
        name = last.rsplit("undefined symbol: ", 1)[-1]
        return Finding("unsupported", f"the kernel calls {name}, which the emulator does not know")
    if status == 2 and last.startswith("emulator: "):
        raise EmulatorError(last.removeprefix("emulator: "))
    if seconds >= limits.seconds or -status in (signal.SIGXCPU, signal.SIGALRM):
        return Finding("time-limit", f"not done after {limits.seconds:g} s, and ended from outside")
    how = signal.Signals(-status).name if status < 0 else f"exit status {status}"
    return Finding("crash", f"the process that ran the kernel ended without a report ({how}) {last}".rstrip())


def _one_expiry(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Keep, of all places that a kernel was seen at when its time was up, the one that it was seen at most.

    An instruction that the compiler made of two lines has neither, so a place with a line comes first.
    """
    expired = [finding for finding in findings if finding.kind == "time-limit"]
    shown = max(expired, key=lambda finding: (finding.line > 0, finding.count), default=None)
    others = [finding for finding in findings if finding.kind != "time-limit"]
    return (*others, *([] if shown is None else [replace(shown, count=1)]))


def _redundant_barriers(executed: Sequence[int], needed_sites: Sequence[int], places: Places) -> tuple[Hint, ...]:
    lines = {places.of(site).line: places.of(site) for site in executed}
    needed = {places.of(site).line for site in needed_sites}
    return tuple(
        Hint(line, place.text, "no two accesses of this run conflict across this barrier alone")
        for line, place in sorted(lines.items())
        if line and line not in needed
    )
