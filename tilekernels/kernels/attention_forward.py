"""Forward attention with online softmax (FlashAttention-2's recurrence, arXiv 2307.08691), GQA, dynamic lengths.

Options that a specification leaves out leave no trace in the generated code.
"""

# No `from __future__ import annotations`: TileLang would look for the symbols of a signature where it is not.
from typing import TYPE_CHECKING, Any

import tilelang.language as T

from tilekernels.kernels.online_softmax import LOWEST, online_softmax
from tilekernels.kernels.residency import PRODUCER_REGISTERS, consumer_registers

if TYPE_CHECKING:
    from tilekernels.dialect import Dialect
    from tilekernels.forward import ForwardSpec
    from tilekernels.policy import TileConfig


def build(spec: "ForwardSpec", tile: "TileConfig", dialect: "Dialect") -> Any:
    """The kernel as a TVM PrimFunc `attention_forward(Q, K, V, O, LSE, scale)`, with sinks `(Q, K, V, Sinks, O, LSE, scale)`.

    Shapes: Q (batch, seqlen_q, heads, head_dim), K (batch, seqlen_k, kv_heads, head_dim), V (batch, seqlen_k, kv_heads,
    head_dim_v), O (batch, seqlen_q, heads, head_dim_v), all of `spec.dtype` and contiguous; LSE (batch, heads, seqlen_q) and
    Sinks (heads,) float32, natural logarithms; `scale` float32 > 0. Batch, heads, kv_heads and both lengths are symbols: one
    compilation serves them all, heads being a multiple of kv_heads. Masks are aligned bottom right: row i stands on column
    p = i + seqlen_k - seqlen_q and sees columns p - left to p + right (causal: to p). A row that sees nothing gets O = 0 and
    LSE = -inf, or its sink.
    """
    head_dim, head_dim_v, dtype = spec.head_dim, spec.head_dim_v or spec.head_dim, spec.dtype
    left, right = spec.window_left, 0 if spec.causal else spec.window_right
    block_m, block_n = tile.block_m, tile.block_n
    accumulate = "float32"
    alloc_tile, alloc_accumulator, parallel = dialect.alloc_tile, dialect.alloc_accumulator, dialect.parallel
    # On the CPU gemm has no warps to distribute; on AMD k_pack=2 widens the LDS reads of both operands of Q K^T.
    warp_policy = T.GemmWarpPolicy.FullRow
    annotations = {"k_pack": tile.k_pack} if dialect.name == "hip" and tile.k_pack != 1 else None
    wgmma = dialect.start_gemm
    softmax, capped = online_softmax(dialect, block_m, block_n, spec.softcap), spec.softcap > 0

    batch, seqlen_q, seqlen_k = T.dynamic("batch"), T.dynamic("seqlen_q"), T.dynamic("seqlen_k")
    heads, kv_heads = T.dynamic("heads"), T.dynamic("kv_heads")

    def seen(column, position, seqlen_k):
        """Whether the row that stands on `position` sees a column."""
        inside = column < seqlen_k
        if right is not None:
            inside = (column <= (position + right if right else position)) & inside
        return inside if left is None else (column >= position - left) & inside

    @T.macro
    def attend(Q, K, V, Sinks, O, LSE, softmax_scale):
        with T.Kernel(heads, T.ceildiv(seqlen_q, block_m), batch, threads=tile.threads) as (head, block, entry):
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
                v_rows = alloc_accumulator((block_n, head_dim_v), dtype)
                v = alloc_tile((head_dim_v, block_n), dtype)
            else:
                v = alloc_tile((block_n, head_dim_v), dtype)
            scores = alloc_accumulator((block_m, block_n), accumulate)
            probabilities = alloc_accumulator((block_m, block_n), dtype)
            out = alloc_accumulator((block_m, head_dim_v), accumulate)
            row_max = alloc_accumulator((block_m,), accumulate)
            row_max_before = alloc_accumulator((block_m,), accumulate)
            rescale = alloc_accumulator((block_m,), accumulate)
            row_sum = alloc_accumulator((block_m,), accumulate)
            tile_sum = alloc_accumulator((block_m,), accumulate)

            # truncdiv: TileLang's floor division guards against signs that heads do not have.
            kv_head = T.truncdiv(head, T.truncdiv(heads, kv_heads))
            T.assume(kv_head < kv_heads)  # else every load of K and V is guarded
            scale = softmax.scale(softmax_scale)
            # Under a causal mask later rows see more keys: starting with the last ones leaves no long workgroup for the end.
            first_row = (T.ceildiv(seqlen_q, block_m) - 1 - block) * block_m if spec.causal else block * block_m
            diagonal = first_row + seqlen_k - seqlen_q  # the column that first_row stands on
            # Tiles from `whole` on and before `unmasked` are seen whole by every row; those before `first` and from
            # `visible` on are seen by none and skipped.
            if right is not None:
                reach = diagonal + right if right else diagonal
                # At least one, wholly masked if need be: on Hopper the first step is what waits for the load of Q, whose
                # tile the output passes through.
                visible = T.ceildiv(T.max(1, T.min(seqlen_k, reach + block_m)), block_n)
                unmasked = T.max(0, T.min(seqlen_k, reach + 1)) // block_n
            else:
                visible = T.ceildiv(seqlen_k, block_n)
                unmasked = seqlen_k // block_n
            if left is None:
                first, whole = 0, 0
            else:
                first = T.max(0, diagonal - left) // block_n
                whole = T.ceildiv(T.max(0, diagonal + block_m - 1 - left), block_n)

            T.copy(Q[entry, first_row : first_row + block_m, head, :], q)
            T.fill(out, 0)
            if spec.sinks:
                # A sink is a column that is seen first and has no value.
                for m in parallel(block_m):
                    row_max[m] = T.max(LOWEST, T.min(-LOWEST, Sinks[head] / softmax.unit(softmax_scale)))
                    row_sum[m] = T.if_then_else(Sinks[head] == -T.infinity(accumulate), 0.0, 1.0)
            else:
                T.fill(row_sum, 0)
                T.fill(row_max, LOWEST)

            steps = visible if left is None else T.max(1, visible - first)
            if tile.overlap:
                # The product with V comes a step late and runs while the softmax of this step is computed. Beyond the ends
                # of K and V a load gives zeros: before the first step P is 0, and after the last one the mask hides all.
                T.fill(probabilities, 0)
                for j in T.Pipelined(steps + 1, num_stages=tile.num_stages):
                    T.copy(K[entry, (first + j) * block_n : (first + j + 1) * block_n, kv_head, :], k)
                    wgmma(q, k, scores, transpose_B=True, policy=warp_policy, clear_accum=True)
                    T.copy(V[entry, (first + j - 1) * block_n : (first + j) * block_n, kv_head, :], v)
                    wgmma(probabilities, v, out, policy=warp_policy)
                    T.wait_wgmma(1)
                    dialect.in_use(k)
                    if capped:
                        softmax.cap(scores, softmax_scale)
                    if first + j >= unmasked if left is None else (first + j >= unmasked) | (first + j < whole):
                        for m, n in parallel(block_m, block_n):
                            scores[m, n] = T.if_then_else(
                                seen((first + j) * block_n + n, diagonal + m, seqlen_k),
                                scores[m, n],
                                -T.infinity(accumulate),
                            )
                    softmax.step(scores, row_max, row_max_before, rescale, row_sum, tile_sum, scale)
                    T.wait_wgmma(0)
                    dialect.in_use(v)
                    for m, d in parallel(block_m, head_dim_v):
                        out[m, d] *= rescale[m]
                    T.copy(scores, probabilities)
            else:
                for j in T.Pipelined(steps, num_stages=tile.num_stages):
                    T.copy(K[entry, (first + j) * block_n : (first + j + 1) * block_n, kv_head, :], k)
                    T.clear(scores)
                    T.gemm(q, k, scores, transpose_B=True, policy=warp_policy, annotations=annotations)
                    if capped:
                        softmax.cap(scores, softmax_scale)
                    if first + j >= unmasked if left is None else (first + j >= unmasked) | (first + j < whole):
                        for m, n in parallel(block_m, block_n):
                            scores[m, n] = T.if_then_else(
                                seen((first + j) * block_n + n, diagonal + m, seqlen_k),
                                scores[m, n],
                                -T.infinity(accumulate),
                            )
                    softmax.step(scores, row_max, row_max_before, rescale, row_sum, tile_sum, scale)
                    T.copy(scores, probabilities)
                    for m, d in parallel(block_m, head_dim_v):
                        out[m, d] *= rescale[m]
                    if dialect.transposes_v:
                        T.copy(V[entry, (first + j) * block_n : (first + j + 1) * block_n, kv_head, :], v_rows)
                        for n, d in parallel(block_n, head_dim_v):
                            v[d, n] = v_rows[n, d]
                    else:
                        T.copy(V[entry, (first + j) * block_n : (first + j + 1) * block_n, kv_head, :], v)
                    T.gemm(probabilities, v, out, transpose_B=dialect.transposes_v, policy=warp_policy)

            # A row that has seen nothing has row_sum 0. Compared with 0 and not with > 0: NaN in, NaN out.
            for m, d in parallel(block_m, head_dim_v):
                out[m, d] = T.if_then_else(row_sum[m] == 0, 0.0, out[m, d] / row_sum[m])
            if tile.q_in == "shared" and dialect.stages_output and head_dim == head_dim_v:
                T.copy(out, q)
                T.copy(q, O[entry, first_row : first_row + block_m, head, :])
            else:
                T.copy(out, O[entry, first_row : first_row + block_m, head, :])
            for m in parallel(block_m):
                if first_row + m < seqlen_q:
                    LSE[entry, head, first_row + m] = softmax.lse(row_max[m], row_sum[m], softmax_scale)

    if spec.sinks:

        @T.prim_func
        def attention_forward(
            Q: T.Tensor((batch, seqlen_q, heads, head_dim), dtype),
            K: T.Tensor((batch, seqlen_k, kv_heads, head_dim), dtype),
            V: T.Tensor((batch, seqlen_k, kv_heads, head_dim_v), dtype),
            Sinks: T.Tensor((heads,), accumulate),
            O: T.Tensor((batch, seqlen_q, heads, head_dim_v), dtype),
            LSE: T.Tensor((batch, heads, seqlen_q), accumulate),
            softmax_scale: T.float32,
        ):
            attend(Q, K, V, Sinks, O, LSE, softmax_scale)

    else:

        @T.prim_func
        def attention_forward(
            Q: T.Tensor((batch, seqlen_q, heads, head_dim), dtype),
            K: T.Tensor((batch, seqlen_k, kv_heads, head_dim), dtype),
            V: T.Tensor((batch, seqlen_k, kv_heads, head_dim_v), dtype),
            O: T.Tensor((batch, seqlen_q, heads, head_dim_v), dtype),
            LSE: T.Tensor((batch, heads, seqlen_q), accumulate),
            softmax_scale: T.float32,
        ):
            attend(Q, K, V, None, O, LSE, softmax_scale)

    return attention_forward
