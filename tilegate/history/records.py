"""What a history's store holds: eight kinds of records, each a plain JSON object that never changes. docs/history.md has them.

A record's name is the hash of its content, so two machines that write at once never conflict, and the same fact is kept once.
Everything else (levels, change points, the inbox's states) is derived.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, NotRequired, TypedDict

from tilegate.schemas.samples import Target

Kind = Literal["commit", "versions", "environment", "run", "comparison", "observation", "figures", "event"]
KINDS: tuple[Kind, ...] = ("commit", "versions", "environment", "run", "comparison", "observation", "figures", "event")
STATES = ("new", "investigating", "accepted", "fixed", "invalid")


class Commit(TypedDict):
    """A commit of the branch. `parents` in git's order: the first is the branch's own line."""

    kind: Literal["commit"]
    sha: str
    parents: list[str]
    author: str
    subject: str
    date: str


class CodeVersion(TypedDict):
    """Which code a case has at a commit. `identity` is the digest of its generated code and launch; `method` is asv's version."""

    identity: str
    method: str
    work: NotRequired[dict[str, float | str]]


class Versions(TypedDict):
    """The code versions of all cases at one commit. `failed` says why cases have none there.

    `same` names a commit whose record says all of it; then `cases` and `failed` are empty. Most commits change no kernel. `only` is the
    expression by which cases were chosen; without it all were asked.
    """

    kind: Literal["versions"]
    commit: str
    target: Target
    toolchain: str
    cases: dict[str, CodeVersion]
    failed: dict[str, str]
    same: NotRequired[str]
    only: NotRequired[str]


class Run(TypedDict):
    """How fit the machine was while a gate measured.

    `controls` were timed with identical code: `shift` is their weighted mean log ratio, `worst` the largest. `scatter` is the root
    mean square of each one's log ratio over its standard error: 1 where the machine scatters as its noise model says. `bias` is the
    median over all cases of the standard deviation between replicates, in log ratio. None: not known.
    """

    kind: Literal["run"]
    run: str
    environment: str
    card: str
    created: str
    base_commit: str | None
    head_commit: str | None
    controls: int
    shift: float | None
    worst: float | None
    scatter: float | None
    bias: float | None
    pairs: int
    disturbed: int
    seconds: float


class Environment(TypedDict):
    """Where something was measured: what `tilegate.measuring.environment.describe` says, by its fingerprint."""

    kind: Literal["environment"]
    fingerprint: str
    described: dict[str, Any]


class Comparison(TypedDict):
    """An edge: two code versions of a case, measured in turns.

    `log_ratio` is ln(head seconds / base seconds), `error` its standard error with the replicates' bias, `freedom` its degrees
    of freedom (None: many). `card` tells cards of one model apart without naming them. `bias`: standard deviation between
    replicates, in log ratio. `disturbed`: pairs that do not count. `figures`: of "base" and "head", what the suite says of the
    compiled code where the two differ. `tolerated`: the slowdown that the suite tolerates of this case, where it is not the usual 1 %.
    """

    kind: Literal["comparison"]
    case: str
    method: str
    base: str
    head: str
    base_commit: str | None
    head_commit: str | None
    log_ratio: float
    error: float
    freedom: float | None
    replicates: int
    pairs: int
    base_seconds: float
    head_seconds: float
    environment: str
    card: str
    created: str
    run: str
    bias: NotRequired[float]
    disturbed: NotRequired[int]
    figures: NotRequired[dict[str, dict[str, float]]]
    cause: NotRequired[list[str]]
    tolerated: NotRequired[float]


class Observation(TypedDict):
    """An absolute time from a run of its own: asv, pytest-benchmark. Its error is that of independent processes."""

    kind: Literal["observation"]
    case: str
    method: str
    commit: str
    seconds: float
    error: float
    environment: str
    created: str
    source: str


class Figures(TypedDict):
    """What is known of the code of cases at a commit beside its times: of the compiler, the emulator, or hardware counters."""

    kind: Literal["figures"]
    commit: str
    chip: str
    source: Literal["isa", "emulator", "counters"]
    toolchain: str
    created: str
    cases: dict[str, dict[str, float]]


class Event(TypedDict):
    """Something that a person decided: the state of an entry of the inbox, or that a case has a new name."""

    kind: Literal["event"]
    what: Literal["triage", "alias", "release"]
    about: str
    created: str
    author: str
    state: NotRequired[str]
    owner: NotRequired[str]
    note: NotRequired[str]
    expires: NotRequired[str]
    marks: NotRequired[list[str]]
    to: NotRequired[str]


Record = Commit | Versions | Environment | Run | Comparison | Observation | Figures | Event


class BrokenRecordError(Exception):
    """A record is not one; the message says what is wrong."""


def text_of(record: Record) -> str:
    """Return a record as it is kept: canonical JSON, so that equal records have equal names."""
    return json.dumps(record, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=True)


