"""`torch.ops.tilekernels.attention_varlen` and its gradient, as `operators` has them for the dense case."""

from __future__ import annotations

from typing import Any

import torch

from tilekernels.arguments import on_device, ready, scale_of
from tilekernels.operators import empty_like
from tilekernels.varlen import problem_of, run_varlen
from tilekernels.varlen_backward import padded_total, varlen_backward_kernel


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
def _forward_shapes(q: torch.Tensor, *_: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return q.new_empty(q.shape), q.new_empty((q.shape[1], q.shape[0]), dtype=torch.float32)


@torch.library.custom_op("tilekernels::attention_varlen_backward", mutates_args=())
def attention_varlen_backward(  # noqa: PLR0917 - an operator's arguments have an order
    grad: torch.Tensor,
    grad_lse: torch.Tensor | None,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    causal: bool,
    softmax_scale: float | None,
    policy: str,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the gradients of q, k and v.

    Args:
        grad, grad_lse: gradients of output and LSE; None for an LSE that nothing depends on.
        q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, causal, softmax_scale, policy: what the forward
            operator was given.
        out, lse: what it returned.
    """
    problem = problem_of(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, causal)
    scale = scale_of(softmax_scale, problem.head_dim)
    dq, dk, dv = empty_like(q), empty_like(k), empty_like(v)
    if not (q.shape[0] and k.shape[0] and problem.sequences and max_seqlen_q and max_seqlen_k):
        for x in (dq, dk, dv):
            x.zero_()
        return dq, dk, dv
    stats = lse.new_empty((2, problem.heads, padded_total(problem.total_q, problem.sequences)))
    given = [ready(x) for x in (q, k, v, out, grad, lse, cu_seqlens_q, cu_seqlens_k)]
    kernel = varlen_backward_kernel(problem, policy, q.device)
    with on_device(q.device):
        kernel.launch(*given, stats, dq, dk, dv, max_seqlen_q, max_seqlen_k, scale, grad_lse)
    return dq, dk, dv


@attention_varlen_backward.register_fake
def _backward_shapes(
    grad: torch.Tensor,
    grad_lse: torch.Tensor | None,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *_: Any,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return empty_like(q), empty_like(k), empty_like(v)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, torch.Tensor]) -> None:
    q, k, v, cu_seqlens_q, cu_seqlens_k, *ctx.options = inputs
    ctx.save_for_backward(q, k, v, cu_seqlens_q, cu_seqlens_k, *output)
    ctx.set_materialize_grads(False)  # an LSE that nothing depends on costs nothing


def _differentiate(ctx: Any, grad: torch.Tensor | None, grad_lse: torch.Tensor | None) -> tuple[Any, ...]:
    *given, out, lse = ctx.saved_tensors
    if grad is None:
        if grad_lse is None:
            return (None,) * 10
        grad = torch.zeros_like(out)
    grads = attention_varlen_backward(grad, grad_lse, *given, out, lse, *ctx.options)
    return (*grads, *(None,) * 7)


attention_varlen.register_autograd(_differentiate, setup_context=_keep)
