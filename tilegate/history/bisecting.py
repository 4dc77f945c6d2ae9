"""Which commit changed a case? A search between two commits that never steps on an answer it is not sure of.

The two ends are compared with each other first; if they do not differ there is nothing to look for. Then the range is split where
the code changes, half of the changes on either side. A commit whose code is that of an end needs no measuring. Another one is
compared with the ends in turn until the larger part of the change certainly lies on one side of it, or both parts certainly exist.
What does not build, and what stays undecided, is stepped over: the answer may then be a range.

Every comparison is an edge of the history, and every decision follows from the edges alone. So the same search continues where it
was interrupted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from scipy import stats

from tilegate.history.network import Contrast, Network
from tilegate.history.view import Segment

WRONG = 0.05
"""Chance that the answer is wrong, over all decisions and all their looks (Bonferroni)."""

LOOKS = 4
"""Comparisons of one commit with the ends, at most; then it is undecided."""

Side = Literal["good", "bad"]
State = Literal["commit", "range", "same", "unfinished"]


@dataclass(frozen=True)
class Answer:
    """What is known of one commit.

    Attributes:
        place: of the commit.
        answer: on which side of the change it is; "skipped": nothing says.
        why: "measured", "identical code", or why it was skipped.
        against_good: how much slower it is than the good end was, None if that is not known.
    """

    place: int
    answer: Literal["good", "bad", "skipped"]
    why: str
    against_good: Contrast | None = None


@dataclass(frozen=True)
class Result:
    """What a search found.

    Attributes:
        state: "commit": `bad` did it; "range": `bad` or one of those before it, after `good`; "same": the ends do not differ;
            "unfinished": out of time, or nothing decides.
        good, bad: places of commits: the last before the change and the first after it that are known.
        change: how much slower `bad` is than `good` at the end of the search.
        whole: the same of the two ends that were given.
        answers: in order of the search.
        measured: comparisons that this search made.
        reason: of "same" and "unfinished".
    """

    state: State
    good: int
    bad: int
    change: Contrast | None
    whole: Contrast | None
    answers: tuple[Answer, ...]
    measured: int
    reason: str = ""


class OutOfTimeError(Exception):
    """No time is left for another comparison."""


class CannotMeasureError(Exception):
    """These two commits cannot be compared; the message says why."""


class Search:
    """A search for the commit that changed a case."""

    def __init__(
        self,
        *,
        names: Sequence[str],
        load: Callable[[], Segment | None],
        version: Callable[[int], tuple[str | None, str]],
        free: Callable[[int], str | None],
        contents: Mapping[int, str],
        compare: Callable[[int, int], None],
        say: Callable[[str], None],
    ) -> None:
        """Prepare it.

        Args:
            names: of the commits, the oldest first; a place is one of these.
            load: returns what is known of the case in the environment that was measured last.
            version: returns the code version of a commit, by its place, and why it has none; generates its kernels if need be.
            free: the version where it is known already, else None.
            contents: by place; commits with equal contents have equal code.
            compare: measures two commits, by their places, and adds what it says to the history. Raises CannotMeasureError,
                OutOfTimeError.
            say: told what is done.
        """
        self._names, self._load, self._version, self._free = names, load, version, free
        self._contents, self._compare, self._say = contents, compare, say
        self._answers: dict[int, Answer] = {}
        self._measured = 0
        self._chance = WRONG
        self._segment = load()

    def run(self, good: int, bad: int) -> Result:
        """Look for the commit after `good`, up to `bad`, that changed the case.

        Args:
            good, bad: places of commits in the history, in this order.
        """
        decisions = 1 + math.ceil(math.log2(max(2, bad - good)))
        self._chance = WRONG / (LOOKS * decisions)
        whole: Contrast | None = None
        try:
            for place in (good, bad):
                version, why = self._version(place)
                if version is None:
                    return self._ended("unfinished", good, bad, None, f"{self._named(place)} does not have it: {why}")
            if self._free(good) == self._free(bad):
                return self._ended("same", good, bad, None, "both have the same code")
            whole, state, reason = self._compare_ends(good, bad)
            if state is not None:
                return self._ended(state, good, bad, whole, reason)
            while (next_ := self._split(good, bad)) is not None:
                good, bad = self._step(next_, good, bad)
        except OutOfTimeError:
            return self._ended("unfinished", good, bad, whole, "out of time")
        return self._ended("commit" if bad == good + 1 else "range", good, bad, whole)

    def _ended(self, state: State, good: int, bad: int, whole: Contrast | None, reason: str = "") -> Result:
        answers = tuple(self._answers.values())
        change = None if state == "same" else self._contrast(good, bad)
        return Result(state, good, bad, change, whole, answers, self._measured, reason)

    def _compare_ends(self, good: int, bad: int) -> tuple[Contrast | None, State | None, str]:
        """Compare the ends until they certainly differ; return their contrast, and a state and a reason if they do not."""
        while True:
            contrast = self._contrast(good, bad)
            if contrast is not None and self._certain(good, bad):
                self._say(f"the ends differ: {_percent(contrast)}")
                return contrast, None, ""
            before = self._edges(good, bad)
            if before >= LOOKS:
                return contrast, "same", f"after {before} comparisons with each other they do not certainly differ"
            try:
                self._measure(good, bad)
            except CannotMeasureError as error:
                return contrast, "unfinished", f"the two ends cannot be compared: {error}"
            if self._edges(good, bad) == before:
                return contrast, "unfinished", "comparing the two ends says nothing of this case"

    def _split(self, good: int, bad: int) -> int | None:
        """Return the commit that halves the changes of code between the ends; None if none is left to ask."""
        left = [place for place in range(good + 1, bad) if self._asked(place)]
        ends = {self._free(good), self._free(bad)}
        known = [place for place in left if self._free(place) in ends]
        if known:  # of the good end's code the last, else of the bad end's the first: it costs nothing
            goods = [place for place in known if self._free(place) == self._free(good)]
            return goods[-1] if goods else known[0]
        runs: list[int] = []  # the first commit of each stretch of equal code
        last = ""
        for place in left:
            label = self._free(place) or self._contents[place]
            if label != last:
                runs.append(place)
            last = label
        return runs[len(runs) // 2] if runs else None

    def _asked(self, place: int) -> bool:
        return place not in self._answers or self._answers[place].answer != "skipped"

    def _step(self, place: int, good: int, bad: int) -> tuple[int, int]:
        """Find out on which side of the change a commit is; return the ends that are left."""
        version, why = self._version(place)
        if version is None:
            self._answer(Answer(place, "skipped", why))
            return good, bad
        if version in (self._free(good), self._free(bad)):
            side: Side = "good" if version == self._free(good) else "bad"
            self._answer(Answer(place, side, "identical code", self._contrast(good, place)))
            return (place, bad) if side == "good" else (good, place)
        while (found := self._decide(good, place, bad)) is None:
            done = self._edges(good, place), self._edges(place, bad)
            if sum(done) >= LOOKS:
                self._answer(
                    Answer(place, "skipped", f"undecided after {sum(done)} comparisons", self._contrast(good, place))
                )
                return good, bad
            try:
                self._measure(*((good, place) if done[0] <= done[1] else (place, bad)))
            except CannotMeasureError as error:
                self._answer(Answer(place, "skipped", str(error)))
                return good, bad
            if (self._edges(good, place), self._edges(place, bad)) == done:
                self._answer(Answer(place, "skipped", "comparing it says nothing of this case"))
                return good, bad
        self._answer(Answer(place, found, "measured", self._contrast(good, place)))
        return (place, bad) if found == "good" else (good, place)

    def _decide(self, good: int, place: int, bad: int) -> Side | None:
        network, versions = self._network(), [self._free(each) for each in (good, place, bad)]
        if network is None or None in versions:
            return None
        return decide(network, *(version or "" for version in versions), chance=self._chance)

    def _answer(self, answer: Answer) -> None:
        self._answers[answer.place] = answer
        self._say(f"{self._named(answer.place)}: {answer.answer}, {answer.why}")

    def _measure(self, base: int, head: int) -> None:
        self._say(f"measuring {self._named(base)} against {self._named(head)}")
        self._compare(base, head)
        self._measured += 1
        self._segment = self._load()

    def _named(self, place: int) -> str:
        return self._names[place]

    def _network(self) -> Network | None:
        return None if self._segment is None else self._segment.network

    def _contrast(self, one: int, other: int) -> Contrast | None:
        network, versions = self._network(), (self._free(one), self._free(other))
        if network is None or versions[0] is None or versions[1] is None:
            return None
        return network.contrast(versions[0], versions[1])

    def _certain(self, one: int, other: int) -> bool:
        network, versions = self._network(), (self._free(one), self._free(other))
        if network is None or versions[0] is None or versions[1] is None:
            return False
        return _excludes_zero(network, versions[0], versions[1], self._chance)

    def _edges(self, one: int, other: int) -> int:
        """How often two commits' versions were compared with each other in this environment."""
        wanted = {self._free(one), self._free(other)}
        edges = self._segment.edges if self._segment is not None else ()
        return sum({edge.record["base"], edge.record["head"]} == wanted for edge in edges)


