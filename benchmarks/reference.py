"""Forward attention in double precision, and how far from it a kernel may be.

The tolerance is derived, not chosen. It is FlashAttention-3's rule (hopper/test_flash_attn.py of Dao-AILab's
flash-attention): a kernel's largest error may be twice that of plain PyTorch in the kernel's own dtype on the same
inputs, plus an allowance for rounding the result, 2*|(ref + 0.3 - 0.3) - ref| in that dtype. The root mean square of
the error obeys the same rule: it catches what is wrong by little in many places.

Where PyTorch computes in float32, twice its error leaves a kernel no room for other roundings, so two terms are added,
with u = 2**-24 and s = scale * max|q| * max|k|, which no score exceeds. They vanish beside a half-precision tolerance:

    output  2 * u * s * max|v|   a kernel rounds a score once more (to take its exponential with base 2), and a weight
                                 whose score is off by u*s is off by that part of itself
    LSE     sqrt(D) * u * s      probabilistic bound on the error of a dot product of length D summed in any order
                                 (Higham and Mary 2019, doi 10.1137/18M1226312); LSE is float32 whatever the dtype

A softcap c adds 4 * u * c to the error of a score: with e = exp(2x), tanh(x) = 1 - 2/(1 + e) takes over half of the relative
error of e at most, which is 2 roundings and that of its argument, and makes two more. A sink z adds 2 * u * |z|: it is divided
by the scale and multiplied again.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from tilegate.protocol import WrongResult, whereabouts

_AXES = {"out": ("batch entries", "rows", "heads", "columns"), "lse": ("batch entries", "heads", "rows")}
_CHUNK_ELEMENTS = 1 << 25  # scores held at a time: 256 MiB in double precision
CHECKED_SCORES = 1 << 33  # compared in full up to so many scores: 28 heads of 16k rows and keys


@dataclass(frozen=True)
class Agreement:
    """How one output compares with the reference.

    Attributes:
        tensor: "out" or "lse".
        error, tolerance: largest absolute error, and what is allowed.
        rms_error, rms_tolerance: the same of the root mean square.
        checked: the part of the scores behind the compared values, 1.0 when every value was compared.
    """

    tensor: str
    error: float
    tolerance: float
    rms_error: float
    rms_tolerance: float
    checked: float


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool,
    softmax_scale: float,
    window: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    sinks: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute forward attention in float64.

    Args:
        q: (batch, seqlen_q, heads, head_dim).
        k: (batch, seqlen_k, kv_heads, head_dim).
        v: (batch, seqlen_k, kv_heads, head_dim_v).
        causal: mask aligned bottom right.
        softmax_scale: factor of the scores.
        window: columns that a row sees to the left and to the right of its own; -1: all.
        softcap: above 0, a score s becomes softcap * tanh(s / softcap).
        sinks: (heads,) float32: scores of a column that every row sees, and that has no value.

    Returns:
        Output (batch, seqlen_q, heads, head_dim_v) and natural-log LSE (batch, heads, seqlen_q), both float64. A row that
        sees nothing has output 0 and LSE -inf, or its sink.
    """
    out = torch.empty(*q.shape[:3], v.shape[3], dtype=torch.float64, device=q.device)
    lse = torch.empty(q.shape[0], q.shape[2], q.shape[1], dtype=torch.float64, device=q.device)
    problem = _Problem(q, k, v, causal, softmax_scale, window, softcap, sinks)
    for chunk in _chunks(q, k):
        o, s = chunk.attend(problem, torch.float64)
        chunk.of_rows(out)[...] = o
        chunk.of_lse(lse)[...] = s
    return out, lse


