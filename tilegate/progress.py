"""What a run is doing, on stderr: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


class Phase:
    """A part of a run with a known number of steps."""

    def __init__(self, name: str, total: int, bars: Progress | None, console: Console) -> None:
        """Show the phase in `bars`, or on `console` where there are none."""
        self._name, self._total, self._bars, self._console = name, total, bars, console
        self._done = 0
        self._since = time.monotonic()
        self._task = bars.add_task(name, total=total, what="") if bars else None

    def doing(self, what: str) -> None:
        """Say what the current step is."""
        if self._bars is not None and self._task is not None:
            self._bars.update(self._task, what=what)

    def done(self, what: str) -> None:
        """Count one step."""
        self._done += 1
        now = time.monotonic()
        if self._bars is not None and self._task is not None:
            self._bars.update(self._task, completed=self._done, what=what)
        else:
            line = f"{self._name} {self._done}/{self._total} {what} ({now - self._since:.1f} s)"
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)
        self._since = now


class Reporter:
    """Shows phases and notes on stderr."""

    def __init__(self) -> None:
        """Look whether stderr is a terminal."""
        self._console = Console(stderr=True)
        self._bars: Progress | None = None

    def note(self, text: str) -> None:
        """Print one line."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    @contextlib.contextmanager
    def phase(self, name: str, total: int) -> Iterator[Phase]:
        """Show a phase of `total` steps while the context lasts; a phase without steps is not shown."""
        if total == 0 or not self._console.is_terminal:
            yield Phase(name, total, None, self._console)
            return
        columns = (
            TextColumn("{task.description:<9}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[what]}", markup=False),
        )
        with Progress(*columns, console=self._console) as bars:
            yield Phase(name, total, bars, self._console)
