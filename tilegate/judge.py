"""`tilegate judge`: the verdict, from raw samples alone.

`judge` is a pure function of a samples document. It believes no conclusion in it: everything is computed again, and
what the gate should have measured but did not is held against the run. See docs/gate.md for the rules.
"""

from __future__ import annotations

import argparse
import fnmatch
import math
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tilegate import decision, files, stats
from tilegate.config import GateConfig, from_dict, load_config, to_dict
from tilegate.decision import DONE, Evidence, Finding, Replicate, Step

SCHEMA = "tilegate-verdict/1"

EXIT_CODES: Mapping[str, int] = {"pass": 0, "regressed": 1, "broken": 3, "inconclusive": 4, "environment-invalid": 5}

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
    "error": "fails",
}


class _UnsoundError(Exception):
    """The samples of a case cannot be used, for a reason that the message gives."""


@dataclass(frozen=True)
class _Measured:
    """The usable pairs of one case."""

    screen: tuple[Replicate, ...]
    confirmation: tuple[Replicate, ...]
    bias: float  # expected standard deviation of a replicate's bias, in log ratio
    base_seconds: float | None
    head_seconds: float | None

    def stage(self) -> tuple[Replicate, ...]:
        """The replicates that count: selection by the screen has biased its own pairs, so they do not mix."""
        return self.confirmation or self.screen

    def weigh(self, config: GateConfig) -> Evidence:
        if self.confirmation:
            return decision.weigh_confirmation(self.confirmation, config, self.bias)
        return decision.weigh_screen(self.screen, config, self.bias)


def judge(samples: Mapping[str, Any], config: GateConfig | None = None) -> dict[str, Any]:
    """Return the verdict on `samples`, as described by schemas/verdict-1.json.

    Args:
        samples: a document that fits schemas/samples-1.json (`files.load_samples` checks that).
        config: replaces the configuration that the samples carry. A publisher that does not trust the samples passes
            the one of the base commit.

    Raises:
        UsageError: the samples' own configuration is needed and is not valid.
    """
    config = config or from_dict(samples["config"], "config in the samples")
    target = samples["target"]
    cases: Mapping[str, Mapping[str, Any]] = samples["cases"]

    settled: dict[str, dict[str, Any]] = {}
    measured: dict[str, _Measured] = {}
    for name, case in cases.items():
        verdict = _without_statistics(name, case, config)
        if verdict is None:
            try:
                measured[name] = _measured(case, config, target)
            except _UnsoundError as flaw:
                verdict = _entry(case, "inconclusive", f"its samples cannot be used: {flaw}")
        if verdict is not None:
            settled[name] = verdict

    gated = {name: m for name, m in measured.items() if cases[name]["role"] == "gated"}
    controls = {name: m for name, m in measured.items() if cases[name]["role"] == "control"}
    suspects = [name for name, m in gated.items() if m.confirmation or _next(m, config).action == "confirm"]
    findings = _findings(gated, config)
    for name, m in gated.items():
        settled[name] = _gated(cases[name], m, config, findings.get(name), len(suspects))
    control_findings = _findings(controls, config)
    for name, m in controls.items():
        settled[name] = _control(cases[name], m, config, control_findings.get(name), len(controls))
    control_report = _controls(controls, control_findings, config)

    ordered = {name: settled[name] for name in cases}
    state, reason = _run(
        ordered, control_report, len(gated), _doubts(samples, ordered, gated, controls, config), config
    )
    return {
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
        "suspects": len(suspects),
        "false_alarm_budget": config.alpha,
        "cases": ordered,
    }


def next_step(case: Mapping[str, Any], config: GateConfig, *, target: str, suspects: int = 1) -> Step:
    """Return what the gate should measure next for a case. See `decision.next_step`.

    Args:
        case: one entry of "cases" of a samples document, with what was measured so far.
        config: the base's.
        target: "cpu", "cuda" or "hip"; decides the bias that is expected.
        suspects: how many cases of the run are being confirmed, this one included.

    Returns:
        A Step; "done" also for a case that cannot or need not be timed, or whose samples are unusable.
    """
    if _without_statistics("", case, config) is not None:
        return DONE
    try:
        return _next(_measured(case, config, target), config, suspects)
    except _UnsoundError:
        return DONE


