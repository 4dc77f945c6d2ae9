"""What every page starts from: the cases with head against the last release, the inbox, the devices. One script, small."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilegate.history.inbox import SMALLEST, Entry
from tilegate.history.network import Contrast, quantile
from tilegate.history.view import Case, Commit, History
from tilegate.judging.roofline import peak_of
from tilegate.site.cases import parameters, sampled, seconds_of
from tilegate.site.output import floats, number, short
from tilegate.site.states import State, state_of

_FINE = 256
_MOST_DIFFERENCES = 12


@dataclass(frozen=True)
class Standing:
    """Where a case stands: its newest known code against the last release.

    Attributes:
        case: which.
        place: of the newest commit whose code is known; -1 if none is.
        base: place that it is compared with; -1 if it has no code there.
        contrast: None if nothing connects the two.
        state: of the contrast.
        seconds: of its newest code, None if it was never timed.
    """

    case: Case
    place: int
    base: int
    contrast: Contrast | None
    state: State
    seconds: float | None


def base_of(history: History) -> int:
    """Return the place that head is compared with: the last release, else the oldest commit."""
    release = history.last_release
    # A release that is head itself would compare nothing: the one before it says what it brought.
    if release is not None and release == len(history.commits) - 1:
        earlier = [at for at, commit in enumerate(history.commits[:-1]) if commit.releases]
        return earlier[-1] if earlier else 0
    return 0 if release is None else release


def standing(history: History, case: Case, base: int) -> Standing:
    """Return where a case stands against the commit at `base`."""
    place = next((at for at in reversed(range(len(case.versions))) if case.versions[at] is not None), -1)
    if place < 0:
        return Standing(case, -1, -1, None, "unmeasured", None)
    known = case.versions[base] is not None
    contrast = case.contrast(base, place) if known else None
    return Standing(case, place, base if known else -1, contrast, state_of(contrast), seconds_at(case, place))


def seconds_at(case: Case, place: int) -> float | None:
    """Return the time of a case at a commit: its segment's times, joined by the levels, so that one slow run does not show."""
    version = case.versions[place]
    for segment in case.segments:
        if version is not None and version in segment.levels:
            joined = [
                math.log(seconds) - segment.levels[each]
                for each, seconds in segment.seconds.items()
                if each in segment.levels
            ]
            return math.exp(float(np.median(joined)) + segment.levels[version]) if joined else None
    observed = [each["seconds"] for at, found in case.observations.items() if at <= place for each in found[-1:]]
    return observed[-1] if observed else None


def line_of(case: Case) -> list[float | None]:
    """Return the level at every place in the newest segment, None where it is not known."""
    levels: Mapping[str, float] = case.segments[0].levels if case.segments else {}
    return [None if version is None else levels.get(version) for version in case.versions]


def content(
    history: History,
    standings: Sequence[Standing],
    entries: Sequence[Entry],
    environments: Mapping[str, int],
    base: int,
) -> dict[str, Any]:
    """Return the overview."""
    order = {each.case.id: at for at, each in enumerate(standings)}
    named = [parameters(each.case.id) for each in standings]
    kernels = sorted({benchmark for benchmark, _ in named})
    shown = [_entry(history, entry, order) for entry in entries]
    mentioned = {base, len(history.commits) - 1} | {at for entry in shown for at in (entry["good"], entry["bad"])}
    last = [_last_measured(each.case) for each in standings]
    return {
        "base": base,
        "commits": {"count": len(history.commits), "block": BLOCK},
        "mentioned": {str(at): commit_of(history.commits[at]) for at in sorted(mentioned) if 0 <= at < len(history.commits)},
        "releases": [[name, at] for at, commit in enumerate(history.commits) for name in commit.releases],
        "smallest": SMALLEST,
        "quantiles": [number(quantile(1 / max(at / _FINE, 1e-6)), 7) for at in range(_FINE + 1)],
        "kernels": kernels,
        "cases": {
            "id": [short(each.case.id) for each in standings],
            "name": [each.case.id for each in standings],
            "kernel": [kernels.index(benchmark) for benchmark, _ in named],
            "parameters": [values for _, values in named],
            "state": [each.state for each in standings],
            "place": [each.place for each in standings],
            "log": floats(_of(each.contrast, "estimate") for each in standings),
            "low": floats(_of(each.contrast, "low") for each in standings),
            "high": floats(_of(each.contrast, "high") for each in standings),
            "error": floats(_of(each.contrast, "error") for each in standings),
            "seconds": floats(each.seconds for each in standings),
            "flops": floats(_work(each.case, "flops") for each in standings),
            "bytes": floats(_work(each.case, "bytes") for each in standings),
            "environment": [
                environments.get(each.case.segments[0].environment, -1) if each.case.segments else -1 for each in standings
            ],
            "measured": last,
            "comparisons": [sum(len(segment.edges) for segment in each.case.segments) for each in standings],
            "flagged": [sum(len(segment.network.flagged) for segment in each.case.segments) for each in standings],
            "versions": [len(set(each.case.versions) - {None}) for each in standings],
            "line": [floats(sampled(line_of(each.case))) for each in standings],
        },
        "entries": shown,
        "environments": _environments(history, environments),
        "broken": [[each.path, each.reason] for each in history.broken[:50]],
        "unreadable": len(history.broken),
        "orphans": history.orphans,
    }  # fmt: skip


BLOCK = 500
"""Commits in one script."""


def commit_of(commit: Commit) -> dict[str, Any]:
    """Return a commit for the page."""
    return {"hash": commit.sha, "author": commit.author, "subject": commit.subject, "date": seconds_of(commit.date)}


