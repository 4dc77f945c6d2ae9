"""Which pairs count: disturbed ones, copies, impossible times; and what a reader is told of a case besides."""

import copy
import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_builder import CONFIG, case, document, pairs, side

from tilegate import cli, files
from tilegate.judging import judge, roofline, rules
from tilegate.judging.measured import measured, of_turns
from tilegate.showing import report

STILL = {"control": case(role="control", seed=9)}
H200 = {"fingerprint": "f" * 64, "device": {"name": "NVIDIA H200"}}


def verdict_on(cases, **optional):
    samples = document(cases, **optional)
    files.check_samples(samples)
    verdict = judge.judge(samples)
    files.check(verdict, files.VERDICT_SCHEMA)
    return verdict


def disturb(built, replicate, count, reason="throttled", slower=1.5):
    for pair in built["replicates"][replicate]["pairs"][:count]:
        pair["disturbed"] = reason
        pair["head"] = [slower * t for t in pair["head"]]
    return built


def top_up(built, replicate, count, effect=0.0, seed=77):
    built["replicates"][replicate]["pairs"] += pairs(count, effect, np.random.default_rng(seed))
    return built


def quiet(count=40):
    """Enough undisturbed cases that a few disturbed pairs are a small share."""
    return {f"quiet{i}": case(seed=100 + i) for i in range(count)}


# --- disturbed pairs --------------------------------------------------------------------------------------------------


def test_disturbed_pairs_do_not_count_and_are_counted():
    built = top_up(disturb(case(), 0, 6), 0, 6)
    verdict = verdict_on({"a": built, **quiet(), **STILL})
    entry = verdict["cases"]["a"]
    assert (entry["verdict"], entry["pairs"], entry["disturbed"]) == ("pass", 8, 6)
    assert verdict["disturbed"] == {"pairs": 6, "of": 14 + 8 * 41, "reasons": {"throttled": 6}}
    assert verdict["exit_code"] == 0


def test_a_slowdown_is_seen_behind_disturbances():
    built = case(0.04, confirm=2)
    for replicate, count in ((0, 2), (1, 5), (2, 5)):
        top_up(disturb(built, replicate, count, slower=0.5), replicate, count, 0.04, seed=replicate)
    assert verdict_on({"a": built, **quiet(), **STILL})["cases"]["a"]["verdict"] == "regressed"


def test_too_few_pairs_left_is_inconclusive_and_says_why():
    verdict = verdict_on({"a": disturb(case(), 0, 1, "clock dropped"), **quiet(), **STILL})
    entry = verdict["cases"]["a"]
    assert entry["verdict"] == "inconclusive"
    assert "1 of 8 pairs were disturbed (clock dropped 1), which left too few" in entry["reason"]
    assert verdict["exit_code"] == 4


def test_a_suspect_whose_confirmation_was_disturbed_never_passes():
    for effect in (0.0, 0.05):
        built = disturb(case(effect, screen_effect=0.05, confirm=2), 2, 1)
        verdict = verdict_on({"a": built, **quiet(), **STILL})
        assert verdict["cases"]["a"]["verdict"] == "inconclusive"
        assert "confirmed in 1 of 2 fresh replicates: 1 of 40 pairs" in verdict["cases"]["a"]["reason"]


@pytest.mark.parametrize("share", [0.2, 0.3])
def test_a_run_most_of_which_was_disturbed_says_nothing(share):
    count = round(share * 20)
    cases = {f"a{i}": top_up(disturb(case(seed=i), 0, count), 0, count) for i in range(10)}
    for built in cases.values():  # `count` of 8 + `count` pairs
        built["replicates"][0]["pairs"] = built["replicates"][0]["pairs"][: 8 + count]
    limit = count / (8 + count)
    verdict = verdict_on(cases, configuration=dataclasses.replace(CONFIG, most_disturbed=limit))
    assert verdict["verdict"] == "pass"
    verdict = verdict_on(cases, configuration=dataclasses.replace(CONFIG, most_disturbed=limit - 0.01))
    assert (verdict["verdict"], verdict["exit_code"]) == ("environment-invalid", 5)
    assert f"{10 * count} of {10 * (8 + count)} pairs were disturbed (throttled {10 * count})" in verdict["reason"]


