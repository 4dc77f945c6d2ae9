"""Text that comes from a commit, made harmless for a page or a terminal; times, changes and rates as people read them.

Names of cases, messages of compilers and revisions may hold anything. Nothing of them may act: in Markdown they stand in
code spans and fenced blocks that they cannot close, in the terminal without control characters.
"""

from __future__ import annotations

import re
import shlex
import unicodedata

from tilegate.schemas.samples import Work

LONGEST_NAME = 160
LONGEST_MESSAGE = 2000

_HIDDEN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")


def plain(text: str, *, lines: bool = False, limit: int = LONGEST_NAME) -> str:
    """Return `text` without anything that acts on a terminal or hides in a page, and not longer than `limit`.

    Control, formatting (bidirectional too), private and unassigned characters are written out as escapes. Line ends
    stay if `lines`, otherwise they become spaces.
    """
    text = re.sub(r"\r\n?", "\n", text)
    if not lines:
        text = " ".join(text.split("\n"))
    text = "".join(map(_shown, _cut(text, limit)))
    return _cut(text, limit)  # one character may have become ten


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit // 2]} … {text[len(text) - (limit - limit // 2 - 3) :]}"


def _shown(character: str) -> str:
    if character == "\t":
        return "    "
    hidden = character != "\n" and unicodedata.category(character) in _HIDDEN
    return f"\\u{{{ord(character):x}}}" if hidden else character


def code(text: str, limit: int = LONGEST_NAME) -> str:
    """Return `text` as a Markdown code span that it cannot leave, not even inside a table."""
    # A table's row is cut at every pipe before code spans are looked for, and an escaped one can be un-escaped.
    text = plain(text, limit=limit).replace("|", "\N{BOX DRAWINGS LIGHT VERTICAL}") or " "
    fence = "`" * (_longest_run(text) + 1)
    return f"{fence} {text} {fence}" if "`" in text or text != text.strip() else f"{fence}{text}{fence}"


def block(text: str, language: str = "text", limit: int = LONGEST_MESSAGE) -> str:
    """Return `text` as a fenced Markdown block that it cannot close."""
    text = plain(text, lines=True, limit=limit)
    fence = "`" * max(3, _longest_run(text) + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def prose(text: str) -> str:
    """Escape text of our own, which holds nothing of a commit, so that it reads as it is written."""
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", text)


def duration(seconds: float | None) -> str:
    """Return a time with four digits and the unit that suits it."""
    if seconds is None:
        return "-"
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.4g} {unit}"
    return f"{seconds / 1e-9:.4g} ns"


def change(ratio: float | None) -> str:
    """Return head / base as a change in percent, signed."""
    return "-" if ratio is None else f"{100 * (ratio - 1):+.1f} %"


def rate(work: Work | None, seconds: float | None) -> str:
    """Return tokens a second, or else operations, or else bytes: the first that the work states."""
    if not work or seconds is None:
        return "-"
    if "tokens" in work:
        return f"{work['tokens'] / seconds:.4g} tokens/s"
    if "flops" in work:
        return f"{work['flops'] / seconds / 1e12:.4g} TFLOP/s"
    return f"{work['bytes'] / seconds / 1e9:.4g} GB/s" if "bytes" in work else "-"


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)


def quoted(word: str) -> str:
    """Quote a word for a shell so that it can be read: the id of a case is full of single quotes."""
    plainly = shlex.quote(word)
    return plainly if plainly == word or set(word) & set('"$`\\!') else f'"{word}"'
