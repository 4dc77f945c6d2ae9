"""The tile policy: total, pure, within every limit, and sparing with variants."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from problem_strategies import chips, problems

from benchmarks.workloads import WORKLOADS
from tilekernels.chips import CHIPS
from tilekernels.policy import (
    DTYPES_OF,
    POLICIES,
    TileConfig,
    choose_tiles,
    fits,
    register_estimate,
    shared_bytes,
    variants,
)
from tilekernels.problem import HEAD_DIMS, AttentionProblem

PROBLEM = AttentionProblem(1, 28, 4, 4096, 4096, 128, "float16", True)
policies = st.sampled_from(POLICIES)


@given(chips.flatmap(lambda chip: st.tuples(st.just(chip), problems(chip))), policies)
def test_every_legal_problem_gets_a_tile_that_fits_and_is_listed(case: tuple, policy: str) -> None:
    chip, problem = case
    tile = choose_tiles(problem, chip, policy)
    assert fits(tile, problem, chip) == ()
    assert tile in variants(chip, problem.head_dim, problem.dtype, policy)
    assert choose_tiles(replace(problem), replace(chip), policy) == tile


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("work", WORKLOADS, ids=lambda work: work.id)
def test_the_whole_workload_table_fits_every_chip(work: object, policy: str) -> None:
    names = ("batch", "heads", "kv_heads", "seqlen_q", "seqlen_k", "head_dim", "dtype", "causal")
    problem = AttentionProblem(**{name: getattr(work, name) for name in names})
    tried = [chip for chip in CHIPS.values() if problem.dtype in DTYPES_OF[chip.kind]]
    assert len(tried) >= 1
    assert {chip.kind for chip in tried} >= set(work.targets)
    for chip in tried:
        assert fits(choose_tiles(problem, chip, policy), problem, chip) == ()


@given(chips.flatmap(lambda chip: st.tuples(st.just(chip), problems(chip))), st.integers(1, 400))
def test_a_chip_of_any_size_gets_a_listed_tile(case: tuple, compute_units: int) -> None:
    chip, problem = case
    tile = choose_tiles(problem, replace(chip, compute_units=compute_units))
    assert tile in variants(chip, problem.head_dim, problem.dtype)


@pytest.mark.parametrize("chip", CHIPS.values(), ids=CHIPS)
def test_few_kernels_serve_everything(chip: object) -> None:
    for head_dim in HEAD_DIMS:
        for dtype in DTYPES_OF[chip.kind]:
            both = {tile for policy in POLICIES for tile in variants(chip, head_dim, dtype, policy)}
            assert 2 <= len(both) <= 6


@pytest.mark.parametrize("arch", ["gfx942", "gfx90a", "gfx950", "sm_90"])
def test_long_prompts_get_large_tiles_and_short_ones_fill_the_chip(arch: str) -> None:
    chip = CHIPS[arch]
    largest = max(tile.block_m for tile in variants(chip, 128, "float16"))

    def rows(length: int, batch: int = 1) -> int:
        return choose_tiles(replace(PROBLEM, batch=batch, seqlen_q=length, seqlen_k=length), chip).block_m

    by_length = [rows(length) for length in (128, 1024, 4096, 16384, 65536)]
    assert by_length == sorted(by_length)
    assert by_length[0] < largest
    assert by_length[-1] == largest
    # The same short prompt, many of them: the grid is full whatever the tile. 384 rows are whole tiles of any size.
    assert rows(384) < largest
    many = choose_tiles(replace(PROBLEM, batch=64, seqlen_q=384, seqlen_k=384), chip)
    assert many.block_m == largest or many.resident > 1  # where two workgroups share a unit, small ones keep it as busy


def test_above_16k_tokens_rows_and_keys_come_in_128_and_64() -> None:
    for batch in (1, 2, 4, 8, 16):
        length = 16384 // batch
        tile = choose_tiles(replace(PROBLEM, batch=batch, seqlen_q=length, seqlen_k=length), CHIPS["gfx942"])
        assert tile.block_m % 128 == 0
        assert tile.block_n % 64 == 0


def test_fewer_compute_units_are_filled_by_larger_tiles() -> None:
    problem = replace(PROBLEM, seqlen_q=1024, seqlen_k=1024)
    mi308x = replace(CHIPS["gfx942"], compute_units=80)
    assert choose_tiles(problem, CHIPS["gfx942"]).block_m < choose_tiles(problem, mi308x).block_m


def test_fixed_ignores_the_shape() -> None:
    for chip in CHIPS.values():
        lengths = (1, 1000, 100_000)
        assert len({choose_tiles(replace(PROBLEM, seqlen_q=s), chip, "fixed") for s in lengths}) == 1


# Dynamic LDS that TileLang asked for when the kernels of these shapes were lowered for gfx942.
@pytest.mark.parametrize(
    ("shape", "wanted"),
    [
        ((128, 128, 64, 256, "shared"), 50176),
        ((128, 128, 64, 256, "registers"), 17408),
        ((128, 128, 64, 512, "registers"), 16384),
        ((128, 128, 128, 256, "shared"), 66560),
        ((128, 128, 128, 256, "registers"), 33792),
        ((128, 64, 64, 256, "shared"), 32768),
        ((128, 64, 64, 256, "registers"), 16384),
        ((128, 128, 32, 256, "registers"), 9216),
        ((64, 128, 64, 256, "shared"), 25600),
        ((64, 128, 64, 512, "registers"), 8192),
        ((64, 256, 16, 1024, "registers"), 4096),
    ],
)
def test_shared_memory_is_what_the_compiler_asks_for(shape: tuple[int, int, int, int, str], wanted: int) -> None:
    head_dim, block_m, block_n, threads, q_in = shape
    tile = TileConfig(block_m, block_n, threads, q_in=q_in)
    assert shared_bytes(tile, head_dim, "float16", CHIPS["gfx942"]) == wanted
    problem = replace(PROBLEM, head_dim=head_dim)
    launches = not any("shared memory" in limit for limit in fits(tile, problem, CHIPS["gfx942"]))
    assert launches == (wanted <= 65536)


# VGPRs + AGPRs that clang 19 took for the kernels of these shapes on gfx942.
@pytest.mark.parametrize(
    ("shape", "taken"),
    [
        ((128, 128, 64, 256, "shared"), 220 + 92),
        ((128, 128, 64, 256, "registers"), 216 + 92),
        ((128, 128, 64, 512, "registers"), 121),
        ((128, 128, 128, 256, "shared"), 256 + 136),
        ((128, 128, 128, 256, "registers"), 256 + 134),
        ((128, 64, 64, 256, "shared"), 162 + 32),
        ((128, 64, 64, 256, "registers"), 144 + 32),
        ((128, 128, 32, 256, "registers"), 171 + 64),
        ((64, 128, 64, 256, "shared"), 152 + 32),
        ((64, 128, 64, 512, "registers"), 86),
    ],
)
def test_the_register_estimate_follows_the_compiler(shape: tuple[int, int, int, int, str], taken: int) -> None:
    head_dim, block_m, block_n, threads, q_in = shape
    estimate = register_estimate(TileConfig(block_m, block_n, threads, q_in=q_in), head_dim, "float16", "hip")
    assert abs(estimate - taken) <= 30


@pytest.mark.parametrize(
    ("arch", "tile", "says"),
    [
        ("gfx942", TileConfig(128, 128, 256), "needs 66560 bytes of shared memory, a workgroup has 65536"),
        ("gfx942", TileConfig(256, 64, 256, q_in="registers"), "registers a lane, there are 512"),
        ("gfx942", TileConfig(64, 64, 32), "not whole wavefronts of 64"),
        ("gfx942", TileConfig(64, 64, 32), "TileLang's gemm needs 64"),
        ("gfx942", TileConfig(64, 64, 512), "64 rows are not a multiple of 128"),
        ("gfx950", TileConfig(128, 64, 256, num_stages=2), "does not lower on gfx950"),
        ("sm_90", TileConfig(64, 64, 256), "64 rows are not a multiple of 128, 16 for each wavefront"),
        ("sm_90", TileConfig(128, 128, 256, num_stages=4), "bytes of shared memory"),
        ("sm_90", TileConfig(128, 128, 2048), "2048 threads, a workgroup has at most 1024"),
        ("sm_90", TileConfig(128, 128, 256, k_pack=2), "k_pack is for AMD"),
        ("sm_90", TileConfig(128, 256, 128), "registers a lane, there are 255"),
        ("sm_90", TileConfig(64, 24, 128), "24 keys a step are not a multiple of 16"),
        ("cpu", TileConfig(32, 32, 2), "2 threads, a workgroup has at most 1"),
        ("cpu", TileConfig(512, 64, 1), "bytes of shared memory"),
    ],
)
def test_what_does_not_fit_is_told(arch: str, tile: TileConfig, says: str) -> None:
    assert any(says in limit for limit in fits(tile, PROBLEM, CHIPS[arch])), fits(tile, PROBLEM, CHIPS[arch])


@pytest.mark.parametrize(
    ("problem", "arch", "policy", "error", "says"),
    [
        (PROBLEM, "gfx942", "best", ValueError, r"policy must be one of \('adaptive', 'fixed'\), got 'best'"),
        (replace(PROBLEM, dtype="bfloat16"), "cpu", "fixed", TypeError, "bfloat16 is not supported on cpu; use one of"),
        (replace(PROBLEM, dtype="float32"), "gfx942", "adaptive", TypeError, "float32 is not supported on gfx942"),
    ],
)
def test_what_has_no_tile_is_told(
    problem: AttentionProblem, arch: str, policy: str, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        choose_tiles(problem, CHIPS[arch], policy)


@pytest.mark.parametrize(
    "fields", [{"block_m": 0}, {"threads": -1}, {"num_stages": 0}, {"q_in": "lds"}, {"k_pack": 3}], ids=str
)
def test_what_is_no_tile(fields: dict) -> None:
    with pytest.raises(ValueError, match=next(iter(fields))):
        TileConfig(**{"block_m": 64, "block_n": 64, "threads": 256, **fields})


@given(
    st.integers(0, 700),
    st.integers(0, 700),
    st.booleans(),
    st.sampled_from([16, 32, 64, 128]),
    st.sampled_from([16, 32, 64]),
)
def test_work_is_counted_as_the_kernel_walks_it(
    seqlen_q: int, seqlen_k: int, causal: bool, block_m: int, block_n: int
) -> None:
    from tilekernels.policy import _keys_seen

    problem = replace(PROBLEM, seqlen_q=seqlen_q, seqlen_k=seqlen_k, causal=causal)
    walked = []
    for first in range(0, seqlen_q, block_m):
        end = min(seqlen_k, max(0, first + block_m + seqlen_k - seqlen_q)) if causal else seqlen_k
        walked.append(-(-end // block_n) * block_n)
    longest, total = _keys_seen(problem, block_m, block_n)
    assert longest == max(walked, default=longest)
    assert abs(total - sum(walked)) <= len(walked) * block_n / 2


def test_short_prompts_get_workgroups_that_share_a_multiprocessor() -> None:
    """As measured (docs/h200.md): ahead up to some hundred keys a row block, where there are workgroups enough to share."""
    hopper = CHIPS["sm_90"]

    def chosen(batch: int, heads: int, kv_heads: int, length: int, causal: bool = True) -> str:
        problem = AttentionProblem(batch, heads, kv_heads, length, length, 128, "bfloat16", causal)
        return str(choose_tiles(problem, hopper))

    assert chosen(16, 28, 4, 256) == "64x64/128/2*2"
    assert chosen(16, 28, 4, 1024) == "64x128/128/1*2"
    assert chosen(8, 28, 4, 2048) == "128x128/256/2"
    assert chosen(16, 28, 4, 1024, causal=False) == "128x128/256/2"
    assert chosen(1, 8, 1, 1024) == "64x128/128/2"  # each workgroup has an SM of its own


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("64x128/128/2*2", "2 workgroups need 299008 bytes of shared memory, a multiprocessor has 233472"),
        ("128x128/256/1*2", "beside another workgroup there are 104"),
        ("64x64/128/1*3", "more than 2 workgroups"),
    ],
)
def test_what_does_not_fit_beside_another_is_named(text: str, said: str) -> None:
    problem = AttentionProblem(1, 1, 1, 64, 64, 128, "float16", True)
    assert any(said in limit for limit in fits(TileConfig.parse(text), problem, CHIPS["sm_90"]))
    if not text.endswith("*3"):
        assert any(
            "resident is for NVIDIA" in limit for limit in fits(TileConfig.parse(text), problem, CHIPS["gfx942"])
        )


@given(
    st.builds(TileConfig, *[st.integers(1, 512)] * 4, st.sampled_from(["shared", "registers"]), st.sampled_from([1, 2]))
)
def test_a_tile_is_read_as_it_is_written(tile: TileConfig) -> None:
    for other in (tile, replace(tile, overlap=True), replace(tile, resident=2)):
        assert TileConfig.parse(str(other)) == other


@pytest.mark.parametrize("text", ["128", "128x128/256", "128x128/256/2q", "x/1/1", "0x1/1/1"])
def test_what_is_no_tile_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no tile|must be at least 1"):
        TileConfig.parse(text)
