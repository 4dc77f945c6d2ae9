"""From raw samples to a verdict: precedence, the statistics of a case, controls, and samples that try to trick it."""

import copy
import json
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_builder import CONFIG, case, document, side

from tilegate import config, files
from tilegate.judging import decision, judge, rules


def verdict_on(cases, **options):
    samples = document(cases, **options)
    files.check_samples(samples)
    verdict = judge.judge(samples)
    files.check(verdict, files.VERDICT_SCHEMA)
    return verdict


def of_case(built, **options):
    return verdict_on({"a": built}, **options)["cases"]["a"]


still = {"control": case(role="control", seed=9)}


# --- what timing says -------------------------------------------------------------------------------------------------


def test_an_unchanged_time_passes():
    verdict = verdict_on({"a": case(), **still})
    assert (verdict["verdict"], verdict["exit_code"]) == ("pass", 0)
    entry = verdict["cases"]["a"]
    assert entry["verdict"] == "pass"
    assert entry["interval"][0] < entry["ratio"] < entry["interval"][1] < 1.03
    assert (entry["pairs"], entry["replicates"]) == (8, 1)
    assert entry["base_seconds"] == pytest.approx(1e-4)
    assert 0.01 < entry["smallest_detectable_effect"] < 0.03


def test_three_percent_is_a_regression_and_turns_the_run_red():
    verdict = verdict_on({"good": case(), "slow": case(0.03, confirm=2), **still})
    assert (verdict["verdict"], verdict["exit_code"]) == ("regressed", 1)
    entry = verdict["cases"]["slow"]
    assert entry["verdict"] == "regressed"
    assert entry["ratio"] == pytest.approx(1.03, abs=0.003)
    assert entry["p_value"] <= CONFIG.alpha
    assert (entry["pairs"], entry["replicates"]) == (32, 2)
    assert verdict["suspects"] == 1
    assert verdict["counts"]["pass"] == verdict["counts"]["regressed"] == verdict["counts"]["unchanged"] == 1


def test_three_percent_faster_is_an_improvement_only_once_it_is_confirmed():
    assert of_case(case(-0.03, confirm=2))["verdict"] == "improved"
    unconfirmed = of_case(case(-0.03))
    assert unconfirmed["verdict"] == "inconclusive"
    assert "confirmed in 0 of 2" in unconfirmed["reason"]


def test_swapped_sides_turn_a_regression_into_an_improvement():
    built = case(0.04, confirm=2)
    swapped = copy.deepcopy(built)
    for replicate in swapped["replicates"]:
        for pair in replicate["pairs"]:
            pair["base"], pair["head"], pair["order"] = pair["head"], pair["base"], 1 - pair["order"]
    forward, back = of_case(built), of_case(swapped)
    assert (forward["verdict"], back["verdict"]) == ("regressed", "improved")
    assert forward["ratio"] * back["ratio"] == pytest.approx(1)
    assert forward["p_value"] == pytest.approx(back["p_value"], rel=0.05)  # the bias model sees another base time


def test_between_tolerated_and_regression_is_a_warning():
    verdict = verdict_on({"a": case(0.0145, confirm=2), **still})
    assert verdict["cases"]["a"]["verdict"] == "warning"
    assert verdict["verdict"] == "pass"


def test_a_suspect_that_fresh_processes_clear_passes():
    entry = of_case(case(0.0, screen_effect=0.05, confirm=2))
    assert entry["verdict"] == "pass"
    assert "fresh" in entry["reason"]


@pytest.mark.parametrize("confirm", [0, 1])
def test_a_suspect_without_enough_fresh_replicates_never_passes(confirm):
    verdict = verdict_on({"a": case(0.05, confirm=confirm), **still})
    assert verdict["cases"]["a"]["verdict"] == "inconclusive"
    assert verdict["exit_code"] == 4


def test_one_biased_replicate_is_no_regression():
    built = case(0.0, screen_effect=0.05, confirm=2)
    built["replicates"][2]["pairs"] = case(0.05, confirm=2, seed=4)["replicates"][2]["pairs"]
    assert of_case(built)["verdict"] in ("inconclusive", "warning")


