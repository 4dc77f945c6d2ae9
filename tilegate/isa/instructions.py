"""What one AMD instruction is: its class, the bytes it moves for a lane, and for how long it keeps its unit busy.

Classes and mnemonics follow AMD's instruction set reference guides for CDNA 2, 3 and 4. Cycle counts are estimates from
peak rates: they know nothing of dependencies, bank conflicts or cache misses.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from tilegate.isa.chips import Chip

MATRIX = "matrix"
VECTOR = "vector"
TRANSCENDENTAL = "transcendental"
AGPR_COPY = "agpr_copy"
SCALAR = "scalar"
LDS_READ = "lds_read"
LDS_WRITE = "lds_write"
LDS_PERMUTE = "lds_permute"
LDS_ATOMIC = "lds_atomic"
GLOBAL_LOAD = "global_load"
GLOBAL_STORE = "global_store"
GLOBAL_ATOMIC = "global_atomic"
SCRATCH = "scratch"
SCALAR_LOAD = "scalar_load"
BARRIER = "barrier"
WAIT = "wait"
BRANCH = "branch"
OTHER = "other"

CLASSES = (
    MATRIX, VECTOR, TRANSCENDENTAL, AGPR_COPY, SCALAR, LDS_READ, LDS_WRITE, LDS_PERMUTE, LDS_ATOMIC, GLOBAL_LOAD,
    GLOBAL_STORE, GLOBAL_ATOMIC, SCRATCH, SCALAR_LOAD, BARRIER, WAIT, BRANCH, OTHER,
)  # fmt: skip

UNITS = ("matrix", "vector", "lds", "memory")
"""The units whose time is estimated. Scalar work and branches run beside them and are not."""

_LANES = 64

_TRANSCENDENTAL = re.compile(r"v_(exp|log|rcp|rsq|sqrt|sin|cos)(_iflag|_legacy)?_(f16|f32|f64)")
# 32-bit integer products run at a quarter of the rate, like transcendentals.
_QUARTER_RATE = re.compile(r"v_(mul_lo_u32|mul_hi_[ui]32|mad_u64_u32|mad_i64_i32)")
# Result type, rows, columns, depth, blocks, operand type: v_mfma_f32_32x32x4_2b_bf16, or v_mfma_f32_32x32x4bf16_1k.
_MATRIX = re.compile(r"v_mfma_(?:scale_)?[a-z]\d+_(\d+)x(\d+)x(\d+)(?:_(\d+)b)?(_?\w+)")
# gfx90a's spelling leaves out how many small products one instruction makes; those of a single one are not listed.
_BLOCKS = {
    "32x32x1f32": 2, "16x16x1f32": 4, "4x4x1f32": 16, "32x32x4f16": 2, "16x16x4f16": 4, "4x4x4f16": 16,
    "32x32x4bf16_1k": 2, "16x16x4bf16_1k": 4, "4x4x4bf16_1k": 16, "32x32x2bf16": 2, "16x16x2bf16": 4, "4x4x2bf16": 16,
    "32x32x4i8": 2, "16x16x4i8": 4, "4x4x4i8": 16,
}  # fmt: skip
# Shapes by which gfx950 doubled its rate: K at least this long.
_LONG_K = {("16x16", "f16"): 32, ("32x32", "f16"): 16, ("16x16", "bf16"): 32, ("32x32", "bf16"): 16,
           ("16x16", "fp8"): 128, ("32x32", "fp8"): 64, ("16x16", "i8"): 64, ("32x32", "i8"): 32}  # fmt: skip

_DWORDS = re.compile(r"dwordx(\d)")
_WIDTHS = (
    (re.compile(r"dword|b32|_[fui]32"), 4),
    (re.compile(r"[us]?short|[ui]16|b16|_f16"), 2),
    (re.compile(r"[us]?byte|[ui]8|b8"), 1),
)
_NO_ADDRESS = re.compile(r"\boff, s\[")
_LDS_WIDTH = re.compile(r"_([bfui])(\d+)")


@dataclass(frozen=True)
class Kind:
    """An instruction's class and, where it moves data, the bytes it moves for one lane (0 elsewhere)."""

    name: str
    width: int = 0


def kind_of(mnemonic: str, operands: str = "") -> Kind:
    """Classify an instruction.

    Args:
        mnemonic: as the assembler prints it, with or without an encoding suffix.
        operands: the rest of the line; tells scratch accesses of gfx90a from global ones.
    """
    kind = _kind(mnemonic)
    # gfx90a reaches scratch through a buffer whose lanes are interleaved: no lane gives an address ("off"). Real buffers
    # are read at every lane's own offset.
    if kind.name in (GLOBAL_LOAD, GLOBAL_STORE) and mnemonic.startswith("buffer_") and _NO_ADDRESS.search(operands):
        return Kind(SCRATCH, kind.width)
    return kind


@functools.lru_cache(maxsize=4096)
def _kind(mnemonic: str) -> Kind:
    prefix = mnemonic.partition("_")[0]
    if prefix == "v":
        return Kind(_vector_class(mnemonic))
    if prefix == "s":
        return Kind(_scalar_class(mnemonic))
    if prefix == "ds":
        return _lds(mnemonic)
    if prefix in ("global", "buffer", "flat", "scratch"):
        return _memory(mnemonic)
    return Kind(OTHER)


