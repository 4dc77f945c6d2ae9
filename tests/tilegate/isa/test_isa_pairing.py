"""Pairing kernels of two revisions, and the run's verdict."""

from __future__ import annotations

import pytest

from tilegate.isa.compare import Pair, pair, render, verdict_of
from tilegate.isa.rules import Change, Difference


@pytest.mark.parametrize(
    ("base", "head", "pairs"),
    [
        ({}, {}, {}),
        ({"a": ("1",)}, {"a": ("1",)}, {("a", "a"): ("1",)}),
        ({"a": ()}, {"a": ()}, {("a", "a"): ()}),
        ({"a": ("1", "2")}, {"a": ("1",), "b": ("2",)}, {("a", "a"): ("1",), ("a", "b"): ("2",)}),
        ({"a": ("1",), "b": ()}, {"b": ("1",)}, {("a", "b"): ("1",), ("b", "b"): ()}),
        ({"a": ("1",)}, {}, {("a", None): ("1",)}),
        ({"a": ()}, {"b": ()}, {("a", None): (), (None, "b"): ()}),
        ({}, {"b": ("1",)}, {(None, "b"): ("1",)}),
        # Two kernels of one configuration keep to their own kind.
        (
            {"a #scan": ("1",), "a #sum": ("1",)},
            {"b #sum": ("1",), "b #scan": ("1",)},
            {("a #scan", "b #scan"): ("1",), ("a #sum", "b #sum"): ("1",)},
        ),
    ],
)
def test_pairs(base: dict[str, tuple[str, ...]], head: dict[str, tuple[str, ...]], pairs: dict[object, object]) -> None:
    assert pair(base, head) == pairs


def made(verdict: str, cases: tuple[str, ...] = ("1",), name: str = "a", message: str = "x") -> Pair:
    return Pair("gfx942", name, name, cases, Difference(verdict, (Change("rule", "warning", message),)))


@pytest.mark.parametrize(
    ("verdicts", "result"),
    [
        (["pass", "unchanged", "improved", "new", "warning"], ("pass", 0)),
        (["pass", "regressed"], ("regressed", 1)),
        (["regressed", "broken"], ("broken", 3)),
        (["regressed", "inconclusive"], ("regressed", 1)),
        (["pass", "inconclusive"], ("inconclusive", 4)),
        (["pass", "removed"], ("inconclusive", 4)),
        ([], ("inconclusive", 4)),
    ],
)
def test_the_run_s_verdict(verdicts: list[str], result: tuple[str, int]) -> None:
    assert verdict_of(tuple(made(verdict) for verdict in verdicts)) == result


def test_a_removed_kernel_that_no_case_ran_is_no_hole() -> None:
    assert verdict_of((made("removed", cases=()), made("pass"))) == ("pass", 0)


def test_a_case_may_lose_its_kernel_with_the_base_s_leave() -> None:
    pairs = (made("removed", cases=("a.Run.latency_run(1)", "b.Run.latency_run(1)")), made("pass"))
    assert verdict_of(pairs, ("*.Run.*",)) == ("pass", 0)
    assert verdict_of(pairs, ("a.*", "b.Run.latency_run(?)")) == ("pass", 0)
    assert verdict_of(pairs, ("a.*",)) == ("inconclusive", 4)
    assert verdict_of((made("removed"), made("regressed")), ("*",)) == ("regressed", 1)


def test_names_from_a_revision_cannot_leave_their_code_span() -> None:
    report = render((made("warning", name="a`b``c\n# heading", message="`<img src=x>`"),), "pass", "base -> head")
    assert "``` a`b``c # heading ```" in report
    assert "`` `<img src=x>` ``" in report
    assert "\n# heading" not in report
