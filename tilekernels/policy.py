"""Which tile a problem gets on a chip: a pure function over tables that are plain data.

A workgroup computes `block_m` query rows of one head and walks the keys `block_n` at a time. Large tiles read K and V
less often; small ones give a short problem enough workgroups to fill the chip. `adaptive` weighs the two; `fixed` is
the baseline: one tile for everything.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tilekernels.chips import Chip
from tilekernels.kernels.residency import consumer_registers
from tilekernels.limits import broken_limits
from tilekernels.problem import DTYPES, AttentionProblem

POLICIES: tuple[str, ...] = ("adaptive", "fixed")

DTYPES_OF: dict[str, tuple[str, ...]] = {
    "cpu": ("float16", "float32"),  # TileLang's C code generator cannot write bfloat16
    "cuda": ("float16", "bfloat16"),
    "hip": ("float16", "bfloat16"),
}
"""The element types that kernels of a kind of chip take."""


@dataclass(frozen=True)
class TileConfig:
    """How a kernel divides its work. Part of what is compiled into it.

    Attributes:
        block_m: query rows of a workgroup.
        block_n: keys of one step.
        threads: threads of a workgroup that compute; 1 on the CPU.
        num_stages: steps whose K and V tiles are in shared memory at once. AMD: 1 (see `fits`).
        q_in: where the Q tile lives: "shared" (LDS) or "registers" (each lane keeps its part).
        k_pack: AMD: matrix instructions fed by one LDS read in Q K^T, 1 or 2. 1 elsewhere.
        overlap: NVIDIA: the product with V runs while the next step's softmax is computed.
        resident: NVIDIA: workgroups that share a compute unit: while one loads or stores, another computes.
    """

    block_m: int
    block_n: int
    threads: int
    num_stages: int = 1
    q_in: str = "shared"
    k_pack: int = 1
    overlap: bool = False
    resident: int = 1

    def __post_init__(self) -> None:
        """Reject what is no tile at all; whether one suits a chip is `fits`' question."""
        for name in ("block_m", "block_n", "threads", "num_stages", "resident"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.q_in not in ("shared", "registers"):
            raise ValueError(f"q_in must be 'shared' or 'registers', got {self.q_in!r}")
        if self.k_pack not in (1, 2):
            raise ValueError(f"k_pack must be 1 or 2, got {self.k_pack}")

    def __str__(self) -> str:
        """Rows x keys / threads / stages, then "r" for Q in registers, "k" for k_pack 2, "o" for overlap, "*2" for two
        workgroups a compute unit: "64x96/128/2o*2".
        """
        letters = "r" * (self.q_in == "registers") + "k" * (self.k_pack == 2) + "o" * self.overlap
        return f"{self.block_m}x{self.block_n}/{self.threads}/{self.num_stages}{letters}" + (
            f"*{self.resident}" if self.resident > 1 else ""
        )

    @staticmethod
    def parse(text: str) -> TileConfig:
        """Read what `str` writes.

        Raises:
            ValueError: it is nothing of the kind.
        """
        found = re.fullmatch(r"(\d+)x(\d+)/(\d+)/(\d+)(r?)(k?)(o?)(?:\*(\d+))?", text)
        if found is None:
            raise ValueError(f"{text!r} is no tile; one is spelled rows x keys / threads / stages, like 128x128/256/2")
        sizes = [int(x) for x in found.groups()[:4]]
        in_registers, packed, overlap, resident = found.groups()[4:]
        q_in, k_pack = "registers" if in_registers else "shared", 2 if packed else 1
        return TileConfig(*sizes, q_in, k_pack, bool(overlap), int(resident or 1))


@dataclass(frozen=True)
class Candidate:
    """A tile and its worth.

    Attributes:
        tile: the tile.
        rate: work a second on a full chip, relative to the other tiles of the table.
        most_keys: what a row block may walk on average; problems of more keys do not get the tile, which is then slower, or
            was not measured. None: no limit.
    """

    tile: TileConfig
    rate: float
    most_keys: int | None = None


@dataclass(frozen=True)
class TileTable:
    """The tiles of one architecture and head dimension."""

    fixed: TileConfig
    adaptive: tuple[Candidate, ...]


# AMD. Q lives in registers: in LDS, 128 rows of head dimension 128 leave 64 KiB room for one workgroup, not for two. 128
# rows take 512 threads: with 256, the accumulators leave half the waves a SIMD, or fewer. No rate was measured on these
# chips; they are priors: the K and V tiles' LDS traffic for a row, which falls with block_m, and the barriers for a key,
# which fall with block_n. The compiled code agrees on gfx942: by the cycles of the unit that limits a round, an estimate
# too (docs/isa-tiles.md), 64x64 does 0.76 to 0.87 of the work of 128x64 in the same time and 64x32 0.59 to 0.72. It is
# kinder to small tiles on gfx90a, where the matrix unit limits most of them, and on gfx950 (from 0.83 and 0.67).
_AMD = TileTable(
    fixed=TileConfig(64, 64, 256, q_in="registers"),
    adaptive=(
        Candidate(TileConfig(128, 64, 512, q_in="registers"), rate=1.0),
        Candidate(TileConfig(64, 64, 256, q_in="registers"), rate=0.8),
        Candidate(TileConfig(64, 32, 256, q_in="registers"), rate=0.6),
    ),
)

# On a CPU core tiles of 16 to 64 rows differ by some 10% (measured, causal, S=512): what counts is how many rows and keys
# are computed in vain.
_CPU = TileTable(
    fixed=TileConfig(64, 64, 1),
    adaptive=(Candidate(TileConfig(32, 32, 1), rate=1.0), Candidate(TileConfig(16, 16, 1), rate=0.9)),
)

# NVIDIA. The rates were measured on an H200, at 8k to 32k tokens (docs/h200.md).
TILES: dict[tuple[str, int], TileTable] = {
    ("gfx942", 128): _AMD,
    ("gfx942", 64): _AMD,
    ("gfx90a", 128): _AMD,
    ("gfx90a", 64): _AMD,
    ("gfx950", 128): _AMD,
    ("gfx950", 64): _AMD,
    ("sm_90", 128): TileTable(
        fixed=TileConfig(128, 128, 256),
        adaptive=(
            Candidate(TileConfig(192, 128, 384, num_stages=2), rate=1.08),
            Candidate(TileConfig(128, 128, 256, num_stages=2), rate=1.0),
            Candidate(TileConfig(64, 128, 128, num_stages=2), rate=0.7),
            # Two workgroups an SM: where row blocks are short, one loads and stores under the other's products. Causal,
            # batch 16, beside 128x128/256/2: 1.11 times its speed at length 1024, 1.25 times at 256, where smaller tiles
            # compute less in vain.
            Candidate(TileConfig(64, 128, 128, resident=2), rate=1.11, most_keys=650),
            Candidate(TileConfig(64, 64, 128, num_stages=2, resident=2), rate=1.0, most_keys=350),
        ),
    ),
    ("sm_90", 64): TileTable(
        fixed=TileConfig(128, 128, 256),
        adaptive=(
            Candidate(TileConfig(192, 192, 384, num_stages=2), rate=1.27),
            Candidate(TileConfig(128, 128, 256, num_stages=2), rate=1.0),
            Candidate(TileConfig(64, 128, 128, num_stages=2), rate=0.67),
        ),
    ),
    ("cpu", 128): _CPU,
    ("cpu", 64): _CPU,
}


def choose_tiles(problem: AttentionProblem, chip: Chip, policy: str = "adaptive") -> TileConfig:
    """The tile that `policy` gives `problem` on `chip`. Pure: the same arguments give the same tile, everywhere.

    `adaptive` takes the candidate with the least estimated time. A chip is done no sooner than its longest workgroup,
    and no sooner than all work spread evenly over its compute units; the larger of the two, over the tile's rate on a
    full chip, is the estimate. So many rows and heads favour large tiles, and a short prompt, whose few large
    workgroups would leave compute units idle, gets small ones; of workgroups that share a unit the longest takes so many
    times as long. Work is counted in pairs of a row and a key, those that
    a tile computes in vain at its edges included.

    Args:
        problem: any legal problem whose dtype the chip takes (`DTYPES_OF`).
        chip: from `chips.chip_of` or `chips.chip_by_name`.
        policy: one of `POLICIES`.

    Raises:
        ValueError: an unknown policy, or a chip without tiles for the head dimension.
        TypeError: a dtype that the chip's kernels do not take.
    """
    table = _table(chip, problem.head_dim, problem.dtype, policy)
    if policy == "fixed":
        return table.fixed
    # Where two estimates are equal the larger tile wins, whatever the order of the table.
    candidates = [candidate for candidate in table.adaptive if _allowed(problem, candidate)]
    best = min(candidates, key=lambda c: (_estimate(problem, chip, c), -c.tile.block_m, -c.tile.block_n))
    return best.tile


def variants(chip: Chip, head_dim: int, dtype: str, policy: str = "adaptive") -> tuple[TileConfig, ...]:
    """Every tile that `choose_tiles` can return for these: the most kernels that lengths, heads and batches can cause.

    Raises:
        ValueError, TypeError: as `choose_tiles`.
    """
    table = _table(chip, head_dim, dtype, policy)
    return (table.fixed,) if policy == "fixed" else tuple(c.tile for c in table.adaptive)


def shared_bytes(tile: TileConfig, head_dim: int, dtype: str, chip: Chip) -> int:
    """Shared memory (LDS) that a forward kernel asks for, in bytes; on the CPU, its arrays on the stack.

    Args:
        tile: the tile.
        head_dim: as in `AttentionProblem`.
        dtype: as in `AttentionProblem`.
        chip: where it is to run.
    """
    size = DTYPES[dtype]
    q = tile.block_m * head_dim * size
    k_and_v = 2 * tile.block_n * head_dim * size
    if chip.kind == "cpu":
        row_vectors = 5 * tile.block_m * 4
        scores = tile.block_m * tile.block_n * (4 + size)  # float32, and as input of the second product
        return q + k_and_v + scores + tile.block_m * head_dim * 4 + row_vectors
    if tile.q_in != "shared":
        q = 0
    if chip.kind == "cuda":
        return q + tile.num_stages * k_and_v
    # TileLang keeps a float a thread for each of the two row reductions, which a wavefront of 64 never uses.
    scratch = 4 * tile.threads
    if chip.copies_into_lds:
        return q + k_and_v + 2 * scratch
    # K, V and scratch share their memory. Where a lane has several rows it reduces them in a loop, and TileLang keeps
    # the one scratch buffer apart.
    rows = 16 * tile.threads // chip.wavefront
    k_or_v = k_and_v // 2
    return q + (k_or_v + scratch if tile.block_m > rows else max(k_or_v, scratch))


def register_estimate(tile: TileConfig, head_dim: int, dtype: str, kind: str) -> int:
    """32-bit registers a lane is expected to need; 0 on the CPU, where it means nothing.

    The tiles a lane holds are counted: scores and output in float32, probabilities in the element type. For AMD also V,
    on its way to LDS, and Q, which the compiler keeps in registers wherever it was put; 7/4 of the count and 10 are a
    line through what clang 19 took for ten gfx942 kernels of this shape without spilling (86 to 392 registers; it misses
    by 30 at most), and one that spilled at 512 lies beyond the limit. For NVIDIA 24 are added for addresses.
    """
    if kind == "cpu":
        return 0
    packed = 4 // DTYPES[dtype]
    values = tile.block_m * (tile.block_n + head_dim + tile.block_n // packed)
    if kind == "hip":
        values += (tile.block_m + tile.block_n) * head_dim // packed
        return 7 * -(-values // tile.threads) // 4 + 10
    return -(-values // tile.threads) + 24


def fits(tile: TileConfig, problem: AttentionProblem, chip: Chip) -> tuple[str, ...]:
    """The limits that a forward kernel's tile would break on a chip, each a sentence; empty when it fits.

    Checked: shared memory, threads, whole wavefronts, rows for every wavefront, registers (an estimate, see
    `register_estimate`), and what TileLang 0.1.15 cannot generate.
    """
    kind = chip.kind
    wanted = shared_bytes(tile, problem.head_dim, problem.dtype, chip)
    registers = register_estimate(tile, problem.head_dim, problem.dtype, kind)
    broken = list(broken_limits(chip, threads=tile.threads, shared_bytes=wanted, registers=registers))
    if kind == "cpu":
        return tuple(broken)
    # Rows are dealt to wavefronts 16 at a time, the height of the smallest matrix instruction.
    rows = 16 * -(-tile.threads // chip.wavefront)
    if tile.block_m % rows:
        broken.append(f"{tile.block_m} rows are not a multiple of {rows}, 16 for each wavefront")
    if tile.block_n % 16:
        broken.append(f"{tile.block_n} keys a step are not a multiple of 16")
    if kind == "hip" and tile.num_stages != 1:
        broken.append("num_stages is ignored on gfx942 and gfx90a and does not lower on gfx950; use 1")
    if kind == "cuda" and tile.k_pack != 1:
        broken.append("k_pack is for AMD; use 1")
    if kind != "cuda" and tile.resident != 1:
        broken.append("resident is for NVIDIA; use 1")
    if kind == "cuda" and tile.resident > 1:
        broken += _sharing_limits(tile, wanted, registers, chip)
    if kind == "cuda" and tile.q_in != "shared":
        broken.append("Hopper's matrix instructions read Q from shared memory; use q_in='shared'")
    return tuple(broken)


def _sharing_limits(tile: TileConfig, shared: int, registers: int, chip: Chip) -> list[str]:
    """What keeps `tile.resident` workgroups off one multiprocessor. Each takes 1 KiB beside its own (CUDA C++ Programming Guide,
    compute capability 9.0), and 1 KiB with TileLang's barriers.
    """
    together, room = tile.resident * (shared + 2048), chip.lds_bytes_per_cu
    least = consumer_registers(tile.threads, tile.resident)
    broken = []
    if together > room:
        broken.append(f"{tile.resident} workgroups need {together} bytes of shared memory, a multiprocessor has {room}")
    if registers > least:
        broken.append(f"needs about {registers} registers a lane, beside another workgroup there are {least}")
    if tile.resident > 2:
        broken.append("more than 2 workgroups leave ptxas too few registers for a product of 64 rows; use 2")
    return broken


def _table(chip: Chip, head_dim: int, dtype: str, policy: str) -> TileTable:
    if policy not in POLICIES:
        raise ValueError(f"policy must be one of {POLICIES}, got {policy!r}")
    if dtype not in DTYPES_OF[chip.kind]:
        raise TypeError(f"{dtype} is not supported on {chip.arch}; use one of {', '.join(DTYPES_OF[chip.kind])}")
    table = TILES.get((chip.arch, head_dim))
    if table is None:
        raise ValueError(f"no tiles for head_dim {head_dim} on {chip.arch}; add them to TILES in tilekernels/policy.py")
    return table


def _estimate(problem: AttentionProblem, chip: Chip, candidate: Candidate) -> float:
    block_m, block_n = candidate.tile.block_m, candidate.tile.block_n
    longest, all_blocks = _keys_seen(problem, block_m, block_n)
    total = all_blocks * problem.batch * problem.heads
    return block_m * max(candidate.tile.resident * longest, total / chip.compute_units) / candidate.rate


def _allowed(problem: AttentionProblem, candidate: Candidate) -> bool:
    if candidate.most_keys is None:
        return True
    _, keys = _keys_seen(problem, candidate.tile.block_m, candidate.tile.block_n)
    return keys <= candidate.most_keys * -(-problem.seqlen_q // candidate.tile.block_m)


def _keys_seen(problem: AttentionProblem, block_m: int, block_n: int) -> tuple[int, float]:
    """Keys that one head's longest row block walks, and all its row blocks together (on average over the rounding)."""
    blocks = -(-problem.seqlen_q // block_m)
    longest = -(-problem.seqlen_k // block_n) * block_n
    if not problem.causal:
        return longest, blocks * longest
    # Row block i ends at column first + i * block_m, cut to [0, seqlen_k]: none, then a ramp, then all.
    first = block_m + problem.seqlen_k - problem.seqlen_q
    none = min(blocks, max(0, -(first // block_m))) if first < 0 else 0
    whole = min(blocks, max(none, -(-(problem.seqlen_k - first) // block_m)))
    ramp = whole - none
    total = ramp * first + block_m * (none + whole - 1) * ramp / 2 + ramp * (block_n - 1) / 2
    return longest, total + (blocks - whole) * longest
