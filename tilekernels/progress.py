"""A progress bar on stderr that stays readable in a log file."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def progress_bar(title: str, total: int, *, enabled: bool = True) -> Iterator[Callable[[str], None]]:
    """Show how many of `total` steps are done.

    On a terminal a bar, elsewhere a line a step. Gives a function, callable from any thread, to be told the name of
    each step that is done. Nothing is shown when not `enabled`, or for nothing to do.
    """
    if not enabled or total == 0:
        yield lambda _: None
        return
    if not sys.stderr.isatty():
        done = 0

        def report(label: str) -> None:
            nonlocal done
            done += 1
            print(f"{title}: {done}/{total} {label}", file=sys.stderr, flush=True)

        yield report
        return
    from rich.console import Console  # noqa: PLC0415 - only a terminal needs it
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TextColumn("{task.fields[label]}"), console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=total, label="")
        yield lambda label: bar.update(task, advance=1, label=label)
