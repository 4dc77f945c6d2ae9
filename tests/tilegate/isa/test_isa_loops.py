"""Finding loops in control flow, on graphs small enough to check by eye."""

from __future__ import annotations

from tilegate.isa.assembly import Block, Instruction
from tilegate.isa.loops import innermost_loops, main_loop


def blocks(*successors: tuple[int, ...], idle: dict[int, int] | None = None) -> tuple[Block, ...]:
    return tuple(
        Block((Instruction(f"v_{index}", ""),), targets, (idle or {}).get(index))
        for index, targets in enumerate(successors)
    )


def test_straight_code_has_no_loop() -> None:
    assert innermost_loops(blocks((1,), (2,), ())) == ()
    assert main_loop(blocks((1,), (2,), ()), lambda block: (1, 1)) is None


def test_a_block_that_jumps_to_itself_is_a_loop() -> None:
    (loop,) = innermost_loops(blocks((1,), (1, 2), ()))
    assert (loop.header, loop.blocks, loop.steady) == (1, frozenset({1}), frozenset({1}))


def test_only_the_innermost_of_nested_loops() -> None:
    # 1 is the outer header, 2 the inner one, which ends in 3; 4 closes the outer loop.
    (loop,) = innermost_loops(blocks((1,), (2,), (3,), (2, 4), (1, 5), ()))
    assert (loop.header, loop.blocks) == (2, frozenset({2, 3}))


def test_two_loops_after_one_another() -> None:
    first, second = innermost_loops(blocks((1,), (1, 2), (3,), (3, 4), ()))
    assert (first.header, second.header) == (1, 3)


def test_the_heavier_loop_is_the_main_one() -> None:
    graph = blocks((1,), (1, 2), (3,), (3, 4), ())
    loop = main_loop(graph, lambda block: (block.instructions[0].mnemonic == "v_3", 1))
    assert loop is not None
    assert loop.header == 3


def test_a_block_behind_a_uniform_branch_is_not_steady() -> None:
    # 2 is skipped by a branch from 1 to 3.
    (loop,) = innermost_loops(blocks((1,), (2, 3), (3,), (1, 4), ()))
    assert loop.blocks == {1, 2, 3}
    assert loop.steady == {1, 3}


def test_a_block_that_is_skipped_only_when_no_lane_is_left_is_steady() -> None:
    (loop,) = innermost_loops(blocks((1,), (2, 3), (3,), (1, 4), (), idle={1: 3}))
    assert loop.steady == {1, 2, 3}


def test_a_loop_with_two_ways_back_keeps_only_what_both_pass() -> None:
    # From 1 to 2 or 3, each of which goes back to 1 by itself.
    (loop,) = innermost_loops(blocks((1,), (2, 3), (1,), (1, 4), ()))
    assert loop.blocks == {1, 2, 3}
    assert loop.steady == {1}


def test_code_that_nothing_reaches_is_no_loop() -> None:
    assert innermost_loops(blocks((2,), (1,), ())) == ()
