"""What a run can still afford: the time that is left, and what a replicate of each case has cost so far."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean

_UNKNOWN_COST = 0.02  # seconds of a pair, of a case of which nothing is known yet


@dataclass
class Budget:
    """The time that a run may take, and a record of what things cost.

    Attributes:
        end: when it has to be over, by `time.monotonic`; infinite without a budget.
        startup: seconds that fresh processes took to be ready, the longest so far.
        pair_costs: by case, seconds of one pair, with its share of setting the case up.
    """

    end: float = math.inf
    startup: float = 0.0
    pair_costs: dict[str, float] = field(default_factory=dict)

    @staticmethod
    def of_minutes(minutes: float | None) -> Budget:
        """A budget that begins now; None is without end."""
        return Budget() if minutes is None else Budget(time.monotonic() + 60 * minutes)

    @property
    def limited(self) -> bool:
        """Whether there is an end."""
        return self.end < math.inf

    @property
    def left(self) -> float:
        """Seconds, negative once it is over."""
        return self.end - time.monotonic()

    def paid(self, case: str, pairs: int, seconds: float) -> None:
        """Note what a replicate of a case took."""
        self.pair_costs[case] = seconds / max(pairs, 1)

    def cost(self, case: str, pairs: int) -> float:
        """Return the seconds that a replicate of `pairs` pairs will take: as before, or as the others."""
        usual = mean(self.pair_costs.values()) if self.pair_costs else _UNKNOWN_COST
        return pairs * self.pair_costs.get(case, usual)

    def affordable(self, wanted: Sequence[str], pairs: Mapping[str, int], rounds: Mapping[str, int]) -> list[str]:
        """Return the cases that can be brought to a decision in the time that is left, in the order given.

        A case that is begun and not finished is of no use to anybody, so one that does not fit is left out for the next.

        Args:
            wanted: the cases, the most important first.
            pairs: of each case, pairs of one replicate.
            rounds: of each case, how many replicates it needs, each in fresh processes.
        """
        chosen: list[str] = []
        spent, most_rounds = 0.0, 0
        for case in wanted:
            more = rounds[case] * self.cost(case, pairs[case])
            startups = max(most_rounds, rounds[case])
            if spent + more + startups * self.startup <= self.left:
                chosen.append(case)
                spent, most_rounds = spent + more, startups
        return chosen
