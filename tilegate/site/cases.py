"""A case as the page needs it: in columns, numbers as Float32, so that a shard of many cases stays small."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from tilegate.history.records import Comparison
from tilegate.history.view import Case, Segment
from tilegate.site.output import floats, short


def columns(case: Case, environments: Mapping[str, int]) -> dict[str, Any]:
    """Return a case's history.

    Args:
        case: from the read model.
        environments: the number that the page knows each environment by.

    Returns:
        `start`, `code`: from which place on the branch the case has which code version; -1: not known, or it failed.
        `segments`, the most recently measured first: `versions` of its network with `level` and `part` (component), `edges`.
        Version numbers are the same throughout the case.
    """
    numbers: dict[str, int] = {}
    for version in case.versions:
        if version is not None:
            numbers.setdefault(version, len(numbers))
    start: list[int] = []
    code: list[int] = []
    for place, version in enumerate(case.versions):
        number = -1 if version is None else numbers[version]
        if not code or code[-1] != number:
            start.append(place)
            code.append(number)
    segments = [_segment(segment, numbers, environments) for segment in case.segments]
    content: dict[str, Any] = {
        "id": short(case.id),
        "name": case.id,
        "method": case.method,
        "start": start,
        "code": code,
        "segments": segments,
    }
    if case.names:
        content["before"] = list(case.names)
    if case.failed:
        content["failed"] = _failures(case.failed)
    if case.work:
        content["work"] = {key: value for key, value in case.work.items() if key in ("flops", "bytes", "shape")}
    if case.figures:
        content["figures"] = _figures(case, numbers)
    if case.observations:
        flat = [(place, each) for place, found in case.observations.items() for each in found]
        content["observed"] = {
            "place": [place for place, _ in flat],
            "environment": [environments.get(each["environment"], -1) for _, each in flat],
            "seconds": floats(each["seconds"] for _, each in flat),
            "error": floats(each["error"] for _, each in flat),
            "source": [each["source"] for _, each in flat],
        }
    return content


def _segment(segment: Segment, numbers: dict[str, int], environments: Mapping[str, int]) -> dict[str, Any]:
    records = [edge.record for edge in segment.edges]
    for record in records:  # code that no commit of the branch has: a fork's, or one that was rebased away
        for version in (record["base"], record["head"]):
            numbers.setdefault(version, len(numbers))
    measured = sorted({version for r in records for version in (r["base"], r["head"])}, key=numbers.__getitem__)
    cards = sorted({record["card"] for record in records})
    runs = list(dict.fromkeys(record["run"] for record in records))
    return {
        "environment": environments.get(segment.environment, -1),
        "spread": round(segment.network.card_spread, 6),
        "versions": [numbers[version] for version in measured],
        "part": [segment.network.component[version] for version in measured],
        "level": floats(segment.network.levels[version] for version in measured),
        "seconds": floats(segment.seconds.get(version) for version in measured),
        "reference": numbers[segment.reference],
        "cards": cards,
        "runs": runs,
        "edges": {
            "base": [numbers[record["base"]] for record in records],
            "head": [numbers[record["head"]] for record in records],
            "card": [cards.index(record["card"]) for record in records],
            "run": [runs.index(record["run"]) for record in records],
            "pairs": [record["pairs"] for record in records],
            "replicates": [record["replicates"] for record in records],
            "created": [seconds_of(record["created"]) for record in records],
            "log": floats(record["log_ratio"] for record in records),
            "error": floats(edge.contrast.error for edge in segment.edges),
            "freedom": floats(record["freedom"] for record in records),
            "flagged": floats(edge.flagged for edge in segment.edges),
            "figures": {str(at): found for at, record in enumerate(records) if (found := _different(record))},
            "causes": {str(at): record["cause"] for at, record in enumerate(records) if record.get("cause")},
        },
    }


def _figures(case: Case, numbers: Mapping[str, int]) -> dict[str, dict[str, list[list[float]]]]:
    """By chip and source ("gfx942 isa"), then by figure: [code versions, values]. The newest word on a version counts."""
    known: dict[str, dict[str, dict[int, float]]] = {}
    for place, found in sorted(case.figures.items()):
        version = case.versions[place]
        for chip, stated in found.items() if version is not None else ():
            for name, value in stated.items():
                known.setdefault(chip, {}).setdefault(name, {})[numbers[str(version)]] = value
    return {
        chip: {name: [list(values), list(values.values())] for name, values in sorted(named.items())}
        for chip, named in sorted(known.items())
    }


def _different(record: Comparison) -> dict[str, list[float | None]]:
    """What the suite says of the compiled code, where base and head differ: [base, head] by figure."""
    base, head = (record.get("figures", {}).get(side, {}) for side in ("base", "head"))
    return {
        name: [base.get(name), head.get(name)]
        for name in sorted(base.keys() | head.keys())
        if base.get(name) != head.get(name)
    }


def _failures(failed: Mapping[int, str]) -> dict[str, Any]:
    reasons = list(dict.fromkeys(failed.values()))
    return {"place": list(failed), "reason": [reasons.index(why) for why in failed.values()], "reasons": reasons}


def seconds_of(text: str) -> int | None:
    """Return an ISO 8601 date as seconds since 1970, None if it is none."""
    try:
        when = datetime.datetime.fromisoformat(text)
        if when.tzinfo is None:
            when = when.replace(tzinfo=datetime.UTC)
        return int(when.timestamp())
    except (ValueError, OverflowError):
        return None


def parameters(case: str) -> tuple[str, list[str]]:
    """Split an id into benchmark and parameters, as `name('a', 'b')` is written; what is not is one name."""
    benchmark, bracket, rest = case.partition("(")
    rest = rest.partition(" [method ")[0]
    if not bracket or not rest.endswith(")"):
        return case, []
    return benchmark, _split(rest[:-1])


def _split(text: str) -> list[str]:
    """Cut at commas outside quotes and brackets; take quotes off."""
    found, depth, quote, piece = [], 0, "", ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        elif character == "," and depth == 0:
            found.append(piece)
            piece = ""
            continue
        piece += character
    found.append(piece)
    return [_unquoted(each.strip()) for each in found if each.strip()]


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text


def sampled(levels: Sequence[float | None], count: int = 48) -> list[float | None]:
    """Return at most `count` of the levels, evenly spaced, the last one among them."""
    if len(levels) <= count:
        return list(levels)
    return [levels[round(at * (len(levels) - 1) / (count - 1))] for at in range(count)]
