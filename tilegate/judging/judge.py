"""The verdict, from raw samples alone.

`judge` is a pure function of a samples document. It believes no conclusion in it: everything is computed again, and
what the gate should have measured but did not is held against the run. See docs/gate.md for the rules.
"""

from __future__ import annotations

import contextlib
import datetime
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tilegate import files
from tilegate.config import THRESHOLDS, GateConfig, from_dict, to_dict
from tilegate.judging import advice, conclusion, decision, noise, roofline, stats, waivers
from tilegate.judging import emulation as emulated
from tilegate.judging.conclusion import EXIT_CODES, percent
from tilegate.judging.decision import DONE, Evidence, Finding, Step
from tilegate.judging.measured import Measured, UnsoundError, impossible, measured
from tilegate.judging.noise import NoiseProfile
from tilegate.judging.waivers import Standing, Waiver
from tilegate.protocol import is_call

SCHEMA = "tilegate-verdict/1"

CASE_VERDICTS = (
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
)

# In words, for reasons; the keys are the schema's.
_FAILURES: Mapping[str, str] = {
    "compile": "does not compile",
    "import": "cannot be imported",
    "setup": "cannot be set up",
    "wrong-result": "computes wrong results",
    "crash": "crashes",
    "hang": "hangs",
    "out-of-memory": "runs out of memory",
    "leak": "was loaded from the wrong tree",
    "emulation": "is wrong on a chip that was emulated",
    "error": "fails",
}


@dataclass(frozen=True)
class Terms:
    """By what one case is judged.

    Attributes:
        config: thresholds and numbers of pairs, those of its override.
        gating: its noise can support the promise.
    """

    config: GateConfig
    gating: bool = True


@dataclass(frozen=True)
class Rules:
    """By what the cases of a run are judged.

    Attributes:
        terms: of every case.
        bias_scale: factor by which the replicates of the run scatter more than its noise model explains; it is in the
            terms already.
        calibrated: how many cases have their noise from a profile.
    """

    terms: Mapping[str, Terms]
    bias_scale: float
    calibrated: int


@dataclass(frozen=True)
class _Judged:
    """A case that was timed."""

    case: Mapping[str, Any]
    measured: Measured
    terms: Terms

    @property
    def config(self) -> GateConfig:
        return self.terms.config

    def next(self, suspects: int = 1) -> Step:
        return _next(self.measured, self.terms, suspects)

    def open(self, suspects: int) -> bool:
        """Whether the rules ask for more, whatever kept the gate from measuring it."""
        return _wanted(self.measured, self.terms, suspects).action != "done"

    def weigh(self) -> Evidence:
        return self.measured.weigh(self.config)


