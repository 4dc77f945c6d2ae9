"""From the verdicts of the cases to that of the run: controls, disturbances, expired waivers, and everything in doubt."""

from __future__ import annotations

import fnmatch
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilegate.config import GateConfig
from tilegate.judging import stats
from tilegate.judging.decision import Evidence, Finding
from tilegate.judging.measured import Measured
from tilegate.judging.waivers import Standing

EXIT_CODES: Mapping[str, int] = {"pass": 0, "regressed": 1, "broken": 3, "inconclusive": 4, "environment-invalid": 5}

Entries = Mapping[str, Mapping[str, Any]]

_LEAST_ERROR = 1e-9  # log ratio; none is smaller, and some samples have no noise at all


def may_go(name: str, config: GateConfig) -> bool:
    """Return whether the head may drop a case."""
    return any(fnmatch.fnmatchcase(name, glob) for glob in config.allow_removed)


@dataclass(frozen=True)
class Control:
    """A case with identical code that was timed.

    Attributes:
        evidence: of the stage that counts.
        config: thresholds of the case.
        finding: what its confirmation says; None without one.
    """

    evidence: Evidence
    config: GateConfig
    finding: Finding | None


def control_report(controls: Mapping[str, Control], alpha: float) -> dict[str, Any]:
    """Return the control test: did identical code seem to change, in one case or in all of them together?

    Cases with another `screen` notice another shift, so only those that share it are taken together; `shift` and
    `shift_limit` are of those that come nearest to their limit, or go furthest beyond.

    Args:
        controls: by name.
        alpha: the probability of saying so when nothing changed, shared among the groups.
    """
    alone = [name for name, c in controls.items() if c.finding in (Finding.SLOWER, Finding.FASTER)]
    report = {"count": len(controls), "moved": alone, "shift": None, "shift_limit": None}
    if not controls:
        return {**report, "reason": "no controls: no timed case has identical code"}
    groups: dict[float, list[Evidence]] = {}
    for control in controls.values():
        groups.setdefault(control.config.screen, []).append(control.evidence)
    shifts = [(*_shift(group, alpha / len(groups)), screen) for screen, group in groups.items()]
    # A shift too small to make a suspect of anything does no harm, however certain it is.
    limited = [(shift, max(chance, math.log1p(screen))) for shift, chance, screen in shifts]
    shift, limit = max(limited, key=lambda found: abs(found[0]) / max(found[1], _LEAST_ERROR))
    report |= {"shift": shift, "shift_limit": limit}
    if alone:
        reason = f"{len(alone)} of {cases_in_words(len(controls))} with identical code seemed to change"
    elif abs(shift) > limit:
        reason = f"{cases_in_words(len(controls))} with identical code changed together, by {percent(shift)}"
    else:
        reason = f"{cases_in_words(len(controls))} with identical code stood still (together {percent(shift)})"
    return {**report, "reason": reason}


def _shift(group: Sequence[Evidence], alpha: float) -> tuple[float, float]:
    """Return the weighted mean of the estimates, and how far it is off by chance with a probability of `alpha`.

    The errors are estimates, from eight pairs or so. Weights that followed each of them would favour those that came out
    too small, so what differs between the weights is the expected bias; the noise of pairs is in them as its mean.
    """
    common = float(np.mean([e.pair_error**2 for e in group]))
    weights = np.array([1 / max(e.bias_error**2 + common, _LEAST_ERROR**2) for e in group])
    shares = weights / weights.sum()
    variances = [(float(share * e.error) ** 2, e.freedom) for share, e in zip(shares, group, strict=True)]
    chance = stats.student_quantile(alpha / 2, stats.freedom_of_sum(variances))
    return float(shares @ [e.interval.estimate for e in group]), chance * math.sqrt(sum(v for v, _ in variances))


def moved(report: Mapping[str, Any]) -> bool:
    """Return whether controls moved, by their report: one by itself, or those together that share a threshold."""
    return bool(report["moved"]) or abs(report["shift"] or 0.0) > (report["shift_limit"] or 0.0)


def disturbance_report(timed: Iterable[Measured]) -> dict[str, Any]:
    """Return how many of all pairs were disturbed, and why."""
    reasons: Counter[str] = Counter()
    pairs = 0
    for m in timed:
        reasons.update(m.disturbed)
        pairs += m.pairs
    return {"pairs": reasons.total(), "of": pairs, "reasons": dict(reasons.most_common())}


def disturbances_in_words(report: Mapping[str, Any]) -> str:
    """Return a disturbance report as a phrase."""
    why = ", ".join(f"{reason} {count}" for reason, count in report["reasons"].items())
    return f"{report['pairs']} of {report['of']} pairs were disturbed ({why})"


def unresolved_for_want_of_time(samples: Mapping[str, Any], cases: Entries) -> int:
    """Return how many cases could not be decided within the time that the run was given."""
    return sum("stopped" in samples["cases"][name] for name, e in cases.items() if e["verdict"] == "inconclusive")


