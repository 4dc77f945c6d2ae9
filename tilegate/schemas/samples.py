"""The types of samples.json; samples-1.json says what is in each key, and what a number may be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NotRequired, TypedDict

Target = Literal["cpu", "cuda", "hip"]
Tier = Literal["smoke", "pr", "full"]
SideName = Literal["base", "head"]
Stage = Literal["screen", "confirm"]
Role = Literal["gated", "control", "identical"]
Status = Literal["ok", "missing", "failed"]
FailureKind = Literal[
    "compile",
    "import",
    "setup",
    "wrong-result",
    "crash",
    "hang",
    "out-of-memory",
    "leak",
    "off-clock",
    "side-effect",
    "tampered",
    "emulation",
    "error",
]

Environment = Mapping[str, Any]
"""Where a run was measured (`tilegate.measuring.environment.describe`); of a file only its fingerprint is checked."""

SCHEMA: Literal["tilegate-samples/1"] = "tilegate-samples/1"


class Ahead(TypedDict, total=False):
    """How many commits a branch has after the one that was taken; nothing if none."""

    ahead: int


class Revision(Ahead):
    """A commit, or the working tree."""

    rev: str
    commit: str | None
    tree: str


class Failure(TypedDict):
    """What became of a side that failed."""

    kind: FailureKind
    message: str
    log: str | None


class Side(TypedDict):
    """A case at one commit."""

    status: Status
    failure: Failure | None
    identity: str | None
    resources: dict[str, Any] | None
    checked: bool
    observed: NotRequired[str]
    host_state: list[dict[str, Any]]


class Pair(TypedDict):
    """One turn of base and one of head."""

    order: Literal[0, 1]
    place: NotRequired[int]
    base: list[float]
    head: list[float]
    disturbed: NotRequired[str]


class Layout(TypedDict):
    """What was drawn for one process."""

    seed: int
    hash_seed: int
    environment_bytes: int


class Layouts(TypedDict):
    """What was drawn for both processes of a pair."""

    base: Layout
    head: Layout


class Replicate(TypedDict):
    """All pairs of a fresh pair of processes."""

    replicate: int
    stage: Stage
    session: str
    layouts: NotRequired[Layouts]
    recorded: NotRequired[int]
    looks: NotRequired[int]
    pairs: list[Pair]


class Alone(TypedDict):
    """What only the head has, timed in the head."""

    session: str
    turns: list[list[float]]


class Work(TypedDict, total=False):
    """What one launch computes and moves."""

    flops: float
    bytes: float
    tokens: float
    shape: str


class Case(TypedDict):
    """One benchmark with its parameters."""

    benchmark: str
    params: list[str]
    version: str
    base: Side
    head: Side
    role: Role
    replicates: list[Replicate]
    itself: NotRequired[list[Replicate]]
    alone: NotRequired[Alone]
    apart: NotRequired[Failure]
    stopped: NotRequired[Literal["budget"]]
    cause: NotRequired[list[str]]
    work: NotRequired[Work]


class Waiver(TypedDict):
    """A waiver, of either side."""

    name: str
    cases: str
    ceiling: float | None
    isa: list[str]
    expires: str
    reason: str
    link: str
    origin: SideName


class Asked(TypedDict):
    """Options of the command line, for the command that a report names."""

    emulate: bool
    budget: NotRequired[float]
    noise_profile: NotRequired[str]
    out: NotRequired[str]


class Turn(TypedDict):
    """How much one turn launched."""

    min_launches: int
    max_launches: int
    turn_seconds: float


class Noise(TypedDict):
    """The calibrated noise of a case."""

    version: str
    turn: Turn
    seconds: float
    replicates: int
    pairs: int
    pair_noise: float
    bias: float
    bias_high: float
    modes: float | None


class NoiseProfile(TypedDict):
    """What a run keeps of the noise profile of its machine."""

    created: str
    digest: str
    device: str | None
    cases: dict[str, Noise]


class EmulatedFinding(TypedDict):
    """What the emulator found wrong."""

    kind: str
    message: str
    where: str


class EmulatedFailure(TypedDict):
    """Why a kernel was not executed."""

    kind: str
    message: str


class EmulatedSide(TypedDict):
    """A kernel as it was executed at one commit."""

    problems: int
    complete: bool
    findings: list[EmulatedFinding]
    failure: EmulatedFailure | None


class EmulatedKernel(TypedDict):
    """A kernel whose code differs."""

    cases: list[str]
    base: EmulatedSide | None
    head: EmulatedSide


class EmulatedChip(TypedDict):
    """All such kernels for one chip that is not here."""

    note: str | None
    unchanged: int
    unselected: NotRequired[int]
    kernels: dict[str, EmulatedKernel]


class Described(TypedDict):
    """What is known of a run before anything is measured."""

    base: Revision
    head: Revision
    target: Target
    tier: Tier
    filter: str | None
    config: dict[str, Any]
    environment: Environment
    waivers: NotRequired[list[Waiver]]
    allow_head_waivers: NotRequired[bool]
    asked: NotRequired[Asked]
    noise_profile: NotRequired[NoiseProfile]


class Samples(Described):
    """The document."""

    schema: Literal["tilegate-samples/1"]
    tilegate: str
    created: str
    finished: str | None
    seed: int
    stages: NotRequired[dict[str, float]]
    emulation: NotRequired[dict[str, EmulatedChip]]
    cases: dict[str, Case]


def same_code(case: Case) -> bool:
    """Return whether a case has the same generated code at both commits, and a launch that does the same as far as it is seen."""
    base, head = case["base"], case["head"]
    seen = base.get("observed"), head.get("observed")
    return (
        base["identity"] is not None and base["identity"] == head["identity"] and (None in seen or seen[0] == seen[1])
    )