def should_confirm(case: Mapping[str, Any], config: GateConfig, *, target: str) -> bool:
    """Return whether a case that was screened must be measured again in fresh processes before it can pass."""
    return next_step(case, config, target=target).action == "confirm"


def _next(m: _Measured, config: GateConfig, suspects: int = 1) -> Step:
    return decision.next_step(m.screen, m.confirmation, config, m.bias, suspects=suspects)


# --- one case ---------------------------------------------------------------------------------------------------------


def _without_statistics(name: str, case: Mapping[str, Any], config: GateConfig) -> dict[str, Any] | None:
    """Return the verdict on a case that no timing can change, or None."""
    for of in ("base", "head"):
        if (case[of]["status"] == "failed") != (case[of]["failure"] is not None):
            return _entry(case, "inconclusive", f"the samples contradict themselves: did the {of} fail or not?")
    if case["base"]["status"] == "failed":
        how = _FAILURES[case["base"]["failure"]["kind"]]
        return _entry(case, "inconclusive", f"the base itself {how}", "base")
    if case["base"]["status"] == "missing":
        return _only_at_the_head(case)
    if case["head"]["status"] == "missing":
        note = "allowed by allow_removed" if _may_go(name, config) else "not allowed by allow_removed"
        return _entry(case, "removed", f"the head no longer has it ({note})")
    if case["head"]["status"] == "failed":
        return _entry(case, "broken", f"the head {_FAILURES[case['head']['failure']['kind']]}", "head")
    return _by_identity(case)


def _may_go(name: str, config: GateConfig) -> bool:
    return any(fnmatch.fnmatchcase(name, glob) for glob in config.allow_removed)


def _only_at_the_head(case: Mapping[str, Any]) -> dict[str, Any]:
    head = case["head"]
    if head["status"] == "failed":
        return _entry(case, "broken", f"new, and it {_FAILURES[head['failure']['kind']]}", "head")
    if head["status"] == "missing":
        return _entry(case, "inconclusive", "neither base nor head has it")
    if not head["checked"]:
        return _entry(case, "inconclusive", "new, and its results were not checked")
    return _entry(case, "new", "the base does not have it, so there is nothing to compare with")


def _by_identity(case: Mapping[str, Any]) -> dict[str, Any] | None:
    base, head = case["base"], case["head"]
    same = base["identity"] is not None and base["identity"] == head["identity"]
    flaw = None
    if case["role"] != "gated" and not same:
        flaw = "said to be identical code, but base and head have different digests or none"
    elif case["role"] == "identical":
        return _entry(case, "unchanged", "identical generated code and launch configuration; not timed")
    elif case["role"] == "gated" and same:
        flaw = "gated as changed, but base and head have the same digest"
    elif case["role"] == "gated" and not head["checked"]:
        flaw = "the head's results were not checked, and a fast wrong kernel is no success"
    return None if flaw is None else _entry(case, "inconclusive", flaw)


