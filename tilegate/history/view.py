"""The read model: what a store says, worked out once, as plain data for the commands and for the site.

Commits stand in first-parent order, the oldest first. A case is a benchmark with its parameters and method version; a renamed
one continues under its new name where an alias says so. Levels are ln relative to the first code version of a segment; a segment
is one environment, and no comparison crosses from one into another.
"""

from __future__ import annotations

import datetime
import functools
import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from tilegate.history import records
from tilegate.history.network import Contrast, Edge, Network, interval, solve
from tilegate.history.records import Comparison, Event, Figures, Observation, Record, Run, Versions
from tilegate.history.store import Broken

SUITE = "(suite)"
TOLERATED = 0.01
"""Slowdowns below 1 % are no regression unless a suite says otherwise: docs/gate.md."""
"""Stands for every case, where a commit's suite or package does not load at all."""


@dataclass(frozen=True)
class Commit:
    """A commit of the branch.

    Attributes:
        sha, author, subject, date: as git has them; the date is ISO 8601.
        releases: names of releases that it is.
    """

    sha: str
    author: str
    subject: str
    date: str
    releases: tuple[str, ...] = ()


@dataclass(frozen=True)
class EdgeView:
    """A comparison as it is shown.

    Attributes:
        record: what was measured.
        name: of the record.
        contrast: ratio with its interval, cards' variance included.
        flagged: by how many standard errors the other comparisons contradict it; None if they do not.
    """

    record: Comparison
    name: str
    contrast: Contrast
    flagged: float | None


@dataclass(frozen=True)
class Segment:
    """A case in one environment.

    Attributes:
        environment: its fingerprint.
        levels: ln against `reference`, by code version; only what comparisons connect with it.
        errors: standard errors of these, by code version.
        reference: the code version whose level is 0.
        seconds: median seconds of the versions that were timed: they scale the axis and decide nothing.
        edges: the comparisons.
        network: answers for any two versions.
    """

    environment: str
    levels: Mapping[str, float]
    errors: Mapping[str, float]
    reference: str
    seconds: Mapping[str, float]
    edges: tuple[EdgeView, ...]
    network: Network = field(repr=False)


@dataclass(frozen=True)
class Case:
    """The history of a case.

    Attributes:
        id: benchmark and parameters; `names`: what it was called before.
        method: asv's version of the benchmark: another way of measuring is another series.
        versions: by place in the list of commits, the code version there; None: not known, or failed.
        failed: by place, why there is none.
        segments: by environment, the most recently measured first.
        observations: absolute times of independent runs, by place.
        work: flops and bytes of a launch, where the suite states them.
        figures: by place, then by chip and source ("gfx942 isa"): what is known of the code there without running it.
    """

    id: str
    names: tuple[str, ...]
    method: str
    versions: tuple[str | None, ...]
    failed: Mapping[int, str]
    segments: tuple[Segment, ...]
    observations: Mapping[int, tuple[Observation, ...]]
    work: Mapping[str, float | str]
    figures: Mapping[int, Mapping[str, Mapping[str, float]]] = field(default_factory=dict)

    @property
    def benchmark(self) -> str:
        """The benchmark's name, without parameters."""
        return self.id.partition("(")[0]

    @property
    def tolerated(self) -> float:
        """The slowdown, as log ratio, that is no regression: what the newest comparison was judged by."""
        edges = self.segments[0].edges if self.segments else ()
        newest = max((edge.record for edge in edges), key=lambda record: record["created"], default=None)
        return TOLERATED if newest is None else math.log1p(newest.get("tolerated", TOLERATED))

    def contrast(self, base: int, head: int) -> Contrast | None:
        """Return how much slower the commit at `head` is than that at `base`; None if nothing says."""
        before, after = self.versions[base], self.versions[head]
        if before is None or after is None:
            return None
        if before == after:
            return Contrast(0.0, 0.0, 0.0, 0.0)
        found = (segment.network.contrast(before, after) for segment in self.segments)
        return next((contrast for contrast in found if contrast is not None), None)


@dataclass(frozen=True)
class History:
    """All that a store says.

    Attributes:
        commits: of the branch, the oldest first.
        cases: by id, in alphabetical order.
        environments: by fingerprint.
        events: what people decided, in order of time.
        broken: files that hold no record.
        orphans: comparisons of code versions that no commit of the branch has.
        runs: how fit the machine was, in order of time.
    """

    commits: tuple[Commit, ...]
    cases: Mapping[str, Case]
    environments: Mapping[str, Mapping[str, Any]]
    events: tuple[Event, ...]
    broken: tuple[Broken, ...]
    orphans: int
    runs: tuple[Run, ...] = ()

    def series(self, case: str, method: str) -> Case | None:
        """Return a case as it is measured by that method version, which need not be the newest."""
        found = (self.cases.get(id) for id in (case, older(case, method)))
        return next((one for one in found if one is not None and one.method == method), None)

    def place(self, revision: str) -> int | None:
        """Return the place of a commit by its hash, the start of it, or a release's name; None if it is not on the branch."""
        for place, commit in enumerate(self.commits):
            if revision in commit.releases or (len(revision) >= 4 and commit.sha.startswith(revision)):
                return place
        return None

    @property
    def last_release(self) -> int | None:
        """The place of the newest release."""
        return next((place for place in reversed(range(len(self.commits))) if self.commits[place].releases), None)