def _vector_class(mnemonic: str) -> str:
    if "mfma" in mnemonic:
        return MATRIX
    if mnemonic.startswith("v_accvgpr_"):
        return AGPR_COPY
    return TRANSCENDENTAL if _TRANSCENDENTAL.match(mnemonic) else VECTOR


def _scalar_class(mnemonic: str) -> str:
    if mnemonic.startswith("s_waitcnt"):
        return WAIT
    if mnemonic == "s_barrier":
        return BARRIER
    if mnemonic.startswith(("s_branch", "s_cbranch", "s_setpc", "s_swappc", "s_call", "s_endpgm")):
        return BRANCH
    if mnemonic.startswith(("s_load", "s_buffer_load", "s_scratch_load")):
        return SCALAR_LOAD
    return OTHER if mnemonic in ("s_nop", "s_sleep", "s_setprio", "s_sethalt") else SCALAR


def _lds(mnemonic: str) -> Kind:
    if mnemonic.startswith(("ds_bpermute", "ds_permute", "ds_swizzle")):
        return Kind(LDS_PERMUTE, 4)
    name = LDS_READ if mnemonic.startswith("ds_read") else LDS_WRITE if mnemonic.startswith("ds_write") else LDS_ATOMIC
    found = _LDS_WIDTH.search(mnemonic)
    width = int(found[2]) // 8 if found else 4
    if mnemonic.startswith(("ds_read2", "ds_write2")):
        width *= 2
    return Kind(name, width)


def _memory(mnemonic: str) -> Kind:
    several = _DWORDS.search(mnemonic)
    width = 4 * int(several[1]) if several else next((w for pattern, w in _WIDTHS if pattern.search(mnemonic)), 0)
    if mnemonic.startswith("scratch_"):
        return Kind(SCRATCH, width)
    if "_atomic_" in mnemonic:
        return Kind(GLOBAL_ATOMIC, width)
    if "_load_" in mnemonic:
        return Kind(GLOBAL_LOAD, width)
    if "_store_" in mnemonic:
        return Kind(GLOBAL_STORE, width)
    return Kind(OTHER)  # cache control: buffer_wbl2, buffer_inv


def matrix_operations(mnemonic: str) -> int:
    """Return the multiplications and additions of one dense matrix instruction (2 M N K blocks); 0 for any other."""
    shape = _shape(mnemonic)
    if shape is None:
        return 0
    rows, columns, depth, blocks, _ = shape
    return 2 * rows * columns * depth * blocks


def cycles(mnemonic: str, kind: Kind, chip: Chip) -> tuple[str, float] | None:
    """Return the unit that the instruction occupies and for how many cycles at peak rate; None for unmodelled ones.

    "matrix" and "vector" cycles are of one SIMD, "lds" and "memory" cycles of the compute unit that all share.
    """
    if kind.name == MATRIX:
        shape = _shape(mnemonic)
        return None if shape is None else ("matrix", matrix_operations(mnemonic) / _matrix_rate(mnemonic, shape, chip))
    if kind.name in (VECTOR, AGPR_COPY):
        # A SIMD is 16 lanes wide.
        return "vector", 16.0 if _QUARTER_RATE.match(mnemonic) else 4.0
    if kind.name == TRANSCENDENTAL:
        return "vector", 16.0
    if kind.name in (LDS_READ, LDS_WRITE, LDS_PERMUTE, LDS_ATOMIC):
        # A bank serves whole words: 64 narrower accesses take as long as 64 words.
        return "lds", _LANES * max(4, kind.width) / chip.lds_bytes_per_cycle
    if kind.name in (GLOBAL_LOAD, GLOBAL_STORE, GLOBAL_ATOMIC, SCRATCH):
        return "memory", _LANES * max(4, kind.width) / chip.memory_bytes_per_cycle
    return None


@functools.lru_cache(maxsize=256)
def _shape(mnemonic: str) -> tuple[int, int, int, int, str] | None:
    """Rows, columns, depth, blocks and operand type; None for what is no dense matrix instruction."""
    found = _MATRIX.match(mnemonic)
    if found is None:
        return None
    rows, columns, depth = (int(found[i]) for i in (1, 2, 3))
    blocks = int(found[4]) if found[4] else _BLOCKS.get(f"{rows}x{columns}x{depth}{found[5]}", 1)
    return rows, columns, depth, blocks, _operand(found[5].lstrip("_"))


def _operand(text: str) -> str:
    for name in ("bf16", "f16", "xf32", "f32", "f64", "i8"):
        if text.startswith(name):
            return name
    return "fp8"  # fp8, bf8, f8f6f4


def _matrix_rate(mnemonic: str, shape: tuple[int, int, int, int, str], chip: Chip) -> int:
    rows, columns, depth, _, operand = shape
    rate = chip.matrix_rate.get(operand, chip.matrix_rate["f32"])
    if operand not in chip.short_k_rate:
        return rate
    if chip.arch == "gfx90a":
        return rate if "1k" in mnemonic else chip.short_k_rate[operand]
    return rate if depth >= _LONG_K.get((f"{rows}x{columns}", operand), 0) else chip.short_k_rate[operand]
