"""What is wrong with a kernel, in words for whoever wrote it."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilegate.emulator.places import Place, Places
from tilegate.emulator.source import Parameter

# In the order of runtime/findings.h.
_KINDS = (
    "race",
    "wave-race",
    "workgroup-race",
    "copy-race",
    "out-of-bounds",
    "uninitialised",
    "misaligned",
    "divergent-barrier",
    "divergent-operation",
    "inactive-lane",
    "fault",
    "time-limit",
    "memory-limit",
    "uninitialised",
    "overflow",
    "private-bounds",
    "lds-overflow",
)
KINDS = (*dict.fromkeys(_KINDS), "launch-limit", "crash", "unsupported", "schedule-dependent")
"""Every `Finding.kind`: what the runtime finds, and what only the caller's side can tell."""

_WAVE = 64
_REGISTER = 13  # uninitialised, in the build that follows every value
LDS_USED = "uninitialised-lds"
"""Of that build: something depends on LDS that nothing has written. The traced build says who reads it."""


@dataclass(frozen=True)
class Access:
    """The other side of a conflict.

    Attributes:
        line, text: of the generated source; 0 and "" when unknown.
        wave, lane: who.
        block: the workgroup's index (x, y, z).
        store: whether it writes.
    """

    line: int
    text: str
    wave: int
    lane: int
    block: tuple[int, int, int]
    store: bool


@dataclass(frozen=True)
class Finding:
    """One fault of a kernel, at one place of its source.

    Attributes:
        kind: one of `KINDS`.
        message: one sentence that says what happened, where, and what to do about it.
        line, text: of the generated source; 0 and "" when there is no one line.
        wave, lane: the first work-item that it happened to, -1 when there is none.
        block: its workgroup (x, y, z).
        other: the other access of a race; the other barrier of a divergence.
        count: how often it happened.
    """

    kind: str
    message: str
    line: int = 0
    text: str = ""
    wave: int = -1
    lane: int = -1
    block: tuple[int, int, int] = (0, 0, 0)
    other: Access | None = None
    count: int = 1

    def __str__(self) -> str:
        """Name kind, message and the lines involved."""
        parts = [f"{self.kind}: {self.message}"]
        if self.line:
            parts.append(f"  line {self.line}: {_short(self.text)}")
        if self.other is not None and self.other.line and self.other.line != self.line:
            parts.append(f"  line {self.other.line}: {_short(self.other.text)}")
        if self.count > 1:
            parts.append(f"  ({self.count} times)")
        return "\n".join(parts)


@dataclass(frozen=True)
class Hint:
    """Something that could be better and is not wrong.

    Attributes:
        line, text: of the generated source.
        message: what was seen, for this run's arguments.
    """

    line: int
    text: str
    message: str


@dataclass(frozen=True)
class Scene:
    """What sentences about a run refer to.

    Attributes:
        places: lines of sites.
        grid: of the launch.
        parameters: of the kernel.
        sizes: bytes of each parameter's array, 0 for a number.
        seconds: the time limit.
        memory_bytes: the memory limit.
    """

    places: Places
    grid: tuple[int, int, int]
    parameters: Sequence[Parameter]
    sizes: Sequence[int]
    seconds: float
    memory_bytes: int

    def block(self, number: int) -> tuple[int, int, int]:
        """Return the index of a workgroup, given in the order of dispatch."""
        x, y, _ = self.grid
        return number % x, number // x % y, number // x // y


def finding_of(raw: Mapping[str, Any], scene: Scene) -> Finding:
    """Put one finding of the runtime into words."""
    kind = _KINDS[raw["kind"]]
    place = scene.places.of(raw["site"])
    wave, lane = _wave_and_lane(raw["thread"])
    block = scene.block(raw["workgroup"])
    other = None
    if raw["other"] and raw["kind"] != _REGISTER:
        there = scene.places.of(raw["other_site"])
        other = Access(
            there.line,
            there.text,
            *_wave_and_lane(raw["other_thread"]),
            scene.block(raw["other_workgroup"]),
            raw["other_store"],
        )
    if raw["kind"] == _REGISTER:
        kind = LDS_USED if raw["space"] == 1 else kind
        message = _of_a_register(raw, scene, place)
    else:
        message = _sentence(kind, raw, scene, place, other)
    return Finding(kind, message, place.line, place.text, wave, lane, block, other, raw["count"])


