"""Every rule of the comparison, each with a planted change; and the verdicts that follow."""

from __future__ import annotations

import dataclasses

import pytest
from isa_fixtures import artifact, listing

from tilegate.isa import explain
from tilegate.isa.analysis import Analysis, failed
from tilegate.isa.checks import Problem
from tilegate.isa.chips import CHIPS
from tilegate.isa.figures import Figures, figures_of
from tilegate.isa.rules import RULES, Change, Difference, compare, figures_changed

BASE = figures_of(listing("loop-gfx942.s"), artifact("loop", 256), CHIPS["gfx942"])


def with_loop(
    counts: dict[str, object] | None = None, steady: dict[str, object] | None = None, **loop: object
) -> Figures:
    assert BASE.loop is not None
    changed = dataclasses.replace(
        BASE.loop,
        counts=dataclasses.replace(BASE.loop.counts, **(counts or {})),  # type: ignore[arg-type]
        steady=dataclasses.replace(BASE.loop.steady, **(steady or {})),  # type: ignore[arg-type]
        **loop,  # type: ignore[arg-type]
    )
    return dataclasses.replace(BASE, loop=changed)


def analysis(figures: Figures, identity: str = "base") -> Analysis:
    return Analysis("gfx942", figures, (), identity)


def differ(head: Figures, base: Figures = BASE) -> Difference:
    return compare(analysis(base), analysis(head, "head"))


def found(difference: Difference, rule: str) -> Change | None:
    return next((change for change in difference.changes if change.rule == rule), None)


PLANTED = [
    ("spills", "regressed", dataclasses.replace(BASE, vgpr_spills=25, scratch=104), "0 -> 25"),
    ("scratch", "regressed", dataclasses.replace(BASE, scratch=64), "0 -> 64"),
    ("occupancy", "regressed", dataclasses.replace(BASE, waves=1.0, registers=260), "8 -> 1"),
    ("scalar-spills", "warning", dataclasses.replace(BASE, sgpr_spills=4), "0 -> 4"),
    ("stack", "warning", dataclasses.replace(BASE, dynamic_stack=True), "unknown size"),
    ("narrow-lds", "warning", with_loop(counts={"lds_reads": {"2": 8}}), "4 -> 8"),
    ("agpr-copies", "warning", with_loop(steady={"agpr_copies": 25}), "9 -> 25"),
    ("barriers", "warning", with_loop(steady={"barriers": 3}), "2 -> 3"),
    ("memory-waits", "warning", with_loop(counts={"drains": 4}), "1 -> 4"),
    ("matrix-share", "warning", with_loop(matrix_share=0.1), "-> 10%"),
    ("figures", "info", dataclasses.replace(BASE, vgprs=30), "21 -> 30"),
]


@pytest.mark.parametrize(("rule", "severity", "head", "shown"), PLANTED)
def test_a_cause_has_a_direction(
    rule: str, severity: str, head: Figures, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explain, "find_toolchain", lambda arch: None)
    monkeypatch.setattr(explain, "analyse", lambda figures, *_: analysis(figures, str(id(figures))))
    message = next(change.message for change in differ(head).changes if change.rule == rule)
    assert message in explain.explain(BASE, head, "gfx942", object())  # type: ignore[arg-type]
    back = [change.message for change in differ(BASE, base=head).changes]
    causes = explain.explain(head, BASE, "gfx942", object())  # type: ignore[arg-type]
    assert causes in ([], ["none of the numbers of the compiled code that are compared got worse"])
    everything = explain.explain(head, BASE, "gfx942", object(), slower=False)  # type: ignore[arg-type]
    assert set(everything) == set(back)


def test_a_count_in_a_loop_that_does_other_work_has_no_direction() -> None:
    fewer = {"vector": 0}
    assert [better for better, _ in figures_changed(BASE, with_loop(counts=fewer))] == [True]
    other = with_loop(counts={**fewer, "matrix": 99})
    assert [better for better, _ in figures_changed(BASE, other)] == [False, False]
    assert [better for better, _ in figures_changed(BASE, dataclasses.replace(BASE, threads=64))] == [False]


def test_every_rule_has_a_planted_change() -> None:
    assert {rule for rule, *_ in PLANTED} == set(RULES)


