"""The verdict, from raw samples alone.

`judge` is a pure function of a samples document. It believes no conclusion in it: everything is computed again, and
what the gate should have measured but did not is held against the run. See docs/gate.md for the rules.
"""

from __future__ import annotations

import datetime
import typing
from collections.abc import Mapping

from tilegate import files
from tilegate.config import GateConfig, from_dict, to_dict
from tilegate.judging import advice, emulation, itself, roofline, run_verdict, stats, timed, waivers
from tilegate.judging.measured import UnsoundError, disturbances, measured
from tilegate.judging.noise import NoiseProfile
from tilegate.judging.rules import Rules, profile_of, rules_of
from tilegate.judging.timed import Confirmed, TimedCase
from tilegate.judging.untimed import misnamed, undecidable, without_statistics
from tilegate.judging.waivers import ResolvedWaivers, Waiver
from tilegate.protocol import is_call
from tilegate.schemas.samples import Case, Samples
from tilegate.schemas.verdict import SCHEMA, CaseVerdict, CitedProfile, Controls, Entry, Judged, Verdict, Waivers

CASE_VERDICTS: tuple[CaseVerdict, ...] = typing.get_args(CaseVerdict)


def judge(
    samples: Samples,
    config: GateConfig | None = None,
    *,
    waived: tuple[Waiver, ...] | None = None,
    allow_head_waivers: bool | None = None,
    today: datetime.date | None = None,
    profile: NoiseProfile | None = None,
) -> Verdict:
    """Return the verdict on `samples`.

    Args:
        samples: what `files.load_samples` has checked.
        config: replaces the configuration that the samples carry. A publisher that does not trust the samples passes
            the one of the base commit; nothing then is believed that they say about rules, neither waivers nor noise.
        waived: replaces the waivers that the samples carry.
        allow_head_waivers: whether waivers of the head count that the base does not have; None: as the samples say.
        today: the day on which waivers must not have expired; None: the day on which the run began, so that the same
            samples always give the same verdict.
        profile: replaces the noise profile that the samples carry.

    Raises:
        UsageError: the samples' own configuration, waivers or date are needed and are not valid.
    """
    if config is None:
        config = from_dict(samples["config"], "config in the samples")
        profile = profile or profile_of(samples)
        waived = waivers.from_samples(samples.get("waivers", [])) if waived is None else waived
    allowed = samples.get("allow_head_waivers", False) if allow_head_waivers is None else allow_head_waivers
    resolved = waivers.resolve(waived or (), today=today or day_of(samples), allow_head=allowed).about("ceiling")
    rules = rules_of(samples, config, profile)

    entries, taken = _sorted(samples, rules)
    gated = {name: j for name, j in taken.items() if j.case["role"] == "gated"}
    controls = {name: j for name, j in taken.items() if j.case["role"] == "control"}
    suspects = sum(bool(j.measured.confirmation) or j.next().action == "confirm" for j in gated.values())
    # A list of improvements may hold a few false ones, a check that blocks may not, and no control may move either way.
    outcomes, moves = timed.outcomes(gated, stats.benjamini_hochberg), timed.outcomes(controls, stats.holm)
    for name, j in gated.items():
        entries[name] = timed.gated(j, outcomes.get(name), suspects, waivers.highest(resolved.counting, name))
    for name, j in controls.items():
        entries[name] = timed.control(j, moves.get(name), len(controls))
    selves = itself.against_itself(controls, samples["target"])
    blamed = itself.changed_around(controls, moves, selves)
    for name, found in blamed.items():
        entries[name] = timed.around(controls[name], found, len(controls), waivers.highest(resolved.counting, name))
    controls = {name: j for name, j in controls.items() if name not in blamed}
    for name, j in taken.items():
        calls = is_call(j.case["benchmark"])
        striking = 0.0 if calls else roofline.striking(j.case.get("work"), samples["environment"])
        timed.remark(entries[name], j, config, striking)

    ordered = {name: entries[name] for name in samples["cases"]}
    # Controls say something of a change only where it left all code alone.
    counting = gated or controls or {name: taken[name] for name in blamed}
    counted = sum(bool(j.measured.screen) and j.terms.gating for j in counting.values())
    unsettled = sum(bool(j.measured.screen) and not timed.settled(j) for j in controls.values())
    doubts = run_verdict.doubts(samples, ordered, config, counted=counted, unsettled=unsettled, resolved=resolved)
    tested, disturbed = _control_test(controls, moves, config), disturbances(j.measured for j in taken.values())
    acquitted = bool(controls) and controls.keys() <= selves.keys()
    acquitted = acquitted and not run_verdict.moved(
        _control_test({name: selves[name] for name in controls}, {}, config)
    )
    if acquitted and run_verdict.moved(tested):
        doubts.append(f"{tested['reason']}, and the base against itself stood still, so it is not the machine")
    emulated = emulation.report(samples.get("emulation", {}))
    state, reason = run_verdict.of_run(
        ordered, tested, disturbed, config, resolved=resolved, in_doubt=doubts, emulation=emulated, acquitted=acquitted
    )
    judged: Judged = {
        "schema": SCHEMA,
        "tilegate": samples["tilegate"],
        "verdict": state,
        "exit_code": run_verdict.EXIT_CODES[state],
        "reason": reason,
        "created": samples["created"],
        "finished": samples["finished"],
        "base": samples["base"],
        "head": samples["head"],
        "target": samples["target"],
        "tier": samples["tier"],
        "filter": samples["filter"],
        "seed": samples["seed"],
        "config": to_dict(config),
        "environment": samples["environment"],
        "counts": {verdict: sum(e["verdict"] == verdict for e in ordered.values()) for verdict in CASE_VERDICTS},
        "controls": tested,
        "disturbed": disturbed,
        "waivers": _waivers(resolved, ordered),
        "stages": dict(samples.get("stages", {})),
        "emulation": emulated,
        "noise_profile": None if profile is None else _cited(profile, rules.calibrated),
        "bias_scale": rules.bias_scale,
        "suspects": suspects,
        "out_of_time": run_verdict.out_of_time(samples, ordered),
        "false_alarm_budget": config.alpha,
        "cases": ordered,
    }
    return {**judged, "next": advice.advise(judged, samples.get("asked"), allow_head_waivers=allowed)}