def judge(
    samples: Mapping[str, Any],
    config: GateConfig | None = None,
    *,
    waived: tuple[Waiver, ...] | None = None,
    allow_head_waivers: bool | None = None,
    today: datetime.date | None = None,
    profile: NoiseProfile | None = None,
) -> dict[str, Any]:
    """Return the verdict on `samples`, as described by schemas/verdict-1.json.

    Args:
        samples: a document that fits schemas/samples-1.json (`files.load_samples` checks that).
        config: replaces the configuration that the samples carry. A publisher that does not trust the samples passes
            the one of the base commit; nothing then is believed that they say about rules, neither waivers nor noise.
        waived: replaces the waivers that the samples carry.
        allow_head_waivers: whether waivers of the head count that the base does not have; None: as the samples say.
        today: the day on which waivers must not have expired; None: the day on which the run began, so that the same
            samples give the same verdict for ever.
        profile: replaces the noise profile that the samples carry.

    Raises:
        UsageError: the samples' own configuration, waivers or date are needed and are not valid.
    """
    if config is None:
        config = from_dict(samples["config"], "config in the samples")
        profile = profile or profile_of(samples)
        waived = waivers.from_samples(samples.get("waivers", [])) if waived is None else waived
    standing = _standing(samples, waived or (), allow_head_waivers, today)
    cases: Mapping[str, Mapping[str, Any]] = samples["cases"]
    rules = rules_of(samples, config, profile)
    terms = rules.terms

    settled: dict[str, dict[str, Any]] = {}
    timed: dict[str, _Judged] = {}
    for name, case in cases.items():
        verdict = _misnamed(name, case) or _without_statistics(name, case, config, _floor(case, samples))
        if verdict is None:
            try:
                timed[name] = _Judged(
                    case, measured(case, terms[name].config, samples["target"], _floor(case, samples)), terms[name]
                )
            except UnsoundError as flaw:
                verdict = _undecidable(case, flaw.obstacle, f"its samples cannot be used: {flaw}")
        if verdict is not None:
            settled[name] = verdict

    gated = {name: j for name, j in timed.items() if j.case["role"] == "gated"}
    controls = {name: j for name, j in timed.items() if j.case["role"] == "control"}
    suspects = [name for name, j in gated.items() if j.measured.confirmation or j.next().action == "confirm"]
    # A list of improvements may hold a few false ones, a check that blocks may not, and no control may move either way.
    findings = _findings(gated, stats.benjamini_hochberg)
    for name, j in gated.items():
        settled[name] = _gated(j, findings.get(name), len(suspects), waivers.highest(standing.counting, name))
    control_findings = _findings(controls, stats.holm)
    for name, j in controls.items():
        settled[name] = _control(j, control_findings.get(name), len(controls))
    for name, j in timed.items():
        settled[name] |= _remarks(j, config)

    ordered = {name: settled[name] for name in cases}
    control_report = conclusion.control_report(
        {
            name: conclusion.Control(
                j.weigh(), j.config, control_findings[name][0] if name in control_findings else None
            )
            for name, j in controls.items()
            if j.measured.screen
        },
        config.alpha,
    )
    disturbances = conclusion.disturbance_report(j.measured for j in timed.values())
    # Controls say something of a change only where it left all code alone.
    counted = sum(bool(j.measured.screen) and j.terms.gating for j in (gated or controls).values())
    unsettled = sum(bool(j.measured.screen) and not _settled(j) for j in controls.values())
    doubts = conclusion.doubts(samples, ordered, config, counted=counted, unsettled=unsettled, standing=standing)
    emulation = emulated.report(samples.get("emulation", {}))
    state, reason = conclusion.conclude(
        ordered, control_report, disturbances, config, standing=standing, in_doubt=doubts, emulation=emulation
    )
    verdict = {
        "schema": SCHEMA,
        "tilegate": samples["tilegate"],
        "verdict": state,
        "exit_code": EXIT_CODES[state],
        "reason": reason,
        **{key: samples[key] for key in ("created", "finished", "base", "head", "target", "tier", "filter", "seed")},
        "config": to_dict(config),
        "environment": samples["environment"],
        "counts": {name: sum(v["verdict"] == name for v in ordered.values()) for name in CASE_VERDICTS},
        "controls": control_report,
        "disturbed": disturbances,
        "waivers": _waivers(standing, ordered),
        "stages": dict(samples.get("stages", {})),
        "emulation": emulation,
        "noise_profile": None if profile is None else _cited(profile, rules.calibrated),
        "bias_scale": rules.bias_scale,
        "suspects": len(suspects),
        "out_of_time": conclusion.unresolved_for_want_of_time(samples, ordered),
        "false_alarm_budget": config.alpha,
        "cases": ordered,
    }
    asked = {"allow_head_waivers": _allows_head(samples, allow_head_waivers), **samples.get("asked", {})}
    return {**verdict, "next": advice.advise(verdict, asked)}


def rules_of(samples: Mapping[str, Any], config: GateConfig, profile: NoiseProfile | None) -> Rules:
    """Return by what the cases of a run are judged: overrides, calibrated noise, and how well the noise model fits.

    Args:
        samples: a samples document, complete or not.
        config: of the run.
        profile: of the machine (`profile_of` takes it from the samples); None: the configuration's bias is expected.
    """
    terms, calibrated = {}, 0
    for name, case in samples["cases"].items():
        own = config.for_case(name)
        known = None if profile is None else profile.of(name, case["version"], own)
        terms[name] = Terms(own) if known is None else Terms(*noise.tuned(own, known))
        calibrated += known is not None and bool(case["replicates"])
    scale = noise.bias_scale(list(_confirmed(samples, terms)))
    if scale > 1:
        terms = {name: replace(t, config=t.config.with_bias_scaled(scale)) for name, t in terms.items()}
    return Rules(terms, scale, calibrated)


