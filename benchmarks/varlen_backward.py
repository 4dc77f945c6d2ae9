"""The backward pass over packed sequences, both tile policies over the workloads of the selected tier."""

from __future__ import annotations

from benchmarks.families import varlen_backward
from benchmarks.launches import Launches


class VarlenBackward(Launches, family=varlen_backward.FAMILY):
    """One launch of the three kernels of a backward pass over packed sequences."""

    version = "1"

    def latency_varlen_backward(self, workload_id: str, policy: str) -> None:
        """Launch once."""
        self.kernel.launch(*next(self.next_set))
