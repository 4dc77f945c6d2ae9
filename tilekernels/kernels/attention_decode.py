"""Attention of new rows over a paged key/value cache: keys split over workgroups, and the combination of the splits.

Flash-Decoding (Dao, Haziza, Massa, Sizov 2023, crfm.stanford.edu/2023/10/12/flashdecoding.html): a workgroup takes the rows
of all query heads that share a kv head, packed into one tile, so that K and V are read once, and walks a part of the keys
with online softmax. What the parts of a row leave, normalised outputs O_s and log-sum-exps L_s, combines exactly to

    L = log(sum_s exp(L_s)),    O = sum_s exp(L_s - L) O_s
"""

import math
import operator
from typing import TYPE_CHECKING, Any

import tilelang.language as T

if TYPE_CHECKING:
    from tilekernels.decode import DecodeSpec, DecodeTile
    from tilekernels.dialect import Dialect

within_bounds = operator.methodcaller("with_attr", "tilekernels.within_bounds", True)
"""Marks a PrimFunc whose own conditions keep every access within its tensors: the compiler adds none (compiler.py).

TileLang would read an entry of the table, and check the row that it names, four times over for each row of a cache.
"""

COMBINING_THREADS = 64
"""Of a workgroup that combines the parts of one row of one head: a wavefront, or two warps."""

COMBINED_AT_ONCE = 8
"""Parts whose loads are under way together: a load takes as long as the rest of a part's combination tens of times over."""


def build(spec: "DecodeSpec", tile: "DecodeTile", dialect: "Dialect") -> Any:
    """The PrimFuncs of a launch: `decode_attend`, and `decode_combine` where the keys are split.

    Shapes: Q, O (batch, seqlen_q, heads, head_dim); K (k_rows, kv_heads, head_dim), V (v_rows, kv_heads, head_dim), the
    caches as rows: position p of page b is row b * k_stride + p; BlockTable (batch, pages) int32; Lengths (batch,) int32,
    the keys of each sequence, new rows included; LSE (batch, heads, seqlen_q) float32, natural logarithm. Parts (splits,
    batch, seqlen_q, heads, head_dim) and PartsLSE (splits, batch, heads, seqlen_q) are float32; without `spec.split` there
    is one part, the result, in the dtype of Q. All are contiguous. A page has 2**page_shift positions. With `causal` 1 row
    i sees the keys j <= i + length - seqlen_q, with 0 all of them; a row that sees nothing gets O = 0 and LSE = -inf.
    Nothing beyond a sequence's length is read, neither of the table nor of the caches.
    """
    attend = within_bounds(_attend(spec, tile, dialect))
    return (attend, combine(spec.head_dim, spec.dtype, dialect)) if spec.split else attend