def check(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor | None,
    *,
    causal: bool,
    softmax_scale: float,
    window: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    sinks: torch.Tensor | None = None,
    limit: int = CHECKED_SCORES,
) -> tuple[Agreement, ...]:
    """Compare a kernel's output and LSE with the reference.

    A problem of more than `limit` scores is compared in part: the first and the last rows of as many heads as
    fit, then blocks of rows that nobody can know before. `Agreement.checked` says how much that was.

    Args:
        q, k, v, causal, softmax_scale, window, softcap, sinks: the problem, as in `attention`.
        out, lse: what the kernel made of it: `out` like q, `lse` (batch, heads, seqlen_q) float32; None for a kernel
            that gives no LSE.
        limit: see above.

    Returns:
        The agreement of `out` and, where there is one, of `lse`.

    Raises:
        WrongResult: either is out of tolerance, is NaN, or is not exactly 0 / -inf in a row that sees nothing; says how
            many values are wrong, which is the first, and where they are.
    """
    chunks, checked = _sample(list(_chunks(q, k)), limit)
    compared_out, compared_lse = _Comparison("out", q.device), _Comparison("lse", q.device)
    unit = 2.0**-24
    score_rounding = unit * softmax_scale * _longest(q) * _longest(k)
    dot_product_error = math.sqrt(q.shape[-1]) * score_rounding
    of_options = 4 * unit * softcap
    if sinks is not None:
        of_options += 2 * unit * sinks.double()[sinks.isfinite()].abs().amax(dim=0, keepdim=True).sum()
    score_rounding, dot_product_error = score_rounding + of_options, dot_product_error + of_options
    weight_error = score_rounding * v.double().abs().amax() if v.numel() else score_rounding
    problem = _Problem(q, k, v, causal, softmax_scale, window, softcap, sinks)
    for chunk in chunks:
        expected, expected_lse = chunk.attend(problem, torch.float64)
        plain, _ = chunk.attend(problem, q.dtype)
        empty = expected_lse == -math.inf
        compared_out.add(
            chunk.of_rows(out), expected, plain, _rounding(expected.to(q.dtype)) + weight_error, empty[..., None]
        )
        if lse is not None:
            plain_lse = chunk.lse(problem, torch.float32)
            allowance = _rounding(expected_lse.float()) + dot_product_error / 2
            compared_lse.add(chunk.of_lse(lse), expected_lse, plain_lse, allowance, empty)
    shape = f"q {tuple(q.shape)}, k {tuple(k.shape)}, {str(q.dtype).removeprefix('torch.')}, causal={causal}"
    compared = [(compared_out, out)] if lse is None else [(compared_out, out), (compared_lse, lse)]
    for comparison, actual in compared:
        wrong = comparison.wrong()
        if wrong is not None:
            place = _where(comparison.tensor, actual, wrong, problem, chunks)
            raise WrongResult(f"{comparison.tensor}: {wrong.what}; {shape}\n{place}")
    return tuple(comparison.agreement(checked) for comparison, _ in compared)


def _where(tensor: str, actual: torch.Tensor, wrong: _Wrong, problem: _Problem, chunks: Sequence[_Chunk]) -> str:
    """Compare once more, and say which values are wrong, the first of them with what it should be."""
    lse = tensor == "lse"
    mask = torch.zeros(actual.shape, dtype=torch.bool)
    compared = 0
    for chunk in chunks:
        expected = chunk.attend(problem, torch.float64)
        own, right = chunk.part(actual, lse=lse).double(), expected[lse]
        off = (own != right) & ~((own - right).abs() <= wrong.least)  # a NaN is off
        if wrong.in_empty_rows:
            off &= expected[1] == -math.inf if lse else expected[1][..., None] == -math.inf
        chunk.part(mask, lse=lse)[...] = off.cpu()
        compared += off.numel()
    if not mask.any():
        return "compared again, every value is right: the device does not compute the same twice"
    index = tuple(mask.nonzero()[0].tolist())
    entry, *rest = index
    head, row = (rest[0], rest[1]) if lse else (rest[1], rest[0])
    chunk = next(chunk for chunk in chunks if chunk.holds(entry, head, row))
    at = (head % chunk.group, row - chunk.first, *([] if lse else [rest[2]]))
    expected = chunk.attend(problem, torch.float64)[lse]
    return (
        f"{int(mask.sum()):,} of {compared:,} values are wrong: {whereabouts(mask.numpy(), _AXES[tensor])}; the first, "
        f"{tensor}{list(index)}, is {actual[index].item():.5g} instead of {expected[at].item():.5g}"
    )