def day_of(samples: Samples) -> datetime.date:
    """Return the day on which a run began. Raises UsageError."""
    try:
        return datetime.date.fromisoformat(samples["created"][:10])
    except ValueError:
        raise files.UsageError(f"at /created: {samples['created'][:40]} is no date") from None


def _sorted(samples: Samples, rules: Rules) -> tuple[dict[str, Entry], dict[str, TimedCase]]:
    """Return the entries of the cases that no timing can change, and the others with what was measured of them."""
    entries: dict[str, Entry] = {}
    taken: dict[str, TimedCase] = {}
    for name, case in samples["cases"].items():
        terms, floor = rules.terms[name], _floor(case, samples)
        decided = misnamed(name, case) or without_statistics(name, case, terms.config, floor)
        if decided is None:
            try:
                taken[name] = TimedCase(case, measured(case, terms.config, samples["target"], floor), terms)
            except UnsoundError as flaw:
                decided = undecidable(case, flaw.obstacle, f"its samples cannot be used: {flaw}")
        if decided is not None:
            entries[name] = decided
    return entries, taken


def _floor(case: Case, samples: Samples) -> float:
    if is_call(case["benchmark"]):
        return 0.0  # what the host does, while the work it asked for goes on
    return roofline.floor(case.get("work"), samples["environment"])


def _control_test(controls: Mapping[str, TimedCase], moves: Mapping[str, Confirmed], config: GateConfig) -> Controls:
    screened = {name: j for name, j in controls.items() if j.measured.screen}
    known = {
        name: run_verdict.Control(j.weigh(), j.config, moves[name].outcome if name in moves else None)
        for name, j in screened.items()
    }
    return run_verdict.control_test(known, config.alpha)


def _cited(profile: NoiseProfile, calibrated: int) -> CitedProfile:
    device = profile.environment["device"]["name"]
    return {"created": profile.created, "device": device, "digest": profile.digest, "calibrated": calibrated}


def _waivers(resolved: ResolvedWaivers, cases: Mapping[str, Entry]) -> Waivers:
    used = [entry["waiver"] for entry in cases.values() if "waiver" in entry]
    return {
        "counting": [{**w.to_json(), "used": used.count(w.name)} for w in resolved.counting],
        "expired": [w.to_json() for w in resolved.expired],
        "refused": [w.to_json() for w in resolved.refused],
    }
