"""What the compiler makes of every kernel for the MI300X, as asv series: no GPU, no noise, lower is better everywhere."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from benchmarks import kernels
from tilegate import tracked

if TYPE_CHECKING:
    from tilegate.protocol.tracked import Figures

ARCH = "gfx942"

Metrics = dict[str, float]


def _metrics(figures: Figures) -> Metrics:
    """Return the numbers of a kernel; NaN, which asv shows as missing, for those of a loop where there is none."""
    loop = figures.loop
    return {
        "registers": figures.registers,
        "spills": figures.vgpr_spills + figures.sgpr_spills,
        "lds": figures.lds,
        "missing_waves": 8 - figures.waves,
        "loop_cycles": loop.cycles[loop.limiter] if loop else math.nan,
        "idle_matrix": 1 - loop.matrix_share if loop else math.nan,
    }


class Compiled:
    """One number of one kernel; all numbers of a kernel come from one compilation, kept by `setup_cache`.

    A launch of several kernels has series for each.
    """

    params = ([part for id in kernels.configurations(ARCH) for part in kernels.parts(id, ARCH)],)
    param_names = ("kernel",)
    version = "1"
    timeout = 1800.0

    def setup_cache(self) -> dict[str, Metrics]:
        """Compile every kernel. Empty where there is no compiler for the chip: then there are no numbers, not failures."""
        found: dict[str, Metrics] = {}
        for id in kernels.configurations(ARCH) if tracked.can_compile(ARCH) else ():
            for part, artifact in zip(kernels.parts(id, ARCH), kernels.lower(id, ARCH), strict=True):
                figures = tracked.compiled(artifact, ARCH)
                if figures is not None:
                    found[part] = _metrics(figures)
        return found

    def setup(self, found: dict[str, Metrics], kernel: str) -> None:
        """Skip what has no numbers here."""
        if kernel not in found:
            raise NotImplementedError

    def track_registers(self, found: dict[str, Metrics], kernel: str) -> float:
        """Vector registers a lane, VGPRs and AGPRs."""
        return found[kernel]["registers"]

    def track_spills(self, found: dict[str, Metrics], kernel: str) -> float:
        """Registers that found no room."""
        return found[kernel]["spills"]

    def track_lds(self, found: dict[str, Metrics], kernel: str) -> float:
        """LDS of a workgroup."""
        return found[kernel]["lds"]

    def track_missing_waves(self, found: dict[str, Metrics], kernel: str) -> float:
        """The waves that a SIMD could hold (8) less those of this kernel that it holds."""
        return found[kernel]["missing_waves"]

    def track_loop_cycles(self, found: dict[str, Metrics], kernel: str) -> float:
        """Estimate: cycles of the busiest unit in one round of the main loop, for one workgroup."""
        return found[kernel]["loop_cycles"]

    def track_idle_matrix(self, found: dict[str, Metrics], kernel: str) -> float:
        """Estimate: the share of the matrix units' peak that the busiest unit leaves unused."""
        return found[kernel]["idle_matrix"]

    track_registers.unit = "registers"  # type: ignore[attr-defined]
    track_spills.unit = "registers"  # type: ignore[attr-defined]
    track_lds.unit = "bytes"  # type: ignore[attr-defined]
    track_missing_waves.unit = "waves"  # type: ignore[attr-defined]
    track_loop_cycles.unit = "cycles"  # type: ignore[attr-defined]
    track_idle_matrix.unit = "share"  # type: ignore[attr-defined]
