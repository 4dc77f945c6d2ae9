"""One sequence in float64, and how far from it a kernel may be: what problems of any layout are made of.

Needs torch alone. Q is (rows, heads, D), K and V are (keys, kv heads, D); the causal mask is aligned bottom right.

O may be off by twice the error of the same computation in the inputs' precision, plus twice what adding and subtracting 0.3
rounds away (the rule of FlashAttention-3's tests), plus what float32 scores are rounded by; the LSE by twice the error of
float32, plus sqrt(D) * u * the largest score that could be (Higham and Mary 2019, doi 10.1137/18M1226312), u = 2**-24.

Gradients obey the same rule; instead of the last term they may be off by what the stored LSE and delta bring. To first order,
with e = (2 + sqrt(D)) * u * scale * |q| * max|k|: a probability by e * P, dS by e * |dS| and by
sqrt(D) * u * |dO| * P * (|v| + max|v|). Errors of different rows and keys are independent, so in sums their squares add up.
"""

import math

import torch

UNIT = 2.0**-24  # of float32
SAMPLE = 64  # rows of a head that are checked: all of 32k rows and keys would need 240 GB in float64
BLOCK = 512  # rows whose scores are held at a time
KV_HEADS = 4  # whose gradients are checked


def spread(count, most, device):
    """At most so many of `count` indices: first, last, and some between."""
    return torch.linspace(0, count - 1, min(most, count), device=device).long().unique()


def seen_pairs(rows, keys, causal):
    """Pairs of a row and a key that it sees, counted as FlashAttention's benchmarks do: half a square under the mask."""
    if not causal:
        return rows * keys
    seeing = min(rows, keys)
    return seeing * (2 * keys - seeing) / 2


def attended(q, k, v, causal, scale):
    """O in the dtype of Q, and the LSE as (heads, rows), by float64: what the backward pass is given."""
    out, lse = torch.empty_like(q), torch.empty(q.shape[1], len(q), device=q.device)
    for head in range(q.shape[1]):
        kv = head * k.shape[1] // q.shape[1]
        for first in range(0, len(q), BLOCK):
            rows = torch.arange(first, min(first + BLOCK, len(q)), device=q.device)
            parts = [x.double() for x in (q[rows, head], k[:, kv], v[:, kv])]
            made, found = _attention(*parts, _hidden(rows, q, k, causal), scale)
            out[rows, head], lse[head, rows] = made.to(q.dtype), found.float()
    return out, lse


def forward_error(q, k, v, out, lse, causal, scale):
    """Largest error over tolerance of O, shaped as Q, and of the LSE, (heads, rows), at some rows; above 1 is wrong."""
    if not len(q):
        return 0.0
    rows, worst = spread(len(q), SAMPLE, q.device), 0.0
    hidden = _hidden(rows, q, k, causal)
    score = UNIT * scale * _longest(q) * _longest(k)
    for head in range(q.shape[1]):
        kv = head * k.shape[1] // q.shape[1]
        parts = q[rows, head], k[:, kv], v[:, kv]
        exact, exact_lse = _attention(*[part.double() for part in parts], hidden, scale)
        same, _ = _attention(*parts, hidden, scale)
        _, single = _attention(*[part.float() for part in parts], hidden, scale)
        allowed = 2 * _most(same, exact) + 2 * _rounding(exact, q.dtype) + 2 * score * _largest(v[:, kv])
        allowed_lse = 2 * _most(single, exact_lse) + math.sqrt(q.shape[-1]) * score
        worst = max(
            worst,
            over(_most(out[rows, head], exact), allowed),
            over(_most(lse[head, rows], exact_lse), allowed_lse),
        )
    return worst


