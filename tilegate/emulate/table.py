"""Emulated kernels as text: verdicts, findings as a kernel's author reads them, counters by kernel and by line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tilegate import emulator
from tilegate.emulate import trial
from tilegate.emulate.survey import Kernel
from tilegate.showing.markup import plain

_MOST_FINDINGS = 5  # of one kernel
_LONGEST_FINDING = 2000
_LONGEST_TEXT = 140  # of a line of generated source within a finding; such lines run to 600 characters
_LONGEST_LINE = 90

COLUMNS: tuple[tuple[str, str], ...] = (
    ("MFMA", "mfma"),
    ("LDS reads", "lds_reads"),
    ("LDS writes", "lds_writes"),
    ("LDS bytes", "lds_bytes"),
    ("~LDS cycles", "lds_cycles_modelled"),
    ("ideal", "lds_cycles_ideal"),
    ("loads", "global_loads"),
    ("stores", "global_stores"),
    ("bytes", "global_bytes"),
    ("lines", "lines_requested"),
    ("least", "lines_least"),
    ("barriers", "barriers"),
    ("exchanges", "exchanges"),
    ("atomics", "atomics"),
)
_LEGEND = (
    "Instructions of whole waves. ~LDS cycles: a model, with bank conflicts; ideal: without. lines: of 128 bytes, as "
    "requested; least: that as many bytes need.\nbarriers: executed, once for each workgroup."
)


def render(kernels: Mapping[str, Sequence[Kernel]], verdict: str, *, counters: bool) -> str:
    """Return the survey: a table for each chip, findings and hints under the kernels that have them, the verdict last.

    Args:
        kernels: by chip.
        verdict: of all.
        counters: show them, by kernel and by line, of each kernel's first problem.
    """
    lines = []
    for arch, found in kernels.items():
        lines.append(f"{arch}, emulated   {emulator.toolchain().version}")
        rows = [("verdict", "kernel", "problems", "runs"), *map(_row, found)]
        shown = columns(rows)
        lines.append(shown[0])
        for kernel, line in zip(found, shown[1:], strict=True):
            lines += [line, *below(kernel)]
        lines.append("")
        if counters:
            for kernel in found:
                lines += [*_counters(kernel), ""]
    if counters:
        lines += [_LEGEND, ""]
    count = sum(map(len, kernels.values()))
    return "\n".join([*lines, f"{verdict.upper()}: {_sentence(kernels)} {count} kernel{'s' * (count != 1)} executed."])


def columns(rows: Sequence[Sequence[str]], right: int = 99) -> list[str]:
    """Return rows as lines with aligned columns; those from number `right` on are aligned to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(
            cell.rjust(width) if column >= right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def findings_of(kernel: Kernel) -> Iterator[tuple[str, str]]:
    """Return each different finding of a kernel: its paragraph with long lines cut, and the problems that show it."""
    places: dict[tuple[Any, ...], list[tuple[str, str]]] = {}
    for problem, finding in kernel.findings:
        other = finding["other"] or {}
        # A race at two lines is one race whatever the problem; a wrong result says other numbers each time.
        key = (finding["kind"], finding["line"], other.get("line"))
        message, *lines = str(finding["shown"]).split("\n")
        shown = "\n".join([message, *(_cut(line) for line in lines)])
        places.setdefault(key, []).append((problem, shown))
    for seen in places.values():
        problems = list(dict.fromkeys(problem for problem, _ in seen))
        more = f" and {len(problems) - 1} more of {len(kernel.trials)} problems" if len(problems) > 1 else ""
        yield seen[0][1], f"{problems[0]}{more}"


def _cut(line: str) -> str:
    """Shorten a line of source, which stands indented, in its middle: what is accessed is at its beginning, where at its end."""
    half = _LONGEST_TEXT // 2
    whole = len(line) <= _LONGEST_TEXT or not line.startswith(" ")
    return line if whole else f"{line[:half]} … {line[-half:]}"


def _row(kernel: Kernel) -> tuple[str, ...]:
    runs = sum(done.runs for done in kernel.trials)
    return kernel.verdict, plain(kernel.id), str(len(kernel.trials)), str(runs)


def below(kernel: Kernel) -> Iterator[str]:
    """Return the lines that stand under a kernel: why it was not executed, findings, hints."""
    if kernel.failure is not None:
        yield from _indented(f"not executed ({kernel.failure[0]}): {kernel.failure[1]}")
    found = list(findings_of(kernel))
    for paragraph, where in found[:_MOST_FINDINGS]:
        yield from _indented(paragraph)
        yield f"      at {plain(where)}"
    if len(found) > _MOST_FINDINGS:
        yield f"    and {len(found) - _MOST_FINDINGS} findings more; --json has all"
    for hint in kernel.hints:
        yield f"    hint: line {hint['line']} {plain(hint['text'])}: {plain(hint['message'])}"


def _indented(text: str) -> Iterator[str]:
    return (f"    {line}" for line in plain(text, lines=True, limit=_LONGEST_FINDING).split("\n"))


def _counters(kernel: Kernel) -> Iterator[str]:
    if not kernel.trials or not kernel.trials[0].counters:
        return
    first = kernel.trials[0]
    for name, counters in first.counters.items():
        yield f"{plain(kernel.id)} {plain(name)}, {plain(first.problem)}: {counters['workgroups']} workgroups"
        rows = [("line", *(heading for heading, _ in COLUMNS), "")]
        for line in counters["lines"]:
            if any(line[key] for _, key in COLUMNS):
                rows.append((str(line["line"] or "?"), *_cells(line), plain(line["text"], limit=_LONGEST_LINE)))
        rows.append(("all", *_cells(counters["total"]), ""))
        # The text of a line stands last and starts where it may.
        numbers = columns([row[:-1] for row in rows], right=0)
        yield from (f"  {line}  {row[-1]}".rstrip() for line, row in zip(numbers, rows, strict=True))
        for title, key in (("unique", "unique_bytes_per_xcd"), ("requested", "requested_bytes_per_xcd")):
            yield f"  {title} bytes by XCD: {' '.join(f'{value:,}' for value in counters[key])}"


def _cells(counts: Mapping[str, Any]) -> list[str]:
    return [f"{counts[key]:,}" for _, key in COLUMNS]


def _sentence(kernels: Mapping[str, Sequence[Kernel]]) -> str:
    every = [kernel for found in kernels.values() for kernel in found]
    broken = [kernel for kernel in every if kernel.verdict == "broken"]
    unclear = [kernel for kernel in every if kernel.verdict == "inconclusive"]
    if broken:
        kinds = {found["kind"] for kernel in broken for _, found in kernel.findings if found["kind"] != trial.UNKNOWN}
        return f"{len(broken)} broken ({', '.join(sorted(kinds))}) of"
    if unclear:
        return f"{len(unclear)} could not be judged of"
    return "nothing wrong was found in" if every else "nothing wrong could be found in"
