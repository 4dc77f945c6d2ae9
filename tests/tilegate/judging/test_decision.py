"""The rules of one case, on simulated noise and on noise measured on an H200 (tests/data/h200_pair_noise.json)."""

import dataclasses
import math
from collections import Counter

import numpy as np
import pytest
from gate_simulation import CONFIG, rates, traces
from hypothesis import given, settings
from hypothesis import strategies as st

from tilegate.judging import decision, stats
from tilegate.judging.decision import Outcome, Replicate

REAL = traces()
LONG = [t for t in REAL if t.seconds > 20e-6]


def replicate(effect, rng, *, pairs=16, noise=0.003, bias=0.0):
    ratios = rng.normal(math.log1p(effect) + rng.normal(0, bias), noise, pairs)
    return Replicate(ratios, tuple(i % 2 == 1 for i in range(pairs)))


def concluded(replicates, bias=0.001, config=CONFIG):
    evidence = decision.weigh_confirmation(replicates, config, bias)
    return decision.outcome_of(evidence, config, evidence.p_slower, evidence.p_faster)


# --- real noise -------------------------------------------------------------------------------------------------------


def test_the_excerpt_is_what_it_says():
    assert len(REAL) == 16
    assert all(len(t.replicates) >= 5 and len(r.ratios) >= 24 for t in REAL for r in t.replicates)
    assert {o for t in REAL for r in t.replicates for o in r.head_first} == {True, False}


def total(known, effect, runs, seed):
    counted = Counter()
    rng = np.random.default_rng(seed)
    for trace in known:
        counted += rates(trace, effect, runs, rng)[0]
    return counted


def test_real_noise_raises_no_alarm():
    verdicts = total(REAL, 0.0, 25, seed=1)
    assert verdicts["regressed"] == verdicts["improved"] == 0
    assert total(LONG, 0.0, 15, seed=2)["pass"] == 15 * len(LONG)


def test_three_percent_is_found_in_real_noise():
    verdicts = total(LONG, 0.03, 20, seed=3)
    assert verdicts["regressed"] >= 0.99 * verdicts.total()
    assert total(LONG, -0.03, 10, seed=4)["improved"] >= 0.99 * 10 * len(LONG)


def test_three_percent_never_passes_where_the_bias_is_too_large_to_tell():
    short = [t for t in REAL if t.seconds <= 20e-6]
    assert len(short) == 2
    verdicts = total(short, 0.03, 40, seed=5)
    assert verdicts["pass"] + verdicts["warning"] <= 1
    assert verdicts["inconclusive"] > 0


def test_two_percent_is_at_least_a_warning():
    verdicts = total(LONG, 0.02, 10, seed=6)
    assert verdicts["pass"] <= 0.05 * verdicts.total()


def test_the_model_covers_the_bias_that_was_measured():
    for trace in REAL:
        estimates = [stats.hodges_lehmann(r.ratios) for r in trace.replicates]
        errors = [stats.standard_error(r.ratios) for r in trace.replicates]
        measured = math.sqrt(stats.between_variance(estimates, errors))
        # 10 (or 5) replicates know a standard deviation to about 25 (40) %.
        assert measured <= 1.7 * CONFIG.bias["cuda"].at(trace.seconds), trace.name


# --- error rates ------------------------------------------------------------------------------------------------------


def test_looking_again_does_not_raise_false_alarms():
    """The least favourable case: slower by exactly `tolerated`, and whoever measures stops at the first rejection."""
    rng = np.random.default_rng(8)
    runs, level, alarms = 800, 0.06, 0
    for _ in range(runs):
        replicates = []
        for look in range(CONFIG.looks()):
            while len(replicates) < CONFIG.replicates * 2**look:
                replicates.append(replicate(CONFIG.tolerated, rng))
            if decision.weigh_confirmation(replicates, CONFIG, 0.0).p_slower <= level:
                alarms += 1
                break
    assert alarms / runs <= level + 2 * math.sqrt(level / runs)


def test_a_slowdown_of_what_is_promised_hardly_ever_passes():
    """In the worst noise for that: so large that only the interval, not the estimate, stands in the way."""
    rng = np.random.default_rng(9)
    for noise in (0.01, 0.03, 0.06):
        passed = 0
        for _ in range(150):
            screen, confirmation = [], []
            while (step := decision.next_step(screen, confirmation, CONFIG, 0.001)).action != "done":
                into = screen if step.action == "screen" else confirmation
                into += [replicate(CONFIG.promise, rng, pairs=step.pairs, noise=noise) for _ in range(step.replicates)]
            found = concluded(confirmation) if confirmation else Outcome.FAST_ENOUGH
            passed += found in (Outcome.FAST_ENOUGH, Outcome.WARNING)
        # At most 2 % by construction (1 % a stage); 3 of 150, and three standard deviations more.
        assert passed <= 8, noise


