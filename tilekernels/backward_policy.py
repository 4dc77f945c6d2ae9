"""Which tiles the kernels of a backward pass get on a chip: pure functions over tables that are plain data.

The kernel of keys and values owns a block of keys and walks the query rows; the kernel of queries owns a block of rows and
walks the keys. As in the forward pass large tiles read less, and small ones leave fewer compute units idle.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tilekernels.chips import Chip
from tilekernels.limits import broken_limits
from tilekernels.policy import DTYPES_OF, POLICIES, _keys_seen
from tilekernels.problem import DTYPES, AttentionProblem

ROW_PADDING = 128
"""Rows of the statistics are padded to a multiple of this, which every row tile of a gradient kernel divides."""


@dataclass(frozen=True)
class Blocks:
    """How one gradient kernel divides its work.

    Attributes:
        block_m: query rows of a tile.
        block_n: keys of a tile.
        threads: of a workgroup that compute; 1 on the CPU.
        num_stages: steps whose tiles are in shared memory at once. AMD: 1, TileLang ignores more.
        overlap: let the matrix unit work on under the exponentials. NVIDIA only.
        held: where the two tiles that a workgroup keeps lie (K and V, or Q and dO): "shared" or "registers".
    """

    block_m: int
    block_n: int
    threads: int
    num_stages: int = 1
    held: str = "shared"
    overlap: bool = False

    def __post_init__(self) -> None:
        """Reject what is no tile at all; whether one suits a chip is `fits`' question."""
        for name in ("block_m", "block_n", "threads", "num_stages"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.held not in ("shared", "registers"):
            raise ValueError(f"held must be 'shared' or 'registers', got {self.held!r}")

    def __str__(self) -> str:
        """Rows x keys / threads / stages, "r" if the held tiles are in registers, "o" for overlap: "64x128/512/1r"."""
        letters = ("r" if self.held == "registers" else "") + ("o" if self.overlap else "")
        return f"{self.block_m}x{self.block_n}/{self.threads}/{self.num_stages}{letters}"

    @staticmethod
    def parse(text: str) -> Blocks:
        """Read what `str` writes.

        Raises:
            ValueError: it is nothing of the kind.
        """
        found = re.fullmatch(r"(\d+)x(\d+)/(\d+)/(\d+)(r?)(o?)", text)
        if found is None:
            raise ValueError(f"{text!r} is no tile; one is spelled rows x keys / threads / stages, like 64x128/256/2")
        block_m, block_n, threads, num_stages = map(int, found.groups()[:4])
        held, overlap = found.groups()[4:]
        return Blocks(block_m, block_n, threads, num_stages, "registers" if held else "shared", bool(overlap))


@dataclass(frozen=True)
class BackwardTile:
    """How a backward pass divides its work. Part of what is compiled into its kernels.

    Attributes:
        keys: of the kernel that computes dK and dV: `block_n` keys a workgroup, `block_m` rows a step.
        queries: of the kernel that computes dQ: `block_m` rows a workgroup, `block_n` keys a step.
    """

    keys: Blocks
    queries: Blocks


@dataclass(frozen=True)
class Candidate:
    """A tile and its worth.

    Attributes:
        tile: the tile.
        rate: work a second on a full chip, relative to the other tiles of the table.
    """

    tile: BackwardTile
    rate: float


# AMD. A workgroup holds K and V, or Q and dO, in registers: in LDS they would leave no room for what is walked. 128 keys or
# rows take 512 threads; with 256 the accumulators of two gradients leave one wave a SIMD. Nothing was measured on these chips.
# The rate is that of the compiled code on gfx942: cycles of the unit that limits a round, for a pair of row and key, of both
# kernels together, 1,098 to 1,275 thousandths (docs/isa-tiles.md).
_AMD = (
    Candidate(
        BackwardTile(Blocks(64, 128, 512, held="registers"), Blocks(128, 32, 512, held="registers")),
        rate=1.0,
    ),
    Candidate(
        BackwardTile(Blocks(32, 64, 256, held="registers"), Blocks(64, 32, 256, held="registers")),
        rate=0.86,
    ),
)

# NVIDIA. Measured on an H200 with head dimension 128 (docs/h200.md): of four pairs of tiles the first is the fastest from 8k rows
# on (1.04 times 128x64 for the queries, 1.03 times started products), the second at 1k to 4k, where there are few workgroups.
# Its rate is what that crossing asks for. With head dimension 64 nothing was measured.
_HOPPER = (
    Candidate(BackwardTile(Blocks(64, 128, 256, num_stages=2), Blocks(128, 128, 256, num_stages=2)), rate=1.0),
    Candidate(BackwardTile(Blocks(64, 64, 128, num_stages=2), Blocks(64, 64, 128, num_stages=2)), rate=0.7),
)

# On a CPU core what counts is how many rows and keys are computed in vain.
_CPU = (
    Candidate(BackwardTile(Blocks(32, 32, 1), Blocks(32, 32, 1)), rate=1.0),
    Candidate(BackwardTile(Blocks(16, 16, 1), Blocks(16, 16, 1)), rate=0.9),
)

BACKWARD_TILES: dict[tuple[str, int], tuple[Candidate, ...]] = {
    **{(arch, head_dim): _AMD for arch in ("gfx942", "gfx90a", "gfx950") for head_dim in (64, 128)},
    **{("sm_90", head_dim): _HOPPER for head_dim in (64, 128)},
    **{("cpu", head_dim): _CPU for head_dim in (64, 128)},
}
"""The first of each is what the policy `fixed` gives."""

FUSED: dict[tuple[str, int], Blocks] = {}
"""Where a call that does not insist on determinism sums dQ by atomics (`kernels.backward_fused`), by architecture and head
dimension, and in which tile. Nowhere: on an H200 it reached 0.53 to 0.91 times the speed of the kernels without atomics
(docs/h200.md; scripts/proof/compare_backward.py --fused)."""


def choose_backward_tile(problem: AttentionProblem, chip: Chip, policy: str = "adaptive") -> BackwardTile:
    """The tile that `policy` gives the backward pass of `problem` on `chip`. Pure: the same arguments, the same tile.

    `adaptive` takes the candidate with the least estimated time, by the rule of `policy.choose_tiles`, the estimates of both
    kernels added.

    Args:
        problem: of the forward pass.
        chip: from `chips.chip_of` or `chips.chip_by_name`.
        policy: one of `policy.POLICIES`.

    Raises:
        ValueError: an unknown policy, or a chip without tiles for the head dimension.
        TypeError: a dtype that the chip's kernels do not take.
    """
    table = _table(chip, problem.head_dim, problem.dtype, policy)
    if policy == "fixed":
        return table[0].tile
    return min(table, key=lambda candidate: _estimate(problem, chip, candidate)).tile


def backward_variants(chip: Chip, head_dim: int, dtype: str, policy: str = "adaptive") -> tuple[BackwardTile, ...]:
    """Every tile that `choose_backward_tile` can return for these.

    Raises:
        ValueError, TypeError: as `choose_backward_tile`.
    """
    table = _table(chip, head_dim, dtype, policy)
    return tuple(candidate.tile for candidate in (table[:1] if policy == "fixed" else table))


def shared_bytes(tile: BackwardTile, head_dim: int, dtype: str, chip: Chip) -> tuple[int, int]:
    """Shared memory (LDS) that the kernels of keys and of queries ask for, in bytes; on the CPU, arrays on the stack.

    Args:
        tile: the tile.
        head_dim, dtype: as in `AttentionProblem`.
        chip: where it is to run.
    """
    size = DTYPES[dtype]
    found = []
    for blocks, held, walked in (
        (tile.keys, tile.keys.block_n, tile.keys.block_m),
        (tile.queries, tile.queries.block_m, tile.queries.block_n),
    ):
        of_keys = blocks is tile.keys
        pairs = held * walked
        one = walked * head_dim * size
        if chip.kind == "cpu":
            gradients = (2 if of_keys else 1) * held * head_dim * 4
            half = (2 if of_keys else 1) * pairs * size
            found.append(
                2 * held * head_dim * size + 2 * one + 2 * pairs * 4 + half + gradients + 2 * blocks.block_m * 4
            )
        elif chip.kind == "hip":
            # Walked tiles lie there twice where they are read both ways. Some share their memory in turns, but not with
            # copies that are under way.
            if chip.copies_into_lds:
                found.append(4 * one + 2 * 4 * blocks.block_m if of_keys else 3 * one)
            else:
                found.append((3 if of_keys else 2) * one)
        else:
            rows = 2 * blocks.num_stages * 4 * blocks.block_m if of_keys else 0
            found.append(2 * held * head_dim * size + 2 * blocks.num_stages * one + rows)
    return found[0], found[1]


def fits(tile: BackwardTile, head_dim: int, dtype: str, chip: Chip) -> tuple[str, ...]:
    """The limits that a tile would break on a chip, each a sentence; empty when it fits.

    Checked: shared memory, threads, whole wavefronts, rows for every wavefront, the statistics' padding, and what TileLang
    0.1.15 ignores.
    """
    broken = []
    wanted = shared_bytes(tile, head_dim, dtype, chip)
    for name, blocks, held, asked in (
        ("keys", tile.keys, tile.keys.block_n, wanted[0]),
        ("queries", tile.queries, tile.queries.block_m, wanted[1]),
    ):
        found = list(broken_limits(chip, threads=blocks.threads, shared_bytes=asked))
        rows = 16 * -(-blocks.threads // chip.wavefront)
        if chip.kind != "cpu" and held % rows:
            found.append(f"{held} held rows are not a multiple of {rows}, 16 for each wavefront")
        if chip.kind == "hip" and blocks.num_stages != 1:
            found.append("num_stages is ignored on gfx942 and gfx90a and does not lower on gfx950; use 1")
        if chip.kind != "cuda" and blocks.overlap:
            found.append("overlap is for NVIDIA")
        if ROW_PADDING % blocks.block_m:
            found.append(f"{blocks.block_m} rows do not divide {ROW_PADDING}, to which row statistics are padded")
        broken += [f"{name}: {limit}" for limit in found]
    return tuple(broken)


def _table(chip: Chip, head_dim: int, dtype: str, policy: str) -> tuple[Candidate, ...]:
    if policy not in POLICIES:
        raise ValueError(f"policy must be one of {POLICIES}, got {policy!r}")
    if dtype not in DTYPES_OF[chip.kind]:
        raise TypeError(f"{dtype} is not supported on {chip.arch}; use one of {', '.join(DTYPES_OF[chip.kind])}")
    table = BACKWARD_TILES.get((chip.arch, head_dim))
    if table is None:
        raise ValueError(
            f"no backward tiles for head_dim {head_dim} on {chip.arch}; add them to BACKWARD_TILES in "
            "tilekernels/backward_policy.py"
        )
    return table


def _estimate(problem: AttentionProblem, chip: Chip, candidate: Candidate) -> float:
    """Time in arbitrary units: the longest workgroup or the work spread evenly, the larger of the two, for each kernel."""
    keys, queries = candidate.tile.keys, candidate.tile.queries
    longest, total = rows_seen(problem, keys.block_m, keys.block_n)
    of_keys = keys.block_n * problem.group * max(longest, total * problem.batch * problem.kv_heads / chip.compute_units)
    longest, total = _keys_seen(problem, queries.block_m, queries.block_n)
    of_queries = queries.block_m * max(longest, total * problem.batch * problem.heads / chip.compute_units)
    return (of_keys + of_queries) / candidate.rate


def rows_seen(problem: AttentionProblem, block_m: int, block_n: int) -> tuple[int, float]:
    """Rows that the longest block of keys walks for one head, and all blocks together (on average over the rounding)."""
    blocks = -(-problem.seqlen_k // block_n)
    whole = -(-problem.seqlen_q // block_m) * block_m
    if not problem.causal:
        return whole, blocks * whole
    # The block of keys from b * block_n on is seen by the rows from b * block_n - shift on.
    shift = problem.seqlen_k - problem.seqlen_q
    first = min(blocks, max(0, -(-shift // block_n)))
    hidden = block_n * (first + blocks - 1) * (blocks - first) / 2 - shift * (blocks - first)
    longest = whole - max(0, -shift) // block_m * block_m
    return longest, blocks * whole - hidden + (blocks - first) * (block_m - 1) / 2
