"""The statistics against brute force, scipy, hand-computed values and simulation."""

import itertools
import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from tilegate.judging import stats

# Multiples of 1/1024: exact in binary, so ties and symmetry are exact, too.
dyadic = st.integers(-200, 200).map(lambda k: k / 1024)
samples = st.lists(dyadic, min_size=1, max_size=10).map(np.array)
larger = st.lists(dyadic, min_size=3, max_size=30).map(np.array)


def brute_force_p(d, shift):
    x = d - shift
    ranks = scipy.stats.rankdata(np.abs(x))
    observed = ranks[x > 0].sum()
    movable = ranks[x != 0]
    sums = [
        sum(r for r, up in zip(movable, signs, strict=True) if up)
        for signs in itertools.product((0, 1), repeat=len(movable))
    ]
    return np.mean([s >= observed - 1e-9 for s in sums])


@given(samples)
def test_hodges_lehmann_is_the_median_of_all_pairwise_averages(d):
    averages = [(d[i] + d[j]) / 2 for i in range(len(d)) for j in range(i, len(d))]
    assert stats.hodges_lehmann(d) == np.median(averages)


@given(larger, dyadic, st.sampled_from([0.25, 0.5, 2.0, 4.0]))
def test_estimate_and_bounds_follow_shift_scale_and_swapped_sides(d, shift, scale):
    plain = stats.hodges_lehmann_interval(d, 0.05)
    moved = stats.hodges_lehmann_interval(d * scale + shift, 0.05)
    swapped = stats.hodges_lehmann_interval(-d, 0.05)
    for name, mirror in (("low", "high"), ("estimate", "estimate"), ("high", "low")):
        assert getattr(moved, name) == pytest.approx(getattr(plain, name) * scale + shift, abs=1e-12)
        assert getattr(swapped, mirror) == -getattr(plain, name)
    assert plain.low <= plain.estimate <= plain.high
    assert stats.standard_error(d * scale) == pytest.approx(scale * stats.standard_error(d))


@given(samples, dyadic)
@settings(deadline=None)
def test_wilcoxon_is_exact_with_ties_and_zeros(d, shift):
    assert stats.wilcoxon_greater(d, shift) == pytest.approx(brute_force_p(d, shift), rel=1e-9)


@pytest.mark.parametrize("n", [1, 5, 16, 40])
def test_wilcoxon_agrees_with_scipy_where_scipy_is_exact(n):
    d = np.random.default_rng(n).normal(0.3, 1, n)  # no ties
    expected = scipy.stats.wilcoxon(d - 0.1, alternative="greater", method="exact").pvalue
    assert stats.wilcoxon_greater(d, 0.1) == pytest.approx(expected, rel=1e-9)


def test_wilcoxon_is_right_where_scipy_exact_is_not():
    d = np.array([1.0, 1.0, 1.0, 1.0, -1.0])  # mid-ranks 3: P(S >= 12) = P(at most one of five is negative)
    assert stats.wilcoxon_greater(d) == 6 / 32
    assert scipy.stats.wilcoxon(d, alternative="greater", method="exact").pvalue < 6 / 32


def test_wilcoxon_ties_survive_rounding():
    # 0.3 - 0.2 and 0.2 - 0.1 differ in the last bit.
    assert stats.wilcoxon_greater(np.array([0.3, 0.2, 0.1]) - 0.2) == brute_force_p(np.array([0.1, 0.0, -0.1]), 0)


def test_wilcoxon_of_nothing_rejects_nothing():
    assert stats.wilcoxon_greater(np.array([])) == 1.0
    assert stats.wilcoxon_greater(np.zeros(8)) == 1.0


def test_smallest_p_value_of_n_pairs_is_two_to_minus_n():
    assert stats.wilcoxon_greater(np.linspace(1, 2, 32)) == 2.0**-32


@given(larger, st.sampled_from([0.01, 0.05, 0.2]))
@settings(deadline=None)
def test_a_bound_is_where_the_test_stops_rejecting(d, tail):
    d = d + np.random.default_rng(0).normal(0, 1e-4, len(d))  # no ties: the correspondence is exact
    low = stats.hodges_lehmann_interval(d, tail).low
    if math.isinf(low):
        assert 2.0 ** -len(d) > tail
        assert stats.wilcoxon_greater(d, d.min() - 1) > tail
    else:
        assert stats.wilcoxon_greater(d, low - 1e-9) <= tail
        assert stats.wilcoxon_greater(d, low + 1e-9) > tail


