"""Decoding over a paged cache, both policies over the workloads of the selected tier."""

from __future__ import annotations

from benchmarks.families import decode
from benchmarks.launches import Launches


class Decode(Launches, family=decode.FAMILY):
    """One launch: the parts of the keys, and their combination where there are several."""

    version = "1"

    def latency_decode(self, workload_id: str, policy: str) -> None:
        """Launch once."""
        self.kernel.launch(*next(self.next_set))
