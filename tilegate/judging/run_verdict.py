"""From the verdicts of the cases to that of the run: controls, disturbances, expired waivers, and everything in doubt."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilegate.config import GateConfig
from tilegate.judging import stats
from tilegate.judging.decision import Evidence, Outcome
from tilegate.judging.untimed import removal_allowed
from tilegate.judging.waivers import ResolvedWaivers
from tilegate.judging.words import cases_in_words, disturbances_in_words, percent, sentence
from tilegate.schemas.samples import Samples
from tilegate.schemas.verdict import Controls, Disturbances, EmulatedChip, Entry, ExitCode, RunVerdict

EXIT_CODES: Mapping[RunVerdict, ExitCode] = {
    "pass": 0,
    "regressed": 1,
    "broken": 3,
    "inconclusive": 4,
    "environment-invalid": 5,
}

Entries = Mapping[str, Entry]

_LEAST_ERROR = 1e-9  # log ratio; none is smaller, and some samples have no noise at all


@dataclass(frozen=True)
class Control:
    """A case with identical code that was timed.

    Attributes:
        evidence: of the stage that counts.
        config: thresholds of the case.
        outcome: of its confirmation; None without one.
    """

    evidence: Evidence
    config: GateConfig
    outcome: Outcome | None


def control_test(controls: Mapping[str, Control], alpha: float) -> Controls:
    """Return the control test: did identical code seem to change, in one case or in all of them together?

    Cases with another `screen` notice another shift, so only those that share it are taken together; `shift` and
    `shift_limit` are of those that come nearest to their limit, or go furthest beyond.

    Args:
        controls: by name.
        alpha: the probability of saying so when nothing changed, shared among the groups.
    """
    alone = [name for name, c in controls.items() if c.outcome in (Outcome.SLOWER, Outcome.FASTER)]
    if not controls:
        reason = "no controls: no timed case has identical code"
        return {"count": 0, "moved": [], "shift": None, "shift_limit": None, "reason": reason}
    groups: dict[float, list[Evidence]] = {}
    for control in controls.values():
        groups.setdefault(control.config.screen, []).append(control.evidence)
    shifts = [(*_shift(group, alpha / len(groups)), screen) for screen, group in groups.items()]
    # A shift too small to make a suspect of anything does no harm, however certain it is.
    limited = [(shift, max(chance, math.log1p(screen))) for shift, chance, screen in shifts]
    shift, limit = max(limited, key=lambda found: abs(found[0]) / max(found[1], _LEAST_ERROR))
    if alone:
        reason = f"{len(alone)} of {cases_in_words(len(controls))} with identical code seemed to change"
    elif abs(shift) > limit:
        reason = f"{cases_in_words(len(controls))} with identical code changed together, by {percent(shift)}"
    else:
        reason = f"{cases_in_words(len(controls))} with identical code stood still (together {percent(shift)})"
    return {"count": len(controls), "moved": alone, "shift": shift, "shift_limit": limit, "reason": reason}


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


def moved(controls: Controls) -> bool:
    """Return whether controls moved, by their test: one by itself, or those together that share a threshold."""
    return bool(controls["moved"]) or abs(controls["shift"] or 0.0) > (controls["shift_limit"] or 0.0)


def out_of_time(samples: Samples, cases: Entries) -> int:
    """Return how many cases could not be decided within the time that the run was given."""
    return sum("stopped" in samples["cases"][name] for name, e in cases.items() if e["verdict"] == "inconclusive")


def doubts(
    samples: Samples, cases: Entries, config: GateConfig, *, counted: int, unsettled: int, resolved: ResolvedWaivers
) -> list[str]:
    """Return everything that keeps a run from passing although nothing in it is broken or slower.

    Args:
        samples: the samples document.
        cases: every case's entry of the verdict.
        config: thresholds of the run.
        counted: how many timed cases can make the run fail: changed code that gates; if no code changed, controls.
        unsettled: how many controls seemed to move and were not measured again.
        resolved: the waivers that speak of times.
    """
    found = []
    if samples["finished"] is None:
        found.append("the run was interrupted")
    if resolved.expired:
        found.append(expired_in_words(resolved))
    if unclear := sum(entry["verdict"] == "inconclusive" for entry in cases.values()):
        late = out_of_time(samples, cases)
        because = f", {late} because the time budget ran out" if late else ""
        found.append(f"{cases_in_words(unclear)} of {len(cases)} could not be decided{because}")
    if lost := sum(
        entry["verdict"] == "removed" and not removal_allowed(name, config) for name, entry in cases.items()
    ):
        found.append(f"{cases_in_words(lost)} removed, not named by allow_removed in the base's pyproject.toml")
    if unsettled:
        found.append(f"{cases_in_words(unsettled)} with identical code seemed to move, not measured again")
    if not counted:
        blind = sum(entry["verdict"] == "not-gating" for entry in cases.values())
        found.append(
            f"nothing was measured that counts: {cases_in_words(blind)} not gating" if blind else "nothing was measured"
        )
    return found


def of_run(
    cases: Entries,
    controls: Controls,
    disturbances: Disturbances,
    config: GateConfig,
    *,
    resolved: ResolvedWaivers,
    in_doubt: Sequence[str],
    emulation: Mapping[str, EmulatedChip],
    acquitted: bool = False,
) -> tuple[RunVerdict, str]:
    """Return the run's verdict and its reason: one sentence, in which only names of waivers come from a commit.

    With `acquitted`, controls that moved are not the machine's doing.
    """
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
    if moved(controls) and not acquitted:
        reason = f"The machine cannot be trusted: {controls['reason']}. Measure again on a quiet machine."
        return "environment-invalid", reason
    if regressed := counts["regressed"]:
        worst = max(entry["ratio"] or 0.0 for entry in cases.values() if entry["verdict"] == "regressed")
        said = f"{cases_in_words(regressed)} of {len(cases)} got slower, at worst by {100 * (worst - 1):.1f} %."
        more = f" {sentence(expired_in_words(resolved))}" if resolved.expired else ""
        return "regressed", said + more
    if in_doubt:
        return "inconclusive", sentence("; ".join(in_doubt))
    return "pass", _passed(cases, controls, config)


def _passed(cases: Entries, controls: Controls, config: GateConfig) -> str:
    """Say what a pass means, and nothing that the waived, the not gating and the otherwise judged cases make untrue."""
    judged = [e for e in cases.values() if e["verdict"] in ("pass", "improved", "warning")]
    asides = []
    promises = [e["thresholds"].get("promise", config.promise) if "thresholds" in e else config.promise for e in judged]
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


def expired_in_words(resolved: ResolvedWaivers) -> str:
    """Name the waivers that have expired."""
    named = [f"{w.name} (on {w.expires.isoformat()})" for w in resolved.expired[:3]]
    more = f" and {len(resolved.expired) - 3} more" if len(resolved.expired) > 3 else ""
    return f"waiver expired: {', '.join(named)}{more}; renew or remove"
