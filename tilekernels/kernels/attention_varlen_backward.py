"""The backward pass of attention over packed sequences: the three kernels of `attention_backward`, sequence by sequence."""

# No `from __future__ import annotations`: TileLang would look for the symbols of a signature where it is not.
import math
from typing import TYPE_CHECKING, Any

import tilelang.language as T

from tilekernels.backward_policy import ROW_PADDING

if TYPE_CHECKING:
    from tilekernels.backward_policy import BackwardTile, Blocks
    from tilekernels.dialect import Dialect
    from tilekernels.varlen import VarlenSpec

_LOG2_E = math.log2(math.e)


def build(spec: "VarlenSpec", tile: "BackwardTile", dialect: "Dialect") -> tuple[Any, ...]:
    """The kernels as TVM PrimFuncs: `varlen_backward_rows`, `varlen_backward_keys`, `varlen_backward_queries`.

    Shapes: Q, O, dO, dQ (total_q, heads, head_dim); K, V, dK, dV (total_k, kv_heads, head_dim), all of `spec.dtype` and
    contiguous; CuQ, CuK (bounds,) int32 as in `attention_varlen`; LSE (heads, total_q) float32; Stats (2, heads, padded)
    float32, as `backward_rows` writes it, the rows of sequence s from `_start` on; padded is `_start` of the end. No sequence
    has more than max_seqlen_q rows and max_seqlen_k keys. Without atomics: the same inputs give the same bits.
    """
    return (
        _rows(spec, dialect),
        _keys(spec, tile.keys, dialect),
        _queries(spec, tile.queries, dialect),
    )


def _start(bound: Any, entry: Any) -> Any:
    """Where the statistics of a sequence start. Each has room for its rows and one more, in whole tiles, aligned for TMA:
    floor((b + p*(s + 1)) / p) - floor((a + p*s) / p) is at least floor((b - a) / p) + 1.
    """
    return T.truncdiv(bound + entry * ROW_PADDING, ROW_PADDING) * ROW_PADDING


