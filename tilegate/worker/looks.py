"""Looking at what is timed: other inputs for every launch, outputs full of poison, and a copy of what some launches wrote.

A launch that is timed and does nothing, or hands out what it computed before, is fast. So every turn of a case whose suite
shows its buffers (docs/protocol.md) goes like this, all of it off the clock:

- The inputs get other values, in place: the same numbers, moved on cyclically by a number of places that is drawn anew. All
  inputs before the first launch of a turn, before each further one at least the smallest: no result is right twice.
- The outputs are filled with NaN before every launch. (If that came before some launches only, a kernel could tell those by it.)
- A few values of each output are filled with NaN, and a few of each input get their value, only when the cache is flushed, right
  before the clock starts: what begins before that, beside the flush, reads what does not count and is overwritten.
- After a launch that nobody knew of before, its outputs are copied at once: what is not done by then is not in the copy.
- At the end the inputs must be what they were set to.

The copy goes to the referee, a process that never imported the code under test. It draws the same inputs by itself.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilegate.failures import CaughtError
from tilegate.protocol import Buffers, WrongResult
from tilegate.worker import arrays

_SHIFTS = 1 << 16  # by how many places at most the values move on; that many copies of the values are kept besides
_SPOTS = 64  # values of each output that are poisoned again
_LIGHT_BYTES = 1 << 24  # of inputs that change before every launch; a tenth of what flushes a small cache
_LATE_SECONDS, _LATE_SHARE = 100e-6, 0.25  # of a launch: work that goes on for longer than both was left out


@dataclass(frozen=True)
class Drawn:
    """The inputs as the suite draws them, and all that they can be moved on to."""

    pools: Mapping[str, Any]
    templates: Mapping[str, Any]
    shifts: Mapping[str, int]

    @staticmethod
    def of(benchmark: Any, values: Sequence[Any]) -> Drawn:
        """Draw the inputs of a case, and keep their values.

        Those that its suite says may vary are moved, or all floating-point ones: integers may be indices.
        """
        inputs = benchmark.inputs(*values)
        varied = getattr(benchmark, "varied", None)
        moved = [name for name, x in inputs.items() if arrays.is_floating(x)] if varied is None else varied(*values)
        shifts = {name: min(arrays.elements(x), _SHIFTS) if name in moved else 0 for name, x in inputs.items()}
        pools = {name: arrays.twice(x, shifts[name]) for name, x in inputs.items()}
        return Drawn(pools, {name: arrays.window(pools[name], 0, x) for name, x in inputs.items()}, shifts)

    def light(self, always: Sequence[str]) -> frozenset[str]:
        """Return which inputs change before every launch: those in `always`, the smallest, and more while they are small."""
        sizes = {name: arrays.size(self.templates[name]) for name, shift in self.shifts.items() if shift}
        order = sorted(sizes, key=lambda name: sizes[name])
        totals = itertools.accumulate(sizes[name] for name in order)
        small = [name for name, total in zip(order, totals, strict=True) if total <= _LIGHT_BYTES]
        return frozenset([*order[:1], *small, *always])

    def offsets(self, draw: str, launch: int, sets: int) -> list[dict[str, int]]:
        """Return by how much each input of each set moves on before that launch of a turn."""
        chance = random.Random(f"{draw}/{launch}")  # noqa: S311 - the secret is `draw`
        return [{name: chance.randint(0, shift) for name, shift in self.shifts.items()} for _ in range(sets)]

    def window(self, name: str, offset: int) -> Any:
        """Return the values of an input, moved on; a view."""
        return arrays.window(self.pools[name], offset, self.templates[name])

    def windows(self, draw: str, launch: int, light: frozenset[str], which: int, sets: int) -> dict[str, Any]:
        """Return the inputs of one of the sets at that launch; views."""
        first, now = self.offsets(draw, 0, sets)[which], self.offsets(draw, launch, sets)[which]
        return {name: self.window(name, (now if name in light else first)[name]) for name in self.pools}


class Looks:
    """The timed side: changes inputs, poisons outputs, copies results.

    Args:
        benchmark: the suite's object, set up, with `buffers`.
        values: the case's parameters.
        drawn: its inputs.
    """

    def __init__(self, benchmark: Any, values: Sequence[Any], drawn: Drawn) -> None:
        """See that the buffers are like what the suite draws.

        Raises:
            ValueError: they are not.
        """
        self._benchmark, self._values, self._drawn = benchmark, values, drawn
        buffers = self._buffers()
        shapes = {name: tuple(x.shape) for name, x in drawn.templates.items()}
        for entry in buffers:
            found = {name: tuple(x.shape) for name, x in entry.inputs.items()}
            if found != shapes:
                raise ValueError(f"buffers() has inputs of shapes {found}, and inputs() draws {shapes}")
        self._in_place = [
            name
            for name in shapes
            if any(arrays.overlap(entry.inputs[name], out) for entry in buffers for out in entry.outputs.values())
        ]
        self._light = drawn.light(self._in_place)
        self._draw: str | None = None
        self._spot: int | None = None
        self._launch = -1
        self._copied: tuple[int, list[dict[str, Any]]] | None = None
        self._lags: list[tuple[float, float]] = []
        self._late: tuple[list[Any], list[Any]] = [], []

    def begin(self, draw: str, spot: int | None) -> None:
        """Start a turn with inputs by `draw`; the launch of number `spot` (from 0) is looked at."""
        self._draw, self._spot, self._launch = draw, spot, -1

    def before(self) -> None:
        """Change inputs, poison outputs; called before every launch or recording, off the clock."""
        self._launch += 1
        self._late = [], []
        if self._draw is None:
            return
        buffers = self._buffers()
        chance = random.Random(f"{self._draw}/{self._launch}/late")  # noqa: S311 - the secret is `draw`
        targets: list[Any] = []
        sources: list[Any] = []
        for entry, offsets in zip(buffers, self._drawn.offsets(self._draw, self._launch, len(buffers)), strict=True):
            in_place = [entry.inputs[name] for name in self._in_place]
            for output in entry.outputs.values():
                if not any(arrays.overlap(output, source) for source in in_place):
                    arrays.poison(output)
                    self._change_late(arrays.some_poison(output, _SPOTS, chance.random()))
            for name, target in entry.inputs.items():
                if self._launch == 0 or name in self._light:
                    targets.append(target)
                    sources.append(self._drawn.window(name, offsets[name]))
        arrays.copy_all(targets, sources)
        self._leave_for_late(targets, sources, chance)

    def _leave_for_late(self, targets: list[Any], sources: list[Any], chance: random.Random) -> None:
        """Let a few values of the inputs be others until the clock starts."""
        spots, wrong = [], []
        for target, source in zip(targets, sources, strict=True):
            where = chance.random()
            if (part := arrays.part(target, _SPOTS, where)) is not None:
                right = arrays.part(source, _SPOTS, where)
                spots.append(part)
                wrong.append(arrays.backwards(right))
                self._change_late((part, right))
        arrays.copy_all(spots, wrong)

    def ready(self) -> None:
        """Change what is changed last, right before the clock starts; nothing is computed here."""
        arrays.copy_all(*self._late)

    def _change_late(self, pair: tuple[Any, Any] | None) -> None:
        if pair is not None:
            self._late[0].append(pair[0])
            self._late[1].append(pair[1])

    def after(self) -> bool:
        """Copy the outputs, if this launch is looked at; called right after every launch. Return whether it was."""
        if self._draw is None or self._launch != self._spot:
            return False
        buffers = self._buffers()
        for name, x in ((name, x) for entry in buffers for name, x in entry.outputs.items()):
            if not arrays.is_plain(x):
                kind = f"{type(x).__module__}.{type(x).__qualname__}"
                raise CaughtError(
                    "off-clock", f"the result {name} is a {kind}, which may compute its values when it is read"
                )
        copies = [{name: arrays.copy(x) for name, x in entry.outputs.items()} for entry in buffers]
        self._copied = (self._launch, copies)
        return True

    def lag(self, launch: float, more: float) -> None:
        """Take note that the device was busy for `more` seconds after a launch of `launch` seconds that was looked at."""
        self._lags.append((launch, more))

    def deliver(self, path: Path, choice: float, *, recorded: bool) -> dict[str, Any]:
        """Write the outputs of the launch that was looked at last.

        Args:
            path: where to.
            choice: from 0 to 1, picks the set if several were written.
            recorded: the launches of a recording write all sets.

        Returns:
            What the referee has to know of it: ``{"launch", "set", "sets", "light"}``.

        Raises:
            CaughtError, WrongResult: something is wrong with that launch, whatever it wrote.
        """
        if self._copied is None:
            raise WrongResult("no timed launch could be looked at: the clock made none")
        (launch, copies), self._copied = self._copied, None
        self._refuse_late()
        buffers = self._buffers()
        self._refuse_changed_inputs(buffers)
        written = [
            which
            for which, outputs in enumerate(copies)
            if outputs and not all(map(arrays.is_poisoned, outputs.values()))
        ]
        if not written:
            raise WrongResult("a timed launch has written nothing: its outputs are as they were before it")
        if recorded and len(written) < len(copies):
            raise WrongResult(f"timed launches left {len(copies) - len(written)} of {len(copies)} results out")
        which = written[min(int(choice * len(written)), len(written) - 1)]
        self._refuse_aliases(buffers[which])
        arrays.write(path, copies[which])
        return {"launch": launch, "set": which, "sets": len(copies), "light": sorted(self._light)}

    def _buffers(self) -> Sequence[Buffers]:
        found: Sequence[Buffers] = self._benchmark.buffers(*self._values)
        return found

    def _refuse_late(self) -> None:
        late = [more for launch, more in self._lags if more > max(_LATE_SECONDS, _LATE_SHARE * launch)]
        if len(late) >= 2:  # once may be chance
            raise CaughtError(
                "off-clock",
                f"the device worked on for {1e3 * min(late):.2f} ms after the last event of a timed launch had fired; "
                "work on a stream of its own must be joined to the current one",
            )

    def _refuse_changed_inputs(self, buffers: Sequence[Buffers]) -> None:
        if self._draw is None:
            return
        for which, entry in enumerate(buffers):
            windows = self._drawn.windows(self._draw, self._launch, self._light, which, len(buffers))
            for name, expected in windows.items():
                if name not in self._in_place and not arrays.same(entry.inputs[name], expected):
                    raise CaughtError(
                        "side-effect", f"a timed launch has changed its input {name}, which it may only read"
                    )

    def _refuse_aliases(self, entry: Buffers) -> None:
        for name, source in entry.inputs.items():
            if name not in self._in_place and any(arrays.overlap(source, out) for out in entry.outputs.values()):
                raise CaughtError("side-effect", f"the result of a timed launch is its input {name}, or part of it")
