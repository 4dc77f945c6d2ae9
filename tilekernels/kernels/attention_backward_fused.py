"""The backward pass of attention with atomics: three kernels that a launch starts in this order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilekernels.kernels import backward_cast, backward_fused, backward_rows

if TYPE_CHECKING:
    from tilekernels.backward import BackwardSpec
    from tilekernels.backward_policy import Blocks
    from tilekernels.dialect import Dialect


def build(spec: BackwardSpec, tile: Blocks, dialect: Dialect) -> tuple[Any, ...]:
    """The kernels as TVM PrimFuncs: `attention_backward_rows`, `attention_backward_fused`, `attention_backward_cast`."""
    return (
        backward_rows.build(spec, dialect),
        backward_fused.build(spec, tile, dialect),
        backward_cast.build(spec, dialect),
    )