def _rows(spec: "VarlenSpec", dialect: "Dialect") -> Any:
    head_dim, dtype = spec.head_dim, spec.dtype
    block_m = ROW_PADDING // 4  # as in `backward_rows`
    threads = 1 if dialect.name == "cpu" else 256
    accumulate = "float32"
    alloc_accumulator, parallel = dialect.alloc_accumulator, dialect.parallel

    bounds, total_q, padded, heads = T.dynamic("bounds"), T.dynamic("total_q"), T.dynamic("padded"), T.dynamic("heads")

    @T.prim_func
    def varlen_backward_rows(
        O: T.Tensor((total_q, heads, head_dim), dtype),
        dO: T.Tensor((total_q, heads, head_dim), dtype),
        LSE: T.Tensor((heads, total_q), accumulate),
        CuQ: T.Tensor((bounds,), "int32"),
        Stats: T.Tensor((2, heads, padded), accumulate),
        max_seqlen_q: T.int32,
    ):
        blocks = (max_seqlen_q // ROW_PADDING + 1) * (ROW_PADDING // block_m)
        with T.Kernel(heads, blocks, bounds - 1, threads=threads) as (head, block, entry):
            out = alloc_accumulator((block_m, head_dim), dtype)
            grad = alloc_accumulator((block_m, head_dim), dtype)
            product = alloc_accumulator((block_m, head_dim), accumulate)
            delta = alloc_accumulator((block_m,), accumulate)
            start_q = CuQ[entry]
            seqlen_q = CuQ[entry + 1] - start_q
            first_row = block * block_m
            start = _start(start_q, entry) + first_row
            if first_row < (T.truncdiv(seqlen_q, ROW_PADDING) + 1) * ROW_PADDING:
                T.assume(start + block_m <= padded)
                T.copy(O[start_q + first_row : start_q + first_row + block_m, head, :], out)
                T.copy(dO[start_q + first_row : start_q + first_row + block_m, head, :], grad)
                for m, d in parallel(block_m, head_dim):
                    product[m, d] = T.cast(out[m, d], accumulate) * T.cast(grad[m, d], accumulate)
                T.reduce_sum(product, delta, dim=1)
                # Rows past the end are the next sequence's, or none.
                for m in parallel(block_m):
                    Stats[1, head, start + m] = T.if_then_else(first_row + m < seqlen_q, delta[m], 0.0)
                for m in parallel(block_m):
                    Stats[0, head, start + m] = T.if_then_else(
                        first_row + m < seqlen_q,
                        T.if_then_else(
                            LSE[head, start_q + first_row + m] == -T.infinity(accumulate),
                            T.infinity(accumulate),
                            LSE[head, start_q + first_row + m] * _LOG2_E,
                        ),
                        T.infinity(accumulate),
                    )

    return varlen_backward_rows


def _keys(spec: "VarlenSpec", tile: "Blocks", dialect: "Dialect") -> Any:
    """As `backward_keys`, where its steps are explained."""
    head_dim, dtype, causal = spec.head_dim, spec.dtype, spec.causal
    block_m, block_n = tile.block_m, tile.block_n
    accumulate = "float32"
    alloc_tile, alloc_accumulator, parallel = dialect.alloc_tile, dialect.alloc_accumulator, dialect.parallel
    exp2 = dialect.exp2
    alloc_keys = alloc_tile if tile.held == "shared" else alloc_accumulator
    warp_policy = T.GemmWarpPolicy.FullRow
    start_gemm = T.wgmma_gemm if tile.overlap else T.gemm
    registers = block_n * block_m // tile.threads
    through_tiles = tile.held == "shared" and dialect.stages_output

    bounds, total_q, total_k = T.dynamic("bounds"), T.dynamic("total_q"), T.dynamic("total_k")
    heads, kv_heads, padded = T.dynamic("heads"), T.dynamic("kv_heads"), T.dynamic("padded")

    @T.prim_func
    def varlen_backward_keys(
        Q: T.Tensor((total_q, heads, head_dim), dtype),
        K: T.Tensor((total_k, kv_heads, head_dim), dtype),
        V: T.Tensor((total_k, kv_heads, head_dim), dtype),
        dO: T.Tensor((total_q, heads, head_dim), dtype),
        CuQ: T.Tensor((bounds,), "int32"),
        CuK: T.Tensor((bounds,), "int32"),
        Stats: T.Tensor((2, heads, padded), accumulate),
        dK: T.Tensor((total_k, kv_heads, head_dim), dtype),
        dV: T.Tensor((total_k, kv_heads, head_dim), dtype),
        max_seqlen_k: T.int32,
        softmax_scale: T.float32,
    ):
        with T.Kernel(kv_heads, T.ceildiv(max_seqlen_k, block_n), bounds - 1, threads=tile.threads) as (
            kv_head,
            block,
            entry,
        ):
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

            group = T.truncdiv(heads, kv_heads)
            scale = softmax_scale * _LOG2_E
            start_q, start_k = CuQ[entry], CuK[entry]
            seqlen_q, seqlen_k = CuQ[entry + 1] - start_q, CuK[entry + 1] - start_k
            start = _start(start_q, entry)
            T.assume(start + seqlen_q <= padded)
            first_key = block * block_n
            shift = seqlen_k - seqlen_q
            if first_key < seqlen_k:
                if causal:
                    first_tile = T.truncdiv(T.max(0, first_key - shift), block_m)
                    unmasked = first_key + block_n - 1 - shift
                else:
                    first_tile = 0
                # At least one: keys that no row sees get zeros from rows that weigh nothing.
                tiles = T.ceildiv(T.max(1, seqlen_q), block_m) - first_tile

                T.copy(K[start_k + first_key : start_k + first_key + block_n, kv_head, :], k)
                T.copy(V[start_k + first_key : start_k + first_key + block_n, kv_head, :], v)
                T.fill(k_grad, 0)
                T.fill(v_grad, 0)

                for step in T.Pipelined(group * tiles, num_stages=tile.num_stages):
                    turn = T.truncdiv(step, tiles)
                    head = kv_head * group + turn
                    first_row = (first_tile + step - turn * tiles) * block_m
                    row = start_q + first_row
                    if dialect.transposes_v:
                        T.copy(Q[row : row + block_m, head, :], q_rows)
                        T.copy(q_rows, q)
                        for m, d in parallel(block_m, head_dim):
                            q_columns[d, m] = q_rows[m, d]
                    else:
                        T.copy(Q[row : row + block_m, head, :], q)
                    start_gemm(k, q, scores, transpose_B=True, policy=warp_policy, clear_accum=True)
                    if dialect.transposes_v:
                        T.copy(dO[row : row + block_m, head, :], grad_rows)
                        T.copy(grad_rows, grad)
                        for m, d in parallel(block_m, head_dim):
                            grad_columns[d, m] = grad_rows[m, d]
                    else:
                        T.copy(dO[row : row + block_m, head, :], grad)
                    start_gemm(v, grad, products, transpose_B=True, policy=warp_policy, clear_accum=True)
                    T.copy(Stats[0:2, head, start + first_row : start + first_row + block_m], stats)
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
                            dV[start_k + first_key, kv_head, 0] = grad[0, 0]

                for n, d in parallel(block_n, head_dim):
                    k_grad[n, d] *= softmax_scale
                # The keys after the last one are the next sequence's.
                if through_tiles:
                    T.copy(k_grad, k)
                    T.copy(v_grad, v)
                    if first_key + block_n <= seqlen_k:
                        T.copy(k, dK[start_k + first_key : start_k + first_key + block_n, kv_head, :])
                        T.copy(v, dV[start_k + first_key : start_k + first_key + block_n, kv_head, :])
                    else:
                        for n, d in parallel(block_n, head_dim):
                            if first_key + n < seqlen_k:
                                dK[start_k + first_key + n, kv_head, d] = k[n, d]
                        for n, d in parallel(block_n, head_dim):
                            if first_key + n < seqlen_k:
                                dV[start_k + first_key + n, kv_head, d] = v[n, d]
                else:
                    for n, d in parallel(block_n, head_dim):
                        if first_key + n < seqlen_k:
                            dK[start_k + first_key + n, kv_head, d] = T.cast(k_grad[n, d], dtype)
                    for n, d in parallel(block_n, head_dim):
                        if first_key + n < seqlen_k:
                            dV[start_k + first_key + n, kv_head, d] = T.cast(v_grad[n, d], dtype)

    return varlen_backward_keys


def _queries(spec: "VarlenSpec", tile: "Blocks", dialect: "Dialect") -> Any:
    """As `backward_queries`, where its steps are explained."""
    head_dim, dtype, causal = spec.head_dim, spec.dtype, spec.causal
    block_m, block_n = tile.block_m, tile.block_n
    accumulate = "float32"
    alloc_tile, alloc_accumulator, parallel = dialect.alloc_tile, dialect.alloc_accumulator, dialect.parallel
    exp2 = dialect.exp2
    alloc_rows = alloc_tile if tile.held == "shared" else alloc_accumulator
    warp_policy = T.GemmWarpPolicy.FullRow
    start_gemm = T.wgmma_gemm if tile.overlap else T.gemm
    registers = block_m * block_n // tile.threads
    through_tiles = tile.held == "shared" and dialect.stages_output

    bounds, total_q, total_k = T.dynamic("bounds"), T.dynamic("total_q"), T.dynamic("total_k")
    heads, kv_heads, padded = T.dynamic("heads"), T.dynamic("kv_heads"), T.dynamic("padded")

    @T.prim_func
    def varlen_backward_queries(
        Q: T.Tensor((total_q, heads, head_dim), dtype),
        K: T.Tensor((total_k, kv_heads, head_dim), dtype),
        V: T.Tensor((total_k, kv_heads, head_dim), dtype),
        dO: T.Tensor((total_q, heads, head_dim), dtype),
        CuQ: T.Tensor((bounds,), "int32"),
        CuK: T.Tensor((bounds,), "int32"),
        Stats: T.Tensor((2, heads, padded), accumulate),
        dQ: T.Tensor((total_q, heads, head_dim), dtype),
        max_seqlen_q: T.int32,
        softmax_scale: T.float32,
    ):
        with T.Kernel(heads, T.ceildiv(max_seqlen_q, block_m), bounds - 1, threads=tile.threads) as (
            head,
            block,
            entry,
        ):
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
            scale = softmax_scale * _LOG2_E
            start_q, start_k = CuQ[entry], CuK[entry]
            seqlen_q, seqlen_k = CuQ[entry + 1] - start_q, CuK[entry + 1] - start_k
            first_row = (T.ceildiv(seqlen_q, block_m) - 1 - block) * block_m if causal else block * block_m
            start = _start(start_q, entry) + first_row
            row = start_q + first_row
            diagonal = first_row + seqlen_k - seqlen_q  # the last column that first_row sees
            if (first_row >= 0) & (first_row < seqlen_q):
                # At least one step, wholly masked if need be, as in `attention_varlen`.
                if causal:
                    visible = T.ceildiv(T.max(1, T.min(seqlen_k, diagonal + block_m)), block_n)
                    unmasked = T.max(0, T.min(seqlen_k, diagonal + 1)) // block_n
                else:
                    visible = T.ceildiv(T.max(1, seqlen_k), block_n)
                    unmasked = seqlen_k // block_n

                T.copy(Q[row : row + block_m, head, :], q)
                T.copy(dO[row : row + block_m, head, :], grad)
                T.assume(start + block_m <= padded)
                T.copy(Stats[0, head, start : start + block_m], scaled)
                T.copy(Stats[1, head, start : start + block_m], delta)
                T.fill(q_grad, 0)

                for j in T.Pipelined(visible, num_stages=tile.num_stages):
                    if dialect.transposes_v:
                        T.copy(K[start_k + j * block_n : start_k + (j + 1) * block_n, kv_head, :], k_rows)
                        T.copy(k_rows, k)
                        for n, d in parallel(block_n, head_dim):
                            k_columns[d, n] = k_rows[n, d]
                    else:
                        T.copy(K[start_k + j * block_n : start_k + (j + 1) * block_n, kv_head, :], k)
                    start_gemm(q, k, scores, transpose_B=True, policy=warp_policy, clear_accum=True)
                    T.copy(V[start_k + j * block_n : start_k + (j + 1) * block_n, kv_head, :], v)
                    start_gemm(grad, v, products, transpose_B=True, policy=warp_policy, clear_accum=True)
                    if tile.overlap:
                        T.wait_wgmma(1)
                        T.warpgroup_fence_operand(scores, num_regs=registers)
                    for m, n in parallel(block_m, block_n):
                        scores[m, n] = exp2(scores[m, n] * scale - scaled[m])
                    if j >= unmasked:
                        for m, n in parallel(block_m, block_n):
                            # Another sequence's keys, too: of their scores the exponential can be infinite.
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
                            dQ[row, head, 0] = v[0, 0]

                for m, d in parallel(block_m, head_dim):
                    q_grad[m, d] *= softmax_scale
                # The rows after the last one are the next sequence's.
                if through_tiles:
                    T.copy(q_grad, q)
                    if first_row + block_m <= seqlen_q:
                        T.copy(q, dQ[row : row + block_m, head, :])
                    else:
                        for m, d in parallel(block_m, head_dim):
                            if first_row + m < seqlen_q:
                                dQ[row + m, head, d] = q[m, d]
                else:
                    for m, d in parallel(block_m, head_dim):
                        if first_row + m < seqlen_q:
                            dQ[row + m, head, d] = T.cast(q_grad[m, d], dtype)

    return varlen_backward_queries
