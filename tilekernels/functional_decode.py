"""The public decode function: attention over a paged key/value cache, with the arguments of flash-attn's."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING

from tilekernels.decode import MAX_SPLITS, DecodeProblem, decode_kernel
from tilekernels.functional import ALIGNMENT, _dtype, _ready, _scale, _shape, on_device
from tilekernels.policy import DTYPES_OF

if TYPE_CHECKING:
    import torch

_CONTIGUOUS_PAGES = (256, 64, 16)


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

    _check_options(causal, return_softmax_lse, policy, num_splits)
    _check(q, k_cache, v_cache, block_table)
    if torch.is_grad_enabled():
        for name, tensor in (("q", q), ("k_cache", k_cache), ("v_cache", v_cache)):
            if tensor.requires_grad:
                raise NotImplementedError(
                    f"attention_decode has no gradient, and {name} requires grad: call it under torch.no_grad()"
                )
    scale = _scale(softmax_scale, q.shape[3])
    if block_table is None:
        (k_cache, v_cache), block_table = _as_pages({"k_cache": k_cache, "v_cache": v_cache})
    lengths = _lengths(cache_seqlens, q, block_table.shape[1] * k_cache.shape[1])
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

    for name, tensor in (("q", q), ("k_cache", k_cache), ("v_cache", v_cache), ("block_table", block_table)):
        if type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
            raise TypeError(f"{name} must be a tensor with memory of its own, got {type(tensor).__name__}")
    batch, seqlen_q, heads, head_dim = q.shape
    page_size, kv_heads = k_cache.shape[1:3]
    capacity = block_table.shape[1] * page_size
    problem = _known_problem(batch, heads, kv_heads, seqlen_q, capacity, page_size, head_dim, _dtype(q))
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
    k_rows, k_stride = _rows("k_cache", k_cache)
    v_rows, v_stride = _rows("v_cache", v_cache)
    shift = page_size.bit_length() - 1
    tensors = (_ready(q), k_rows, v_rows, _ready(block_table), _ready(lengths), parts, parts_lse, out, lse)
    arguments = (*tensors, k_stride, v_stride, shift, int(causal), softmax_scale)
    with on_device(q.device):
        kernel.launch(*arguments)
    return out, lse


_known_problem = functools.lru_cache(maxsize=4096)(DecodeProblem)


def _check_options(causal: object, return_softmax_lse: object, policy: object, num_splits: object) -> None:
    for name, value in (("causal", causal), ("return_softmax_lse", return_softmax_lse)):
        if not isinstance(value, bool):
            raise TypeError(f"{name} must be a bool, got {value!r}")
    if not isinstance(policy, str):
        raise TypeError(f"policy must be a string, got {policy!r}")
    if not isinstance(num_splits, int) or isinstance(num_splits, bool):
        raise TypeError(f"num_splits must be an int, got {num_splits!r}")
    if not 0 <= num_splits <= MAX_SPLITS:
        raise ValueError(f"num_splits must be between 0 (chosen for you) and {MAX_SPLITS}, got {num_splits}")


def _check(q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, block_table: torch.Tensor | None) -> None:
    import torch  # noqa: PLC0415

    for name, tensor in (("q", q), ("k_cache", k_cache), ("v_cache", v_cache)):
        _check_dense(name, tensor)
    if q.device.type not in ("cpu", "cuda"):
        raise ValueError(f"q is on {q.device}, expected a CUDA, ROCm or CPU device")
    for name, tensor in (("k_cache", k_cache), ("v_cache", v_cache)):
        if tensor.device != q.device:
            raise ValueError(f"{name} is on {tensor.device}, expected q's device {q.device}")
        if tensor.dtype != q.dtype:
            raise TypeError(f"{name} has dtype {_dtype(tensor)}, expected q's dtype {_dtype(q)}")
    kind = "cpu" if q.device.type == "cpu" else "hip" if torch.version.hip else "cuda"
    if _dtype(q) not in DTYPES_OF[kind]:
        raise TypeError(
            f"q has dtype {_dtype(q)}, which is not supported on {q.device}; use {' or '.join(DTYPES_OF[kind])}"
        )
    batch, _, heads, head_dim = q.shape
    kv_heads = k_cache.shape[2]
    if k_cache.shape[3] != head_dim:
        raise ValueError(f"k_cache must have q's head_dim {head_dim} as its last extent, got {_shape(k_cache)}")
    if v_cache.shape != k_cache.shape:
        raise ValueError(f"v_cache must have k_cache's shape {_shape(k_cache)}, got {_shape(v_cache)}")
    if heads == 0 or kv_heads == 0 or heads % kv_heads:
        raise ValueError(f"k_cache must have a number of heads that divides q's {heads}, got {_shape(k_cache)}")
    if block_table is not None:
        _check_table("k_cache", block_table, k_cache, q)
    elif k_cache.shape[0] != batch:
        raise ValueError(
            f"without block_table k_cache must have shape ({batch}, seqlen_cache, kv_heads, {head_dim}) to go with q, "
            f"got {_shape(k_cache)}"
        )


def _check_dense(name: str, tensor: torch.Tensor) -> None:
    import torch  # noqa: PLC0415

    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(tensor).__name__}")
    if tensor.is_nested or tensor.layout != torch.strided:
        raise TypeError(f"{name} must be a dense tensor")
    if tensor.ndim != 4:
        raise ValueError(f"{name} must have 4 dimensions, got {_shape(tensor)}")


def _check_table(name: str, block_table: torch.Tensor, cache: torch.Tensor, q: torch.Tensor) -> None:
    _check_integers("block_table", block_table, q)
    if block_table.ndim != 2 or block_table.shape[0] != q.shape[0]:
        raise ValueError(f"block_table must have shape ({q.shape[0]}, pages) to go with q, got {_shape(block_table)}")
    page_size = cache.shape[1]
    if page_size < 1 or page_size & (page_size - 1):
        raise ValueError(f"{name} must have pages of a power of two of positions, got {page_size}: {_shape(cache)}")


def _check_integers(name: str, tensor: torch.Tensor, q: torch.Tensor) -> None:
    import torch  # noqa: PLC0415

    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{name} must be an int32 tensor, got {type(tensor).__name__}")
    if tensor.dtype != torch.int32:
        raise TypeError(f"{name} must be int32, got {_dtype(tensor)}; call .to(torch.int32)")
    if tensor.device != q.device:
        raise ValueError(f"{name} is on {tensor.device}, expected q's device {q.device}")


def _as_pages(caches: dict[str, torch.Tensor]) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Contiguous caches of one shape as pages, and the table that says so."""
    import torch  # noqa: PLC0415

    first = next(iter(caches.values()))
    batch, seqlen, kv_heads, head_dim = first.shape
    size = next((size for size in _CONTIGUOUS_PAGES if seqlen % size == 0), 1)
    pages = seqlen // size
    for name, cache in caches.items():
        if not cache.is_contiguous():
            raise ValueError(f"without block_table {name} must be contiguous, got strides {cache.stride()}")
    table = torch.arange(batch * pages, dtype=torch.int32, device=first.device).view(batch, pages)
    return [cache.view(batch * pages, size, kv_heads, head_dim) for cache in caches.values()], table