def _measured(case: Mapping[str, Any], config: GateConfig, target: str) -> _Measured:
    """Take the pairs out of a case. Raises _UnsoundError if they cannot be what they are said to be."""
    replicates: Sequence[Mapping[str, Any]] = case["replicates"]
    sessions = [r["session"] for r in replicates]
    if len(set(sessions)) < len(sessions):
        raise _UnsoundError("two of its replicates come from the same pair of processes, so one of them is not fresh")
    numbers = [r["replicate"] for r in replicates]
    if len(set(numbers)) < len(numbers):
        raise _UnsoundError("two of its replicates have the same number")
    for replicate in replicates:
        if len(replicate["pairs"]) > max(config.screen_pairs, config.noisy_pairs):
            raise _UnsoundError("a replicate has more pairs than are ever asked for: it was measured until it pleased")
        for pair in replicate["pairs"]:
            if len(pair["base"]) != len(pair["head"]):
                raise _UnsoundError("a pair has more launches of one side than of the other")
            if len(pair["base"]) < config.min_launches:
                raise _UnsoundError(f"a turn has fewer than {config.min_launches} launches")
    stages = {
        stage: [r["pairs"] for r in replicates if r["stage"] == stage and len(r["pairs"]) >= wanted]
        for stage, wanted in (("screen", config.screen_pairs), ("confirm", config.confirm_pairs))
    }
    if len(stages["confirm"]) > config.max_replicates:
        raise _UnsoundError(f"more than {config.max_replicates} replicates: it was measured until it pleased")
    used = [pair for pairs in stages["confirm"] or stages["screen"] for pair in pairs]
    base_seconds = float(np.median([np.median(p["base"]) for p in used])) if used else None
    head_seconds = float(np.median([np.median(p["head"]) for p in used])) if used else None
    screen, confirmation = (tuple(_replicate(pairs) for pairs in stages[stage]) for stage in ("screen", "confirm"))
    if confirmation and not screen:
        raise _UnsoundError("it was confirmed without a screen")
    if len(confirmation) >= config.replicates and decision.one_order(confirmation):
        raise _UnsoundError("one side was first in nearly every pair, so the order is mistaken for a change")
    bias = config.bias[target].at(base_seconds) if base_seconds else math.inf
    return _Measured(screen, confirmation, bias, base_seconds, head_seconds)


def _replicate(pairs: Sequence[Mapping[str, Any]]) -> Replicate:
    return Replicate(
        ratios=stats.log_ratios([p["base"] for p in pairs], [p["head"] for p in pairs]),
        head_first=tuple(p["order"] == 1 for p in pairs),
    )


def _findings(measured: Mapping[str, _Measured], config: GateConfig) -> dict[str, tuple[Finding, float, float]]:
    """Return finding and adjusted p-values (slower, faster) of every case that has been confirmed often enough.

    `alpha` is shared among them by Holm's method, once for slower and once for faster.
    """
    names = [name for name, m in measured.items() if len(m.confirmation) >= config.replicates]
    evidence = [measured[name].weigh(config) for name in names]
    slower = stats.holm([e.p_slower for e in evidence])
    faster = stats.holm([e.p_faster for e in evidence])
    return {
        name: (decision.conclude(e, config, s, f), s, f)
        for name, e, s, f in zip(names, evidence, slower, faster, strict=True)
    }


def _gated(
    case: Mapping[str, Any],
    m: _Measured,
    config: GateConfig,
    found: tuple[Finding, float, float] | None,
    suspects: int,
) -> dict[str, Any]:
    if not m.screen:
        return _entry(case, "inconclusive", f"not measured: it has no screen of {config.screen_pairs} pairs")
    evidence = m.weigh(config)
    most = _percent(evidence.interval.high)
    about = _percent(evidence.interval.estimate)
    count = len(m.confirmation)
    p_value: float | None = None
    if found is None:
        if _next(m, config).action == "confirm":
            verdict = "inconclusive"
            reason = (
                f"suspicious in the screen ({about}), and confirmed in {count} of {config.replicates} fresh replicates"
            )
        else:
            verdict, reason = "pass", f"no sign of a change in the screen, which excludes more than {most}"
        return _entry(case, verdict, reason, numbers=_numbers(m, evidence, config, suspects, None))

    finding, slower, faster = found
    p_value = faster if evidence.interval.estimate < 0 else slower
    in_fresh = f"in {count} fresh replicates"
    if finding is Finding.SLOWER:
        verdict, reason = (
            "regressed",
            f"{about} {in_fresh}; a slowdown of only {100 * config.tolerated:g} % is excluded",
        )
    elif finding is Finding.FASTER:
        verdict, reason = "improved", f"{about} {in_fresh}"
    elif finding is Finding.WARNING:
        verdict, reason = "warning", f"{about} {in_fresh}: probably slower, but {most} at the most"
    elif finding is Finding.FAST_ENOUGH:
        verdict, reason = "pass", f"{in_fresh} more than {most} is excluded"
    else:
        verdict = "inconclusive"
        rest = "the most that is allowed" if count >= config.max_replicates else f"of at most {config.max_replicates}"
        reason = f"too noisy: a slowdown of {most} is possible after {count} fresh replicates ({rest})"
    return _entry(case, verdict, reason, numbers=_numbers(m, evidence, config, suspects, p_value))


