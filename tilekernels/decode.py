"""Decode kernels in memory: what is compiled into them, the tile and the number of splits that a problem gets."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tilekernels.chips import Chip
from tilekernels.handle import Kernel, chip_at, resolve, shared
from tilekernels.limits import broken_limits
from tilekernels.policy import DTYPES_OF, POLICIES
from tilekernels.problem import DTYPES, HEAD_DIMS, MAX_BATCH, MAX_SEQLEN

if TYPE_CHECKING:
    import torch

MAX_SPLITS = 128
"""Parts that `decode_combine` adds one after the other."""


@dataclass(frozen=True)
class DecodeProblem:
    """New rows over a paged cache.

    Attributes:
        batch: sequences.
        heads: query heads, a multiple of kv_heads.
        kv_heads: key and value heads.
        seqlen_q: new rows of each sequence.
        capacity: keys that the block table has room for; the lengths themselves are on the device.
        page_size: positions of a page, a power of two.
        head_dim: one of `problem.HEAD_DIMS`.
        dtype: of Q, caches and output.

    Raises:
        ValueError: a value out of range; the message names the field and what was expected.
    """

    batch: int
    heads: int
    kv_heads: int
    seqlen_q: int
    capacity: int
    page_size: int
    head_dim: int
    dtype: str

    def __post_init__(self) -> None:
        """Reject what no kernel can run."""
        for name, least, most in (
            ("batch", 0, MAX_BATCH),
            ("heads", 1, 65_535),
            ("kv_heads", 1, 65_535),
            ("seqlen_q", 0, 65_535),
            ("capacity", 0, MAX_SEQLEN),
            ("page_size", 1, MAX_SEQLEN),
        ):
            value = getattr(self, name)
            if not least <= value <= most:
                raise ValueError(f"{name} must be between {least} and {most}, got {value}")
        if self.heads % self.kv_heads:
            raise ValueError(f"heads must be a multiple of kv_heads, got {self.heads} and {self.kv_heads}")
        if self.page_size & (self.page_size - 1):
            raise ValueError(f"page_size must be a power of two, got {self.page_size}")
        if self.head_dim not in HEAD_DIMS:
            raise ValueError(f"head_dim must be one of {HEAD_DIMS}, got {self.head_dim!r}")
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype must be one of {tuple(DTYPES)}, got {self.dtype!r}")

    @property
    def rows(self) -> int:
        """Rows of a kv head: the new rows of all its query heads."""
        return self.seqlen_q * (self.heads // self.kv_heads)


@dataclass(frozen=True)
class DecodeSpec:
    """What is compiled into a decode kernel.

    Attributes:
        head_dim, dtype: as in `DecodeProblem`.
        split: the keys are split, and a second kernel combines the parts.
    """

    head_dim: int
    dtype: str
    split: bool


@dataclass(frozen=True)
class DecodeTile:
    """How a decode kernel divides its work.

    Attributes:
        block_m: packed rows of a kv head (`DecodeProblem.rows`) of a workgroup.
        block_n, threads, q_in: as in `policy.TileConfig`.
        splits: parts of the keys, whatever the problem; chosen by `choose_splits` where 0. Not compiled in.
    """

    block_m: int
    block_n: int
    threads: int
    q_in: str = "shared"
    splits: int = 0


# The smallest tile that holds all rows of a kv head: what is left empty costs matrix instructions, and a second row block
# reads K and V again. AMD's smallest matrix instruction has 16 rows: one wavefront a workgroup, whose few registers and LDS
# leave room for others to hide its loads. Hopper's has 64; its second tile is for extending. Nothing is measured yet.
_AMD = (
    DecodeTile(16, 64, 64, q_in="registers"),
    DecodeTile(64, 64, 256, q_in="registers"),
)
TILES: dict[str, tuple[DecodeTile, ...]] = {
    "gfx942": _AMD,
    "gfx90a": _AMD,
    "gfx950": _AMD,
    "sm_90": (DecodeTile(64, 64, 128), DecodeTile(128, 64, 256)),
    "cpu": (DecodeTile(16, 16, 1), DecodeTile(32, 32, 1)),
}

FIXED_SPLITS = 8
"""SGLang's default for its Triton decode kernel (--triton-attention-num-kv-splits), whatever the batch."""

