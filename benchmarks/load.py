"""The attention work of a server under load: which rows meet which keys in each step of its engine.

No server is started and no text generated. Request lengths are drawn, and a continuous-batching scheduler hands out rows as
SGLang and vLLM do: every running request decodes one row a step, and waiting prompts get what is left of the step's budget, a
long prompt in several chunks. As soon as a request ends the next one takes its slot, so the server is always full.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Lengths:
    """Log-normal numbers of tokens.

    Attributes:
        median: of the distribution.
        sigma: standard deviation of the logarithm.
        least, most: drawn numbers are cut off there.
    """

    median: int
    sigma: float
    least: int
    most: int

    def __post_init__(self) -> None:
        """Reject what nothing can be drawn from."""
        if not 1 <= self.least <= self.median <= self.most or not self.sigma >= 0:
            raise ValueError(f"lengths need 1 <= least <= median <= most and sigma >= 0, got {self}")

    def draw(self, chance: random.Random) -> int:
        """Draw one."""
        return min(self.most, max(self.least, round(chance.lognormvariate(math.log(self.median), self.sigma))))


@dataclass(frozen=True)
class Load:
    """Who asks a server for what.

    Attributes:
        prompt, answer: tokens of a request.
        slots: requests that run at a time.
        budget: new rows of a step, at most.
        steps: engine steps of which a launch has the attention, taken evenly from `horizon` steps of a full server.
        horizon: steps that are simulated after as many that fill the server.
        why: what it stands for.
    """

    prompt: Lengths
    answer: Lengths
    slots: int
    budget: int
    steps: int
    horizon: int
    why: str

    def __post_init__(self) -> None:
        """Reject a server that would do nothing, or have requests that never get a row."""
        if self.slots < 1 or not 1 <= self.steps <= self.horizon:
            raise ValueError(f"a load needs slots >= 1 and 1 <= steps <= horizon, got {self}")
        if self.budget <= self.slots:
            raise ValueError(
                f"a budget of {self.budget} rows leaves no prompt any beside {self.slots} requests that decode"
            )


@dataclass(frozen=True)
class Chunk:
    """New rows of one request in a step.

    Attributes:
        slot: of the request.
        context: keys that its cache holds already.
        rows: new rows, whose keys follow those.
    """

    slot: int
    context: int
    rows: int


Step = tuple[Chunk, ...]


def steps(load: Load, seed: int = 0) -> list[Step]:
    """Return the steps whose attention a launch computes; the same load and seed give the same steps."""
    wanted = {load.horizon + round((i + 0.5) * load.horizon / load.steps) for i in range(load.steps)}
    run = enumerate(_run(load, random.Random(seed)))  # noqa: S311 - a load, not a secret
    found = []
    for number, step in run:
        if number in wanted:
            found.append(step)
        if len(found) == len(wanted):
            break
    return found


@dataclass
class _Request:
    prompt: int
    answer: int
    done: int = 0

    @property
    def decoding(self) -> bool:
        return self.done >= self.prompt


def _run(load: Load, chance: random.Random) -> Iterator[Step]:
    def arrive() -> _Request:
        return _Request(load.prompt.draw(chance), load.answer.draw(chance))

    running = [arrive() for _ in range(load.slots)]
    waiting = list(range(load.slots))  # slots whose prompt is not all in the cache, first come first served
    while True:
        step = [Chunk(slot, one.done, 1) for slot, one in enumerate(running) if one.decoding]
        left = load.budget - len(step)
        for slot in waiting:
            rows = min(left, running[slot].prompt - running[slot].done)
            if rows <= 0:
                break
            step.append(Chunk(slot, running[slot].done, rows))
            left -= rows
        yield tuple(step)
        for chunk in step:
            running[chunk.slot].done += chunk.rows
        waiting = [slot for slot in waiting if not running[slot].decoding]
        for slot, one in enumerate(running):
            if one.done >= one.prompt + one.answer:
                running[slot] = arrive()
                waiting.append(slot)