def _control(
    case: Mapping[str, Any],
    m: _Measured,
    config: GateConfig,
    found: tuple[Finding, float, float] | None,
    controls: int,
) -> dict[str, Any]:
    if not m.screen:
        return _entry(case, "unchanged", "identical code; meant as a control, but not measured")
    evidence = m.weigh(config)
    about = _percent(evidence.interval.estimate)
    p_value = None
    if found is None:
        reason = "identical code, and as a control it stood still"
        if _next(m, config).action == "confirm":
            reason = f"identical code, but as a control it seemed to move ({about}) and was not measured again"
    else:
        finding, slower, faster = found
        p_value = faster if evidence.interval.estimate < 0 else slower
        reason = f"identical code, and as a control it stood still in {len(m.confirmation)} fresh replicates"
        if finding in (Finding.SLOWER, Finding.FASTER):
            reason = f"identical code, but as a control it moved by {about} in {len(m.confirmation)} fresh replicates"
    return _entry(case, "unchanged", reason, numbers=_numbers(m, evidence, config, controls, p_value))


def _numbers(
    m: _Measured, evidence: Evidence, config: GateConfig, suspects: int, p_value: float | None
) -> dict[str, Any]:
    effect = decision.smallest_detectable_effect(evidence, len(m.stage()), config, suspects)
    return {
        "ratio": math.exp(evidence.interval.estimate),
        "interval": [_finite(evidence.interval.low), _finite(evidence.interval.high)],
        "smallest_detectable_effect": _finite(effect, less=1.0),
        "pairs": evidence.pairs,
        "replicates": len(m.stage()),
        "base_seconds": m.base_seconds,
        "head_seconds": m.head_seconds,
        "p_value": p_value,
    }


def _finite(log_ratio: float, less: float = 0.0) -> float | None:
    return math.exp(log_ratio) - less if abs(log_ratio) < 700 else None


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
    }


# --- the run ----------------------------------------------------------------------------------------------------------


def _controls(
    controls: Mapping[str, _Measured], findings: Mapping[str, tuple[Finding, float, float]], config: GateConfig
) -> dict[str, Any]:
    """Return the control test: did identical code seem to change, in one case or in all of them together?"""
    timed = {name: m for name, m in controls.items() if m.screen}
    moved = [n for n, found in findings.items() if found[0] in (Finding.SLOWER, Finding.FASTER)]
    report = {"count": len(timed), "moved": moved, "shift": None, "shift_limit": None}
    if not timed:
        return {**report, "reason": "no controls: no timed case has identical code"}
    evidence = [m.weigh(config) for m in timed.values()]
    weights = np.array([1 / max(e.error, 1e-9) ** 2 for e in evidence])
    shift = float(np.average([e.interval.estimate for e in evidence], weights=weights))
    limit = stats.normal_quantile(config.alpha / 2) / math.sqrt(float(weights.sum()))
    # A shift too small to make a suspect of anything does no harm, however certain it is.
    limit = max(limit, math.log1p(config.screen))
    report |= {"shift": shift, "shift_limit": limit}
    if moved:
        reason = f"{len(moved)} of {_cases(len(timed))} with identical code seemed to change"
    elif abs(shift) > limit:
        reason = f"{_cases(len(timed))} with identical code changed together, by {_percent(shift)}"
    else:
        reason = f"{_cases(len(timed))} with identical code stood still (together {_percent(shift)})"
    return {**report, "reason": reason}


