"""A profile document as rows and sentences, for a terminal and for a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def rows(document: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return the table: kernel and term, base (if there is one), head, change, counter. Times add up to rates."""
    roles = [role for role in ("base", "head") if role in document]
    table: list[tuple[str, ...]] = []
    for index, kernel in enumerate(document["head"]["kernels"]):
        several = len(document["head"]["kernels"]) > 1
        for name, reading in kernel["terms"].items():
            values = [_of(document[role], index, name) for role in roles]
            if all(value is None for value in values):
                continue
            change = ""
            if len(values) == 2 and values[0] is not None and values[1] is not None:
                if reading["unit"] == "%":
                    change = f"{values[1] - values[0]:+.1f} points"
                elif values[0]:
                    change = f"{100 * (values[1] / values[0] - 1):+.1f} %"
            label = f"{kernel['kernel']}: {name}" if several else name
            shown = [_value(value, reading["unit"]) for value in values]
            table.append((label, *shown, *([change] if len(roles) == 2 else []), reading["counter"]))
    return table


def limits(document: Mapping[str, Any]) -> list[str]:
    """Return a sentence a kernel of each side: which unit is busiest, and how its traffic compares with the ideal."""
    roles = [role for role in ("base", "head") if role in document]
    return [
        f"{role}: {sentence}" if len(roles) > 1 else sentence for role in roles for sentence in _limits(document[role])
    ]


def _limits(side: Mapping[str, Any]) -> list[str]:
    sentences = []
    for kernel in side["kernels"]:
        limit = kernel["limit"]
        if limit is None:
            sentences.append(f"{kernel['kernel']}: no share of a peak was read, so the limiting unit is not known.")
        elif limit["busy"] < 50:
            sentences.append(
                f"{kernel['kernel']}: no unit is busy half of the time (the busiest: {limit['unit']}, {limit['busy']:.0f} %); "
                "latency, too few waves or an uneven grid limit it."
            )
        else:
            sentences.append(f"{kernel['kernel']}: limited by {limit['unit']}, busy {limit['busy']:.0f} % of the time.")
    ideal = side["work"].get("bytes")
    moved = [
        kernel["terms"][f"bytes {way} memory"]["value"]
        for kernel in side["kernels"]
        for way in ("read from", "written to")
    ]
    if ideal and all(value is not None for value in moved):
        sentences.append(
            f"Memory traffic: {sum(moved):,.0f} bytes, {sum(moved) / ideal:.2f} times the ideal {ideal:,.0f}."
        )
    return sentences


def _of(side: Mapping[str, Any], index: int, term: str) -> float | None:
    kernels: Sequence[Mapping[str, Any]] = side["kernels"]
    value = kernels[index]["terms"][term]["value"] if index < len(kernels) else None
    return None if value is None else float(value)


def _value(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    if unit in ("%", "us"):
        return f"{value:.1f} {unit}"
    return f"{value:,.0f} {unit}".strip()
