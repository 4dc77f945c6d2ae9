"""A control that moved: is it the machine, or what the change did around a kernel whose generated code is the same?

Identical generated code says what the compiler was given, not what a launch does: the package's Python may check more, copy,
wait, or start another kernel. So where the files of the package differ, the gate measures the base against itself in such a
case, as often as base against head. If that moves, too, the machine is at fault. If it stands still, the change is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilegate.judging import decision
from tilegate.judging.decision import Outcome
from tilegate.judging.measured import UnsoundError, measured
from tilegate.judging.timed import Confirmed, TimedCase
from tilegate.schemas.samples import Case, Target

_PART = 0.5  # of what the control moved by: the base against itself must move by less


def against_itself(controls: Mapping[str, TimedCase], target: Target) -> dict[str, TimedCase]:
    """Return, of the controls that have it, the base against itself as a timed case."""
    found = {}
    for name, j in controls.items():
        if "itself" not in j.case:
            continue
        case: Case = {**j.case, "replicates": j.case["itself"]}
        try:
            found[name] = replace(j, case=case, measured=measured(case, j.config, target))
        except UnsoundError:  # then it acquits nobody
            continue
    return found


def changed_around(
    controls: Mapping[str, TimedCase], moves: Mapping[str, Confirmed], itself: Mapping[str, TimedCase]
) -> dict[str, Confirmed]:
    """Return the controls that moved although the base against itself stands still, with what their confirmation says."""
    found = {}
    for name, move in moves.items():
        if move.outcome in (Outcome.SLOWER, Outcome.FASTER) and name in itself and _still(controls[name], itself[name]):
            found[name] = move
    return found


def _still(control: TimedCase, itself: TimedCase) -> bool:
    if not itself.measured.confirmed(itself.config):
        return False
    evidence = itself.weigh()
    outcome = decision.outcome_of(evidence, itself.config, evidence.p_slower, evidence.p_faster)
    moved_by = abs(control.weigh().interval.estimate)
    return outcome not in (Outcome.SLOWER, Outcome.FASTER) and abs(evidence.interval.estimate) < _PART * moved_by
