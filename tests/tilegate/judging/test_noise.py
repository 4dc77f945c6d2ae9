"""What a noise profile says: planted noise is found again, and a profile of anything else than this machine is refused."""

import dataclasses
import datetime
import json
import math

import numpy as np
import pytest

from tilegate import files
from tilegate.config import Bias, GateConfig
from tilegate.files import UsageError
from tilegate.judging import decision, noise, noise_file
from tilegate.judging.decision import Outcome, Replicate
from tilegate.judging.noise import CaseNoise, Needs, Turn

CONFIG = GateConfig(package="mykernels", suite="benchmarks")
TODAY = datetime.date(2026, 11, 29)
ENVIRONMENT = {
    "target": "cuda",
    "machine": {"id": "0123456789ab", "architecture": "x86_64", "kernel": "6.1"},
    "device": {"name": "NVIDIA H200", "driver": "580.159"},
    "versions": {"torch": "2.11", "tilegate": "0.1.0"},
    "fingerprint": "a" * 64,
}


def measured(rng, *, replicates=8, pairs=24, pair_noise=0.004, bias=0.0, seconds=1e-4, shift=0.0):
    """Median seconds of the turns of both sides, as calibration measures them."""
    base = [np.full(pairs, seconds) * np.exp(rng.normal(0, 0.02, pairs)) for _ in range(replicates)]
    head = [b * np.exp(shift + rng.normal(0, bias) + rng.normal(0, pair_noise, pairs)) for b in base]
    return base, head


def estimated(rng, **planted):
    return noise.estimate(*measured(rng, **planted), version="1", config=CONFIG)


def case(**values):
    known = dict(version="1", turn=Turn.of(CONFIG), seconds=1e-4, replicates=8, pairs=192, pair_noise=0.003)
    return CaseNoise(**{**known, "bias": 0.0005, "bias_high": 0.001, "modes": None, **values})


def test_planted_noise_is_found_again():
    rng = np.random.default_rng(1)
    found = [estimated(rng, pair_noise=0.004, bias=0.006) for _ in range(200)]
    assert np.sqrt(np.mean([f.bias**2 for f in found])) == pytest.approx(0.006, rel=0.1)
    assert np.mean([f.pair_noise for f in found]) == pytest.approx(0.004, rel=0.1)
    assert found[0].seconds == pytest.approx(1e-4, rel=0.02)
    assert (found[0].replicates, found[0].pairs) == (8, 192)


@pytest.mark.parametrize("bias", [0.002, 0.02])
def test_the_upper_bound_holds_as_often_as_it_says(bias):
    rng = np.random.default_rng(2)
    held = np.mean([estimated(rng, bias=bias).bias_high >= bias for _ in range(400)])
    assert held >= 0.9 - 3 * math.sqrt(0.9 * 0.1 / 400)


def test_an_advantage_of_one_side_counts_as_bias():
    assert estimated(np.random.default_rng(3), shift=0.01).bias == pytest.approx(0.01, rel=0.15)


def test_no_bias_is_told_from_less_than_the_pairs_can_show():
    rng = np.random.default_rng(4)
    found = [estimated(rng, bias=0.0, pair_noise=0.01) for _ in range(100)]
    assert min(f.bias_high for f in found) >= 0.25 * 0.01 / math.sqrt(24)
    assert np.median([f.bias for f in found]) < 0.002


def test_two_modes_are_named():
    rng = np.random.default_rng(5)
    base, head = measured(rng, pair_noise=0.001)
    head = [h * np.where(rng.random(len(h)) < 0.5, 1.05, 1.0) for h in head]
    found = noise.estimate(base, head, version="1", config=CONFIG)
    assert found.modes == pytest.approx(math.log(1.05), rel=0.1)
    assert estimated(rng).modes is None


def test_too_few_replicates_say_nothing():
    with pytest.raises(ValueError, match="at least 5"):
        estimated(np.random.default_rng(6), replicates=4)