@pytest.mark.parametrize(("rule", "severity", "head", "text"), PLANTED, ids=[rule for rule, *_ in PLANTED])
def test_a_planted_change_is_found(rule: str, severity: str, head: Figures, text: str) -> None:
    change = found(differ(head), rule)
    assert change is not None
    assert change.severity == severity
    assert text in change.message


@pytest.mark.parametrize(
    ("rule", "severity", "head"), [planted[:3] for planted in PLANTED], ids=[p[0] for p in PLANTED]
)
def test_the_verdict_follows_the_worst_change(rule: str, severity: str, head: Figures) -> None:
    assert differ(head).verdict == ("pass" if severity == "info" else severity)


@pytest.mark.parametrize(
    ("rule", "severity", "worse"),
    [planted[:3] for planted in PLANTED if planted[0] not in ("figures", "stack")],
    ids=[p[0] for p in PLANTED if p[0] not in ("figures", "stack")],
)
def test_the_opposite_change_is_an_improvement(rule: str, severity: str, worse: Figures) -> None:
    difference = differ(BASE, base=worse)
    change = found(difference, rule)
    assert change is not None
    assert change.severity == "improved"
    assert difference.verdict == "improved"


def test_no_change_in_the_numbers_passes() -> None:
    assert differ(BASE) == Difference("pass", ())


def test_equal_source_is_unchanged_whatever_the_numbers() -> None:
    worse = dataclasses.replace(BASE, vgpr_spills=5)
    assert compare(analysis(BASE), analysis(worse)) == Difference("unchanged", ())


def test_small_changes_of_estimates_and_copies_say_nothing() -> None:
    assert BASE.loop is not None
    head = with_loop(steady={"agpr_copies": 9 + 15}, matrix_share=BASE.loop.matrix_share * 0.96)
    assert differ(head).verdict == "pass"


@pytest.mark.parametrize(
    "head",
    [
        dataclasses.replace(
            with_loop(counts={"lds_reads": {"2": 99}}, steady={"barriers": 9, "agpr_copies": 99}), threads=512
        ),
        with_loop(counts={"lds_reads": {"2": 99}, "drains": 9, "matrix": 2}, steady={"barriers": 9, "agpr_copies": 99}),
    ],
    ids=["threads", "matrix"],
)
def test_counts_of_rounds_that_do_other_work_are_not_compared(head: Figures) -> None:
    assert differ(head).verdict == "pass"


def broken() -> Analysis:
    return Analysis("gfx942", BASE, (Problem("lds", "broken", "needs 67,584 bytes"),), "broken")


def test_a_head_that_cannot_launch_is_broken() -> None:
    difference = compare(analysis(BASE), broken())
    assert difference.verdict == "broken"
    assert difference.changes[0].message == "needs 67,584 bytes"


def test_a_head_that_does_not_compile_is_broken() -> None:
    assert compare(analysis(BASE), failed("gfx942", "compile", "does not compile")).verdict == "broken"


def test_a_base_that_could_not_launch_and_now_can_is_an_improvement() -> None:
    assert compare(broken(), analysis(BASE, "head")).verdict == "improved"
    assert compare(failed("gfx942", "compile", "no"), analysis(BASE, "head")).verdict == "improved"


def test_two_broken_sides_are_inconclusive() -> None:
    assert compare(broken(), failed("gfx942", "compile", "no")).verdict == "inconclusive"


def test_new_and_removed() -> None:
    assert compare(None, analysis(BASE)).verdict == "new"
    assert compare(None, broken()).verdict == "broken"
    assert compare(analysis(BASE), None).verdict == "removed"


def test_nonsense_is_refused() -> None:
    with pytest.raises(ValueError, match="neither"):
        compare(None, None)
    with pytest.raises(ValueError, match="gfx90a"):
        compare(analysis(BASE), Analysis("gfx90a", BASE, (), "head"))


def test_changes_come_worst_first() -> None:
    head = dataclasses.replace(with_loop(steady={"barriers": 3}), vgpr_spills=1, vgprs=30)
    severities = [change.severity for change in differ(head).changes]
    assert severities == sorted(severities, key=["regressed", "warning", "improved", "info"].index)
    assert severities[0] == "regressed"
