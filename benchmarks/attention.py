"""Forward attention, both tile policies over the workloads of the selected tier."""

from __future__ import annotations

from benchmarks.families import forward
from benchmarks.launches import Launches


class Forward(Launches, family=forward.FAMILY):
    """One launch of the forward kernel."""

    version = "2"  # launches below 50 us are timed as recorded graphs

    def latency_forward(self, workload_id: str, policy: str) -> None:
        """Launch once."""
        self.kernel.launch(*next(self.next_set))
