"""The kernel with which the reference values were recorded: FlashAttention-2 forward, fp16, causal, Q, K and V in LDS."""

import functools

import tilelang
import tilelang.language as T

from tilegate.protocol import Artifact

BATCH, HEADS, GROUP, SEQLEN, BLOCK_N, THREADS = 1, 28, 7, 4096, 64, 256


@functools.cache
def lower(arch: str, head_dim: int, block_m: int) -> Artifact:
    """Generate the kernel for a chip."""
    target = tilelang.tvm.target.Target(
        {"kind": "hip", "mcpu": arch, "mtriple": "amdgcn-amd-amdhsa-hcc", "thread_warp_size": 64}
    )
    with target:
        made = tilelang.lower(build(head_dim, block_m), target=target, enable_device_compile=False)
    (function,) = made.device_mod.functions.values()
    launch = {"block": [THREADS, 1, 1], "dynamic_shared_bytes": int(function.attrs["dyn_shared_memory_buf"])}
    return Artifact("main", made.kernel_source, launch)


def build(head_dim: int, block_m: int) -> object:
    """Write the kernel down."""
    scale = (1.0 / head_dim) ** 0.5 * 1.44269504
    dtype, wide = T.float16, T.float32
    queries, keys = [BATCH, SEQLEN, HEADS, head_dim], [BATCH, SEQLEN, HEADS // GROUP, head_dim]
    policy = T.GemmWarpPolicy.FullRow

    @T.prim_func
    def main(
        Q: T.Tensor(queries, dtype),
        K: T.Tensor(keys, dtype),
        V: T.Tensor(keys, dtype),
        O: T.Tensor(queries, dtype),  # noqa: E741 - the output, as in the papers
    ):
        with T.Kernel(T.ceildiv(SEQLEN, block_m), HEADS, BATCH, threads=THREADS) as (x, y, z):
            Q_tile = T.alloc_shared([block_m, head_dim], dtype)
            K_tile = T.alloc_shared([BLOCK_N, head_dim], dtype)
            V_tile = T.alloc_shared([BLOCK_N, head_dim], dtype)
            scores = T.alloc_fragment([block_m, BLOCK_N], wide)
            weights = T.alloc_fragment([block_m, BLOCK_N], dtype)
            out = T.alloc_fragment([block_m, head_dim], wide)
            top = T.alloc_fragment([block_m], wide)
            top_before = T.alloc_fragment([block_m], wide)
            rescale = T.alloc_fragment([block_m], wide)
            tile_sum = T.alloc_fragment([block_m], wide)
            total = T.alloc_fragment([block_m], wide)
            T.copy(Q[z, x * block_m : (x + 1) * block_m, y, :], Q_tile)
            T.fill(out, 0)
            T.fill(total, 0)
            T.fill(top, -T.infinity(wide))
            for k in T.Pipelined(T.ceildiv((x + 1) * block_m, BLOCK_N), num_stages=1):
                T.copy(K[z, k * BLOCK_N : (k + 1) * BLOCK_N, y // GROUP, :], K_tile)
                for i, j in T.Parallel(block_m, BLOCK_N):
                    scores[i, j] = T.if_then_else(x * block_m + i >= k * BLOCK_N + j, 0, -T.infinity(wide))
                T.gemm(Q_tile, K_tile, scores, transpose_B=True, policy=policy)
                T.copy(V[z, k * BLOCK_N : (k + 1) * BLOCK_N, y // GROUP, :], V_tile)
                T.copy(top, top_before)
                T.reduce_max(scores, top, dim=1, clear=False)
                for i in T.Parallel(block_m):
                    top[i] = T.max(top[i], top_before[i])
                for i in T.Parallel(block_m):
                    rescale[i] = T.exp2(top_before[i] * scale - top[i] * scale)
                for i, j in T.Parallel(block_m, BLOCK_N):
                    scores[i, j] = T.exp2(scores[i, j] * scale - top[i] * scale)
                T.reduce_sum(scores, tile_sum, dim=1)
                for i in T.Parallel(block_m):
                    total[i] = total[i] * rescale[i] + tile_sum[i]
                T.copy(scores, weights)
                for i, j in T.Parallel(block_m, head_dim):
                    out[i, j] *= rescale[i]
                T.gemm(weights, V_tile, out, policy=policy)
            for i, j in T.Parallel(block_m, head_dim):
                out[i, j] /= total[i]
            T.copy(out, O[z, x * block_m : (x + 1) * block_m, y, :])

    return main
