"""All three gradients in one pass over the scores: dQ is summed in global memory, by atomics. For Hopper.

Five matrix products instead of the seven of `backward_keys` and `backward_queries`. Workgroups add to dQ in any order, so its
last bits differ from run to run. On a CPU, where the tests run it, they do not.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import tilelang.language as T

if TYPE_CHECKING:
    from tilekernels.backward import BackwardSpec
    from tilekernels.backward_policy import Blocks
    from tilekernels.dialect import Dialect


def build(spec: BackwardSpec, tile: Blocks, dialect: Dialect) -> Any:
    """The kernel as a TVM PrimFunc `attention_backward_fused(Q, K, V, dO, Stats, Sums, dK, dV, softmax_scale)`.

    Shapes: as for `backward_keys`; Sums (batch, seqlen_q, heads, head_dim) float32, 0 before: dQ / softmax_scale is added to
    it.
    """
    head_dim, dtype, causal = spec.head_dim, spec.dtype, spec.causal
    block_m, block_n = tile.block_m, tile.block_n
    accumulate = "float32"
    log2_e = math.log2(math.e)
    alloc_tile, alloc_accumulator, parallel = dialect.alloc_tile, dialect.alloc_accumulator, dialect.parallel
    exp2 = dialect.exp2
    rows_apart, columns_apart = T.GemmWarpPolicy.FullRow, T.GemmWarpPolicy.FullCol
    # As in `backward_keys`.
    start_gemm = T.wgmma_gemm if tile.overlap else T.gemm
    registers = block_n * block_m // tile.threads

    batch, seqlen_q, seqlen_k = T.dynamic("batch"), T.dynamic("seqlen_q"), T.dynamic("seqlen_k")
    heads, kv_heads, padded_q = T.dynamic("heads"), T.dynamic("kv_heads"), T.dynamic("padded_q")

    @T.prim_func
    def attention_backward_fused(
        Q: T.Tensor((batch, seqlen_q, heads, head_dim), dtype),
        K: T.Tensor((batch, seqlen_k, kv_heads, head_dim), dtype),
        V: T.Tensor((batch, seqlen_k, kv_heads, head_dim), dtype),
        dO: T.Tensor((batch, seqlen_q, heads, head_dim), dtype),
        Stats: T.Tensor((batch, 2, heads, padded_q), accumulate),
        Sums: T.Tensor((batch, seqlen_q, heads, head_dim), accumulate),
        dK: T.Tensor((batch, seqlen_k, kv_heads, head_dim), dtype),
        dV: T.Tensor((batch, seqlen_k, kv_heads, head_dim), dtype),
        softmax_scale: T.float32,
    ):
        with T.Kernel(kv_heads, T.ceildiv(seqlen_k, block_n), batch, threads=tile.threads) as (kv_head, block, entry):
            k = alloc_tile((block_n, head_dim), dtype)
            v = alloc_tile((block_n, head_dim), dtype)
            q = alloc_tile((block_m, head_dim), dtype)
            grad = alloc_tile((block_m, head_dim), dtype)
            stats = alloc_tile((2, block_m), accumulate)
            score_grads = alloc_tile((block_n, block_m), dtype)
            if dialect.name == "cuda":
                sums = alloc_tile((block_m, head_dim), accumulate)
            scores = alloc_accumulator((block_n, block_m), accumulate)
            products = alloc_accumulator((block_n, block_m), accumulate)
            probabilities = alloc_accumulator((block_n, block_m), dtype)
            q_grad = alloc_accumulator((block_m, head_dim), accumulate)
            k_grad = alloc_accumulator((block_n, head_dim), accumulate)
            v_grad = alloc_accumulator((block_n, head_dim), accumulate)

            T.assume(padded_q >= seqlen_q)
            group = T.truncdiv(heads, kv_heads)
            scale = softmax_scale * log2_e
            first_key = block * block_n
            shift = seqlen_k - seqlen_q
            if causal:
                first_tile = T.truncdiv(T.max(0, first_key - shift), block_m)
                unmasked = first_key + block_n - 1 - shift
            else:
                first_tile = 0
            tiles = T.ceildiv(seqlen_q, block_m) - first_tile

            T.copy(K[entry, first_key : first_key + block_n, kv_head, :], k)
            T.copy(V[entry, first_key : first_key + block_n, kv_head, :], v)
            T.fill(k_grad, 0)
            T.fill(v_grad, 0)

            for step in T.Pipelined(group * tiles, num_stages=tile.num_stages):
                turn = T.truncdiv(step, tiles)
                head = kv_head * group + turn
                first_row = (first_tile + step - turn * tiles) * block_m
                T.copy(Q[entry, first_row : first_row + block_m, head, :], q)
                start_gemm(k, q, scores, transpose_B=True, policy=rows_apart, clear_accum=True)
                T.copy(dO[entry, first_row : first_row + block_m, head, :], grad)
                start_gemm(v, grad, products, transpose_B=True, policy=rows_apart, clear_accum=True)
                T.copy(Stats[entry, 0:2, head, first_row : first_row + block_m], stats)
                if tile.overlap:
                    T.wait_wgmma(1)
                    T.warpgroup_fence_operand(scores, num_regs=registers)
                for n, m in parallel(block_n, block_m):
                    scores[n, m] = exp2(scores[n, m] * scale - stats[0, m])
                # A key past the end weighs in no row that is stored, but in dQ: of its score 0 the exponential can be infinite.
                if causal:
                    if (first_row < unmasked) | (first_key + block_n > seqlen_k):
                        for n, m in parallel(block_n, block_m):
                            scores[n, m] = T.if_then_else(
                                (first_key + n <= first_row + m + shift) & (first_key + n < seqlen_k),
                                scores[n, m],
                                T.float32(0),
                            )
                else:  # noqa: PLR5501 - as above
                    if first_key + block_n > seqlen_k:
                        for n, m in parallel(block_n, block_m):
                            scores[n, m] = T.if_then_else(first_key + n < seqlen_k, scores[n, m], T.float32(0))
                T.copy(scores, probabilities)
                start_gemm(probabilities, grad, v_grad, policy=rows_apart)
                if tile.overlap:
                    T.wait_wgmma(1)
                    T.warpgroup_fence_operand(products, num_regs=registers)
                for n, m in parallel(block_n, block_m):
                    products[n, m] = scores[n, m] * (products[n, m] - stats[1, m])
                T.copy(products, score_grads)
                start_gemm(score_grads, q, k_grad, policy=rows_apart)
                T.gemm(
                    score_grads, k, q_grad, transpose_A=True, policy=columns_apart, clear_accum=True
                )  # waits for all
                if dialect.name == "cuda":
                    T.copy(q_grad, sums)
                    T.atomic_add(Sums[entry, first_row : first_row + block_m, head, :], sums, use_tma=True)
                else:
                    for m, d in parallel(block_m, head_dim):
                        if first_row + m < seqlen_q:
                            T.atomic_add(Sums[entry, first_row + m, head, d], q_grad[m, d])
                if tile.overlap:  # noqa: SIM102 - one is Python's, the other the kernel's
                    if softmax_scale < 0:  # never
                        dV[entry, first_key, kv_head, 0] = grad[0, 0] + q[0, 0]

            for n, d in parallel(block_n, head_dim):
                k_grad[n, d] *= softmax_scale
            if dialect.stages_output:
                T.copy(k_grad, k)
                T.copy(k, dK[entry, first_key : first_key + block_n, kv_head, :])
                T.copy(v_grad, v)
                T.copy(v, dV[entry, first_key : first_key + block_n, kv_head, :])
            else:
                T.copy(k_grad, dK[entry, first_key : first_key + block_n, kv_head, :])
                T.copy(v_grad, dV[entry, first_key : first_key + block_n, kv_head, :])

    return attention_backward_fused
