"""The verdicts that no timing can change: cases that fail, are missing, are identical, or contradict themselves."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping

import numpy as np

from tilegate.config import GateConfig
from tilegate.judging.measured import impossible
from tilegate.protocol import is_call
from tilegate.schemas.samples import Case, FailureKind, SideName, same_code
from tilegate.schemas.verdict import CaseVerdict, Entry, EntryFailure, Numbers, Obstacle

NO_NUMBERS: Numbers = {
    "ratio": None,
    "interval": None,
    "smallest_detectable_effect": None,
    "could_promise": None,
    "pairs": 0,
    "replicates": 0,
    "base_seconds": None,
    "head_seconds": None,
    "p_value": None,
}

# In words, for reasons; the keys are the schema's.
_IN_WORDS: Mapping[FailureKind, str] = {
    "compile": "does not compile",
    "import": "cannot be imported",
    "setup": "cannot be set up",
    "wrong-result": "computes wrong results",
    "crash": "crashes",
    "hang": "hangs",
    "out-of-memory": "runs out of memory",
    "leak": "was loaded from the wrong tree",
    "off-clock": "leaves work out of what is timed",
    "side-effect": "changes its inputs or hands them out as results",
    "tampered": "replaces a part of what measures it",
    "emulation": "is wrong on a chip that was emulated",
    "error": "fails",
}


def misnamed(name: str, case: Case) -> Entry | None:
    """Return the verdict on a case whose id is not that of its benchmark and parameters, by which its times are judged."""
    benchmark, parameters = case["benchmark"], f"({', '.join(case['params'])})" if case["params"] else ""
    if name == benchmark + parameters and ("(" not in benchmark or benchmark == "(suite)"):
        return None
    flaw = "the samples contradict themselves: its benchmark and parameters are those of another case"
    return undecidable(case, "samples", flaw)


def without_statistics(name: str, case: Case, config: GateConfig, floor: float = 0.0) -> Entry | None:
    """Return the verdict on a case that no timing can change, or None."""
    sides: tuple[SideName, ...] = ("base", "head")
    for of in sides:
        if (case[of]["status"] == "failed") != (case[of]["failure"] is not None):
            return undecidable(case, "samples", f"the samples contradict themselves: did the {of} fail or not?")
    if case["base"]["failure"] is not None:
        how = _IN_WORDS[case["base"]["failure"]["kind"]]
        return undecidable(case, "base", f"the base itself {how}{_and_the_head(case)}", "base")
    if case["base"]["status"] == "missing":
        return _only_at_the_head(case, floor)
    if case["head"]["status"] == "missing":
        note = "allowed by allow_removed" if removal_allowed(name, config) else "not allowed by allow_removed"
        return entry(case, "removed", f"the head no longer has it ({note})")
    if case["head"]["failure"] is not None:
        return entry(case, "broken", f"the head {_IN_WORDS[case['head']['failure']['kind']]}", "head")
    return _by_identity(case)


def _and_the_head(case: Case) -> str:
    """Say, of a case that fails at the base, that it fails at the head, too; nothing if it does not."""
    if case["base"]["failure"] is None or case["head"]["failure"] is None:
        return ""
    kind = case["head"]["failure"]["kind"]
    how = "so does the head" if kind == case["base"]["failure"]["kind"] else f"the head {_IN_WORDS[kind]}"
    return f", and {how}: the suite or the base is at fault, not the change"


def _only_at_the_head(case: Case, floor: float) -> Entry:
    head = case["head"]
    if head["failure"] is not None:
        return entry(case, "broken", f"new, and it {_IN_WORDS[head['failure']['kind']]}", "head")
    if head["status"] == "missing":
        return undecidable(case, "samples", "neither base nor head has it")
    if not head["checked"]:
        return undecidable(case, "check", "new, and its results were not checked")
    turns = case["alone"]["turns"] if "alone" in case else []
    seconds = float(np.median([np.median(turn) for turn in turns])) if turns else None
    if seconds is not None and seconds < floor:
        return undecidable(case, "times", f"new, and its times are impossible: {impossible(seconds, floor)}")
    numbers: Numbers = {**NO_NUMBERS, "head_seconds": seconds}
    return entry(case, "new", "the base does not have it, so there is nothing to compare with", numbers=numbers)


def _by_identity(case: Case) -> Entry | None:
    head, same = case["head"], same_code(case)
    flaw: str | None = None
    obstacle: Obstacle = "samples"
    if case["role"] != "gated" and not same:
        flaw = "said to be identical code, but base and head have different digests or none"
    elif case["role"] == "identical":
        return entry(case, "unchanged", "identical generated code and launch configuration; not timed")
    elif case["role"] == "gated" and same:
        flaw = "gated as changed, but base and head have the same digest"
    elif case["role"] == "gated" and not head["checked"]:
        flaw, obstacle = "the head's results were not checked, and a fast wrong kernel is no success", "check"
    return None if flaw is None else undecidable(case, obstacle, flaw)


def removal_allowed(name: str, config: GateConfig) -> bool:
    """Return whether the head may drop a case (`allow_removed`)."""
    return any(fnmatch.fnmatchcase(name, glob) for glob in config.allow_removed)


def undecidable(case: Case, obstacle: Obstacle, reason: str, failed: SideName | None = None) -> Entry:
    """Return the entry of a case that no further measuring decides by itself."""
    made = entry(case, "inconclusive", reason, failed)
    made["obstacle"] = obstacle
    return made


def entry(
    case: Case, verdict: CaseVerdict, reason: str, failed: SideName | None = None, numbers: Numbers = NO_NUMBERS
) -> Entry:
    """Return the entry of a case.

    Args:
        case: of the samples.
        verdict, reason: what it says.
        failed: the side whose failure it shows.
        numbers: what the pairs say, of a case that was timed.
    """
    made: Entry = {
        "verdict": verdict,
        "reason": reason,
        "role": case["role"],
        "ratio": numbers["ratio"],
        "interval": numbers["interval"],
        "smallest_detectable_effect": numbers["smallest_detectable_effect"],
        "could_promise": numbers["could_promise"],
        "pairs": numbers["pairs"],
        "replicates": numbers["replicates"],
        "base_seconds": numbers["base_seconds"],
        "head_seconds": numbers["head_seconds"],
        "p_value": numbers["p_value"],
        "failure": None if failed is None else _failure(case, failed),
    }
    if case.get("cause"):
        made["cause"] = list(case["cause"])  # handed through for people to read; no rule looks at it
    if case.get("work") and not is_call(case["benchmark"]):
        made["work"] = case["work"]
    return made


def _failure(case: Case, side: SideName) -> EntryFailure | None:
    failure = case[side]["failure"]
    return None if failure is None else {"side": side, **failure}