def test_eight_noisy_pairs_around_no_change_do_not_pass_silently():
    built = case(0.0, noise=0.05, seed=3)
    assert rules.should_confirm(built, CONFIG, target="cuda")
    assert of_case(built)["verdict"] == "inconclusive"


def test_noise_that_replicates_cannot_beat_is_inconclusive():
    entry = of_case(case(0.0, noise=0.4, confirm=2, seed=5))
    assert entry["verdict"] == "inconclusive"
    assert "too noisy" in entry["reason"]
    assert entry["smallest_detectable_effect"] > 0.03


def test_a_short_kernel_needs_more_than_its_pairs():
    # No pair noise at all, yet at 4 microseconds a fresh pair of processes is off by percents.
    entry = of_case(case(0.0, seconds=4e-6, noise=1e-5, confirm=2))
    assert entry["verdict"] == "inconclusive"
    assert of_case(case(0.0, seconds=4e-4, noise=1e-5))["verdict"] == "pass"


# --- looks ------------------------------------------------------------------------------------------------------------


def undecided_yet():
    """A slowdown that two replicates neither show nor exclude: the rules want two more."""
    built = case(0.02, noise=0.014, confirm=2, seed=4)
    assert rules.next_step(built, CONFIG, target="cuda") == decision.Step("confirm", 2, 64)
    assert of_case(case(0.02, noise=0.014, confirm=8, seed=4))["verdict"] == "regressed"
    return built


def test_a_case_that_is_left_open_never_passes():
    built = undecided_yet()
    for stopped in ({}, {"stopped": "budget"}):
        verdict = verdict_on({"a": built | stopped, **still})
        assert (verdict["cases"]["a"]["verdict"], verdict["exit_code"]) == ("inconclusive", 4)
        assert "in 2 fresh replicates, and more are needed" in verdict["cases"]["a"]["reason"]
        assert ("the time" in verdict["cases"]["a"]["reason"]) == bool(stopped)
    assert verdict["out_of_time"] == 1


@given(st.integers(0, 10_000), st.sampled_from([-0.02, 0.0, 0.01, 0.015, 0.02, 0.03]), st.sampled_from([0.003, 0.014, 0.03]),
       st.sampled_from([0, 1, 2, 3, 4, 6, 8]))  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_what_passes_is_what_nothing_is_left_to_measure_of(seed, effect, noise, confirm):
    built = case(effect, noise=noise, confirm=confirm, seed=seed)
    if rules.next_step(built, CONFIG, target="cuda").action != "done":
        assert of_case(built)["verdict"] in ("inconclusive", "regressed")


@pytest.mark.parametrize(("have", "looked_at"), [(1, 0), (2, 2), (3, 2), (4, 4), (5, 4), (7, 4), (8, 8)])
def test_between_two_looks_the_last_one_counts(have, looked_at):
    """The correction for several looks counts those after 2, 4 and 8 replicates: what came since is not weighed."""
    built = case(0.03, noise=0.002, confirm=have, screen_effect=0.04)
    for replicate in built["replicates"][1 + looked_at :]:  # would be seen in every number
        for pair in replicate["pairs"]:
            pair["head"] = [3 * t for t in pair["head"]]
    entry = of_case(built)
    alone = of_case({**built, "replicates": built["replicates"][: 1 + looked_at]})
    shown = (
        "verdict",
        "ratio",
        "interval",
        "p_value",
        "pairs",
        "replicates",
        "head_seconds",
        "smallest_detectable_effect",
    )
    assert {key: entry[key] for key in shown} == {key: alone[key] for key in shown}
    assert entry["verdict"] == ("regressed" if looked_at else "inconclusive")
    shuffled = {**built, "replicates": built["replicates"][::-1]}  # their numbers say which came first
    assert of_case(shuffled) == entry


