"""Small problems for every kernel, for `tilegate emulate`: what to run it on, and whether the result is right.

Three functions are the whole interface (docs/protocol.md). The reference and its tolerances are those of every target.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from benchmarks import kernels, reference
from benchmarks.inputs import qkv
from benchmarks.workloads import Workload

Arguments = dict[str, "np.ndarray[Any, Any] | int | float"]

# (batch, heads, kv heads, rows, keys). The first says most in little time: groups, a workgroup with three rows whatever the
# tile, four or more tiles of keys under either mask, so that maxima change and sums are rescaled, and a last tile with three
# keys. Then few keys for many rows, a single row and key, ends of 128-row and 64-key tiles and one past them, more rows than
# keys (under a causal mask rows that see nothing), many more keys than rows, and two batch entries.
_SHAPES = (
    *((1, 2, 1, 131, 195), (1, 2, 1, 129, 67), (1, 7, 1, 1, 1), (1, 7, 1, 63, 65), (1, 2, 2, 65, 65)),
    *((1, 2, 1, 129, 129), (1, 7, 1, 257, 5), (1, 1, 1, 3, 200), (2, 4, 2, 129, 63), (1, 14, 2, 130, 131)),
)


def problems(id: str, arch: str) -> list[str]:
    """Return the names of the problems for one of `kernels.configurations(arch)`; the first is the one to run in a hurry."""
    kernels.specification(id, arch)
    return [_name(*shape) for shape in _SHAPES]


def arguments(id: str, arch: str, problem: str) -> Arguments:
    """Return what the kernel is called with, by parameter name: outputs full of NaN, bfloat16 as its bits in uint16.

    Raises:
        ValueError: there is no such kernel or problem.
    """
    return _arguments(_workload(id, arch, problem))


def arguments_of_one_head(id: str, arch: str, rows: int) -> Arguments:
    """Return the same for one head of as many rows as keys, to see how long it takes.

    Raises:
        ValueError: there is no such kernel.
    """
    head_dim, dtype, causal = kernels.specification(id, arch)
    return _arguments(Workload("head", 1, 1, 1, rows, rows, head_dim, dtype, causal, ("hip",), "smoke", "emulated"))


def _arguments(work: Workload) -> Arguments:
    q, k, v = qkv(work, "cpu")
    out = torch.full_like(q, math.nan)
    lse = torch.full((work.batch, work.heads, work.seqlen_q), math.nan, dtype=torch.float32)
    tensors = {"Q": q, "K": k, "V": v, "O": out, "LSE": lse}
    numbers = {name: getattr(work, name) for name in ("batch", "heads", "kv_heads", "seqlen_q", "seqlen_k")}
    return {**{name: _array(x) for name, x in tensors.items()}, **numbers, "softmax_scale": _scale(work)}


def check(id: str, arch: str, problem: str, arguments: Arguments) -> None:
    """Compare what the kernel left in `arguments` with the reference.

    Raises:
        WrongResult: output or LSE is out of tolerance.
        ValueError: there is no such kernel or problem.
    """
    work = _workload(id, arch, problem)
    out, lse = (_tensor(arguments[name], dtype) for name, dtype in (("O", work.dtype), ("LSE", "float32")))
    reference.check(*qkv(work, "cpu"), out, lse, causal=work.causal, softmax_scale=_scale(work))


def _workload(id: str, arch: str, problem: str) -> Workload:
    head_dim, dtype, causal = kernels.specification(id, arch)
    shape = next((shape for shape in _SHAPES if _name(*shape) == problem), None)
    if shape is None:
        raise ValueError(f"there is no problem {problem!r}; there are {', '.join(map(repr, problems(id, arch)))}")
    return Workload(problem, *shape, head_dim, dtype, causal, ("hip",), "smoke", "emulated")


def _name(batch: int, heads: int, kv_heads: int, rows: int, keys: int) -> str:
    return f"b{batch} h{heads}/{kv_heads} q{rows} k{keys}"


def _scale(work: Workload) -> float:
    return 1 / math.sqrt(work.head_dim)


def _array(x: torch.Tensor) -> np.ndarray[Any, Any]:
    return x.view(torch.uint16).numpy() if x.dtype == torch.bfloat16 else x.numpy()


def _tensor(x: Any, dtype: str) -> torch.Tensor:
    return torch.from_numpy(x).view(getattr(torch, dtype))
