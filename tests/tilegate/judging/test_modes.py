"""Fast and slow modes: named where they were planted, not found in noise that was measured on an H200."""

import json
from pathlib import Path

import numpy as np
import pytest

from tilegate.judging import modes, stats

SMALLEST = 0.01
TRACES = json.loads((Path(__file__).parents[2] / "data" / "h200_pair_noise.json").read_text())["cases"]


def replicates():
    for name, found in TRACES.items():
        for pairs in found:
            yield name, np.array(pairs)


def test_real_noise_has_no_modes_from_turn_to_turn():
    # Its clocks do step: seen alone, a side of the long kernels falls into two groups in many replicates.
    stepping = 0
    for name, pairs in replicates():
        for count in (8, 12, 16, len(pairs)):
            assert modes.between_turns(pairs[:count, 1], pairs[:count, 2], SMALLEST) is None, (name, count)
        groups = modes.grouped(np.log(pairs[:, 1]), 2, 5)
        stepping += groups.p_value <= 0.001 and groups.gap >= SMALLEST
    assert stepping > 5


def test_real_noise_has_no_modes_from_process_to_process():
    rng = np.random.default_rng(0)
    for name, found in TRACES.items():
        estimates = [stats.hodges_lehmann(np.log(np.array(pairs)[:, 2] / np.array(pairs)[:, 1])) for pairs in found]
        for _ in range(10):  # which side is which is arbitrary: the code is the same
            assert modes.between_processes(rng.choice([-1, 1], len(estimates)) * estimates, 0.005) is None, name


@pytest.mark.parametrize("both", [False, True])
def test_a_side_that_switches_between_turns_is_found_in_real_noise(both):
    rng = np.random.default_rng(1)
    found = []
    for name, pairs in replicates():
        if name.startswith(("scale", "copy_8M")):  # their noise is as large as the modes
            continue
        slow = rng.random((2, len(pairs))) < 0.5
        base, head = pairs[:, 1] * (1 + 0.05 * slow[0] * both), pairs[:, 2] * (1 + 0.05 * slow[1])
        found.append(modes.between_turns(base, head, SMALLEST))
    gaps = [gap for gap in found if gap is not None]
    # What is missed: kernels whose pairs scatter by a quarter of the distance between the modes, or more.
    assert len(gaps) >= 0.6 * len(found)
    assert np.median(gaps) == pytest.approx(np.log(1.05), abs=0.01)


def test_what_happens_to_both_sides_alike_is_no_mode():
    rng = np.random.default_rng(2)
    clock = 1 + 0.05 * (np.arange(24) % 12 < 5)
    base, head = (1e-4 * clock * np.exp(rng.normal(0, 0.001, 24)) for _ in range(2))
    assert modes.grouped(np.log(base), 2, 5).p_value <= 0.001
    assert modes.between_turns(base, head, SMALLEST) is None


@pytest.mark.parametrize("both", [False, True])
def test_processes_that_fall_into_modes(both):
    rng = np.random.default_rng(3)
    found = 0
    for _ in range(100):
        slow = rng.random((2, 8)) < 0.5
        found += (
            modes.between_processes(rng.normal(0, 0.001, 8) + 0.03 * slow[1] - 0.03 * both * slow[0], 0.01) is not None
        )
    assert found >= 90


def test_symmetric_noise_with_one_hump_is_rarely_called():
    rng = np.random.default_rng(4)
    draws = {
        "uniform": rng.random,
        "normal": lambda n: rng.normal(size=n),
        "heavy": lambda n: rng.standard_t(4, n),
        "angular": lambda n: rng.random(n) + rng.random(n),
    }
    for name, draw in draws.items():
        called = sum(modes.between_processes(draw(8), 0.0) is not None for _ in range(1000))
        assert called <= 22, name  # 1 %, and four standard deviations of a thousand draws


def test_a_p_value_is_one():
    rng = np.random.default_rng(5)
    p = np.array([modes.grouped(rng.random(16), 2, 4).p_value for _ in range(1000)])
    for level in (0.05, 0.2, 0.5):
        assert abs((p <= level).mean() - level) < 4 * np.sqrt(level * (1 - level) / 1000) + 0.01


@pytest.mark.parametrize("values", [[], [1.0], [1.0] * 20, [1.0, 2.0, 3.0]])
def test_too_little_says_nothing(values):
    assert modes.between_turns(values, values, 0.0) is None
    assert modes.between_processes(values, 0.0) is None


def test_a_few_outliers_are_no_mode():
    rng = np.random.default_rng(6)
    base, head = 1e-4 * np.exp(rng.normal(0, 0.002, (2, 24)))
    head[:3] *= 1.3
    assert modes.between_turns(base, head, SMALLEST) is None