def test_two_replicates_of_three_are_no_regression_and_three_no_pass():
    """What a third replicate adds to two that left it open is no verdict."""
    three = undecided_yet()
    three["replicates"] = case(0.02, noise=0.014, confirm=3, seed=4)["replicates"]
    three["replicates"][3] = {**three["replicates"][3], "pairs": case(0.06, confirm=3)["replicates"][3]["pairs"]}
    assert of_case(three)["verdict"] == "inconclusive"


def test_more_replicates_after_the_last_look_do_not_scale_the_bias():
    cases = {f"a{i}": case(0.0, screen_effect=0.05, confirm=3, seed=i) for i in range(12)}
    for built in cases.values():
        for pair in built["replicates"][3]["pairs"]:
            pair["head"] = [1.05 * t for t in pair["head"]]
    assert verdict_on(cases)["bias_scale"] < 1.5


# --- precedence -------------------------------------------------------------------------------------------------------


def failing(kind="wrong-result"):
    return side("b", status="failed", failure={"kind": kind, "message": "out: off by 3", "log": "tail"}, checked=False)


@pytest.mark.parametrize(
    ("base", "head", "expected"),
    [
        (failing("import"), side("b"), "inconclusive"),
        (failing("import"), failing(), "inconclusive"),
        (side(None, status="missing"), side("b"), "new"),
        (side(None, status="missing"), side("b", checked=False), "inconclusive"),
        (side(None, status="missing"), failing(), "broken"),
        (side(None, status="missing"), side(None, status="missing"), "inconclusive"),
        (side("a"), side(None, status="missing"), "removed"),
        (side("a"), failing(), "broken"),
        (side("a"), side("b", checked=False), "inconclusive"),
    ],
)
def test_what_no_timing_can_change(base, head, expected):
    entry = of_case(case(-0.5, base=base, head=head, confirm=2))
    assert entry["verdict"] == expected
    assert entry["ratio"] is None


def test_broken_comes_before_slower_and_carries_the_message():
    verdict = verdict_on({"slow": case(0.1, confirm=2), "wrong": case(head=failing())})
    assert (verdict["verdict"], verdict["exit_code"]) == ("broken", 3)
    assert verdict["cases"]["wrong"]["failure"] == {
        "side": "head",
        "kind": "wrong-result",
        "message": "out: off by 3",
        "log": "tail",
    }


def test_a_moving_control_outranks_a_regression():
    moving = case(0.03, role="control", confirm=2, seed=2)
    verdict = verdict_on({"slow": case(0.1, confirm=2), "same": moving})
    assert (verdict["verdict"], verdict["exit_code"]) == ("environment-invalid", 5)
    assert verdict["controls"]["moved"] == ["same"]
    assert verdict["cases"]["same"]["verdict"] == "unchanged"


def test_one_moving_control_among_many_is_enough():
    controls = {f"c{i}": case(role="control", seed=i) for i in range(20)}
    verdict = verdict_on({"a": case(), **controls, "moving": case(0.03, role="control", confirm=2)})
    assert abs(verdict["controls"]["shift"]) < verdict["controls"]["shift_limit"]
    assert verdict["controls"]["moved"] == ["moving"]
    assert verdict["exit_code"] == 5


def test_controls_that_move_together_by_a_little_invalidate_the_environment():
    controls = {f"c{i}": case(0.012, role="control", confirm=2, seed=i, noise=0.001) for i in range(4)}
    verdict = verdict_on({"a": case(), **controls})
    assert verdict["controls"]["moved"] == []
    assert verdict["verdict"] == "environment-invalid"


def moving(effect, itself, seed=2):
    """A control that moved by `effect`, and the base against itself, by `itself`."""
    found = case(effect, role="control", confirm=2, seed=seed, noise=0.001)
    found["itself"] = case(itself, role="control", confirm=2, seed=seed + 100, noise=0.001)["replicates"]
    return found


