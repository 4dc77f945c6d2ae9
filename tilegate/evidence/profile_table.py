"""A profile document as rows and sentences, for a terminal and for a report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tilegate.evidence.environment import leaves
from tilegate.judging.roofline import peak_of


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
            label = f"{kernel['kernel']}: {name}" if several else name
            table.append(_row(label, values, reading["unit"], reading["counter"]))
    return [*table, *_beside(document, roles)]


def notes(document: Mapping[str, Any]) -> list[str]:
    """Return why figures that would stand beside the counters are not there, and where the roofline is."""
    roles = [role for role in ("base", "head") if role in document]
    missing = [_emulated(document, role) for role in roles]
    missing += [found for role in roles for found in document[role].get("static", {}).values()]
    said = [each for each in missing if isinstance(each, str)]
    if document.get("target") == "hip":
        said.append(
            "How rocprofv3 is called and read follows its documentation: nobody had run it on hardware when this was written, so "
            "hold these numbers against the tool's own"
        )
    return [*dict.fromkeys(f"{each[:1].upper()}{each[1:].rstrip('.')}." for each in said), *_roofline(document, roles)]


def _beside(document: Mapping[str, Any], roles: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield what the compiled code says, then what the emulator counts on a small problem."""
    compiled = [_numbers(document[role].get("static", {})) for role in roles]
    for name in dict.fromkeys(name for each in compiled for name in each):
        yield _row(name, [each.get(name, 0.0) for each in compiled], "", "compiled code")
    found = [_emulated(document, role) for role in roles]
    counted: list[Mapping[str, Any]] = [
        each if isinstance(each, Mapping) else {"total": {}, "problem": ""} for each in found
    ]
    for name in dict.fromkeys(name for each in counted for name, value in each["total"].items() if value):
        values = [each["total"].get(name) for each in counted]
        yield _row(f"emulated {name}".replace("_", " "), values, "", f"emulator, problem {counted[-1]['problem']}")


def _emulated(document: Mapping[str, Any], role: str) -> Any:
    missing = "the emulator's counts were not recorded"
    if document.get("target") == "cuda":
        missing = "the emulator executes AMD's code alone: there are no counts of it beside these"
    return document[role].get("emulated", missing)


def _numbers(static: Mapping[str, Any]) -> dict[str, float]:
    """Return a kernel's resources, and what its main loop holds; a name for each kernel only where there are several."""
    found = {}
    for kernel, figures in static.items():
        for place, value in leaves(figures) if isinstance(figures, Mapping) else ():
            if not isinstance(value, int | float) or isinstance(value, bool):
                continue
            if (value or "." not in place) and not place.startswith(("counts.", "loop.steady.")):
                name = place.replace("loop.", "main loop: ").replace("_", " ")
                found[f"{kernel}: {name}" if len(static) > 1 else name] = float(value)
    return found


def _roofline(document: Mapping[str, Any], roles: Sequence[str]) -> Iterator[str]:
    peak = peak_of(document["environment"])
    for role in roles:
        times = [kernel["terms"]["time"]["value"] for kernel in document[role]["kernels"]]
        flops, moved = (document[role]["work"].get(name) for name in ("flops", "bytes"))
        if peak is None or not flops or not moved or None in times or not sum(times):
            continue
        seconds = sum(times) / 1e6
        bound = "arithmetic" if flops / peak.flops > moved / peak.bandwidth else "memory"
        yield (
            f"{f'{role}: roofline' if len(roles) > 1 else 'Roofline'}: {flops / seconds / 1e12:,.0f} TFLOP/s, "
            f"{100 * flops / seconds / peak.flops:.0f} % of the peak of the device's fastest number format; the bytes that have to "
            f"move take {100 * moved / seconds / peak.bandwidth:.0f} % of the memory's peak. The bound is {bound}."
        )


def _row(label: str, values: Sequence[float | None], unit: str, source: str) -> tuple[str, ...]:
    change = ""
    if len(values) == 2 and values[0] is not None and values[1] is not None:
        if unit == "%":
            change = f"{values[1] - values[0]:+.1f} points"
        elif values[0]:
            change = f"{100 * (values[1] / values[0] - 1):+.1f} %"
    return (label, *(_value(value, unit) for value in values), *([change] if len(values) == 2 else []), source)


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