FIXED: dict[str, DecodeTile] = {
    arch: replace(next(tile for tile in tiles if tile.block_m >= (32 if arch == "cpu" else 64)), splits=FIXED_SPLITS)
    for arch, tiles in TILES.items()
}
"""The baseline: one tile that holds the rows of eight new tokens, and one number of splits."""


class DecodeKernel(Kernel):
    """One decode kernel for one chip: shapes, lengths, mask and page size are read from the arguments of each launch."""

    module = "tilekernels.kernels.attention_decode"

    def __init__(self, chip: Chip, spec: DecodeSpec, tile: DecodeTile) -> None:
        """Describe a kernel; nothing is compiled."""
        super().__init__(chip, spec, tile)
        self.steps = ("decode_attend", "decode_combine") if spec.split else ("decode_attend",)

    def launch(  # noqa: PLR0917 - the kernels' own argument list, on the path that is timed
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        block_table: torch.Tensor,
        lengths: torch.Tensor,
        parts: torch.Tensor,
        parts_lse: torch.Tensor,
        out: torch.Tensor | None,
        lse: torch.Tensor | None,
        k_stride: int,
        v_stride: int,
        page_shift: int,
        causal: int,
        softmax_scale: float,
    ) -> None:
        """Enqueue one launch on the current stream of the current device. Allocates nothing, waits for nothing.

        Shapes are the caller's to get right; `attention_decode` checks them. No extent is 0.

        Args:
            q: (batch, seqlen_q, heads, head_dim); contiguous and aligned to 16 bytes, like all of them.
            k: (rows, kv_heads, head_dim): the cache; position p of page b is row b * k_stride + p.
            v: as k, with v_stride.
            block_table: (batch, pages), int32.
            lengths: (batch,), int32: keys of each sequence, its new rows included.
            parts: (splits, batch, seqlen_q, heads, head_dim), float32; without splits the output, in q's dtype, behind an
                extent of 1.
            parts_lse: (splits, batch, heads, seqlen_q), float32.
            out: as q; written where there are splits.
            lse: (batch, heads, seqlen_q), float32; written where there are splits.
            k_stride, v_stride: rows from one page to the next.
            page_shift: logarithm to base 2 of the page size.
            causal: 1 or 0.
            softmax_scale: > 0; multiplies Q K^T.

        Raises:
            CompilationError: at the first launch, when the kernel does not compile.
        """
        attend, *combine = self._compiled or self.compile()
        attend(q, k, v, block_table, lengths, parts, parts_lse, k_stride, v_stride, page_shift, causal, softmax_scale)
        if combine:
            combine[0](parts, parts_lse, out, lse)


def decode_kernel(
    problem: DecodeProblem, policy: str = "adaptive", device: torch.device | str | None = None, num_splits: int = 0
) -> tuple[DecodeKernel, int]:
    """The kernel and the number of splits that `policy` gives a problem.

    Args:
        problem: no extent is 0.
        policy: "adaptive" or "fixed".
        device: as for `handle.resolve`.
        num_splits: so many splits; the policy's where 0.

    Raises:
        TypeError, ValueError: an unknown policy, a dtype that the chip does not take, and as `chips.chip_of`.
    """
    return _find(problem, policy, resolve(device), num_splits)


@functools.lru_cache(maxsize=4096)
def _find(problem: DecodeProblem, policy: str, device: torch.device | str, num_splits: int) -> tuple[DecodeKernel, int]:
    chip = chip_at(device)
    tile = choose_tile(problem, chip, policy)
    splits = num_splits or choose_splits(problem, chip, tile)
    spec = DecodeSpec(problem.head_dim, problem.dtype, splits > 1)
    return shared(DecodeKernel, chip, spec, tile), splits


def choose_tile(problem: DecodeProblem, chip: Chip, policy: str = "adaptive") -> DecodeTile:
    """The tile that `policy` gives a problem on a chip. Pure.

    `adaptive` takes the smallest that holds all rows of a kv head, else the largest; `fixed` takes `FIXED`.

    Raises:
        ValueError: an unknown policy.
        TypeError: a dtype that the chip's kernels do not take.
    """
    if policy not in POLICIES:
        raise ValueError(f"policy must be one of {POLICIES}, got {policy!r}")
    if problem.dtype not in DTYPES_OF[chip.kind]:
        raise TypeError(
            f"{problem.dtype} is not supported on {chip.arch}; use one of {', '.join(DTYPES_OF[chip.kind])}"
        )
    if policy == "fixed":
        return FIXED[chip.arch]
    tiles = TILES[chip.arch]
    return next((tile for tile in tiles if tile.block_m >= problem.rows), tiles[-1])


