"""The estimator on real noise, with truth planted; the figures of docs/history-proof.md come from the same simulation."""

import itertools

import history_simulation as simulation
import numpy as np
import pytest
from history_records import CASE, code, commit, comparison

from tilegate.history import network
from tilegate.history.inbox import entries
from tilegate.history.network import solve
from tilegate.history.view import view


def test_intervals_hold_the_truth_at_least_as_often_as_they_say():
    inside, flagged = simulation.coverage(150)
    assert inside >= 0.93
    assert flagged <= 3 * network.FALSE_FLAGS


def test_the_coverage_test_can_fail(monkeypatch):
    """Errors that are stated a third as large: the share drops, so the test above is one."""
    made = simulation.bank()
    small = tuple(tuple(simulation.Drawn(d.log_ratio, d.error / 3, d.freedom) for d in kernel) for kernel in made)
    monkeypatch.setattr(simulation, "bank", lambda: small)
    inside, flagged = simulation.coverage(100)
    assert inside < 0.93
    assert flagged > 3 * network.FALSE_FLAGS


@pytest.mark.parametrize(
    ("size", "certain", "alarms"), [(0.003, 0.5, 0), (0.005, 0.7, 0), (0.01, 0.95, 0.3), (0.03, 1, 1)]
)
def test_planted_steps_on_real_noise(size, certain, alarms):
    found = simulation.planted(size, 100)
    assert found.certain >= certain
    assert found.alarms >= alarms
    assert found.false_certain <= 0.025 + 3 * np.sqrt(0.025 * 0.975 / 3900)  # above no change, one side of 95 %
    assert found.false_alarms == 0
    # One run a commit raises alarms everywhere, and finds no more.
    hits, false = simulation.independent(size, 200)
    assert false > 0.1
    assert hits <= found.certain


def test_creep_on_real_noise_is_certain_with_anchors_and_surest_by_a_direct_edge():
    alone, anchored, direct = (simulation.creep(30, anchors) for anchors in ((), (10, 20, 30, 40, 50), (59,)))
    assert min(alone[0], anchored[0], direct[0]) >= 0.9
    assert alone[1] > 2 * anchored[1] > 2 * direct[1]
    assert direct[2] == 1


def test_a_comparison_that_is_off_is_flagged():
    caught, _ = simulation.bad_edge(60, 0.02)
    assert caught >= 0.8


def test_a_bimodal_case_gets_wide_intervals_and_not_wrong_ones():
    """A process is in one of two modes for its whole life, as TileLang kernels on an H200 may be."""
    assert simulation.bimodal(40, 0.015) >= 0.88


def test_gaps_are_crossed_and_never_filled():
    """Commits that do not build: their neighbours are compared, and they themselves stay unknown."""
    rng = np.random.default_rng(1)
    truth = np.r_[np.zeros(10), np.full(10, 0.03)]
    alive = [*range(7), *range(13, 20)]
    found = solve([str(n) for n in alive], simulation.edges(truth, list(itertools.pairwise(alive)), rng))
    contrast = found.contrast("6", "13")
    assert contrast.low <= 0.03 <= contrast.high
    assert contrast.low > 0
    assert "9" not in found.levels
    names = [f"{n:02d}" for n in range(20)]
    line = [commit(n, *([] if n == "00" else [names[int(n) - 1]])) for n in names]
    codes = [code(n, f"v{n}") if int(n) in alive else code(n, None, failed="does not build") for n in names]
    edges = [comparison(f"v{a:02d}", f"v{b:02d}", truth[b] - truth[a]) for a, b in itertools.pairwise(alive)]
    history = view([*line, *codes, *edges])
    (entry,) = entries(history)
    assert (entry.last_good, entry.first_bad) == (6, 13)  # the range, and nobody in it
    assert history.cases[CASE].contrast(6, 9) is None


def test_a_new_environment_neither_hides_nor_invents_a_step():
    """A driver that makes everything 8 % faster: no comparison crosses it, so it is no change of any code."""
    names = "abcdef"
    line = [commit(s, *([] if s == "a" else [chr(ord(s) - 1)])) for s in names]
    codes = [code(s, f"v{s}") for s in names]
    old = [comparison(f"v{a}", f"v{b}", 0.0, environment="old") for a, b in ("ab", "bc")]
    new = [comparison("vc", "vd", 0.02, environment="new", created="2026-02-01")]
    new += [comparison(f"v{a}", f"v{b}", 0.0, environment="new", created="2026-02-02") for a, b in ("de", "ef")]
    new = [{**edge, "base_seconds": 0.92e-4, "head_seconds": 0.92e-4} for edge in new]
    history = view([*line, *codes, *old, *new])
    (entry,) = entries(history)
    assert (entry.last_good, entry.first_bad) == (2, 3)
    assert [segment.environment for segment in history.cases[CASE].segments] == ["new", "old"]
    assert history.cases[CASE].contrast(0, 5) is None


def test_a_merge_is_one_step_of_the_first_parents_line():
    """What a branch did shows where it was merged, and its own commits are no part of the line."""
    line = [commit("a"), commit("b", "a"), commit("x", "a"), commit("m", "b", "x"), commit("c", "m")]
    codes = [code("a", "p"), code("b", "p"), code("x", "q"), code("m", "q"), code("c", "q")]
    (entry,) = entries(view([*line, *codes, comparison("p", "q", 0.04)]))
    history = view([*line, *codes, comparison("p", "q", 0.04)])
    assert [each.subject for each in history.commits] == ["a", "b", "m", "c"]
    assert history.commits[entry.first_bad].subject == "m"


def test_a_reverted_commit_is_the_old_version_and_costs_no_measuring():
    line = [commit("a"), commit("b", "a"), commit("c", "b")]
    history = view([*line, code("a", "p"), code("b", "q"), code("c", "p"), comparison("p", "q", 0.04)])
    (entry,) = entries(history)
    assert entry.recovered
    assert history.cases[CASE].contrast(0, 2).error == 0
