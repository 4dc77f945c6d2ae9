"""From the sums of `backward_fused` to the gradient of the queries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tilelang.language as T

from tilekernels.backward_policy import ROW_PADDING

if TYPE_CHECKING:
    from tilekernels.backward import BackwardSpec
    from tilekernels.dialect import Dialect


def build(spec: BackwardSpec, dialect: Dialect) -> Any:
    """The kernel as a TVM PrimFunc `attention_backward_cast(Sums, dQ, softmax_scale)`: dQ = softmax_scale * Sums.

    Shapes: Sums (batch, seqlen_q, heads, head_dim) float32; dQ the same, of `spec.dtype`.
    """
    head_dim, dtype = spec.head_dim, spec.dtype
    block_m = ROW_PADDING // 4  # as in `backward_rows`
    threads = 1 if dialect.name == "cpu" else 256
    accumulate = "float32"
    alloc_accumulator, parallel = dialect.alloc_accumulator, dialect.parallel

    batch, heads, seqlen_q = T.dynamic("batch"), T.dynamic("heads"), T.dynamic("seqlen_q")

    @T.prim_func
    def attention_backward_cast(
        Sums: T.Tensor((batch, seqlen_q, heads, head_dim), accumulate),
        dQ: T.Tensor((batch, seqlen_q, heads, head_dim), dtype),
        softmax_scale: T.float32,
    ):
        with T.Kernel(heads, T.ceildiv(seqlen_q, block_m), batch, threads=threads) as (head, block, entry):
            sums = alloc_accumulator((block_m, head_dim), accumulate)
            q_grad = alloc_accumulator((block_m, head_dim), dtype)
            first_row = block * block_m
            T.copy(Sums[entry, first_row : first_row + block_m, head, :], sums)
            for m, d in parallel(block_m, head_dim):
                q_grad[m, d] = T.cast(sums[m, d] * softmax_scale, dtype)
            T.copy(q_grad, dQ[entry, first_row : first_row + block_m, head, :])

    return attention_backward_cast
