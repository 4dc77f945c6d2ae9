"""Attention over packed sequences of different lengths: kernels in memory, tile choice, the public function."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
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
from tilekernels.handle import Kernel, chip_at, resolve, shared
from tilekernels.policy import choose_tiles
from tilekernels.problem import MAX_BATCH, MAX_SEQLEN, AttentionProblem

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class VarlenSpec:
    """What is compiled into a kernel for packed sequences; their number, heads and lengths are not: they are arguments."""

    head_dim: int
    dtype: str
    causal: bool


@dataclass(frozen=True)
class VarlenProblem:
    """What the host knows of a batch of packed sequences without waiting for the device.

    Attributes:
        sequences: how many; some may be empty.
        heads, kv_heads, head_dim, dtype, causal: as in `AttentionProblem`.
        total_q: rows of all sequences together.
        max_seqlen_q, max_seqlen_k: no sequence has more rows, or keys.
    """

    sequences: int
    heads: int
    kv_heads: int
    total_q: int
    max_seqlen_q: int
    max_seqlen_k: int
    head_dim: int
    dtype: str
    causal: bool

    def equal(self) -> AttentionProblem:
        """As many rows in sequences of the greatest length, by which a tile is chosen. Checks the fields."""
        batch = min(self.sequences, max(1, round(self.total_q / max(1, self.max_seqlen_q))))
        lengths = (self.max_seqlen_q, self.max_seqlen_k)
        return AttentionProblem(batch, self.heads, self.kv_heads, *lengths, self.head_dim, self.dtype, self.causal)


class VarlenKernel(Kernel):
    """One kernel for packed sequences: it reads heads, kv heads and all lengths from the tensors of each launch."""

    module = "tilekernels.kernels.attention_varlen"
    steps = ("attention_varlen",)

    def launch(  # noqa: PLR0917 - the kernel's own argument list, on the path that is timed
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        cu_seqlens_q: torch.Tensor,
        cu_seqlens_k: torch.Tensor,
        out: torch.Tensor,
        lse: torch.Tensor,
        max_seqlen_q: int,
        softmax_scale: float,
    ) -> None:
        """Enqueue one launch on the current stream of the current device. Allocates nothing, waits for nothing.

        Args:
            q: (total_q, heads, head_dim); contiguous and aligned to 16 bytes, like all of them.
            k: (total_k, kv_heads, head_dim); at least one key.
            v: as k.
            cu_seqlens_q: (sequences + 1,), int32, at least one sequence.
            cu_seqlens_k: as cu_seqlens_q.
            out: as q; written.
            lse: (heads, total_q), float32; written.
            max_seqlen_q: at least 1; rows of a sequence beyond it are not computed.
            softmax_scale: > 0; multiplies Q K^T.

        Raises:
            CompilationError: at the first launch, when the kernel does not compile.
        """
        launch = (self._compiled or self.compile())[0]
        launch(q, k, v, cu_seqlens_q, cu_seqlens_k, out, lse, max_seqlen_q, softmax_scale)


def varlen_kernel(
    problem: VarlenProblem, policy: str = "adaptive", device: torch.device | str | None = None
) -> VarlenKernel:
    """The kernel that `policy` gives a problem; the same object for every problem that the same kernel serves.

    Args:
        problem: what the host knows of the sequences.
        policy: "adaptive" or "fixed".
        device: as for `handle.resolve`.

    Raises:
        TypeError, ValueError: as `policy.choose_tiles` and `chips.chip_of`.
    """
    return _find(problem, policy, resolve(device))


@functools.lru_cache(maxsize=4096)  # choosing a tile takes longer than everything else before a launch
def _find(problem: VarlenProblem, policy: str, device: torch.device | str) -> VarlenKernel:
    chip = chip_at(device)
    spec = VarlenSpec(problem.head_dim, problem.dtype, problem.causal)
    return shared(VarlenKernel, chip, spec, choose_tiles(problem.equal(), chip, policy))


def attention_varlen(  # noqa: PLR0917 - flash-attn's argument list
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    *,
    causal: bool = False,
    softmax_scale: float | None = None,
    return_lse: bool = False,
    policy: str = "adaptive",
    deterministic: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Attention within each of several packed sequences: flash-attn's `flash_attn_varlen_func`. Differentiable.

    Sequence s has the rows cu_seqlens_q[s] to cu_seqlens_q[s + 1] - 1 of q and the keys cu_seqlens_k[s] to
    cu_seqlens_k[s + 1] - 1 of k and v; either may be none. Heads, mask and rows that see nothing are as in `attention`, the
    causal mask aligned to the bottom right of each sequence.

    Nothing here waits for the device: it can be captured in a graph, and torch.compile traces it. So on a GPU the values of
    cu_seqlens are not looked at: they must begin with 0, not fall, and end within q and k. Rows that belong to no sequence,
    and those of a sequence beyond max_seqlen_q, are undefined in the result, and so are their gradients; the same holds for
    keys and max_seqlen_k. A NaN or infinity in v can reach rows that do not see its key, also those of the sequence before,
    and one in q or in the output's gradient the gradients of the sequence before: all must be finite up to their end.

    Gradients of the output and of the LSE reach q, k and v, in their dtypes; sums are float32. There are no second derivatives.

    Args:
        q: (total_q, heads, head_dim). float16 or bfloat16 on a GPU, float16 or float32 on the CPU.
        k: (total_k, kv_heads, head_dim), kv_heads dividing heads; dtype and device of q.
        v: shape, dtype and device of k.
        cu_seqlens_q: (sequences + 1,), int32, on q's device.
        cu_seqlens_k: as cu_seqlens_q.
        max_seqlen_q: the length of the longest sequence of q, or more.
        max_seqlen_k: the same of k; helps to choose the tile, and bounds the gradients.
        causal, softmax_scale, return_lse, policy: as in `attention`.
        deterministic: as in flash-attn; gradients have the same bits every time with and without it.

    Returns:
        The output, of q's shape and dtype, contiguous; with `return_lse` also the natural logarithm of each row's softmax
        denominator, (heads, total_q), float32.

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
    given = (q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, causal)
    if torch.compiler.is_compiling() or (
        torch.is_grad_enabled() and any(getattr(x, "requires_grad", False) for x in (q, k, v))
    ):
        from tilekernels.operators_varlen import attention_varlen as operator  # noqa: PLC0415 - see `attention`

        if not torch.compiler.is_compiling():  # the operator would wrap what it raises
            problem_of(*given)
        out, lse = operator(*given, softmax_scale, policy)
    else:
        out, lse = run_varlen(*given, softmax_scale, policy)
    return (out, lse) if return_lse else out


def run_varlen(  # noqa: PLR0917 - the operator's own argument list
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
    """Output and LSE of `attention_varlen`. Arguments and errors are its own."""
    import torch  # noqa: PLC0415

    problem = problem_of(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, causal)
    scale = scale_of(softmax_scale, problem.head_dim)
    kernel = varlen_kernel(problem, policy, q.device)
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    lse = torch.empty((problem.heads, problem.total_q), dtype=torch.float32, device=q.device)
    if k.shape[0] == 0 or problem.max_seqlen_k == 0:
        out.zero_()
        lse.fill_(-math.inf)
    elif problem.total_q and problem.sequences and problem.max_seqlen_q:
        tensors = (ready(q), ready(k), ready(v), ready(cu_seqlens_q), ready(cu_seqlens_k), out, lse)
        with on_device(q.device):
            kernel.launch(*tensors, problem.max_seqlen_q, scale)
    return out, lse


def problem_of(  # noqa: PLR0917 - the function's own arguments
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    causal: bool,
) -> VarlenProblem:
    """Return what is asked for. Raises TypeError and ValueError as `attention_varlen`."""
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        check_tensor(name, tensor, ("total", "heads", "head_dim"))
    check_beside(q, k=k, v=v)
    total_q, heads, head_dim = q.shape
    if k.shape[2] != head_dim or v.shape != k.shape:
        raise ValueError(
            f"k and v must have one shape (total_k, kv_heads, {head_dim}) to go with q, got {shape_of(k)} and {shape_of(v)}"
        )
    if heads == 0 or k.shape[1] == 0 or heads % k.shape[1]:
        raise ValueError(
            f"k must have a number of heads that divides q's {heads} (grouped-query attention), got {shape_of(k)}"
        )
    check_dtype(q)
    _check_bounds(q, cu_seqlens_q, cu_seqlens_k)
    for name, value in (("max_seqlen_q", max_seqlen_q), ("max_seqlen_k", max_seqlen_k)):
        if not isinstance(value, int) or isinstance(value, bool):
            raise TypeError(f"{name} must be an int, got {value!r}; a tensor's .item() waits for the device")
        if not 0 <= value <= MAX_SEQLEN:
            raise ValueError(f"{name} must be between 0 and {MAX_SEQLEN}, got {value}")
    if not isinstance(causal, bool):
        raise TypeError(f"causal must be a bool, got {causal!r}")
    if q.device.type == "cpu":  # where looking costs nothing, and a wrong bound ends the process
        _check_lengths("q", cu_seqlens_q, total_q, max_seqlen_q)
        _check_lengths("k", cu_seqlens_k, k.shape[0], max_seqlen_k)
    sequences = cu_seqlens_q.shape[0] - 1
    return VarlenProblem(
        sequences, heads, k.shape[1], total_q, max_seqlen_q, max_seqlen_k, head_dim, dtype_of(q), causal
    )


def _check_bounds(q: torch.Tensor, cu_seqlens_q: torch.Tensor, cu_seqlens_k: torch.Tensor) -> None:
    for name, bounds in (("cu_seqlens_q", cu_seqlens_q), ("cu_seqlens_k", cu_seqlens_k)):
        check_tensor(name, bounds, ("sequences + 1",))
        if dtype_of(bounds) != "int32":
            raise TypeError(f"{name} has dtype {dtype_of(bounds)}, expected int32; call .int()")
        if bounds.device != q.device:
            raise ValueError(f"{name} is on {bounds.device}, expected q's device {q.device}")
        if bounds.shape != cu_seqlens_q.shape or not 1 <= bounds.shape[0] <= MAX_BATCH + 1:
            raise ValueError(
                f"{name} must have shape (sequences + 1,), for q and k the same and at most {MAX_BATCH} sequences, "
                f"got {shape_of(cu_seqlens_q)} and {shape_of(cu_seqlens_k)}"
            )


def _check_lengths(which: str, bounds: torch.Tensor, rows: int, most: int) -> None:
    lengths = bounds.diff()
    if bounds[0] != 0 or bounds[-1] > rows or (lengths < 0).any():
        raise ValueError(f"cu_seqlens_{which} must rise from 0 to at most {rows}, got {bounds.tolist()}")
    if (lengths > most).any():
        raise ValueError(f"max_seqlen_{which} is {most}, and the longest sequence has {int(lengths.max())}")
