"""What both gradient kernels need to know of each query row: its log-sum-exp and its delta."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import tilelang.language as T

from tilekernels.backward_policy import ROW_PADDING

if TYPE_CHECKING:
    from tilekernels.backward import BackwardSpec
    from tilekernels.dialect import Dialect


def build(spec: BackwardSpec, dialect: Dialect) -> Any:
    """The kernel as a TVM PrimFunc `attention_backward_rows(O, dO, LSE, Stats)`.

    With P = exp(S - LSE), dP = dO V^T and S the scaled scores, the gradient of the scores is dS = P * (dP - delta), where
    delta = rowsum(dO * O) (FlashAttention-2, arXiv 2307.08691, algorithm 2). It is summed here, once, in float32.

    Shapes: O, dO (batch, seqlen_q, heads, head_dim) of `spec.dtype`, contiguous; LSE (batch, heads, seqlen_q) float32;
    Stats (batch, 2, heads, padded_q) float32, padded_q being seqlen_q rounded up to a multiple of `ROW_PADDING`. The padding
    lets the gradient kernels load whole, aligned tiles.

    Stats[:, 0] is LSE * log2(e), and +inf for a row that sees no key (LSE -inf) and for padding: exp2(s - inf) = 0, so such
    rows give nothing to any gradient, without a test and without -inf - -inf. Stats[:, 1] is delta, 0 in the padding.
    """
    head_dim, dtype = spec.head_dim, spec.dtype
    block_m = ROW_PADDING // 4  # memory limits this kernel: many small workgroups, 16 bytes a lane and load
    threads = 1 if dialect.name == "cpu" else 256
    accumulate = "float32"
    log2_e = math.log2(math.e)
    alloc_accumulator, parallel = dialect.alloc_accumulator, dialect.parallel

    batch, heads = T.dynamic("batch"), T.dynamic("heads")
    seqlen_q, padded_q = T.dynamic("seqlen_q"), T.dynamic("padded_q")

    @T.prim_func
    def attention_backward_rows(
        O: T.Tensor((batch, seqlen_q, heads, head_dim), dtype),
        dO: T.Tensor((batch, seqlen_q, heads, head_dim), dtype),
        LSE: T.Tensor((batch, heads, seqlen_q), accumulate),
        Stats: T.Tensor((batch, 2, heads, padded_q), accumulate),
    ):
        with T.Kernel(heads, T.ceildiv(padded_q, block_m), batch, threads=threads) as (head, block, entry):
            out = alloc_accumulator((block_m, head_dim), dtype)
            grad = alloc_accumulator((block_m, head_dim), dtype)
            product = alloc_accumulator((block_m, head_dim), accumulate)
            delta = alloc_accumulator((block_m,), accumulate)
            first_row = block * block_m

            T.copy(O[entry, first_row : first_row + block_m, head, :], out)
            T.copy(dO[entry, first_row : first_row + block_m, head, :], grad)
            for m, d in parallel(block_m, head_dim):
                product[m, d] = T.cast(out[m, d], accumulate) * T.cast(grad[m, d], accumulate)
            T.reduce_sum(product, delta, dim=1)
            for m in parallel(block_m):
                Stats[entry, 1, head, first_row + m] = delta[m]
            for m in parallel(block_m):
                Stats[entry, 0, head, first_row + m] = T.if_then_else(
                    first_row + m < seqlen_q,
                    T.if_then_else(
                        LSE[entry, head, first_row + m] == -T.infinity(accumulate),
                        T.infinity(accumulate),
                        LSE[entry, head, first_row + m] * log2_e,
                    ),
                    T.infinity(accumulate),
                )

    return attention_backward_rows
