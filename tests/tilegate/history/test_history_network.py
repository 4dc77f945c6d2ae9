"""Levels from comparisons: closed forms, coverage of the intervals, contradictions, cards, and the next edge to measure."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilegate.history import network
from tilegate.history.network import Edge, solve


def edge(base, head, log_ratio, error=0.001, **more):
    return Edge(str(base), str(head), log_ratio, error, **more)


def chain(truth, rng, error=0.0012, anchors=()):
    edges = [edge(i, i + 1, truth[i + 1] - truth[i] + rng.normal(0, error), error) for i in range(len(truth) - 1)]
    return edges + [edge(0, i, truth[i] - truth[0] + rng.normal(0, error), error) for i in anchors]


def names(count):
    return [str(i) for i in range(count)]


def test_a_chain_adds_up():
    found = solve(names(3), [edge(0, 1, 0.01, 0.003), edge(1, 2, 0.02, 0.004)])
    contrast = found.contrast("0", "2")
    assert contrast.estimate == pytest.approx(0.03)
    assert contrast.error == pytest.approx(0.005)
    assert found.contrast("2", "0").estimate == pytest.approx(-0.03)


def test_parallel_edges_are_weighted_by_their_precision():
    found = solve(names(2), [edge(0, 1, 0.010, 0.001), edge(0, 1, 0.013, 0.002)])
    contrast = found.contrast("0", "1")
    assert contrast.estimate == pytest.approx((4 * 0.010 + 0.013) / 5)
    assert contrast.error == pytest.approx(1 / math.sqrt(1e6 + 0.25e6))


def test_a_triangle_by_hand():
    """Effective resistance of one unit edge beside two in series: 2/3."""
    found = solve(names(3), [edge(0, 1, 0.0), edge(1, 2, 0.0), edge(0, 2, 0.0)])
    assert found.contrast("0", "2").error == pytest.approx(0.001 * math.sqrt(2 / 3))


def test_what_nothing_connects_is_not_known():
    found = solve(names(4), [edge(0, 1, 0.01), edge(2, 3, 0.02)])
    assert found.contrast("0", "2") is None
    assert found.contrast("1", "1").error == 0
    assert found.contrast("0", "nowhere") is None
    assert solve(names(2), []).contrast("0", "1") is None
    assert solve(names(2), []).contrast("0", "0").estimate == 0


def test_degrees_of_freedom_follow_the_path():
    few = solve(names(2), [edge(0, 1, 0.0, freedom=3)]).contrast("0", "1")
    many = solve(names(2), [edge(0, 1, 0.0)]).contrast("0", "1")
    assert few.high / many.high == pytest.approx(3.182 / 1.96, rel=1e-3)
    mixed = solve(names(3), [edge(0, 1, 0.0, freedom=3), edge(1, 2, 0.0, 0.0001, freedom=math.inf)])
    assert mixed.contrast("0", "2").high == pytest.approx(few.high, rel=0.02)


@given(st.data())
@settings(max_examples=60)
def test_levels_solve_the_normal_equations(data):
    size = data.draw(st.integers(2, 6))
    pairs = data.draw(st.lists(st.tuples(st.integers(0, size - 1), st.integers(0, size - 1)), min_size=1, max_size=12))
    pairs = [(a, b) for a, b in pairs if a != b]
    numbers = st.floats(-0.004, 0.004)
    edges = [edge(a, b, data.draw(numbers), data.draw(st.floats(0.01, 0.05))) for a, b in pairs]
    found = solve(names(size), edges)
    assert not found.flagged  # nothing is off by a standard error
    if not edges:
        return
    gradient = dict.fromkeys(names(size), 0.0)
    for each in edges:
        pull = (each.log_ratio - (found.levels[each.head] - found.levels[each.base])) / each.error**2
        gradient[each.head] += pull
        gradient[each.base] -= pull
    assert max(map(abs, gradient.values())) < 1e-6
    for each in edges:
        contrast = found.contrast(each.base, each.head)
        assert contrast.error <= each.error * (1 + 1e-9)  # more paths never say less
        assert contrast.estimate == pytest.approx(-found.contrast(each.head, each.base).estimate)


def test_intervals_hold_the_truth_as_often_as_they_say():
    rng = np.random.default_rng(1)
    inside = total = 0
    for _ in range(300):
        truth = np.cumsum(np.r_[0, rng.normal(0, 0.003, 19)])
        found = solve(names(20), chain(truth, rng, anchors=(5, 10, 15, 19)))
        for a, b in ((0, 19), (3, 8), (9, 10), (0, 12)):
            contrast = found.contrast(str(a), str(b))
            inside += contrast.low <= truth[b] - truth[a] <= contrast.high
            total += 1
    assert 0.93 <= inside / total <= 0.97


@pytest.mark.parametrize(("step", "found_at_least"), [(0.003, 0.35), (0.005, 0.8), (0.01, 0.99), (0.03, 1.0)])
def test_planted_steps_are_found_where_they_are(step, found_at_least):
    """With 0.12 % a comparison, one of 40 edges is a step; the others say no change as often as they should."""
    rng = np.random.default_rng(2)
    hits = false = edges = 0
    for _ in range(100):
        truth = np.zeros(41)
        truth[20:] += step
        for each in chain(truth, rng):
            certain = network.interval(each.log_ratio, each.error).certain
            planted = (each.base, each.head) == ("19", "20")
            hits += planted and certain and each.log_ratio > 0
            false += certain and not planted
            edges += not planted
    assert hits / 100 >= found_at_least
    assert false / edges == pytest.approx(0.05, abs=0.02)


def test_creep_under_every_threshold_is_seen_against_the_release():
    """0.05 % a commit over 60: no edge shows it; head against release does, better with anchors, best by a direct edge."""
    rng = np.random.default_rng(3)
    truth = np.arange(60) * 0.0005
    errors = []
    for anchors in ((), range(10, 60, 10), (*range(10, 60, 10), 59)):
        contrast = solve(names(60), chain(truth, rng, anchors=anchors)).contrast("0", "59")
        assert contrast.low <= truth[-1] <= contrast.high
        errors.append(contrast.error)
    assert errors == sorted(errors, reverse=True)
    assert errors[0] == pytest.approx(0.0092, rel=0.02)
    assert errors[1] == pytest.approx(0.0038, rel=0.05)
    assert solve(names(60), chain(truth, rng, anchors=(59,))).contrast("0", "59").certain


def test_a_bad_edge_is_flagged_and_left_out():
    rng = np.random.default_rng(4)
    truth = np.zeros(12)
    edges = chain(truth, rng, anchors=range(2, 12))
    edges[5] = Edge(edges[5].base, edges[5].head, 0.02, 0.0012, name="bad")
    found = solve(names(12), edges)
    assert [each.name for each, _ in found.flagged] == ["bad"]
    assert abs(found.levels["11"]) < 0.004


def test_two_edges_that_disagree_and_no_third_are_both_flagged():
    found = solve(names(2), [edge(0, 1, 0.0), edge(0, 1, 0.05)])
    assert len(found.flagged) == 2
    assert found.contrast("0", "1") is None


def test_a_bad_anchor_does_not_erase_the_chain():
    """MikkoParkkola/mcp-gateway 615."""
    chain_alone = [edge(i, i + 1, 0.0) for i in range(10)]
    found = solve(names(11), [*chain_alone, edge(0, 10, 0.05, name="anchor")])
    assert [each.name for each, _ in found.flagged] == ["anchor"]
    assert len(found.disputed) == 10  # one of these may be the wrong one
    assert found.contrast("0", "1").error == pytest.approx(0.001)
    decided = solve(names(11), [*chain_alone, edge(0, 10, 0.05, name="anchor"), edge(0, 10, 0.0)])
    assert [each.name for each, _ in decided.flagged] == ["anchor"]
    assert not decided.disputed


def test_a_bridge_is_contradicted_by_nothing():
    assert not solve(names(3), [edge(0, 1, 0.5), edge(1, 2, -0.3)]).flagged


def test_good_edges_are_flagged_as_rarely_as_is_said():
    rng = np.random.default_rng(5)
    flagged = sum(bool(solve(names(15), chain(np.zeros(15), rng, anchors=range(2, 15))).flagged) for _ in range(600))
    assert flagged / 600 <= 3 * network.FALSE_FLAGS


def test_errors_estimated_from_few_pairs_are_not_taken_for_known():
    """Student's t: with 3 degrees of freedom an edge is off by more than the normal says, and rarely flagged all the same."""
    rng = np.random.default_rng(6)
    flagged = 0
    for _ in range(300):
        edges = []
        for base, head in [(i, i + 1) for i in range(7)] + [(0, i) for i in range(2, 8)]:
            values = rng.normal(0, 0.0024, 4)
            edges.append(edge(base, head, values.mean(), max(values.std(ddof=1) / 2, 1e-5), freedom=3))
        flagged += bool(solve(names(8), edges).flagged)
    assert flagged / 300 <= 0.05