def _run(
    cases: Mapping[str, Mapping[str, Any]],
    control_report: Mapping[str, Any],
    gated: int,
    doubts: Sequence[str],
    config: GateConfig,
) -> tuple[str, str]:
    """Return the run's verdict and its reason, one sentence without anything that came from a commit."""
    counts = Counter(entry["verdict"] for entry in cases.values())
    if broken := counts["broken"]:
        return "broken", f"{_cases(broken)} of {len(cases)} broken at the head: see the messages."
    if control_report["moved"] or abs(control_report["shift"] or 0.0) > (control_report["shift_limit"] or 0.0):
        reason = f"The machine cannot be trusted: {control_report['reason']}. Measure again on a quiet machine."
        return "environment-invalid", reason
    if regressed := counts["regressed"]:
        worst = max(entry["ratio"] for entry in cases.values() if entry["verdict"] == "regressed")
        return "regressed", f"{_cases(regressed)} of {len(cases)} got slower, at worst by {100 * (worst - 1):.1f} %."
    if doubts:
        sentence = "; ".join(doubts)
        return "inconclusive", f"{sentence[0].upper()}{sentence[1:]}."
    what = f"None of {_cases(gated)} whose code changed is" if gated else "No case's code changed, so none is"
    return "pass", f"{what} {100 * config.promise:g} % slower; {control_report['reason']}."


def _doubts(
    samples: Mapping[str, Any],
    cases: Mapping[str, Mapping[str, Any]],
    gated: Mapping[str, _Measured],
    controls: Mapping[str, _Measured],
    config: GateConfig,
) -> list[str]:
    """Return everything that keeps a run from passing although nothing in it is broken or slower."""
    doubts = []
    if samples["finished"] is None:
        doubts.append("the run was interrupted")
    if unclear := sum(entry["verdict"] == "inconclusive" for entry in cases.values()):
        doubts.append(f"{_cases(unclear)} of {len(cases)} could not be decided")
    if lost := sum(entry["verdict"] == "removed" and not _may_go(name, config) for name, entry in cases.items()):
        doubts.append(f"{_cases(lost)} removed without leave (allow_removed in the base's pyproject gives it)")
    if moving := sum(bool(m.screen) and not _settled(m, config) for m in controls.values()):
        doubts.append(f"{_cases(moving)} with identical code seemed to move, not measured again")
    if not any(m.screen for m in (*gated.values(), *controls.values())):
        doubts.append("nothing was measured")
    return doubts


def _settled(m: _Measured, config: GateConfig) -> bool:
    return len(m.confirmation) >= config.replicates or _next(m, config).action != "confirm"


def _cases(count: int) -> str:
    return "1 case" if count == 1 else f"{count} cases"


def _percent(log_ratio: float) -> str:
    """Return a log ratio as a change in percent, signed."""
    return f"{100 * math.expm1(log_ratio):+.1f} %" if abs(log_ratio) < 10 else "any amount"


# --- command ----------------------------------------------------------------------------------------------------------


def add_parser(subparsers: Any) -> None:
    """Add `tilegate judge` to the command line."""
    parser = subparsers.add_parser(
        "judge",
        help="recompute the verdict from a samples file",
        description="Recompute the verdict from raw samples alone, believing no conclusion that came with them. "
        "Exit code: 0 pass, 1 regressed, 2 usage error, 3 broken, 4 inconclusive, 5 environment invalid.",
    )
    parser.add_argument("samples", type=Path, metavar="SAMPLES", help="samples.json, as `tilegate gate` wrote it")
    parser.add_argument(
        "--config", type=Path, metavar="PYPROJECT", help="thresholds from this pyproject.toml instead of the samples'"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="write verdict.json and report.md into this folder")
    parser.add_argument("--json", action="store_true", help="print the verdict as JSON instead of a table")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Carry out `tilegate judge`. Returns the exit code; raises UsageError."""
    from tilegate import report  # noqa: PLC0415  (rich, which `gate` may not need)

    config = None
    if args.config is not None:
        try:
            text = args.config.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise files.UsageError(f"cannot read {args.config}: {error}") from error
        config = load_config(text)
    verdict = judge(files.load_samples(args.samples), config)
    if args.out is not None:
        files.write_json(args.out / "verdict.json", verdict)
        files.write_text(args.out / "report.md", report.render(verdict))
    if args.json:
        import json  # noqa: PLC0415

        json.dump(verdict, sys.stdout, indent=1, allow_nan=False)
        sys.stdout.write("\n")
    else:
        report.show(verdict)
    return int(verdict["exit_code"])
