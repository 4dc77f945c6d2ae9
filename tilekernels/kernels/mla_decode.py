"""Multi-head latent attention of new rows over a paged cache of latents, with the projections absorbed.

DeepSeek-V2 (arXiv 2405.04434, 2.1) keeps one vector a token for all heads: a latent of 512, of which keys and values are
projections, and a rotary key of 64. With those projections multiplied into the queries and the output, a head's query has 576
numbers, a key is latent and rotary key together, and its value is the latent: what is read for the scores is read for the
output, too. All heads share the one key, so that they are rows of one tile. Splits of the keys combine as in
`attention_decode`.
"""

import math
from typing import TYPE_CHECKING, Any

import tilelang.language as T

from tilekernels.kernels.attention_decode import combine, within_bounds

if TYPE_CHECKING:
    from tilekernels.dialect import Dialect
    from tilekernels.mla import MlaSpec, MlaTile


def build(spec: "MlaSpec", tile: "MlaTile", dialect: "Dialect") -> Any:
    """The PrimFuncs of a launch: `mla_attend`, and `decode_combine` where the keys are split.

    Shapes: Q (batch, seqlen_q, heads, latent + rope); KV (kv_rows, latent + rope), the cache as rows: position p of page b is
    row b * kv_stride + p; BlockTable (batch, pages) int32; Lengths (batch,) int32, the keys of each sequence, new rows
    included; O (batch, seqlen_q, heads, latent); LSE (batch, heads, seqlen_q) float32, natural logarithm. Parts (splits,
    batch, seqlen_q, heads, latent) and PartsLSE (splits, batch, heads, seqlen_q) are float32; without `spec.split` there is
    one part, the result, in the dtype of Q. All are contiguous. A page has 2**page_shift positions. With `causal` 1 row i
    sees the keys j <= i + length - seqlen_q, with 0 all of them; a row that sees nothing gets O = 0 and LSE = -inf. Nothing
    beyond a sequence's length is read, neither of the table nor of the cache.
    """
    attend = within_bounds(_attend(spec, tile, dialect))
    return (attend, combine(spec.latent_dim, spec.dtype, dialect)) if spec.split else attend


