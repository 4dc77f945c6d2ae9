"""The verdict in a terminal: what `tilegate.showing.report` says in Markdown, the verdict last, where the eye is."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tilegate.judging import advice
from tilegate.schemas.verdict import Entry, Verdict
from tilegate.showing.markup import LONGEST_MESSAGE, plain, rate
from tilegate.showing.remarks import remarks
from tilegate.showing.report import (
    LONGEST_COMMAND,
    badness,
    causes,
    command,
    emulated_messages,
    figures,
    noise_in_words,
    shows_rates,
    time_by_part,
)

_MOST_ROWS = 60
_MOST_DETAILS = 6
_WIDE = 10_000  # columns of a terminal that any table fits
_SHORT_NAME = 12  # columns into which the name of a case may be folded
_LOG_WIDTH = 140  # columns, where the output is no terminal
_COLOURS = {"pass": "green", "improved": "green", "regressed": "red", "broken": "red", "environment-invalid": "magenta"}


def show(verdict: Verdict) -> None:
    """Print the verdict: a table of all cases that were not skipped, the worst three, remarks, what to do, the verdict.

    Args:
        verdict: as `judge.judge` returns it (schemas/verdict-1.json).
    """
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(width=_LOG_WIDTH, highlight=False)  # a log is as wide as its lines
    rows = sorted((item for item in verdict["cases"].items() if item[1]["role"] != "identical"), key=badness)
    rated = shows_rates(verdict)
    # The case's name folds; a number that is cut is another number.
    narrow = _table([("x" * _SHORT_NAME, case) for _, case in rows[:_MOST_ROWS]], rated=rated)
    if console.measure(narrow, options=console.options.update(width=_WIDE)).maximum <= console.width:
        console.print(_table(rows[:_MOST_ROWS], rated=rated))
    else:
        for name, case in rows[:_MOST_ROWS]:
            console.print(_block(name, case, rated=rated))
    if len(rows) > _MOST_ROWS:
        console.print(Text(f"… and {len(rows) - _MOST_ROWS} more, in verdict.json"))
    for name in advice.worst(verdict["cases"]):
        _explain(console, name, verdict["cases"][name])
    for message in emulated_messages(verdict)[:_MOST_DETAILS]:
        shown = plain(message, lines=True, limit=LONGEST_MESSAGE)
        console.print(Text(f"\n{shown}"))
    for remark in remarks(verdict):
        console.print(Text(f"\n{remark.text}"))
        for name, phrase in remark.details[:_MOST_DETAILS]:
            console.print(Text(f"  {plain(name)}: {phrase}"))
        if len(remark.details) > _MOST_DETAILS:
            console.print(Text(f"  and {len(remark.details) - _MOST_DETAILS} more, in verdict.json"))
    counts = ", ".join(f"{count} {name}" for name, count in verdict["counts"].items() if count)
    took = time_by_part(verdict)
    controls = verdict["controls"]["reason"].removeprefix("no controls: ")
    console.print(Text(f"\n{counts or 'no cases'} · controls: {controls}{f' · {took}' * bool(took)}"))
    console.print(Text(f"noise: {' '.join(map(plain, noise_in_words(verdict)))}".rstrip()))
    if (line := command(verdict)) is not None:
        console.print(Text(f"{verdict['next']['advice']}\n  {plain(line, limit=LONGEST_COMMAND)}"), soft_wrap=True)
    style = f"bold {_COLOURS.get(verdict['verdict'], 'yellow')}"
    console.print(Text(f"{verdict['verdict'].replace('-', ' ').upper()}: {verdict['reason']}", style=style))


_HEADINGS = ("base", "head", "change", "interval", "detects")


def _block(name: str, case: Entry, *, rated: bool) -> Text:
    """Return a case for a terminal that its row does not fit: its name, and below one figure a line."""
    named = [*zip(_HEADINGS, figures(case), strict=True)]
    named += [("head is at", rate(case.get("work"), case["head_seconds"]))] if rated else []
    lines = [f"{case['verdict']}  {plain(name)}", *(f"  {heading}: {value}" for heading, value in named if value)]
    return Text("\n".join(lines), style=_COLOURS.get(case["verdict"], ""))


def _table(rows: list[tuple[str, Entry]], *, rated: bool) -> Table:
    table = Table(box=None, pad_edge=False)
    headings = ["verdict", "case", *_HEADINGS, *(["head is at"] if rated else [])]
    for heading in headings:
        at_left = heading in ("verdict", "case", "interval")
        table.add_column(heading, justify="left" if at_left else "right", overflow="fold", no_wrap=heading != "case")
    for name, case in rows:
        cells = [case["verdict"], plain(name), *figures(case)]
        cells += [rate(case.get("work"), case["head_seconds"])] if rated else []
        table.add_row(*map(Text, cells), style=_COLOURS.get(case["verdict"]))
    return table


def _explain(console: Console, name: str, case: Entry) -> None:
    console.print(Text(f"\n{plain(name)}\n  {case['verdict']}: {case['reason']}"))
    if case["failure"] is not None:
        message = plain(case["failure"]["message"], lines=True, limit=LONGEST_MESSAGE)
        console.print(Text("\n".join(f"  | {line}" for line in message.split("\n"))))
    for line in causes(case):
        console.print(Text(f"  likely cause: {line}"))
