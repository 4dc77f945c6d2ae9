"""The inbox: ids that stay, what people decided, recoveries, creep."""

import datetime
import itertools

import pytest
from history_records import CASE, code, commit, comparison, event

from tilegate.history.inbox import entries, unfiled
from tilegate.history.view import view

LINE = [commit("a"), commit("b", "a"), commit("c", "b"), commit("d", "c")]
DAY = datetime.date(2026, 3, 1)


def test_a_step_is_an_entry_between_two_commits():
    found = [*LINE, code("a", "x"), code("b", "x"), code("c", "y"), code("d", "y"), comparison("x", "y", 0.03)]
    (entry,) = entries(view(found))
    assert (entry.kind, entry.last_good, entry.first_bad, entry.state, entry.open) == ("step", 1, 2, "new", True)
    assert entry.worst.estimate == pytest.approx(0.03)
    assert entry.affected[0].edge is not None


def test_no_entry_for_noise_for_gains_and_for_what_is_tolerated():
    for log_ratio, error in ((0.03, 0.02), (-0.05, 0.001), (0.005, 0.0001), (0.0, 0.001)):
        found = [*LINE, code("a", "x"), code("b", "y"), comparison("x", "y", log_ratio, error=error)]
        assert entries(view(found)) == []


def test_what_a_suite_tolerates_of_a_case_is_no_entry_and_no_creep():
    line = [*LINE, event("release", "v1", to="a" * 8), code("a", "x"), code("b", "y")]
    noisy = {**comparison("x", "y", 0.025), "tolerated": 0.03}
    assert entries(view([*line, noisy])) == []
    (entry,) = entries(view([*line, {**noisy, "log_ratio": 0.04}]))
    assert entry.kind == "step"
    # What it was judged by last counts.
    (entry,) = entries(view([*line, noisy, comparison("x", "y", 0.025, created="2026-01-03")]))
    assert entry.worst.estimate == pytest.approx(0.025)


def test_the_id_stays_when_the_range_narrows_and_cases_join():
    other = CASE.replace("'a'", "'b'")
    first = [*LINE, code("a", "x"), code("d", "y"), comparison("x", "y", 0.03)]
    shown = view(first)
    (entry,) = entries(shown)
    filed = unfiled(shown, [entry], "A", "2026-01-04")
    assert len(filed) == 1
    narrowed = [*first, *filed, code("b", "y"), code("c", "y")]
    (again,) = entries(view(narrowed))
    assert (again.id, again.last_good, again.first_bad) == (entry.id, 0, 1)
    both = [code(s, i, case=other) for s, i in zip("abcd", "pqqq", strict=True)]
    joined = [*narrowed, *both, comparison("p", "q", 0.05, case=other)]
    (last,) = entries(view(joined))
    assert last.id == entry.id
    assert len(last.affected) == 2
    assert unfiled(view(joined), [last], "A", "2026-01-05") == []


def test_one_cause_for_cases_that_change_together():
    other = CASE.replace("'a'", "'b'")
    found = [*LINE, code("a", "x"), code("b", "y"), comparison("x", "y", 0.03)]
    found += [code("a", "p", case=other), code("b", "q", case=other), comparison("p", "q", 0.05, case=other)]
    (entry,) = entries(view(found))
    assert [affected.case for affected in entry.affected] == [other, CASE]


def test_what_people_decide():
    found = [*LINE, code("a", "x"), code("b", "y"), comparison("x", "y", 0.03)]
    (entry,) = entries(view(found))
    accepted = event("triage", entry.id, state="accepted", owner="Ada", note="split keys come", expires="2026-02-01")
    (decided,) = entries(view([*found, accepted]), datetime.date(2026, 1, 15))
    assert (decided.state, decided.owner, decided.open) == ("accepted", "Ada", False)
    (over,) = entries(view([*found, accepted]), DAY)
    assert over.expired
    assert over.open
    later = {**event("triage", entry.id, state="invalid"), "created": "2026-02-02"}
    (invalid,) = entries(view([*found, accepted, later]), DAY)
    assert (invalid.state, invalid.owner, invalid.open) == ("invalid", "Ada", False)


def test_a_regression_that_came_and_went_is_listed_as_recovered():
    """treeverse/dvc-bench 105."""
    found = [
        *LINE,
        code("a", "x"),
        code("b", "y"),
        code("c", "z"),
        comparison("x", "y", 0.03),
        comparison("y", "z", -0.03),
    ]
    (entry,) = entries(view(found))
    assert entry.recovered
    assert not entry.open
    reverted = [*LINE, code("a", "x"), code("b", "y"), code("c", "x"), comparison("x", "y", 0.03)]
    (entry,) = entries(view(reverted))
    assert entry.recovered


def test_creep_under_the_threshold_is_an_entry():
    """iree-org/iree 24258: five weeks of small steps under a threshold."""
    names = [f"{n:02d}" for n in range(40)]
    line = [commit(n, *([] if n == "00" else [names[int(n) - 1]])) for n in names]
    codes = [code(n, f"v{n}") for n in names]
    edges = [comparison(f"v{a}", f"v{b}", 0.0006, error=0.0002) for a, b in itertools.pairwise(names)]
    release = event("release", "v1", to="00" * 8)
    (entry,) = entries(view([*line, *codes, *edges, release]))
    assert (entry.kind, entry.last_good, entry.first_bad) == ("creep", 0, 39)
    assert entry.worst.estimate == pytest.approx(0.0234)
    assert entries(view([*line, *codes, *edges])) == []  # nothing to be held against