def test_the_spread_between_cards_is_estimated():
    rng = np.random.default_rng(7)
    spreads = []
    for _ in range(40):
        edges = []
        for i in range(12):
            for card in "abc":
                edges.append(edge(i, i + 1, 0.01 + rng.normal(0, 0.002) + rng.normal(0, 0.001), 0.001, card=card))
        spreads.append(network.card_spread(edges))
    assert np.sqrt(np.mean(np.square(spreads))) == pytest.approx(0.002, rel=0.2)
    one_card = [edge(0, 1, 0.01, card="a"), edge(0, 1, 0.02, card="a")]
    assert network.card_spread(one_card) == 0.0


def test_the_cards_of_two_h200_agree():
    """The same two changes on two cards: +2.45/+2.47, +2.42/+2.50, +2.93/+2.95, +2.66/+2.68, +6.00/+5.71 %."""
    changes = [(2.45, 2.47), (2.42, 2.50), (2.93, 2.95), (2.66, 2.68), (6.00, 5.71)]
    edges = [
        edge(f"b{i}", f"h{i}", math.log1p(percent / 100), 0.001, card=card)
        for i, pair in enumerate(changes)
        for card, percent in zip("ab", pair, strict=True)
    ]
    assert network.card_spread(edges) < 0.002


def test_the_next_edge_is_the_direct_one_or_an_anchor():
    rng = np.random.default_rng(8)
    found = solve(names(60), chain(np.zeros(60), rng))
    assert network.next_edge(found, "0", "59", 0.0012, names(60)) == ("0", "59")
    assert network.next_edge(found, "0", "59", 0.0012, names(50)) == ("0", "49")  # the head cannot be built any more
    apart = solve(names(2), [])
    assert network.next_edge(apart, "0", "1", 0.0012, names(2)) == ("0", "1")
    assert network.next_edge(apart, "0", "1", 0.0012, ["0"]) is None


@given(st.integers(0, 10_000))
@settings(max_examples=25)
def test_the_next_edge_narrows_most(seed):
    rng = np.random.default_rng(seed)
    edges = [edge(i, i + 1, 0.0, rng.uniform(0.0005, 0.005)) for i in range(6)]
    found = solve(names(7), edges)
    best = network.next_edge(found, "1", "5", 0.001, names(7))
    errors = {
        (a, b): solve(names(7), [*edges, edge(a, b, 0.0, 0.001)]).contrast("1", "5").error
        for a in range(7)
        for b in range(a + 1, 7)
    }
    assert errors[int(best[0]), int(best[1])] == pytest.approx(min(errors.values()))


def test_a_revert_is_the_old_version_again():
    """Commits a, b, c with the code of a again in c: c's level is a's, exactly, without measuring."""
    found = solve(["x", "y", "x"], [edge("x", "y", 0.03)])
    assert found.contrast("x", "x").estimate == 0
    assert list(found.levels) == ["x", "y"]
