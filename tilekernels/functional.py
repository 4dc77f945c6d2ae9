"""The public function: exact attention on tensors as flash-attn lays them out."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING

from tilekernels.arguments import (
    check_beside,
    check_dtype,
    check_tensor,
    dtype_of,
    on_device,
    ready,
    scale_of,
    shape_of,
)
from tilekernels.forward import forward_kernel
from tilekernels.problem import AttentionProblem

if TYPE_CHECKING:
    import torch


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = False,
    softmax_scale: float | None = None,
    return_lse: bool = False,
    policy: str = "adaptive",
    deterministic: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """softmax(Q K^T * softmax_scale + mask) V, head by head. Differentiable; torch.compile traces it.

    Query head h reads key head h // (heads / kv_heads). With `causal`, query i sees the keys j with
    j <= i + seqlen_k - seqlen_q: the mask is aligned to the bottom right, as in flash-attn. A row that sees no key (also
    when seqlen_k is 0) gives zeros, and -inf in the LSE. A NaN or infinity in v can reach rows that do not see its key,
    as in any product of matrices: their weight for it is 0, and 0 times it is NaN.

    Nothing here waits for the device, so it can be captured in a CUDA or HIP graph once its kernel is compiled (the
    first call for a head dimension, dtype, mask and tile compiles or loads it; `tilekernels.precompile` does that ahead
    of time). An input that is not contiguous, or not aligned to 16 bytes, is copied first, on the device.

    Gradients of the output and of the LSE reach q, k and v, in their dtypes; sums are float32. A row that sees no key has
    gradient 0. There are no second derivatives.

    Args:
        q: (batch, seqlen_q, heads, head_dim). float16 or bfloat16 on a GPU, float16 or float32 on the CPU.
        k: (batch, seqlen_k, kv_heads, head_dim), kv_heads dividing heads; dtype and device of q.
        v: shape, dtype and device of k.
        causal: mask keys to the right of the diagonal.
        softmax_scale: a number from 2**-126 to 1e6; 1/sqrt(head_dim) when None.
        return_lse: return the log-sum-exp of each row as well.
        policy: "adaptive" picks the tile by the shape, "fixed" is the one-tile baseline.
        deterministic: as in flash-attn: gradients of the same bits every time. torch.use_deterministic_algorithms asks for
            it, too. Without it a GPU for which `backward_policy.FUSED` has a tile may sum dq by atomics, whose last bits
            vary; at present none has, so the bits never vary.

    Returns:
        The output, (batch, seqlen_q, heads, head_dim), contiguous, in q's dtype; with `return_lse` also the natural
        logarithm of each row's softmax denominator, (batch, heads, seqlen_q), float32.

    Raises:
        TypeError: an argument of the wrong type, or a dtype that the device's kernels do not take.
        ValueError: shapes, devices or values that do not go together; names the argument and what was expected.
        CompilationError: the kernel cannot be compiled on this machine.
    """
    import torch  # noqa: PLC0415 - `import tilekernels` stays light

    for name, value in (("return_lse", return_lse), ("deterministic", deterministic)):
        if not isinstance(value, bool):
            raise TypeError(f"{name} must be a bool, got {value!r}")
    if not isinstance(policy, str):
        raise TypeError(f"policy must be a string, got {policy!r}")
    if torch.compiler.is_compiling() or (
        torch.is_grad_enabled() and any(getattr(x, "requires_grad", False) for x in (q, k, v))
    ):
        from tilekernels.operators import attention_forward  # noqa: PLC0415 - costs a call 15 us that others need not pay

        if not torch.compiler.is_compiling():  # the operator would wrap what it raises
            problem_of(q, k, v, causal)
        out, lse = attention_forward(q, k, v, causal, softmax_scale, policy, deterministic)
    else:
        out, lse = run_forward(q, k, v, causal, softmax_scale, policy)
    return (out, lse) if return_lse else out


def run_forward(  # noqa: PLR0917 - the operator's own argument list
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, softmax_scale: float | None, policy: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """Output and LSE of `attention`, without gradients. Arguments and errors are `attention`'s."""
    import torch  # noqa: PLC0415

    problem = problem_of(q, k, v, causal)
    scale = scale_of(softmax_scale, problem.head_dim)
    kernel = forward_kernel(problem, policy, q.device)
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    lse = torch.empty((problem.batch, problem.heads, problem.seqlen_q), dtype=torch.float32, device=q.device)
    if problem.seqlen_k == 0:
        out.zero_()
        lse.fill_(-math.inf)
    elif problem.tokens:
        arguments = (ready(q), ready(k), ready(v), out, lse, scale)
        with on_device(q.device):
            kernel.launch(*arguments)
    return out, lse


def problem_of(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> AttentionProblem:
    """Return what is asked for. Raises TypeError and ValueError as `attention`."""
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        check_tensor(name, tensor)
    if not isinstance(causal, bool):
        raise TypeError(f"causal must be a bool, got {causal!r}")
    check_beside(q, k=k, v=v)
    batch, seqlen_q, heads, head_dim = q.shape
    if k.shape[0] != batch or k.shape[3] != head_dim:
        raise ValueError(f"k must have shape ({batch}, seqlen_k, kv_heads, {head_dim}) to go with q, got {shape_of(k)}")
    if v.shape != k.shape:
        raise ValueError(f"v must have k's shape {shape_of(k)}, got {shape_of(v)}")
    seqlen_k, kv_heads = k.shape[1], k.shape[2]
    if heads == 0 or kv_heads == 0 or heads % kv_heads:
        raise ValueError(
            f"k must have a number of heads that divides q's {heads} (grouped-query attention), got {shape_of(k)}"
        )
    check_dtype(q)
    return _known_problem(batch, heads, kv_heads, seqlen_q, seqlen_k, head_dim, dtype_of(q), causal)


_known_problem = functools.lru_cache(maxsize=4096)(AttentionProblem)