def name_of(text: str) -> str:
    """Return the name of a record: the start of its SHA-256."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def parse(text: str) -> Record:
    """Read a record and check what later steps rely on.

    Raises:
        BrokenRecordError: it is not JSON, of no known kind, lacks a key, or holds a number that cannot be.
    """
    try:
        record = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise BrokenRecordError(f"not JSON: {str(error)[:80]}") from None
    if not isinstance(record, dict) or record.get("kind") not in KINDS:
        raise BrokenRecordError("of no known kind")
    for key, fits in _FIELDS[record["kind"]].items():
        if not fits(record.get(key)):
            raise BrokenRecordError(f"{key} is missing or makes no sense")
    for key, fits in _OPTIONAL.items():
        if key in record and not fits(record[key]):
            raise BrokenRecordError(f"{key} makes no sense")
    return record  # type: ignore[return-value]


def resolved(found: Iterable[Versions]) -> Iterator[Versions]:
    """Yield code versions with what `same` leads to in place; a record whose commit of reference is not there is left out."""
    found = list(found)
    whole = {_asked(record, record["commit"]): record for record in found if "same" not in record}
    for record in found:
        if "same" not in record:
            yield record
        elif (other := whole.get(_asked(record, record["same"]))) is not None:
            yield {**other, "commit": record["commit"]}


def _asked(record: Versions, commit: str) -> tuple[str, str, str | None]:
    return record["target"], commit, record.get("only")


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number")


def _text(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 4096


def _any_text(value: object) -> bool:
    return isinstance(value, str) and len(value) <= 65536


def _maybe(value: object) -> bool:
    return value is None or _text(value)


def _texts(value: object) -> bool:
    return isinstance(value, list) and all(map(_text, value))


def _finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and abs(value) < 50


def _positive(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e9


def _freedom(value: object) -> bool:
    return value is None or _positive(value)


def _versions(value: object) -> bool:
    return isinstance(value, dict) and all(
        _text(case) and isinstance(entry, dict) and _text(entry.get("identity")) and _text(entry.get("method"))
        for case, entry in value.items()
    )


def _reasons(value: object) -> bool:
    return isinstance(value, dict) and all(_text(case) and _any_text(why) for case, why in value.items())


def _count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1e12


def _maybe_finite(value: object) -> bool:
    return value is None or _finite(value)


def _share(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1


def _duration(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e9


def _source(value: object) -> bool:
    return value in ("isa", "emulator", "counters")


def _numbers(value: object) -> bool:
    return isinstance(value, dict) and all(
        _text(name) and isinstance(number, int | float) and not isinstance(number, bool) and abs(number) < 1e18
        for name, number in value.items()
    )


def _numbers_of(value: object) -> bool:
    return isinstance(value, dict) and all(_text(name) and _numbers(found) for name, found in value.items())


def _mapping(value: object) -> bool:
    return isinstance(value, dict)


def _state(value: object) -> bool:
    return value in ("triage", "alias", "release")


_OPTIONAL: Mapping[str, Callable[[object], bool]] = {
    "state": lambda value: value in STATES,
    **dict.fromkeys(("owner", "note", "expires"), _any_text),
    "to": _text,
    "cause": _texts,
    "marks": _texts,
    "same": _text,
    "only": _text,
    "bias": _maybe_finite,
    "disturbed": _count,
    "figures": _numbers_of,
    "tolerated": _share,
}

_FIELDS: Mapping[str, Mapping[str, Callable[[object], bool]]] = {
    "commit": {"sha": _text, "parents": _texts, "author": _any_text, "subject": _any_text, "date": _text},
    "versions": {"commit": _text, "target": _text, "toolchain": _text, "cases": _versions, "failed": _reasons},
    "environment": {"fingerprint": _text, "described": _mapping},
    "comparison": {
        **dict.fromkeys(("case", "method", "base", "head", "environment", "card", "created", "run"), _text),
        **dict.fromkeys(("base_commit", "head_commit"), _maybe),
        **dict.fromkeys(("error", "base_seconds", "head_seconds", "replicates", "pairs"), _positive),
        "log_ratio": _finite,
        "freedom": _freedom,
    },
    "run": {
        **dict.fromkeys(("run", "environment", "card", "created"), _text),
        **dict.fromkeys(("base_commit", "head_commit"), _maybe),
        **dict.fromkeys(("controls", "pairs", "disturbed"), _count),
        **dict.fromkeys(("shift", "worst", "scatter", "bias"), _maybe_finite),
        "seconds": _duration,
    },
    "figures": {
        **dict.fromkeys(("commit", "chip", "toolchain", "created"), _text),
        "source": _source,
        "cases": _numbers_of,
    },
    "observation": {
        **dict.fromkeys(("case", "method", "commit", "environment", "created", "source"), _text),
        **dict.fromkeys(("seconds", "error"), _positive),
    },
    "event": {"what": _state, "about": _text, "created": _text, "author": _any_text},
}