@pytest.mark.parametrize("noise", ["normal", "standard_cauchy", "laplace", "uniform"])
def test_each_bound_is_missed_no_more_often_than_promised(noise):
    rng = np.random.default_rng(7)
    runs = 2000
    draw = {"uniform": lambda: rng.uniform(-1, 1, 12)}.get(noise, lambda: getattr(rng, noise)(size=12))
    missed = np.zeros(2)
    for _ in range(runs):
        interval = stats.hodges_lehmann_interval(draw() + 5.0, 0.05)
        missed += (interval.low > 5.0, interval.high < 5.0)
    # The achieved level of 12 pairs is 4.6 %; four standard deviations of a simulation of this length.
    limit = 0.05 + 4 * math.sqrt(0.05 * 0.95 / runs)
    assert (missed / runs <= limit).all()
    assert (missed / runs >= 0.03).all(), "far too wide to be exact"


def test_standard_error_of_normal_noise():
    rng = np.random.default_rng(3)
    errors = [stats.standard_error(rng.normal(0, 1, 16)) for _ in range(1500)]
    spread = np.std([stats.hodges_lehmann(rng.normal(0, 1, 16)) for _ in range(1500)])
    assert np.mean(errors) == pytest.approx(spread, rel=0.08)


def test_one_outlier_moves_neither_estimate_nor_error_far():
    d = np.random.default_rng(5).normal(0, 0.01, 16)
    spoiled = d.copy()
    spoiled[3] = 50.0
    assert abs(stats.hodges_lehmann(spoiled) - stats.hodges_lehmann(d)) < 0.005
    assert stats.standard_error(spoiled) < 2 * stats.standard_error(d)


def test_too_few_pairs_give_no_bound():
    interval = stats.hodges_lehmann_interval(np.array([0.1, 0.2]), 0.01)
    assert (interval.low, interval.high) == (-math.inf, math.inf)
    assert stats.standard_error(np.array([0.1, 0.1])) == math.inf
    with pytest.raises(ValueError, match="no pairs"):
        stats.hodges_lehmann(np.array([]))


def test_holm_by_hand():
    # Sorted: .01*4, .02*3, .03*2 (raised to .06), .04*1 (raised to .06).
    assert stats.holm([0.03, 0.01, 0.04, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert stats.holm([0.6, 0.7]) == [1.0, 1.0]
    assert stats.holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20), st.randoms())
def test_holm_properties(p, random):
    adjusted = stats.holm(p)
    order = list(range(len(p)))
    random.shuffle(order)
    assert stats.holm([p[i] for i in order]) == [adjusted[i] for i in order]
    bonferroni = [min(1.0, len(p) * x) for x in p]
    assert all(x <= a <= b for x, a, b in zip(p, adjusted, bonferroni, strict=True))
    assert adjusted[int(np.argmin(p))] == bonferroni[int(np.argmin(p))]


def test_benjamini_hochberg_by_hand():
    assert stats.benjamini_hochberg([0.01, 0.02, 0.03, 0.5]) == pytest.approx([0.04, 0.04, 0.04, 0.5])
    assert stats.benjamini_hochberg([]) == []


def test_between_variance():
    assert stats.between_variance([0.01, 0.03], [0.0, 0.0]) == pytest.approx(2e-4)
    assert stats.between_variance([0.01, 0.03], [0.01, 0.01]) == pytest.approx(1e-4)
    assert stats.between_variance([0.01, 0.03], [0.1, 0.1]) == 0.0
    assert stats.between_variance([0.01], [0.001]) == 0.0


def test_smallest_detectable_effect_has_the_power_it_claims():
    rng = np.random.default_rng(11)
    for error, least in ((0.004, 0.018), (0.02, 0.018)):
        effect = stats.smallest_detectable_effect(error, tail=0.005, power=0.9, null=0.01, least=least)
        estimates = rng.normal(effect, error, 20_000)
        called = (estimates >= least) & ((estimates - 0.01) / error >= scipy.stats.norm.isf(0.005))
        assert called.mean() == pytest.approx(0.9, abs=0.01)


