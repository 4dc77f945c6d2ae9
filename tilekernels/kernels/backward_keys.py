"""Gradients of keys and values: a workgroup owns a block of keys and walks the query rows that see it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import tilelang.language as T

if TYPE_CHECKING:
    from tilekernels.backward import BackwardSpec
    from tilekernels.backward_policy import Blocks
    from tilekernels.dialect import Dialect


def build(spec: BackwardSpec, tile: Blocks, dialect: Dialect) -> Any:
    """The kernel as a TVM PrimFunc `attention_backward_keys(Q, K, V, dO, Stats, dK, dV, softmax_scale)`.

    Shapes: Q, dO (batch, seqlen_q, heads, head_dim); K, V, dK, dV (batch, seqlen_k, kv_heads, head_dim), of `spec.dtype` and
    contiguous; Stats as `backward_rows` writes it; softmax_scale float32 > 0. Batch, heads, kv_heads and both
    lengths are symbols. dK and dV are written whole, once: a workgroup sums over all query heads of its key head, in
    float32 and always in the same order, so the result has the same bits every time.

    Scores are computed transposed, keys by rows of the tile: then P^T and dS^T leave the matrix unit in the layout in which
    it takes its left operand, and never pass through shared memory.
    """
    head_dim, dtype, causal = spec.head_dim, spec.dtype, spec.causal
    block_m, block_n = tile.block_m, tile.block_n
    accumulate = "float32"
    log2_e = math.log2(math.e)
    alloc_tile, alloc_accumulator, parallel = dialect.alloc_tile, dialect.alloc_accumulator, dialect.parallel
    exp2 = dialect.exp2
    alloc_keys = alloc_tile if tile.held == "shared" else alloc_accumulator
    warp_policy = T.GemmWarpPolicy.FullRow
    # A started product goes on under what follows; nothing that it writes may be used before it was waited for, and the fence
    # keeps the compiler from moving such a use up. TileLang lets the loading warps overwrite a tile after the last statement
    # that names it, started products or not: dO's is named once more behind the last wait.
    start_gemm = T.wgmma_gemm if tile.overlap else T.gemm
    registers = block_n * block_m // tile.threads

    batch, seqlen_q, seqlen_k = T.dynamic("batch"), T.dynamic("seqlen_q"), T.dynamic("seqlen_k")
    heads, kv_heads, padded_q = T.dynamic("heads"), T.dynamic("kv_heads"), T.dynamic("padded_q")

    @T.prim_func
    def attention_backward_keys(
        Q: T.Tensor((batch, seqlen_q, heads, head_dim), dtype),
        K: T.Tensor((batch, seqlen_k, kv_heads, head_dim), dtype),
        V: T.Tensor((batch, seqlen_k, kv_heads, head_dim), dtype),
        dO: T.Tensor((batch, seqlen_q, heads, head_dim), dtype),
        Stats: T.Tensor((batch, 2, heads, padded_q), accumulate),
        dK: T.Tensor((batch, seqlen_k, kv_heads, head_dim), dtype),
        dV: T.Tensor((batch, seqlen_k, kv_heads, head_dim), dtype),
        softmax_scale: T.float32,
    ):
        with T.Kernel(kv_heads, T.ceildiv(seqlen_k, block_n), batch, threads=tile.threads) as (kv_head, block, entry):
            k = alloc_keys((block_n, head_dim), dtype)
            v = alloc_keys((block_n, head_dim), dtype)
            q = alloc_tile((block_m, head_dim), dtype)
            grad = alloc_tile((block_m, head_dim), dtype)
            if dialect.transposes_v:
                q_rows = alloc_accumulator((block_m, head_dim), dtype)
                grad_rows = alloc_accumulator((block_m, head_dim), dtype)
                q_columns = alloc_tile((head_dim, block_m), dtype)
                grad_columns = alloc_tile((head_dim, block_m), dtype)
            stats = alloc_tile((2, block_m), accumulate)
            scores = alloc_accumulator((block_n, block_m), accumulate)
            products = alloc_accumulator((block_n, block_m), accumulate)
            probabilities = alloc_accumulator((block_n, block_m), dtype)
            score_grads = alloc_accumulator((block_n, block_m), dtype)
            k_grad = alloc_accumulator((block_n, head_dim), accumulate)
            v_grad = alloc_accumulator((block_n, head_dim), accumulate)

            # Not inside the loop: TileLang leaves no copy after an assumption there to the warps that only load.
            T.assume(padded_q >= seqlen_q)
            group = T.truncdiv(heads, kv_heads)
            scale = softmax_scale * log2_e
            first_key = block * block_n
            # Row m sees key n if n <= m + shift. The last row sees every key, so there is always a tile to walk.
            shift = seqlen_k - seqlen_q
            if causal:
                first_tile = T.truncdiv(T.max(0, first_key - shift), block_m)
                # From this row on all keys of the block are seen.
                unmasked = first_key + block_n - 1 - shift
            else:
                first_tile = 0
            tiles = T.ceildiv(seqlen_q, block_m) - first_tile

            T.copy(K[entry, first_key : first_key + block_n, kv_head, :], k)
            T.copy(V[entry, first_key : first_key + block_n, kv_head, :], v)
            T.fill(k_grad, 0)
            T.fill(v_grad, 0)

            # One loop over heads and tiles: the pipeline does not run empty between two heads.
            for step in T.Pipelined(group * tiles, num_stages=tile.num_stages):
                turn = T.truncdiv(step, tiles)
                head = kv_head * group + turn
                first_row = (first_tile + step - turn * tiles) * block_m
                if dialect.transposes_v:
                    T.copy(Q[entry, first_row : first_row + block_m, head, :], q_rows)
                    T.copy(q_rows, q)
                    for m, d in parallel(block_m, head_dim):
                        q_columns[d, m] = q_rows[m, d]
                else:
                    T.copy(Q[entry, first_row : first_row + block_m, head, :], q)
                start_gemm(k, q, scores, transpose_B=True, policy=warp_policy, clear_accum=True)
                if dialect.transposes_v:
                    T.copy(dO[entry, first_row : first_row + block_m, head, :], grad_rows)
                    T.copy(grad_rows, grad)
                    for m, d in parallel(block_m, head_dim):
                        grad_columns[d, m] = grad_rows[m, d]
                else:
                    T.copy(dO[entry, first_row : first_row + block_m, head, :], grad)
                start_gemm(v, grad, products, transpose_B=True, policy=warp_policy, clear_accum=True)
                T.copy(Stats[entry, 0:2, head, first_row : first_row + block_m], stats)
                if tile.overlap:
                    T.wait_wgmma(1)
                    T.warpgroup_fence_operand(scores, num_regs=registers)
                for n, m in parallel(block_n, block_m):
                    scores[n, m] = exp2(scores[n, m] * scale - stats[0, m])
                if causal:  # noqa: SIM102 - one is Python's, the other the kernel's
                    if first_row < unmasked:
                        for n, m in parallel(block_n, block_m):
                            scores[n, m] = T.if_then_else(
                                first_key + n <= first_row + m + shift, scores[n, m], T.float32(0)
                            )
                T.copy(scores, probabilities)
                if dialect.transposes_v:
                    T.gemm(probabilities, grad_columns, v_grad, transpose_B=True, policy=warp_policy)
                else:
                    start_gemm(probabilities, grad, v_grad, policy=warp_policy)
                if tile.overlap:
                    T.wait_wgmma(1)
                    T.warpgroup_fence_operand(products, num_regs=registers)
                for n, m in parallel(block_n, block_m):
                    score_grads[n, m] = scores[n, m] * (products[n, m] - stats[1, m])
                if dialect.transposes_v:
                    T.gemm(score_grads, q_columns, k_grad, transpose_B=True, policy=warp_policy)
                else:
                    T.gemm(score_grads, q, k_grad, policy=warp_policy)  # waits for all before
                if tile.overlap:  # noqa: SIM102 - one is Python's, the other the kernel's
                    if softmax_scale < 0:  # never
                        dV[entry, first_key, kv_head, 0] = grad[0, 0]

            for n, d in parallel(block_n, head_dim):
                k_grad[n, d] *= softmax_scale
            if tile.held == "shared" and dialect.stages_output:
                T.copy(k_grad, k)
                T.copy(k, dK[entry, first_key : first_key + block_n, kv_head, :])
                T.copy(v_grad, v)
                T.copy(v, dV[entry, first_key : first_key + block_n, kv_head, :])
            else:
                T.copy(k_grad, dK[entry, first_key : first_key + block_n, kv_head, :])
                T.copy(v_grad, dV[entry, first_key : first_key + block_n, kv_head, :])

    return attention_backward_keys
