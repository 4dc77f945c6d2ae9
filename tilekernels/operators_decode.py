"""Decoding as a torch operator, `torch.ops.tilekernels.attention_decode`, so that torch.compile traces it."""

from __future__ import annotations

import torch

from tilekernels.functional_decode import run_decode


@torch.library.custom_op("tilekernels::attention_decode", mutates_args=())
def decode(  # noqa: PLR0917 - an operator's arguments have an order
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    cache_seqlens: torch.Tensor,
    block_table: torch.Tensor,
    softmax_scale: float,
    causal: bool,
    num_splits: int,
    policy: str,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return output and LSE, as `tilekernels.attention_decode` does of paged caches."""
    return run_decode(q, k_cache, v_cache, cache_seqlens, block_table, softmax_scale, causal, num_splits, policy)


@decode.register_fake
def _shapes(  # noqa: PLR0917 - an operator's arguments have an order
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    cache_seqlens: torch.Tensor,
    block_table: torch.Tensor,
    softmax_scale: float,
    causal: bool,
    num_splits: int,
    policy: str,
) -> tuple[torch.Tensor, torch.Tensor]:
    batch, seqlen_q, heads, _ = q.shape
    return torch.empty_like(q, memory_format=torch.contiguous_format), q.new_empty(
        (batch, heads, seqlen_q), dtype=torch.float32
    )
