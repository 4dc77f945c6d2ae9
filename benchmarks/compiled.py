"""What the compiler makes of every kernel for the MI300X, as asv series: no GPU, no noise, lower is better everywhere."""

from __future__ import annotations

from benchmarks import kernels
from tilegate import tracked

ARCH = "gfx942"

Metrics = dict[str, float]


class Compiled:
    """One number of one kernel; all numbers of a kernel come from one compilation, kept by `setup_cache`."""

    params = (list(kernels.configurations(ARCH)),)
    param_names = ("kernel",)
    version = "1"
    timeout = 1800.0

    def setup_cache(self) -> dict[str, Metrics]:
        """Compile every kernel. Empty where there is no compiler for the chip: then there are no numbers, not failures."""
        found: dict[str, Metrics] = {}
        for id in kernels.configurations(ARCH):
            (artifact,) = kernels.lower(id, ARCH)
            figures = tracked.compiled(artifact, ARCH)
            if figures is not None and figures.loop is not None:
                found[id] = {
                    "registers": figures.registers,
                    "spills": figures.vgpr_spills + figures.sgpr_spills,
                    "lds": figures.lds,
                    "missing_waves": 8 - figures.waves,
                    "loop_cycles": figures.loop.cycles[figures.loop.limiter],
                    "idle_matrix": 1 - figures.loop.matrix_share,
                }
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
