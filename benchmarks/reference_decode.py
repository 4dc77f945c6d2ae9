"""Attention over a paged cache in double precision: `reference` over each sequence's keys, taken out of their pages.

The tolerance is that of `reference`, sequence by sequence. A split of the keys needs no more room: its parts are float32, and
their combination rounds each value as often as online softmax does at a new maximum.
"""

from __future__ import annotations

import torch

from benchmarks import reference
from benchmarks.reference import Agreement
from tilegate.protocol import WrongResult


def check(  # noqa: PLR0917 - a problem and its results are that many tensors
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    block_table: torch.Tensor,
    cache_seqlens: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor | None,
    *,
    causal: bool,
    softmax_scale: float,
    limit: int = reference.CHECKED_SCORES,
) -> tuple[Agreement, ...]:
    """Compare a decode kernel's output and LSE with the reference.

    Args:
        q: (batch, seqlen_q, heads, head_dim).
        k_cache, v_cache: (num_blocks, page_size, kv_heads, head_dim).
        block_table: (batch, pages), integers.
        cache_seqlens: (batch,), integers: keys of each sequence, the new rows included.
        out, lse: what the kernel made of it: `out` like q, `lse` (batch, heads, seqlen_q) or None.
        causal, softmax_scale: as in `reference.attention`.
        limit: scores that are compared, at most; of all sequences together.

    Returns:
        The agreement of out and lse, of every sequence one after the other.

    Raises:
        WrongResult: as `reference.check`; names the sequence.
    """
    page_size = k_cache.shape[1]
    found: list[Agreement] = []
    for entry, length in enumerate(cache_seqlens.tolist()):
        one = slice(entry, entry + 1)
        keys, values = (_of(cache, block_table[entry], length, page_size) for cache in (k_cache, v_cache))
        try:
            found += reference.check(
                q[one],
                keys,
                values,
                out[one],
                None if lse is None else lse[one],
                causal=causal,
                softmax_scale=softmax_scale,
                limit=max(1, limit // len(q)),
            )
        except WrongResult as wrong:
            raise WrongResult(f"{wrong}\nsequence {entry}, of {length} keys") from None
    return tuple(found)


def _of(cache: torch.Tensor, table: torch.Tensor, length: int, page_size: int) -> torch.Tensor:
    """Return (1, length, kv_heads, head_dim): a sequence's keys or values."""
    pages = table[: -(-length // page_size)].long()
    return cache[pages].flatten(0, 1)[:length][None]
