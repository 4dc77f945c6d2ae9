"""The public function: exact attention on tensors as flash-attn lays them out."""

from __future__ import annotations

import contextlib
import functools
import math
from numbers import Real
from typing import TYPE_CHECKING, Any

from tilekernels.forward import forward_kernel
from tilekernels.policy import DTYPES_OF
from tilekernels.problem import AttentionProblem

if TYPE_CHECKING:
    import torch

ALIGNMENT = 16
"""Bytes: the widest load a kernel makes, and what a TMA descriptor asks of an address."""

LEAST_SCALE = 2.0**-126
"""float32's least normal number: less than that becomes 0 on its way into a kernel, and 0 times -inf is NaN."""


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
            _problem(q, k, v, causal)
        out, lse = attention_forward(q, k, v, causal, softmax_scale, policy, deterministic)
    else:
        out, lse = run_forward(q, k, v, causal, softmax_scale, policy)
    return (out, lse) if return_lse else out


def run_forward(  # noqa: PLR0917 - the operator's own argument list
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, softmax_scale: float | None, policy: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """Output and LSE of `attention`, without gradients. Arguments and errors are `attention`'s."""
    import torch  # noqa: PLC0415

    problem = _problem(q, k, v, causal)
    scale = _scale(softmax_scale, problem.head_dim)
    kernel = forward_kernel(problem, policy, q.device)
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    lse = torch.empty((problem.batch, problem.heads, problem.seqlen_q), dtype=torch.float32, device=q.device)
    if problem.seqlen_k == 0:
        out.zero_()
        lse.fill_(-math.inf)
    elif problem.tokens:
        arguments = (_ready(q), _ready(k), _ready(v), out, lse, scale)
        with on_device(q.device):
            kernel.launch(*arguments)
    return out, lse


def on_device(device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """Make a GPU the current device, if it is not that already: kernels are launched on the current one."""
    import torch  # noqa: PLC0415

    if device.type == "cuda" and device.index != torch.cuda.current_device():
        return torch.cuda.device(device)
    return _NOTHING_TO_DO


_NOTHING_TO_DO = contextlib.nullcontext()


def _problem(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> AttentionProblem:

    for name, tensor in (("q", q), ("k", k), ("v", v)):
        _check_tensor(name, tensor)
    if q.device.type not in ("cpu", "cuda"):
        raise ValueError(f"q is on {q.device}, expected a CUDA, ROCm or CPU device")
    if not isinstance(causal, bool):
        raise TypeError(f"causal must be a bool, got {causal!r}")
    for name, tensor in (("k", k), ("v", v)):
        if tensor.device != q.device:
            raise ValueError(f"{name} is on {tensor.device}, expected q's device {q.device}")
        if tensor.dtype != q.dtype:
            raise TypeError(f"{name} has dtype {_dtype(tensor)}, expected q's dtype {_dtype(q)}")
    batch, seqlen_q, heads, head_dim = q.shape
    if k.shape[0] != batch or k.shape[3] != head_dim:
        raise ValueError(f"k must have shape ({batch}, seqlen_k, kv_heads, {head_dim}) to go with q, got {_shape(k)}")
    if v.shape != k.shape:
        raise ValueError(f"v must have k's shape {_shape(k)}, got {_shape(v)}")
    seqlen_k, kv_heads = k.shape[1], k.shape[2]
    if heads == 0 or kv_heads == 0 or heads % kv_heads:
        raise ValueError(
            f"k must have a number of heads that divides q's {heads} (grouped-query attention), got {_shape(k)}"
        )
    check_dtype(q)
    return _known_problem(batch, heads, kv_heads, seqlen_q, seqlen_k, head_dim, _dtype(q), causal)


def check_dtype(q: torch.Tensor) -> None:
    """Raise TypeError if the kernels of q's device do not take its dtype, ValueError if there are none for the device."""
    import torch  # noqa: PLC0415

    if q.device.type not in ("cpu", "cuda"):
        raise ValueError(f"q is on {q.device}, expected a CUDA, ROCm or CPU device")
    kind = "cpu" if q.device.type == "cpu" else "hip" if torch.version.hip else "cuda"
    if _dtype(q) not in DTYPES_OF[kind]:
        raise TypeError(
            f"q has dtype {_dtype(q)}, which is not supported on {q.device}; use {_choices(DTYPES_OF[kind])}"
        )


_known_problem = functools.lru_cache(maxsize=4096)(AttentionProblem)


def _check_tensor(
    name: str, tensor: torch.Tensor, axes: tuple[str, ...] = ("batch", "seqlen", "heads", "head_dim")
) -> None:
    import torch  # noqa: PLC0415

    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(tensor).__name__}")
    if type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        # A fake tensor has a device but no memory, and a kernel would follow its null pointer.
        raise TypeError(f"{name} must be a tensor with memory of its own, got {type(tensor).__name__}")
    if tensor.is_nested:
        raise TypeError(f"{name} must be a dense tensor, got a nested one; pad it, or call attention on its parts")
    if tensor.layout != torch.strided:
        raise TypeError(f"{name} must be a dense tensor, got layout {tensor.layout}; call .to_dense()")
    if tensor.ndim != len(axes):
        raise ValueError(f"{name} must have {len(axes)} dimensions ({', '.join(axes)}), got {_shape(tensor)}")


def _scale(softmax_scale: float | None, head_dim: int) -> float:
    if softmax_scale is None:
        return 1.0 / math.sqrt(head_dim)
    if not isinstance(softmax_scale, Real) or isinstance(softmax_scale, bool):
        raise TypeError(f"softmax_scale must be a number, got {softmax_scale!r}")
    try:
        scale = float(softmax_scale)
    except OverflowError:
        scale = math.inf
    # The kernel scales its start value of the running maximum, -1e30, in float32.
    if not LEAST_SCALE <= scale <= 1e6:
        raise ValueError(f"softmax_scale must be above 0 (2**-126 at least) and at most 1e6, got {scale}")
    return scale


def _ready(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy that is contiguous and aligned: what kernels read."""
    # A negated view, such as the imaginary part of a conjugate, holds its numbers with the wrong sign.
    if tensor.is_contiguous() and tensor.data_ptr() % ALIGNMENT == 0 and not tensor.is_neg():
        return tensor
    import torch  # noqa: PLC0415

    return tensor.clone(memory_format=torch.contiguous_format)


def _shape(tensor: torch.Tensor) -> tuple[int, ...]:
    return tuple(tensor.shape)


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _choices(names: tuple[str, ...]) -> str:
    return " or ".join(names)
