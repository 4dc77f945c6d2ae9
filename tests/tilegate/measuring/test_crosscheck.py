"""The gate's own clock beside the worker's: what is left out of the times is seen, and what is merely noisy or faster is not."""

from __future__ import annotations

import math
import random

import pytest

from tilegate.measuring.crosscheck import Turn, Watch, hidden, in_words, knows_looks, looked_at

REQUEST = 4e-3  # seconds that a request takes besides the launch: flush, poison, JSON


def turns(seconds: float, beside: float = 0.0, *, seed: int, pairs: int = 32, noise: float = 0.02) -> list[Turn]:
    """Turns of 8 launches of `seconds`, each followed by `beside` that the worker does not report."""
    chance = random.Random(seed)  # noqa: S311 - not for secrets
    found = []
    for _ in range(pairs):
        reported = 8 * seconds * math.exp(chance.gauss(0, noise))
        rest = 8 * (REQUEST * math.exp(chance.gauss(0, noise)) + beside)
        found.append(Turn(8, reported, reported + rest))
    return found


@pytest.mark.parametrize("seconds", [1e-5, 1e-3, 4e-3, 4.4e-3])
@pytest.mark.parametrize("noise", [0.005, 0.05, 0.5])
def test_an_honest_head_hides_nothing_however_fast_it_is(seconds, noise):
    for seed in range(300):
        base, head = turns(4e-3, seed=seed, noise=noise), turns(seconds, seed=seed + 1000, noise=noise)
        assert hidden(base, head) is None, seed


@pytest.mark.parametrize("share", [0.25, 0.5, 1.0])
def test_work_that_is_done_when_nobody_times_it_is_found(share):
    for seed in range(300):
        base = turns(4e-3, seed=seed)
        head = turns(4e-3 * (1 - share) + 1e-6, 4e-3 * share, seed=seed + 1000)
        left_out = hidden(base, head)
        assert left_out == pytest.approx(4e-3 * share, rel=0.35), seed
        assert "leaves out" in in_words(left_out, base, head)


def test_work_that_is_added_and_hidden_is_found_though_the_times_are_equal():
    assert hidden(turns(4e-3, seed=1), turns(4e-3, 2e-3, seed=2)) == pytest.approx(2e-3, rel=0.1)


def test_seconds_of_another_kind_say_nothing():
    """A clock that the tests have replaced, say: its seconds do not fit into the gate's on either side."""
    base = [Turn(8, 1.0, 0.1)] * 32
    assert hidden(base, [Turn(8, 0.5, 0.1)] * 32) is None
    delayed = [Turn(8, 1.0, 2.0)] * 31 + [
        Turn(8, 1.0, 0.1)
    ]  # a machine so busy that most turns wait longer than they report
    assert hidden(delayed, [Turn(8, 0.5, 2.0)] * 32) is None


def test_on_a_busy_machine_the_time_on_a_processor_tells():
    chance = random.Random(0)  # noqa: S311 - not for secrets
    stolen = [chance.uniform(0, 0.05) for _ in range(64)]
    base = [Turn(1, 4e-3, 8e-3 + s, 8e-3) for s in stolen[:32]]
    assert hidden(base, [Turn(1, 2e-3, 6e-3 + s, 6e-3) for s in stolen[32:]]) is None
    assert hidden(base, [Turn(1, 2e-3, 8e-3 + s, 8e-3) for s in stolen[32:]]) == pytest.approx(2e-3)
    assert hidden(base, [Turn(1, 2e-3, 8e-3 + s) for s in stolen[32:]]) is None  # which nobody says


def test_threads_that_share_the_work_hide_nothing():
    """The first thread waits for the second: it is on a processor for less than the launch takes."""
    base = [Turn(1, 4e-3, 8e-3, 8e-3)] * 32
    assert hidden(base, [Turn(1, 2e-3, 6e-3, 4e-3)] * 32) is None


def test_few_turns_say_nothing():
    assert hidden(turns(4e-3, seed=1, pairs=15), turns(1e-6, 4e-3, seed=2, pairs=15)) is None


def test_a_head_that_works_only_where_somebody_looks_is_slow_only_there():
    base, head = [4.0, 4.1, 4.0, 3.9], [0.1, 4.0, 0.1, 0.1]
    assert looked_at(base, head, 1) == pytest.approx(math.log(40 / (4.1 / 4.0)), rel=0.01)
    assert knows_looks([looked_at(base, head, 1)] * 6) == pytest.approx(39, rel=0.01)
    assert knows_looks([looked_at(base, head, 1)] * 5) is None  # too few
    assert knows_looks([looked_at(base, head, 1)] * 9 + [0.0]) is None  # noise is slow now and then, not always
    assert looked_at([4.0], [1.0], 0) == 0.0


def test_what_several_replicates_have_seen_counts_together():
    watch, noisy = Watch(), [turns(4e-3, seed=s, noise=0.1) for s in (1, 2, 3)]
    for seed, base in enumerate(noisy):
        watch.add(Watch(base, turns(2e-3, 2e-3, seed=seed + 50, noise=0.1), [0.0]))
    assert len(watch.base) == len(watch.head) == 96
    assert "leaves out" in watch.finding()
    assert Watch(noisy[0], turns(2e-3, seed=7)).finding() is None
    assert "only where somebody looks" in Watch(slower=[1.0] * 6).finding()