def test_broken_outranks_a_disturbed_machine_and_a_regression_does_not():
    slow = top_up(disturb(case(0.05, confirm=2), 0, 8), 0, 8, 0.05)
    config = dataclasses.replace(CONFIG, most_disturbed=0.1)
    assert verdict_on({"a": slow}, configuration=config)["exit_code"] == 5
    broken = case()
    broken["head"] |= {"status": "failed", "failure": {"kind": "crash", "message": "x", "log": None}}
    assert verdict_on({"a": slow, "b": broken}, configuration=config)["exit_code"] == 3


def test_spoilt_replicates_are_measured_again_but_not_for_ever():
    def step(built):
        found = rules.next_step(built, CONFIG, target="cuda")
        return found.action, found.replicates

    screen = disturb(case(), 0, 3)
    assert step(screen) == ("screen", 1)
    second = disturb(case(seed=1), 0, 3)["replicates"][0] | {"replicate": 1, "session": "again"}
    screen["replicates"].append(second)
    assert step(screen) == ("done", 0)

    suspect = disturb(case(0.05, confirm=2), 2, 3)
    assert step(suspect) == ("confirm", 1)
    assert step(disturb(suspect, 1, 3)) == ("done", 0)


def test_a_spoilt_replicate_is_no_look():
    """Eight usable replicates are the most, however many were spoilt among them, and looks come after 2, 4 and 8."""
    built = case(0.0, noise=0.4, confirm=8, seed=5)
    disturb(built, 3, 3)
    found = rules.next_step(built, CONFIG, target="cuda")
    assert (found.action, found.replicates) == ("confirm", 1)  # seven of eight
    more = case(0.0, noise=0.4, confirm=1, seed=6)["replicates"][1] | {"replicate": 9, "session": "again"}
    built["replicates"].append(more)
    assert rules.next_step(built, CONFIG, target="cuda").action == "done"


def test_pairs_cannot_be_disturbed_away_without_end():
    built = case()
    for seed in range(20):
        top_up(built, 0, 8, seed=seed)
    disturb(built, 0, 160)
    assert "the rules ask for" in verdict_on({"a": built, **STILL})["cases"]["a"]["reason"]


def test_a_case_is_screened_once():
    slow, kind = case(0.02, seed=3), case(-0.02, seed=4)["replicates"][0]
    slow["replicates"].append(kind | {"replicate": 1, "session": "screen-1"})  # together they look still
    found = verdict_on({"a": slow, **STILL})["cases"]["a"]
    assert found["verdict"] == "inconclusive"
    assert "screened more than once" in found["reason"]


def test_a_disturbance_is_words():
    samples = document({"a": disturb(case(), 0, 1, "<b>@all</b>")})
    with pytest.raises(files.UsageError, match="/pairs/0/disturbed"):
        files.check_samples(samples)


# --- copies -----------------------------------------------------------------------------------------------------------


def test_a_copied_replicate_is_no_replicate():
    built = case(0.0, screen_effect=0.05, confirm=2)
    assert verdict_on({"a": built, **STILL})["exit_code"] == 0
    built["replicates"][2]["pairs"] = copy.deepcopy(built["replicates"][1]["pairs"])
    entry = verdict_on({"a": built, **STILL})["cases"]["a"]
    assert (entry["verdict"], "is a copy" in entry["reason"]) == ("inconclusive", True)


# --- roofline ---------------------------------------------------------------------------------------------------------


def test_times_that_the_chip_cannot_reach_are_refused():
    # 100 µs. The H200's FP8 peak at 1.98 GHz is 2.14e15 operations a second, so 2.14e11 take it that long.
    for flops, verdict in ((2.0e11, "pass"), (2.3e11, "inconclusive")):
        entry = verdict_on({"a": case() | {"work": {"flops": flops}}, **STILL}, environment=H200)["cases"]["a"]
        assert entry["verdict"] == verdict
    assert "the base's times are impossible: 100 µs for work that takes this chip at least 107" in entry["reason"]
    unknown = {"fingerprint": "f" * 64, "device": {"name": "NVIDIA H300"}}
    assert verdict_on({"a": case() | {"work": {"flops": 1e15}}, **STILL}, environment=unknown)["exit_code"] == 0