def test_two_biased_replicates_that_agree_are_held_back_by_the_model():
    rng = np.random.default_rng(10)
    both_off = [replicate(0.025, rng, noise=0.001) for _ in range(2)]
    assert concluded(both_off, bias=0.001) is Outcome.SLOWER
    assert concluded(both_off, bias=0.02) is Outcome.UNDECIDED


def test_replicates_that_disagree_count_as_biased_whatever_the_model_says():
    rng = np.random.default_rng(12)
    apart = [replicate(0.0, rng, noise=0.001), replicate(0.06, rng, noise=0.001)]
    evidence = decision.weigh_confirmation(apart, CONFIG, 0.0)
    assert evidence.bias == pytest.approx(0.06 / math.sqrt(2), rel=0.1)
    assert concluded(apart, bias=0.0) is Outcome.UNDECIDED


@pytest.mark.parametrize(("effects", "expected"), [((0.03,) * 2, True), ((0.05, 0.011), False)])
def test_each_of_two_replicates_must_agree(effects, expected):
    assert decision._agree([math.log1p(e) for e in effects], CONFIG) is expected


def test_a_dissenting_replicate_stops_a_regression_that_everything_else_supports():
    rng = np.random.default_rng(14)
    evidence = decision.weigh_confirmation([replicate(0.03, rng, noise=0.001) for _ in range(2)], CONFIG, 0.001)
    assert decision.outcome_of(evidence, CONFIG, evidence.p_slower, 1.0) is Outcome.SLOWER
    dissent = dataclasses.replace(evidence, estimates=(0.05, 0.011))
    assert decision.outcome_of(dissent, CONFIG, evidence.p_slower, 1.0) is not Outcome.SLOWER


def test_pairs_that_scatter_around_no_change_cannot_exclude_a_slowdown():
    scattered = Replicate(np.array([-0.06, 0.06, -0.05, 0.05, -0.04, 0.04, -0.03, 0.03]), (True, False) * 4)
    evidence = decision.weigh_screen([scattered], CONFIG, 0.001)
    assert evidence.interval.estimate == 0
    assert decision.next_step([scattered], [], CONFIG, 0.001).action == "confirm"


def test_one_of_four_replicates_may_dissent():
    assert decision._agree([0.03, 0.03, 0.03, 0.0], CONFIG)
    assert not decision._agree([0.03, 0.03, 0.0, 0.0], CONFIG)


# The larger noise: 2 replicates of 16 pairs know the effect to 0.05 / sqrt(32) = 0.9 %, and what they find tolerable
# is not measured again, so 1 % + 2.1 x 0.9 % is what is found for certain.
@pytest.mark.parametrize(("noise", "expected"), [(0.02, 0.022), (0.05, 0.029)])
def test_the_smallest_detectable_effect_is_detected_as_often_as_it_claims(noise, expected):
    rng = np.random.default_rng(13)
    bias = 0.002
    evidence = decision.weigh_confirmation([replicate(0.0, rng, noise=noise, pairs=60) for _ in range(8)], CONFIG, bias)
    effect = math.expm1(decision.smallest_detectable_effect(evidence, CONFIG, 1))
    assert effect == pytest.approx(expected, abs=0.0025)
    called = 0
    for _ in range(120):
        screen, confirmation = [], []
        while (step := decision.next_step(screen, confirmation, CONFIG, bias)).action != "done":
            into = screen if step.action == "screen" else confirmation
            into += [replicate(effect, rng, pairs=step.pairs, noise=noise, bias=bias) for _ in range(step.replicates)]
        called += bool(confirmation) and concluded(confirmation, bias) is Outcome.SLOWER
    assert called >= 120 * CONFIG.power - 3 * math.sqrt(120 * 0.05)


# --- symmetry and steps -----------------------------------------------------------------------------------------------

MIRROR = {Outcome.SLOWER: Outcome.FASTER, Outcome.FASTER: Outcome.SLOWER}


@given(st.integers(0, 10_000), st.sampled_from([-0.1, -0.03, -0.015, 0.015, 0.03, 0.1]), st.sampled_from([0.001, 0.02]))
@settings(max_examples=60, deadline=None)
def test_faster_is_the_mirror_of_slower(seed, effect, noise):
    rng = np.random.default_rng(seed)
    replicates = [replicate(effect, rng, noise=noise) for _ in range(2)]
    mirrored = [Replicate(-r.ratios, r.head_first) for r in replicates]
    there, back = concluded(replicates), concluded(mirrored)
    if there in MIRROR or back in MIRROR:
        assert back is MIRROR.get(there)
    a, b = (decision.weigh_confirmation(r, CONFIG, 0.001) for r in (replicates, mirrored))
    assert (a.p_slower, a.p_faster) == pytest.approx((b.p_faster, b.p_slower))
    assert a.interval.high == pytest.approx(-b.interval.low)


