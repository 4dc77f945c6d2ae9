"""The verdict for people: as Markdown for a pull request and as a table in the terminal.

Names of cases, messages of compilers and revisions come from the commit under test. Nothing of them may act: in
Markdown they stand in code spans and fenced blocks that they cannot close, in the terminal without control characters.
"""

from __future__ import annotations

import re
import shlex
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Case = Mapping[str, Any]

# A comment on GitHub holds 65,536 characters; a report that is cut in the middle would lose its closing tags.
_MOST_ROWS = 60
_MOST_MESSAGES = 8
_MOST_CAUSES = 8
_LONGEST_CAUSE = 120
_LONGEST_NAME = 160
_LONGEST_MESSAGE = 2000
_LOG_WIDTH = 140  # columns, where the output is no terminal

_WORST_FIRST = (
    "regressed",
    "inconclusive",
    "warning",
    "improved",
    "pass",
    "new",
    "removed",
    "waived",
    "not-gating",
    "unchanged",
)
_BLAMED = ("regressed", "inconclusive", "warning", "broken")
_MARKS = {"pass": "✅", "regressed": "❌", "broken": "💥", "inconclusive": "❔", "environment-invalid": "⚠️"}
_COLOURS = {"pass": "green", "improved": "green", "regressed": "red", "broken": "red", "environment-invalid": "magenta"}


def render(verdict: Mapping[str, Any]) -> str:
    """Return the report in GitHub's Markdown.

    Args:
        verdict: as `judge.judge` returns it (schemas/verdict-1.json).
    """
    cases: Mapping[str, Case] = verdict["cases"]
    name = verdict["verdict"]
    parts = [f"## {_MARKS[name]} {name.replace('-', ' ').upper()}: {_prose(verdict['reason'])}", _what(verdict)]
    broken = [(case_id, case) for case_id, case in cases.items() if case["failure"] is not None]
    if broken:
        parts += list(_messages(broken))
    timed = sorted(
        ((case_id, case) for case_id, case in cases.items() if case["ratio"] is not None and case["role"] == "gated"),
        key=lambda item: _badness(item[1]),
    )
    open_rows = [item for item in timed if item[1]["verdict"] != "pass"]
    parts += _section("Changed code, worst first", _table(open_rows), open_rows)
    explained = [item for item in timed if _causes(item[1])]
    parts += _section("Likely causes", _explanations(explained), explained)
    passed = [item for item in timed if item[1]["verdict"] == "pass"]
    parts += _folded(f"{len(passed)} passed", _table(passed), passed)
    untimed = sorted(
        (
            (case_id, case)
            for case_id, case in cases.items()
            if case["ratio"] is None and case["failure"] is None and case["role"] != "identical"
        ),
        key=lambda item: _badness(item[1]),
    )
    parts += _section("Not compared", _list(untimed), untimed)
    controls = [(case_id, case) for case_id, case in cases.items() if case["role"] == "control" and case["ratio"]]
    parts += _folded(f"Controls: {_prose(verdict['controls']['reason'])}", _table(controls), controls)
    skipped = [item for item in cases.items() if item[1]["role"] == "identical" and item[1]["verdict"] == "unchanged"]
    parts += _folded(f"{len(skipped)} skipped: identical code", _list(skipped), skipped)
    parts += _folded("Environment", _environment(verdict["environment"]), verdict["environment"])
    parts.append(_how(verdict))
    return "\n\n".join(parts) + "\n"


