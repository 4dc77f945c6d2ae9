"""Forward attention with online softmax (FlashAttention-2's recurrence, arXiv 2307.08691), GQA, dynamic lengths."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import tilelang.language as T

from tilekernels.forward import ForwardSpec

if TYPE_CHECKING:
    from tilekernels.dialect import Dialect
    from tilekernels.policy import TileConfig


def build(spec: ForwardSpec, tile: TileConfig, dialect: Dialect) -> Any:
    """The kernel as a TVM PrimFunc `attention_forward(Q, K, V, O, LSE, scale)`.

    Shapes: Q, O (batch, seqlen_q, heads, head_dim); K, V (batch, seqlen_k, kv_heads, head_dim), all of `spec.dtype` and
    contiguous; LSE (batch, heads, seqlen_q) float32, natural logarithm; `scale` float32 > 0. Batch, heads, kv_heads and
    both lengths are symbols: one compilation serves them all, heads being a multiple of kv_heads. The causal mask is
    aligned bottom right: row i sees columns j <= i + seqlen_k - seqlen_q. A row that sees nothing gets O = 0 and
    LSE = -inf.
    """
    head_dim, dtype, causal = spec.head_dim, spec.dtype, spec.causal
    block_m, block_n = tile.block_m, tile.block_n
    accumulate = "float32"
    # exp2 is the hardware's exponential: scores are scaled by log2(e) once instead of at every exponential.
    log2_e = math.log2(math.e)
    # The running maximum starts finite: a row that has seen nothing would otherwise compute -inf - -inf = NaN. Far below
    # any score of finite fp16 inputs (65504**2 * head_dim), and scaling it does not overflow float32.
    lowest = -1e30
    alloc_tile, alloc_accumulator, parallel = dialect.alloc_tile, dialect.alloc_accumulator, dialect.parallel
    exp2 = dialect.exp2
    # On the CPU gemm has no warps to distribute; on AMD k_pack=2 widens the LDS reads of both operands of Q K^T.
    warp_policy = T.GemmWarpPolicy.FullRow
    annotations = {"k_pack": tile.k_pack} if dialect.name == "hip" and tile.k_pack != 1 else None

    batch, seqlen_q, seqlen_k = T.dynamic("batch"), T.dynamic("seqlen_q"), T.dynamic("seqlen_k")
    heads, kv_heads = T.dynamic("heads"), T.dynamic("kv_heads")

    @T.prim_func
    def attention_forward(
        Q: T.Tensor((batch, seqlen_q, heads, head_dim), dtype),
        K: T.Tensor((batch, seqlen_k, kv_heads, head_dim), dtype),
        V: T.Tensor((batch, seqlen_k, kv_heads, head_dim), dtype),
        O: T.Tensor((batch, seqlen_q, heads, head_dim), dtype),
        LSE: T.Tensor((batch, heads, seqlen_q), accumulate),
        softmax_scale: T.float32,
    ):
        with T.Kernel(heads, T.ceildiv(seqlen_q, block_m), batch, threads=tile.threads) as (head, block, entry):
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

            # truncdiv: TileLang's floor division guards against signs that heads do not have.
            kv_head = T.truncdiv(head, T.truncdiv(heads, kv_heads))
            T.assume(kv_head < kv_heads)  # else every load of K and V is guarded
            scale = softmax_scale * log2_e
            # Under a causal mask later rows see more keys: starting with the last ones leaves no long workgroup for the end.
            first_row = (T.ceildiv(seqlen_q, block_m) - 1 - block) * block_m if causal else block * block_m
            diagonal = first_row + seqlen_k - seqlen_q  # the last column that first_row sees
            # Tiles before `unmasked` are seen whole by every row; tiles from `visible` on are seen by none and skipped.
            if causal:
                # At least one, wholly masked if need be: on Hopper the first step is what waits for the load of Q, whose
                # tile the output passes through.
                visible = T.ceildiv(T.max(1, T.min(seqlen_k, diagonal + block_m)), block_n)
                unmasked = T.max(0, T.min(seqlen_k, diagonal + 1)) // block_n
            else:
                visible = T.ceildiv(seqlen_k, block_n)
                unmasked = seqlen_k // block_n

            T.copy(Q[entry, first_row : first_row + block_m, head, :], q)
            T.fill(out, 0)
            T.fill(row_sum, 0)
            T.fill(row_max, lowest)

            for j in T.Pipelined(visible, num_stages=tile.num_stages):
                T.copy(K[entry, j * block_n : (j + 1) * block_n, kv_head, :], k)
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
                T.copy(row_max, row_max_before)
                T.reduce_max(scores, row_max, dim=1, clear=False)
                for m in parallel(block_m):
                    row_max[m] = T.max(row_max[m], row_max_before[m])
                # The difference first: a fused multiply-add would make 1 +- 1e-7 of an unchanged maximum, in every tile.
                for m in parallel(block_m):
                    rescale[m] = exp2((row_max_before[m] - row_max[m]) * scale)
                for m, n in parallel(block_m, block_n):
                    scores[m, n] = exp2(scores[m, n] * scale - row_max[m] * scale)
                T.reduce_sum(scores, tile_sum, dim=1)
                for m in parallel(block_m):
                    row_sum[m] = row_sum[m] * rescale[m] + tile_sum[m]
                T.copy(scores, probabilities)
                for m, d in parallel(block_m, head_dim):
                    out[m, d] *= rescale[m]
                if dialect.transposes_v:
                    T.copy(V[entry, j * block_n : (j + 1) * block_n, kv_head, :], v_rows)
                    for n, d in parallel(block_n, head_dim):
                        v[d, n] = v_rows[n, d]
                else:
                    T.copy(V[entry, j * block_n : (j + 1) * block_n, kv_head, :], v)
                T.gemm(probabilities, v, out, transpose_B=dialect.transposes_v, policy=warp_policy)

            # A row that has seen nothing has row_sum 0. Compared with 0 and not with > 0: NaN in, NaN out.
            for m, d in parallel(block_m, head_dim):
                out[m, d] = T.if_then_else(row_sum[m] == 0, 0.0, out[m, d] / row_sum[m])
            if tile.q_in == "shared" and dialect.stages_output:
                T.copy(out, q)
                T.copy(q, O[entry, first_row : first_row + block_m, head, :])
            else:
                T.copy(out, O[entry, first_row : first_row + block_m, head, :])
            # log1p: under CUDA's fast math every other logarithm has a relative error of 2**-22, too much for an LSE of
            # a long row. The largest term of row_sum is 1, so nothing cancels.
            for m in parallel(block_m):
                if first_row + m < seqlen_q:
                    LSE[entry, head, first_row + m] = row_max[m] * softmax_scale + T.log1p(row_sum[m] - 1.0)

    return attention_forward