_SENTENCES = {
    "race": "{does}, and {there} {did} the same bytes ({they}) with no barrier between the two that waits for them",
    "wave-race": "{does}, and {there} {did} the same bytes ({they}) with nothing between the two that orders them: a chip "
    "runs the lanes of a wave in step, the emulator does not; a barrier, or __builtin_amdgcn_wave_barrier(), orders them",
    "workgroup-race": "{does}, and {there} {did} the same bytes in workgroup {other_block}: workgroups run in no order, "
    "it takes an atomic operation",
    "copy-race": "{does}, where an asynchronous copy of {there} ({they}) is still under way: it is done only at a "
    "cp_async_wait, and none comes before",
    "out-of-bounds": "{does}",
    "uninitialised": "{does}, which nothing has written in this workgroup",
    "misaligned": "{does}, at an address that is not a multiple of {bytes}",
    "divergent-barrier": "not all work-items wait at one barrier: {here} ({who}) and {there} ({they})",
    "ended-barrier": "not all work-items come to the barrier of {here}: {who} waits, {they} has ended",
    "divergent-operation": "only {lanes} of wave {wave}, workgroup {block}, come to the matrix instruction of {here}, which "
    "takes all 64",
    "inactive-register": "{here} reads the register of lane {source} ({who}), and only {lanes} take part: a chip gives what "
    "that register happens to hold, which the emulator does not know",
    "inactive-lane": "{here} reads lane {source} ({who}), and only {lanes} take part: a chip gives no defined value",
    "fault": "the kernel ends with {signal} at {here} ({who})",
    "private-bounds": "{here}: an index leaves a variable of the work-item's own, or an array of fixed size in LDS ({who})",
    "lds-overflow": "{offset} bytes of LDS, {bytes} of them in arrays of fixed size, which is more than a workgroup can have: "
    "it cannot be launched",
    "time-limit": "not done after {seconds:g} s, at {here} ({who}): an endless loop, a wait for another wave or workgroup, "
    "or too large a problem",
    "memory-limit": "needs more than {mebibytes} MiB: take a smaller problem or a higher limit",
}
_OVERFLOWS = (
    "{here}: an integer wraps ({who}): its result does not fit its type, make it an int64_t",
    "{here}: a shift by a negative number or past the width ({who})",
    "{here}: a floating-point number that an 8- or 16-bit integer cannot hold ({who}): a chip keeps the low bits of a "
    "32-bit conversion, the emulator the nearest value",
)
_SIGNALS = {
    signal.SIGFPE: "an integer division by zero",
    signal.SIGTRAP: "a modifier of a matrix instruction that the emulator does not know",
}


def _sentence(kind: str, raw: Mapping[str, Any], scene: Scene, place: Place, other: Access | None) -> str:
    wave, lane = _wave_and_lane(raw["thread"])
    block = scene.block(raw["workgroup"])
    who = f"lane {lane} of wave {wave}, workgroup {block}"
    ended_by = signal.Signals(raw["offset"]) if kind == "fault" else None
    facts = {
        "who": who,
        "here": place.name,
        "wave": wave,
        "block": block,
        "bytes": raw["bytes"],
        # A fault without a size says not whether it was a load or a store.
        "does": f"{place.name} {_verb(raw['store']) if raw['bytes'] else 'touches'} {_memory(raw, scene)} ({who})",
        "lanes": _lanes(int(raw["lanes"], 16)),
        "source": raw["offset"],
        "offset": raw["offset"],
        "signal": _SIGNALS.get(ended_by, ended_by.name) if ended_by else "",
        "seconds": scene.seconds,
        "mebibytes": scene.memory_bytes >> 20,
    }
    if other is not None:
        facts["there"] = scene.places.of(raw["other_site"]).name
        facts["did"] = _verb(other.store)
        facts["they"] = f"lane {other.lane} of wave {other.wave}"
        facts["other_block"] = other.block
    if kind == "overflow":
        return _OVERFLOWS[raw["offset"]].format(**facts)
    ended = kind == "divergent-barrier" and raw["other_site"] == 0
    if kind == "inactive-lane" and raw["store"]:
        kind = "inactive-register"
    return _SENTENCES["ended-barrier" if ended else kind].format(**facts)


def _of_a_register(raw: Mapping[str, Any], scene: Scene, place: Place) -> str:
    wave, lane = _wave_and_lane(raw["thread"])
    name = raw["name"] if str(raw["name"]).isidentifier() else ""
    declared = scene.places.of(raw["other_site"]) if raw["other"] else Place()
    what = f"the variable {name}" if name else "a variable"
    if declared.line:
        what += f" of {declared.name}"
    does = f"stores into {_element(raw, scene)} what depends on" if raw["store"] else "decides or addresses by"
    return f"{place.name} {does} {what}, before anything has been written there (lane {lane} of wave {wave}, workgroup {scene.block(raw['workgroup'])})"


def _short(text: str) -> str:
    """Generated index arithmetic runs to hundreds of characters."""
    return text if len(text) <= 110 else f"{text[:80]} … {text[-27:]}"


def _verb(store: bool) -> str:
    return "writes" if store else "reads"


def _memory(raw: Mapping[str, Any], scene: Scene) -> str:
    first, count = raw["offset"], raw["bytes"]
    if raw["space"] == 1:
        return f"{count} bytes of LDS at byte {first}" if count else f"LDS at byte {first}"
    return _element(raw, scene)


def _element(raw: Mapping[str, Any], scene: Scene) -> str:
    index, first = raw["parameter"], raw["offset"]
    if index < 0:
        return "memory that is no argument's"
    size, parameter = scene.sizes[index], scene.parameters[index]
    element = f"{parameter.name}[{first // parameter.bytes}]"
    if 0 <= first < size:
        return element
    side = "past the end" if first >= size else "before the start"
    return f"{element}, {side} of {parameter.name} ({size // parameter.bytes} elements)"


def _wave_and_lane(thread: int) -> tuple[int, int]:
    return (thread // _WAVE, thread % _WAVE) if thread >= 0 else (-1, -1)


def _lanes(mask: int) -> str:
    """Spell a mask as ranges: "lanes 0-15, 32"."""
    lanes = [lane for lane in range(_WAVE) if mask >> lane & 1]
    starts = [lane for lane in lanes if lane - 1 not in lanes]
    ends = [lane for lane in lanes if lane + 1 not in lanes]
    spans = [str(a) if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True)]
    return "lanes " + ", ".join(spans) if spans else "no lanes"
