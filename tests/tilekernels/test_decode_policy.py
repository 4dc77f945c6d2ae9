"""Tiles and splits of the decode kernels: every tile fits, and the keys are split until the chip is full."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilekernels import decode, mla
from tilekernels.chips import CHIPS
from tilekernels.policy import DTYPES_OF

H200, MI300X = CHIPS["sm_90"], CHIPS["gfx942"]


def problem(batch, context, seqlen_q=1):
    return decode.DecodeProblem(batch, 28, 4, seqlen_q, context, 16, 128, "bfloat16")


@pytest.mark.parametrize("chip", CHIPS.values(), ids=CHIPS)
def test_every_tile_fits_its_chip(chip):
    dtype = DTYPES_OF[chip.kind][-1]
    for head_dim in (64, 128):
        for tile in (*decode.TILES[chip.arch], decode.FIXED[chip.arch]):
            assert decode.fits(tile, head_dim, dtype, chip) == ()
    for tile in (*mla.TILES[chip.arch], mla.FIXED[chip.arch]):
        assert mla.fits(tile, dtype, chip) == ()


def test_a_tile_that_does_not_fit_is_told():
    (said,) = mla.fits(mla.MlaTile(64, 64, 256, q_in="registers"), "bfloat16", MI300X)
    assert said == "needs 75776 bytes of shared memory, a workgroup has 65536"
    (said,) = decode.fits(decode.DecodeTile(16, 64, 256), 128, "bfloat16", MI300X)
    assert said == "16 rows are not a multiple of 64, 16 for each wavefront"


@given(
    tiles=st.integers(0, 5000),
    groups=st.integers(1, 5000),
    room=st.integers(1, 2000),
)
def test_splits_are_never_more_than_tiles(tiles, groups, room):
    splits = decode.fewest_steps(tiles, groups, room)
    assert 1 <= splits <= max(1, min(tiles, decode.MAX_SPLITS))
    if groups >= room and groups % room == 0:  # whole rounds already: splitting only adds work
        assert splits == 1


@pytest.mark.parametrize("chip", [H200, MI300X], ids=lambda chip: chip.name)
def test_one_long_sequence_fills_most_of_the_chip_and_many_are_not_split(chip):
    long, many = problem(1, 32768), problem(1024, 4096)
    tile = decode.choose_tile(long, chip)
    assert decode.choose_splits(long, chip, tile) * 4 > chip.compute_units / 2
    # The last of many rounds is not full, and a few parts more fill it.
    assert decode.choose_splits(many, chip, tile) <= 3


def test_room_is_what_the_compiled_code_leaves():
    """As `tilegate isa` reads it from the kernels for the MI300X."""
    small, large = decode.TILES["gfx942"]
    work = problem(1, 4096)
    assert [decode.workgroups_per_unit(work, MI300X, tile) for tile in (small, large)] == [4, 2]
    assert {decode.shared_bytes(tile, 128, "bfloat16", MI300X) for tile in (small, large)} == {16384}
    latent = mla.MlaProblem(1, 16, 1, 4096, 64, "bfloat16")
    assert [mla.workgroups_per_unit(latent, MI300X, tile) for tile in mla.TILES["gfx942"]] == [3, 1]


def test_the_fixed_policy_splits_as_often_whatever_the_problem():
    for work in (problem(1, 32768), problem(128, 1024)):
        for chip in (H200, MI300X):
            assert decode.choose_splits(work, chip, decode.choose_tile(work, chip, "fixed")) == decode.FIXED_SPLITS


def test_all_heads_of_a_group_share_a_tile():
    for seqlen_q in range(1, 9):
        work = problem(1, 4096, seqlen_q)
        for chip in (H200, MI300X):
            assert decode.choose_tile(work, chip).block_m >= work.rows
    latent = mla.MlaProblem(1, 16, 1, 4096, 64, "bfloat16")
    assert mla.choose_tile(latent, MI300X).block_m == 16


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: decode.DecodeProblem(1, 7, 2, 1, 64, 16, 64, "float16"), "heads must be a multiple of kv_heads"),
        (lambda: decode.DecodeProblem(1, 4, 2, 1, 64, 12, 64, "float16"), "page_size must be a power of two, got 12"),
        (lambda: decode.DecodeProblem(1, 4, 2, 1, 64, 16, 80, "float16"), "head_dim must be one of"),
        (lambda: mla.MlaProblem(1, 0, 1, 64, 16, "float16"), "heads must be between 1 and 65535, got 0"),
        (lambda: mla.MlaProblem(1, 16, 1, 64, 24, "float16"), "page_size must be a power of two, got 24"),
        (lambda: mla.MlaProblem(1, 16, 1, 64, 16, "float8"), "dtype must be one of"),
    ],
)
def test_a_problem_that_no_kernel_can_run_is_refused(make, said):
    with pytest.raises(ValueError, match=said):
        make()
