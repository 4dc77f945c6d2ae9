"""Waivers: known slowdowns that may pass for a while, each with a limit, a last day and a reason.

They stand in `tilegate-waivers.toml` at the root of the repository:

    [waiver.decode-until-split-k]
    cases = "attention.Decode.*"           # glob over case ids (fnmatch; a literal "[" is written "[[]")
    ceiling = 8.0                          # percent: a slowdown up to this is waived, one beyond it fails
    isa = ["occupancy"]                    # rules of `tilegate isa diff` whose finding is waived
    expires = 2026-09-30                   # the last day on which it counts
    reason = "the split-K kernel replaces this one"
    link = "https://github.com/example/kernels/issues/12"

`ceiling` speaks of times, `isa` of compiled code; one of the two must be there. Everything else is required. Those of the
base count; what the change itself adds or alters counts only if whoever starts the run allows it.
"""

from __future__ import annotations

import datetime
import difflib
import fnmatch
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from tilegate.files import UsageError, shown
from tilegate.schemas import samples

FILE = "tilegate-waivers.toml"

ISA_RULES = ("spills", "scratch", "occupancy")
"""The rules of `tilegate isa diff` that fail a run (tilegate.isa.rules); a test holds the two together."""

Origin = Literal["base", "head"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,59}")
_KEYS = ("cases", "ceiling", "isa", "expires", "reason", "link")
_LONGEST = 500  # characters of a reason or a link
_LONGEST_GLOB = 1000
_MOST = 500
_HIGHEST = 100.0  # percent; what takes more than twice the time is not a slowdown to live with


@dataclass(frozen=True)
class Waiver:
    """One waiver.

    Attributes:
        name: unique in its file; letters, digits, "-" and "_".
        cases: glob over case ids.
        ceiling: percent; a slowdown up to this is waived. None: it says nothing about times.
        isa: rules of `tilegate isa diff` whose finding is waived.
        expires: the last day on which it counts.
        reason, link: why, and where it is followed up.
        origin: the side whose file it stands in.
    """

    name: str
    cases: str
    ceiling: float | None
    isa: tuple[str, ...]
    expires: datetime.date
    reason: str
    link: str
    # The same terms are the same waiver, whichever side's file holds them.
    origin: Origin = field(compare=False)

    def covers(self, case: str) -> bool:
        """Return whether the glob fits the id of a case (or of a kernel)."""
        return fnmatch.fnmatchcase(case, self.cases)

    def to_json(self) -> samples.Waiver:
        """Return plain values, as schemas/samples-1.json has them; `from_samples` reads them back."""
        return {
            "name": self.name,
            "cases": self.cases,
            "ceiling": self.ceiling,
            "isa": list(self.isa),
            "expires": self.expires.isoformat(),
            "reason": self.reason,
            "link": self.link,
            "origin": self.origin,
        }


@dataclass(frozen=True)
class ResolvedWaivers:
    """Which waivers count on one day.

    Attributes:
        counting: those that do.
        expired: those that would, had their last day not passed. Any of them fails the run.
        refused: the head's additions and alterations, which nobody allowed.
    """

    counting: tuple[Waiver, ...] = ()
    expired: tuple[Waiver, ...] = ()
    refused: tuple[Waiver, ...] = ()

    def about(self, subject: Literal["ceiling", "isa"]) -> ResolvedWaivers:
        """Return only those that speak of times ("ceiling") or of compiled code ("isa")."""
        return ResolvedWaivers(
            *(
                tuple(w for w in group if getattr(w, subject) not in (None, ()))
                for group in (self.counting, self.expired, self.refused)
            )
        )


def parse(text: str, origin: Origin, where: str = FILE) -> tuple[Waiver, ...]:
    """Read the text of a waiver file.

    Raises:
        UsageError: no TOML, or not such a file; the message names the file, the line or the waiver, and the key.
    """
    try:
        document = tomllib.loads(text.removeprefix("\ufeff"))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{where} is not valid TOML: {error}") from None
    except RecursionError:
        raise UsageError(f"{where} is nested too deeply and was not read") from None
    if unknown := [key for key in document if key != "waiver"]:
        raise UsageError(f"{where}: unknown key {shown(unknown[0])}; it holds tables [waiver.NAME] and nothing else")
    tables = document.get("waiver", {})
    if not isinstance(tables, dict):
        raise UsageError(f"{where}: each waiver is a table [waiver.NAME] with a name of its own, not [[waiver]]")
    if len(tables) > _MOST:
        raise UsageError(f"{where}: {len(tables)} waivers; more than {_MOST} are not read")
    return tuple(_waiver(name, table, origin, f"{where}{_line(text, name)}") for name, table in tables.items())


def of_revisions(
    base: str | None,
    head: str | None,
    *,
    names: tuple[str, str] = (f"{FILE} of the base", f"{FILE} of the head"),
) -> tuple[Waiver, ...]:
    """Read the waiver files of both revisions, None where one has none; `names` is how messages call them.

    Raises:
        UsageError: as `parse`.
    """
    found: list[Waiver] = []
    sides: tuple[tuple[Origin, str | None], ...] = (("base", base), ("head", head))
    for (origin, text), name in zip(sides, names, strict=True):
        if text is not None:
            found += parse(text, origin, name)
    return tuple(found)


