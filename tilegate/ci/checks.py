"""What the two checks of a pull request conclude, from data that may be forged and facts that GitHub vouches for.

A required check that is "neutral" or "skipped" does not block a merge (GitHub: "Troubleshooting required status checks"),
so nothing short of a proven pass may end as one of them.
"""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tilegate import files
from tilegate.ci import labels, plan
from tilegate.ci.binding import Bound
from tilegate.files import UsageError
from tilegate.isa import compare
from tilegate.isa.survey import Survey
from tilegate.judging import judge, noise_file, waivers
from tilegate.judging.noise import NoiseProfile
from tilegate.schemas.samples import Samples, SideName, Target, Tier
from tilegate.schemas.verdict import Verdict
from tilegate.showing import report
from tilegate.showing.markup import code, prose

LATENCY, ISA = "tilegate/latency", "tilegate/isa"
SAMPLES_FILE, PLAN_FILE = "samples.json", "plan.json"
LIMITS = {SAMPLES_FILE: 128 * 2**20, PLAN_FILE: 64 * 2**20}
ISA_SCHEMA = "isa-1.json"

Conclusion = Literal["success", "failure", "action_required", "neutral"]

# "action_required" blocks as a failure does, and says that no kernel is to blame.
_CONCLUSIONS: Mapping[str, Conclusion] = {
    "pass": "success",
    "regressed": "failure",
    "broken": "failure",
    "inconclusive": "action_required",
    "environment-invalid": "action_required",
}


@dataclass(frozen=True)
class CheckResult:
    """What one check says.

    Attributes:
        check: its name.
        conclusion: GitHub's word for it.
        title: one line, without anything that came from a commit.
        summary: Markdown.
    """

    check: str
    conclusion: Conclusion
    title: str
    summary: str


@dataclass(frozen=True)
class Expected:
    """What the samples must be of, beside the commits.

    Attributes:
        target, tier: as for `tilegate gate`.
        arch: the chip, of the survey and of the device that was measured on.
        machine: asv's name for it, by which its noise profile is found.
        today: the day on which waivers must not have expired.
        cases: lists those that the base branch's suite has for that target and tier; asked only of samples that need it.
    """

    target: Target
    tier: Tier
    arch: str
    machine: str
    today: datetime.date
    cases: Callable[[], Sequence[str]]


@dataclass(frozen=True)
class Delivery:
    """What a run left, unbelieved.

    Attributes:
        plan, samples: the files' bytes; None if there is none.
        missing: why there are no samples, in words of our own.
    """

    plan: bytes | None
    samples: bytes | None
    missing: str


class ForgedError(Exception):
    """What was delivered is not what an honest run delivers; the message quotes nothing without escaping it."""


def refusal(check: str, reason: str, conclusion: Conclusion = "action_required") -> CheckResult:
    """Return a result that blocks without a verdict. `reason` is a sentence of our own, or escaped."""
    return CheckResult(check, conclusion, "No verdict", f"## No verdict\n\n{reason[:1].upper()}{reason[1:]}.\n")


def latency(
    bound: Bound, delivery: Delivery, expected: Expected, suite: Path, profiles: Sequence[str] = ()
) -> CheckResult:
    """Conclude on the times.

    Args:
        bound: what they must be of.
        delivery: what came.
        expected: how it must have been measured.
        suite: the base branch's suite, in our own checkout.
        profiles: the texts of our machine's last noise profiles, the newest first.
    """
    if (unproven := _unproven(LATENCY, bound)) is not None:
        return unproven
    try:
        needs = plan.decide(
            package_same=bound.package_same,
            suite_same=bound.suite_same,
            calls=plan.times_calls(suite),
            surveys=_surveys(bound, delivery, expected),
            outside=bound.outside,
        )
        if not needs.measure:
            return CheckResult(LATENCY, "success", "Nothing to measure", f"## Nothing to measure\n\n{needs.reason}.\n")
        if not bound.suite_current:
            return refusal(
                LATENCY, "the base branch has another suite by now; merge the base branch into this one and push"
            )
        if delivery.samples is None:
            return refusal(LATENCY, delivery.missing)
        samples = _samples(bound, delivery.samples, expected, needs.changed)
        verdict, remark = _judge(bound, samples, expected, profiles)
    except ForgedError as error:
        return refusal(LATENCY, str(error), "failure")
    name = verdict["verdict"]
    title = f"{name.replace('-', ' ').capitalize()}: {verdict['reason']}"
    return CheckResult(LATENCY, _CONCLUSIONS[name], title, report.render(verdict) + remark)


