"""The verdict as Markdown for a pull request: what happened, the three worst cases and what to do; the rest is folded.

`tilegate.showing.terminal` shows the same in a terminal, verdict.json holds it for machines.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilegate.judging import advice
from tilegate.protocol import is_call
from tilegate.schemas.samples import Environment
from tilegate.schemas.verdict import Entry, Verdict
from tilegate.showing.markup import LONGEST_MESSAGE, block, change, code, duration, plain, prose, quoted, rate
from tilegate.showing.remarks import Remark, remarks

Case = Entry
Row = tuple[str, Case]

# A comment on GitHub holds 65,536 characters, and whoever posts the report may add some. One that is cut in the middle
# would lose its closing tags, so what does not fit is left out where lists are made.
_LONGEST = 60_000
_MOST_CAUSES = 8
_LONGEST_CAUSE = 120
LONGEST_COMMAND = 12_000  # a pattern of 2,000 and two paths, quoted; a shorter one would be another command


@dataclass(frozen=True)
class _Size:
    """How many rows of a table, messages, and lines of a remark are shown."""

    rows: int
    messages: int
    details: int


_SIZES = (_Size(60, 8, 10), _Size(30, 4, 5), _Size(15, 2, 3), _Size(5, 1, 1))

WORST_FIRST = (
    *("broken", "regressed", "inconclusive", "warning", "improved", "pass"),
    *("new", "removed", "waived", "not-gating", "unchanged"),
)
_RED = ("regressed", "broken")
_BLAMED = ("regressed", "inconclusive", "warning", "broken")
_MARKS = {"pass": "✅", "regressed": "❌", "broken": "💥", "inconclusive": "❔", "environment-invalid": "⚠️"}


def render(verdict: Verdict) -> str:
    """Return the report in GitHub's Markdown.

    Args:
        verdict: as `judge.judge` returns it (schemas/verdict-1.json).
    """
    text = ""
    for size in _SIZES:
        text = _render(verdict, size)
        if len(text) <= _LONGEST:
            break
    return text


def _render(verdict: Verdict, size: _Size) -> str:
    cases: Mapping[str, Case] = verdict["cases"]
    name = verdict["verdict"]
    columns = _Columns(any(map(shape, cases.values())), shows_rates(verdict))
    changed = sorted((i for i in cases.items() if i[1]["ratio"] is not None and i[1]["role"] == "gated"), key=badness)
    broken = [item for item in cases.items() if item[1]["failure"] is not None]
    other = sorted((item for item in cases.items() if _not_compared(item[1])), key=badness)
    controls = [item for item in cases.items() if item[1]["role"] == "control" and item[1]["ratio"]]
    skipped = [item for item in cases.items() if item[1]["role"] == "identical" and item[1]["verdict"] == "unchanged"]
    explained = [item for item in changed if causes(item[1])]
    again = _some(reproductions(verdict), size.messages)
    parts = [
        f"## {_MARKS[name]} {name.replace('-', ' ').upper()}: {prose(verdict['reason'])}",
        _what(verdict),
        *_worst(cases, columns),
        *_emulated(verdict, size),
        *_next(verdict),
        *_remarks(remarks(verdict), size),
        *_folded(f"{len(broken)} failed: messages", "\n\n".join(_messages(broken, size)), broken),
        *_folded(f"Changed code, worst first: {_counts(changed)}", _table(changed, columns, size), changed),
        *_folded("Likely causes", _explanations(explained, size), explained),
        *_folded("Reproduce with torch and TileLang alone", block("\n".join(again), "sh", LONGEST_COMMAND), again),
        *_folded(f"Not compared: {_counts(other)}", _list(other, size), other),
        *_folded(f"Controls: {prose(verdict['controls']['reason'])}", _table(controls, columns, size), controls),
        *_folded(f"{len(skipped)} skipped: identical code", _list(skipped, size), skipped),
        *_folded("Environment", _environment(verdict["environment"], size), verdict["environment"]),
        _how(verdict),
    ]
    return "\n\n".join(parts) + "\n"


def badness(item: Row) -> tuple[int, float]:
    """Order cases by what they say, and those that say the same by their ratio, worst first."""
    return WORST_FIRST.index(item[1]["verdict"]), -(item[1]["ratio"] or 0.0)


def figures(case: Case) -> tuple[str, str, str, str, str]:
    """Return base, head, change, interval and smallest detectable effect, as they are shown."""
    interval, effect = case["interval"], case["smallest_detectable_effect"]
    between = "-" if interval is None else f"{change(interval[0])} … {change(interval[1])}"
    detects = "-" if effect is None else f"{100 * effect:.1f} %"
    return duration(case["base_seconds"]), duration(case["head_seconds"]), change(case["ratio"]), between, detects


def causes(case: Case) -> list[str]:
    """Return what may be to blame, harmless to print, if the case is not fine."""
    if case["verdict"] not in _BLAMED:
        return []
    return [plain(line, limit=_LONGEST_CAUSE) for line in case.get("cause", [])[:_MOST_CAUSES]]


def shows_rates(verdict: Verdict) -> bool:
    """Return whether to show operations or bytes a second: on a GPU, where the suite states them."""
    return verdict["target"] != "cpu" and any("work" in case for case in verdict["cases"].values())


def command(verdict: Verdict) -> str | None:
    """Return the command that measures the cases in question again, quoted for a shell."""
    words = verdict["next"]["command"]
    return None if words is None else shlex.join(words)


def reproductions(verdict: Verdict) -> list[str]:
    """Return, of each kernel case that is broken or slower, worst first, the command that writes a folder to show it elsewhere."""
    base, head = (of["commit"] or of["rev"] for of in (verdict["base"], verdict["head"]))
    red = sorted((item for item in verdict["cases"].items() if item[1]["verdict"] in _RED), key=badness)
    names = [name for name, _ in red if not is_call(name.partition("(")[0])]
    return [f"tilegate repro {quoted(name)} {shlex.join(['--base', base, '--rev', head])}" for name in names]


def _some(lines: list[str], most: int) -> list[str]:
    rest = len(lines) - most
    return (
        lines if rest <= 0 else [*lines[:most], f"# and {rest} more: the same line with another case of verdict.json"]
    )


def time_by_part(verdict: Verdict) -> str:
    """Return how long each part of the run took, or nothing where the samples do not say."""
    stages = verdict["stages"]
    parts = ", ".join(f"{name} {duration(seconds)}" for name, seconds in stages.items())
    return f"{parts}; {duration(sum(stages.values()))} in all" if stages else ""


def noise_in_words(verdict: Verdict) -> tuple[str, str]:
    """Return where the expected noise comes from: a phrase, and the device's name, which may hold anything."""
    profile = verdict["noise_profile"]
    if profile is None:
        return "not calibrated, so the configuration's bias is expected (tilegate calibrate)", ""
    phrase = f"calibrated {profile['created'][:10]}, profile {profile['digest'][:8]}, {profile['calibrated']} cases, on"
    return phrase, profile["device"] or "this machine"


