"""The verdicts that timing gives: of the cases whose code changed, and of the controls."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tilegate.config import THRESHOLDS, GateConfig
from tilegate.judging import decision, rules, stats
from tilegate.judging.decision import Evidence, Outcome, Step
from tilegate.judging.measured import Measured, disturbances
from tilegate.judging.rules import Terms
from tilegate.judging.untimed import entry
from tilegate.judging.waivers import Waiver
from tilegate.judging.words import disturbances_in_words, percent
from tilegate.schemas.samples import Case
from tilegate.schemas.verdict import CaseVerdict, Entry, Modes, Numbers

_STRIKING_FACTOR = 1.5
"""By which a change seldom makes a kernel faster that was tuned before."""


@dataclass(frozen=True)
class TimedCase:
    """A case that was timed, with by what it is judged."""

    case: Case
    measured: Measured
    terms: Terms

    @property
    def config(self) -> GateConfig:
        """The thresholds of the case."""
        return self.terms.config

    def next(self, suspects: int = 1) -> Step:
        """Return what is worth measuring next."""
        return rules.affordable(self.measured, self.terms, suspects)

    def open(self, suspects: int) -> bool:
        """Return whether the rules ask for more, whatever kept the gate from measuring it."""
        return rules.wanted(self.measured, self.terms, suspects).action != "done"

    def weigh(self) -> Evidence:
        """Weigh the replicates that count."""
        return self.measured.weigh(self.config)


@dataclass(frozen=True)
class Confirmed:
    """What a confirmation says, among all that were confirmed.

    Attributes:
        outcome: of the case.
        p_slower, p_faster: adjusted for the other cases.
    """

    outcome: Outcome
    p_slower: float
    p_faster: float

    def p_value(self, evidence: Evidence) -> float:
        """Return that of the direction in which the estimate lies."""
        return self.p_faster if evidence.interval.estimate < 0 else self.p_slower


def outcomes(
    timed: Mapping[str, TimedCase], faster_together: Callable[[Sequence[float]], list[float]]
) -> dict[str, Confirmed]:
    """Return the outcome of every case that has been confirmed often enough.

    `alpha` is shared among them by Holm's method for slower, and as `faster_together` does for faster.
    """
    names = [name for name, j in timed.items() if j.measured.confirmed(j.config)]
    evidence = [timed[name].weigh() for name in names]
    slower = stats.holm([e.p_slower for e in evidence])
    faster = faster_together([e.p_faster for e in evidence])
    return {
        name: Confirmed(decision.outcome_of(e, timed[name].config, s, f), s, f)
        for name, e, s, f in zip(names, evidence, slower, faster, strict=True)
    }


def gated(j: TimedCase, found: Confirmed | None, suspects: int, waiver: Waiver | None) -> Entry:
    """Return the entry of a case whose code changed.

    Args:
        j: the case.
        found: what its confirmation says; None without one.
        suspects: how many cases of the run went to confirmation.
        waiver: that applies to it.
    """
    m, config = j.measured, j.config
    if not m.screen:
        short = _spoilt(m) or _stopped(j) or f"it has no screen of {config.screen_pairs} pairs"
        return entry(j.case, "inconclusive", f"not measured: {short}")
    evidence = j.weigh()
    high, about = percent(evidence.interval.high), percent(evidence.interval.estimate)
    count = len(m.confirmed(config))
    because = _spoilt(m) or _stopped(j)
    if found is None:
        if j.open(suspects) or m.short.get("confirm"):
            done = len(m.confirmation)
            reason = (
                f"suspicious in the screen ({about}), and confirmed in {done} of {config.replicates} fresh replicates"
            )
            verdict: CaseVerdict = "inconclusive"
            reason += f": {because}" if because else ""
        elif not j.terms.gating:
            verdict, reason = "not-gating", f"its noise cannot support the promise; the screen says {about}"
        else:
            verdict, reason = "pass", f"no sign of a change in the screen, which excludes more than {high}"
        return entry(j.case, verdict, reason, numbers=_numbers(j, evidence, suspects, None))

    outcome = found.outcome
    verdict, reason = _in_words(outcome, config, about=about, high=high, count=count)
    if outcome is not Outcome.SLOWER and not j.terms.gating:
        verdict, reason = "not-gating", f"its noise cannot support the promise; {about} in {count} fresh replicates"
    elif outcome is not Outcome.SLOWER and j.open(suspects):
        if outcome is not Outcome.UNDECIDED:
            verdict, reason = "inconclusive", f"not decided: {about} in {count} fresh replicates, and more are needed"
        reason += f"; {because}" if because else ""
    used = None
    if waiver is not None and verdict in ("regressed", "inconclusive"):
        verdict, reason, used = _waived(waiver, outcome, evidence, verdict, reason)
    made = entry(j.case, verdict, reason, numbers=_numbers(j, evidence, suspects, found.p_value(evidence)))
    if used is not None:
        made["waiver"] = used.name
    return made


def _in_words(outcome: Outcome, config: GateConfig, *, about: str, high: str, count: int) -> tuple[CaseVerdict, str]:
    in_fresh = f"in {count} fresh replicates"
    match outcome:
        case Outcome.SLOWER:
            return "regressed", f"{about} {in_fresh}; a slowdown of only {100 * config.tolerated:g} % is excluded"
        case Outcome.FASTER:
            return "improved", f"{about} {in_fresh}"
        case Outcome.WARNING:
            return "warning", f"{about} {in_fresh}: probably slower, but {high} at the most"
        case Outcome.FAST_ENOUGH:
            return "pass", f"{in_fresh} more than {high} is excluded"
        case _:
            limit = (
                "the most that is allowed" if count >= config.max_replicates else f"of at most {config.max_replicates}"
            )
            return (
                "inconclusive",
                f"too noisy: a slowdown of {high} is possible {in_fresh} ({limit})",
            )


def _waived(
    waiver: Waiver, outcome: Outcome, evidence: Evidence, verdict: CaseVerdict, reason: str
) -> tuple[CaseVerdict, str, Waiver | None]:
    """Apply a waiver to a case that would fail.

    A regression is waived if its estimate is not past the ceiling; a case that noise leaves undecided, if its interval
    is not.
    """
    reached = evidence.interval.estimate if outcome is Outcome.SLOWER else evidence.interval.high
    limit = f"{waiver.name} (at most {waiver.ceiling:g} %, until {waiver.expires.isoformat()})"
    if reached <= math.log1p((waiver.ceiling or 0.0) / 100):
        return "waived", f"{reason}; waived by {limit}", waiver
    return verdict, f"{reason}; past what is waived by {limit}", None


def _spoilt(m: Measured) -> str:
    """Say that disturbances left replicates with too few pairs, if they did."""
    if not sum(m.short.values()):
        return ""
    return f"{disturbances_in_words(disturbances([m]))}, which left too few"


def _stopped(j: TimedCase) -> str:
    return "the time budget ran out" if "stopped" in j.case else ""


def control(j: TimedCase, found: Confirmed | None, controls: int) -> Entry:
    """Return the entry of a control. Arguments as for `gated`; `controls`: how many there are."""
    m = j.measured
    if not m.screen:
        because = f": {_spoilt(m)}" if _spoilt(m) else ""
        return entry(j.case, "unchanged", f"identical code; meant as a control, but not measured{because}")
    evidence = j.weigh()
    about = percent(evidence.interval.estimate)
    if found is None:
        reason = "identical code, and as a control it stood still"
        if not settled(j):
            reason = f"identical code, but as a control it seemed to move ({about}) and was not measured again"
    else:
        count = len(m.confirmed(j.config))
        reason = f"identical code, and as a control it stood still in {count} fresh replicates"
        if found.outcome in (Outcome.SLOWER, Outcome.FASTER):
            reason = f"identical code, but as a control it moved by {about} in {count} fresh replicates"
    p_value = None if found is None else found.p_value(evidence)
    return entry(j.case, "unchanged", reason, numbers=_numbers(j, evidence, controls, p_value))


def around(j: TimedCase, found: Confirmed, controls: int, waiver: Waiver | None) -> Entry:
    """Return the entry of a control that moved where the base against itself stands still. Arguments as for `gated`."""
    made = gated(j, found, controls, waiver)
    made["reason"] += (
        "; its generated code is the same, and the base against itself stands still: look at what the package does around "
        "the launch"
    )
    return made


def settled(j: TimedCase) -> bool:
    """Return whether a control that was screened needs no confirmation, or has it."""
    m = j.measured
    if len(m.confirmation) >= j.config.replicates:
        return True
    return not m.short.get("confirm") and j.next().action != "confirm"


def _numbers(j: TimedCase, evidence: Evidence, suspects: int, p_value: float | None) -> Numbers:
    m = j.measured
    effect = decision.smallest_detectable_effect(evidence, j.config, suspects)
    return {
        "ratio": math.exp(evidence.interval.estimate),
        "interval": [_finite(evidence.interval.low), _finite(evidence.interval.high)],
        "smallest_detectable_effect": _finite(effect, less=1.0),
        "could_promise": decision.supportable_promise(evidence, j.config, suspects),
        "pairs": evidence.pairs,
        "replicates": len(m.counting(j.config)),
        "base_seconds": m.base_seconds,
        "head_seconds": m.head_seconds,
        "p_value": p_value,
    }


def remark(on: Entry, j: TimedCase, config: GateConfig, striking: float = 0.0) -> None:
    """Enter what else a reader must know of a timed case; each key only where there is something to say.

    Args:
        on: the entry of the case.
        j: the case.
        config: of the run, from which the case's may differ.
        striking: seconds below which an improvement is one to look at (tilegate.judging.roofline).
    """
    if on["verdict"] == "improved":
        if (on["ratio"] or 1.0) * _STRIKING_FACTOR < 1:
            on["striking"] = "factor"
        elif (on["head_seconds"] or math.inf) < striking:
            on["striking"] = "roofline"
        if not any(replicate.get("looks") for replicate in j.case["replicates"]):
            on["unseen"] = True
    modes: Modes = {}
    if (gap := j.measured.turn_modes(j.config)) is not None:
        modes["turns"] = math.expm1(gap)
    if (gap := j.measured.process_modes(j.config)) is not None:
        modes["processes"] = math.expm1(gap)
    if modes:
        on["modes"] = modes
    if others := {key: getattr(j.config, key) for key in THRESHOLDS if getattr(j.config, key) != getattr(config, key)}:
        on["thresholds"] = others
    if disturbed := sum(j.measured.disturbed.values()):
        on["disturbed"] = disturbed
    if "apart" in j.case:
        on["apart"] = True


def _finite(log_ratio: float, less: float = 0.0) -> float | None:
    return math.exp(log_ratio) - less if abs(log_ratio) < 700 else None