def isa(bound: Bound, delivery: Delivery, expected: Expected, suite: Path) -> CheckResult:
    """Conclude on the compiled code. Arguments as for `latency`."""
    if (unproven := _unproven(ISA, bound)) is not None:
        return unproven
    if bound.package_same and bound.suite_same:
        return CheckResult(ISA, "success", "Nothing differs", "## Compiled kernels: nothing differs\n")
    if not (suite / "kernels.py").is_file():
        # Not for the run to say: this is our own checkout.
        return CheckResult(
            ISA, "neutral", "The suite lists no kernels", "The suite lists no kernels that could be compiled.\n"
        )
    try:
        surveys = _surveys(bound, delivery, expected)
    except ForgedError as error:
        return refusal(ISA, str(error), "failure")
    if surveys is None:
        return refusal(ISA, "the kernels were not compiled on the planning machine; its log says why")
    resolved = waivers.resolve(bound.waived, today=expected.today, allow_head=bound.waived_by is not None).about("isa")
    pairs = tuple(compare.waived(pair, resolved.counting) for pair in compare.pairs_of(*surveys))
    verdict, _ = compare.verdict_of(pairs, bound.config.allow_removed, resolved)
    title = f"`{bound.base[:12]}` -> `{bound.head[:12]}`, {expected.arch}"
    summary = compare.render(pairs, verdict, title, resolved)
    return CheckResult(ISA, _CONCLUSIONS[verdict], f"Compiled kernels: {verdict}", summary)


def _unproven(check: str, bound: Bound) -> CheckResult | None:
    """Return why an edit of workflows leaves a check without a verdict, None if it does not."""
    if not bound.workflow_same:
        return refusal(
            check,
            "the change edits the workflow that measures and compiles it, so what came of it proves nothing. Let the edit "
            "of `.github/workflows/bench-pr.yml` land by itself first",
        )
    if bound.workflows_unread:
        return refusal(
            check,
            "the change edits `.github/workflows`, where a job can be given the name of this check. Whoever has read that "
            f"edit, has write permission and is not its author sets the label `{labels.WORKFLOWS}`, anew after the run of each push",
        )
    return None


def _samples(bound: Bound, content: bytes, expected: Expected, changed: Sequence[str]) -> Samples:
    """Return the samples if they are of what they must be of, and of all of it. Raises ForgedError."""
    samples: Samples = _json(content, SAMPLES_FILE)
    try:
        files.check_samples(samples)
    except UsageError as error:
        raise ForgedError(f"`{SAMPLES_FILE}` is not valid: {code(str(error))}") from None
    sides: tuple[tuple[SideName, str, str], ...] = (
        ("base", bound.base, bound.base_tree),
        ("head", bound.head, bound.head_tree),
    )
    for side, commit, tree in sides:
        if (samples[side]["commit"], samples[side]["tree"]) != (commit, tree):
            raise ForgedError(f"the samples are of another {side} than `{commit[:12]}`")
    for key, has, wanted in (
        ("target", samples["target"], expected.target),
        ("tier", samples["tier"], expected.tier),
        ("filter", samples["filter"], None),
    ):
        if has != wanted:
            raise ForgedError(f"the samples have the {key} {code(str(has))}, not {code(str(wanted))}")
    device = samples["environment"].get("device")
    arch = device.get("arch") if isinstance(device, Mapping) else None
    if expected.target != "cpu" and arch != expected.arch:
        raise ForgedError(
            f"the samples are of a device {code(str(arch))}, not {expected.arch}, for which this was planned"
        )
    lacking = [case for case in expected.cases() if case not in samples["cases"]]
    if lacking:
        more = f" and {len(lacking) - 1} more" if lacking[1:] else ""
        raise ForgedError(f"the samples are not complete: they lack {code(lacking[0])}{more}")
    # They were compiled on another machine, where what deceived the measuring one may not have been at work.
    denied = [case for case in changed if samples["cases"].get(case, {"role": "gated"})["role"] != "gated"]
    if denied:
        more = f" and {len(denied) - 1} more" if denied[1:] else ""
        raise ForgedError(f"the samples call code identical that compiles to other code: {code(denied[0])}{more}")
    return samples


