"""What every kernel for the MI300X executes, counted by an emulator, as asv series: no GPU, no noise, lower is better.

Only in the tiers pr and full: where kernels changed, a commit takes half a minute, which a plain `asv run` on a CPU should not.
"""

from __future__ import annotations

from benchmarks import emulated, kernels
from tilegate import tracked
from tilegate.protocol import selection

ARCH = "gfx942"

Counts = dict[str, int]

if selection().tier != "smoke":

    class Executed:
        """One counter of one kernel on its first small problem; all counters come from one run, kept by `setup_cache`."""

        params = (list(kernels.configurations(ARCH)),)
        param_names = ("kernel",)
        version = "2"
        timeout = 1800.0

        def setup_cache(self) -> dict[str, Counts]:
            """Execute every kernel. Empty where there is no clang: then there are no numbers, not failures."""
            found = {}
            for id in kernels.configurations(ARCH) if tracked.can_execute() else ():
                counts = tracked.executed(emulated, id, ARCH, kernels.lower(id, ARCH))
                if counts is not None:
                    found[id] = counts
            return found

        def setup(self, found: dict[str, Counts], kernel: str) -> None:
            """Skip what has no numbers here."""
            if kernel not in found:
                raise NotImplementedError

        def track_matrix(self, found: dict[str, Counts], kernel: str) -> int:
            """Matrix instructions."""
            return found[kernel]["mfma"]

        def track_barriers(self, found: dict[str, Counts], kernel: str) -> int:
            """Barriers executed, one for each workgroup."""
            return found[kernel]["barriers"]

        def track_lds_cycles(self, found: dict[str, Counts], kernel: str) -> int:
            """Model: cycles of the LDS, bank conflicts included."""
            return found[kernel]["lds_cycles_modelled"]

        def track_lds_conflicts(self, found: dict[str, Counts], kernel: str) -> int:
            """Model: those cycles of the LDS that bank conflicts cost."""
            return found[kernel]["lds_cycles_modelled"] - found[kernel]["lds_cycles_ideal"]

        def track_lines(self, found: dict[str, Counts], kernel: str) -> int:
            """Lines of 128 bytes of global memory that are requested."""
            return found[kernel]["lines_requested"]

        def track_spare_lines(self, found: dict[str, Counts], kernel: str) -> int:
            """Those lines beyond the least that as many bytes need: accesses that do not coalesce."""
            return found[kernel]["lines_requested"] - found[kernel]["lines_least"]

        track_matrix.unit = "instructions"  # type: ignore[attr-defined]
        track_barriers.unit = "barriers"  # type: ignore[attr-defined]
        track_lds_cycles.unit = "cycles"  # type: ignore[attr-defined]
        track_lds_conflicts.unit = "cycles"  # type: ignore[attr-defined]
        track_lines.unit = "lines"  # type: ignore[attr-defined]
        track_spare_lines.unit = "lines"  # type: ignore[attr-defined]