def commit_blocks(history: History) -> Iterable[tuple[str, dict[str, Any]]]:
    """Yield (name, columns) of each block of commits, with the cases whose code changed at each."""
    changed: list[list[int]] = [[] for _ in history.commits]
    for at, case in enumerate(history.cases.values()):
        before: str | None = None
        for place, version in enumerate(case.versions):
            if version is not None:
                if before is not None and version != before:
                    changed[place].append(at)
                before = version
    for begin in range(0, len(history.commits), BLOCK):
        part = history.commits[begin : begin + BLOCK]
        yield (
            f"commits/{begin // BLOCK}",
            {
                "hash": [commit.sha for commit in part],
                "author": [commit.author for commit in part],
                "subject": [commit.subject for commit in part],
                "date": [seconds_of(commit.date) for commit in part],
                "changed": changed[begin : begin + BLOCK],
            },
        )


def _entry(history: History, entry: Entry, order: Mapping[str, int]) -> dict[str, Any]:
    affected = []
    for each in entry.affected:
        case = history.cases[each.case]
        newest = next((at for at in reversed(range(len(case.versions))) if case.versions[at] is not None), None)
        now = case.contrast(entry.last_good, newest) if newest is not None else None
        affected.append(
            {
                "case": order[each.case],
                "step": _figures(each.contrast),
                "now": _figures(now),
                "cause": list(each.edge.record.get("cause", [])) if each.edge is not None else [],
            }
        )
    return {
        "id": entry.id, "kind": entry.kind, "kernel": entry.benchmark, "good": entry.last_good, "bad": entry.first_bad,
        "state": entry.state, "open": entry.open, "recovered": entry.recovered, "expired": entry.expired,
        "owner": entry.owner, "note": entry.note, "expires": entry.expires, "affected": affected,
    }  # fmt: skip


def _figures(contrast: Contrast | None) -> list[float | None]:
    """[log, error, low, high]."""
    if contrast is None:
        return [None, None, None, None]
    return [number(value) for value in (contrast.estimate, contrast.error, contrast.low, contrast.high)]


def _of(contrast: Contrast | None, name: str) -> float | None:
    return None if contrast is None else float(getattr(contrast, name))


def _work(case: Case, what: str) -> float | None:
    value = case.work.get(what)
    return float(value) if isinstance(value, int | float) else None


def _last_measured(case: Case) -> int | None:
    times = [seconds_of(edge.record["created"]) for segment in case.segments for edge in segment.edges]
    times += [seconds_of(each["created"]) for found in case.observations.values() for each in found]
    return max((time for time in times if time is not None), default=None)


def _environments(history: History, environments: Mapping[str, int]) -> list[dict[str, Any]]:
    """What is known of each environment: device, settings, when it was first and last seen, what it can do."""
    seen: dict[str, list[int]] = {}
    cards: dict[str, set[str]] = {}
    counts: dict[str, int] = {}
    for case in history.cases.values():
        for segment in case.segments:
            for edge in segment.edges:
                time = seconds_of(edge.record["created"])
                seen.setdefault(segment.environment, []).extend([] if time is None else [time])
                cards.setdefault(segment.environment, set()).add(edge.record["card"])
                counts[segment.environment] = counts.get(segment.environment, 0) + 1
        for found in case.observations.values():
            for each in found:
                time = seconds_of(each["created"])
                seen.setdefault(each["environment"], []).extend([] if time is None else [time])
    listed = []
    flat = {name: dict(flattened(history.environments.get(name, {}))) for name in environments}
    ordered = sorted(environments, key=lambda name: min(seen.get(name) or [0]))
    for name in environments:
        described = history.environments.get(name, {})
        at = ordered.index(name)
        peak = peak_of(described)
        listed.append(
            {
                "name": device_of(described) or name[:12],
                "target": str(described.get("target", "")),
                "arch": str(_part(described, "device").get("arch", "")),
                "first": min(seen.get(name) or [0]) or None,
                "last": max(seen.get(name) or [0]) or None,
                "comparisons": counts.get(name, 0),
                "cards": len(cards.get(name, ())),
                "since": _differences(flat[ordered[at - 1]], flat[name]) if at else [],
                "facts": [[key, value] for key, value in flat[name].items() if key != "fingerprint"][:60],
                "peak": None if peak is None else {"flops": peak.flops, "bandwidth": peak.bandwidth},
            }
        )
    return listed


def device_of(described: Mapping[str, Any]) -> str:
    """Return what an environment's device is called, "" if it does not say."""
    name = _part(described, "device").get("name") or _part(described, "machine").get("cpu") or described.get("cpu")
    return str(name or "")


def _part(described: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = described.get(key)
    return value if isinstance(value, Mapping) else {}


def flattened(value: object, path: str = "") -> Iterable[tuple[str, str]]:
    """Yield ("device.name", text) for everything in a description."""
    if isinstance(value, Mapping):
        for key, inner in sorted(value.items(), key=lambda item: str(item[0])):
            yield from flattened(inner, f"{path}.{key}" if path else str(key))
    elif value is not None:
        yield path, str(value)[:200]


def _differences(before: Mapping[str, str], after: Mapping[str, str]) -> list[list[str]]:
    ignored = ("fingerprint", "machine.id")
    found = [
        [key, before.get(key, "-"), after.get(key, "-")]
        for key in sorted(before.keys() | after.keys())
        if before.get(key) != after.get(key) and key not in ignored
    ]
    return found[:_MOST_DIFFERENCES]
