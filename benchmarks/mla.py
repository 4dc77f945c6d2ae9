"""Multi-head latent attention over a paged cache, both policies over the workloads of the selected tier."""

from __future__ import annotations

from benchmarks.families import mla
from benchmarks.launches import Launches


class Mla(Launches, family=mla.FAMILY):
    """One launch: the parts of the keys, and their combination where there are several."""

    version = "1"

    def latency_mla(self, workload_id: str, policy: str) -> None:
        """Launch once."""
        self.kernel.launch(*next(self.next_set))
