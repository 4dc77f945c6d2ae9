"""Gradient of the queries: a workgroup owns a block of query rows of one head and walks the keys that they see."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import tilelang.language as T

if TYPE_CHECKING:
    from tilekernels.backward import BackwardSpec
    from tilekernels.backward_policy import Blocks
    from tilekernels.dialect import Dialect


def build(spec: BackwardSpec, tile: Blocks, dialect: Dialect) -> Any:
    """The kernel as a TVM PrimFunc `attention_backward_queries(Q, K, V, dO, Stats, dQ, softmax_scale)`.

    Shapes: Q, dO, dQ (batch, seqlen_q, heads, head_dim); K, V (batch, seqlen_k, kv_heads, head_dim), of `spec.dtype` and
    contiguous; Stats as `backward_rows` writes it; softmax_scale float32 > 0. Batch, heads, kv_heads and both
    lengths are symbols. dQ is written whole, once, with the same bits every time.
    """
    head_dim, dtype, causal = spec.head_dim, spec.dtype, spec.causal
    block_m, block_n = tile.block_m, tile.block_n
    accumulate = "float32"
    log2_e = math.log2(math.e)
    alloc_tile, alloc_accumulator, parallel = dialect.alloc_tile, dialect.alloc_accumulator, dialect.parallel
    exp2 = dialect.exp2
    alloc_rows = alloc_tile if tile.held == "shared" else alloc_accumulator
    warp_policy = T.GemmWarpPolicy.FullRow
    # As in `backward_keys`; here V's tile is read by a started product and named once more.
    start_gemm = T.wgmma_gemm if tile.overlap else T.gemm
    registers = block_m * block_n // tile.threads

    batch, seqlen_q, seqlen_k = T.dynamic("batch"), T.dynamic("seqlen_q"), T.dynamic("seqlen_k")
    heads, kv_heads, padded_q = T.dynamic("heads"), T.dynamic("kv_heads"), T.dynamic("padded_q")

    @T.prim_func
    def attention_backward_queries(
        Q: T.Tensor((batch, seqlen_q, heads, head_dim), dtype),
        K: T.Tensor((batch, seqlen_k, kv_heads, head_dim), dtype),
        V: T.Tensor((batch, seqlen_k, kv_heads, head_dim), dtype),
        dO: T.Tensor((batch, seqlen_q, heads, head_dim), dtype),
        Stats: T.Tensor((batch, 2, heads, padded_q), accumulate),
        dQ: T.Tensor((batch, seqlen_q, heads, head_dim), dtype),
        softmax_scale: T.float32,
    ):
        with T.Kernel(heads, T.ceildiv(seqlen_q, block_m), batch, threads=tile.threads) as (head, block, entry):
            q = alloc_rows((block_m, head_dim), dtype)
            grad = alloc_rows((block_m, head_dim), dtype)
            k = alloc_tile((block_n, head_dim), dtype)
            v = alloc_tile((block_n, head_dim), dtype)
            if dialect.transposes_v:
                k_rows = alloc_accumulator((block_n, head_dim), dtype)
                k_columns = alloc_tile((head_dim, block_n), dtype)
            scaled = alloc_accumulator((block_m,), accumulate)
            delta = alloc_accumulator((block_m,), accumulate)
            scores = alloc_accumulator((block_m, block_n), accumulate)
            products = alloc_accumulator((block_m, block_n), accumulate)
            score_grads = alloc_accumulator((block_m, block_n), dtype)
            q_grad = alloc_accumulator((block_m, head_dim), accumulate)

            kv_head = T.truncdiv(head, T.truncdiv(heads, kv_heads))
            T.assume(kv_head < kv_heads)  # else every load of K and V is guarded
            scale = softmax_scale * log2_e
            # Under a causal mask later rows see more keys: starting with the last ones leaves no long workgroup for the end.
            first_row = (T.ceildiv(seqlen_q, block_m) - 1 - block) * block_m if causal else block * block_m
            diagonal = first_row + seqlen_k - seqlen_q  # the last column that first_row sees
            # Tiles before `unmasked` are seen whole by every row; tiles from `visible` on are seen by none and skipped.
            if causal:
                visible = T.ceildiv(T.max(1, T.min(seqlen_k, diagonal + block_m)), block_n)
                unmasked = T.max(0, T.min(seqlen_k, diagonal + 1)) // block_n
            else:
                visible = T.ceildiv(seqlen_k, block_n)
                unmasked = seqlen_k // block_n

            T.copy(Q[entry, first_row : first_row + block_m, head, :], q)
            T.copy(dO[entry, first_row : first_row + block_m, head, :], grad)
            T.assume(first_row + block_m <= padded_q)
            T.copy(Stats[entry, 0, head, first_row : first_row + block_m], scaled)
            T.copy(Stats[entry, 1, head, first_row : first_row + block_m], delta)
            T.fill(q_grad, 0)

            for j in T.Pipelined(visible, num_stages=tile.num_stages):
                if dialect.transposes_v:
                    T.copy(K[entry, j * block_n : (j + 1) * block_n, kv_head, :], k_rows)
                    T.copy(k_rows, k)
                    for n, d in parallel(block_n, head_dim):
                        k_columns[d, n] = k_rows[n, d]
                else:
                    T.copy(K[entry, j * block_n : (j + 1) * block_n, kv_head, :], k)
                start_gemm(q, k, scores, transpose_B=True, policy=warp_policy, clear_accum=True)
                T.copy(V[entry, j * block_n : (j + 1) * block_n, kv_head, :], v)
                start_gemm(grad, v, products, transpose_B=True, policy=warp_policy, clear_accum=True)
                if tile.overlap:
                    T.wait_wgmma(1)
                    T.warpgroup_fence_operand(scores, num_regs=registers)
                for m, n in parallel(block_m, block_n):
                    scores[m, n] = exp2(scores[m, n] * scale - scaled[m])
                if j >= unmasked:
                    for m, n in parallel(block_m, block_n):
                        # Keys past the end, too: of such a score 0 the exponential can be infinite.
                        if causal:
                            scores[m, n] = T.if_then_else(
                                (j * block_n + n <= diagonal + m) & (j * block_n + n < seqlen_k),
                                scores[m, n],
                                T.float32(0),
                            )
                        else:
                            scores[m, n] = T.if_then_else(j * block_n + n < seqlen_k, scores[m, n], T.float32(0))
                if tile.overlap:
                    T.wait_wgmma(0)
                    T.warpgroup_fence_operand(products, num_regs=registers)
                for m, n in parallel(block_m, block_n):
                    score_grads[m, n] = scores[m, n] * (products[m, n] - delta[m])
                if dialect.transposes_v:
                    T.gemm(score_grads, k_columns, q_grad, transpose_B=True, policy=warp_policy)
                else:
                    T.gemm(score_grads, k, q_grad, policy=warp_policy)
                if tile.overlap:  # noqa: SIM102 - one is Python's, the other the kernel's
                    if softmax_scale < 0:  # never
                        dQ[entry, first_row, head, 0] = v[0, 0]

            for m, d in parallel(block_m, head_dim):
                q_grad[m, d] *= softmax_scale
            if tile.held == "shared" and dialect.stages_output:
                T.copy(q_grad, q)
                T.copy(q, dQ[entry, first_row : first_row + block_m, head, :])
            else:
                T.copy(q_grad, dQ[entry, first_row : first_row + block_m, head, :])

    return attention_backward_queries
