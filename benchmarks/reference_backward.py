"""Gradients of attention in double precision, and how far from them a kernel may be.

The rule is that of `reference`: twice the largest error of plain PyTorch in the kernel's own dtype, plus twice the rounding
of the result; the root mean square obeys it, too. FlashAttention-3's tests use the same factor for gradients.

In float32 a kernel needs room for roundings that plain PyTorch does not make: it takes the probabilities from a stored
log-sum-exp, and a row's delta from its stored output. With u = 2**-24, D the head dimension and |.| a row's Euclidean norm,
to first order:

    P                      a relative error e = (2 + sqrt(D)) * u * scale * |q| * max|k|: one more rounding of the score, and
                           the error of the LSE (`reference` derives both)
    dS = P * (dP - delta)  e * |dS|, and sqrt(D) * u * |dO| * |v| * P for the dot product dP and the same with max|v| for
                           delta (probabilistic bound of Higham and Mary 2019, doi 10.1137/18M1226312)

Such errors are independent of each other but for the LSE's, which a row's probabilities share: in dV = P^T dO,
dQ = scale * dS K and dK = scale * dS^T Q their squares add up, and dQ has e * |dQ| besides. All of that vanishes beside a
half-precision tolerance.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from benchmarks.reference import CHECKED_SCORES, Agreement, _Comparison, _rounding, _Wrong
from tilegate.protocol import WrongResult, whereabouts

_CHUNK_ELEMENTS = 1 << 24  # scores held at a time: 128 MiB in double precision, and several such tensors
_NAMES = ("dq", "dk", "dv")
_AXES = ("batch entries", "rows", "heads", "columns")
Tensors = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Problem:
    """What a backward pass is given.

    Attributes:
        q, grad: (batch, seqlen_q, heads, head_dim); grad is the gradient of the output.
        k, v: (batch, seqlen_k, kv_heads, head_dim).
        causal: mask aligned bottom right.
        softmax_scale: factor of the scores.
        grad_lse: gradient of the natural-log LSE, (batch, heads, seqlen_q); None for 0.
    """

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    grad: torch.Tensor
    causal: bool
    softmax_scale: float
    grad_lse: torch.Tensor | None = None


def gradients(problem: Problem) -> Tensors:
    """Compute dq, dk and dv in float64, of the shapes of q, k and v. A row that sees nothing has gradient 0."""
    dq, dk, dv = (torch.zeros_like(x, dtype=torch.float64) for x in (problem.q, problem.k, problem.v))
    for share in _shares(problem):
        share.of_rows(dq)[...], share.of_keys(dk)[...], share.of_keys(dv)[...] = share.gradients(problem, torch.float64)
    return dq, dk, dv


def check(
    problem: Problem, dq: torch.Tensor, dk: torch.Tensor, dv: torch.Tensor, *, limit: int = CHECKED_SCORES
) -> tuple[Agreement, ...]:
    """Compare a kernel's gradients with the reference.

    Where there are more than `limit` scores, whole key heads of batch entries, that nobody can know before are compared;
    `Agreement.checked` says how much that was.

    Args:
        problem: the problem.
        dq, dk, dv: what the kernels made of it, of the shapes of q, k and v.
        limit: see above.

    Returns:
        The agreement of each gradient.

    Raises:
        WrongResult: one is out of tolerance, is NaN, or is not exactly 0 in a row that sees no key; says where.
    """
    shares = list(_shares(problem))
    most = max(1, limit // max(1, problem.q.shape[1] * problem.k.shape[1] * shares[0].group)) if shares else 0
    chosen = random.SystemRandom().sample(shares, min(most, len(shares)))
    checked = len(chosen) / len(shares) if shares else 1.0
    comparisons = {name: _Comparison(name, problem.q.device) for name in _NAMES}
    for share in chosen:
        exact, plain = share.gradients(problem, torch.float64), share.gradients(problem, problem.q.dtype)
        own = (share.of_rows(dq), share.of_keys(dk), share.of_keys(dv))
        for name, x, right, usual, allowed in zip(_NAMES, own, exact, plain, share.allowances(problem), strict=True):
            allowance = _rounding(right.to(x.dtype)) + allowed
            comparisons[name].add(x, right, usual, allowance, share.sees_nothing(problem, name))
    for name, x in zip(_NAMES, (dq, dk, dv), strict=True):
        wrong = comparisons[name].wrong()
        if wrong is not None:
            what = "a row that sees no key must have gradient 0" if wrong.in_empty_rows else wrong.what
            raise WrongResult(f"{name}: {what}; {_shape(problem)}\n{_where(name, x, problem, chosen, wrong)}")
    return tuple(comparison.agreement(checked) for comparison in comparisons.values())


def _where(name: str, actual: torch.Tensor, problem: Problem, shares: Sequence[_Share], wrong: _Wrong) -> str:
    """Compare once more, and say which values are wrong, the first of them with what it should be."""
    expected = torch.zeros(actual.shape, dtype=torch.float64)
    mask = torch.zeros(actual.shape, dtype=torch.bool)
    compared = 0
    for share in shares:
        right = share.gradients(problem, torch.float64)[_NAMES.index(name)]
        view = share.of_rows if name == "dq" else share.of_keys
        own = view(actual).double()
        off = (own != right) & ~((own - right).abs() <= wrong.least)  # a NaN is off
        if wrong.in_empty_rows:
            off &= share.sees_nothing(problem, name)
        view(mask)[...], view(expected)[...] = off.cpu(), right.cpu()
        compared += off.numel()
    if not mask.any():
        return "compared again, every value is right: the device does not compute the same twice"
    index = tuple(mask.nonzero()[0].tolist())
    return (
        f"{int(mask.sum()):,} of {compared:,} values are wrong: {whereabouts(mask.numpy(), _AXES)}; the first, "
        f"{name}{list(index)}, is {actual[index].item():.5g} instead of {expected[index].item():.5g}"
    )


def _shape(problem: Problem) -> str:
    dtype = str(problem.q.dtype).removeprefix("torch.")
    return f"q {tuple(problem.q.shape)}, k {tuple(problem.k.shape)}, {dtype}, causal={problem.causal}"


@dataclass(frozen=True)
class _Share:
    """All rows and keys of one key head of one batch entry: its gradients depend on nothing else."""

    entry: int
    kv_head: int
    group: int

    @property
    def heads(self) -> slice:
        return slice(self.kv_head * self.group, (self.kv_head + 1) * self.group)

    def of_rows(self, x: torch.Tensor) -> torch.Tensor:
        """View (group, rows, head_dim) of (batch, seqlen_q, heads, head_dim)."""
        return x[self.entry, :, self.heads].transpose(0, 1)

    def of_keys(self, x: torch.Tensor) -> torch.Tensor:
        """View (keys, head_dim) of (batch, seqlen_k, kv_heads, head_dim)."""
        return x[self.entry, :, self.kv_head]

    def sees_nothing(self, problem: Problem, name: str) -> torch.Tensor:
        """Mark the rows of a gradient that must be 0: (rows, 1) of dq, none of the others."""
        q, k = problem.q, problem.k
        if name != "dq" or not problem.causal:
            return torch.zeros(1, dtype=torch.bool, device=q.device)
        return (torch.arange(q.shape[1], device=q.device) + k.shape[1] - q.shape[1] < 0)[:, None]

    def gradients(self, problem: Problem, dtype: torch.dtype) -> Tensors:
        """Plain gradients with every intermediate in `dtype`, keys' sums over blocks of rows in float32 at least."""
        total = torch.promote_types(dtype, torch.float32)
        keys, values = self.of_keys(problem.k).to(dtype), self.of_keys(problem.v).to(dtype)
        dk, dv = torch.zeros_like(keys, dtype=total), torch.zeros_like(values, dtype=total)
        dq = []
        for rows, grad, hidden, grad_lse in self._blocks(problem, dtype):
            weights, score_grads = self._score_gradients(
                rows, keys, values, grad, hidden, grad_lse, problem.softmax_scale
            )
            dq.append(score_grads @ keys * problem.softmax_scale)
            dk += (score_grads.transpose(1, 2) @ (rows * problem.softmax_scale)).sum(0).to(total)
            dv += (weights.transpose(1, 2) @ grad).sum(0).to(total)
        return torch.cat(dq, dim=1) if dq else self.of_rows(problem.q).to(dtype), dk.to(dtype), dv.to(dtype)

    def allowances(self, problem: Problem) -> Tensors:
        """What first-order rounding may come to (see the module), in float64, of the shapes of the gradients."""
        keys, values = self.of_keys(problem.k).double(), self.of_keys(problem.v).double()
        scale, dimensions, unit = problem.softmax_scale, keys.shape[-1], 2.0**-24
        squared = values.square().sum(-1)
        dk, dv, dq = torch.zeros_like(keys), torch.zeros_like(values), []
        for rows, grad, hidden, grad_lse in self._blocks(problem, torch.float64):
            weights, score_grads = self._score_gradients(rows, keys, values, grad, hidden, grad_lse, scale)
            relative = (2 + math.sqrt(dimensions)) * unit * scale * rows.norm(dim=-1, keepdim=True) * _longest(keys)
            dots = dimensions * unit**2 * grad.square().sum(-1, keepdim=True) * (squared + _longest(values).square())
            errors = (relative * score_grads).square() + dots * weights.square()
            common = relative * (score_grads @ keys).abs()
            dq.append(scale * ((errors @ keys.square()).sqrt() + common))
            dk += scale**2 * (errors.transpose(1, 2) @ rows.square()).sum(0)
            dv += ((relative * weights).square().transpose(1, 2) @ grad.square()).sum(0)
        return torch.cat(dq, dim=1) if dq else self.of_rows(problem.q).double(), dk.sqrt(), dv.sqrt()

    @staticmethod
    def _score_gradients(  # noqa: PLR0917 - the operands of one formula
        rows: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        grad: torch.Tensor,
        hidden: torch.Tensor | None,
        grad_lse: torch.Tensor | None,
        scale: float,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """P and dS = P * (dP - rowsum(P * dP) + dLSE) of a block of rows: (group, rows, keys) each."""
        scores = (rows * scale) @ keys.T
        if hidden is not None:
            scores = scores.masked_fill(hidden, -math.inf)
        weights = scores.softmax(dim=-1)
        if hidden is not None:  # softmax of a row of -inf is NaN
            weights = weights.masked_fill(hidden.all(dim=-1, keepdim=True), 0.0)
        weight_grads = grad @ values.T
        deltas = (weights * weight_grads).sum(dim=-1, keepdim=True)
        if grad_lse is not None:
            deltas = deltas - grad_lse[..., None].to(deltas.dtype)
        return weights, weights * (weight_grads - deltas)

    def _blocks(
        self, problem: Problem, dtype: torch.dtype
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor | None]]:
        """Q, dO, what the mask hides, and dLSE, of as many rows at a time as memory allows."""
        seqlen_q, seqlen_k = problem.q.shape[1], problem.k.shape[1]
        step = max(1, _CHUNK_ELEMENTS // max(1, self.group * seqlen_k))
        device = problem.q.device
        for first in range(0, seqlen_q, step):
            part = slice(first, min(first + step, seqlen_q))
            hidden = None
            if problem.causal:
                row = torch.arange(part.start, part.stop, device=device)[:, None]
                hidden = torch.arange(seqlen_k, device=device) > row + seqlen_k - seqlen_q
            grad_lse = None if problem.grad_lse is None else problem.grad_lse[self.entry, self.heads, part]
            rows, grad = (self.of_rows(x)[:, part].to(dtype) for x in (problem.q, problem.grad))
            yield rows, grad, hidden, grad_lse


def _shares(problem: Problem) -> Iterator[_Share]:
    kv_heads = problem.k.shape[2]
    for entry in range(problem.q.shape[0]):
        for kv_head in range(kv_heads):
            yield _Share(entry, kv_head, problem.q.shape[2] // kv_heads)


def _longest(x: torch.Tensor) -> torch.Tensor:
    """Return the largest Euclidean norm of a row, 0 where there are none."""
    return torch.cat([x.new_zeros(1), x.norm(dim=-1).flatten()]).amax()
