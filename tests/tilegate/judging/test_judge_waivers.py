"""Waivers and overrides in a verdict: what they let pass, what they never do, and that both are shown."""

import argparse
import dataclasses
import datetime
import re
import shlex
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_builder import CONFIG, case, document, side

from tilegate import config, files
from tilegate.commands import gate
from tilegate.judging import advice, judge, rules
from tilegate.judging.waivers import Waiver
from tilegate.showing import report
from tilegate.showing.remarks import remarks

RUN = datetime.date(2026, 1, 1)  # of the documents that `document` builds
CONTROL = {"control": case(role="control", seed=9)}
SLOW = {"slow": case(0.04, confirm=2), "fine": case(seed=3), **CONTROL}


def waiver(name="known", origin="base", *, ceiling=8.0, cases="slow*", days=10, isa=()):
    expires = RUN + datetime.timedelta(days=days)
    return Waiver(name, cases, ceiling, isa, expires, "why", "https://e.org/1", origin)


def verdict_on(
    cases, *found, allow=False, configuration=CONFIG, finished="2026-01-01T00:05:00Z", asked=None, **options
):
    optional = {"waivers": [w.to_json() for w in found], "allow_head_waivers": allow}
    optional |= {} if asked is None else {"asked": asked}
    samples = document(cases, configuration=configuration, finished=finished, **optional)
    files.check_samples(samples)
    verdict = judge.judge(samples, **options)
    files.check(verdict, files.VERDICT_SCHEMA)
    return verdict


def test_a_waived_regression_passes_openly():
    verdict = verdict_on(SLOW, waiver())
    entry = verdict["cases"]["slow"]
    assert (verdict["verdict"], entry["verdict"], entry["waiver"]) == ("pass", "waived", "known")
    assert "waived by known (at most 8 %, until 2026-01-11)" in entry["reason"]
    assert "(1 slower and waived)" in verdict["reason"]
    assert verdict["counts"]["waived"] == 1
    assert [w["used"] for w in verdict["waivers"]["counting"]] == [1]


def test_a_pass_of_waived_cases_alone_does_not_say_that_no_code_changed():
    verdict = verdict_on({"slow": SLOW["slow"], **CONTROL}, waiver())
    assert (verdict["verdict"], verdict["cases"]["slow"]["verdict"]) == ("pass", "waived")
    assert verdict["reason"].startswith("Every case whose code changed: 1 slower and waived; ")


def test_past_its_ceiling_a_regression_fails():
    verdict = verdict_on(SLOW, waiver(ceiling=3.5))
    assert verdict["exit_code"] == 1
    assert "past what is waived by known (at most 3.5 %" in verdict["cases"]["slow"]["reason"]
    assert "waiver" not in verdict["cases"]["slow"]


def test_the_highest_ceiling_that_fits_applies():
    found = (waiver("low", ceiling=3.5), waiver("high"), waiver("other", ceiling=50.0, cases="fast*"))
    assert verdict_on(SLOW, *found)["cases"]["slow"]["waiver"] == "high"


def test_a_waiver_for_another_case_or_for_compiled_code_does_nothing():
    assert verdict_on(SLOW, waiver(cases="slo"))["exit_code"] == 1
    assert verdict_on(SLOW, waiver(ceiling=None, isa=("spills",)))["exit_code"] == 1


def both_sides(found):
    return found, dataclasses.replace(found, origin="head")


def test_an_expired_waiver_fails_the_run_by_name_whether_or_not_it_is_used():
    expired = both_sides(waiver(days=-1))
    verdict = verdict_on({"fine": case(), **CONTROL}, *expired)
    assert (verdict["verdict"], verdict["exit_code"]) == ("inconclusive", 4)
    assert "waiver expired: known (on 2025-12-31)" in verdict["reason"].lower()
    verdict = verdict_on(SLOW, *expired)
    assert (verdict["cases"]["slow"]["verdict"], verdict["exit_code"]) == ("regressed", 1)
    assert "known" in verdict["reason"]
    assert verdict_on({"fine": case(), **CONTROL}, *both_sides(waiver(days=0)))["exit_code"] == 0
    # One of compiled code is the business of `tilegate isa diff`.
    only_isa = both_sides(waiver(ceiling=None, isa=("spills",), days=-1))
    assert verdict_on({"fine": case(), **CONTROL}, *only_isa)["exit_code"] == 0


