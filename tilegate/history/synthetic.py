"""A made-up history, seeded: for tests, for the benchmark of the site, and for a look at the dashboard. Never measured."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tilegate.history.records import Commit, Comparison, Environment, Event, Figures, Record, Run, Versions
from tilegate.history.view import version_of

DEVICE = "synthetic device (nothing was measured)"
_START = datetime(2025, 1, 1, tzinfo=UTC)
_FAMILIES = ("forward", "decode", "backward", "varlen", "mla")


@dataclass(frozen=True)
class Size:
    """How large a made-up history is.

    Attributes:
        commits, cases: how many.
        versions: code versions of a case, over all commits.
        busy: cases that change `busy_versions` times instead.
        release_every: commits between releases; each version is anchored to the one of the last release.
        error: standard error of a comparison.
        steps: how many cases get slower by 1 to 8 % once.
    """

    commits: int = 120
    cases: int = 24
    versions: int = 6
    busy: int = 1
    busy_versions: int = 30
    release_every: int = 40
    error: float = 0.0012
    steps: int = 4


def records(size: Size, seed: int = 0) -> Iterator[Record]:
    """Yield the records of a history; the same arguments give the same records."""
    rng = random.Random(seed)  # noqa: S311 - not for secrets
    shas = [
        hashlib.sha1(f"{seed}/{number}".encode(), usedforsecurity=False).hexdigest() for number in range(size.commits)
    ]
    dates = [_START + timedelta(hours=4 * number) for number in range(size.commits)]
    authors = ("Ada Example", "Grace Example", "Alan Example")
    subjects = (
        "Walk only the visible key tiles",
        "Prefetch V by hand",
        "Fix a typo",
        "Split long keys",
        "Update the docs",
    )
    for number, (sha, date) in enumerate(zip(shas, dates, strict=True)):
        yield Commit(
            kind="commit",
            sha=sha,
            parents=shas[number - 1 : number],
            author=rng.choice(authors),
            subject=f"{rng.choice(subjects)} ({number})",
            date=date.isoformat(),
        )
    for count, number in enumerate(range(size.release_every // 2, size.commits, size.release_every)):
        yield Event(
            kind="event", what="release", about=f"v0.{count + 1}", created=dates[number].isoformat(), author="Ada Example",
            to=shas[number],
        )  # fmt: skip
    described = {"device": {"name": DEVICE, "arch": "none"}, "versions": {"torch": "0"}, "target": "cuda"}
    yield Environment(kind="environment", fingerprint="synthetic", described=described)
    changes = {case: _changes(size, case, rng) for case in range(size.cases)}
    names = [_case_name(case) for case in range(size.cases)]
    slower = set(rng.sample(range(size.cases), min(size.steps, size.cases)))
    for number, sha in enumerate(shas):
        yield Versions(
            kind="versions",
            commit=sha,
            target="cuda",
            toolchain="synthetic",
            cases={
                names[case]: {
                    "identity": f"{names[case]}/{_index(changes[case], number)}",
                    "method": "1",
                    "work": {"flops": 1e9 * (case + 1), "bytes": 1e7 * (case + 1), "shape": f"s{128 << (case % 8)}"},
                }
                for case in range(size.cases)
            },
            failed={},
        )
    yield from _figures(names, changes, (shas, dates), seed)
    yield from _runs(dates, seed)
    for case in range(size.cases):
        yield from _comparisons(size, names[case], changes[case], (shas, dates), rng, slower=case in slower)


def _changes(size: Size, case: int, rng: random.Random) -> list[int]:
    """The commits at which a case gets new code, 0 first."""
    wanted = size.busy_versions if case < size.busy else size.versions
    later = rng.sample(range(1, size.commits), min(wanted, size.commits) - 1)
    return [0, *sorted(later)]


def _figures(
    names: list[str], changes: Mapping[int, list[int]], when: tuple[list[str], list[datetime]], seed: int
) -> Iterator[Figures]:
    """What a compiler might say, of each commit that changes code."""
    rng = random.Random(f"figures {seed}")  # noqa: S311
    shas, dates = when
    for number in sorted({place for places in changes.values() for place in places}):
        cases = {
            names[case]: {"vgprs": 8.0 * rng.randint(10, 30), "lds": 1024.0 * rng.choice((16, 32, 48))}
            for case, places in changes.items()
            if number in places
        }
        yield Figures(
            kind="figures", commit=shas[number], chip="gfx942", source="isa", toolchain="synthetic",
            created=dates[number].isoformat(), cases=cases,
        )  # fmt: skip


def _runs(dates: list[datetime], seed: int) -> Iterator[Run]:
    """How fit a machine might have been, once a day."""
    rng = random.Random(f"runs {seed}")  # noqa: S311
    for number, date in enumerate(dates[::6]):
        yield Run(
            kind="run", run=f"day-{number}", environment="synthetic", card=rng.choice(("card-1", "card-2")),
            created=date.isoformat(), base_commit=None, head_commit=None, controls=4, shift=rng.gauss(0, 0.0005),
            worst=rng.gauss(0, 0.001), scatter=abs(rng.gauss(1, 0.15)), bias=abs(rng.gauss(0.001, 0.0002)), pairs=512,
            disturbed=rng.randrange(8), seconds=600.0,
        )  # fmt: skip


def _index(changes: list[int], commit: int) -> int:
    return sum(change <= commit for change in changes) - 1


def _case_name(case: int) -> str:
    family = _FAMILIES[case % len(_FAMILIES)]
    return f"attention.{family.title()}.latency_{family}('w{case:03d}-s{128 << (case % 8)}', '{('adaptive', 'fixed')[case % 2]}')"


def _comparisons(
    size: Size,
    name: str,
    changes: list[int],
    when: tuple[list[str], list[datetime]],
    rng: random.Random,
    *,
    slower: bool,
) -> Iterator[Comparison]:
    shas, dates = when
    versions = [version_of(f"{name}/{index}", "1") for index in range(len(changes))]
    truth = [0.0]
    at = rng.randrange(1, len(changes)) if slower and len(changes) > 1 else -1
    for index in range(1, len(changes)):
        truth.append(truth[-1] + rng.gauss(0, 0.0008) + (rng.uniform(0.01, 0.08) if index == at else 0.0))
    scale = 20e-6 * rng.uniform(1, 50)
    releases = [index for index in range(len(changes)) if index % 5 == 0]
    for index in range(1, len(changes)):
        for base in {index - 1, max(place for place in releases if place < index)}:
            ratio = truth[index] - truth[base] + rng.gauss(0, size.error)
            yield Comparison(
                kind="comparison",
                case=name,
                method="1",
                base=versions[base],
                head=versions[index],
                base_commit=shas[changes[base]],
                head_commit=shas[changes[index]],
                log_ratio=ratio,
                error=size.error,
                freedom=None,
                replicates=2,
                pairs=32,
                base_seconds=scale * math.exp(truth[base]),
                head_seconds=scale * math.exp(truth[base] + ratio),
                environment="synthetic",
                card=rng.choice(("card-1", "card-2")),
                created=dates[changes[index]].isoformat(),
                run=f"run-{index}",
            )