@functools.lru_cache(maxsize=1 << 16)  # a history asks for each once a commit and case
def version_of(identity: str, method: str) -> str:
    """Return the name of a code version: equal code, launch and way of measuring have equal names."""
    return hashlib.sha256(f"{identity}\n{method}".encode()).hexdigest()[:16]


def older(case: str, method: str) -> str:
    """Return the id of a case's series by a method version that is not the newest any more."""
    return f"{case} [method {method}]"


def view(found: Iterable[Record], broken: Sequence[Broken] = ()) -> History:
    """Work out a history.

    Args:
        found: the store's records.
        broken: what it could not read.
    """
    by_kind: dict[str, list[Any]] = {kind: [] for kind in records.KINDS}
    for record in found:
        by_kind[record["kind"]].append(record)
    events = tuple(sorted(by_kind["event"], key=lambda event: (event["created"], records.text_of(event))))
    renamed = {event["about"]: event["to"] for event in events if event["what"] == "alias" and "to" in event}
    commits = _ordered(by_kind["commit"], events)
    place = {commit.sha: number for number, commit in enumerate(commits)}
    surveyed = _surveys(records.resolved(by_kind["versions"]), place)
    environments = {record["fingerprint"]: record["described"] for record in by_kind["environment"]}

    comparisons: dict[tuple[str, str], list[Comparison]] = {}
    for record in by_kind["comparison"]:
        comparisons.setdefault((_name(record["case"], renamed), record["method"]), []).append(record)
    observations: dict[tuple[str, str], list[Observation]] = {}
    for record in by_kind["observation"]:
        observations.setdefault((_name(record["case"], renamed), record["method"]), []).append(record)
    lines = _lines(surveyed, renamed, len(commits))
    for key in {*comparisons, *observations} - lines.keys():
        lines[key] = _Line([None] * len(commits), {}, {}, set())

    figures = _figures(by_kind["figures"], renamed, place)

    newest: dict[str, tuple[int, str]] = {}  # of each case's methods, the one that the newest commit has
    for (case, method), line in lines.items():
        last = next((at for at in reversed(range(len(line.versions))) if line.versions[at] is not None), -1)
        newest[case] = max(newest.get(case, (-2, "")), (last, method))
    cases, orphans = {}, 0
    for (case, method), line in sorted(lines.items()):
        id = case if newest[case][1] == method else older(case, method)
        segments = _segments(line.versions, comparisons.get((case, method), []))
        known = set(line.versions)
        orphans += sum(
            not {edge.record["base"], edge.record["head"]} & known for segment in segments for edge in segment.edges
        )
        cases[id] = Case(
            id,
            tuple(sorted(line.names - {case})),
            method,
            tuple(line.versions),
            line.failed,
            segments,
            _at_places(observations.get((case, method), []), place),
            line.work,
            figures.get(case, {}),
        )
    runs = tuple(sorted(by_kind["run"], key=lambda record: (record["created"], record["run"])))
    return History(commits, cases, environments, events, tuple(broken), orphans, runs)


@dataclass
class _Line:
    versions: list[str | None]
    failed: dict[int, str]
    work: Mapping[str, float | str]
    names: set[str]


def _name(case: str, renamed: Mapping[str, str]) -> str:
    seen = set()
    while case in renamed and case not in seen:
        seen.add(case)
        case = renamed[case]
    return case


def _ordered(found: Sequence[records.Commit], events: Sequence[Event]) -> tuple[Commit, ...]:
    """Return the first-parent line that ends in the newest tip, the oldest first. Dates order nothing but equal tips."""
    by_sha = {record["sha"]: record for record in found}
    followed = {record["parents"][0] for record in found if record["parents"]}
    tips = [record for record in found if record["sha"] not in followed]
    line: list[records.Commit] = []
    longest: list[records.Commit] = []
    for tip in sorted(tips, key=lambda record: record["date"]):
        line, at = [], cast("records.Commit | None", tip)
        seen: set[str] = set()
        while at is not None and at["sha"] not in seen:
            seen.add(at["sha"])
            line.append(at)
            at = by_sha.get(at["parents"][0]) if at["parents"] else None
        longest = max(longest, line, key=len)
    releases: dict[str, list[str]] = {}
    for event in events:
        if event["what"] == "release" and "to" in event:
            releases.setdefault(event["to"], []).append(event["about"])
    return tuple(
        Commit(r["sha"], r["author"], r["subject"], r["date"], tuple(releases.get(r["sha"], ())))
        for r in reversed(longest)
    )


