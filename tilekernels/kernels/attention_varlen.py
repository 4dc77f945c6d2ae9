"""Forward attention over packed sequences of different lengths: online softmax as in `attention_forward`, GQA."""

# No `from __future__ import annotations`: TileLang would look for the symbols of a signature where it is not.
from typing import TYPE_CHECKING, Any

import tilelang.language as T

from tilekernels.kernels.online_softmax import LOWEST, online_softmax
from tilekernels.kernels.residency import PRODUCER_REGISTERS, consumer_registers

if TYPE_CHECKING:
    from tilekernels.dialect import Dialect
    from tilekernels.policy import TileConfig
    from tilekernels.varlen import VarlenSpec


def build(spec: "VarlenSpec", tile: "TileConfig", dialect: "Dialect") -> Any:
    """The kernel as a TVM PrimFunc `attention_varlen(Q, K, V, CuQ, CuK, O, LSE, max_seqlen_q, scale)`.

    Shapes: Q, O (total_q, heads, head_dim); K, V (total_k, kv_heads, head_dim), all of `spec.dtype` and contiguous; CuQ, CuK
    (bounds,) int32: sequence s has the rows CuQ[s] to CuQ[s + 1] - 1 and the keys CuK[s] to CuK[s + 1] - 1; LSE (heads,
    total_q) float32, natural logarithm. No sequence has more than `max_seqlen_q` rows, an int32: rows beyond are not
    computed. `scale` float32 > 0. All shapes are symbols; total_k is at least 1. The causal mask is aligned bottom right in
    every sequence. A row that sees nothing gets O = 0 and LSE = -inf; what belongs to no sequence is left as it is.
    """
    head_dim, dtype, causal = spec.head_dim, spec.dtype, spec.causal
    block_m, block_n = tile.block_m, tile.block_n
    accumulate = "float32"
    alloc_tile, alloc_accumulator, parallel = dialect.alloc_tile, dialect.alloc_accumulator, dialect.parallel
    warp_policy = T.GemmWarpPolicy.FullRow
    annotations = {"k_pack": tile.k_pack} if dialect.name == "hip" and tile.k_pack != 1 else None
    softmax = online_softmax(dialect, block_m, block_n)
    through_q = tile.q_in == "shared" and dialect.stages_output

    bounds, total_q, total_k = T.dynamic("bounds"), T.dynamic("total_q"), T.dynamic("total_k")
    heads, kv_heads = T.dynamic("heads"), T.dynamic("kv_heads")

    @T.prim_func
    def attention_varlen(
        Q: T.Tensor((total_q, heads, head_dim), dtype),
        K: T.Tensor((total_k, kv_heads, head_dim), dtype),
        V: T.Tensor((total_k, kv_heads, head_dim), dtype),
        CuQ: T.Tensor((bounds,), "int32"),
        CuK: T.Tensor((bounds,), "int32"),
        O: T.Tensor((total_q, heads, head_dim), dtype),
        LSE: T.Tensor((heads, total_q), accumulate),
        max_seqlen_q: T.int32,
        softmax_scale: T.float32,
    ):
        with T.Kernel(heads, T.ceildiv(max_seqlen_q, block_m), bounds - 1, threads=tile.threads) as (
            head,
            block,
            entry,
        ):
            if tile.resident > 1:
                T.annotate_min_blocks_per_sm(tile.resident)
                T.annotate_producer_reg_dealloc(PRODUCER_REGISTERS)
                T.annotate_consumer_reg_alloc(consumer_registers(tile.threads, tile.resident))
            if tile.q_in == "shared":
                q = alloc_tile((block_m, head_dim), dtype)
            else:
                q = alloc_accumulator((block_m, head_dim), dtype)
            k = alloc_tile((block_n, head_dim), dtype)
            if dialect.transposes_v:
                v_rows = alloc_accumulator((block_n, head_dim), dtype)
                v = alloc_tile((head_dim, block_n), dtype)
            else:
                v = alloc_tile((block_n, head_dim), dtype)
            scores = alloc_accumulator((block_m, block_n), accumulate)
            probabilities = alloc_accumulator((block_m, block_n), dtype)
            out = alloc_accumulator((block_m, head_dim), accumulate)
            row_max = alloc_accumulator((block_m,), accumulate)
            row_max_before = alloc_accumulator((block_m,), accumulate)
            rescale = alloc_accumulator((block_m,), accumulate)
            row_sum = alloc_accumulator((block_m,), accumulate)
            tile_sum = alloc_accumulator((block_m,), accumulate)

            kv_head = T.truncdiv(head, T.truncdiv(heads, kv_heads))
            T.assume(kv_head < kv_heads)  # else every load of K and V is guarded
            scale = softmax.scale(softmax_scale)
            start_q, start_k = CuQ[entry], CuK[entry]
            seqlen_q, seqlen_k = CuQ[entry + 1] - start_q, CuK[entry + 1] - start_k
            # Under a causal mask the last rows come first, as in `attention_forward`; other workgroups have nothing to do.
            first_row = (T.ceildiv(seqlen_q, block_m) - 1 - block) * block_m if causal else block * block_m
            diagonal = first_row + seqlen_k - seqlen_q  # the last column that first_row sees
            if (first_row >= 0) & (first_row < seqlen_q):
                # At least one step, wholly masked if need be: on Hopper it is what waits for the load of Q.
                if causal:
                    visible = T.ceildiv(T.max(1, T.min(seqlen_k, diagonal + block_m)), block_n)
                    unmasked = T.max(0, T.min(seqlen_k, diagonal + 1)) // block_n
                else:
                    visible = T.ceildiv(T.max(1, seqlen_k), block_n)
                    unmasked = seqlen_k // block_n

                T.copy(Q[start_q + first_row : start_q + first_row + block_m, head, :], q)
                T.fill(out, 0)
                T.fill(row_sum, 0)
                T.fill(row_max, LOWEST)

                for j in T.Pipelined(visible, num_stages=tile.num_stages):
                    T.copy(K[start_k + j * block_n : start_k + (j + 1) * block_n, kv_head, :], k)
                    T.clear(scores)
                    T.gemm(q, k, scores, transpose_B=True, policy=warp_policy, annotations=annotations)
                    if j >= unmasked:
                        for m, n in parallel(block_m, block_n):
                            if causal:
                                scores[m, n] = T.if_then_else(
                                    (j * block_n + n <= diagonal + m) & (j * block_n + n < seqlen_k),
                                    scores[m, n],
                                    -T.infinity(accumulate),
                                )
                            else:
                                scores[m, n] = T.if_then_else(
                                    j * block_n + n < seqlen_k, scores[m, n], -T.infinity(accumulate)
                                )
                    softmax.step(scores, row_max, row_max_before, rescale, row_sum, tile_sum, scale)
                    T.copy(scores, probabilities)
                    for m, d in parallel(block_m, head_dim):
                        out[m, d] *= rescale[m]
                    if dialect.transposes_v:
                        T.copy(V[start_k + j * block_n : start_k + (j + 1) * block_n, kv_head, :], v_rows)
                        for n, d in parallel(block_n, head_dim):
                            v[d, n] = v_rows[n, d]
                    else:
                        T.copy(V[start_k + j * block_n : start_k + (j + 1) * block_n, kv_head, :], v)
                    T.gemm(probabilities, v, out, transpose_B=dialect.transposes_v, policy=warp_policy)

                for m, d in parallel(block_m, head_dim):
                    out[m, d] = T.if_then_else(row_sum[m] == 0, 0.0, out[m, d] / row_sum[m])
                # The rows after the last one are the next sequence's.
                if through_q:
                    T.copy(out, q)
                    if first_row + block_m <= seqlen_q:
                        T.copy(q, O[start_q + first_row : start_q + first_row + block_m, head, :])
                    else:
                        for m, d in parallel(block_m, head_dim):
                            if first_row + m < seqlen_q:
                                O[start_q + first_row + m, head, d] = q[m, d]
                else:
                    for m, d in parallel(block_m, head_dim):
                        if first_row + m < seqlen_q:
                            O[start_q + first_row + m, head, d] = T.cast(out[m, d], dtype)
                for m in parallel(block_m):
                    if first_row + m < seqlen_q:
                        LSE[head, start_q + first_row + m] = softmax.lse(row_max[m], row_sum[m], softmax_scale)

    return attention_varlen
