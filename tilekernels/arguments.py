"""What the public functions share about their arguments: checks that name the argument, and tensors as kernels read them."""

from __future__ import annotations

import contextlib
import math
from numbers import Real
from typing import TYPE_CHECKING, Any

from tilekernels.policy import DTYPES_OF

if TYPE_CHECKING:
    import torch

ALIGNMENT = 16
"""Bytes: the widest load a kernel makes, and what a TMA descriptor asks of an address."""

LEAST_SCALE = 2.0**-126
"""float32's least normal number: less than that becomes 0 on its way into a kernel, and 0 times -inf is NaN."""


def on_device(device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """Make a GPU the current device, if it is not that already: kernels are launched on the current one."""
    import torch  # noqa: PLC0415

    if device.type == "cuda" and device.index != torch.cuda.current_device():
        return torch.cuda.device(device)
    return _NOTHING_TO_DO


_NOTHING_TO_DO = contextlib.nullcontext()


def check_beside(q: torch.Tensor, **others: torch.Tensor) -> None:
    """Raise ValueError if one of `others` is on another device than q, TypeError if it has another dtype."""
    for name, tensor in others.items():
        if tensor.device != q.device:
            raise ValueError(f"{name} is on {tensor.device}, expected q's device {q.device}")
        if tensor.dtype != q.dtype:
            raise TypeError(f"{name} has dtype {dtype_of(tensor)}, expected q's dtype {dtype_of(q)}")


def check_dtype(q: torch.Tensor) -> None:
    """Raise TypeError if the kernels of q's device do not take its dtype, ValueError if there are none for the device."""
    import torch  # noqa: PLC0415

    if q.device.type not in ("cpu", "cuda"):
        raise ValueError(f"q is on {q.device}, expected a CUDA, ROCm or CPU device")
    kind = "cpu" if q.device.type == "cpu" else "hip" if torch.version.hip else "cuda"
    if dtype_of(q) not in DTYPES_OF[kind]:
        raise TypeError(
            f"q has dtype {dtype_of(q)}, which is not supported on {q.device}; use {' or '.join(DTYPES_OF[kind])}"
        )


def check_tensor(
    name: str, tensor: torch.Tensor, axes: tuple[str, ...] = ("batch", "seqlen", "heads", "head_dim")
) -> None:
    """Raise TypeError if it is no dense tensor with memory of its own, ValueError if it has not `axes`."""
    import torch  # noqa: PLC0415

    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(tensor).__name__}")
    check_memory(**{name: tensor})
    if tensor.is_nested:
        raise TypeError(f"{name} must be a dense tensor, got a nested one; pad it, or call attention on its parts")
    if tensor.layout != torch.strided:
        raise TypeError(f"{name} must be a dense tensor, got layout {tensor.layout}; call .to_dense()")
    if tensor.ndim != len(axes):
        raise ValueError(f"{name} must have {len(axes)} dimensions ({', '.join(axes)}), got {shape_of(tensor)}")


def check_memory(**tensors: torch.Tensor) -> None:
    """Raise TypeError for a fake tensor: it has a device but no memory, and a kernel would follow its null pointer."""
    import torch  # noqa: PLC0415

    for name, tensor in tensors.items():
        if type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
            raise TypeError(f"{name} must be a tensor with memory of its own, got {type(tensor).__name__}")


def scale_of(softmax_scale: float | None, head_dim: int) -> float:
    """Return the scale that is meant: 1 / sqrt(head_dim) by default. Raises TypeError, and ValueError outside 2**-126 to 1e6."""
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


def ready(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor, or a copy that is contiguous and aligned: what kernels read."""
    # A negated view, such as the imaginary part of a conjugate, holds its numbers with the wrong sign.
    if tensor.is_contiguous() and tensor.data_ptr() % ALIGNMENT == 0 and not tensor.is_neg():
        return tensor
    import torch  # noqa: PLC0415

    return tensor.clone(memory_format=torch.contiguous_format)


def shape_of(tensor: torch.Tensor) -> tuple[int, ...]:
    """Return its shape, as messages show it."""
    return tuple(tensor.shape)


def dtype_of(tensor: torch.Tensor) -> str:
    """Return its dtype's name: "bfloat16"."""
    return str(tensor.dtype).removeprefix("torch.")