def _what(verdict: Verdict) -> str:
    sides = []
    for side in ("base", "head"):
        of = verdict[side]
        commit = of["commit"][:12] if of["commit"] else "uncommitted files"
        ahead = f", where the head left it; it is {of['ahead']} ahead" if "ahead" in of else ""
        sides.append(f"{side} {code(of['rev'])} ({code(commit)}{ahead})")
    chosen = f"target {code(verdict['target'])}, tier {code(verdict['tier'])}"
    if verdict["filter"] is not None:
        chosen += f", only {code(verdict['filter'])}"
    return f"{', '.join(sides)}; {chosen}. {_counts(verdict['cases'].items()) or 'No cases'}."


def _counts(rows: Any) -> str:
    found = [case["verdict"] for _, case in rows]
    return ", ".join(f"{found.count(name)} {name}" for name in WORST_FIRST if name in found)


def shape(case: Case) -> str:
    """Return the shape of the problem, as the suite states it."""
    return str(case.get("work", {}).get("shape", ""))


@dataclass(frozen=True)
class _Columns:
    """What a table has beside what every table has."""

    shape: bool
    rate: bool

    def row(self, name: str, shape: str, figures: Sequence[str], rate: str) -> list[str]:
        """Return the cells of a case, or of the head of a table."""
        return [name, *([shape] if self.shape else []), *figures, *([rate] if self.rate else [])]