def _lengths(cache_seqlens: torch.Tensor | int | None, q: torch.Tensor, capacity: int) -> torch.Tensor:
    import torch  # noqa: PLC0415

    batch = q.shape[0]
    if cache_seqlens is None or (isinstance(cache_seqlens, int) and not isinstance(cache_seqlens, bool)):
        length = capacity if cache_seqlens is None else cache_seqlens
        if not 0 <= length <= capacity:
            raise ValueError(f"cache_seqlens must be between 0 and the {capacity} keys there is room for, got {length}")
        return torch.full((batch,), length, dtype=torch.int32, device=q.device)
    _check_integers("cache_seqlens", cache_seqlens, q)
    if cache_seqlens.shape != (batch,):
        raise ValueError(f"cache_seqlens must have shape ({batch},) to go with q, got {_shape(cache_seqlens)}")
    return cache_seqlens


def _rows(name: str, cache: torch.Tensor) -> tuple[torch.Tensor, int]:
    """The cache as rows of (kv_heads, head_dim), and rows from one page to the next. Never a copy: caches are large."""
    blocks, page_size, kv_heads, head_dim = cache.shape
    row = kv_heads * head_dim
    stride = cache.stride(0) if blocks > 1 else page_size * row
    within = (row, head_dim, 1)
    wrong = [
        s
        for s, extent, size in zip(within, cache.shape[1:], cache.stride()[1:], strict=True)
        if extent > 1 and size != s
    ]
    if wrong or stride % row or stride < page_size * row:
        raise ValueError(
            f"{name} must be contiguous within a page, and its pages whole rows of {row} apart; got strides {cache.stride()}"
        )
    if cache.data_ptr() % ALIGNMENT or cache.is_neg():
        raise ValueError(f"{name} must start at a multiple of {ALIGNMENT} bytes")
    step = stride // row
    rows = (blocks - 1) * step + page_size
    return cache.as_strided((rows, kv_heads, head_dim), (row, head_dim, 1)), step