def test_a_head_that_does_not_run_is_no_improvement():
    built = case(-0.99, confirm=2, noise=1e-4) | {"work": {"flops": 1e10}}
    assert verdict_on({"a": built, **STILL})["cases"]["a"]["verdict"] == "improved"
    entry = verdict_on({"a": built, **STILL}, environment=H200)["cases"]["a"]
    assert (entry["verdict"], "the head's times are impossible" in entry["reason"]) == ("inconclusive", True)


@pytest.mark.parametrize(
    ("name", "teraflops", "terabytes", "cache"),  # as AMD states them; of the MI250X for both of its devices
    [
        ("MI300X", 2614.9, 5.325, 288),
        ("MI300X VF", 2614.9, 5.325, 288),
        ("MI325X", 2614.9, 6, 288),
        ("MI250X", 383 / 2, 3.277 / 2, 8),
        ("MI250X / MI250", 383 / 2, 3.277 / 2, 8),
    ],
)
def test_the_peaks_are_those_that_amd_states(name, teraflops, terabytes, cache):
    device = {"device": {"name": f"AMD Instinct {name}"}}
    assert roofline.floor({"flops": teraflops * 1e12}, device) == pytest.approx(1.0, rel=1e-3)
    assert roofline.floor({"bytes": terabytes * 1e12 + cache * 2**20}, device) == pytest.approx(1.0, rel=1e-3)


@pytest.mark.parametrize("name", ["MI300X HF", "MI308X", "MI300A", "MI210", "MI355X"])
def test_a_device_whose_figures_are_not_known_has_no_floor(name):
    assert roofline.floor({"flops": 1e18, "bytes": 1e18}, {"device": {"name": f"AMD Instinct {name}"}}) == 0.0


def test_floors_by_hand():
    mib = 2**20
    assert roofline.floor({"flops": 1.0, "bytes": 60 * mib}, H200) == pytest.approx(1 / (132 * 8192 * 1.98e9))
    assert roofline.floor({"bytes": 60 * mib + 4.8e9}, H200) == pytest.approx(1e-3)
    assert roofline.floor(None, H200) == 0.0
    assert roofline.floor({"flops": 1e15}, {"device": {"name": None}}) == 0.0
    assert roofline.floor({"flops": 1e15}, {"device": "AMD Instinct MI300X"}) == 0.0
    mi300x = {"device": {"name": "AMD Instinct MI300X VF"}}
    assert roofline.floor({"flops": 2614.9e12}, mi300x) == pytest.approx(1.0, rel=1e-3)  # the data sheet's FP8 rate


def test_no_time_measured_on_an_h200_is_refused(request):
    """Of the example run, whose cases say in their names what they compute."""
    from benchmarks.workloads import workload

    samples = files.load_samples(request.config.rootpath / "docs" / "examples" / "h200-gate" / "samples.json")
    before = judge.judge(samples)["counts"]
    for built in samples["cases"].values():
        work = workload(built["params"][0].strip("'"))
        built["work"] = {"flops": float(work.flops), "bytes": float(work.bytes)}
    files.check_samples(samples)
    assert judge.judge(samples)["counts"] == before


# --- modes ------------------------------------------------------------------------------------------------------------


def test_a_case_that_alternates_is_named_and_judged_as_before():
    built = case(0.0, noise=0.001, screen_effect=0.05, confirm=2)
    for replicate in built["replicates"]:
        for pair in replicate["pairs"][::2]:
            pair["head"] = [1.06 * t for t in pair["head"]]
    entry = verdict_on({"a": built, **STILL})["cases"]["a"]
    assert entry["modes"]["turns"] == pytest.approx(0.06, abs=0.005)
    assert entry["verdict"] == "inconclusive"
    assert "modes" not in verdict_on({"a": case(confirm=2), **STILL})["cases"]["a"]