def _judge(bound: Bound, samples: Samples, expected: Expected, profiles: Sequence[str]) -> tuple[Verdict, str]:
    """Return the verdict, and a remark in Markdown. Raises ForgedError."""
    profile, remark = _noise(samples, profiles, expected.today)
    try:
        verdict = judge.judge(
            samples,
            bound.config,
            waived=bound.waived,
            allow_head_waivers=bound.waived_by is not None,
            today=expected.today,
            profile=profile,
        )
    except (UsageError, ArithmeticError, ValueError, KeyError, TypeError) as error:
        raise ForgedError(f"no verdict follows from the samples: {code(str(error))}") from None
    return verdict, remark


def _noise(samples: Samples, profiles: Sequence[str], today: datetime.date) -> tuple[NoiseProfile | None, str]:
    """Return the noise profile to judge by, and a remark if there is one that does not fit.

    It is ours, whatever the samples hold. They only say which of the last ones was there when they were measured.
    """
    if not profiles:
        return None, ""
    cited = samples.get("noise_profile", {}).get("digest")
    text = next((text for text in profiles if hashlib.sha256(text.encode()).hexdigest() == cited), profiles[0])
    try:
        return noise_file.parse(text, "of the nightly calibration", samples["environment"], today), ""
    except UsageError as error:
        reason = str(error)
    except (KeyError, TypeError, AttributeError):
        reason = "the samples do not say what machine they are of"
    return None, f"\nJudged with the expected noise, not the calibrated one: {code(reason)}\n"


def _surveys(bound: Bound, delivery: Delivery, expected: Expected) -> tuple[Survey, Survey] | None:
    """Return the compiled kernels of both sides, None if the plan has none."""
    if delivery.plan is None:
        return None
    document = _json(delivery.plan, PLAN_FILE)
    try:
        files.check(document, plan.SCHEMA_FILE)
        if document["isa"] is None:
            return None
        found = []
        for side, commit, tree in (("base", bound.base, bound.base_tree), ("head", bound.head, bound.head_tree)):
            survey = document["isa"][side]
            files.check(survey, ISA_SCHEMA)
            if (survey["revision"]["commit"], survey["revision"]["tree"]) != (commit, tree):
                raise ForgedError(f"the compiled kernels are of another {side} than `{commit[:12]}`")
            if list(survey["kernels"]) != [expected.arch]:
                raise ForgedError(f"the compiled kernels are not those for {expected.arch} alone")
            found.append(Survey.from_json(survey))
        list(compare.pairs_of(*found))  # refuses surveys of different compilers or chips
    except (UsageError, KeyError, TypeError, ValueError) as error:
        raise ForgedError(f"`{PLAN_FILE}` is not valid: {code(str(error))}") from None
    return found[0], found[1]


def _json(content: bytes, name: str) -> Any:
    try:
        return files.parse_json(content)
    except UsageError as error:
        raise ForgedError(f"`{name}` {prose(str(error))}") from None


def as_output(result: CheckResult, limit: int) -> Mapping[str, str]:
    """Return title and summary as the checks API wants them, not longer than it allows."""
    summary = result.summary
    if len(summary) > limit:
        summary = shortened(summary)
    return {"title": result.title[:250], "summary": summary}


def shortened(summary: str) -> str:
    """Return only the first two paragraphs, which hold verdict and counts: cut elsewhere, a fold would stay open."""
    return "\n\n".join(
        [*summary.split("\n\n")[:2], "The whole report is too long for this place; the artifact has the samples.\n"]
    )
