"""The tiles of a backward pass: within every limit, pure, few, and of the size that the shape asks for."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from problem_strategies import chips, problems

from benchmarks.families.backward import WORKLOADS
from benchmarks.problems import problem as problem_of
from tilekernels.backward import BackwardKernel, BackwardSpec, FusedBackwardKernel, backward_kernel
from tilekernels.backward_policy import (
    BackwardTile,
    Blocks,
    backward_variants,
    choose_backward_tile,
    fits,
    rows_seen,
    shared_bytes,
)
from tilekernels.chips import CHIPS, Chip
from tilekernels.policy import DTYPES_OF, POLICIES
from tilekernels.problem import HEAD_DIMS, AttentionProblem

PROBLEM = AttentionProblem(1, 28, 4, 4096, 4096, 128, "float16", True)
policies = st.sampled_from(POLICIES)


@given(chips.flatmap(lambda chip: st.tuples(st.just(chip), problems(chip))), policies)
def test_every_legal_problem_gets_a_tile_that_fits_and_is_listed(case: tuple, policy: str) -> None:
    chip, problem = case
    tile = choose_backward_tile(problem, chip, policy)
    assert fits(tile, problem.head_dim, problem.dtype, chip) == ()
    assert tile in backward_variants(chip, problem.head_dim, problem.dtype, policy)
    assert choose_backward_tile(replace(problem), replace(chip), policy) == tile


@pytest.mark.parametrize("chip", CHIPS.values(), ids=CHIPS)
def test_few_kernels_serve_everything(chip: Chip) -> None:
    for head_dim in HEAD_DIMS:
        for dtype in DTYPES_OF[chip.kind]:
            both = {tile for policy in POLICIES for tile in backward_variants(chip, head_dim, dtype, policy)}
            assert 2 <= len(both) <= 3


@pytest.mark.parametrize("arch", ["gfx942", "gfx90a", "gfx950", "sm_90"])
def test_long_sequences_get_large_tiles_and_short_ones_fill_the_chip(arch: str) -> None:
    def keys(length: int, batch: int = 1) -> int:
        problem = replace(PROBLEM, batch=batch, seqlen_q=length, seqlen_k=length)
        return choose_backward_tile(problem, CHIPS[arch]).keys.block_n

    assert keys(1024) < keys(32768)
    assert keys(1024) < keys(1024, batch=64)


def lowered():
    """A kernel of each tile; the smallest tile of two chips is quick."""
    for arch in ("gfx942", "gfx950", "sm_90"):
        *others, smallest = dict.fromkeys(backward_variants(CHIPS[arch], 128, "bfloat16"))
        for tile in (*others, smallest):
            kernel = BackwardKernel(CHIPS[arch], BackwardSpec(128, "bfloat16", True), tile)
            quick = tile == smallest and arch != "gfx950"
            yield pytest.param(kernel, id=repr(kernel), marks=() if quick else pytest.mark.thorough)


@pytest.mark.parametrize("kernel", lowered())
def test_a_kernel_lowers_and_asks_for_the_shared_memory_that_was_foreseen(kernel: BackwardKernel) -> None:
    rows, *gradients = kernel.artifacts()
    foreseen = shared_bytes(kernel.tile, 128, "bfloat16", kernel.chip)
    assert [made.launch["dynamic_shared_bytes"] for made in gradients] == list(foreseen)
    assert all(made.launch["dynamic_shared_bytes"] <= kernel.chip.lds_bytes for made in (rows, *gradients))
    for made, blocks in zip(gradients, (kernel.tile.keys, kernel.tile.queries), strict=True):
        # On Hopper TileLang adds a warpgroup that only loads.
        extra = 128 if kernel.chip.kind == "cuda" else 0
        assert made.launch["block"] == [blocks.threads + extra, 1, 1]
        assert "atomic" not in made.source.lower().replace("#include <tl_templates/cuda/atomic.h>", "")
    assert gradients[0].launch["grid"][0] == "kv_heads"
    assert gradients[1].launch["grid"][0] == "heads"


def test_hopper_leaves_every_load_of_the_loop_to_the_warps_that_only_load() -> None:
    kernel = backward_kernel(replace(PROBLEM, dtype="bfloat16"), device="sm_90")
    for made in kernel.artifacts()[1:]:
        producer, consumer = made.source.split("warpgroup_reg_dealloc", 1)[1].split("warpgroup_reg_alloc", 1)
        assert "tma_load" in producer
        assert "tma_load" not in consumer


@pytest.mark.parametrize("blocks", ["64x128/256/2", pytest.param("64x128/256/2o", marks=pytest.mark.thorough)])
def test_hopper_sums_by_the_tensor_memory_accelerator(blocks: str) -> None:
    spec = BackwardSpec(128, "bfloat16", True)
    rows, fused, cast = FusedBackwardKernel(CHIPS["sm_90"], spec, Blocks.parse(blocks)).artifacts()
    assert "tma_store_add" in fused.source
    assert fused.launch["dynamic_shared_bytes"] <= CHIPS["sm_90"].lds_bytes
    assert rows.launch["block"] == cast.launch["block"] == [256, 1, 1]


@pytest.mark.parametrize(
    ("arch", "keys", "queries", "says"),
    [
        ("gfx942", {"block_m": 128}, {}, "keys: needs 98304 bytes of shared memory, a workgroup has 65536"),
        ("gfx942", {"num_stages": 2}, {}, "keys: num_stages is ignored on gfx942"),
        ("gfx942", {}, {"threads": 96}, "queries: 96 threads are not whole wavefronts of 64"),
        ("gfx942", {"block_n": 64}, {}, "keys: 64 held rows are not a multiple of 128"),
        ("gfx942", {"block_m": 48}, {}, "keys: 48 rows do not divide 128"),
        ("cpu", {"block_m": 128, "block_n": 512}, {}, "keys: 512 threads, a workgroup has at most 1"),
    ],
)
def test_what_does_not_fit_is_told(arch: str, keys: dict, queries: dict, says: str) -> None:
    large = choose_backward_tile(PROBLEM, CHIPS["gfx942"], "fixed")
    tile = BackwardTile(replace(large.keys, **keys), replace(large.queries, **queries))
    assert any(says in limit for limit in fits(tile, 128, "float16", CHIPS[arch])), fits(
        tile, 128, "float16", CHIPS[arch]
    )


@pytest.mark.parametrize("text", ["64x128/256/2", "64x128/512/1r", "128x64/256/2o", "1x2/3/4ro"])
def test_blocks_are_read_as_they_are_spelled(text: str) -> None:
    assert str(Blocks.parse(text)) == text


@pytest.mark.parametrize("text", ["", "64x128", "64x128/256/2x", "64x128/256/0"])
def test_what_is_no_tile_is_told(text: str) -> None:
    with pytest.raises(ValueError, match=r"no tile|num_stages"):
        Blocks.parse(text)


def test_what_has_no_tile_is_told() -> None:
    with pytest.raises(ValueError, match="policy must be one of"):
        choose_backward_tile(PROBLEM, CHIPS["gfx942"], "best")
    with pytest.raises(TypeError, match="bfloat16 is not supported on cpu"):
        choose_backward_tile(replace(PROBLEM, dtype="bfloat16"), CHIPS["cpu"])
    for field, value in (("block_m", 0), ("threads", -1), ("held", "lds")):
        with pytest.raises(ValueError, match=field):
            Blocks(**{"block_m": 64, "block_n": 64, "threads": 256, field: value})


@given(st.integers(0, 700), st.integers(0, 700), st.booleans(), st.sampled_from([16, 64]), st.sampled_from([32, 128]))
def test_rows_are_counted_as_the_kernel_walks_them(
    seqlen_q: int, seqlen_k: int, causal: bool, block_m: int, block_n: int
) -> None:
    problem = replace(PROBLEM, seqlen_q=seqlen_q, seqlen_k=seqlen_k, causal=causal)
    walked = []
    for first in range(0, seqlen_k, block_n):
        start = max(0, first - seqlen_k + seqlen_q) // block_m if causal else 0
        walked.append((-(-seqlen_q // block_m) - start) * block_m)
    longest, total = rows_seen(problem, block_m, block_n)
    assert longest == max(walked, default=longest)
    assert abs(total - sum(walked)) <= len(walked) * block_m / 2


@pytest.mark.parametrize("work", WORKLOADS, ids=lambda work: work.id)
def test_the_table_of_workloads_fits_every_chip(work) -> None:
    for chip in CHIPS.values():
        if work.dtype in DTYPES_OF[chip.kind]:
            for policy in POLICIES:
                tile = choose_backward_tile(problem_of(work), chip, policy)
                assert fits(tile, work.head_dim, work.dtype, chip) == ()
