"""Regressions as entries with an id that never changes: derived from the comparisons, with what people decided about them.

An entry is a change for the worse of some cases between two commits: an edge whose interval lies above no change, or a
creep: head against the last release, though no single edge shows it. Cases that changed between the same two commits for the same
kernel share one. Its id is drawn from what it was first seen by, a case and the code version that is slower, and filed as an
event: whatever is learned later of its range or its cases, an entry that has one of its marks is the same entry.
"""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilegate.history.network import Contrast
from tilegate.history.records import Event
from tilegate.history.view import TOLERATED, Case, EdgeView, History, day_of

SMALLEST = TOLERATED
"""Slowdowns below 1 % are no entry of their own, nor those that the suite tolerates of a case. Creep counts from as much, too."""


@dataclass(frozen=True)
class Affected:
    """A case of an entry."""

    case: str
    contrast: Contrast
    edge: EdgeView | None


@dataclass(frozen=True)
class Entry:
    """A regression.

    Attributes:
        id: eight hex digits; stays whatever is learned later.
        kind: "step" (an edge shows it) or "creep" (only head against the release does).
        benchmark: the kernel.
        first_bad, last_good: places of commits; the cause lies after the one and at or before the other.
        affected: worst first.
        marks: what it is known again by.
        state: "new", "investigating", "accepted", "fixed" or "invalid".
        recovered: head is no slower than the last good commit any more.
        owner, note, expires: as somebody set them.
        expired: an acceptance whose day is over, which counts as new again.
    """

    id: str
    kind: str
    benchmark: str
    last_good: int
    first_bad: int
    affected: tuple[Affected, ...]
    marks: tuple[str, ...]
    state: str
    recovered: bool
    owner: str = ""
    note: str = ""
    expires: str = ""
    expired: bool = False

    @property
    def open(self) -> bool:
        """Whether somebody still has to do something."""
        return not self.recovered and (self.state in ("new", "investigating") or self.expired)

    @property
    def worst(self) -> Contrast:
        """The largest slowdown."""
        return self.affected[0].contrast


def entries(history: History, today: datetime.date | None = None) -> list[Entry]:
    """Return every regression that the history holds, recovered ones too: the open ones first, the worst first.

    Args:
        history: of a store.
        today: for expiry dates; None: never expired.
    """
    found: dict[str, list[tuple[Case, int, int, Affected]]] = {}
    for case in history.cases.values():
        for good, bad, affected, key in _steps(case):
            found.setdefault(key, []).append((case, good, bad, affected))
    made = [_entry(history, items, today) for items in found.values()]
    stepped = {affected.case for entry in made if entry.open for affected in entry.affected}
    made += _creeps(history, stepped, today)
    return sorted(made, key=lambda entry: (not entry.open, -entry.worst.estimate, entry.id))


def _steps(case: Case) -> list[tuple[int, int, Affected, str]]:
    """Return (place before, place after, what, key) of each adjacent change of versions that is certainly for the worse."""
    steps = []
    changes = [
        (before, after)
        for before, after in zip(_known(case), _known(case)[1:], strict=False)
        if case.versions[before] != case.versions[after]
    ]
    for before, after in changes:
        contrast = case.contrast(before, after)
        if contrast is not None and contrast.low > 0 and contrast.estimate >= case.tolerated:
            # Cases of one kernel that change at the same commit share an entry: they have one cause.
            steps.append(
                (before, after, Affected(case.id, contrast, _edge(case, before, after)), f"{case.benchmark}@{after}")
            )
    return steps


def _known(case: Case) -> list[int]:
    return [place for place, version in enumerate(case.versions) if version is not None]


def _edge(case: Case, before: int, after: int) -> EdgeView | None:
    """Return the newest direct comparison of two versions that counts."""
    wanted = {case.versions[before], case.versions[after]}
    edges = [edge for segment in case.segments for edge in segment.edges]
    direct = [e for e in edges if e.flagged is None and {e.record["base"], e.record["head"]} == wanted]
    return direct[-1] if direct else None


def _entry(history: History, items: Sequence[tuple[Case, int, int, Affected]], today: datetime.date | None) -> Entry:
    affected = tuple(sorted((item[3] for item in items), key=lambda a: -a.contrast.estimate))
    good, bad = max(item[1] for item in items), min(item[2] for item in items)
    marks = tuple(sorted(f"{case.id}|{case.versions[bad]}" for case, _, bad, _ in items))
    id = _id(marks, history.events)
    recovered = all(_recovered(case, before) for case, before, _, _ in items)
    return _with_decisions(
        Entry(id, "step", items[0][0].benchmark, good, bad, affected, marks, "new", recovered), history.events, today
    )


def _recovered(case: Case, good: int) -> bool:
    """Whether the newest known version is certainly not slower by as much as makes an entry."""
    known = _known(case)
    contrast = case.contrast(good, known[-1]) if known else None
    return contrast is not None and contrast.high < case.tolerated


def _creeps(history: History, stepped: set[str], today: datetime.date | None) -> list[Entry]:
    """Return entries for cases that are slower than at the last release, though no step shows it."""
    release = history.last_release
    if release is None:
        return []
    groups: dict[str, list[tuple[int, Affected]]] = {}
    for case in history.cases.values():
        known = [place for place in _known(case) if place >= release]
        if case.id in stepped or not known or case.versions[release] is None:
            continue
        contrast = case.contrast(release, known[-1])
        if contrast is not None and contrast.low > 0 and contrast.estimate >= case.tolerated:
            groups.setdefault(case.benchmark, []).append((known[-1], Affected(case.id, contrast, None)))
    made = []
    for benchmark, items in groups.items():
        affected = tuple(sorted((item[1] for item in items), key=lambda a: -a.contrast.estimate))
        marks = (f"creep|{benchmark}|{history.commits[release].releases[-1]}",)
        id = _id(marks, history.events)
        entry = Entry(
            id, "creep", benchmark, release, max(item[0] for item in items), affected, marks, "new", recovered=False
        )
        made.append(_with_decisions(entry, history.events, today))
    return made


def unfiled(history: History, found: Sequence[Entry], author: str, now: str) -> list[Event]:
    """Return an event for each open entry that has none yet: it freezes its id."""
    known = {mark for event in history.events for mark in event.get("marks", [])}
    return [
        Event(kind="event", what="triage", about=entry.id, created=now, author=author, marks=list(entry.marks))
        for entry in found
        if entry.open and not known & set(entry.marks)
    ]


def _id(marks: Sequence[str], events: Sequence[Event]) -> str:
    """Return the id under which the first of these marks was filed, or a new one."""
    for event in events:  # in order of time
        if set(marks) & set(event.get("marks", [])):
            return event["about"]
    return hashlib.sha256(marks[0].encode()).hexdigest()[:8]


def _with_decisions(entry: Entry, events: Sequence[Event], today: datetime.date | None) -> Entry:
    for event in events:
        if event["what"] == "triage" and event["about"] == entry.id:
            entry = replace(
                entry,
                state=event.get("state", entry.state),
                owner=event.get("owner", entry.owner),
                note=event.get("note", entry.note),
                expires=event.get("expires", entry.expires),
            )
    end = day_of(entry.expires)
    if entry.state == "accepted" and end is not None and today is not None and today > end:
        entry = replace(entry, expired=True)
    return entry
