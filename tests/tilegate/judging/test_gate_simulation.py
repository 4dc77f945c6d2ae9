"""The simulation behind docs/gate-proof.md simulates the rules that the gate follows, on noise as it was recorded."""

import math

import gate_simulation
import numpy as np
import pytest
from gate_simulation import CONFIG, Pool, Trace, traces

from tilegate.judging import decision
from tilegate.judging.decision import Replicate

REAL = traces()


def test_the_vectorised_screen_is_the_rule_of_the_gate():
    rng = np.random.default_rng(1)
    pool = Pool(tuple(REAL))
    which = rng.integers(len(REAL), size=3000)
    # Effects around the threshold, where a difference would show.
    ratios, orders = pool.draw(which, rng.normal(0, 0.01, len(which)), CONFIG.screen_pairs, rng)
    orders[rng.random(len(orders)) < 0.1] = True
    bias = np.array([t.bias(CONFIG) for t in REAL])[which]
    said = gate_simulation.screen_all(ratios, orders, CONFIG, bias)
    for row, replicate_orders, expected, noise in zip(ratios, orders, said, bias, strict=True):
        screen = [Replicate(row, tuple(replicate_orders))]
        step = decision.next_step(screen, [], CONFIG, noise)
        assert (step.action == "confirm") == expected
        if expected:
            assert step == decision.Step("confirm", CONFIG.replicates, CONFIG.confirm_pairs)
    assert 0.2 < said.mean() < 0.8


def test_planting_is_what_the_simulation_says():
    still = Trace("still", 1e-4, (Replicate(np.zeros(24), (True, False) * 12),))
    ratios, _ = Pool((still,)).draw(np.zeros(5, dtype=int), np.full(5, 0.03), 16, np.random.default_rng(0))
    assert ratios == pytest.approx(np.full((5, 16), math.log(1.03)))


def test_a_stretch_keeps_neighbours_and_swaps_sides_with_their_order():
    counting = Trace("counting", 1e-4, (Replicate(np.arange(1.0, 25.0), (True,) * 24),))
    ratios, orders = Pool((counting,)).draw(np.zeros(200, dtype=int), np.zeros(200), 16, np.random.default_rng(0))
    assert set(np.diff(np.abs(ratios), axis=1).ravel()) == {1.0, -23.0}
    swapped = ratios[:, 0] < 0
    assert 50 < swapped.sum() < 150
    assert (orders == ~swapped[:, None]).all()


def test_amplified_bias_is_larger_and_the_noise_of_pairs_is_not():
    trace = REAL[0]
    double = trace.amplified(2.0)
    for before, after in zip(trace.replicates, double.replicates, strict=True):
        moved = after.ratios - before.ratios
        assert moved == pytest.approx(np.full(len(moved), moved[0]))
    spread = [np.std([np.median(r.ratios) for r in t.replicates]) for t in (trace, double)]
    assert spread[1] == pytest.approx(2 * spread[0], rel=0.25)


def test_a_request_counts_each_case_once_and_finds_the_slow_one():
    pool = gate_simulation.pools()["long"]
    (request,) = gate_simulation.requests(pool, 1, np.random.default_rng(3), effect=0.05, cases=40)
    assert request.verdicts.total() == 39
    assert request.planted == "regressed"
    assert request.rounds >= 3
    assert request.pairs >= 40 * CONFIG.screen_pairs + 2 * CONFIG.confirm_pairs


def test_other_replicates_of_a_confirmation_are_drawn_than_of_the_screen():
    """What is confirmed is fresh: a single biased replicate among many clean ones is hardly ever called."""
    clean = Replicate(np.zeros(24), (True, False) * 12)
    biased = Replicate(np.full(24, 0.05), (True, False) * 12)
    trace = Trace("one in ten", 1e-4, (*([clean] * 9), biased))
    verdicts, _ = gate_simulation.rates(trace, 0.0, 300, np.random.default_rng(4))
    assert verdicts["regressed"] <= 9