@pytest.mark.parametrize(
    ("effect", "itself", "exit_code", "entry"),
    [
        (0.05, 0.0, 1, "regressed"),  # the package did it
        (-0.05, 0.0, 0, "improved"),
        (0.05, 0.05, 5, "unchanged"),  # the machine did
        (0.05, -0.05, 5, "unchanged"),
        (0.05, 0.03, 5, "unchanged"),
        (0.0, 0.0, 0, "unchanged"),
    ],
)
def test_a_control_that_moved_is_the_changes_doing_if_the_base_against_itself_stands_still(
    effect, itself, exit_code, entry
):
    verdict = verdict_on({"same": moving(effect, itself), **still})
    assert verdict["exit_code"] == exit_code, verdict["reason"]
    assert verdict["cases"]["same"]["verdict"] == entry
    if entry != "unchanged":
        assert "around the launch" in verdict["cases"]["same"]["reason"]
        assert "same" not in verdict["controls"]["moved"]


def test_half_a_measurement_of_the_base_against_itself_acquits_nobody():
    found = moving(0.05, 0.0)
    del found["itself"][2:]
    assert verdict_on({"same": found, **still})["exit_code"] == 5


def test_controls_that_move_together_while_the_base_stands_still_are_in_doubt_and_not_the_machines():
    verdict = verdict_on({f"c{i}": moving(0.012, 0.0, seed=i) for i in range(4)})
    assert verdict["exit_code"] == 4
    assert "not the machine" in verdict["reason"]
    assert verdict_on({f"c{i}": moving(0.012, 0.012, seed=i) for i in range(4)})["exit_code"] == 5


def overridden(run, **own):
    """The run's `screen`, and other thresholds for the cases whose names begin with "own"."""
    import dataclasses

    return dataclasses.replace(CONFIG, screen=run, overrides=(config.Override("own*", own),))


def test_controls_are_held_against_the_thresholds_of_their_own_cases():
    moving = {f"own{i}": case(0.012, role="control", seed=i, noise=0.001) for i in range(4)}
    lenient = dict(promise=0.10, regression=0.06, replicate_regression=0.04, tolerated=0.03, screen=0.045)
    verdict = verdict_on({"a": case(), **moving}, configuration=overridden(0.007, **lenient))
    assert verdict["verdict"] == "pass"
    assert verdict["controls"]["shift_limit"] == pytest.approx(0.044, abs=1e-3)
    assert verdict_on({"a": case(), **moving}, configuration=overridden(0.007, promise=0.04))["exit_code"] == 5
    strict = overridden(0.015, screen=0.006)
    moving = {f"own{i}": case(0.012, role="control", confirm=2, seed=i, noise=0.001) for i in range(4)}
    assert verdict_on({"a": case(), **moving}, configuration=strict)["exit_code"] == 5
    others = {f"c{i}": case(role="control", seed=i, noise=0.001) for i in range(8)}
    verdict = verdict_on({"a": case(), **moving, **others}, configuration=strict)
    assert (verdict["exit_code"], verdict["controls"]["moved"]) == (5, [])
    assert verdict["controls"]["shift"] == pytest.approx(0.012, abs=1e-3)


def test_a_control_that_seems_to_move_must_be_measured_again():
    verdict = verdict_on({"a": case(), "c": case(0.05, role="control"), "d": case(role="control", noise=0.0001)})
    assert verdict["verdict"] in ("inconclusive", "environment-invalid")
    assert verdict_on({"a": case(), "c": case(0.0, screen_effect=0.05, role="control", confirm=2)})["verdict"] == "pass"


def test_a_run_that_measured_nothing_never_passes():
    untimed = case(role="identical", screen=False)
    for cases in ({}, {"a": untimed}, {"a": case(screen=False)}, {"a": case(base=side(None, status="missing"))}):
        verdict = verdict_on(cases)
        assert (verdict["verdict"], verdict["exit_code"]) == ("inconclusive", 4)
    assert verdict_on({"a": untimed, **still})["verdict"] == "pass"


def test_an_interrupted_run_never_passes_but_shows_what_it_found():
    assert verdict_on({"a": case(), **still}, finished=None)["exit_code"] == 4
    assert verdict_on({"a": case(0.05, confirm=2), **still}, finished=None)["exit_code"] == 1