@given(st.integers(0, 10_000), st.floats(-0.06, 0.06), st.floats(1e-4, 0.2))
@settings(max_examples=60, deadline=None)
def test_measuring_ends_and_screen_pairs_are_never_confirmation(seed, effect, noise):
    rng = np.random.default_rng(seed)
    screen, confirmation, asked = [], [], 0
    while (step := decision.next_step(screen, confirmation, CONFIG, 0.001)).action != "done":
        asked += 1
        assert asked <= 1 + CONFIG.looks()
        assert (step.action == "screen") == (not screen)
        into = screen if step.action == "screen" else confirmation
        into += [replicate(effect, rng, pairs=step.pairs, noise=noise) for _ in range(step.replicates)]
    assert len(screen) == 1
    assert len(confirmation) in (0, 2, 4, 8)
    if not confirmation:
        assert decision.weigh_screen(screen, CONFIG, 0.001).interval.high < math.log1p(CONFIG.promise)


def test_always_the_same_order_is_suspicious():
    rng = np.random.default_rng(0)
    screened = replicate(0.0, rng, pairs=8, noise=0.0005)
    assert decision.next_step([screened], [], CONFIG, 0.001).action == "done"
    same_order = Replicate(screened.ratios, (True,) * 8)
    assert decision.next_step([same_order], [], CONFIG, 0.001).action == "confirm"


def test_more_suspects_need_more_evidence():
    rng = np.random.default_rng(21)
    confirmation = [replicate(0.024, rng, noise=0.014) for _ in range(2)]
    screen = [replicate(0.024, rng, pairs=8)]
    alone = decision.next_step(screen, confirmation, CONFIG, 0.001, suspects=1)
    among_many = decision.next_step(screen, confirmation, CONFIG, 0.001, suspects=10_000)
    assert (alone.action, among_many.action) == ("done", "confirm")


# --- errors are what they are said to be ------------------------------------------------------------------------------


@pytest.mark.parametrize("counts", [(16, 16), (16, 16, 64, 64), (64, 8, 8, 8)])
def test_the_error_of_unequal_replicates_is_that_of_their_effective_number(counts):
    rng = np.random.default_rng(30)
    bias, noise = 0.005, 0.02  # replicates get more pairs only where the noise of pairs rules
    standardised = []
    for _ in range(500):
        found = decision.weigh_confirmation(
            [replicate(0.0, rng, pairs=n, noise=noise, bias=bias) for n in counts], CONFIG, bias
        )
        known = math.hypot(1.02 * noise / math.sqrt(sum(counts)), found.bias_error * bias / found.bias)
        standardised.append(found.interval.estimate / known)
    # Known to 3.2 %; with the number of replicates instead, 16 + 16 + 64 + 64 gave 1.14.
    assert np.std(standardised) == pytest.approx(1.0, abs=0.08)


def test_the_smallest_detectable_effect_knows_that_replicates_of_few_pairs_count_less():
    rng = np.random.default_rng(31)
    found = decision.weigh_confirmation([replicate(0.0, rng) for _ in range(2)], CONFIG, 0.001)
    noisy = dataclasses.replace(found, pair_error=0.01, bias=0.012, bias_error=0.012 / math.sqrt(2))
    # After 2 replicates of 16 pairs and 6 of 64: 416 pairs, and biases as of 6.6 replicates.
    error = math.sqrt(0.01**2 * 32 / 416 + 0.012**2 * (2 * 16**2 + 6 * 64**2) / 416**2)
    among = 10_000  # suspects, so that it is the proof that asks for most
    expected = stats.smallest_detectable_effect(
        error, tail=CONFIG.alpha / (3 * among), power=1 - 0.05 / 3, null=math.log(1.01), least=math.log(1.018)
    )
    assert decision.smallest_detectable_effect(noisy, CONFIG, among) == pytest.approx(expected)


def test_the_p_value_of_an_error_from_few_pairs_is_a_students():
    """No bias at all: what rejects "not slower at all" at 1 % in eight pairs is right 1 % of the time."""
    rng = np.random.default_rng(32)
    found = [decision.weigh_screen([replicate(0.0, rng, pairs=8)], CONFIG, 1e-4) for _ in range(4000)]
    assert 5 < np.median([e.freedom for e in found]) < 6
    assert np.mean([e.p_different <= 0.01 for e in found]) <= 0.01 + 3 * math.sqrt(0.01 / 4000)
    known = decision.weigh_screen([replicate(0.0, rng, pairs=8, noise=1e-6)], CONFIG, 0.01)
    assert known.freedom > 1000  # bias is all of it, and the model knows it
