"""Kernels of multi-head latent attention in memory: what is compiled into them, the tile and the number of splits."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tilekernels.chips import Chip
from tilekernels.decode import FIXED_SPLITS, fewest_steps
from tilekernels.handle import Kernel, chip_at, resolve, shared
from tilekernels.limits import broken_limits
from tilekernels.policy import DTYPES_OF, POLICIES
from tilekernels.problem import DTYPES, MAX_BATCH, MAX_SEQLEN

if TYPE_CHECKING:
    import torch

LATENT_DIM = 512
"""DeepSeek-V2, V3 and R1: `kv_lora_rank` of their config.json."""

ROPE_DIM = 64
"""Theirs: `qk_rope_head_dim`."""


@dataclass(frozen=True)
class MlaProblem:
    """New rows over a paged cache of latents.

    Attributes:
        batch: sequences.
        heads: query heads; all share the one key.
        seqlen_q: new rows of each sequence.
        capacity: keys that the block table has room for; the lengths themselves are on the device.
        page_size: positions of a page, a power of two.
        dtype: of Q, cache and output.

    Raises:
        ValueError: a value out of range; the message names the field and what was expected.
    """

    batch: int
    heads: int
    seqlen_q: int
    capacity: int
    page_size: int
    dtype: str

    def __post_init__(self) -> None:
        """Reject what no kernel can run."""
        for name, least, most in (
            ("batch", 0, MAX_BATCH),
            ("heads", 1, 65_535),
            ("seqlen_q", 0, 65_535),
            ("capacity", 0, MAX_SEQLEN),
            ("page_size", 1, MAX_SEQLEN),
        ):
            value = getattr(self, name)
            if not least <= value <= most:
                raise ValueError(f"{name} must be between {least} and {most}, got {value}")
        if self.page_size & (self.page_size - 1):
            raise ValueError(f"page_size must be a power of two, got {self.page_size}")
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype must be one of {tuple(DTYPES)}, got {self.dtype!r}")

    @property
    def rows(self) -> int:
        """Rows over one sequence's keys: the new rows of all heads."""
        return self.seqlen_q * self.heads


@dataclass(frozen=True)
class MlaSpec:
    """What is compiled into a kernel.

    Attributes:
        dtype: as in `MlaProblem`.
        split: the keys are split, and a second kernel combines the parts.
        latent_dim, rope_dim: of a cached key; its value is the latent.
    """

    dtype: str
    split: bool
    latent_dim: int = LATENT_DIM
    rope_dim: int = ROPE_DIM


@dataclass(frozen=True)
class MlaTile:
    """How a kernel divides its work.

    Attributes:
        block_m: rows (`MlaProblem.rows`) of a workgroup.
        block_n, threads, q_in: as in `policy.TileConfig`.
        columns_split: wavefronts (Hopper: warpgroups) share the columns of a tile, not its rows.
        splits: as in `decode.DecodeTile`.
    """

    block_m: int
    block_n: int
    threads: int
    q_in: str = "shared"
    columns_split: bool = False
    splits: int = 0


# Keys of a step: 64 KiB of LDS hold 32 of 576 numbers, once. 16 rows are AMD's smallest matrix instruction and the 16 heads of
# a GPU of eight; their tile is short, so that three workgroups fit a compute unit. Nothing is measured on AMD. Hopper keeps Q in
# shared memory, too; there 64 keys gave 4 to 22 % more than 32 in every row timed, on an H200 at commit 845cf8f
# (scripts/proof/compare_decode.py ROW --candidates 64x64/256@auto).
_AMD = (MlaTile(16, 16, 64, q_in="registers"), MlaTile(64, 32, 256, q_in="registers"))
TILES: dict[str, tuple[MlaTile, ...]] = {
    "gfx942": _AMD,
    "gfx90a": _AMD,
    "gfx950": _AMD,
    "sm_90": (MlaTile(64, 64, 256, columns_split=True),),
    "cpu": (MlaTile(16, 16, 1), MlaTile(32, 16, 1)),
}

FIXED: dict[str, MlaTile] = {
    **{arch: replace(tiles[-1], splits=FIXED_SPLITS) for arch, tiles in TILES.items()},
    "sm_90": MlaTile(64, 32, 256, columns_split=True, splits=FIXED_SPLITS),
}
"""The baseline: one tile, and one number of splits."""