def _attend(spec: "DecodeSpec", tile: "DecodeTile", dialect: "Dialect") -> Any:
    head_dim, dtype, accumulate = spec.head_dim, spec.dtype, "float32"
    part_dtype = accumulate if spec.split else dtype
    block_m, block_n = tile.block_m, tile.block_n
    log2_e, lowest = math.log2(math.e), -1e30  # as in attention_forward
    alloc_tile, alloc_accumulator, parallel = dialect.alloc_tile, dialect.alloc_accumulator, dialect.parallel
    exp2 = dialect.exp2
    through_registers, transposes_v = dialect.name != "cpu", dialect.transposes_v
    warp_policy = T.GemmWarpPolicy.FullRow

    def cached(
        cache: Any, table: Any, place: tuple[Any, Any], key: Any, n: Any, d: Any, stride: Any, shift: Any, end: Any
    ) -> Any:
        """Element d of key + n, 0 from `end` on: what lies there may be anything, and 0 times NaN is NaN."""
        entry, kv_head = place
        row = table[entry, (key + n) >> shift] * stride + ((key + n) & ((1 << shift) - 1))
        return T.if_then_else(key + n < end, cache[row, kv_head, d], T.cast(0, dtype))

    batch, seqlen_q, heads = T.dynamic("batch"), T.dynamic("seqlen_q"), T.dynamic("heads")
    kv_heads, k_rows, v_rows = T.dynamic("kv_heads"), T.dynamic("k_rows"), T.dynamic("v_rows")
    pages, splits = T.dynamic("pages"), T.dynamic("splits")

    @T.prim_func
    def decode_attend(
        Q: T.Tensor((batch, seqlen_q, heads, head_dim), dtype),
        K: T.Tensor((k_rows, kv_heads, head_dim), dtype),
        V: T.Tensor((v_rows, kv_heads, head_dim), dtype),
        BlockTable: T.Tensor((batch, pages), "int32"),
        Lengths: T.Tensor((batch,), "int32"),
        Parts: T.Tensor((splits, batch, seqlen_q, heads, head_dim), part_dtype),
        PartsLSE: T.Tensor((splits, batch, heads, seqlen_q), accumulate),
        k_stride: T.int32,
        v_stride: T.int32,
        page_shift: T.int32,
        causal: T.int32,
        softmax_scale: T.float32,
    ):
        with T.Kernel(
            kv_heads * T.ceildiv(seqlen_q * (heads // kv_heads), block_m), splits, batch, threads=tile.threads
        ) as (packed, split, entry):
            if tile.q_in == "shared":
                q = alloc_tile((block_m, head_dim), dtype)
            else:
                q = alloc_accumulator((block_m, head_dim), dtype)
            k = alloc_tile((block_n, head_dim), dtype)
            if through_registers:
                next_k = alloc_accumulator((block_n, head_dim), dtype)
                next_v = alloc_accumulator((block_n, head_dim), dtype)
            v = alloc_tile((head_dim, block_n) if transposes_v else (block_n, head_dim), dtype)
            scores = alloc_accumulator((block_m, block_n), accumulate)
            probabilities = alloc_accumulator((block_m, block_n), dtype)
            out = alloc_accumulator((block_m, head_dim), accumulate)
            row_max = alloc_accumulator((block_m,), accumulate)
            row_max_before = alloc_accumulator((block_m,), accumulate)
            rescale = alloc_accumulator((block_m,), accumulate)
            row_sum = alloc_accumulator((block_m,), accumulate)
            tile_sum = alloc_accumulator((block_m,), accumulate)
            visible = alloc_accumulator((block_m,), "int32")

            # Variables, since TileLang would put whole expressions wherever they are used, and take a minute to simplify them.
            group, first, length = T.alloc_var("int32"), T.alloc_var("int32"), T.alloc_var("int32")
            least, most, share = T.alloc_var("int32"), T.alloc_var("int32"), T.alloc_var("int32")
            begin, count = T.alloc_var("int32"), T.alloc_var("int32")
            kv_head = T.truncmod(packed, kv_heads)
            T.assume(kv_head < kv_heads)
            group = T.truncdiv(heads, kv_heads)
            # Packed row m of the tile: new row (first + m) / group of the kv head's query head (first + m) % group.
            first = T.truncdiv(packed, kv_heads) * block_m
            length = Lengths[entry]
            # Keys that the tile's first row sees, of which there may be none, and those that its last one sees.
            least = length - causal * (seqlen_q - 1 - T.truncdiv(first, group))
            most = length - causal * (seqlen_q - 1 - T.min(seqlen_q - 1, T.truncdiv(first + block_m - 1, group)))
            # Tiles of keys, and this workgroup's share of them.
            most = T.truncdiv(T.max(most, 0) + block_n - 1, block_n)
            share = T.truncdiv(most + splits - 1, splits)
            begin = split * share
            count = T.max(0, T.min(share, most - begin))
            rows = seqlen_q * group
            scale = softmax_scale * log2_e
            place = (entry, kv_head)

            for m, d in parallel(block_m, head_dim):
                q[m, d] = T.if_then_else(
                    first + m < rows,
                    Q[
                        entry,
                        T.truncdiv(first + m, group),
                        kv_head * group + T.truncmod(first + m, group),
                        d,
                    ],
                    T.cast(0, dtype),
                )
            T.fill(out, 0)
            T.fill(row_sum, 0)
            T.fill(row_max, lowest)
            # Keys that a row sees: here, since an integer division costs a GPU some twenty instructions.
            for m in parallel(block_m):
                visible[m] = length - causal * (seqlen_q - 1 - T.truncdiv(first + m, group))

            if through_registers:
                for n, d in parallel(block_n, head_dim):
                    next_k[n, d] = cached(K, BlockTable, place, begin * block_n, n, d, k_stride, page_shift, length)
            for step in T.serial(count):
                key = (begin + step) * block_n
                # On a GPU through registers, V and the next K on their way while this K is in use: TileLang pipelines neither
                # what it gathers nor anything on gfx942.
                if through_registers:
                    for n, d in parallel(block_n, head_dim):
                        k[n, d] = next_k[n, d]
                    for n, d in parallel(block_n, head_dim):
                        next_v[n, d] = cached(V, BlockTable, place, key, n, d, v_stride, page_shift, length)
                    if step + 1 < count:
                        for n, d in parallel(block_n, head_dim):
                            next_k[n, d] = cached(
                                K, BlockTable, place, key + block_n, n, d, k_stride, page_shift, length
                            )
                else:
                    for n, d in parallel(block_n, head_dim):
                        k[n, d] = cached(K, BlockTable, place, key, n, d, k_stride, page_shift, length)
                T.clear(scores)
                T.gemm(q, k, scores, transpose_B=True, policy=warp_policy)
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
                for m, d in parallel(block_m, head_dim):
                    out[m, d] *= rescale[m]
                if transposes_v:
                    for n, d in parallel(block_n, head_dim):
                        v[d, n] = next_v[n, d]
                elif through_registers:
                    for n, d in parallel(block_n, head_dim):
                        v[n, d] = next_v[n, d]
                else:
                    for n, d in parallel(block_n, head_dim):
                        v[n, d] = cached(V, BlockTable, place, key, n, d, v_stride, page_shift, length)
                T.gemm(probabilities, v, out, transpose_B=transposes_v, policy=warp_policy)

            # Compared with 0 and not with > 0: NaN in, NaN out.
            for m, d in parallel(block_m, head_dim):
                out[m, d] = T.if_then_else(row_sum[m] == 0, 0.0, out[m, d] / row_sum[m])
            for m, d in parallel(block_m, head_dim):
                if first + m < rows:
                    Parts[
                        split, entry, T.truncdiv(first + m, group), kv_head * group + T.truncmod(first + m, group), d
                    ] = out[m, d]
            for m in parallel(block_m):
                if first + m < rows:
                    PartsLSE[
                        split, entry, kv_head * group + T.truncmod(first + m, group), T.truncdiv(first + m, group)
                    ] = row_max[m] * softmax_scale + T.log1p(row_sum[m] - 1.0)

    return decode_attend


def combine(head_dim: int, dtype: str, dialect: "Dialect") -> Any:
    """The PrimFunc that combines the parts of every row, as the module's formula says; the shapes are `build`'s."""
    accumulate = "float32"
    threads = 1 if dialect.name == "cpu" else COMBINING_THREADS
    log2_e, lowest = math.log2(math.e), -1e30
    alloc_accumulator, parallel, exp2 = dialect.alloc_accumulator, dialect.parallel, dialect.exp2
    batch, seqlen_q, heads, splits = (T.dynamic(name) for name in ("batch", "seqlen_q", "heads", "splits"))

    @T.prim_func
    def decode_combine(
        Parts: T.Tensor((splits, batch, seqlen_q, heads, head_dim), accumulate),
        PartsLSE: T.Tensor((splits, batch, heads, seqlen_q), accumulate),
        O: T.Tensor((batch, seqlen_q, heads, head_dim), dtype),
        LSE: T.Tensor((batch, heads, seqlen_q), accumulate),
    ):
        with T.Kernel(heads, seqlen_q, batch, threads=threads) as (head, row, entry):
            out = alloc_accumulator((head_dim,), accumulate)
            largest = T.alloc_local((1,), accumulate)
            weight = T.alloc_local((1,), accumulate)
            total = T.alloc_local((1,), accumulate)
            largest[0] = lowest
            total[0] = 0.0
            T.fill(out, 0)
            for some in T.serial(T.ceildiv(splits, COMBINED_AT_ONCE)):
                for i in T.unroll(COMBINED_AT_ONCE):
                    s = T.min(some * COMBINED_AT_ONCE + i, splits - 1)
                    largest[0] = T.max(largest[0], PartsLSE[s, entry, head, row])
            for some in T.serial(T.ceildiv(splits, COMBINED_AT_ONCE)):
                for i in T.unroll(COMBINED_AT_ONCE):
                    s = T.min(some * COMBINED_AT_ONCE + i, splits - 1)
                    weight[0] = T.if_then_else(
                        some * COMBINED_AT_ONCE + i < splits,
                        exp2((PartsLSE[s, entry, head, row] - largest[0]) * log2_e),
                        0.0,
                    )
                    total[0] += weight[0]
                    for d in parallel(head_dim):
                        out[d] += weight[0] * Parts[s, entry, row, head, d]
            for d in parallel(head_dim):
                O[entry, row, head, d] = T.if_then_else(total[0] == 0, 0.0, out[d] / total[0])
            LSE[entry, head, row] = largest[0] + T.log1p(total[0] - 1.0)

    return within_bounds(decode_combine)