def test_processes_in_two_modes_are_named():
    built = case(0.0, noise=0.001, confirm=8)
    for replicate in built["replicates"][::2]:
        for pair in replicate["pairs"]:
            pair["head"] = [1.04 * t for t in pair["head"]]
    entry = verdict_on({"a": built, **STILL})["cases"]["a"]
    assert entry["modes"] == {"processes": pytest.approx(0.04, abs=0.005)}


# --- cases that do not gate -------------------------------------------------------------------------------------------


def test_of_a_case_that_does_not_gate_only_a_plain_slowdown_is_confirmed():
    blind = rules.Terms(CONFIG, gating=False)

    def step(built):
        return rules.next_step(built, blind, target="cuda").action

    assert step(case(screen=False)) == "screen"
    assert step(case(0.02, seconds=8e-6, noise=0.01)) == "done"
    assert step(case(0.3, seconds=8e-6, noise=0.01)) == "confirm"
    assert step(case(-0.3, seconds=8e-6, noise=0.01)) == "done"
    assert step(case(0.3, seconds=8e-6, noise=0.01, confirm=2)) == "done"
    assert step(case(0.0, screen_effect=0.3, seconds=8e-6, noise=0.4, confirm=2)) == "done"


# --- what only the head has, and what there was no time for -----------------------------------------------------------


def only_at_the_head(seconds):
    built = case(base=side(None, status="missing"), screen=False)
    return built | {"alone": {"session": "screen-0", "turns": [[seconds] * 3] * 8}}


def test_a_new_case_shows_its_time_and_does_not_gate():
    verdict = verdict_on({"new": only_at_the_head(1e-4), **STILL})
    entry = verdict["cases"]["new"]
    assert (entry["verdict"], entry["head_seconds"], entry["ratio"]) == ("new", 1e-4, None)
    assert "- new: `new`: 100 µs, the base does not have it" in report.render(verdict)
    assert verdict["exit_code"] == 0
    assert verdict_on({"new": only_at_the_head(1e-4)})["exit_code"] == 4  # alone it gates nothing
    impossible = only_at_the_head(1e-4) | {"work": {"flops": 1e12}}
    assert verdict_on({"new": impossible, **STILL}, environment=H200)["cases"]["new"]["verdict"] == "inconclusive"


@pytest.mark.parametrize(
    "built",
    [case(screen=False), case(0.05), case(0.05, confirm=1), case(0.0, noise=0.4, confirm=2, seed=5)],
    ids=["not screened", "suspicious", "half confirmed", "noisy"],
)
def test_what_there_was_no_time_for_is_named_and_can_be_continued(built):
    verdict = verdict_on({"a": built | {"stopped": "budget"}, "b": case(), **STILL})
    assert verdict["cases"]["a"]["verdict"] == "inconclusive"
    assert "the time budget ran out" in verdict["cases"]["a"]["reason"]
    assert (verdict["exit_code"], verdict["out_of_time"]) == (4, 1)
    assert "1 case of 3 could not be decided, 1 because the time budget ran out" in verdict["reason"]
    assert "--budget" in verdict["next"]["advice"]
    assert "--fresh" not in verdict["next"]["command"]


def test_what_was_decided_in_time_is_decided():
    verdict = verdict_on(
        {"a": case() | {"stopped": "budget"}, "b": case(0.05, confirm=2) | {"stopped": "budget"}, **STILL}
    )
    assert [verdict["cases"][name]["verdict"] for name in "ab"] == ["pass", "regressed"]
    assert verdict["out_of_time"] == 0


# --- what is timed ----------------------------------------------------------------------------------------------------


SECONDS = st.floats(1e-6, 1)


@given(st.lists(st.tuples(SECONDS, SECONDS, st.floats(1, 1e3)), min_size=3, max_size=20))
def test_on_the_cpu_neighbouring_launches_are_compared_and_elsewhere_medians(launches):
    base, head, slower = (np.array(of) for of in zip(*launches, strict=True))
    pairs = [{"base": base.tolist(), "head": head.tolist()}]
    ours, theirs = (of[0] for of in of_turns(pairs, "cuda"))
    assert (ours, theirs) == (pytest.approx(np.median(base)), pytest.approx(np.median(head)))
    ratio = np.median(np.log(head / base))
    ours, theirs = (of[0] for of in of_turns(pairs, "cpu"))
    assert np.log(theirs / ours) == pytest.approx(ratio, abs=1e-9)
    assert ours * theirs == pytest.approx(np.median(base) * np.median(head))
    # Whatever slows two neighbours alike is no difference between them.
    ours, theirs = (of[0] for of in of_turns([{"base": base * slower, "head": head * slower}], "cpu"))
    assert np.log(theirs / ours) == pytest.approx(ratio, abs=1e-9)


