"""What a kernel is worth on a chip that need not be there, for a suite's `track_` series: no time, and no noise.

The tools behind it are imported when they are first asked: a suite that tracks nothing pays nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING

from tilegate.protocol.artifacts import Artifact

if TYPE_CHECKING:
    from tilegate.isa.figures import Figures


def can_compile(arch: str) -> bool:
    """Whether a compiler for the chip is here; without one there is nothing to generate kernels for."""
    from tilegate.isa.toolchain import ToolchainError, find_toolchain  # noqa: PLC0415

    try:
        find_toolchain(arch)
    except ToolchainError:
        return False
    return True


def can_execute() -> bool:
    """Whether the emulator's compiler is here."""
    from tilegate.emulator import ToolchainMissing, toolchain  # noqa: PLC0415

    try:
        toolchain()
    except ToolchainMissing:
        return False
    return True


def compiled(artifact: Artifact, arch: str) -> Figures | None:
    """Return what the compiler made of a kernel (docs/isa.md), None where it cannot be compiled, whoever is to blame.

    Args:
        artifact: the kernel's HIP text.
        arch: "gfx942", …
    """
    from tilegate.isa.analysis import analyse  # noqa: PLC0415
    from tilegate.isa.toolchain import ToolchainError, find_toolchain  # noqa: PLC0415
    from tilegate.lowering.store import default_store  # noqa: PLC0415

    try:
        return analyse(artifact, find_toolchain(arch), default_store()).figures
    except ToolchainError:
        return None


def executed(suite: ModuleType, id: str, arch: str, artifacts: Sequence[Artifact]) -> dict[str, int] | None:
    """Return what a launch executes on its first problem (`tilegate.emulator.Counts`; docs/emulator.md).

    None where there is no clang, or the kernel does not run to its end.

    Args:
        suite: the module with `problems`, `arguments` and `check` (docs/protocol.md).
        id: which kernel.
        arch: "gfx942", …
        artifacts: its launch.
    """
    from tilegate.emulate.survey import Trial  # noqa: PLC0415
    from tilegate.emulate.trial import run_trial  # noqa: PLC0415
    from tilegate.emulator import ToolchainMissing  # noqa: PLC0415

    problem = suite.problems(id, arch)[0]
    try:
        found = run_trial(suite, id, arch, problem, artifacts, thorough=False)
    except ToolchainMissing:
        return None
    return Trial(problem, (), (), found["counters"], found["runs"]).total or None