def _worst(cases: Mapping[str, Case], columns: _Columns) -> Iterator[str]:
    """Show the cases that a reviewer has to see, each with its likely cause or the first line of its message."""
    names = advice.worst(cases)
    if not names:
        return
    headings = columns.row("case", "shape", ["base", "head", "change", "interval"], "head is at")
    rules = columns.row("---", "---", ["--:", "--:", "--:", "---"], "--:")
    lines = [f"| | {' | '.join(headings)} | why |", f"|---|{'|'.join(rules)}|---|"]
    for name in names:
        case = cases[name]
        if case["failure"] is not None:
            why = code(case["failure"]["message"].strip().split("\n")[0], _LONGEST_CAUSE)
        else:
            found = causes(case)[:2]
            why = f"likely {'; '.join(map(code, found))}" if found else prose(case["reason"])
        reached = rate(case.get("work"), case["head_seconds"])
        known = columns.row(code(name), prose(shape(case)), figures(case)[:4], reached)
        cells = (f"**{case['verdict']}**", *known, why)
        lines.append(f"| {' | '.join(cells)} |")
    yield "\n".join(lines)


def emulated_messages(verdict: Verdict) -> list[str]:
    """Return what is wrong with each kernel that is broken where it was emulated, unless a case of the run says it."""
    kernels = [kernel for found in verdict["emulation"].values() for kernel in found["kernels"].values()]
    wrong = [kernel for kernel in kernels if kernel["verdict"] == "broken"]
    return [kernel["message"] or "" for kernel in wrong if not verdict["cases"].keys() & set(kernel["cases"])]


def _emulated(verdict: Verdict, size: _Size) -> Iterator[str]:
    found = emulated_messages(verdict)
    yield from map(block, found[: size.messages])
    if len(found) > size.messages:
        yield f"… and {len(found) - size.messages} more kernels, in verdict.json."


def _next(verdict: Verdict) -> Iterator[str]:
    line = command(verdict)
    if line is None:
        return
    yield f"**What to do.** {prose(verdict['next']['advice'])}"
    yield block(line, "sh", LONGEST_COMMAND)


def _remarks(found: Sequence[Remark], size: _Size) -> Iterator[str]:
    if not found:
        return
    yield "\n".join(f"- {prose(remark.text)}" for remark in found)
    details = []
    for remark in (remark for remark in found if remark.details):
        details.append(f"{prose(remark.text)}\n")
        details += [f"- {code(name)}: {prose(phrase)}" for name, phrase in remark.details[: size.details]]
        if len(remark.details) > size.details:
            details.append(f"- and {len(remark.details) - size.details} more, in verdict.json")
        details.append("")
    yield from _folded("Which cases these are", "\n".join(details).strip(), details)


def _messages(broken: Sequence[Row], size: _Size) -> Iterator[str]:
    for name, case in broken[: size.messages]:
        yield f"{code(name)}: {prose(case['reason'])}"
        if (failure := case["failure"]) is None:
            continue
        yield block(failure["message"])
        if failure["log"]:
            tail = plain(failure["log"][-LONGEST_MESSAGE:], lines=True, limit=LONGEST_MESSAGE)
            yield f"<details><summary>end of the log of {failure['side']}</summary>\n\n{block(tail)}\n\n</details>"
        if lines := causes(case):
            yield f"Changed: {'; '.join(map(code, lines[:3]))}"
    if len(broken) > size.messages:
        yield f"… and {len(broken) - size.messages} more, in verdict.json."


