"""Attention over packed sequences, both tile policies over the workloads of the selected tier."""

from __future__ import annotations

from benchmarks.families import varlen
from benchmarks.launches import Launches


class Varlen(Launches, family=varlen.FAMILY):
    """One launch of the kernel for packed sequences."""

    version = "1"

    def latency_varlen(self, workload_id: str, policy: str) -> None:
        """Launch once."""
        self.kernel.launch(*next(self.next_set))