def backward_error(q, k, v, grad, results, causal, scale):
    """Largest error over tolerance of dQ, dK, dV (`results`, shaped as Q, K, V) of some kv heads; above 1 is wrong."""
    worst, group = 0.0, q.shape[1] // k.shape[1]
    for kv in spread(k.shape[1], KV_HEADS, q.device).tolist():
        heads = slice(kv * group, (kv + 1) * group)
        given = (q[:, heads].transpose(0, 1), k[:, kv], v[:, kv], grad[:, heads].transpose(0, 1))
        exact, first_order = gradients(*[x.double() for x in given], causal, scale)
        same, _ = gradients(*given, causal, scale)
        own = (results[0][:, heads].transpose(0, 1), results[1][:, kv], results[2][:, kv])
        for got, right, usual, room in zip(own, exact, same, first_order, strict=True):
            if right.numel():
                allowed = 2 * _most(usual, right) + 2 * _rounding(right, q.dtype) + room.max()
                worst = max(worst, over(_most(got, right), allowed))
    return worst


def gradients(q, k, v, grad, causal, scale):
    """(dQ, dK, dV) of (group, rows, D) over (keys, D), sums in float32 at least, and what each may be off to first order."""
    total = torch.promote_types(q.dtype, torch.float32)
    found = [torch.zeros_like(x, dtype=total) for x in (q, k, v)]
    squares = [torch.zeros_like(x, dtype=torch.float64) for x in (q, k, v)]
    for first in range(0, q.shape[1], BLOCK):
        rows = torch.arange(first, min(first + BLOCK, q.shape[1]), device=q.device)
        some, theirs = q[:, rows], grad[:, rows]
        weights, _ = probabilities(some, k, _hidden(rows, q[0], k, causal), scale)
        dots = theirs @ v.T
        scores = weights * (dots - (weights * dots).sum(-1, keepdim=True))
        found[0][:, rows] = (scores @ k * scale).to(total)
        found[1] += (scores.transpose(1, 2) @ (some * scale)).sum(0).to(total)
        found[2] += (weights.transpose(1, 2) @ theirs).sum(0).to(total)
        if q.dtype == torch.float64:  # the first-order terms are needed of the exact ones alone
            e = (2 + math.sqrt(k.shape[-1])) * UNIT * scale * some.norm(dim=-1, keepdim=True) * _longest(k)
            lengths = v.square().sum(-1) + _longest(v) ** 2
            errors = (e * scores).square()
            errors += k.shape[-1] * UNIT**2 * theirs.square().sum(-1, keepdim=True) * lengths * weights.square()
            common = e * (scores @ k).abs()  # the LSE's error is the same in a whole row
            squares[0][:, rows] = (scale * ((errors @ k.square()).sqrt() + common)).square()
            squares[1] += scale**2 * (errors.transpose(1, 2) @ some.square()).sum(0)
            squares[2] += ((e * weights).square().transpose(1, 2) @ theirs.square()).sum(0)
    return [x.to(q.dtype) for x in found], [x.sqrt() for x in squares]


def probabilities(q, k, hidden, scale):
    """Softmax of the scores, 0 in a row that sees nothing, and their LSE."""
    scores = q @ k.T * scale
    if hidden is not None:
        scores = scores.masked_fill(hidden, -math.inf)
    lse = torch.logsumexp(scores, -1)
    nothing = (lse == -math.inf)[..., None]
    return torch.softmax(scores, -1).masked_fill(nothing, 0.0), lse


def over(error, allowed):
    """A part of the tolerance: infinite for a NaN, and for an error where none is allowed."""
    if error.isnan():
        return math.inf
    return float(error / allowed) if allowed > 0 else math.inf if error > 0 else 0.0


def _attention(q, k, v, hidden, scale):
    weights, lse = probabilities(q, k, hidden, scale)
    return weights @ v, lse


def _hidden(rows, q, k, causal):
    """Which keys the rows do not see; None for no mask."""
    return torch.arange(len(k), device=q.device) > (rows + len(k) - len(q))[:, None] if causal else None


def _most(got, right):
    """The largest difference; none between two that are -inf."""
    got, right = got.double(), right.double()
    return torch.where(got == right, 0.0, (got - right).abs()).max()


def _rounding(exact, dtype):
    rounded = exact.to(dtype)
    return ((rounded + 0.3 - 0.3) - rounded).double().abs().max()


def _longest(x):
    return torch.cat([x.new_zeros(1).double(), x.double().norm(dim=-1).flatten()]).max()


def _largest(x):
    return torch.cat([x.new_zeros(1), x.flatten()]).double().abs().max()
