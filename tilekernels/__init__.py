"""Attention kernels in TileLang for AMD Instinct and NVIDIA Hopper GPUs, and for the CPU.

Importing this package imports neither torch nor TileLang: names are loaded when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilekernels.backward import BackwardKernel, BackwardSpec, FusedBackwardKernel, backward_kernel, padded_rows
    from tilekernels.backward_policy import BackwardTile, Blocks, backward_variants, choose_backward_tile
    from tilekernels.chips import CHIPS, Chip, chip_by_name, chip_of
    from tilekernels.compiler import CompilationError, LoweredKernel, lower
    from tilekernels.decode import DecodeKernel, DecodeProblem, decode_kernel
    from tilekernels.forward import ForwardKernel, ForwardSpec, forward_kernel, precompile
    from tilekernels.functional import attention
    from tilekernels.functional_decode import attention_decode
    from tilekernels.functional_mla import mla_decode
    from tilekernels.handle import Kernel, compile_kernels
    from tilekernels.mla import MlaKernel, MlaProblem, mla_kernel
    from tilekernels.policy import POLICIES, TileConfig, choose_tiles, fits, variants
    from tilekernels.problem import AttentionProblem
    from tilekernels.varlen import VarlenKernel, VarlenProblem, VarlenSpec, attention_varlen, varlen_kernel
    from tilekernels.varlen_backward import VarlenBackwardKernel, padded_total, varlen_backward_kernel

_EXPORTS = {
    "attention": "functional",
    "attention_decode": "functional_decode",
    "AttentionProblem": "problem",
    "BackwardKernel": "backward",
    "BackwardSpec": "backward",
    "BackwardTile": "backward_policy",
    "Blocks": "backward_policy",
    "CHIPS": "chips",
    "Chip": "chips",
    "CompilationError": "compiler",
    "DecodeKernel": "decode",
    "DecodeProblem": "decode",
    "ForwardKernel": "forward",
    "ForwardSpec": "forward",
    "FusedBackwardKernel": "backward",
    "Kernel": "handle",
    "LoweredKernel": "compiler",
    "MlaKernel": "mla",
    "MlaProblem": "mla",
    "POLICIES": "policy",
    "TileConfig": "policy",
    "VarlenBackwardKernel": "varlen_backward",
    "VarlenKernel": "varlen",
    "VarlenProblem": "varlen",
    "VarlenSpec": "varlen",
    "attention_varlen": "varlen",
    "backward_kernel": "backward",
    "backward_variants": "backward_policy",
    "chip_by_name": "chips",
    "chip_of": "chips",
    "choose_backward_tile": "backward_policy",
    "choose_tiles": "policy",
    "compile_kernels": "handle",
    "decode_kernel": "decode",
    "fits": "policy",
    "forward_kernel": "forward",
    "lower": "compiler",
    "mla_decode": "functional_mla",
    "mla_kernel": "mla",
    "padded_rows": "backward",
    "precompile": "forward",
    "variants": "policy",
    "padded_total": "varlen_backward",
    "varlen_backward_kernel": "varlen_backward",
    "varlen_kernel": "varlen",
}

__all__ = [
    "CHIPS",
    "POLICIES",
    "AttentionProblem",
    "BackwardKernel",
    "BackwardSpec",
    "BackwardTile",
    "Blocks",
    "Chip",
    "CompilationError",
    "DecodeKernel",
    "DecodeProblem",
    "ForwardKernel",
    "ForwardSpec",
    "FusedBackwardKernel",
    "Kernel",
    "LoweredKernel",
    "MlaKernel",
    "MlaProblem",
    "TileConfig",
    "VarlenBackwardKernel",
    "VarlenKernel",
    "VarlenProblem",
    "VarlenSpec",
    "attention",
    "attention_decode",
    "attention_varlen",
    "backward_kernel",
    "backward_variants",
    "chip_by_name",
    "chip_of",
    "choose_backward_tile",
    "choose_tiles",
    "compile_kernels",
    "decode_kernel",
    "fits",
    "forward_kernel",
    "lower",
    "mla_decode",
    "mla_kernel",
    "padded_rows",
    "padded_total",
    "precompile",
    "variants",
    "varlen_backward_kernel",
    "varlen_kernel",
]

__version__ = "0.2.0"


def __getattr__(name: str) -> Any:
    """Load an exported name from its module, once."""
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_EXPORTS[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The exported names, loaded or not."""
    return sorted({*globals(), *__all__})