def test_one_that_the_change_brings_needs_leave():
    refused = verdict_on(SLOW, waiver(origin="head"))
    assert refused["exit_code"] == 1
    assert [w["name"] for w in refused["waivers"]["refused"]] == ["known"]
    assert verdict_on(SLOW, waiver(origin="head"), allow=True)["cases"]["slow"]["verdict"] == "waived"


def test_a_publisher_replaces_what_the_samples_say():
    samples = document(SLOW, waivers=[waiver().to_json()], allow_head_waivers=True)
    assert judge.judge(samples, waived=())["exit_code"] == 1
    head = (waiver(origin="head"),)
    assert judge.judge(samples, waived=head, allow_head_waivers=False)["exit_code"] == 1
    assert judge.judge(samples, waived=head)["exit_code"] == 0
    later = RUN + datetime.timedelta(days=11)
    assert judge.judge(samples, today=later)["exit_code"] == 1
    assert judge.judge(samples)["exit_code"] == 0


def test_noise_under_the_ceiling_is_waived_and_noise_beyond_it_is_not():
    built = case(0.0, noise=0.4, confirm=8, seed=5)
    high = judge.judge(document({"slow": built}))["cases"]["slow"]["interval"][1]
    for percent, expected in ((100 * (high - 1) + 0.1, "waived"), (100 * (high - 1) - 0.1, "inconclusive")):
        assert verdict_on({"slow": built, **CONTROL}, waiver(ceiling=percent))["cases"]["slow"]["verdict"] == expected


@pytest.mark.parametrize(
    ("built", "expected"),
    [
        (case(head=side("b", status="failed", checked=False)), "broken"),
        (case(head=side(None, status="missing"), screen=False), "removed"),
        (case(0.05), "inconclusive"),  # suspicious, not confirmed
        (case(0.05, confirm=1), "inconclusive"),
        (case(screen=False), "inconclusive"),
        (case(0.05, confirm=2, head=side("b", checked=False)), "inconclusive"),
    ],
)
def test_nothing_but_a_slowdown_can_be_waived(built, expected):
    verdict = verdict_on({"slow": built, **CONTROL}, waiver(ceiling=100.0, cases="*"))
    assert verdict["cases"]["slow"]["verdict"] == expected
    assert verdict["exit_code"] in (3, 4)