def _surveys(found: Iterable[Versions], place: Mapping[str, int]) -> dict[int, list[Versions]]:
    """Return what is known of the code at each commit, by place."""
    surveyed: dict[int, list[Versions]] = {}
    for record in found:
        if record["commit"] in place:
            surveyed.setdefault(place[record["commit"]], []).append(record)
    return surveyed


def _lines(
    surveyed: Mapping[int, Sequence[Versions]], renamed: Mapping[str, str], commits: int
) -> dict[tuple[str, str], _Line]:
    lines: dict[tuple[str, str], _Line] = {}
    # Most commits share their entries (read_cache.Pool): each is looked at once, not once for each commit and case.
    seen: dict[tuple[str, int], tuple[list[str | None], str]] = {}
    for number, found in sorted(surveyed.items()):
        for record in found:
            for case, entry in record["cases"].items():
                known = seen.get((case, id(entry)))
                if known is None:
                    key = (_name(case, renamed), entry["method"])
                    line = lines.get(key)
                    if line is None:
                        line = lines[key] = _Line([None] * commits, {}, {}, set())
                    line.work = entry.get("work", line.work)
                    line.names.add(case)
                    known = seen[case, id(entry)] = (line.versions, version_of(entry["identity"], entry["method"]))
                versions, version = known
                versions[number] = version
    for number, found in surveyed.items():
        for record in found:
            for failed, reason in record["failed"].items():
                for (name, _), line in lines.items():
                    if failed == SUITE or (line.versions[number] is None and concerns(_name(failed, renamed), name)):
                        line.failed[number] = reason
    return lines


def concerns(failed: str, case: str) -> bool:
    """Whether what failed (a case, a module of the suite, or all of it) leaves a case without a version."""
    return failed in (SUITE, case) or case.startswith(f"{failed}.")


def _figures(
    found: Sequence[Figures], renamed: Mapping[str, str], place: Mapping[str, int]
) -> dict[str, dict[int, dict[str, Mapping[str, float]]]]:
    made: dict[str, dict[int, dict[str, Mapping[str, float]]]] = {}
    for record in sorted(found, key=lambda record: record["created"]):
        for case, numbers in record["cases"].items() if record["commit"] in place else ():
            at = made.setdefault(_name(case, renamed), {}).setdefault(place[record["commit"]], {})
            at[f"{record['chip']} {record['source']}"] = numbers
    return made


def _segments(versions: Sequence[str | None], comparisons: Sequence[Comparison]) -> tuple[Segment, ...]:
    by_environment: dict[str, list[Comparison]] = {}
    for record in comparisons:
        by_environment.setdefault(record["environment"], []).append(record)
    order = [version for version in dict.fromkeys(versions) if version is not None]
    newest = sorted(by_environment.items(), key=lambda item: max(r["created"] for r in item[1]), reverse=True)
    return tuple(_segment(environment, order, found) for environment, found in newest)


def _segment(environment: str, order: Sequence[str], comparisons: Sequence[Comparison]) -> Segment:
    named = [(records.name_of(records.text_of(record)), record) for record in comparisons]
    edges = [
        Edge(r["base"], r["head"], r["log_ratio"], r["error"], r["freedom"] or math.inf, r["card"], name)
        for name, r in named
    ]
    network = solve(order, edges)
    measured = {version for edge in edges for version in (edge.base, edge.head)}
    # The newest version's component is what people ask about; its first version is level 0.
    latest = next((version for version in reversed(order) if version in measured), edges[-1].head)
    here = [version for version, part in network.component.items() if part == network.component[latest]]
    reference = next((version for version in order if version in here), here[0])
    errors = network.errors(reference)
    shift = network.levels[reference]
    flagged = {edge.name: off for edge, off in network.flagged}
    widened = {edge.name: edge for edge in network.edges}
    seconds: dict[str, list[float]] = {}
    for _, record in named:
        seconds.setdefault(record["base"], []).append(record["base_seconds"])
        seconds.setdefault(record["head"], []).append(record["head_seconds"])
    return Segment(
        environment,
        {version: network.levels[version] - shift for version in errors},
        errors,
        reference,
        {version: sorted(values)[len(values) // 2] for version, values in seconds.items()},
        tuple(
            EdgeView(record, name, _shown(widened.get(name), record), flagged.get(name))
            for name, record in sorted(named, key=lambda item: (item[1]["created"], item[0]))
        ),
        network,
    )


def _shown(widened: Edge | None, record: Comparison) -> Contrast:
    error = record["error"] if widened is None else widened.error
    return interval(record["log_ratio"], error, record["freedom"] or math.inf)


def _at_places(found: Sequence[Observation], place: Mapping[str, int]) -> dict[int, tuple[Observation, ...]]:
    by_place: dict[int, list[Observation]] = {}
    for record in found:
        if record["commit"] in place:
            by_place.setdefault(place[record["commit"]], []).append(record)
    return {number: tuple(by_place[number]) for number in sorted(by_place)}


def day_of(text: str) -> datetime.date | None:
    """Return the day of an ISO 8601 date, None if it is none."""
    try:
        return datetime.date.fromisoformat(text[:10])
    except ValueError:
        return None