def test_quiet_cases_need_little_and_noisy_ones_more_and_some_cannot_be_gated():
    assert noise.needs(case(), CONFIG) == Needs(8, 2, 16)
    biased = noise.needs(case(bias_high=0.006), CONFIG)
    assert biased.replicates > 2
    noisy = noise.needs(case(pair_noise=0.03), CONFIG)
    assert noisy.replicates * noisy.pairs > 32
    assert noise.needs(case(bias_high=0.03), CONFIG) is None
    assert noise.needs(case(pair_noise=0.3), CONFIG) is None


def test_what_a_case_needs_does_settle_it():
    """The numbers that `needs` gives, put to the gate's rules: +3 % is red, no change passes, most at the first look."""
    rng = np.random.default_rng(7)
    for planted in (case(), case(pair_noise=0.02, bias_high=0.002), case(bias_high=0.005)):
        config, gating = noise.tuned(CONFIG, planted)
        assert gating
        expected = {0.03: {Outcome.SLOWER}, 0.0: {Outcome.FAST_ENOUGH, Outcome.WARNING}}
        for effect, findings in expected.items():
            right = first = 0
            for _ in range(100):
                replicates = confirmed(planted, config, effect, rng)
                evidence = decision.weigh_confirmation(replicates, config, planted.bias_high)
                p_slower, p_faster = (noise._SUSPECTS * p for p in (evidence.p_slower, evidence.p_faster))
                right += decision.outcome_of(evidence, config, p_slower, p_faster) in findings
                first += len(replicates) == config.replicates
            assert right >= 95 - 3 * math.sqrt(100 * 0.95 * 0.05)
            assert first >= 60


def confirmed(planted, config, effect, rng):
    """Measure a suspect until the rules have had enough."""
    screen, replicates = (Replicate(np.full(8, 0.02), (True, False) * 4),), []
    while (
        step := decision.next_step(screen, replicates, config, planted.bias_high, suspects=noise._SUSPECTS)
    ).action == "confirm":
        for _ in range(step.replicates):
            centre = math.log1p(effect) + rng.normal(0, planted.bias_high)
            replicates.append(
                Replicate(rng.normal(centre, planted.pair_noise, step.pairs), (True, False) * (step.pairs // 2))
            )
    return replicates


def test_tuning_replaces_every_bias_and_only_what_it_says():
    config, gating = noise.tuned(CONFIG, case(bias_high=0.006))
    assert gating
    assert set(config.bias.values()) == {Bias(0.0, 0.006)}
    assert config.replicates > CONFIG.replicates
    assert dataclasses.replace(
        config,
        bias=CONFIG.bias,
        replicates=CONFIG.replicates,
        confirm_pairs=CONFIG.confirm_pairs,
        screen_pairs=CONFIG.screen_pairs,
    ) == dataclasses.replace(CONFIG)
    config, gating = noise.tuned(CONFIG, case(bias_high=0.05))
    assert not gating
    assert config.replicates == CONFIG.replicates


def test_replicates_that_scatter_more_than_the_model_scale_it():
    rng = np.random.default_rng(8)

    def confirmations(actual, count=20):
        drawn = [[rng.normal(rng.normal(0, actual), 0.002, 16) for _ in range(2)] for _ in range(count)]
        return [(replicates, 0.001) for replicates in drawn]

    assert np.mean([noise.bias_scale(confirmations(0.001)) for _ in range(50)]) < 1.1
    assert 2.5 < np.mean([noise.bias_scale(confirmations(0.005)) for _ in range(20)]) < 5
    assert noise.bias_scale([]) == noise.bias_scale([([np.zeros(16)], 0.001)]) == 1.0
    # One case alone carries nothing away, and a slowdown is no scatter.
    assert noise.bias_scale(confirmations(0.004, count=1)) < 3
    slow = [([r + 0.1 for r in replicates], bias) for replicates, bias in confirmations(0.0)]
    assert noise.bias_scale(slow) < 1.2


def test_the_share_of_the_layout_is_what_is_not_there_between_processes_laid_out_alike():
    drawn = {f"case{i}": case(bias=0.02 * scale) for i, scale in enumerate((1, 10))}
    assert noise.layout_share(drawn, {name: case(bias=0.0) for name in drawn}) == 1.0
    assert noise.layout_share(drawn, drawn) == 0.0
    assert noise.layout_share(drawn, {n: case(bias=c.bias / 2) for n, c in drawn.items()}) == pytest.approx(0.75)
    assert noise.layout_share(drawn, {n: case(bias=2 * c.bias) for n, c in drawn.items()}) == 0.0
    assert noise.layout_share(drawn, {}) is None


# --- files ------------------------------------------------------------------------------------------------------------


def text(**changed):
    document = noise_file.to_document(
        "2026-11-20T10:00:00+00:00",
        ENVIRONMENT,
        {"sums.Total.latency_total(1000)": case()},
        {"sums.Total.latency_total(1000)": Needs(8, 2, 16)},
        {"sums.Total.latency_total(1000)": case(bias=0.0)},
    )
    return json.dumps({**document, **changed})


def parse(content, environment=ENVIRONMENT, today=TODAY):
    return noise_file.parse(content, "noise.json", environment, today)


def test_a_profile_survives_its_file_and_the_samples():
    profile = parse(text())
    assert profile.cases == {"sums.Total.latency_total(1000)": case()}
    kept = json.loads(json.dumps(noise_file.to_samples(profile, list(profile.cases))))
    again = noise_file.from_samples(kept)
    assert (again.cases, again.digest, again.created) == (profile.cases, profile.digest, profile.created)
    schema = files.load_schema("samples-1.json")
    assert set(kept) == set(schema["properties"]["noise_profile"]["required"])


def test_only_the_same_work_measured_the_same_way_counts():
    profile = parse(text())
    name = "sums.Total.latency_total(1000)"
    assert profile.of(name, "1", CONFIG) == case()
    assert profile.of(name, "2", CONFIG) is None
    assert profile.of("another", "1", CONFIG) is None
    assert profile.of(name, "1", dataclasses.replace(CONFIG, turn_seconds=0.01)) is None


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        (
            {"fingerprint": "b" * 64, "device": {"name": "AMD Instinct MI300X", "driver": "6.2"}},
            "another machine.*MI300X",
        ),
        ({"fingerprint": "b" * 64, "versions": {"torch": "2.12", "tilegate": "0.1.0"}}, "versions torch.*2.11.*2.12"),
        ({"fingerprint": "b" * 64}, "another machine.*fingerprint"),
        ({"target": "hip"}, "target cuda there, hip here"),
    ],
)
def test_another_machine_is_refused_by_name(environment, said):
    with pytest.raises(UsageError, match=said):
        parse(text(), {**ENVIRONMENT, **environment})


