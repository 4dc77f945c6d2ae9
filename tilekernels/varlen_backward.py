"""The backward pass over packed sequences: kernels in memory, tile choice."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from tilekernels.backward_policy import ROW_PADDING, choose_backward_tile
from tilekernels.handle import Kernel, chip_at, resolve, shared
from tilekernels.varlen import VarlenProblem, VarlenSpec

if TYPE_CHECKING:
    import torch


class VarlenBackwardKernel(Kernel):
    """The three kernels of a backward pass over packed sequences (`kernels.attention_varlen_backward`)."""

    module = "tilekernels.kernels.attention_varlen_backward"
    steps = ("varlen_backward_rows", "varlen_backward_keys", "varlen_backward_queries")

    def launch(  # noqa: PLR0917 - the kernels' own argument list, on the path that is timed
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        out: torch.Tensor,
        grad: torch.Tensor,
        lse: torch.Tensor,
        cu_seqlens_q: torch.Tensor,
        cu_seqlens_k: torch.Tensor,
        stats: torch.Tensor,
        dq: torch.Tensor,
        dk: torch.Tensor,
        dv: torch.Tensor,
        max_seqlen_q: int,
        max_seqlen_k: int,
        softmax_scale: float,
        grad_lse: torch.Tensor | None = None,
    ) -> None:
        """Enqueue the kernels on the current stream of the current device. Waits for nothing.

        Args:
            q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, softmax_scale: as for `VarlenKernel.launch`.
            out, lse: what it wrote.
            grad: as q; the gradient of `out`.
            stats: (2, heads, padded_total(total_q, sequences)), float32; written, for the kernels after the first.
            dq: as q; written, like dk and dv but for what belongs to no sequence.
            dk: as k.
            dv: as k.
            max_seqlen_k: at least 1; keys of a sequence beyond it get no gradient.
            grad_lse: as lse; the gradient of `lse`, None for 0.

        Raises:
            CompilationError: at the first launch, when a kernel does not compile.
        """
        rows, keys, queries = self._compiled or self.compile()
        rows(out, grad, lse, cu_seqlens_q, stats, max_seqlen_q)
        if grad_lse is not None:
            # The LSE's gradient reaches the scores as P * dLSE: as if it had been taken off delta.
            stats[1].index_add_(1, _places(cu_seqlens_q, q.shape[0], stats.shape[2]), grad_lse, alpha=-1)
        given = (q, k, v, grad, cu_seqlens_q, cu_seqlens_k, stats)
        keys(*given, dk, dv, max_seqlen_k, softmax_scale)
        queries(*given, dq, max_seqlen_q, softmax_scale)


def padded_total(total_q: int, sequences: int) -> int:
    """Rows of the statistics that a backward pass keeps for packed sequences."""
    return (total_q // ROW_PADDING + sequences) * ROW_PADDING


def _places(bounds: torch.Tensor, total: int, padded: int) -> torch.Tensor:
    """Where the statistics of each row are; of a row that belongs to no sequence, somewhere that weighs nothing."""
    import torch  # noqa: PLC0415

    rows = torch.arange(total, dtype=torch.int32, device=bounds.device)
    entry = torch.searchsorted(bounds[1:], rows, right=True)
    start = (bounds[:-1] + ROW_PADDING * torch.arange(len(bounds) - 1, device=bounds.device)) // ROW_PADDING
    inside = entry < len(bounds) - 1
    entry = entry.clamp(max=len(bounds) - 2)
    # The last place of all is padding: every sequence has room for one row more than it has.
    return torch.where(inside, start[entry] * ROW_PADDING + rows - bounds[entry], padded - 1)


def varlen_backward_kernel(
    problem: VarlenProblem, policy: str = "adaptive", device: torch.device | str | None = None
) -> VarlenBackwardKernel:
    """The kernels that `policy` gives the backward pass of a problem; the same object wherever they are the same.

    Args:
        problem: of the forward pass.
        policy: "adaptive" or "fixed".
        device: as for `handle.resolve`.

    Raises:
        TypeError, ValueError: as `backward_policy.choose_backward_tile` and `chips.chip_of`.
    """
    return _find(problem, policy, resolve(device))


@functools.lru_cache(maxsize=4096)  # as for forward kernels: choosing takes longer than the rest of a call
def _find(problem: VarlenProblem, policy: str, device: torch.device | str) -> VarlenBackwardKernel:
    chip = chip_at(device)
    spec = VarlenSpec(problem.head_dim, problem.dtype, problem.causal)
    return shared(VarlenBackwardKernel, chip, spec, choose_backward_tile(problem.equal(), chip, policy))
