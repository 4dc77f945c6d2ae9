"""The table of workloads: stable, complete, and what its numbers mean."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from benchmarks.workloads import WORKLOADS, Workload, select, workload
from tilegate.protocol import TARGETS, TIERS, Selection

SNAPSHOT = Path(__file__).with_name("workloads.txt")


def _problem(work: Workload) -> tuple[object, ...]:
    return (
        work.batch,
        work.heads,
        work.kv_heads,
        work.seqlen_q,
        work.seqlen_k,
        work.head_dim,
        work.dtype,
        work.causal,
    )


def _line(work: Workload) -> str:
    return " ".join([work.id, *map(str, _problem(work))])


def test_no_id_has_gone_or_means_another_problem():
    """Results are filed under these ids.

    Append new lines to workloads.txt; never change one, or a series of results silently measures something else.
    """
    assert [_line(work) for work in WORKLOADS] == SNAPSHOT.read_text().splitlines()


def test_ids_are_unique():
    ids = [work.id for work in WORKLOADS]
    assert len(ids) == len(set(ids))


def test_no_problem_is_measured_twice():
    problems = [(_problem(work), target) for work in WORKLOADS for target in work.targets]
    assert len(problems) == len(set(problems))


@pytest.mark.parametrize("work", WORKLOADS, ids=lambda work: work.id)
def test_an_id_says_what_is_measured(work):
    assert f"-b{work.batch}-" in work.id or work.targets == ("cpu",)
    for length in {work.seqlen_q, work.seqlen_k}:
        assert any(f"{letter}{length}" in work.id for letter in "sqk") or length == 1


@pytest.mark.parametrize("target", TARGETS)
def test_each_tier_holds_the_smaller_ones(target):
    smoke, pr, full = (select(Selection(target, tier)) for tier in TIERS)
    assert smoke
    assert set(smoke) < set(pr) < set(full)
    assert all(target in work.targets for work in full)


@pytest.mark.parametrize("target", TARGETS)
def test_smoke_covers_what_breaks_kernels(target):
    smoke = select(Selection(target, "smoke"))
    assert {work.head_dim for work in smoke} == {64, 128}
    assert any(work.seqlen_q < work.seqlen_k for work in smoke)
    assert any(work.seqlen_q % 16 for work in smoke)


def test_smoke_on_the_cpu_has_every_ratio_of_heads():
    smoke = select(Selection("cpu", "smoke"))
    assert {1, 5, 6, 7, 8} <= {work.heads // work.kv_heads for work in smoke}
    assert any(not work.causal for work in smoke)
    assert any(work.seqlen_q > work.seqlen_k for work in smoke)
    assert {work.dtype for work in smoke} == {"float32", "float16"}


def test_smoke_on_the_cpu_is_a_matter_of_milliseconds():
    # About 5 GFLOP/s on one core: 0.02 GFLOP are 4 ms, and a tile that is not full costs as much as one that is.
    assert all(work.flops < 0.03e9 for work in select(Selection("cpu", "smoke")))


def test_both_gpu_targets_measure_the_same():
    assert select(Selection("cuda", "full")) == select(Selection("hip", "full"))


def test_a_workload_is_found_by_id():
    assert workload("prefill-7b-b1-s1024") is next(w for w in WORKLOADS if w.id == "prefill-7b-b1-s1024")
    with pytest.raises(ValueError, match="prefill-8b"):
        workload("prefill-8b")


def _flops(**changes: object) -> int:
    plain = Workload("x", 1, 2, 1, 128, 128, 64, "float16", False, ("cpu",), "smoke", "")
    return dataclasses.replace(plain, **changes).flops


def test_flops_are_two_products_of_two_operations_a_pair():
    assert _flops() == 4 * 1 * 2 * 128 * 128 * 64
    assert _flops(batch=3) == 3 * _flops()
    assert _flops(seqlen_q=1, seqlen_k=1000) == 4 * 2 * 1000 * 64


def test_a_causal_mask_halves_a_square():
    assert 2 * _flops(causal=True) == _flops()


def test_causal_over_a_cache_counts_the_cache_in_full():
    # 16 rows over 112 cached keys and themselves
    assert _flops(causal=True, seqlen_q=16) == _flops(seqlen_q=16, seqlen_k=112) + _flops(
        causal=True, seqlen_q=16, seqlen_k=16
    )


def test_rows_that_see_nothing_cost_nothing():
    assert _flops(causal=True, seqlen_q=500) == _flops(causal=True)


def test_one_row_sees_all_keys_but_half_a_pair():
    assert _flops(causal=True, seqlen_q=1) == pytest.approx(_flops(seqlen_q=1), rel=1 / 128)


def test_flops_and_bytes_by_hand():
    full, causal = (
        Workload("x", 2, 8, 2, 3, 5, 64, "float16", causal, ("cpu",), "smoke", "") for causal in (False, True)
    )
    assert full.flops == 4 * 2 * 8 * 3 * 5 * 64
    assert causal.flops == 2 * 2 * 8 * 64 * 3 * (2 * 5 - 3)
    q, k, lse = 2 * 3 * 8 * 64, 2 * 5 * 2 * 64, 2 * 8 * 3
    assert full.bytes == causal.bytes == 2 * (q + k + k + q) + 4 * lse