def test_what_is_judged_are_neighbours_on_the_cpu_and_medians_elsewhere():
    built = case(seed=3)
    for replicate in built["replicates"]:
        for pair in replicate["pairs"]:
            pair |= {"base": [1.0, 2.0, 9.0], "head": [2.0, 9.0, 1.0]}
    for target, ratio in (("cpu", math.log(2)), ("cuda", 0.0)):
        for replicate in (found := measured(built, CONFIG, target)).screen:
            assert replicate.ratios == pytest.approx(ratio)
        assert math.log(found.head_seconds / found.base_seconds) == pytest.approx(ratio)


def test_recorded_launches_and_calls_have_a_bias_of_their_own():
    built = case(seed=3)
    alone = measured(built, CONFIG, "cuda")
    assert alone.bias == pytest.approx(CONFIG.bias["cuda"].at(alone.base_seconds))
    for replicate in built["replicates"]:
        replicate["recorded"] = 32
    assert measured(built, CONFIG, "cuda").bias == pytest.approx(CONFIG.bias["recorded"].at(alone.base_seconds))
    assert measured(built, CONFIG, "cpu").bias == CONFIG.bias["cpu"].at(alone.base_seconds)  # there are no recordings
    del built["replicates"][0]["recorded"]
    assert measured(built, CONFIG, "cuda").bias == alone.bias  # one that was not recorded is enough
    built["benchmark"] = "calls.Attention.call_attention"
    assert measured(built, CONFIG, "cuda").bias == pytest.approx(CONFIG.bias["call"].at(alone.base_seconds))


# --- the noise of the machine -----------------------------------------------------------------------------------------


def profile(**cases):
    """A profile in which `cases` have the given upper bound of their bias."""
    known = {
        "version": "1",
        "turn": {
            "min_launches": CONFIG.min_launches,
            "max_launches": CONFIG.max_launches,
            "turn_seconds": CONFIG.turn_seconds,
        },
        "seconds": 1e-4,
        "replicates": 10,
        "pairs": 240,
        "pair_noise": 0.003,
        "bias": 0.0,
        "modes": None,
    }
    found = {name: {**known, "bias_high": bias} for name, bias in cases.items()}
    return {"noise_profile": {"created": "2026-01-01T00:00:00Z", "digest": "ab" * 32, "device": "a<b>", "cases": found}}


def test_a_profile_replaces_the_bias_that_is_expected():
    built = case(0.0, seconds=8e-6, noise=0.001, screen_effect=0.02, confirm=2)
    assert verdict_on({"a": built, **STILL})["cases"]["a"]["verdict"] == "inconclusive"
    verdict = verdict_on({"a": built, **STILL}, **profile(a=0.001, elsewhere=0.1))
    assert verdict["cases"]["a"]["verdict"] == "pass"
    cited = {"created": "2026-01-01T00:00:00Z", "device": "a<b>", "digest": "ab" * 32, "calibrated": 1}
    assert verdict["noise_profile"] == cited
    text = report.render(verdict)
    assert "Noise: calibrated 2026-01-01, profile abababab, 1 cases, on `a<b>`." in text
    assert "not calibrated" in report.render(verdict_on({"a": built, **STILL}))


def test_a_case_whose_noise_cannot_support_the_promise_is_listed_and_does_not_gate():
    verdict = verdict_on({"a": case(0.01), "b": case(seed=3), **STILL}, **profile(a=0.05))
    assert verdict["cases"]["a"]["verdict"] == "not-gating"
    assert (verdict["exit_code"], verdict["counts"]["not-gating"]) == (0, 1)
    assert "(1 not gating)" in verdict["reason"]
    assert "- 1 case not gating: the noise of this machine cannot support a promise of 3 %." in report.render(verdict)


