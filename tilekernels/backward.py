"""Backward attention kernels in memory: one handle for each specification and tile, whatever the lengths, heads and batch."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilekernels.backward_policy import FUSED, ROW_PADDING, choose_backward_tile
from tilekernels.handle import Kernel, chip_at, resolve, shared
from tilekernels.problem import AttentionProblem

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class BackwardSpec:
    """What is compiled into the kernels of a backward pass; batch, heads and lengths are not: they are arguments."""

    head_dim: int
    dtype: str
    causal: bool


class BackwardKernel(Kernel):
    """The three kernels of a backward pass for one chip (`kernels.attention_backward`)."""

    module = "tilekernels.kernels.attention_backward"
    steps = ("attention_backward_rows", "attention_backward_keys", "attention_backward_queries")

    def launch(  # noqa: PLR0917 - the kernels' own argument list, on the path that is timed
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        out: torch.Tensor,
        grad: torch.Tensor,
        lse: torch.Tensor,
        stats: torch.Tensor,
        dq: torch.Tensor,
        dk: torch.Tensor,
        dv: torch.Tensor,
        softmax_scale: float,
        grad_lse: torch.Tensor | None = None,
    ) -> None:
        """Enqueue the kernels on the current stream of the current device. Allocates nothing, waits for nothing.

        Shapes are the caller's to get right. At least one query, key and batch entry.

        Args:
            q: (batch, seqlen_q, heads, head_dim); contiguous and aligned to 16 bytes, like all of them.
            k: (batch, seqlen_k, kv_heads, head_dim); kv_heads divides heads.
            v: as k.
            out: as q; what the forward kernel wrote.
            grad: as q; the gradient of `out`.
            lse: (batch, heads, seqlen_q), float32; what the forward kernel wrote.
            stats: (batch, 2, heads, padded_rows(seqlen_q)), float32; written, for the kernels after the first.
            dq: as q; written.
            dk: as k; written.
            dv: as k; written.
            softmax_scale: of the forward pass.
            grad_lse: as lse; the gradient of `lse`, None for 0.

        Raises:
            CompilationError: at the first launch, when a kernel does not compile.
        """
        rows, keys, queries = self._compiled or self.compile()
        rows(out, grad, lse, stats)
        if grad_lse is not None:
            # The LSE's gradient reaches the scores as P * dLSE: as if it had been taken off delta.
            stats[:, 1, :, : lse.shape[2]].sub_(grad_lse)
        keys(q, k, v, grad, stats, dk, dv, softmax_scale)
        queries(q, k, v, grad, stats, dq, softmax_scale)

    def __repr__(self) -> str:
        """Name chip, problem and tile."""
        mask = "causal" if self.spec.causal else "full"
        tile = f"keys={self.tile.keys} queries={self.tile.queries}"
        return f"BackwardKernel({self.chip.arch} {self.spec.dtype} d{self.spec.head_dim} {mask} {tile})"


class FusedBackwardKernel(Kernel):
    """The three kernels of a backward pass that sums dQ by atomics (`kernels.attention_backward_fused`); tile: `Blocks`."""

    module = "tilekernels.kernels.attention_backward_fused"
    steps = ("attention_backward_rows", "attention_backward_fused", "attention_backward_cast")

    def launch(  # noqa: PLR0917 - as `BackwardKernel.launch`
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        out: torch.Tensor,
        grad: torch.Tensor,
        lse: torch.Tensor,
        stats: torch.Tensor,
        sums: torch.Tensor,
        dq: torch.Tensor,
        dk: torch.Tensor,
        dv: torch.Tensor,
        softmax_scale: float,
        grad_lse: torch.Tensor | None = None,
    ) -> None:
        """Enqueue the kernels, as `BackwardKernel.launch`; sums: as q, but float32; written."""
        rows, fused, cast = self._compiled or self.compile()
        rows(out, grad, lse, stats)
        if grad_lse is not None:
            stats[:, 1, :, : lse.shape[2]].sub_(grad_lse)
        sums.zero_()
        fused(q, k, v, grad, stats, sums, dk, dv, softmax_scale)
        cast(sums, dq, softmax_scale)

    def __repr__(self) -> str:
        """Name chip, problem and tile."""
        mask = "causal" if self.spec.causal else "full"
        return f"FusedBackwardKernel({self.chip.arch} {self.spec.dtype} d{self.spec.head_dim} {mask} {self.tile})"


def padded_rows(seqlen_q: int) -> int:
    """Rows of the statistics that a backward pass keeps for a sequence."""
    return -(-seqlen_q // ROW_PADDING) * ROW_PADDING


def backward_kernel(
    problem: AttentionProblem, policy: str = "adaptive", device: torch.device | str | None = None
) -> BackwardKernel:
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
def _find(problem: AttentionProblem, policy: str, device: torch.device | str) -> BackwardKernel:
    chip = chip_at(device)
    spec = BackwardSpec(problem.head_dim, problem.dtype, problem.causal)
    return shared(BackwardKernel, chip, spec, choose_backward_tile(problem, chip, policy))


@functools.lru_cache(maxsize=4096)
def fused_kernel(problem: AttentionProblem, device: torch.device | str) -> FusedBackwardKernel | None:
    """The kernels that sum dQ by atomics for a problem, where the table has them (`backward_policy.FUSED`).

    Args:
        problem: of the forward pass.
        device: what `handle.resolve` gives.
    """
    chip = chip_at(device)
    blocks = FUSED.get((chip.arch, problem.head_dim))
    if blocks is None:
        return None
    return shared(FusedBackwardKernel, chip, BackwardSpec(problem.head_dim, problem.dtype, problem.causal), blocks)