def _confirmed(samples: Mapping[str, Any], terms: Mapping[str, Terms]) -> Iterator[tuple[list[stats.Array], float]]:
    """Yield, of every case that has been confirmed, the log ratios of each fresh replicate and the expected bias."""
    for name, case in samples["cases"].items():
        if _without_statistics(name, case, terms[name].config) is None:
            with contextlib.suppress(UnsoundError):
                m = measured(case, terms[name].config, samples["target"])
                if confirmed := m.confirmed(terms[name].config):
                    yield [replicate.ratios for replicate in confirmed], m.bias


def profile_of(samples: Mapping[str, Any]) -> NoiseProfile | None:
    """Return the noise profile that the samples carry, or None."""
    return noise.from_samples(samples["noise_profile"]) if "noise_profile" in samples else None


def _cited(profile: NoiseProfile, calibrated: int) -> dict[str, Any]:
    device = profile.environment["device"]["name"]
    return {"created": profile.created, "device": device, "digest": profile.digest, "calibrated": calibrated}


def _standing(
    samples: Mapping[str, Any],
    waived: tuple[Waiver, ...],
    allow_head: bool | None,
    today: datetime.date | None,
) -> Standing:
    allowed = _allows_head(samples, allow_head)
    return waivers.resolve(waived, today=today or day_of(samples), allow_head=allowed).about("ceiling")


def _allows_head(samples: Mapping[str, Any], told: bool | None) -> bool:
    return bool(samples.get("allow_head_waivers", False)) if told is None else told


def day_of(samples: Mapping[str, Any]) -> datetime.date:
    """Return the day on which a run began. Raises UsageError."""
    try:
        return datetime.date.fromisoformat(samples["created"][:10])
    except ValueError:
        raise files.UsageError(f"at /created: {samples['created'][:40]} is no date") from None


