"""The backward pass of attention: three kernels that a launch starts in this order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilekernels.kernels import backward_keys, backward_queries, backward_rows

if TYPE_CHECKING:
    from tilekernels.backward import BackwardSpec, BackwardTile
    from tilekernels.dialect import Dialect


def build(spec: BackwardSpec, tile: BackwardTile, dialect: Dialect) -> tuple[Any, ...]:
    """The kernels as TVM PrimFuncs: `attention_backward_rows`, `attention_backward_keys`, `attention_backward_queries`.

    The second needs what the first writes; so does the third. Each writes its results whole and once, without atomics: the
    same inputs give the same bits.
    """
    return (
        backward_rows.build(spec, dialect),
        backward_keys.build(spec, tile.keys, dialect),
        backward_queries.build(spec, tile.queries, dialect),
    )