def show(verdict: Mapping[str, Any]) -> None:
    """Print the verdict to the terminal: the cases that need attention, the counts, and the verdict last."""
    from rich.console import Console  # noqa: PLC0415  (a tenth of a second that --json need not pay)
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(width=_LOG_WIDTH, highlight=False)  # a log is as wide as its lines
    table = Table(box=None, pad_edge=False)
    for heading in ("verdict", "case", "base", "head", "change", "interval", "detects"):
        at_right = heading in ("base", "head", "change", "detects")
        table.add_column(heading, justify="right" if at_right else "left", overflow="fold", no_wrap=heading != "case")
    rows = sorted(
        (item for item in verdict["cases"].items() if item[1]["role"] != "identical"), key=lambda i: _badness(i[1])
    )
    for case_id, case in rows[:_MOST_ROWS]:
        cells = (case["verdict"], plain(case_id), *_figures(case))
        table.add_row(*(Text(cell) for cell in cells), style=_COLOURS.get(case["verdict"]))
    console.print(table)
    if len(rows) > _MOST_ROWS:
        console.print(Text(f"… and {len(rows) - _MOST_ROWS} more, in verdict.json"))
    explained = [item for item in rows if item[1]["verdict"] not in ("pass", "unchanged")]
    for case_id, case in explained[:_MOST_MESSAGES]:
        console.print(Text(f"\n{plain(case_id)}\n  {case['verdict']}: {case['reason']}"))
        if case["failure"] is not None:
            message = plain(case["failure"]["message"], lines=True, limit=_LONGEST_MESSAGE)
            console.print(Text("\n".join(f"  | {line}" for line in message.split("\n"))))
        for line in _causes(case):
            console.print(Text(f"  likely cause: {line}"))
    counts = ", ".join(f"{count} {name}" for name, count in verdict["counts"].items() if count)
    console.print(Text(f"\n{counts or 'no cases'} · controls: {verdict['controls']['reason']}"))
    style = f"bold {_COLOURS.get(verdict['verdict'], 'yellow')}"
    console.print(Text(f"{verdict['verdict'].replace('-', ' ').upper()}: {verdict['reason']}", style=style))


def plain(text: str, *, lines: bool = False, limit: int = _LONGEST_NAME) -> str:
    """Return `text` without anything that acts on a terminal or hides in a page, and not longer than `limit`.

    Control, formatting (bidirectional too), private and unassigned characters are written out as escapes. Line ends
    stay if `lines`, otherwise they become spaces.
    """
    text = text if len(text) <= limit else text[: limit // 2] + " … " + text[-limit // 2 :]
    text = re.sub(r"\r\n?", "\n", text)
    if not lines:
        text = " ".join(text.split("\n"))
    hidden = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
    return "".join(
        f"\\u{{{ord(c):x}}}" if c not in "\n\t" and unicodedata.category(c) in hidden else c for c in text
    ).replace("\t", "    ")


def code(text: str, limit: int = _LONGEST_NAME) -> str:
    """Return `text` as a Markdown code span that it cannot leave, not even inside a table."""
    # A table's row is cut at every pipe before code spans are looked for, and an escaped one can be un-escaped.
    text = plain(text, limit=limit).replace("|", "\N{BOX DRAWINGS LIGHT VERTICAL}") or " "
    fence = "`" * (_longest_run(text) + 1)
    return f"{fence} {text} {fence}" if "`" in text or text != text.strip() else f"{fence}{text}{fence}"


def block(text: str) -> str:
    """Return `text` as a fenced Markdown block that it cannot close."""
    text = plain(text, lines=True, limit=_LONGEST_MESSAGE)
    fence = "`" * max(3, _longest_run(text) + 1)
    return f"{fence}text\n{text}\n{fence}"


def duration(seconds: float | None) -> str:
    """Return a time with four digits and the unit that suits it."""
    if seconds is None:
        return "-"
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.4g} {unit}"
    return f"{seconds / 1e-9:.4g} ns"


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)


def _prose(text: str) -> str:
    """Escape text of our own, which holds nothing of a commit, so that it reads as it is written."""
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", text)


def _badness(case: Case) -> tuple[int, float]:
    verdict = case["verdict"]
    rank = -1 if verdict == "broken" else _WORST_FIRST.index(verdict)
    return rank, -(case["ratio"] or 0.0)


def _what(verdict: Mapping[str, Any]) -> str:
    sides = []
    for side in ("base", "head"):
        of = verdict[side]
        commit = of["commit"][:12] if of["commit"] else "uncommitted files"
        sides.append(f"{side} {code(of['rev'])} ({code(commit)})")
    counts = ", ".join(f"{count} {name}" for name, count in verdict["counts"].items() if count)
    chosen = f"target {code(verdict['target'])}, tier {code(verdict['tier'])}"
    if verdict["filter"] is not None:
        chosen += f", only {code(verdict['filter'])}"
    return f"{', '.join(sides)}; {chosen}. {counts or 'No cases'}."


def _messages(broken: Sequence[tuple[str, Case]]) -> Iterator[str]:
    yield "### Failures"
    for case_id, case in broken[:_MOST_MESSAGES]:
        failure = case["failure"]
        yield f"{code(case_id)}: {_prose(case['reason'])}"
        yield block(failure["message"])
        if failure["log"]:
            tail = plain(failure["log"][-_LONGEST_MESSAGE:], lines=True, limit=_LONGEST_MESSAGE)
            yield f"<details><summary>end of the log of {failure['side']}</summary>\n\n{block(tail)}\n\n</details>"
        if lines := _causes(case):
            yield f"Changed: {'; '.join(map(code, lines[:3]))}"
    if len(broken) > _MOST_MESSAGES:
        yield f"… and {len(broken) - _MOST_MESSAGES} more, in verdict.json."