def doubts(
    samples: Mapping[str, Any], cases: Entries, config: GateConfig, *, counted: int, unsettled: int, standing: Standing
) -> list[str]:
    """Return everything that keeps a run from passing although nothing in it is broken or slower.

    Args:
        samples: the samples document.
        cases: every case's entry of the verdict.
        config: thresholds of the run.
        counted: how many timed cases can make the run fail: changed code that gates; if no code changed, controls.
        unsettled: how many controls seemed to move and were not measured again.
        standing: the waivers that speak of times.
    """
    found = []
    if samples["finished"] is None:
        found.append("the run was interrupted")
    if standing.expired:
        found.append(expired_in_words(standing))
    if unclear := sum(entry["verdict"] == "inconclusive" for entry in cases.values()):
        out_of_time = unresolved_for_want_of_time(samples, cases)
        because = f", {out_of_time} for want of time" if out_of_time else ""
        found.append(f"{cases_in_words(unclear)} of {len(cases)} could not be decided{because}")
    if lost := sum(entry["verdict"] == "removed" and not may_go(name, config) for name, entry in cases.items()):
        found.append(f"{cases_in_words(lost)} removed without leave (allow_removed in the base's pyproject gives it)")
    if unsettled:
        found.append(f"{cases_in_words(unsettled)} with identical code seemed to move, not measured again")
    if not counted:
        blind = sum(entry["verdict"] == "not-gating" for entry in cases.values())
        found.append(
            f"nothing was measured that counts: {cases_in_words(blind)} not gating" if blind else "nothing was measured"
        )
    return found


def conclude(
    cases: Entries,
    controls: Mapping[str, Any],
    disturbances: Mapping[str, Any],
    config: GateConfig,
    *,
    standing: Standing,
    in_doubt: Sequence[str],
    emulation: Mapping[str, Any],
) -> tuple[str, str]:
    """Return the run's verdict and its reason: one sentence, in which only names of waivers come from a commit."""
    counts = Counter(entry["verdict"] for entry in cases.values())
    wrong = [arch for arch, found in emulation.items() for k in found["kernels"].values() if k["verdict"] == "broken"]
    if counts["broken"] or wrong:
        parts = [f"{cases_in_words(counts['broken'])} of {len(cases)} broken at the head"] if counts["broken"] else []
        kernels = "1 kernel" if len(wrong) == 1 else f"{len(wrong)} kernels"
        parts += [f"{kernels} broken on {' and '.join(dict.fromkeys(wrong))}, emulated"] if wrong else []
        return "broken", f"{'; '.join(parts)}: see the messages."
    if disturbances["of"] and disturbances["pairs"] > config.most_disturbed * disturbances["of"]:
        words = disturbances_in_words(disturbances)
        return "environment-invalid", f"The machine was not quiet: {words}. Measure again when it is."
    if moved(controls):
        reason = f"The machine cannot be trusted: {controls['reason']}. Measure again on a quiet machine."
        return "environment-invalid", reason
    if regressed := counts["regressed"]:
        worst = max(entry["ratio"] for entry in cases.values() if entry["verdict"] == "regressed")
        sentence = f"{cases_in_words(regressed)} of {len(cases)} got slower, at worst by {100 * (worst - 1):.1f} %."
        more = f" {_sentence(expired_in_words(standing))}" if standing.expired else ""
        return "regressed", sentence + more
    if in_doubt:
        return "inconclusive", _sentence("; ".join(in_doubt))
    return "pass", _passed(cases, controls, config)


def _passed(cases: Entries, controls: Mapping[str, Any], config: GateConfig) -> str:
    """Say what a pass means, and nothing that the waived, the not gating and the otherwise judged cases make untrue."""
    judged = [e for e in cases.values() if e["verdict"] in ("pass", "improved", "warning")]
    asides = []
    promises = [e.get("thresholds", {}).get("promise", config.promise) for e in judged]
    if len(set(promises)) > 1:
        asides.append(f"{sum(p != config.promise for p in promises)} by a promise of their own")
    if waived := sum(e["verdict"] == "waived" for e in cases.values()):
        asides.append(f"{waived} slower and waived")
    if blind := sum(e["verdict"] == "not-gating" for e in cases.values()):
        asides.append(f"{blind} not gating")
    slower = f"{100 * (promises[0] if len(set(promises)) == 1 else config.promise):g} % slower"
    if judged:
        aside = f" ({', '.join(asides)})" if asides else ""
        what = f"None of {cases_in_words(len(judged))} whose code changed is {slower}{aside}"
    elif asides:
        what = f"Every case whose code changed: {', '.join(asides)}"
    else:
        what = f"No case's code changed, so none is {slower}"
    return f"{what}; {controls['reason']}."


def expired_in_words(standing: Standing) -> str:
    """Name the waivers that have expired."""
    named = [f"{w.name} (on {w.expires.isoformat()})" for w in standing.expired[:3]]
    more = f" and {len(standing.expired) - 3} more" if len(standing.expired) > 3 else ""
    return f"waiver expired: {', '.join(named)}{more}; renew or remove"


def cases_in_words(count: int) -> str:
    """Return "1 case", "2 cases"."""
    return "1 case" if count == 1 else f"{count} cases"


def percent(log_ratio: float) -> str:
    """Return a log ratio as a change in percent, signed."""
    return f"{100 * math.expm1(log_ratio):+.1f} %" if abs(log_ratio) < 10 else "any amount"


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
