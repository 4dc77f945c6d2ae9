"""`torch.ops.tilekernels.attention_varlen`, which torch.compile traces."""

from __future__ import annotations

import torch

from tilekernels.varlen import run_varlen


@torch.library.custom_op("tilekernels::attention_varlen", mutates_args=())
def attention_varlen(  # noqa: PLR0917 - an operator's arguments have an order
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    causal: bool,
    softmax_scale: float | None,
    policy: str,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return output and LSE, as `tilekernels.attention_varlen` does."""
    return run_varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, causal, softmax_scale, policy)


@attention_varlen.register_fake
def _shapes(  # noqa: PLR0917 - an operator's arguments have an order
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    causal: bool,
    softmax_scale: float | None,
    policy: str,
) -> tuple[torch.Tensor, torch.Tensor]:
    return q.new_empty(q.shape), q.new_empty((q.shape[1], q.shape[0]), dtype=torch.float32)
