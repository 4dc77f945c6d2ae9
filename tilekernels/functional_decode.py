"""The public decode function: attention over a paged key/value cache, with the arguments of flash-attn's."""

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
from tilekernels.decode import DecodeProblem, decode_kernel
from tilekernels.paged import as_pages, check_cache, check_options, check_table, lengths_of, rows_of

if TYPE_CHECKING:
    import torch


def attention_decode(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    *,
    cache_seqlens: torch.Tensor | int | None = None,
    block_table: torch.Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    num_splits: int = 0,
    return_softmax_lse: bool = False,
    policy: str = "adaptive",
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Attention of new rows over a key/value cache that holds their own keys and values already; no gradients.

    Argument names and conventions are those of flash-attn's `flash_attn_with_kvcache`. One new row (decoding), a few
    (speculative decoding) or many (extending over a paged prefix) are the same call. With `causal`, new row i of a sequence
    sees the keys j <= i + its cache_seqlens - seqlen_q: the mask is aligned to the bottom right. A row that sees no key
    gives zeros, and -inf in the LSE. Nothing beyond a sequence's length is read, in caches or table.

    Nothing here waits for the device or depends on values there, so it can be captured in a CUDA or HIP graph once its
    kernel is compiled, and torch.compile traces it. The values of `cache_seqlens` and `block_table` are not looked at: a
    length beyond the table's room, or a page that does not exist, reads other memory.

    Args:
        q: (batch, seqlen_q, heads, head_dim). float16 or bfloat16 on a GPU, float16 or float32 on the CPU.
        k_cache: (num_blocks, page_size, kv_heads, head_dim), page_size a power of two and kv_heads dividing heads; without
            `block_table` (batch, seqlen_cache, kv_heads, head_dim). Contiguous within a page; a page may be any number of
            whole rows after the one before (`kv_cache[:, 0]` of caches that keep K and V of a page together).
        v_cache: shape, dtype and device of k_cache.
        cache_seqlens: (batch,) int32: keys of each sequence, the new rows included; or one number for all; all that there
            is room for when None.
        block_table: (batch, pages) int32: the page that holds keys i * page_size … of a sequence.
        softmax_scale: a number from 2**-126 to 1e6; 1/sqrt(head_dim) when None.
        causal: mask keys to the right of the diagonal.
        num_splits: into how many parts the keys are split; chosen by shape and chip when 0.
        return_softmax_lse: return the log-sum-exp of each row as well.
        policy: "adaptive" picks tile and splits by the shape, "fixed" is the baseline.

    Returns:
        The output, (batch, seqlen_q, heads, head_dim), contiguous, in q's dtype; with `return_softmax_lse` also the natural
        logarithm of each row's softmax denominator, (batch, heads, seqlen_q), float32.

    Raises:
        TypeError: an argument of the wrong type, or a dtype that the device's kernels do not take.
        ValueError: shapes, devices or values that do not go together; names the argument and what was expected.
        CompilationError: the kernel cannot be compiled on this machine.
    """
    import torch  # noqa: PLC0415 - `import tilekernels` stays light

    check_options(causal, return_softmax_lse, policy, num_splits)
    _check(q, k_cache, v_cache, block_table)
    if torch.is_grad_enabled():
        for name, tensor in (("q", q), ("k_cache", k_cache), ("v_cache", v_cache)):
            if tensor.requires_grad:
                raise NotImplementedError(
                    f"attention_decode has no gradient, and {name} requires grad: call it under torch.no_grad()"
                )
    scale = scale_of(softmax_scale, q.shape[3])
    if block_table is None:
        (k_cache, v_cache), block_table = as_pages({"k_cache": k_cache, "v_cache": v_cache})
    lengths = lengths_of(cache_seqlens, q, block_table.shape[1] * k_cache.shape[1])
    if torch.compiler.is_compiling():
        from tilekernels.operators_decode import decode  # noqa: PLC0415 - costs a call that others need not pay

        out, lse = decode(q, k_cache, v_cache, lengths, block_table, scale, causal, num_splits, policy)
    else:
        out, lse = run_decode(q, k_cache, v_cache, lengths, block_table, scale, causal, num_splits, policy)
    return (out, lse) if return_softmax_lse else out


def run_decode(  # noqa: PLR0917 - the operator's own argument list
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    lengths: torch.Tensor,
    block_table: torch.Tensor,
    softmax_scale: float,
    causal: bool,
    num_splits: int,
    policy: str,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Output and LSE of `attention_decode`, of paged caches and arguments that are checked."""
    import torch  # noqa: PLC0415

    check_memory(q=q, k_cache=k_cache, v_cache=v_cache, block_table=block_table)
    batch, seqlen_q, heads, head_dim = q.shape
    page_size, kv_heads = k_cache.shape[1:3]
    capacity = block_table.shape[1] * page_size
    problem = _known_problem(batch, heads, kv_heads, seqlen_q, capacity, page_size, head_dim, dtype_of(q))
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    lse = torch.empty((batch, heads, seqlen_q), dtype=torch.float32, device=q.device)
    if batch * seqlen_q == 0:
        return out, lse
    if capacity == 0 or k_cache.shape[0] == 0:
        return out.zero_(), lse.fill_(-math.inf)
    kernel, splits = decode_kernel(problem, policy, q.device, num_splits)
    parts, parts_lse = out[None], lse[None]
    if splits > 1:
        parts = torch.empty((splits, *out.shape), dtype=torch.float32, device=q.device)
        parts_lse = torch.empty((splits, *lse.shape), dtype=torch.float32, device=q.device)
    k_rows, k_stride = rows_of("k_cache", k_cache)
    v_rows, v_stride = rows_of("v_cache", v_cache)
    shift = page_size.bit_length() - 1
    tensors = (ready(q), k_rows, v_rows, ready(block_table), ready(lengths), parts, parts_lse, out, lse)
    arguments = (*tensors, k_stride, v_stride, shift, int(causal), softmax_scale)
    with on_device(q.device):
        kernel.launch(*arguments)
    return out, lse


_known_problem = functools.lru_cache(maxsize=4096)(DecodeProblem)


def _check(q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, block_table: torch.Tensor | None) -> None:
    for name, tensor in (("q", q), ("k_cache", k_cache), ("v_cache", v_cache)):
        check_cache(name, tensor)
    check_beside(q, k_cache=k_cache, v_cache=v_cache)
    check_dtype(q)
    batch, _, heads, head_dim = q.shape
    kv_heads = k_cache.shape[2]
    if k_cache.shape[3] != head_dim:
        raise ValueError(f"k_cache must have q's head_dim {head_dim} as its last extent, got {shape_of(k_cache)}")
    if v_cache.shape != k_cache.shape:
        raise ValueError(f"v_cache must have k_cache's shape {shape_of(k_cache)}, got {shape_of(v_cache)}")
    if heads == 0 or kv_heads == 0 or heads % kv_heads:
        raise ValueError(f"k_cache must have a number of heads that divides q's {heads}, got {shape_of(k_cache)}")
    if block_table is not None:
        check_table("k_cache", block_table, k_cache, q)
    elif k_cache.shape[0] != batch:
        raise ValueError(
            f"without block_table k_cache must have shape ({batch}, seqlen_cache, kv_heads, {head_dim}) to go with q, "
            f"got {shape_of(k_cache)}"
        )
