"""Paged caches, as the decode functions take them: what goes with what, and how kernels read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilekernels.arguments import ALIGNMENT, dtype_of, shape_of
from tilekernels.decode import MAX_SPLITS

if TYPE_CHECKING:
    import torch

_CONTIGUOUS_PAGES = (256, 64, 16)


def check_options(causal: object, return_softmax_lse: object, policy: object, num_splits: object) -> None:
    """Raise TypeError for an option of the wrong type, ValueError for a number of splits that there cannot be."""
    for name, value in (("causal", causal), ("return_softmax_lse", return_softmax_lse)):
        if not isinstance(value, bool):
            raise TypeError(f"{name} must be a bool, got {value!r}")
    if not isinstance(policy, str):
        raise TypeError(f"policy must be a string, got {policy!r}")
    if not isinstance(num_splits, int) or isinstance(num_splits, bool):
        raise TypeError(f"num_splits must be an int, got {num_splits!r}")
    if not 0 <= num_splits <= MAX_SPLITS:
        raise ValueError(f"num_splits must be between 0 (chosen for you) and {MAX_SPLITS}, got {num_splits}")


def check_cache(name: str, tensor: torch.Tensor) -> None:
    """Raise TypeError if it is no dense tensor, ValueError if it has not four dimensions. A traced tensor may have no memory."""
    import torch  # noqa: PLC0415

    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(tensor).__name__}")
    if tensor.is_nested or tensor.layout != torch.strided:
        raise TypeError(f"{name} must be a dense tensor")
    if tensor.ndim != 4:
        raise ValueError(f"{name} must have 4 dimensions, got {shape_of(tensor)}")


def check_table(name: str, block_table: torch.Tensor, cache: torch.Tensor, q: torch.Tensor) -> None:
    """Raise TypeError and ValueError if the table does not go with q, or the cache has no pages of a power of two."""
    _check_integers("block_table", block_table, q)
    if block_table.ndim != 2 or block_table.shape[0] != q.shape[0]:
        raise ValueError(f"block_table must have shape ({q.shape[0]}, pages) to go with q, got {shape_of(block_table)}")
    page_size = cache.shape[1]
    if page_size < 1 or page_size & (page_size - 1):
        raise ValueError(f"{name} must have pages of a power of two of positions, got {page_size}: {shape_of(cache)}")


def _check_integers(name: str, tensor: torch.Tensor, q: torch.Tensor) -> None:
    import torch  # noqa: PLC0415

    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{name} must be an int32 tensor, got {type(tensor).__name__}")
    if tensor.dtype != torch.int32:
        raise TypeError(f"{name} must be int32, got {dtype_of(tensor)}; call .to(torch.int32)")
    if tensor.device != q.device:
        raise ValueError(f"{name} is on {tensor.device}, expected q's device {q.device}")


def as_pages(caches: dict[str, torch.Tensor]) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Return contiguous caches of one shape as pages, and the table that says so."""
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


def lengths_of(cache_seqlens: torch.Tensor | int | None, q: torch.Tensor, capacity: int) -> torch.Tensor:
    """Return the length of each sequence, (batch,), int32: all the keys there is room for, by default."""
    import torch  # noqa: PLC0415

    batch = q.shape[0]
    if cache_seqlens is None or (isinstance(cache_seqlens, int) and not isinstance(cache_seqlens, bool)):
        length = capacity if cache_seqlens is None else cache_seqlens
        if not 0 <= length <= capacity:
            raise ValueError(f"cache_seqlens must be between 0 and the {capacity} keys there is room for, got {length}")
        return torch.full((batch,), length, dtype=torch.int32, device=q.device)
    _check_integers("cache_seqlens", cache_seqlens, q)
    if cache_seqlens.shape != (batch,):
        raise ValueError(f"cache_seqlens must have shape ({batch},) to go with q, got {shape_of(cache_seqlens)}")
    return cache_seqlens


def rows_of(name: str, cache: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Return the cache as rows of (kv_heads, head_dim), and rows from one page to the next. Never a copy: caches are large."""
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