def test_on_a_cpu_it_has_to_be_the_very_same_computer():
    here = {**ENVIRONMENT, "target": "cpu"}
    there = {**here, "machine": {**here["machine"], "id": "ba9876543210"}}
    assert parse(text(environment=here), here)
    with pytest.raises(UsageError, match="another computer"):
        parse(text(environment=there), here)


@pytest.mark.parametrize(
    ("today", "said"),
    [(datetime.date(2027, 3, 1), "101 days old"), (datetime.date(2026, 11, 1), "has the date 2026-11-20")],
)
def test_a_stale_profile_is_refused(today, said):
    with pytest.raises(UsageError, match=said):
        parse(text(), today=today)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        text()[:-40],
        text(schema="tilegate-noise/2"),
        text(created="yesterday"),
        text(created="2026-99-20T10:00:00+00:00"),
        text(cases={"x": {}}),
        text().replace("0.001", "-0.001"),
        text().replace("0.001", "NaN"),
        text(more=1),
    ],
)
def test_a_corrupt_profile_is_refused_with_what_to_do(content):
    with pytest.raises(UsageError, match=r"noise\.json cannot be used: .*tilegate calibrate"):
        parse(content)


def test_a_missing_profile_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"cannot read the noise profile .*tilegate calibrate"):
        noise_file.load(tmp_path / "none.json", ENVIRONMENT, TODAY)
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="cannot read the noise profile"):
        noise_file.load(tmp_path / "binary.json", ENVIRONMENT, TODAY)