def choose_splits(problem: DecodeProblem, chip: Chip, tile: DecodeTile) -> int:
    """How many parts the keys are split into: the tile's own number, or as `fewest_steps`. Pure.

    From what the host knows: the capacity, not the lengths.
    """
    if tile.splits:
        return tile.splits
    groups = problem.batch * problem.kv_heads * -(-problem.rows // tile.block_m)
    room = chip.compute_units * workgroups_per_unit(problem, chip, tile)
    return fewest_steps(-(-problem.capacity // tile.block_n), groups, room)


def fewest_steps(tiles: int, groups: int, room: int) -> int:
    """The number of splits with the least estimated time, counted in tiles of keys.

    That is the rounds that all workgroups take on the chip, each as long as its tiles and 2 for starting and storing, and an
    eighth of a tile for every part that is combined (priors, not measured). No part has less than a tile.

    Args:
        tiles: of keys.
        groups: workgroups without splits.
        room: workgroups that the chip holds at a time.
    """

    def steps(splits: int) -> float:
        rounds = -(-groups * splits // room)
        return rounds * (-(-tiles // splits) + 2) + (splits / 8 if splits > 1 else 0)

    return min(range(1, min(max(1, tiles), MAX_SPLITS) + 1), key=lambda splits: (steps(splits), splits))


def workgroups_per_unit(problem: DecodeProblem, chip: Chip, tile: DecodeTile) -> int:
    """Workgroups that a compute unit holds: by its LDS, and by registers.

    On AMD those are counted as in `policy.register_estimate`, with the next K: two waves a SIMD at 64x64 and one at 16x64, head
    dimension 128, which is what the compiler gives (docs/isa-tiles.md). On NVIDIA two warps a scheduler are assumed.
    """
    if chip.kind == "cpu":
        return 1
    by_lds = chip.lds_bytes_per_cu // shared_bytes(tile, problem.head_dim, problem.dtype, chip)
    waves = 2
    if chip.kind == "hip":
        packed = 4 // DTYPES[problem.dtype]
        values = tile.block_m * (tile.block_n + problem.head_dim + tile.block_n // packed)
        values += (tile.block_m + 2 * tile.block_n) * problem.head_dim // packed
        waves = chip.registers_per_lane // (7 * -(-values // tile.threads) // 4 + 10)
    return max(1, min(by_lds, 4 * waves * chip.wavefront // tile.threads))


def shared_bytes(tile: DecodeTile, head_dim: int, dtype: str, chip: Chip) -> int:
    """Shared memory (LDS) of a workgroup at most, in bytes; on the CPU, its arrays on the stack."""
    size = DTYPES[dtype]
    q = tile.block_m * head_dim * size if tile.q_in == "shared" else 0
    k_or_v = tile.block_n * head_dim * size
    if chip.kind == "cpu":
        return q + 2 * k_or_v + tile.block_m * (tile.block_n * (4 + size) + head_dim * 4 + 24)
    if chip.kind == "cuda":
        return q + 2 * k_or_v
    # On AMD K, V and the scratch of reductions share their memory, but where copies into LDS may be under way.
    scratch = 4 * tile.threads
    return q + (2 * k_or_v + 2 * scratch if chip.copies_into_lds else max(k_or_v, scratch))


def fits(tile: DecodeTile, head_dim: int, dtype: str, chip: Chip) -> tuple[str, ...]:
    """The limits that a decode kernel's tile would break on a chip, each a sentence; empty when it fits."""
    broken = list(broken_limits(chip, threads=tile.threads, shared_bytes=shared_bytes(tile, head_dim, dtype, chip)))
    rows = 16 * -(-tile.threads // chip.wavefront)
    if chip.kind != "cpu" and tile.block_m % rows:
        broken.append(f"{tile.block_m} rows are not a multiple of {rows}, 16 for each wavefront")
    return tuple(broken)


def variants(chip: Chip, head_dim: int, dtype: str) -> tuple[DecodeKernel, ...]:
    """Every kernel that `decode_kernel` can return for these, for any problem."""
    kernels = [(tile, split) for tile in TILES[chip.arch] for split in (False, True)] + [(FIXED[chip.arch], True)]
    return tuple(shared(DecodeKernel, chip, DecodeSpec(head_dim, dtype, split), tile) for tile, split in kernels)
