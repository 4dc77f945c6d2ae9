"""The checks of one kernel by itself."""

from __future__ import annotations

import dataclasses

import pytest
from isa_fixtures import artifact, listing

from tilegate.isa.checks import Problem, check
from tilegate.isa.chips import CHIPS
from tilegate.isa.figures import Figures, figures_of
from tilegate.protocol import Artifact

CHIP = CHIPS["gfx942"]
ARTIFACT = artifact("loop", 256)


def figures(**changed: object) -> Figures:
    return dataclasses.replace(figures_of(listing("loop-gfx942.s"), ARTIFACT, CHIP), **changed)  # type: ignore[arg-type]


def only(found: tuple[Problem, ...]) -> Problem:
    (problem,) = found
    return problem


def test_nothing_is_wrong_with_a_good_kernel() -> None:
    assert check(figures(), ARTIFACT, CHIP) == ()


def test_lds_over_the_limit_is_spelled_out() -> None:
    text = """
  void* q = ((void*)((char*)buf_dyn_shmem + 0));
  void* k = ((void*)((char*)buf_dyn_shmem + 32768));
  void* v = ((void*)((char*)buf_dyn_shmem + 49152));
  void* workspace = ((void*)((char*)buf_dyn_shmem + 65536));
"""
    big = Artifact("k", text, {"block": [256], "dynamic_shared_bytes": 67584})
    problem = only(check(figures(lds=67584, lds_static=0, lds_dynamic=67584, workgroups=0), big, CHIP))
    assert (problem.check, problem.severity) == ("lds", "broken")
    assert "q 32,768 + k 16,384 + v 16,384 + workspace 2,048 = 67,584 bytes of LDS" in problem.message
    assert "65,536" in problem.message


def test_lds_over_the_limit_without_names() -> None:
    problem = only(check(figures(lds=70000, lds_static=4464, lds_dynamic=65536, workgroups=0), ARTIFACT, CHIP))
    assert "4,464 static + 65,536 dynamic = 70,000 bytes" in problem.message


def test_the_limit_itself_is_allowed() -> None:
    assert check(figures(lds=65536, workgroups=1), ARTIFACT, CHIP) == ()


def test_too_many_threads() -> None:
    problem = only(check(figures(threads=2048, workgroups=0), ARTIFACT, CHIP))
    assert (problem.check, problem.severity) == ("threads", "broken")


def test_registers_that_leave_no_room_for_a_workgroup() -> None:
    problem = only(check(figures(threads=1024, registers=256, waves_by_registers=2, workgroups=0), ARTIFACT, CHIP))
    assert (problem.check, problem.severity) == ("launch", "broken")
    assert "256 registers" in problem.message
    assert "16" in problem.message


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"vgpr_spills": 25, "scratch": 104}, "spills"),
        ({"scratch": 64}, "scratch"),
        ({"sgpr_spills": 3}, "sgpr-spills"),
        ({"dynamic_stack": True}, "stack"),
    ],
)
def test_what_runs_slower_than_it_should_is_a_warning(changed: dict[str, object], name: str) -> None:
    problem = only(check(figures(**changed), ARTIFACT, CHIP))
    assert (problem.check, problem.severity) == (name, "warning")