def _causes(case: Case) -> list[str]:
    """Return what may be to blame, harmless to print, if the case is not fine."""
    if case["verdict"] not in _BLAMED:
        return []
    # Cut after escaping, too: one character may have become ten.
    return [plain(line)[:_LONGEST_CAUSE] for line in case.get("cause", [])[:_MOST_CAUSES]]


def _explanations(rows: Sequence[tuple[str, Case]]) -> str:
    lines = [f"- {code(case_id)}: {'; '.join(map(code, _causes(case)))}" for case_id, case in rows[:_MOST_MESSAGES]]
    if len(rows) > _MOST_MESSAGES:
        lines.append(f"\n… and {len(rows) - _MOST_MESSAGES} more, in verdict.json.")
    return "\n".join(["What differs in launch configuration and compiled code; it decides nothing.\n", *lines])


def _figures(case: Case) -> tuple[str, str, str, str, str]:
    interval, effect = case["interval"], case["smallest_detectable_effect"]
    between = "-" if interval is None else f"{_change(interval[0])} … {_change(interval[1])}"
    return (
        duration(case["base_seconds"]),
        duration(case["head_seconds"]),
        _change(case["ratio"]),
        between,
        "-" if effect is None else f"{100 * effect:.1f} %",
    )


def _change(ratio: float | None) -> str:
    return "-" if ratio is None else f"{100 * (ratio - 1):+.1f} %"


def _table(rows: Sequence[tuple[str, Case]]) -> str:
    lines = ["| | case | base | head | change | interval | detects | why |", "|---|---|--:|--:|--:|---|--:|---|"]
    for case_id, case in rows[:_MOST_ROWS]:
        cells = (case["verdict"], code(case_id), *_figures(case), _prose(case["reason"]))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + _rest(rows)


def _list(rows: Sequence[tuple[str, Case]]) -> str:
    lines = [f"- {case['verdict']}: {code(case_id)}: {_prose(case['reason'])}" for case_id, case in rows[:_MOST_ROWS]]
    return "\n".join(lines) + _rest(rows)


def _rest(rows: Sequence[object]) -> str:
    return f"\n\n… and {len(rows) - _MOST_ROWS} more, in verdict.json." if len(rows) > _MOST_ROWS else ""


def _section(title: str, body: str, content: Sequence[object]) -> list[str]:
    return [f"### {title}", body] if content else []


def _folded(title: str, body: str, content: Sequence[object] | Mapping[str, object]) -> list[str]:
    return [f"<details><summary>{title}</summary>\n\n{body}\n\n</details>"] if content else []


def _environment(environment: Mapping[str, Any]) -> str:
    lines = ["| | |", "|---|---|"]
    for key, value in list(_flat(environment))[:_MOST_ROWS]:
        lines.append(f"| {code(key)} | {code(value)} |")
    return "\n".join(lines)


def _flat(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, item in value.items():
        if isinstance(item, Mapping):
            yield from _flat(item, f"{prefix}{key}.")
        elif item is not None:
            yield f"{prefix}{key}", str(item)


def _how(verdict: Mapping[str, Any]) -> str:
    command = ["tilegate", "gate"]
    for side in ("base", "head"):
        command += [f"--{side}", verdict[side]["commit"] or verdict[side]["rev"]]
    command += ["--target", verdict["target"], "--tier", verdict["tier"]]
    if verdict["filter"] is not None:
        command += ["-b", verdict["filter"]]
    config = verdict["config"]
    return (
        f"Again: {code(shlex.join(command), _LONGEST_MESSAGE)}; from the same samples: {code('tilegate judge samples.json')}.\n"
        f"*interval*: what {config['miss']:.0%} on each side does not exclude. *detects*: the smallest slowdown that "
        f"this case's noise lets the gate call with {config['power']:.0%} certainty. Chance of any false regression in "
        f"a run: {100 * verdict['false_alarm_budget']:g} %. Measured from {code(verdict['created'])} to "
        f"{code(verdict['finished'] or 'an interruption')}."
    )