def test_a_removed_case_needs_leave():
    cases = {"a": case(), "gone(1)": case(head=side(None, status="missing"), screen=False), **still}
    assert verdict_on(cases)["exit_code"] == 4
    import dataclasses

    allowed = dataclasses.replace(CONFIG, allow_removed=("gone*",))
    verdict = verdict_on(cases, configuration=allowed)
    assert verdict["exit_code"] == 0
    assert verdict["counts"]["removed"] == 1


# --- tricks -----------------------------------------------------------------------------------------------------------


def reuse_a_session(built):
    built["replicates"][2]["session"] = built["replicates"][1]["session"]


def confirm_in_the_screens_session(built):
    built["replicates"][1]["session"] = built["replicates"][0]["session"]


def repeat_a_number(built):
    built["replicates"][2]["replicate"] = built["replicates"][1]["replicate"]


def drop_pairs(built):
    del built["replicates"][1]["pairs"][3:]


def drop_screen_pairs(built):
    del built["replicates"][0]["pairs"][7:]


def drop_the_screen(built):
    del built["replicates"][0]


def shorten_one_side(built):
    del built["replicates"][1]["pairs"][4]["head"][1:]


def one_launch_a_turn(built):
    for replicate in built["replicates"]:
        for pair in replicate["pairs"]:
            del pair["base"][1:], pair["head"][1:]


def always_base_first(built):
    for replicate in built["replicates"]:
        for pair in replicate["pairs"]:
            pair["order"] = 0


def measure_until_it_pleases(built):
    for i in range(3, 12):
        built["replicates"].append({**copy.deepcopy(built["replicates"][1]), "replicate": i, "session": f"again-{i}"})


def add_pairs_until_it_pleases(built):
    built["replicates"][1]["pairs"] *= 5


def claim_identical_code(built):
    built["role"] = "identical"


def claim_to_be_a_control(built):
    built["role"] = "control"


def gate_identical_code(built):
    built["head"]["identity"] = built["base"]["identity"]


def leave_results_unchecked(built):
    built["head"]["checked"] = False


def fail_without_a_message(built):
    built["head"]["status"] = "failed"


def succeed_with_a_failure(built):
    built["head"]["failure"] = {"kind": "crash", "message": "no", "log": None}


@pytest.mark.parametrize("effect", [0.0, 0.03])
@pytest.mark.parametrize(
    "trick",
    [
        reuse_a_session,
        confirm_in_the_screens_session,
        repeat_a_number,
        drop_pairs,
        drop_screen_pairs,
        drop_the_screen,
        shorten_one_side,
        one_launch_a_turn,
        always_base_first,
        measure_until_it_pleases,
        add_pairs_until_it_pleases,
        claim_identical_code,
        claim_to_be_a_control,
        gate_identical_code,
        leave_results_unchecked,
        fail_without_a_message,
        succeed_with_a_failure,
    ],
    ids=lambda trick: trick.__name__,
)
def test_a_trick_is_never_a_pass(trick, effect):
    built = case(effect, screen_effect=0.03, confirm=2)
    assert of_case(built)["verdict"] == ("pass" if effect == 0 else "regressed"), "the trick must make the difference"
    trick(built)
    verdict = verdict_on({"a": built, **still})
    assert verdict["cases"]["a"]["verdict"] == "inconclusive"
    assert verdict["exit_code"] == 4


@pytest.mark.parametrize("bad", [0, -1e-4, 1e9, 1e-12, True, "1e-4", None])
def test_absurd_times_are_refused(bad):
    samples = document({"a": case()})
    samples["cases"]["a"]["replicates"][0]["pairs"][2]["head"][1] = bad
    with pytest.raises(files.UsageError, match="/cases/a/replicates/0/pairs/2/head/1"):
        files.check_samples(samples)


def test_no_conclusion_in_the_samples_is_believed():
    samples = document({"a": case(0.05, confirm=2), **still})
    samples["config"] |= {"regression": 0.4, "promise": 0.5, "tolerated": 0.3, "replicate_regression": 0.3}
    assert judge.judge(samples)["verdict"] == "pass"  # by its own loose thresholds
    verdict = judge.judge(samples, CONFIG)
    assert verdict["verdict"] == "regressed"
    assert verdict["config"]["regression"] == CONFIG.regression