@pytest.mark.parametrize("others", [{}, STILL])
def test_a_run_in_which_nothing_gates_says_nothing(others):
    verdict = verdict_on({"a": case(0.01), **others}, **profile(a=0.05))
    assert (
        verdict["exit_code"],
        "nothing was measured that counts: 1 case not gating" in verdict["reason"].lower(),
    ) == (4, True)


def test_a_slowdown_that_is_plain_in_spite_of_the_noise_is_red():
    verdict = verdict_on({"a": case(0.5, confirm=2), "b": case(0.5), **STILL}, **profile(a=0.05, b=0.05))
    assert verdict["cases"]["a"]["verdict"] == "regressed"
    assert verdict["cases"]["b"]["verdict"] == "inconclusive"  # to be confirmed


def test_noise_of_another_version_or_other_turns_says_nothing():
    for change in ({"version": "2"}, {"turn": {"min_launches": 9, "max_launches": 30, "turn_seconds": 0.003}}):
        optional = profile(a=0.05)
        optional["noise_profile"]["cases"]["a"] |= change
        verdict = verdict_on({"a": case(), **STILL}, **optional)
        assert (verdict["cases"]["a"]["verdict"], verdict["noise_profile"]["calibrated"]) == ("pass", 0)


def test_a_run_that_scatters_more_than_its_model_is_judged_with_more_care():
    def scattered(size):
        cases = {}
        for i in range(8):
            cases[f"c{i}"] = case(0.0, noise=0.0005, screen_effect=0.02, confirm=2, seed=i)
            for r, sign in ((1, -1), (2, 1)):
                for pair in cases[f"c{i}"]["replicates"][r]["pairs"]:
                    pair["head"] = [t * (1 + sign * size) for t in pair["head"]]
        return cases

    slow = {"slow": case(0.022, noise=0.0005, confirm=2, seed=30)}
    calm = verdict_on({**scattered(0.0), **slow, **STILL})
    assert (calm["bias_scale"], calm["cases"]["slow"]["verdict"]) == (1.0, "regressed")
    wild = verdict_on({**scattered(0.01), **slow, **STILL})
    assert wild["bias_scale"] > 2
    assert wild["cases"]["slow"]["verdict"] == "inconclusive"
    assert f"scatter {wild['bias_scale']:.1f} times as much as expected" in report.render(wild)


def test_a_profile_in_the_samples_is_checked():
    optional = profile(a=0.001)
    optional["noise_profile"]["cases"]["a"]["bias_high"] = -1
    with pytest.raises(files.UsageError, match="bias_high"):
        files.check_samples(document({"a": case()}, **optional))


def test_who_does_not_believe_the_thresholds_does_not_believe_the_noise():
    samples = document({"a": case(0.05, confirm=2), "b": case(seed=3), **STILL}, **profile(a=0.09))
    assert judge.judge(samples)["exit_code"] == 0  # as if nobody could tell
    assert judge.judge(samples, CONFIG)["exit_code"] == 1


def test_the_command_takes_a_profile_from_a_file(tmp_path, capsys):
    environment = {**H200, "target": "cuda", "machine": {"id": "x"}, "versions": {}}
    files.write_json(tmp_path / "s.json", document({"a": case(0.05, confirm=2), **STILL}, environment=environment))
    known = profile(a=0.09)["noise_profile"]["cases"]["a"] | {"needs": None}
    described = {"schema": "tilegate-noise/1", "created": "2025-12-30T00:00:00+00:00", "cases": {"a": known}}
    for name, machine in (("own", environment), ("other", {**environment, "fingerprint": "0" * 64})):
        files.write_json(tmp_path / f"{name}.json", {**described, "environment": machine})

    def status(*options):
        return cli.main(["judge", str(tmp_path / "s.json"), *map(str, options)])

    assert status() == 1
    assert status("--noise-profile", tmp_path / "own.json") == 4  # nothing gates
    assert status("--noise-profile", tmp_path / "other.json") == 2
    assert "is of another machine" in capsys.readouterr().err
