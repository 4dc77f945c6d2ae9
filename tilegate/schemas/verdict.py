"""The types of verdict.json; verdict-1.json says what is in each key."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from tilegate.schemas.samples import Environment, FailureKind, Revision, Role, SideName, Target, Tier, Waiver, Work

RunVerdict = Literal["pass", "regressed", "broken", "inconclusive", "environment-invalid"]
ExitCode = Literal[0, 1, 3, 4, 5]
CaseVerdict = Literal[
    "pass",
    "improved",
    "regressed",
    "warning",
    "inconclusive",
    "broken",
    "new",
    "removed",
    "waived",
    "not-gating",
    "unchanged",
]
KernelVerdict = Literal["pass", "broken", "inconclusive"]
Obstacle = Literal["times", "samples", "base", "check"]

SCHEMA: Literal["tilegate-verdict/1"] = "tilegate-verdict/1"


class Numbers(TypedDict):
    """What the pairs that count say of a case; None, or 0, of one that was not timed."""

    ratio: float | None
    interval: list[float | None] | None
    smallest_detectable_effect: float | None
    could_promise: float | None
    pairs: int
    replicates: int
    base_seconds: float | None
    head_seconds: float | None
    p_value: float | None


class EntryFailure(TypedDict):
    """What became of the side that failed."""

    side: SideName
    kind: FailureKind
    message: str
    log: str | None


class Modes(TypedDict, total=False):
    """How far apart two modes are, as fractions."""

    turns: float
    processes: float


class Entry(Numbers):
    """The verdict on one case."""

    verdict: CaseVerdict
    reason: str
    role: Role
    failure: EntryFailure | None
    cause: NotRequired[list[str]]
    work: NotRequired[Work]
    waiver: NotRequired[str]
    obstacle: NotRequired[Obstacle]
    modes: NotRequired[Modes]
    thresholds: NotRequired[dict[str, float]]
    disturbed: NotRequired[int]
    apart: NotRequired[Literal[True]]
    striking: NotRequired[Literal["factor", "roofline"]]
    unseen: NotRequired[Literal[True]]


class Controls(TypedDict):
    """Whether identical code seemed to change."""

    count: int
    moved: list[str]
    shift: float | None
    shift_limit: float | None
    reason: str


class Disturbances(TypedDict):
    """Pairs that do not count, of all that were measured."""

    pairs: int
    of: int
    reasons: dict[str, int]


class CountingWaiver(Waiver):
    """A waiver that counts, and how many cases it waived."""

    used: int


class Waivers(TypedDict):
    """The waivers that speak of times."""

    counting: list[CountingWaiver]
    expired: list[Waiver]
    refused: list[Waiver]


class EmulatedKernel(TypedDict):
    """The verdict on one kernel, executed for a chip that is not here."""

    verdict: KernelVerdict
    cases: list[str]
    message: str | None


class EmulatedChip(TypedDict):
    """Those of one chip."""

    note: str | None
    unchanged: int
    unselected: NotRequired[int]
    kernels: dict[str, EmulatedKernel]


class CitedProfile(TypedDict):
    """The noise profile that was used."""

    created: str
    device: str | None
    digest: str
    calibrated: int


class Next(TypedDict):
    """What to do."""

    advice: str
    command: list[str] | None


class Judged(TypedDict):
    """The document but for what to do, which follows from the rest."""

    schema: Literal["tilegate-verdict/1"]
    tilegate: str
    verdict: RunVerdict
    exit_code: ExitCode
    reason: str
    created: str
    finished: str | None
    base: Revision
    head: Revision
    target: Target
    tier: Tier
    filter: str | None
    seed: int
    config: dict[str, Any]
    environment: Environment
    counts: dict[CaseVerdict, int]
    controls: Controls
    suspects: int
    out_of_time: int
    false_alarm_budget: float
    disturbed: Disturbances
    waivers: Waivers
    stages: dict[str, float]
    emulation: dict[str, EmulatedChip]
    noise_profile: CitedProfile | None
    bias_scale: float
    cases: dict[str, Entry]


class Verdict(Judged):
    """The document."""

    next: Next
