"""The simulation behind docs/gate-proof.md simulates the rules that the gate follows, on noise as it was recorded."""

import dataclasses
import math
from pathlib import Path

import gate_simulation
import numpy as np
import pytest
from gate_simulation import CONFIG, Pool, Trace, traces

from tilegate import config
from tilegate.judging import decision, run_verdict
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


# --- controls ---------------------------------------------------------------------------------------------------------

# What docs/gate-statistics.md has measured on a CPU, "On a CPU".
OF_A_CPU = {"pair_noise": 0.013, "screen_noise": 0.009}
OF_THIS_REPOSITORY = config.load_config((Path(__file__).parents[3] / "pyproject.toml").read_text()).for_case(
    "attention.Forward.latency_forward('cpu-g4-d64-s64', 'adaptive')"
)


def invalid(runs, controls, **options):
    rng = np.random.default_rng(controls)
    options = {**OF_A_CPU, "config": CONFIG, "expected": CONFIG.bias["cpu"].relative, **options}
    return runs * gate_simulation.controls(controls, runs, rng, **options)


@pytest.mark.parametrize("controls", [1, 2, 4])
@pytest.mark.parametrize("runs", [500, pytest.param(8000, marks=pytest.mark.thorough)])
def test_identical_code_on_a_cpu_hardly_ever_makes_the_environment_invalid(controls, runs):
    most = CONFIG.alpha * runs + 3 * math.sqrt(CONFIG.alpha * runs)
    assert invalid(runs, controls) <= most
    assert invalid(runs, controls, config=OF_THIS_REPOSITORY) <= most


@pytest.mark.parametrize("controls", [1, 2, 4])
@pytest.mark.parametrize(("pair_noise", "bias"), [(0.013, 0.0077), (0.026, 1e-4)])
def test_screens_of_eight_pairs_are_not_taken_for_more_than_they_are(controls, pair_noise, bias):
    """What eight pairs say of their own noise taken for known, four of them alone were off in 4 % of runs."""
    rng = np.random.default_rng(controls)
    runs, off = 2000, 0
    for _ in range(runs):
        ratios = rng.normal(rng.normal(0, bias, controls)[:, None], pair_noise, (controls, 8))
        screens = [decision.weigh_screen([Replicate(row, (True, False) * 4)], CONFIG, bias) for row in ratios]
        shift, chance = run_verdict._shift(screens, CONFIG.alpha)
        off += abs(shift) > chance
    assert off <= CONFIG.alpha * runs + 2 * math.sqrt(CONFIG.alpha * runs)


@pytest.mark.parametrize("controls", [1, 2, 4])
def test_a_machine_that_moves_all_controls_is_noticed(controls):
    assert invalid(100, controls, pair_noise=0.005, screen_noise=0.002, expected=0.001, shift=0.012) >= 97
    strict = dataclasses.replace(OF_THIS_REPOSITORY, screen=0.007)
    assert (
        invalid(100, controls, pair_noise=0.005, screen_noise=0.002, expected=0.001, shift=0.012, config=strict) >= 97
    )