def test_judging_is_pure_and_keeps_the_order_of_cases():
    samples = document({"b": case(0.03, confirm=2), "a": case(), **still})
    before = json.dumps(samples)
    first = judge.judge(samples)
    assert json.dumps(samples) == before
    assert judge.judge(samples) == first
    assert list(first["cases"]) == list(samples["cases"])


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_no_damage_to_a_regressed_run_makes_it_pass(data):
    """Whatever part of the evidence is deleted, a 5 % slowdown that the screen saw is not passed."""
    samples = document({"a": case(0.05, confirm=2), **still})
    replicates = samples["cases"]["a"]["replicates"]
    for _ in range(data.draw(st.integers(0, 3))):
        if not replicates:
            break
        at = data.draw(st.integers(0, len(replicates) - 1))
        if data.draw(st.booleans()):
            del replicates[at]
        else:
            del replicates[at]["pairs"][data.draw(st.integers(0, len(replicates[at]["pairs"]))) :]
    files.check_samples(samples)
    assert judge.judge(samples)["verdict"] in ("regressed", "inconclusive")


# --- what to measure next ---------------------------------------------------------------------------------------------


def test_steps_of_a_clean_and_of_a_slow_case():
    def step(built, **options):
        found = rules.next_step(built, CONFIG, target="cuda", **options)
        return found.action, found.replicates, found.pairs

    assert step(case(screen=False)) == ("screen", 1, 8)
    assert step(case()) == ("done", 0, 0)
    assert step(case(0.03)) == ("confirm", 2, 16)
    assert step(case(0.03, confirm=1)) == ("confirm", 1, 16)
    assert step(case(0.03, confirm=2)) == ("done", 0, 0)
    assert step(case(0.0, noise=0.2, confirm=2)) == ("confirm", 2, 64)
    assert step(case(0.0, noise=0.2, confirm=4)) == ("confirm", 4, 64)
    assert step(case(0.0, noise=0.4, confirm=8)) == ("done", 0, 0)
    assert step(case(0.0, seconds=4e-6, noise=1e-4, confirm=2)) == ("confirm", 2, 16)  # bias, not pair noise
    # Between two looks nothing is decided, and what was asked for goes on.
    assert step(case(0.0, noise=0.2, confirm=3)) == ("confirm", 1, 64)
    assert step(case(0.0, noise=0.2, confirm=5)) == ("confirm", 3, 64)
    assert step(case(0.0, noise=0.2, confirm=2, role="control")) == ("done", 0, 0)
    assert step(case(role="identical", screen=False)) == ("done", 0, 0)
    assert step(case(0.05, head=failing())) == ("done", 0, 0)
    assert step(case(0.03, role="control")) == ("confirm", 2, 16)


def test_what_the_gate_calls_done_the_judge_decides():
    for effect in (-0.05, -0.01, 0.0, 0.01, 0.02, 0.05):
        for noise in (0.001, 0.02, 0.1):
            for confirm in (0, 2, 4, 8):
                built = case(effect, noise=noise, confirm=confirm)
                done = rules.next_step(built, CONFIG, target="cuda").action == "done"
                undecided = of_case(built)["verdict"] == "inconclusive"
                assert not (done and undecided) or confirm == CONFIG.max_replicates


# --- command ----------------------------------------------------------------------------------------------------------