def from_samples(values: Iterable[samples.Waiver]) -> tuple[Waiver, ...]:
    """Read back what `to_json` wrote, from a document that fits schemas/samples-1.json.

    Raises:
        UsageError: what no waiver file could say, as in `parse`, or the same waiver twice.
    """
    found: dict[tuple[str, str], Waiver] = {}
    for value in values:
        name, origin, where = value["name"], value["origin"], "waivers in the samples"
        table = {key: said for key, said in value.items() if key in _KEYS and said not in (None, [])}
        try:
            table["expires"] = datetime.date.fromisoformat(value["expires"])
        except ValueError:
            raise UsageError(f"{where}: waiver.{name}.expires: {value['expires']} is no date") from None
        if (name, origin) in found:
            raise UsageError(f"{where}: waiver.{name} of the {origin} is there twice")
        found[name, origin] = _waiver(name, table, origin, where)
    return tuple(found.values())


def resolve(waivers: Sequence[Waiver], *, today: datetime.date, allow_head: bool) -> ResolvedWaivers:
    """Decide which waivers count.

    Those of the base do, until their last day has passed. Where the head has a new one, or one of the same name on
    other terms, the head's counts if `allow_head`, and otherwise is refused. An expired waiver of the base that the head
    no longer has fails nothing: taking it out is what was asked for.

    Args:
        waivers: of both sides.
        today: the day of the run.
        allow_head: what the change brings counts, too.
    """
    base = {w.name: w for w in waivers if w.origin == "base"}
    head = {w.name: w for w in waivers if w.origin == "head"}
    counting, expired, refused = [], [], []
    for name in [*base, *(name for name in head if name not in base)]:
        old, new = base.get(name), head.get(name)
        waiver = old
        if new is not None and new != old:
            if allow_head:
                waiver = new
            else:
                refused.append(new)
        if waiver is None:
            continue
        if today <= waiver.expires:
            counting.append(waiver)
        elif new is not None:
            expired.append(waiver)
    return ResolvedWaivers(tuple(counting), tuple(expired), tuple(refused))


def highest(waivers: Iterable[Waiver], case: str) -> Waiver | None:
    """Return the waiver with the highest ceiling among those that cover a case, or None."""
    covering = [w for w in waivers if w.ceiling is not None and w.covers(case)]
    return max(covering, key=lambda w: w.ceiling or 0.0, default=None)


def for_finding(waivers: Iterable[Waiver], rule: str, cases: Sequence[str], kernel: str) -> Waiver | None:
    """Return a waiver for a finding of `tilegate isa diff`, or None.

    It must name the rule and cover every case that runs the kernel, or the kernel by its id: leave for one case is none
    for the others that share its kernel.
    """
    for waiver in waivers:
        if rule in waiver.isa and (waiver.covers(kernel) or (cases and all(map(waiver.covers, cases)))):
            return waiver
    return None


def _waiver(name: str, table: object, origin: Origin, where: str) -> Waiver:
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{where}: waiver name {shown(name)}: it must be 1 to 60 letters, digits, '-' and '_', "
            "and begin with a letter or a digit"
        )
    at = f"{where}: waiver.{name}"
    if not isinstance(table, dict):
        raise UsageError(f"{at} must be a table with the keys {', '.join(_KEYS)}")
    for key in table:
        if key not in _KEYS:
            near = difflib.get_close_matches(key, _KEYS, n=1)
            hint = f", did you mean {near[0]!r}?" if near else ""
            raise UsageError(f"{at}: unknown key {shown(key)}{hint}; known keys: {', '.join(_KEYS)}")
    for key in ("cases", "expires", "reason", "link"):
        if key not in table:
            raise UsageError(f"{at}.{key} is missing")
    if not {"ceiling", "isa"} & set(table):
        raise UsageError(f"{at} waives nothing: it needs ceiling (percent, for times) or isa (rules of isa diff)")
    return Waiver(
        name=name,
        cases=_text(table, "cases", at, _LONGEST_GLOB),
        ceiling=_ceiling(table, at),
        isa=_isa(table, at),
        expires=_day(table, at),
        reason=_text(table, "reason", at, _LONGEST),
        link=_text(table, "link", at, _LONGEST),
        origin=origin,
    )


def _text(table: Mapping[str, object], key: str, at: str, longest: int) -> str:
    value = table[key]
    if not isinstance(value, str) or not value.strip() or len(value) > longest or not value.isprintable():
        raise UsageError(f"{at}.{key} must be one line of 1 to {longest} printable characters, not {shown(value)}")
    if key == "link" and not value.startswith(("https://", "http://")):
        raise UsageError(f"{at}.link must be an address that begins with https://, not {shown(value)}")
    return value


def _ceiling(table: Mapping[str, object], at: str) -> float | None:
    if "ceiling" not in table:
        return None
    value = table["ceiling"]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= _HIGHEST:
        raise UsageError(f"{at}.ceiling must be a number of percent above 0, at most {_HIGHEST:g}, not {shown(value)}")
    return float(value)


def _isa(table: Mapping[str, object], at: str) -> tuple[str, ...]:
    if "isa" not in table:
        return ()
    value = table["isa"]
    if not isinstance(value, list) or not value or not all(rule in ISA_RULES for rule in value):
        raise UsageError(f"{at}.isa must be a list of {', '.join(ISA_RULES)}, not {shown(value)}")
    return tuple(dict.fromkeys(value))


def _day(table: Mapping[str, object], at: str) -> datetime.date:
    value = table["expires"]
    if isinstance(value, datetime.datetime) or not isinstance(value, datetime.date):
        raise UsageError(f"{at}.expires must be a date without quotes, such as 2026-12-31, not {shown(value)}")
    return value


def _line(text: str, name: str) -> str:
    """Return ", line N" of a waiver's table, or nothing if it is written in a form that is not looked for."""
    header = re.compile(rf"""^[ \t]*\[[ \t]*waiver[ \t]*\.[ \t]*(["']?){re.escape(name)}\1[ \t]*\]""", re.MULTILINE)
    found = header.search(text)
    return "" if found is None else f", line {text.count(chr(10), 0, found.start()) + 1}"
