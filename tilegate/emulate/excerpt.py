"""Which lines of the generated source a change made other ones: a wrong value has no line, but mostly comes from these."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher

from tilegate.protocol import Artifact

_WITHOUT_A_LINE = {"wrong-result", "schedule-dependent"}

_MOST_LINES = 12
_MOST_COMPARED = 2000  # lines between the first and the last difference; comparing takes the square of it
_WIDTH = 120
_BEFORE = 40  # of the width, in front of what differs


def wanted_for(kinds: Iterable[str]) -> bool:
    """Return whether findings of these kinds say what is wrong with a result, and none of them a line."""
    found = set(kinds)
    return bool(found) and found <= _WITHOUT_A_LINE


def differing_lines(base: Sequence[Artifact], head: Sequence[Artifact]) -> list[str]:
    """Show what differs between the sources of two launches: "-" with the base's line number, "+" with the head's.

    Args:
        base, head: generated kernels, compared in order.

    Returns:
        A title and up to twelve lines, each cut around what differs in it; text of the commits, not escaped. Nothing if the
        sources are the same.
    """
    shown: list[str] = []
    for before, after in zip(base, head, strict=False):
        found = _of_one(before.source.splitlines(), after.source.splitlines())
        name = f" of {after.name}" if len(head) > 1 else ""
        if found:
            more = [f"  and {len(found) - _MOST_LINES} more"] if len(found) > _MOST_LINES else []
            shown += [f"lines of the generated source{name} that differ from the base's:", *found[:_MOST_LINES], *more]
    return shown


def _of_one(before: list[str], after: list[str]) -> list[str]:
    first = _common(before, after)
    last = _common(before[first:][::-1], after[first:][::-1])
    old, new = before[first : len(before) - last], after[first : len(after) - last]
    if max(len(old), len(new)) > _MOST_COMPARED:
        return [f"  {len(old)} lines from line {first + 1} on became {len(new)}"]
    lines = []
    for kind, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            continue
        for number in range(max(b - a, d - c)):
            one = old[a + number] if number < b - a else None
            other = new[c + number] if number < d - c else None
            start = 0 if one is None or other is None else _common(one, other)
            lines += [] if one is None else [f"  - {first + a + number + 1}: {_window(one, start)}"]
            lines += [] if other is None else [f"  + {first + c + number + 1}: {_window(other, start)}"]
    return lines


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """Length of the common beginning."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((index for index, (a, b) in pairs if a != b), min(len(one), len(other)))


def _window(line: str, start: int) -> str:
    """Return the part of a line around the character `start`."""
    begin = max(0, min(start - _BEFORE, len(line) - _WIDTH))
    part = line[begin : begin + _WIDTH]
    return ("… " if begin else "") + (part if begin else part.strip()) + (" …" if begin + _WIDTH < len(line) else "")
