"""Attention as torch operators, `torch.ops.tilekernels.attention_forward` and `attention_backward`.

What torch asks of an operator that it is to differentiate, trace and compile: a schema, a fake implementation that gives the
shapes of the results, and the operator that computes the gradient. `attention` goes through them where gradients are wanted or
torch.compile traces it.
"""

from __future__ import annotations

from typing import Any

import torch

from tilekernels.arguments import on_device, ready, scale_of
from tilekernels.backward import backward_kernel, fused_kernel, padded_rows
from tilekernels.functional import problem_of, run_forward


@torch.library.custom_op("tilekernels::attention_forward", mutates_args=())
def attention_forward(  # noqa: PLR0917 - an operator's arguments have an order
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool,
    softmax_scale: float | None,
    policy: str,
    deterministic: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return output and LSE, as `tilekernels.attention` does; `deterministic` is for the backward pass."""
    return run_forward(q, k, v, causal, softmax_scale, policy)


@attention_forward.register_fake
def _forward_shapes(  # noqa: PLR0917 - an operator's arguments have an order
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool,
    softmax_scale: float | None,
    policy: str,
    deterministic: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    batch, seqlen_q, heads, _ = q.shape
    return q.new_empty(q.shape), q.new_empty((batch, heads, seqlen_q), dtype=torch.float32)


@torch.library.custom_op("tilekernels::attention_backward", mutates_args=())
def attention_backward(  # noqa: PLR0917 - an operator's arguments have an order
    grad: torch.Tensor,
    grad_lse: torch.Tensor | None,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    causal: bool,
    softmax_scale: float | None,
    policy: str,
    deterministic: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the gradients of q, k and v.

    Args:
        grad, grad_lse: gradients of output and LSE; None for an LSE that nothing depends on.
        q, k, v, causal, softmax_scale, policy, deterministic: what the forward operator was given.
        out, lse: what it returned.
    """
    problem = problem_of(q, k, v, causal)
    scale = scale_of(softmax_scale, problem.head_dim)
    dq, dk, dv = empty_like(q), empty_like(k), empty_like(v)
    if problem.tokens == 0 or problem.seqlen_k == 0:
        for x in (dq, dk, dv):
            x.zero_()
        return dq, dk, dv
    stats = lse.new_empty((problem.batch, 2, problem.heads, padded_rows(problem.seqlen_q)))
    given = [ready(x) for x in (q, k, v, out, grad, lse)]
    fused = None
    if not (deterministic or torch.are_deterministic_algorithms_enabled()):
        fused = fused_kernel(problem, q.device)
    with on_device(q.device):
        if fused is not None:
            sums = lse.new_empty(q.shape)
            fused.launch(*given, stats, sums, dq, dk, dv, scale, grad_lse)
        else:
            kernel = backward_kernel(problem, policy, q.device)
            kernel.launch(*given, stats, dq, dk, dv, scale, grad_lse)
    return dq, dk, dv


@attention_backward.register_fake
def _backward_shapes(  # noqa: PLR0917 - an operator's arguments have an order
    grad: torch.Tensor,
    grad_lse: torch.Tensor | None,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    causal: bool,
    softmax_scale: float | None,
    policy: str,
    deterministic: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return empty_like(q), empty_like(k), empty_like(v)


def empty_like(x: torch.Tensor) -> torch.Tensor:
    """Return an empty contiguous tensor: what kernels write, however x lies in memory."""
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, torch.Tensor]) -> None:
    q, k, v, *ctx.options = inputs
    ctx.save_for_backward(q, k, v, *output)
    ctx.set_materialize_grads(False)  # an LSE that nothing depends on costs nothing


def _differentiate(ctx: Any, grad: torch.Tensor | None, grad_lse: torch.Tensor | None) -> tuple[Any, ...]:
    q, k, v, out, lse = ctx.saved_tensors
    if grad is None:
        if grad_lse is None:
            return (None,) * 7
        grad = torch.zeros_like(out)
    grads = attention_backward(grad, grad_lse, q, k, v, out, lse, *ctx.options)
    return (*grads, None, None, None, None)


attention_forward.register_autograd(_differentiate, setup_context=_keep)
