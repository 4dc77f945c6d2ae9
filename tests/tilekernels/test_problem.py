"""What an attention problem may be."""

from dataclasses import asdict, replace

import pytest
from hypothesis import given
from problem_strategies import problems

from tilekernels.problem import MAX_BATCH, MAX_SEQLEN, AttentionProblem

PROBLEM = AttentionProblem(2, 28, 4, 1024, 2048, 128, "bfloat16", True)


def test_group_is_the_query_heads_of_a_key_head() -> None:
    assert PROBLEM.group == 7
    assert PROBLEM.tokens == 2048


@given(problems())
def test_legal_problems_are_values(problem: AttentionProblem) -> None:
    assert AttentionProblem(**asdict(problem)) == problem
    assert problem.heads == problem.group * problem.kv_heads


@pytest.mark.parametrize("group", [1, 2, 4, 5, 6, 7, 8])
def test_any_group_size_that_divides(group: int) -> None:
    assert replace(PROBLEM, heads=3 * group, kv_heads=3).group == group


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"batch": -1}, ValueError, "batch must be between 0 and 65535, got -1"),
        ({"batch": MAX_BATCH + 1}, ValueError, "batch must be between"),
        ({"batch": 2.0}, TypeError, "batch must be an int, got 2.0"),
        ({"batch": True}, TypeError, "batch must be an int"),
        ({"heads": 0}, ValueError, "heads must be between 1"),
        ({"kv_heads": 0}, ValueError, "kv_heads must be between 1"),
        ({"heads": 30}, ValueError, "heads must be a multiple of kv_heads .*, got 30 and 4"),
        ({"heads": 2}, ValueError, "heads must be a multiple of kv_heads"),
        ({"seqlen_q": -5}, ValueError, "seqlen_q must be between 0"),
        ({"seqlen_k": MAX_SEQLEN + 1}, ValueError, "seqlen_k must be between 0"),
        ({"head_dim": 100}, ValueError, r"head_dim must be one of \(64, 128\), got 100"),
        ({"dtype": "float64"}, ValueError, "dtype must be one of .*'float64'"),
        ({"causal": 1}, TypeError, "causal must be a bool, got 1"),
    ],
)
def test_illegal_problems_are_named(change: dict, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        replace(PROBLEM, **change)


def test_the_grid_has_room_for_the_largest_problem() -> None:
    from tilekernels.chips import CHIPS
    from tilekernels.policy import TILES

    for (arch, _), table in TILES.items():
        if CHIPS[arch].kind != "cpu":
            smallest = min(tile.block_m for tile in (table.fixed, *(c.tile for c in table.adaptive)))
            assert -(-MAX_SEQLEN // smallest) <= 65_535
    assert MAX_BATCH <= 65_535