def _attend(spec: "MlaSpec", tile: "MlaTile", dialect: "Dialect") -> Any:
    latent_dim, rope_dim, dtype, accumulate = spec.latent_dim, spec.rope_dim, spec.dtype, "float32"
    part_dtype = accumulate if spec.split else dtype
    block_m, block_n = tile.block_m, tile.block_n
    log2_e, lowest = math.log2(math.e), -1e30  # as in attention_forward
    alloc_tile, alloc_accumulator, parallel = dialect.alloc_tile, dialect.alloc_accumulator, dialect.parallel
    exp2 = dialect.exp2
    through_registers = dialect.name != "cpu"
    # An output of 64 x 512 is more than the registers of one warpgroup, and Hopper's matrix unit takes 64 rows at least: two
    # warpgroups share the columns, and both need all probabilities.
    split_columns = tile.columns_split
    warp_policy = T.GemmWarpPolicy.FullCol if split_columns else T.GemmWarpPolicy.FullRow
    alloc_q = alloc_tile if tile.q_in == "shared" else alloc_accumulator
    alloc_probabilities = alloc_tile if split_columns else alloc_accumulator

    def cached(cache: Any, table: Any, entry: Any, key: Any, n: Any, d: Any, stride: Any, shift: Any, end: Any) -> Any:
        """Element d of key + n, 0 from `end` on: what lies there may be anything, and 0 times NaN is NaN."""
        row = table[entry, (key + n) >> shift] * stride + ((key + n) & ((1 << shift) - 1))
        return T.if_then_else(key + n < end, cache[row, d], T.cast(0, dtype))

    batch, seqlen_q, heads = T.dynamic("batch"), T.dynamic("seqlen_q"), T.dynamic("heads")
    kv_rows, pages, splits = T.dynamic("kv_rows"), T.dynamic("pages"), T.dynamic("splits")

    @T.prim_func
    def mla_attend(
        Q: T.Tensor((batch, seqlen_q, heads, latent_dim + rope_dim), dtype),
        KV: T.Tensor((kv_rows, latent_dim + rope_dim), dtype),
        BlockTable: T.Tensor((batch, pages), "int32"),
        Lengths: T.Tensor((batch,), "int32"),
        Parts: T.Tensor((splits, batch, seqlen_q, heads, latent_dim), part_dtype),
        PartsLSE: T.Tensor((splits, batch, heads, seqlen_q), accumulate),
        kv_stride: T.int32,
        page_shift: T.int32,
        causal: T.int32,
        softmax_scale: T.float32,
    ):
        with T.Kernel(T.ceildiv(seqlen_q * heads, block_m), splits, batch, threads=tile.threads) as (
            block,
            split,
            entry,
        ):
            q_latent = alloc_q((block_m, latent_dim), dtype)
            q_rope = alloc_q((block_m, rope_dim), dtype)
            latent = alloc_tile((block_n, latent_dim), dtype)
            rope = alloc_tile((block_n, rope_dim), dtype)
            if through_registers:
                next_latent = alloc_accumulator((block_n, latent_dim), dtype)
                next_rope = alloc_accumulator((block_n, rope_dim), dtype)
            scores = alloc_accumulator((block_m, block_n), accumulate)
            probabilities = alloc_probabilities((block_m, block_n), dtype)
            out = alloc_accumulator((block_m, latent_dim), accumulate)
            row_max = alloc_accumulator((block_m,), accumulate)
            row_max_before = alloc_accumulator((block_m,), accumulate)
            rescale = alloc_accumulator((block_m,), accumulate)
            row_sum = alloc_accumulator((block_m,), accumulate)
            tile_sum = alloc_accumulator((block_m,), accumulate)
            visible = alloc_accumulator((block_m,), "int32")

            # Variables: see attention_decode.
            first, rows, length = T.alloc_var("int32"), T.alloc_var("int32"), T.alloc_var("int32")
            least, most, share = T.alloc_var("int32"), T.alloc_var("int32"), T.alloc_var("int32")
            begin, count = T.alloc_var("int32"), T.alloc_var("int32")
            # Packed row m of the tile: new row (first + m) / heads of head (first + m) % heads.
            first = block * block_m
            rows = seqlen_q * heads
            length = Lengths[entry]
            # Keys that the tile's first row sees, of which there may be none, and those that its last one sees.
            least = length - causal * (seqlen_q - 1 - T.truncdiv(first, heads))
            most = length - causal * (seqlen_q - 1 - T.min(seqlen_q - 1, T.truncdiv(first + block_m - 1, heads)))
            # Tiles of keys, and this workgroup's share of them.
            most = T.truncdiv(T.max(most, 0) + block_n - 1, block_n)
            share = T.truncdiv(most + splits - 1, splits)
            begin = split * share
            count = T.max(0, T.min(share, most - begin))
            scale = softmax_scale * log2_e

            for m, d in parallel(block_m, latent_dim):
                q_latent[m, d] = T.if_then_else(
                    first + m < rows,
                    Q[entry, T.truncdiv(first + m, heads), T.truncmod(first + m, heads), d],
                    T.cast(0, dtype),
                )
            for m, d in parallel(block_m, rope_dim):
                q_rope[m, d] = T.if_then_else(
                    first + m < rows,
                    Q[entry, T.truncdiv(first + m, heads), T.truncmod(first + m, heads), latent_dim + d],
                    T.cast(0, dtype),
                )
            T.fill(out, 0)
            T.fill(row_sum, 0)
            T.fill(row_max, lowest)
            for m in parallel(block_m):
                visible[m] = length - causal * (seqlen_q - 1 - T.truncdiv(first + m, heads))

            if through_registers:
                for n, d in parallel(block_n, latent_dim):
                    next_latent[n, d] = cached(
                        KV, BlockTable, entry, begin * block_n, n, d, kv_stride, page_shift, length
                    )
                for n, d in parallel(block_n, rope_dim):
                    next_rope[n, d] = cached(
                        KV, BlockTable, entry, begin * block_n, n, latent_dim + d, kv_stride, page_shift, length
                    )
            for step in T.serial(count):
                key = (begin + step) * block_n
                # On a GPU through registers, the next tile on its way while this one is in use (see attention_decode).
                if through_registers:
                    for n, d in parallel(block_n, latent_dim):
                        latent[n, d] = next_latent[n, d]
                    for n, d in parallel(block_n, rope_dim):
                        rope[n, d] = next_rope[n, d]
                    if step + 1 < count:
                        for n, d in parallel(block_n, latent_dim):
                            next_latent[n, d] = cached(
                                KV, BlockTable, entry, key + block_n, n, d, kv_stride, page_shift, length
                            )
                        for n, d in parallel(block_n, rope_dim):
                            next_rope[n, d] = cached(
                                KV, BlockTable, entry, key + block_n, n, latent_dim + d, kv_stride, page_shift, length
                            )
                else:
                    for n, d in parallel(block_n, latent_dim):
                        latent[n, d] = cached(KV, BlockTable, entry, key, n, d, kv_stride, page_shift, length)
                    for n, d in parallel(block_n, rope_dim):
                        rope[n, d] = cached(
                            KV, BlockTable, entry, key, n, latent_dim + d, kv_stride, page_shift, length
                        )
                T.clear(scores)
                T.gemm(q_latent, latent, scores, transpose_B=True, policy=warp_policy)
                T.gemm(q_rope, rope, scores, transpose_B=True, policy=warp_policy)
                if key + block_n > least:
                    for m, n in parallel(block_m, block_n):
                        scores[m, n] = T.if_then_else(key + n < visible[m], scores[m, n], -T.infinity(accumulate))
                T.copy(row_max, row_max_before)
                T.reduce_max(scores, row_max, dim=1, clear=False)
                for m in parallel(block_m):
                    row_max[m] = T.max(row_max[m], row_max_before[m])
                for m in parallel(block_m):
                    rescale[m] = exp2((row_max_before[m] - row_max[m]) * scale)
                for m, n in parallel(block_m, block_n):
                    scores[m, n] = exp2(scores[m, n] * scale - row_max[m] * scale)
                T.reduce_sum(scores, tile_sum, dim=1)
                for m in parallel(block_m):
                    row_sum[m] = row_sum[m] * rescale[m] + tile_sum[m]
                T.copy(scores, probabilities)
                for m, d in parallel(block_m, latent_dim):
                    out[m, d] *= rescale[m]
                T.gemm(probabilities, latent, out, policy=warp_policy)

            # Compared with 0 and not with > 0: NaN in, NaN out.
            for m, d in parallel(block_m, latent_dim):
                out[m, d] = T.if_then_else(row_sum[m] == 0, 0.0, out[m, d] / row_sum[m])
            for m, d in parallel(block_m, latent_dim):
                if first + m < rows:
                    Parts[split, entry, T.truncdiv(first + m, heads), T.truncmod(first + m, heads), d] = out[m, d]
            for m in parallel(block_m):
                if first + m < rows:
                    PartsLSE[split, entry, T.truncmod(first + m, heads), T.truncdiv(first + m, heads)] = row_max[
                        m
                    ] * softmax_scale + T.log1p(row_sum[m] - 1.0)

    return mla_attend