def decide(network: Network, good: str, middle: str, bad: str, *, chance: float) -> Side | None:
    """Return on which side of the change a version between two others is; None as long as nothing is sure.

    "good": the larger part of the change comes after it. Sure means that the interval of the middle version's distance from the
    midpoint of both ends excludes 0, or that both parts certainly exist: then either is a change that somebody made.

    Args:
        network: of the case.
        good, middle, bad: versions; good and bad certainly differ.
        chance: of a wrong answer.
    """
    first, second, whole = (network.contrast(*pair) for pair in ((good, middle), (middle, bad), (good, bad)))
    if first is None or second is None or whole is None:
        return None
    larger: Side = "good" if abs(second.estimate) > abs(first.estimate) else "bad"
    # The variance of x[m] - (x[g] + x[b]) / 2 from the effective resistances R, the squares of the pairs' errors.
    variance = first.error**2 / 2 + second.error**2 / 2 - whole.error**2 / 4
    off = (first.estimate - second.estimate) / 2
    freedom = min(network.freedom(good, middle), network.freedom(middle, bad))
    if variance > 0 and 2 * float(stats.t.sf(abs(off) / math.sqrt(variance), freedom)) < chance:
        # Where the middle lies beyond one of the ends, the whole change and more is on one side.
        return larger
    if all(_excludes_zero(network, *pair, chance) for pair in ((good, middle), (middle, bad))):
        return larger
    return None


def _excludes_zero(network: Network, one: str, other: str, chance: float) -> bool:
    contrast = network.contrast(one, other)
    if contrast is None or contrast.error <= 0:
        return False
    return 2 * float(stats.t.sf(abs(contrast.estimate) / contrast.error, network.freedom(one, other))) < chance


def _percent(contrast: Contrast) -> str:
    low, middle, high = (100 * math.expm1(value) for value in (contrast.low, contrast.estimate, contrast.high))
    return f"{middle:+.2f} % ({low:+.2f} … {high:+.2f} %)"