def run_judge(*arguments):
    command = [sys.executable, "-m", "tilegate", "judge", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_command(tmp_path):
    path = tmp_path / "samples.json"
    files.write_json(path, document({"a": case(0.05, confirm=2), **still}))
    done = run_judge(path, "--out", tmp_path / "out")
    assert done.returncode == 1, done.stderr
    assert "REGRESSED" in done.stdout
    verdict = files.load_verdict(tmp_path / "out" / "verdict.json")
    assert verdict["verdict"] == "regressed"
    assert (tmp_path / "out" / "report.md").read_text().startswith("## ❌ REGRESSED: 1 case of 2 got slower")
    assert json.loads(run_judge(path, "--json").stdout) == verdict


def test_command_with_another_configuration(tmp_path):
    path = tmp_path / "samples.json"
    files.write_json(path, document({"a": case(0.05, confirm=2), **still}))
    pyproject = tmp_path / "pyproject.toml"
    pyproject.write_text('[tool.tilegate]\npackage = "k"\nsuite = "s"\nregression = 0.2\npromise = 0.3\n')
    assert run_judge(path, "--config", pyproject).returncode == 0
    pyproject.write_text("[tool.tilegate]\nnonsense = 1\n")
    refused = run_judge(path, "--config", pyproject)
    assert (refused.returncode, "nonsense" in refused.stderr) == (2, True)
    assert run_judge(tmp_path / "none.json").returncode == 2


# --- causes -----------------------------------------------------------------------------------------------------------


def test_a_cause_is_handed_through_and_changes_no_verdict():
    failed = side("b", status="failed", checked=False)
    cases = {
        "good": case(),
        "slow": case(0.05, confirm=2),
        "faster": case(-0.05, confirm=2),
        "unclear": case(0.05),
        "broken": case(head=failed),
        "new": case(base=side(None, status="missing")),
        "removed": case(head=side(None, status="missing"), screen=False),
        "same": case(role="identical", screen=False),
        **still,
    }
    for left_out in ((), ("broken",), ("broken", "slow"), ("broken", "slow", "unclear", "removed")):
        chosen = {name: built for name, built in cases.items() if name not in left_out}
        without = verdict_on(chosen)
        lines = ["verdict: pass", "block 64 -> 128"]
        verdict = verdict_on({name: {**built, "cause": lines} for name, built in chosen.items()})
        assert [entry.pop("cause") for entry in verdict["cases"].values()] == [lines] * len(chosen)
        assert verdict == without


def test_a_cause_decides_nothing_about_what_is_measured_next():
    for built in (case(), case(0.05), case(0.05, confirm=2)):
        step = rules.next_step(built, CONFIG, target="cuda")
        assert rules.next_step({**built, "cause": ["x"]}, CONFIG, target="cuda") == step


def test_an_improvement_that_is_too_good_is_one_to_look_at():
    looked_at = case(-0.4, confirm=2, seed=1)
    for replicate in looked_at["replicates"]:
        replicate["looks"] = 3
    cases = verdict_on({"much": looked_at, "little": case(-0.2, confirm=2, seed=2), **still})["cases"]
    assert (cases["much"]["striking"], "unseen" in cases["much"]) == ("factor", False)
    assert ("striking" in cases["little"], cases["little"]["unseen"]) == (False, True)


def test_an_improvement_beyond_what_16_bit_numbers_allow_is_one_to_look_at():
    h200 = {"device": {"name": "NVIDIA H200"}, "machine": {"cpu": "a CPU"}, "fingerprint": "f" * 64}
    flops = 0.8 * 132 * 8192 * 1.98e9 * 1e-4  # of what FP8 could do in 100 µs
    fast = case(-0.1, confirm=2, seed=1) | {"work": {"flops": flops}}
    fair = case(-0.1, confirm=2, seed=2) | {"work": {"flops": flops / 4}}
    cases = verdict_on({"fast": fast, "fair": fair, **still}, environment=h200)["cases"]
    assert cases["fast"]["striking"] == "roofline"
    assert "striking" not in cases["fair"]


@pytest.mark.parametrize(("noise", "most"), [(0.0005, 0.01), (0.003, 0.01), (0.2, None)])
def test_each_case_says_what_it_could_have_promised(noise, most):
    verdict = verdict_on({"a": case(noise=noise, seconds=1e-3), **still})
    possible = verdict["cases"]["a"]["could_promise"]
    if most is None:
        assert possible > 0.03
    else:
        assert 0.001 < possible <= most
    assert verdict_on({"a": case(head=failing()), **still})["cases"]["a"]["could_promise"] is None