@given(
    st.sampled_from([0.0, 0.02, 0.04, 0.08]),
    st.lists(
        st.builds(
            waiver,
            st.sampled_from(["a", "b", "c"]),
            st.sampled_from(["base", "head"]),
            ceiling=st.sampled_from([None, 1.0, 5.0, 10.0]),
            cases=st.sampled_from(["*", "slow", "fine"]),
            days=st.sampled_from([-1, 0, 5]),
            isa=st.just(("spills",)),
        ),
        max_size=4,
        unique_by=lambda w: (w.name, w.origin),
    ),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_waivers_only_ever_turn_a_failing_case_into_a_waived_one(effect, found, allow):
    cases = {"slow": case(effect, confirm=2), **CONTROL}
    without, verdict = verdict_on(cases), verdict_on(cases, *found, allow=allow)
    before, after = without["cases"]["slow"], verdict["cases"]["slow"]
    if before["verdict"] != after["verdict"]:
        assert before["verdict"] in ("regressed", "inconclusive")
        assert after["verdict"] == "waived"
        covering = [w.ceiling for w in found if w.name == after["waiver"] and w.covers("slow")]
        assert max(c for c in covering if c is not None) >= 100 * (after["ratio"] - 1)
    assert without["cases"]["control"] == verdict["cases"]["control"]
    if verdict["waivers"]["expired"]:
        assert verdict["exit_code"] != 0
    if not allow:
        assert all(w["origin"] == "base" for w in verdict["waivers"]["counting"])


# --- overrides --------------------------------------------------------------------------------------------------------

PROMISED = {"promise": 0.2, "tolerated": 0.05, "regression": 0.1, "replicate_regression": 0.07, "screen": 0.04}
OTHERS = dataclasses.replace(
    CONFIG,
    overrides=(
        config.Override("slow*", PROMISED),
        config.Override("fine*", {"noisy_pairs": 99}),
    ),
)


def test_a_case_is_judged_by_its_override_and_the_verdict_says_so():
    verdict = verdict_on(SLOW, configuration=OTHERS)
    assert verdict["exit_code"] == 0
    assert verdict["cases"]["slow"]["thresholds"] == PROMISED
    assert "thresholds" not in verdict["cases"]["fine"]  # other numbers of pairs are no other thresholds
    assert "None of 2 cases whose code changed is 3 % slower (1 by a promise of their own)" in verdict["reason"]
    assert verdict_on(SLOW)["exit_code"] == 1


def test_a_pass_names_the_promise_that_all_its_cases_have():
    alike = dataclasses.replace(CONFIG, overrides=(config.Override("*", {"promise": 0.2}),))
    verdict = verdict_on(SLOW, configuration=alike)
    assert "None of 2 cases whose code changed is 20 % slower;" in verdict["reason"]
    (remark,) = remarks(verdict)
    assert remark.text == "3 cases judged by other thresholds than the run's."  # the control, too
    followed = "tolerated 6.67 % (not 1 %), regression 12 % (not 1.8 %), replicate_regression 8.33 % (not 1.25 %), screen 4.67 % (not 0.7 %)"
    assert remark.details == (("slow and 2 more", f"promise 20 % (not 3 %), {followed}"),)


def test_an_override_decides_how_much_is_measured():
    more = dataclasses.replace(CONFIG, overrides=(config.Override("slow*", {"screen_pairs": 12, "confirm_pairs": 20}),))
    built = case(screen=False)
    assert rules.next_step(built, rules.Terms(more.for_case("slow")), target="cuda").pairs == 12
    assert rules.next_step(built, rules.Terms(more.for_case("other")), target="cuda").pairs == 8
    assert verdict_on({"slow": case(), **CONTROL}, configuration=more)["cases"]["slow"]["verdict"] == "inconclusive"


# --- advice -----------------------------------------------------------------------------------------------------------


def test_the_worst_three_come_with_the_command_that_measures_them():
    cases = {f"case.{i}('x-y', [2])": case(0.03 + 0.01 * i, confirm=2) for i in range(5)}
    verdict = verdict_on({**cases, **CONTROL})
    assert advice.worst(verdict["cases"]) == [f"case.{i}('x-y', [2])" for i in (4, 3, 2)]
    command = verdict["next"]["command"]
    assert command[:4] == ["tilegate", "gate", "--base", "0" * 12]
    pattern = re.compile(command[command.index("-b") + 1])
    assert [name for name in verdict["cases"] if pattern.search(name)] == [f"case.{i}('x-y', [2])" for i in (2, 3, 4)]


ASKED = {"emulate": False, "noise_profile": "my noise.json", "budget": 2.5, "out": "else where"}
KINDS = {
    "regressed": {**SLOW},
    "broken": {"a": case(head=side("b", status="failed")), **CONTROL},
    "undecided": {"a": case(0.05), **CONTROL},
    "controls": {"a": case(), "c": case(0.05, role="control", confirm=2)},
    "interrupted": {"a": case(), **CONTROL},
    "out of time": {"a": {**case(0.05), "stopped": "budget"}, **CONTROL},
}


def options_of(verdict):
    """The command of a verdict as `tilegate gate` reads it, out of the line that report and terminal show."""
    parser = argparse.ArgumentParser()
    gate.add_parser(parser.add_subparsers())
    line = report.command(verdict)
    assert line in report.render(verdict)
    return parser.parse_args(shlex.split(line)[1:])


@pytest.mark.parametrize("kind", KINDS)
def test_the_command_has_the_options_that_the_run_had(kind):
    finished = None if kind == "interrupted" else "2026-01-01T00:05:00Z"
    options = options_of(verdict_on(KINDS[kind], allow=True, asked=ASKED, finished=finished))
    assert (options.no_emulate, options.allow_head_waivers) == (True, True)
    assert (options.noise_profile, options.skip_unfit_noise) == (Path("my noise.json"), True)
    assert options.budget == (None if kind == "out of time" else 2.5)
    # Only what is continued is found where it is.
    assert options.out == (Path("else where") if kind in ("interrupted", "out of time") else None)
    plain = options_of(verdict_on(KINDS[kind], asked={"emulate": True}, finished=finished))
    assert (plain.no_emulate, plain.allow_head_waivers, plain.skip_unfit_noise) == (False, False, False)
    assert (plain.noise_profile, plain.budget, plain.out) == (None, None, None)


def test_a_judge_that_lets_no_waiver_of_the_head_count_does_not_advise_it():
    verdict = judge.judge(document(SLOW, allow_head_waivers=True), allow_head_waivers=False)
    assert not options_of(verdict).allow_head_waivers


def test_each_verdict_has_its_advice():
    said = {
        "nothing": verdict_on({"a": case(), **CONTROL}),
        "regressed": verdict_on(SLOW),
        "expired": verdict_on({"a": case(), **CONTROL}, *both_sides(waiver(days=-1))),
        "undecided": verdict_on({"a": case(0.05), **CONTROL}),
        "controls": verdict_on({"a": case(), "c": case(0.05, role="control", confirm=2)}),
    }
    assert said["nothing"]["next"]["command"] is None
    assert len({verdict["next"]["advice"] for verdict in said.values()}) == len(said)
    assert said["undecided"]["next"]["command"][-3:] == ["-b", "^a$", "--fresh"]
    assert "-b" not in said["controls"]["next"]["command"]


def failing_base():
    return case(base=side("a", status="failed", checked=False))


@pytest.mark.parametrize(
    ("built", "obstacle", "said"),
    [
        (case() | {"work": {"flops": 1e15}}, "times", "the launch did not do its work, or the clock was reached"),
        (
            case(base=side(None, status="missing"), screen=False)
            | {"work": {"flops": 1e15}, "alone": {"session": "s", "turns": [[1e-4] * 3]}},
            "times",
            "the launch did not do its work, or the clock was reached",
        ),
        (failing_base(), "base", "The base fails here"),
        (case(head=side("b", checked=False)), "check", "check()"),
        (case(role="control", head=side("b")), "samples", "contradict themselves"),
    ],
)
def test_what_measuring_again_cannot_decide_has_an_advice_of_its_own(built, obstacle, said):
    device = {"fingerprint": "f" * 64, "device": {"name": "NVIDIA H200"}}
    cases = {"a": built, "noisy": case(0.0, noise=0.4, confirm=8), **CONTROL}
    samples = document(cases, environment=device)
    files.check_samples(samples)
    verdict = judge.judge(samples)
    files.check(verdict, files.VERDICT_SCHEMA)
    assert (verdict["exit_code"], verdict["cases"]["a"]["obstacle"]) == (4, obstacle)
    assert said in verdict["next"]["advice"]
    assert "quiet" not in verdict["next"]["advice"]
    assert verdict["next"]["command"][-3:] == ["-b", "^a$", "--fresh"]
    assert "obstacle" not in verdict["cases"]["noisy"]