class MlaKernel(Kernel):
    """One kernel for one chip: shapes, lengths, mask and page size are read from the arguments of each launch."""

    module = "tilekernels.kernels.mla_decode"

    def __init__(self, chip: Chip, spec: MlaSpec, tile: MlaTile) -> None:
        """Describe a kernel; nothing is compiled."""
        super().__init__(chip, spec, tile)
        self.steps = ("mla_attend", "decode_combine") if spec.split else ("mla_attend",)

    def launch(  # noqa: PLR0917 - the kernels' own argument list, on the path that is timed
        self,
        q: torch.Tensor,
        kv: torch.Tensor,
        block_table: torch.Tensor,
        lengths: torch.Tensor,
        parts: torch.Tensor,
        parts_lse: torch.Tensor,
        out: torch.Tensor | None,
        lse: torch.Tensor | None,
        kv_stride: int,
        page_shift: int,
        causal: int,
        softmax_scale: float,
    ) -> None:
        """Enqueue one launch on the current stream of the current device. Allocates nothing, waits for nothing.

        Shapes are the caller's to get right; `mla_decode` checks them. No extent is 0.

        Args:
            q: (batch, seqlen_q, heads, 576); contiguous and aligned to 16 bytes, like all of them.
            kv: (rows, 576): the cache; position p of page b is row b * kv_stride + p.
            block_table: (batch, pages), int32.
            lengths: (batch,), int32: keys of each sequence, its new rows included.
            parts: (splits, batch, seqlen_q, heads, 512), float32; without splits the output, in q's dtype, behind an extent
                of 1.
            parts_lse: (splits, batch, heads, seqlen_q), float32.
            out: (batch, seqlen_q, heads, 512); written where there are splits.
            lse: (batch, heads, seqlen_q), float32; written where there are splits.
            kv_stride: rows from one page to the next.
            page_shift: logarithm to base 2 of the page size.
            causal: 1 or 0.
            softmax_scale: > 0; multiplies Q K^T.

        Raises:
            CompilationError: at the first launch, when the kernel does not compile.
        """
        attend, *combine = self._compiled or self.compile()
        attend(q, kv, block_table, lengths, parts, parts_lse, kv_stride, page_shift, causal, softmax_scale)
        if combine:
            combine[0](parts, parts_lse, out, lse)


def mla_kernel(
    problem: MlaProblem, policy: str = "adaptive", device: torch.device | str | None = None, num_splits: int = 0
) -> tuple[MlaKernel, int]:
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
def _find(problem: MlaProblem, policy: str, device: torch.device | str, num_splits: int) -> tuple[MlaKernel, int]:
    chip = chip_at(device)
    tile = choose_tile(problem, chip, policy)
    splits = num_splits or choose_splits(problem, chip, tile)
    return shared(MlaKernel, chip, MlaSpec(problem.dtype, splits > 1), tile), splits


def choose_tile(problem: MlaProblem, chip: Chip, policy: str = "adaptive") -> MlaTile:
    """The tile that `policy` gives a problem on a chip. Pure.

    `adaptive` takes the smallest that holds all rows of a sequence, else the largest; `fixed` takes `FIXED`.

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


def choose_splits(problem: MlaProblem, chip: Chip, tile: MlaTile) -> int:
    """How many parts the keys are split into: the tile's own number, or as `decode.fewest_steps`. Pure."""
    if tile.splits:
        return tile.splits
    groups = problem.batch * -(-problem.rows // tile.block_m)
    room = chip.compute_units * workgroups_per_unit(problem, chip, tile)
    return fewest_steps(-(-problem.capacity // tile.block_n), groups, room)


def workgroups_per_unit(problem: MlaProblem, chip: Chip, tile: MlaTile) -> int:
    """Workgroups that a compute unit holds, by its LDS and one wave a SIMD: the output's registers leave room for no other."""
    if chip.kind == "cpu":
        return 1
    by_lds = chip.lds_bytes_per_cu // shared_bytes(tile, problem.dtype, chip)
    by_waves = 4 * chip.wavefront // tile.threads if chip.kind == "hip" else 1
    return max(1, min(by_lds, by_waves))


def shared_bytes(tile: MlaTile, dtype: str, chip: Chip) -> int:
    """Shared memory (LDS) of a workgroup at most, in bytes; on the CPU, its arrays on the stack."""
    size = DTYPES[dtype]
    key = size * (LATENT_DIM + ROPE_DIM)
    q = tile.block_m * key if tile.q_in == "shared" else 0
    scores = tile.block_m * tile.block_n
    if chip.kind == "cpu":
        return q + tile.block_n * key + scores * (4 + size) + tile.block_m * (LATENT_DIM * 4 + 24)
    probabilities = scores * size if tile.columns_split else 0
    return q + tile.block_n * key + probabilities + 8 * tile.threads


def fits(tile: MlaTile, dtype: str, chip: Chip) -> tuple[str, ...]:
    """The limits that a tile would break on a chip, each a sentence; empty when it fits."""
    broken = list(broken_limits(chip, threads=tile.threads, shared_bytes=shared_bytes(tile, dtype, chip)))
    rows = 64 if tile.columns_split else 16 * -(-tile.threads // chip.wavefront)
    if chip.kind != "cpu" and tile.block_m % rows:
        broken.append(f"{tile.block_m} rows are not a multiple of {rows}")
    return tuple(broken)


def variants(chip: Chip, dtype: str) -> tuple[MlaKernel, ...]:
    """Every kernel that `mla_kernel` can return for these, for any problem."""
    kernels = [(tile, split) for tile in TILES[chip.arch] for split in (False, True)] + [(FIXED[chip.arch], True)]
    return tuple(shared(MlaKernel, chip, MlaSpec(dtype, split), tile) for tile, split in kernels)