def _waivers(standing: Standing, cases: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    used = [entry["waiver"] for entry in cases.values() if "waiver" in entry]
    return {
        "counting": [{**w.to_json(), "used": used.count(w.name)} for w in standing.counting],
        "expired": [w.to_json() for w in standing.expired],
        "refused": [w.to_json() for w in standing.refused],
    }


def next_step(case: Mapping[str, Any], terms: Terms | GateConfig, *, target: str, suspects: int = 1) -> Step:
    """Return what the gate should measure next for a case. See `decision.next_step`.

    Args:
        case: one entry of "cases" of a samples document, with what was measured so far.
        terms: by what it is judged (`rules_of`); or only its configuration.
        target: "cpu", "cuda" or "hip"; decides the bias that is expected.
        suspects: how many cases of the run are being confirmed, this one included.

    Returns:
        A Step; "done" also for a case that cannot or need not be timed, or whose samples are unusable.
    """
    terms = terms if isinstance(terms, Terms) else Terms(terms)
    if _without_statistics("", case, terms.config) is not None:
        return DONE
    try:
        m = measured(case, terms.config, target)
    except UnsoundError:
        return DONE
    if case["role"] == "control" and len(m.confirmation) >= terms.config.replicates:
        return DONE  # whether it moved is known; how little it could have moved blocks nobody
    return _next(m, terms, suspects)


def should_confirm(case: Mapping[str, Any], terms: Terms | GateConfig, *, target: str) -> bool:
    """Return whether a case that was screened must be measured again in fresh processes before it can pass."""
    return next_step(case, terms, target=target).action == "confirm"


def _next(m: Measured, terms: Terms, suspects: int = 1) -> Step:
    step = _wanted(m, terms, suspects)
    # What disturbances have spoilt is measured again, but not for ever.
    return DONE if m.short.get(step.action, 0) >= terms.config.replicates else step


def _wanted(m: Measured, terms: Terms, suspects: int) -> Step:
    return decision.next_step(m.screen, m.confirmation, terms.config, m.bias, suspects=suspects, gating=terms.gating)


def _floor(case: Mapping[str, Any], samples: Mapping[str, Any]) -> float:
    if is_call(case["benchmark"]):
        return 0.0  # what the host does, while the work it asked for goes on
    return roofline.floor(case.get("work"), samples["environment"])


# --- one case ---------------------------------------------------------------------------------------------------------


def _misnamed(name: str, case: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the verdict on a case whose id is not that of its benchmark and parameters, by which its times are judged."""
    benchmark, parameters = case["benchmark"], f"({', '.join(case['params'])})" if case["params"] else ""
    if name == benchmark + parameters and ("(" not in benchmark or benchmark == "(suite)"):
        return None
    flaw = "the samples contradict themselves: its benchmark and parameters are those of another case"
    return _undecidable(case, "samples", flaw)


def _without_statistics(
    name: str, case: Mapping[str, Any], config: GateConfig, floor: float = 0.0
) -> dict[str, Any] | None:
    """Return the verdict on a case that no timing can change, or None."""
    for of in ("base", "head"):
        if (case[of]["status"] == "failed") != (case[of]["failure"] is not None):
            return _undecidable(case, "samples", f"the samples contradict themselves: did the {of} fail or not?")
    if case["base"]["status"] == "failed":
        how = _FAILURES[case["base"]["failure"]["kind"]]
        return _undecidable(case, "base", f"the base itself {how}", "base")
    if case["base"]["status"] == "missing":
        return _only_at_the_head(case, floor)
    if case["head"]["status"] == "missing":
        note = "allowed by allow_removed" if conclusion.may_go(name, config) else "not allowed by allow_removed"
        return _entry(case, "removed", f"the head no longer has it ({note})")
    if case["head"]["status"] == "failed":
        return _entry(case, "broken", f"the head {_FAILURES[case['head']['failure']['kind']]}", "head")
    return _by_identity(case)


def _only_at_the_head(case: Mapping[str, Any], floor: float) -> dict[str, Any]:
    head = case["head"]
    if head["status"] == "failed":
        return _entry(case, "broken", f"new, and it {_FAILURES[head['failure']['kind']]}", "head")
    if head["status"] == "missing":
        return _undecidable(case, "samples", "neither base nor head has it")
    if not head["checked"]:
        return _undecidable(case, "check", "new, and its results were not checked")
    turns = case.get("alone", {}).get("turns", [])
    seconds = float(np.median([np.median(turn) for turn in turns])) if turns else None
    if seconds is not None and seconds < floor:
        return _undecidable(case, "times", f"new, and its times are impossible: {impossible(seconds, floor)}")
    entry = _entry(case, "new", "the base does not have it, so there is nothing to compare with")
    return entry | {"head_seconds": seconds}


def _by_identity(case: Mapping[str, Any]) -> dict[str, Any] | None:
    base, head = case["base"], case["head"]
    same = base["identity"] is not None and base["identity"] == head["identity"]
    flaw, obstacle = None, "samples"
    if case["role"] != "gated" and not same:
        flaw = "said to be identical code, but base and head have different digests or none"
    elif case["role"] == "identical":
        return _entry(case, "unchanged", "identical generated code and launch configuration; not timed")
    elif case["role"] == "gated" and same:
        flaw = "gated as changed, but base and head have the same digest"
    elif case["role"] == "gated" and not head["checked"]:
        flaw, obstacle = "the head's results were not checked, and a fast wrong kernel is no success", "check"
    return None if flaw is None else _undecidable(case, obstacle, flaw)


def _findings(judged: Mapping[str, _Judged], faster_together: Any) -> dict[str, tuple[Finding, float, float]]:
    """Return finding and adjusted p-values (slower, faster) of every case that has been confirmed often enough.

    `alpha` is shared among them by Holm's method for slower, and as `faster_together` does for faster.
    """
    names = [name for name, j in judged.items() if len(j.measured.confirmation) >= j.config.replicates]
    evidence = [judged[name].weigh() for name in names]
    slower = stats.holm([e.p_slower for e in evidence])
    faster = faster_together([e.p_faster for e in evidence])
    return {
        name: (decision.conclude(e, judged[name].config, s, f), s, f)
        for name, e, s, f in zip(names, evidence, slower, faster, strict=True)
    }


def _gated(
    j: _Judged, found: tuple[Finding, float, float] | None, suspects: int, waiver: Waiver | None
) -> dict[str, Any]:
    m, config = j.measured, j.config
    if not m.screen:
        short = _spoilt(m) or _stopped(j) or f"it has no screen of {config.screen_pairs} pairs"
        return _entry(j.case, "inconclusive", f"not measured: {short}")
    evidence = j.weigh()
    high, about = percent(evidence.interval.high), percent(evidence.interval.estimate)
    count = len(m.confirmed(config))
    because = _spoilt(m) or _stopped(j)
    if found is None:
        if j.open(suspects) or m.short.get("confirm"):
            verdict, done = "inconclusive", len(m.confirmation)
            reason = (
                f"suspicious in the screen ({about}), and confirmed in {done} of {config.replicates} fresh replicates"
            )
            reason += f": {because}" if because else ""
        elif not j.terms.gating:
            verdict, reason = "not-gating", f"its noise cannot support the promise; the screen says {about}"
        else:
            verdict, reason = "pass", f"no sign of a change in the screen, which excludes more than {high}"
        return _entry(j.case, verdict, reason, numbers=_numbers(j, evidence, suspects, None))

    finding, slower, faster = found
    p_value = faster if evidence.interval.estimate < 0 else slower
    verdict, reason = _in_words(finding, config, about=about, high=high, count=count)
    if finding is not Finding.SLOWER and not j.terms.gating:
        verdict, reason = "not-gating", f"its noise cannot support the promise; {about} in {count} fresh replicates"
    elif finding is not Finding.SLOWER and j.open(suspects):
        if finding is not Finding.UNDECIDED:
            verdict, reason = "inconclusive", f"not decided: {about} in {count} fresh replicates, and more are needed"
        reason += f"; {because}" if because else ""
    used = None
    if waiver is not None and verdict in ("regressed", "inconclusive"):
        verdict, reason, used = _waived(waiver, finding, evidence, verdict, reason)
    entry = _entry(j.case, verdict, reason, numbers=_numbers(j, evidence, suspects, p_value))
    return entry | ({"waiver": used.name} if used else {})


def _in_words(finding: Finding, config: GateConfig, *, about: str, high: str, count: int) -> tuple[str, str]:
    in_fresh = f"in {count} fresh replicates"
    match finding:
        case Finding.SLOWER:
            return "regressed", f"{about} {in_fresh}; a slowdown of only {100 * config.tolerated:g} % is excluded"
        case Finding.FASTER:
            return "improved", f"{about} {in_fresh}"
        case Finding.WARNING:
            return "warning", f"{about} {in_fresh}: probably slower, but {high} at the most"
        case Finding.FAST_ENOUGH:
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
    waiver: Waiver, finding: Finding, evidence: Evidence, verdict: str, reason: str
) -> tuple[str, str, Waiver | None]:
    """Apply a waiver to a case that would fail.

    A regression is waived if its estimate is not past the ceiling; a case that noise leaves undecided, if its interval
    is not.
    """
    reached = evidence.interval.estimate if finding is Finding.SLOWER else evidence.interval.high
    limit = f"{waiver.name} (at most {waiver.ceiling:g} %, until {waiver.expires.isoformat()})"
    if reached <= math.log1p((waiver.ceiling or 0.0) / 100):
        return "waived", f"{reason}; waived by {limit}", waiver
    return verdict, f"{reason}; past what is waived by {limit}", None


def _spoilt(m: Measured) -> str:
    """Say that disturbances left replicates with too few pairs, if they did."""
    if not sum(m.short.values()):
        return ""
    return conclusion.disturbances_in_words(conclusion.disturbance_report([m])) + ", which left too few"


def _stopped(j: _Judged) -> str:
    return "the time that the run was given was used up" if "stopped" in j.case else ""


def _control(j: _Judged, found: tuple[Finding, float, float] | None, controls: int) -> dict[str, Any]:
    m = j.measured
    if not m.screen:
        because = f": {_spoilt(m)}" if _spoilt(m) else ""
        return _entry(j.case, "unchanged", f"identical code; meant as a control, but not measured{because}")
    evidence = j.weigh()
    about = percent(evidence.interval.estimate)
    p_value = None
    if found is None:
        reason = "identical code, and as a control it stood still"
        if not _settled(j):
            reason = f"identical code, but as a control it seemed to move ({about}) and was not measured again"
    else:
        finding, slower, faster = found
        p_value = faster if evidence.interval.estimate < 0 else slower
        reason = f"identical code, and as a control it stood still in {len(m.confirmation)} fresh replicates"
        if finding in (Finding.SLOWER, Finding.FASTER):
            reason = f"identical code, but as a control it moved by {about} in {len(m.confirmation)} fresh replicates"
    return _entry(j.case, "unchanged", reason, numbers=_numbers(j, evidence, controls, p_value))


def _settled(j: _Judged) -> bool:
    """Return whether a control that was screened needs no confirmation, or has it."""
    m = j.measured
    if len(m.confirmation) >= j.config.replicates:
        return True
    return not m.short.get("confirm") and j.next().action != "confirm"


def _numbers(j: _Judged, evidence: Evidence, suspects: int, p_value: float | None) -> dict[str, Any]:
    m = j.measured
    effect = decision.smallest_detectable_effect(evidence, j.config, suspects)
    return {
        "ratio": math.exp(evidence.interval.estimate),
        "interval": [_finite(evidence.interval.low), _finite(evidence.interval.high)],
        "smallest_detectable_effect": _finite(effect, less=1.0),
        "pairs": evidence.pairs,
        "replicates": len(m.counting(j.config)),
        "base_seconds": m.base_seconds,
        "head_seconds": m.head_seconds,
        "p_value": p_value,
    }


def _remarks(j: _Judged, config: GateConfig) -> dict[str, Any]:
    """Return what else a reader must know of a timed case; each key only where there is something to say."""
    gaps = {"turns": j.measured.turn_modes(j.config), "processes": j.measured.process_modes(j.config)}
    modes = {kind: math.expm1(gap) for kind, gap in gaps.items() if gap is not None}
    others = {key: getattr(j.config, key) for key in THRESHOLDS if getattr(j.config, key) != getattr(config, key)}
    disturbed = sum(j.measured.disturbed.values())
    return {
        **({"modes": modes} if modes else {}),
        **({"thresholds": others} if others else {}),
        **({"disturbed": disturbed} if disturbed else {}),
    }


def _finite(log_ratio: float, less: float = 0.0) -> float | None:
    return math.exp(log_ratio) - less if abs(log_ratio) < 700 else None


def _undecidable(case: Mapping[str, Any], obstacle: str, reason: str, failed: str | None = None) -> dict[str, Any]:
    """Return the entry of a case that no further measuring decides by itself."""
    return _entry(case, "inconclusive", reason, failed) | {"obstacle": obstacle}


def _entry(
    case: Mapping[str, Any],
    verdict: str,
    reason: str,
    failed: str | None = None,
    numbers: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    nothing = {"ratio": None, "interval": None, "smallest_detectable_effect": None, "pairs": 0, "replicates": 0}
    nothing |= {"base_seconds": None, "head_seconds": None, "p_value": None}
    return {
        "verdict": verdict,
        "reason": reason,
        "role": case["role"],
        **(numbers or nothing),
        "failure": None if failed is None else {"side": failed, **case[failed]["failure"]},
        # Handed through for people to read. No rule looks at it.
        **({"cause": list(case["cause"])} if case.get("cause") else {}),
        **({"work": dict(case["work"])} if case.get("work") and not is_call(case["benchmark"]) else {}),
    }
