"""What a chip does not allow, and what nobody wants: the checks of one kernel by itself, without a base to compare to."""

from __future__ import annotations

from dataclasses import dataclass

from tilegate.isa.chips import Chip
from tilegate.isa.figures import Figures, lds_buffers
from tilegate.protocol.artifacts import Artifact

BROKEN = "broken"
WARNING = "warning"


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a kernel.

    Attributes:
        check: its name, stable.
        severity: "broken": it cannot run; "warning": it runs, and slower than it should.
        message: one sentence with the numbers.
    """

    check: str
    severity: str
    message: str


def check(figures: Figures, artifact: Artifact, chip: Chip) -> tuple[Problem, ...]:
    """Check one compiled kernel against its chip, worst problems first.

    `lds`, `threads`, `launch`: the driver refuses to launch it. `spills`, `stack`: registers live in memory.
    """
    return (*_limits(figures, artifact, chip), *_memory(figures))


def _limits(figures: Figures, artifact: Artifact, chip: Chip) -> tuple[Problem, ...]:
    found = []
    if figures.lds > chip.lds_bytes:
        found.append(
            Problem("lds", BROKEN, f"needs {_lds_sum(figures, artifact)} of LDS, a workgroup has {chip.lds_bytes:,}")
        )
    if figures.threads > chip.max_threads:
        found.append(
            Problem("threads", BROKEN, f"{figures.threads:,} threads, a workgroup has at most {chip.max_threads:,}")
        )
    if not found and figures.workgroups == 0:
        waves = -(-figures.threads // 64)
        found.append(
            Problem(
                "launch",
                BROKEN,
                f"{figures.registers} registers a lane leave {figures.waves_by_registers} waves a SIMD, "
                f"{figures.waves_by_registers * chip.simds} a compute unit; a workgroup has {waves}",
            )
        )
    return tuple(found)


def _memory(figures: Figures) -> tuple[Problem, ...]:
    found = []
    if figures.vgpr_spills:
        found.append(
            Problem(
                "spills",
                WARNING,
                f"{figures.vgpr_spills} vector registers spill ({figures.scratch} bytes of scratch a lane)",
            )
        )
    elif figures.scratch:
        found.append(Problem("scratch", WARNING, f"{figures.scratch} bytes of scratch memory a lane"))
    if figures.sgpr_spills:
        found.append(
            Problem("sgpr-spills", WARNING, f"{figures.sgpr_spills} scalar registers spill to vector registers")
        )
    if figures.dynamic_stack:
        found.append(Problem("stack", WARNING, "a stack of unknown size: some function is called and not inlined"))
    return tuple(found)


def _lds_sum(figures: Figures, artifact: Artifact) -> str:
    """Spell the sum out, buffer by buffer where the generated text names them."""
    buffers = lds_buffers(artifact.source, figures.lds_dynamic)
    if buffers and not figures.lds_static:
        return " + ".join(f"{name} {size:,}" for name, size in buffers) + f" = {figures.lds:,} bytes"
    if figures.lds_static and figures.lds_dynamic:
        return f"{figures.lds_static:,} static + {figures.lds_dynamic:,} dynamic = {figures.lds:,} bytes"
    return f"{figures.lds:,} bytes"
