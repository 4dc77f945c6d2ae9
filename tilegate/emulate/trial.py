"""One kernel on one problem, under several orders of execution: what the process that loads a revision does.

The kernel itself runs in a further process, under limits: whatever it does is a finding here.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tilegate import emulator
from tilegate.emulator import Counts
from tilegate.protocol import Artifact, WrongResult

if TYPE_CHECKING:
    import numpy as np

MODULE = "emulated"
"""The module of a suite that has problems for its kernels (`problems`), their `arguments`, and a `check`."""

LIMITS = emulator.Limits(seconds=20.0)
"""Of one run. A workgroup of a small problem takes 0.1 s traced; on a busy machine a few times that."""

RUNS = len(emulator.SCHEDULES) + len(emulator.ROUNDINGS)
"""At most, of one kernel on one problem."""

UNKNOWN = "unsupported"
"""The kind of finding that says something of the emulator, not of the kernel."""


def answer(suite: str, request: Mapping[str, Any]) -> Any:
    """Answer a request of `tilegate.emulate.survey`: {"op": "problems"} or {"op": "emulate"}, plain values out."""
    module = importlib.import_module(f"{suite}.{MODULE}")
    if request["op"] == "problems":
        return [str(name) for name in module.problems(request["id"], request["arch"])]
    artifacts = [Artifact(**values) for values in request["artifacts"]]
    return run_trial(
        module, request["id"], request["arch"], request["problem"], artifacts, thorough=request["thorough"]
    )


def run_trial(
    module: ModuleType, id: str, arch: str, problem: str, artifacts: Sequence[Artifact], *, thorough: bool
) -> dict[str, Any]:
    """Execute the kernels of one launch, one after the other, and compare what they leave with the suite's reference.

    Args:
        module: the suite's `emulated`.
        id, arch, problem: which kernel and which of its problems.
        artifacts: the generated kernels.
        thorough: under every schedule, and every model of the matrix units' rounding; otherwise once.

    Returns:
        ``{"findings", "hints", "counters", "runs"}``: `Finding`s and `Hint`s as plain values, the former with "shown", the
        paragraph that a kernel's author reads; `Counters.to_json()` by kernel, where it ran to its end; and how many runs
        there were.

    Raises:
        emulator.ToolchainMissing: there is no clang, or not what it needs.
        ValueError, TypeError: the suite's arguments do not fit the kernel.
        Exception: whatever the suite raises, other than WrongResult.
    """
    arguments = module.arguments(id, arch, problem)
    try:
        programs = [
            emulator.compile_kernel(
                artifact.source,
                artifact.name,
                arch=arch,
                shared_bytes=_bytes(artifact.launch.get("dynamic_shared_bytes")),
            )
            for artifact in artifacts
        ]
        grids = [emulator.grid_of(artifact.launch["grid"], _integers(arguments)) for artifact in artifacts]  # type: ignore[arg-type]
    except emulator.ToolchainMissing:
        raise
    except emulator.EmulatorError as error:
        return _result([emulator.Finding(UNKNOWN, str(error))])
    launch = _Launch(module, id, arch, problem, list(zip(artifacts, programs, grids, strict=True)))
    first = emulator.SCHEDULES[:1]
    # Once alone: a kernel that hangs does so for as long as it may, and need not do it under every schedule.
    runs, findings = launch.run(first, emulator.ROUNDINGS[0], registers=True)
    done = 1
    hints = [hint for run in runs for hint in run.hints]
    counters = {a.name: r.counters.to_json() for a, r in zip(artifacts, runs, strict=False) if r.counters is not None}
    if thorough and not findings:
        all_runs, found = launch.run(emulator.SCHEDULES, emulator.ROUNDINGS[0])
        findings += found
        hints += [hint for run in all_runs for hint in run.hints if not hint.line]
        done += len(emulator.SCHEDULES)
        for rounding in emulator.ROUNDINGS[1:]:
            findings += [
                dataclasses.replace(found, message=f"{found.message} [rounding {rounding}]")
                for found in launch.run(first, rounding)[1]
            ]
            done += 1
    return _result(findings, hints, counters, done)


@dataclasses.dataclass(frozen=True)
class _Launch:
    module: ModuleType
    id: str
    arch: str
    problem: str
    kernels: Sequence[tuple[Artifact, emulator.Program, tuple[int, int, int]]]

    def run(
        self, schedules: Sequence[emulator.Schedule], rounding: str, *, registers: bool = False
    ) -> tuple[list[emulator.Run], list[emulator.Finding]]:
        """Run all kernels from fresh arguments, and check; the check is left out if one did not complete."""
        arguments = self.module.arguments(self.id, self.arch, self.problem)
        runs: list[emulator.Run] = []
        for artifact, program, grid in self.kernels:
            own = {p.name: arguments[p.name] for p in program.parameters if p.name in arguments}
            run = emulator.run_schedules(
                program,
                own,
                grid,
                artifact.launch["block"],  # type: ignore[arg-type]
                schedules=schedules,
                rounding=rounding,
                limits=LIMITS,
                registers=registers,
            )
            if program.atomics:  # their order may change last bits, and the suite's check says whether that is too much
                known = [found for found in run.findings if found.kind == "schedule-dependent"]
                hints = [emulator.Hint(0, "", f"{found.message}: the order of atomic operations") for found in known]
                kept = tuple(found for found in run.findings if found not in known)
                run = dataclasses.replace(run, findings=kept, hints=(*run.hints, *hints))
            runs.append(run)
            if not run.completed:
                return runs, [finding for run in runs for finding in run.findings]
        findings = [finding for run in runs for finding in run.findings]
        try:
            self.module.check(self.id, self.arch, self.problem, arguments)
        except WrongResult as wrong:
            findings.append(emulator.Finding("wrong-result", str(wrong)))
        return runs, findings


def _integers(arguments: Mapping[str, np.ndarray[Any, Any] | int | float]) -> dict[str, int]:
    return {name: value for name, value in arguments.items() if isinstance(value, int)}


def _bytes(value: Any) -> int:
    return int(value or 0)


def _result(
    findings: Sequence[emulator.Finding],
    hints: Sequence[emulator.Hint] = (),
    counters: Mapping[str, Any] | None = None,
    runs: int = 0,
) -> dict[str, Any]:
    return {
        "findings": [{**dataclasses.asdict(found), "shown": str(found)} for found in findings],
        "hints": [dataclasses.asdict(hint) for hint in hints],
        "counters": dict(counters or {}),
        "runs": runs,
    }


COUNTED = tuple(field.name for field in dataclasses.fields(Counts))
"""Names of the counters, as they are in a result."""
