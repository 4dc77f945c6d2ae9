"""How well it is measured: the noisiest cases, and each device's health over time."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from tilegate.history.records import Run
from tilegate.history.view import Case
from tilegate.site.cases import seconds_of
from tilegate.site.output import floats

WEEK = 7 * 24 * 3600


def figures(cases: Sequence[Case], runs: Sequence[Run], environments: Mapping[str, int]) -> dict[str, Any]:
    """Return what the page on noise shows, as plain numbers; None: not known.

    Returns:
        `cases`: for each case the median error of its comparisons (log ratio), the pairs of the median comparison, the spread
        between cards, how many comparisons were left out because others contradict them. `weeks`: for each environment, week
        by week, how many comparisons there were, their median error, how many were left out, and the scatter factor: the root
        mean square of the residuals in standard errors, over comparisons that others check. It is 1 where the errors that are
        stated are the errors that are made. `runs`: for each environment the health of each gate, as its record has it.
    """
    weeks: dict[int, dict[int, _Week]] = {}
    for case in cases:
        for segment in case.segments:
            residuals = dict(zip((edge.name for edge in segment.network.edges), segment.network.residuals, strict=True))
            for edge in segment.edges:
                created = seconds_of(edge.record["created"])
                if created is None:
                    continue
                week = weeks.setdefault(environments.get(segment.environment, -1), {}).setdefault(
                    created // WEEK * WEEK, _Week()
                )
                week.errors.append(edge.record["error"])
                week.flagged += edge.flagged is not None
                residual = residuals.get(edge.name, math.inf)
                if math.isfinite(residual):
                    week.residuals.append(residual)
    return {
        "cases": {
            "error": [_median([e.record["error"] for s in case.segments for e in s.edges]) for case in cases],
            "pairs": [_median([e.record["pairs"] for s in case.segments for e in s.edges]) for case in cases],
            "spread": [max((s.network.card_spread for s in case.segments), default=None) for case in cases],
            "flagged": [sum(len(s.network.flagged) for s in case.segments) for case in cases],
        },
        "weeks": {str(environment): _columns(found) for environment, found in sorted(weeks.items())},
        "runs": _runs(runs, environments),
    }


_HEALTH = ("shift", "worst", "scatter", "bias")
_COUNTS = ("controls", "pairs", "disturbed")


def _runs(runs: Sequence[Run], environments: Mapping[str, int]) -> dict[str, dict[str, list[Any]]]:
    made: dict[str, dict[str, list[Any]]] = {}
    for run in runs:
        created = seconds_of(run["created"])
        if created is None or run["environment"] not in environments:
            continue
        columns = made.setdefault(str(environments[run["environment"]]), {})
        for key, value in {"created": created, **{key: run[key] for key in (*_HEALTH, *_COUNTS)}}.items():  # type: ignore[literal-required]
            columns.setdefault(key, []).append(value)
    return made


def packed(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same in columns for the page: fractions as Float32."""

    def columns(each: Mapping[str, Any]) -> dict[str, Any]:
        return {key: floats(values) if key in _FRACTIONS else values for key, values in each.items()}

    return {
        "cases": columns(found["cases"]),
        **{part: {name: columns(each) for name, each in found[part].items()} for part in ("weeks", "runs")},
    }


_FRACTIONS = ("error", "spread", *_HEALTH)


class _Week:
    def __init__(self) -> None:
        self.errors: list[float] = []
        self.residuals: list[float] = []
        self.flagged = 0


def _columns(found: Mapping[int, _Week]) -> dict[str, Any]:
    weeks = sorted(found.items())
    return {
        "week": [week for week, _ in weeks],
        "count": [len(each.errors) for _, each in weeks],
        "flagged": [each.flagged for _, each in weeks],
        "error": [_median(each.errors) for _, each in weeks],
        "scatter": [
            math.sqrt(statistics.fmean(r * r for r in each.residuals)) if each.residuals else None for _, each in weeks
        ],
    }


def _median(values: Sequence[float]) -> float | None:
    return float(statistics.median(values)) if values else None
