"""Decoding as torch operators, `torch.ops.tilekernels.attention_decode` and `mla_decode`, so that torch.compile traces it."""

from __future__ import annotations

import torch

from tilekernels.functional_decode import run_decode
from tilekernels.functional_mla import run_mla
from tilekernels.mla import LATENT_DIM


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


@torch.library.custom_op("tilekernels::mla_decode", mutates_args=())
def mla(  # noqa: PLR0917 - an operator's arguments have an order
    q: torch.Tensor,
    kv_cache: torch.Tensor,
    cache_seqlens: torch.Tensor,
    block_table: torch.Tensor,
    softmax_scale: float,
    causal: bool,
    num_splits: int,
    policy: str,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return output and LSE, as `tilekernels.mla_decode` does of a paged cache of four dimensions."""
    return run_mla(q, kv_cache, cache_seqlens, block_table, softmax_scale, causal, num_splits, policy)


@mla.register_fake
def _mla_shapes(  # noqa: PLR0917 - an operator's arguments have an order
    q: torch.Tensor,
    kv_cache: torch.Tensor,
    cache_seqlens: torch.Tensor,
    block_table: torch.Tensor,
    softmax_scale: float,
    causal: bool,
    num_splits: int,
    policy: str,
) -> tuple[torch.Tensor, torch.Tensor]:
    batch, seqlen_q, heads, _ = q.shape
    return q.new_empty((batch, seqlen_q, heads, LATENT_DIM)), q.new_empty((batch, heads, seqlen_q), dtype=torch.float32)
