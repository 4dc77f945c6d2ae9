"""The public function for multi-head latent attention over a paged cache, with the arguments of `attention_decode`."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING

from tilekernels.arguments import (
    check_beside,
    check_dtype,
    check_memory,
    dtype_of,
    on_device,
    ready,
    scale_of,
    shape_of,
)
from tilekernels.mla import LATENT_DIM, ROPE_DIM, MlaProblem, mla_kernel
from tilekernels.paged import as_pages, check_cache, check_options, check_table, lengths_of, rows_of

if TYPE_CHECKING:
    import torch

WIDTH = LATENT_DIM + ROPE_DIM


def mla_decode(
    q: torch.Tensor,
    kv_cache: torch.Tensor,
    *,
    cache_seqlens: torch.Tensor | int | None = None,
    block_table: torch.Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    num_splits: int = 0,
    return_softmax_lse: bool = False,
    policy: str = "adaptive",
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Multi-head latent attention of new rows over a cache that holds their own keys already; no gradients.

    The absorbed form (DeepSeek-V2, V3, R1): a cached key has 576 numbers, a latent of 512 and a rotary part of 64, and all
    heads share it; its value is the latent. q is absorbed likewise, and the output is to be multiplied by the value
    projection. Conventions are those of FlashMLA's `flash_mla_with_kvcache`, argument names those of `attention_decode`, to
    which everything else is equal: one new row or several, the mask, lengths, graphs, torch.compile.

    Args:
        q: (batch, seqlen_q, heads, 576), the rotary part last. float16 or bfloat16 on a GPU, float16 or float32 on the CPU.
        kv_cache: (num_blocks, page_size, 576) or (num_blocks, page_size, 1, 576), page_size a power of two; without
            `block_table` (batch, seqlen_cache, …). Contiguous within a page; a page may be any number of whole rows after
            the one before.
        cache_seqlens: (batch,) int32: keys of each sequence, the new rows included; or one number for all; all that there
            is room for when None.
        block_table: (batch, pages) int32: the page that holds keys i * page_size … of a sequence.
        softmax_scale: a number from 2**-126 to 1e6; 1/sqrt(576) when None, as in FlashMLA. DeepSeek-V3 asks for another, that
            of its heads before absorption: 1/sqrt(192), times the square of YaRN's factor where that is in use.
        causal: mask keys to the right of the diagonal.
        num_splits: into how many parts the keys are split; chosen by shape and chip when 0.
        return_softmax_lse: return the log-sum-exp of each row as well.
        policy: "adaptive" picks tile and splits by the shape, "fixed" is the baseline.

    Returns:
        The output, (batch, seqlen_q, heads, 512), contiguous, in q's dtype; with `return_softmax_lse` also the natural
        logarithm of each row's softmax denominator, (batch, heads, seqlen_q), float32.

    Raises:
        TypeError: an argument of the wrong type, or a dtype that the device's kernels do not take.
        ValueError: shapes, devices or values that do not go together; names the argument and what was expected.
        NotImplementedError: gradients are wanted.
        CompilationError: the kernel cannot be compiled on this machine.
    """
    import torch  # noqa: PLC0415 - `import tilekernels` stays light

    check_options(causal, return_softmax_lse, policy, num_splits)
    kv_cache = _check(q, kv_cache, block_table)
    if torch.is_grad_enabled():
        for name, tensor in (("q", q), ("kv_cache", kv_cache)):
            if tensor.requires_grad:
                raise NotImplementedError(
                    f"mla_decode has no gradient, and {name} requires grad: call it under torch.no_grad()"
                )
    scale = scale_of(softmax_scale, WIDTH)
    if block_table is None:
        (kv_cache,), block_table = as_pages({"kv_cache": kv_cache})
    lengths = lengths_of(cache_seqlens, q, block_table.shape[1] * kv_cache.shape[1])
    if torch.compiler.is_compiling():
        from tilekernels.operators_decode import mla  # noqa: PLC0415 - costs a call that others need not pay

        out, lse = mla(q, kv_cache, lengths, block_table, scale, causal, num_splits, policy)
    else:
        out, lse = run_mla(q, kv_cache, lengths, block_table, scale, causal, num_splits, policy)
    return (out, lse) if return_softmax_lse else out


def run_mla(  # noqa: PLR0917 - the operator's own argument list
    q: torch.Tensor,
    kv_cache: torch.Tensor,
    lengths: torch.Tensor,
    block_table: torch.Tensor,
    softmax_scale: float,
    causal: bool,
    num_splits: int,
    policy: str,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Output and LSE of `mla_decode`, of a paged cache of four dimensions and arguments that are checked."""
    import torch  # noqa: PLC0415

    check_memory(q=q, kv_cache=kv_cache, block_table=block_table)
    batch, seqlen_q, heads, _ = q.shape
    page_size = kv_cache.shape[1]
    capacity = block_table.shape[1] * page_size
    problem = _known_problem(batch, heads, seqlen_q, capacity, page_size, dtype_of(q))
    out = torch.empty((batch, seqlen_q, heads, LATENT_DIM), dtype=q.dtype, device=q.device)
    lse = torch.empty((batch, heads, seqlen_q), dtype=torch.float32, device=q.device)
    if batch * seqlen_q == 0:
        return out, lse
    if capacity == 0 or kv_cache.shape[0] == 0:
        return out.zero_(), lse.fill_(-math.inf)
    kernel, splits = mla_kernel(problem, policy, q.device, num_splits)
    parts, parts_lse = out[None], lse[None]
    if splits > 1:
        parts = torch.empty((splits, *out.shape), dtype=torch.float32, device=q.device)
        parts_lse = torch.empty((splits, *lse.shape), dtype=torch.float32, device=q.device)
    rows, stride = rows_of("kv_cache", kv_cache)
    tensors = (ready(q), rows[:, 0], ready(block_table), ready(lengths), parts, parts_lse, out, lse)
    with on_device(q.device):
        kernel.launch(*tensors, stride, page_size.bit_length() - 1, int(causal), softmax_scale)
    return out, lse


_known_problem = functools.lru_cache(maxsize=4096)(MlaProblem)


def _check(q: torch.Tensor, kv_cache: torch.Tensor, block_table: torch.Tensor | None) -> torch.Tensor:
    """Return the cache with four dimensions."""
    import torch  # noqa: PLC0415

    if isinstance(kv_cache, torch.Tensor) and kv_cache.ndim == 3:
        kv_cache = kv_cache[:, :, None]
    for name, tensor in (("q", q), ("kv_cache", kv_cache)):
        check_cache(name, tensor)
    check_beside(q, kv_cache=kv_cache)
    check_dtype(q)
    if q.shape[3] != WIDTH or q.shape[2] == 0:
        raise ValueError(f"q must have shape (batch, seqlen_q, heads, {WIDTH}), got {shape_of(q)}")
    if kv_cache.shape[2:] != (1, WIDTH):
        raise ValueError(
            f"kv_cache must have shape (num_blocks, page_size, 1, {WIDTH}) or that without the 1, got {shape_of(kv_cache)}"
        )
    if block_table is not None:
        check_table("kv_cache", block_table, kv_cache, q)
    elif kv_cache.shape[0] != q.shape[0]:
        raise ValueError(
            f"without block_table kv_cache must have shape ({q.shape[0]}, seqlen_cache, {WIDTH}) to go with q, "
            f"got {shape_of(kv_cache)}"
        )
    return kv_cache
