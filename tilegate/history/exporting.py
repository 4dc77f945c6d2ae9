"""A history as a table for other tools: one row for each commit and case, in CSV, JSON or Parquet."""

from __future__ import annotations

import csv
import io
import json
import math
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tilegate.files import UsageError, write_text
from tilegate.history.view import Case, History, Segment

FORMATS = ("csv", "json", "parquet")
TABLES = ("levels", "comparisons", "observations", "runs")

Row = dict[str, str | float | int | None]


def rows(history: History, table: str) -> Iterator[Row]:
    """Yield the rows of a table; all have the same keys.

    Args:
        history: of a store.
        table: "levels": for each commit and case, ln against the reference of its segment, with its error, and the commit by whose
            comparison it is known; "comparisons": the edges; "observations": times of independent runs; "runs": how fit
            the machine was in each gate.
    """
    if table == "runs":
        yield from ({key: run.get(key) for key in COLUMNS["runs"]} for run in history.runs)  # type: ignore[misc]
        return
    for case in history.cases.values():
        yield from {"levels": _levels, "comparisons": _comparisons, "observations": _observations}[table](history, case)


def write(history: History, path: Path, table: str, format: str) -> int:
    """Write a table to a file; return how many rows it has.

    Raises:
        UsageError: it cannot be written, or Parquet lacks its library.
    """
    found = list(rows(history, table))
    if format == "json":
        write_text(path, json.dumps(found, indent=0, allow_nan=False) + "\n")
    elif format == "csv":
        text = io.StringIO()
        writer = csv.DictWriter(text, COLUMNS[table], lineterminator="\n")
        writer.writeheader()
        writer.writerows(found)
        write_text(path, text.getvalue())
    else:
        _write_parquet(found, path, table)
    return len(found)


COLUMNS: Mapping[str, Mapping[str, type]] = {
    "levels": {
        "case": str, "method": str, "place": int, "commit": str, "date": str, "version": str, "failed": str, "environment": str,
        "level": float, "error": float, "ratio": float, "low": float, "high": float, "seconds": float, "reference": str,
    },
    "comparisons": {
        "case": str, "method": str, "base": str, "head": str, "base_commit": str, "head_commit": str, "environment": str, "card": str,
        "created": str, "log_ratio": float, "error": float, "ratio": float, "low": float, "high": float, "flagged": float,
        "replicates": int, "pairs": int, "base_seconds": float, "head_seconds": float,
    },
    "observations": {
        "case": str, "method": str, "place": int, "commit": str, "environment": str, "created": str, "source": str, "seconds": float,
        "error": float,
    },
    "runs": {
        "run": str, "created": str, "environment": str, "card": str, "base_commit": str, "head_commit": str, "controls": int,
        "shift": float, "worst": float, "scatter": float, "bias": float, "pairs": int, "disturbed": int, "seconds": float,
    },
}  # fmt: skip
"""Of each table, the columns and their types; any may be null. Levels and errors are natural logarithms, times seconds."""


def _levels(history: History, case: Case) -> Iterator[Row]:
    for place, commit in enumerate(history.commits):
        version = case.versions[place]
        row: Row = dict.fromkeys(COLUMNS["levels"])
        row |= {"case": case.id, "method": case.method, "place": place, "commit": commit.sha, "date": commit.date}
        row |= {"version": version, "failed": case.failed.get(place)}
        known = [segment for segment in case.segments if version in segment.levels]
        if version is None or not known:
            yield row
            continue
        for segment in known:
            yield row | _of_segment(segment, version)


def _of_segment(segment: Segment, version: str) -> Row:
    contrast = segment.network.contrast(segment.reference, version)
    low, high = (contrast.low, contrast.high) if contrast is not None else (math.nan, math.nan)
    return {
        "environment": segment.environment,
        "level": segment.levels[version],
        "error": segment.errors[version],
        "ratio": math.exp(segment.levels[version]),
        "low": math.exp(low),
        "high": math.exp(high),
        "seconds": seconds(segment, version),
        "reference": segment.reference,
    }


def seconds(segment: Segment, version: str) -> float | None:
    """Return a version's time on the scale of its segment, so that ratios of times are ratios of levels; None without a scale.

    The scale is the median over the timed versions of what each says of the reference.
    """
    said = sorted(
        segment.seconds[each] / math.exp(level) for each, level in segment.levels.items() if each in segment.seconds
    )
    return said[len(said) // 2] * math.exp(segment.levels[version]) if said else None


def _comparisons(history: History, case: Case) -> Iterator[Row]:
    for segment in case.segments:
        for edge in segment.edges:
            row: Row = {key: edge.record.get(key) for key in COLUMNS["comparisons"]}  # type: ignore[misc]
            row |= {"case": case.id, "ratio": math.exp(edge.record["log_ratio"]), "flagged": edge.flagged}
            row |= {"low": math.exp(edge.contrast.low), "high": math.exp(edge.contrast.high)}
            yield row


def _observations(history: History, case: Case) -> Iterator[Row]:
    for place, found in case.observations.items():
        for record in found:
            row: Row = {key: record.get(key) for key in COLUMNS["observations"]}  # type: ignore[misc]
            yield row | {"case": case.id, "place": place}


def _write_parquet(found: list[Row], path: Path, table: str) -> None:
    try:
        import pyarrow  # noqa: PLC0415 - optional
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError:
        raise UsageError(
            "Parquet needs pyarrow: pip install 'tilekernels[parquet]'; or export CSV or JSON instead"
        ) from None
    types: Mapping[type, Any] = {str: pyarrow.string(), float: pyarrow.float64(), int: pyarrow.int64()}
    schema = pyarrow.schema([(name, types[kind]) for name, kind in COLUMNS[table].items()])
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(pyarrow.Table.from_pylist(found, schema=schema), temporary)
        temporary.replace(path)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}; the file before, if any, is kept") from error
    finally:
        temporary.unlink(missing_ok=True)
