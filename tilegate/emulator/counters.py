"""What a chip would have executed: instructions of whole waves, for the kernel and for each line of its source."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from tilegate.emulator.places import Places


@dataclass(frozen=True)
class Counts:
    """Instructions of waves and what they moved. Cycles and lines are models: see docs/emulator.md.

    Attributes:
        mfma: matrix instructions.
        lds_reads, lds_writes: LDS instructions.
        lds_bytes: what their lanes read and wrote.
        lds_cycles_ideal, lds_cycles_modelled: cycles of the LDS without and with bank conflicts.
        lds_worst: most words that one bank served at once.
        global_loads, global_stores: instructions on global memory.
        global_bytes: what their lanes read and wrote.
        lines_requested, lines_least: lines of 128 bytes, and the least that as many bytes need.
        exchanges: shuffles, ballots and other exchanges between lanes.
        barriers: executed, one for each workgroup.
        atomics: by work-items.
    """

    mfma: int = 0
    lds_reads: int = 0
    lds_writes: int = 0
    lds_bytes: int = 0
    lds_cycles_ideal: int = 0
    lds_cycles_modelled: int = 0
    lds_worst: int = 0
    global_loads: int = 0
    global_stores: int = 0
    global_bytes: int = 0
    lines_requested: int = 0
    lines_least: int = 0
    exchanges: int = 0
    barriers: int = 0
    atomics: int = 0

    def __add__(self, other: Counts) -> Counts:
        """Add all but the worst conflict, of which the larger stays."""
        values = {f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)}
        return Counts(**{**values, "lds_worst": max(self.lds_worst, other.lds_worst)})


@dataclass(frozen=True)
class LineCounts:
    """Counts of one line of the generated source.

    Attributes:
        line, text: the line; 0 and "" for what has none.
        counts: of it.
    """

    line: int
    text: str
    counts: Counts


@dataclass(frozen=True)
class Counters:
    """Counts of one run.

    Attributes:
        total: of the whole run.
        lines: by line, in order.
        workgroups: that ran.
        requested_bytes_per_xcd: loads of global memory in whole lines, by XCD under round-robin dispatch.
        unique_bytes_per_xcd: each line once.
        line_widths: bytes of one lane's access, by (line, "lds read", "lds write", "global load" or "global store").
    """

    total: Counts
    lines: tuple[LineCounts, ...]
    workgroups: int
    requested_bytes_per_xcd: tuple[int, ...]
    unique_bytes_per_xcd: tuple[int, ...]
    widths: Mapping[tuple[str, int], int]

    def to_json(self) -> dict[str, Any]:
        """Return all of it as JSON has it."""
        return {
            "total": asdict(self.total),
            "workgroups": self.workgroups,
            "requested_bytes_per_xcd": list(self.requested_bytes_per_xcd),
            "unique_bytes_per_xcd": list(self.unique_bytes_per_xcd),
            "widths": {f"{kind} {width}": count for (kind, width), count in self.widths.items()},
            "lines": [{"line": x.line, "text": x.text, **asdict(x.counts)} for x in self.lines],
        }


def counters_of(raw: Mapping[str, Any], places: Places) -> Counters:
    """Sum up what the runtime counted by place."""
    by_line: dict[int, Counts] = defaultdict(Counts)
    texts: dict[int, str] = {}
    widths: dict[tuple[str, int], int] = defaultdict(int)
    for row in raw["places"]:
        (
            site,
            space,
            size,
            loads,
            stores,
            _lanes,
            bytes_,
            ideal,
            modelled,
            lines,
            least,
            worst,
            mfma,
            exchanges,
            barriers,
            atomics,
        ) = row
        common = {"mfma": mfma, "exchanges": exchanges, "barriers": barriers, "atomics": atomics}
        if space == 1:
            counts = Counts(
                lds_reads=loads,
                lds_writes=stores,
                lds_bytes=bytes_,
                lds_cycles_ideal=ideal,
                lds_cycles_modelled=modelled,
                lds_worst=worst,
                **common,
            )
        else:
            counts = Counts(
                global_loads=loads,
                global_stores=stores,
                global_bytes=bytes_,
                lines_requested=lines,
                lines_least=least,
                **common,
            )
        place = places.of(site)
        by_line[place.line] += counts
        texts[place.line] = place.text
        for kind, count in (
            ("lds read" if space == 1 else "global load", loads),
            ("lds write" if space == 1 else "global store", stores),
        ):
            if count:
                widths[kind, size] += count
    total = sum(by_line.values(), Counts())
    per_line = tuple(LineCounts(line, texts[line], by_line[line]) for line in sorted(by_line))
    requested, unique = zip(*raw["xcd"], strict=True)
    return Counters(total, per_line, raw["workgroups"], tuple(requested), tuple(unique), dict(sorted(widths.items())))