def _explanations(rows: Sequence[Row], size: _Size) -> str:
    lines = [f"- {code(name)}: {'; '.join(map(code, causes(case)))}" for name, case in rows[: size.messages]]
    if len(rows) > size.messages:
        lines.append(f"\n… and {len(rows) - size.messages} more, in verdict.json.")
    return "\n".join(["What differs in launch configuration and compiled code; it decides nothing.\n", *lines])


def _table(rows: Sequence[Row], columns: _Columns, size: _Size) -> str:
    headings = columns.row("case", "shape", ["base", "head", "change", "interval", "detects"], "head is at")
    rules = columns.row("---", "---", ["--:", "--:", "--:", "---", "--:"], "--:")
    lines = [f"|  | {' | '.join(headings)} | could promise | pairs | why |", f"|---|{'|'.join(rules)}|--:|--:|---|"]
    for name, case in rows[: size.rows]:
        reached = rate(case.get("work"), case["head_seconds"])
        cells = [case["verdict"], *columns.row(code(name), prose(shape(case)), figures(case), reached)]
        possible = case["could_promise"]
        cells += ["-" if possible is None else f"{100 * possible:.1f} %"]
        cells += [f"{case['pairs']} in {case['replicates']}", prose(case["reason"])]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + _rest(rows, size)


def _not_compared(case: Case) -> bool:
    return case["ratio"] is None and case["failure"] is None and case["role"] != "identical"


def _list(rows: Sequence[Row], size: _Size) -> str:
    lines = []
    for name, case in rows[: size.rows]:
        seconds = f" {duration(case['head_seconds'])}," if case["head_seconds"] is not None else ""
        lines.append(f"- {case['verdict']}: {code(name)}:{seconds} {prose(case['reason'])}")
    return "\n".join(lines) + _rest(rows, size)


def _rest(rows: Sequence[object], size: _Size) -> str:
    return f"\n\n… and {len(rows) - size.rows} more, in verdict.json." if len(rows) > size.rows else ""


def _folded(title: str, body: str, content: Sequence[object] | Mapping[str, object]) -> list[str]:
    return [f"<details><summary>{title}</summary>\n\n{body}\n\n</details>"] if content else []


def _environment(environment: Environment, size: _Size) -> str:
    lines = ["| | |", "|---|---|"]
    for key, value in list(_flat(environment))[: size.rows]:
        lines.append(f"| {code(key)} | {code(value)} |")
    return "\n".join(lines)


def _flat(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, item in value.items():
        if isinstance(item, Mapping):
            yield from _flat(item, f"{prefix}{key}.")
        elif item is not None:
            yield f"{prefix}{key}", str(item)


def _how(verdict: Verdict) -> str:
    config = verdict["config"]
    took = time_by_part(verdict)
    phrase, device = noise_in_words(verdict)
    return (
        f"*interval*: what {config['miss']:.0%} on each side does not exclude. *detects*: the smallest slowdown that a "
        f"case's noise lets the gate call with {config['power']:.0%} certainty. *could promise*: the finest `promise` "
        f"that its noise would have supported. *pairs*: one turn of base and one of head, "
        f"in so many fresh pairs of processes. Chance of any false regression in a run: "
        f"{100 * verdict['false_alarm_budget']:g} %. Noise: {prose(phrase)}{f' {code(device)}' if device else ''}. Measured from {code(verdict['created'])} to "
        f"{code(verdict['finished'] or 'an interruption')}{f' ({prose(took)})' if took else ''}. "
        f"The same verdict from the same samples: {code('tilegate judge samples.json')}."
    )