def test_normal_tail_is_accurate_far_out():
    assert stats.normal_tail(8.0) == pytest.approx(scipy.stats.norm.sf(8.0), rel=1e-9)
    assert stats.normal_quantile(1e-6) == pytest.approx(scipy.stats.norm.isf(1e-6))


def test_students_distribution():
    for freedom in (1.0, 5.3, 40.0):
        assert stats.student_tail(3.0, freedom) == pytest.approx(scipy.stats.t.sf(3.0, freedom))
        assert stats.student_quantile(1e-5, freedom) == pytest.approx(scipy.stats.t.isf(1e-5, freedom))
        assert stats.student_quantile(0.01, freedom) > stats.normal_quantile(0.01)
    assert stats.student_tail(2.0, math.inf) == stats.normal_tail(2.0)
    assert stats.student_quantile(0.01, math.inf) == stats.normal_quantile(0.01)


@pytest.mark.parametrize("pairs", [8, 16, 32])
@pytest.mark.parametrize("heavy", [False, True])
def test_an_estimate_over_its_standard_error_is_a_students(pairs, heavy):
    rng = np.random.default_rng(pairs)
    d = rng.standard_t(4, (3000, pairs)) if heavy else rng.normal(size=(3000, pairs))
    t = np.array([abs(stats.hodges_lehmann(row)) / stats.standard_error(row) for row in d])
    beyond = np.mean(t > stats.student_quantile(0.005, stats.freedom_of(pairs)))
    assert beyond <= 0.01 + 3 * math.sqrt(0.01 / len(t))
    if pairs == 8 and not heavy:
        assert np.mean(t > stats.normal_quantile(0.005)) > 0.03  # as if the error were known: three times too often


def test_freedom_of_a_sum_by_hand():
    assert stats.freedom_of_sum([(1.0, 5.0)]) == pytest.approx(5.0)
    assert stats.freedom_of_sum([(1.0, 5.0), (1.0, 5.0)]) == pytest.approx(10.0)
    assert stats.freedom_of_sum([(1.0, 5.0), (1.0, math.inf)]) == pytest.approx(20.0)
    assert stats.freedom_of_sum([(1.0, math.inf)]) == stats.freedom_of_sum([(0.0, 5.0)]) == math.inf


@given(st.lists(st.floats(0.1, 100), min_size=1, max_size=10), st.floats(0.1, 10))
def test_effective_number(weights, factor):
    found = stats.effective_number(weights)
    assert 1 - 1e-9 <= found <= len(weights) + 1e-9
    assert stats.effective_number([factor * w for w in weights]) == pytest.approx(found)
    assert stats.effective_number([factor] * len(weights)) == pytest.approx(len(weights))


@given(st.lists(st.tuples(st.floats(1e-6, 1), st.floats(1e-6, 1)), min_size=1, max_size=8), st.floats(0.1, 10))
def test_medians_of_ratios(pairs, unit):
    base = [[b] * 3 for b, _ in pairs]
    head = [[h, h, 100.0] for _, h in pairs]  # the median ignores one slow launch
    d = stats.medians_of_ratios(base, head)
    assert d == pytest.approx([math.log(h / b) for b, h in pairs], abs=1e-9)
    in_another_unit = ([[unit * t for t in turn] for turn in side] for side in (base, head))
    assert stats.medians_of_ratios(*in_another_unit) == pytest.approx(d, abs=1e-9)
    assert stats.medians_of_ratios(head, base) == pytest.approx(-d)


def test_what_is_no_pair_of_times_is_refused():
    for base, head in (([[1.0]], []), ([[1.0, 2.0]], [[1.0]])):
        with pytest.raises(ValueError, match=r"shorter|inhomogeneous"):
            stats.medians_of_ratios(base, head)
    for bad in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="positive finite"):
            stats.medians_of_ratios([[1.0]], [[bad]])
        with pytest.raises(ValueError, match="positive finite"):
            stats.medians([[bad]])