@dataclass(frozen=True)
class _Problem:
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    causal: bool
    softmax_scale: float
    window: tuple[int, int]
    softcap: float
    sinks: torch.Tensor | None


@dataclass(frozen=True)
class _Chunk:
    """Rows [first, last) of the heads of one kv head of one batch entry."""

    entry: int
    kv_head: int
    group: int
    first: int
    last: int
    seqlen_q: int
    seqlen_k: int

    @property
    def scores(self) -> int:
        return self.group * (self.last - self.first) * self.seqlen_k

    @property
    def at_an_end(self) -> bool:
        return self.first == 0 or self.last == self.seqlen_q

    @property
    def heads(self) -> slice:
        return slice(self.kv_head * self.group, (self.kv_head + 1) * self.group)

    def of_rows(self, x: torch.Tensor) -> torch.Tensor:
        """View (group, rows, head_dim) of (batch, seqlen_q, heads, head_dim)."""
        return x[self.entry, self.first : self.last, self.heads].transpose(0, 1)

    def of_lse(self, x: torch.Tensor) -> torch.Tensor:
        """View (group, rows) of (batch, heads, seqlen_q)."""
        return x[self.entry, self.heads, self.first : self.last]

    def part(self, x: torch.Tensor, *, lse: bool) -> torch.Tensor:
        """View of an LSE or an output."""
        return self.of_lse(x) if lse else self.of_rows(x)

    def holds(self, entry: int, head: int, row: int) -> bool:
        return (entry, head // self.group) == (self.entry, self.kv_head) and self.first <= row < self.last

    def attend(self, problem: _Problem, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        """Plain attention of this chunk with every intermediate in `dtype`: (group, rows, head_dim), (group, rows)."""
        scores, values = self._scores(problem, dtype)
        lse = scores.logsumexp(dim=-1)
        # softmax of a row of -inf is NaN
        weights = scores.softmax(dim=-1).masked_fill(lse[..., None] == -math.inf, 0.0)
        return weights[..., : values.shape[0]] @ values, lse

    def lse(self, problem: _Problem, dtype: torch.dtype) -> torch.Tensor:
        """The second of what `attend` returns."""
        return self._scores(problem, dtype)[0].logsumexp(dim=-1)

    def _scores(self, problem: _Problem, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        """Scores (group, rows, keys), those of the sinks last, and values (keys, head_dim_v); no keys beyond what is seen."""
        offset = self.seqlen_k - self.seqlen_q
        left, right = problem.window
        right = 0 if problem.causal else right
        visible = self.seqlen_k if right < 0 else min(self.seqlen_k, max(0, self.last + offset + right))
        rows = self.of_rows(problem.q).to(dtype)
        keys, values = (x[self.entry, :visible, self.kv_head].to(dtype) for x in (problem.k, problem.v))
        scores = (rows * problem.softmax_scale) @ keys.T
        if problem.softcap:
            scores = problem.softcap * (scores / problem.softcap).tanh()
        position = torch.arange(self.first, self.last, device=rows.device)[:, None] + offset
        column = torch.arange(visible, device=rows.device)
        if right >= 0:
            scores = scores.masked_fill(column > position + right, -math.inf)
        if left >= 0:
            scores = scores.masked_fill(column < position - left, -math.inf)
        if problem.sinks is not None:
            sinks = problem.sinks[self.heads].to(dtype)[:, None, None]
            scores = torch.cat([scores, sinks.expand(*scores.shape[:2], 1)], dim=-1)
        return scores, values


def _chunks(q: torch.Tensor, k: torch.Tensor) -> Iterator[_Chunk]:
    batch, seqlen_q, heads, _ = q.shape
    seqlen_k, kv_heads = k.shape[1:3]
    group = heads // kv_heads
    rows = max(1, _CHUNK_ELEMENTS // max(1, group * seqlen_k))
    for entry in range(batch):
        for kv_head in range(kv_heads):
            for first in range(0, seqlen_q, rows):
                yield _Chunk(entry, kv_head, group, first, min(first + rows, seqlen_q), seqlen_q, seqlen_k)


def _sample(chunks: list[_Chunk], limit: int) -> tuple[list[_Chunk], float]:
    total = sum(chunk.scores for chunk in chunks)
    if total <= limit:
        return chunks, 1.0
    shuffled = random.SystemRandom().sample(chunks, len(chunks))
    chosen: list[_Chunk] = []
    scores = 0
    for chunk in sorted(shuffled, key=lambda chunk: not chunk.at_an_end):
        if scores + chunk.scores > limit and chosen:
            break
        chosen.append(chunk)
        scores += chunk.scores
    return chosen, scores / total


def _longest(x: torch.Tensor) -> torch.Tensor:
    """Return the largest Euclidean norm of a row, 0 where there are none."""
    return torch.cat([x.new_zeros(1).double(), x.double().norm(dim=-1).flatten()]).amax()


def _rounding(x: torch.Tensor) -> torch.Tensor:
    return ((x + 0.3 - 0.3) - x).abs()


@dataclass(frozen=True)
class _Wrong:
    """What is wrong with a tensor, and which values are: those whose error exceeds `least`."""

    what: str
    least: float
    in_empty_rows: bool = False


class _Comparison:
    """Largest and summed-up squared errors over the chunks, kept on the device: one synchronisation at the end."""

    def __init__(self, tensor: str, device: torch.device) -> None:
        self.tensor = tensor
        self._largest = torch.zeros(3, dtype=torch.float64, device=device)  # error, plain's error, allowance
        self._squares = torch.zeros(3, dtype=torch.float64, device=device)
        self._wrong_in_empty_rows = torch.zeros((), dtype=torch.bool, device=device)
        self._count = 0

    def add(
        self,
        actual: torch.Tensor,
        expected: torch.Tensor,
        plain: torch.Tensor,
        allowance: torch.Tensor,
        empty: torch.Tensor,
    ) -> None:
        """Take one chunk into account: all tensors of one shape, `empty` marking the rows that see nothing."""
        if not actual.numel():
            return
        actual = actual.double()
        self._wrong_in_empty_rows |= (empty & (actual != expected)).any()
        errors = torch.stack([actual - expected, plain.double() - expected, allowance.double()])
        errors = errors.masked_fill(empty, 0.0).abs().flatten(1)
        # amax and maximum hand a NaN on, as the sum does.
        self._largest = torch.maximum(self._largest, errors.amax(dim=1))
        self._squares += errors.square().sum(dim=1)
        self._count += actual.numel()

    def agreement(self, checked: float) -> Agreement:
        """Return how far off it was, and how far it may be."""
        error, plain, allowance = self._largest.tolist()
        rms_error, rms_plain, rms_allowance = (math.sqrt(x / max(1, self._count)) for x in self._squares.tolist())
        return Agreement(
            self.tensor, error, 2 * plain + 2 * allowance, rms_error, 2 * rms_plain + 2 * rms_allowance, checked
        )

    def wrong(self) -> _Wrong | None:
        """Return what is wrong, None if nothing is."""
        found = self.agreement(1.0)
        if self._wrong_in_empty_rows:
            return _Wrong("a row that sees no key must have output 0 and LSE -inf", 0.0, in_empty_rows=True)
        # Written so that a NaN is wrong.
        if not found.error <= found.tolerance:
            return _Wrong(
                f"largest error {found.error:.3g} exceeds the tolerance of {found.tolerance:.3g}", found.tolerance
            )
        if not found.rms_error <= found.rms_tolerance:
            # No value is too far off by itself; those that are further off than all may be on average are told.
            return _Wrong(
                f"root mean square of the error {found.rms_error:.3g} exceeds the tolerance of {found.rms_tolerance:.3g}",
                found.rms_tolerance,
            )
        return None
