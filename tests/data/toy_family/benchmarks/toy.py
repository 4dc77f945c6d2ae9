"""The toy family, timed."""

from __future__ import annotations

from benchmarks.families import toy
from benchmarks.launches import Launches


class Toy(Launches, family=toy.FAMILY):
    version = "1"

    def latency_toy(self, workload_id, policy):
        self.kernel.launch(*next(self.next_set))
