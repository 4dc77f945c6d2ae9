"""Backward attention, both tile policies over the workloads of the selected tier."""

from __future__ import annotations

from benchmarks.families import backward
from benchmarks.launches import Launches


class Backward(Launches, family=backward.FAMILY):
    """One launch of the three kernels of a backward pass."""

    version = "1"

    def latency_backward(self, workload_id: str, policy: str) -> None:
        """Launch once."""
        self.kernel.launch(*next(self.next_set))
