"""What the head reports, held against what the gate sees by its own clock, and by the system's.

A worker times its own launches, and the code under test shares its process. The gate's process has a clock of its own,
which nobody there can reach: it knows how long each turn took from the request to the answer. What a turn takes besides
its launches (other inputs, poison, flushes, the request itself) is the same work on both sides. So work that the head
moves out of what is timed, to another thread, into a result that computes itself when it is read, or by a clock that
lies, is missing in its times and there in the gate's.

What the launches that are looked at take is held against the others, too. A head that knows when somebody looks, and
works only then, is slow only then.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

_LEAST_SECONDS = 50e-6  # of one launch: what a request takes differs by less (20 µs, a 2-core virtual machine)
_LEAST_SHARE, _SHARE, _SHARE_OF_GAIN = 0.05, 0.25, 0.5
_LEAST_TURNS = 16
_AGREEING = 0.75  # of the pairs must show half of it
_ERRORS = 8.0  # how many standard errors it must be: with spread of 20 and 50 %, no false finding in 6,000 simulated replicates
_NORMAL = 1.4826  # of a normal distribution: standard deviation over median absolute deviation
_MEDIAN_ERROR = 1.2533  # and standard error of a median over that of a mean

_LOOKS = 6
_LOOKED_AT_SLOWER = math.log(1.3)


@dataclass(frozen=True)
class Turn:
    """One request for times.

    Attributes:
        times: how many it gave, each of one launch or of one recording.
        reported: their sum in seconds, by the worker's clock.
        wall: seconds from the request to the answer, by the gate's clock.
        busy: seconds that the worker's first thread was on a processor meanwhile, as the system says; None if it does not.
    """

    times: int
    reported: float
    wall: float
    busy: float | None = None

    @property
    def each(self) -> float:
        """Seconds of one, as the worker says."""
        return self.reported / self.times

    @property
    def rest(self) -> float:
        """Seconds that the turn took besides, for one."""
        return (self.wall - self.reported) / self.times

    @property
    def busy_rest(self) -> float:
        """Seconds that the first thread worked besides, for one; less than none where it waited for something."""
        return math.nan if self.busy is None else (self.busy - self.reported) / self.times


def hidden(base: Sequence[Turn], head: Sequence[Turn]) -> float | None:
    """Return how many seconds of a launch (or recording) of the head its own times leave out; None if that cannot be said.

    By the wall clock, and by the time that the worker's first thread spends on a processor: a machine with other work
    disturbs the one much and the other little.

    Args:
        base, head: turns of either side, pair by pair.
    """
    if (
        len(base) < _LEAST_TURNS or min(turn.rest for turn in base) < 0
    ):  # its seconds are of another kind than the gate's
        return None
    of_base = float(np.median([turn.each for turn in base]))
    gain = float(np.median([b.each - h.each for b, h in zip(base, head, strict=True)]))
    limit = min(_SHARE * of_base, _SHARE_OF_GAIN * gain) if gain > 0 else _SHARE * of_base
    limit = max(limit, _LEAST_SHARE * of_base, _LEAST_SECONDS)
    for more in (
        np.array([h.rest - b.rest for b, h in zip(base, head, strict=True)]),
        np.array([h.busy_rest - b.busy_rest for b, h in zip(base, head, strict=True)]),
    ):
        middle = float(np.median(more))
        error = _MEDIAN_ERROR * _NORMAL * float(np.median(np.abs(more - middle))) / math.sqrt(len(more))
        agreeing = sum(value > limit / 2 for value in more)
        if middle > max(limit, _ERRORS * error) and agreeing >= _AGREEING * len(more):  # false for NaN
            return middle
    return None


def in_words(seconds: float, base: Sequence[Turn], head: Sequence[Turn]) -> str:
    """Say what was seen."""
    of_base, of_head = (_milliseconds(float(np.median([turn.each for turn in turns]))) for turns in (base, head))
    return (
        f"a timed launch leaves out {_milliseconds(seconds)}: it says that it takes {of_head} (base: {of_base}), but by the gate's own "
        "clock its turns take that much longer. Do all work before the launch returns, on the stream that it is given: not in "
        "a thread, not when its result is read"
    )


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms"


def looked_at(base: Sequence[float], head: Sequence[float], index: int) -> float:
    """Return how much slower the head's launch of that number was than its others, against the base's, as log ratio.

    Args:
        base, head: seconds of the launches of a pair.
        index: of the launch that was looked at.
    """
    others = [i for i in range(len(base)) if i != index]
    if not others:
        return 0.0
    own = math.log(head[index] / float(np.median([head[i] for i in others])))
    return own - math.log(base[index] / float(np.median([base[i] for i in others])))


def knows_looks(slower: Sequence[float]) -> float | None:
    """Return by what factor launches that are looked at are slower, if the head shows that it knows them; else None.

    Args:
        slower: `looked_at` of all looks at a case so far, of several replicates.
    """
    if len(slower) < _LOOKS or min(slower) < _LOOKED_AT_SLOWER:
        return None
    return math.exp(float(np.median(slower)))


@dataclass
class Watch:
    """What was seen of one case so far, in all replicates.

    Attributes:
        base, head: turns of either side, pair by pair.
        slower: of the launches that were looked at, see `looked_at`.
    """

    base: list[Turn] = field(default_factory=list)
    head: list[Turn] = field(default_factory=list)
    slower: list[float] = field(default_factory=list)

    def add(self, other: Watch) -> None:
        """Take what another replicate has seen."""
        self.base += other.base
        self.head += other.head
        self.slower += other.slower

    def finding(self) -> str | None:
        """Say what is wrong with the head's times, if anything is."""
        if (seconds := hidden(self.base, self.head)) is not None:
            return in_words(seconds, self.base, self.head)
        if (factor := knows_looks(self.slower)) is not None:
            return (
                f"the launches whose results were looked at took {factor:.2g} times as long as those beside them, all "
                f"{len(self.slower)}: the head does its work only where somebody looks"
            )
        return None
