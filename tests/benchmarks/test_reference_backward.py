"""The yardstick of gradients: right where it can be told independently, and sharp enough to see small mistakes."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from benchmarks import reference, reference_backward
from benchmarks.reference_backward import Problem, check, gradients
from tilegate.protocol import WrongResult

SCALE = 0.125


def _problem(seqlen_q=70, seqlen_k=70, *, causal=True, dtype="float32", heads=6, kv_heads=2, lse=False) -> Problem:
    generator = torch.Generator().manual_seed(0)
    rows, keys = (2, seqlen_q, heads, 64), (2, seqlen_k, kv_heads, 64)
    q, k, v, grad = (
        torch.randn(shape, generator=generator).to(getattr(torch, dtype)) for shape in (rows, keys, keys, rows)
    )
    grad_lse = torch.randn(2, heads, seqlen_q, generator=generator) if lse else None
    return Problem(q, k, v, grad, causal, SCALE, grad_lse)


def _by_autograd(problem: Problem) -> tuple[torch.Tensor, ...]:
    """Torch's own derivative of the forward formula, in double precision."""
    q, k, v = (x.double().requires_grad_() for x in (problem.q, problem.k, problem.v))
    seqlen_q, seqlen_k, group = q.shape[1], k.shape[1], q.shape[2] // k.shape[2]
    keys, values = (x.repeat_interleave(group, dim=2) for x in (k, v))
    scores = torch.einsum("bqhd,bkhd->bhqk", q, keys) * SCALE
    seen = torch.ones(seqlen_q, seqlen_k, dtype=torch.bool)
    if problem.causal:
        seen = seen.tril(seqlen_k - seqlen_q)
    rows = seen.any(dim=1)  # the others have no derivative that torch could find: -inf less -inf
    out = torch.einsum(
        "bhqk,bkhd->bqhd", scores[:, :, rows].masked_fill(~seen[rows], -math.inf).softmax(dim=-1), values
    )
    loss = (out * problem.grad[:, rows].double()).sum()
    if problem.grad_lse is not None:
        lse = scores[:, :, rows].masked_fill(~seen[rows], -math.inf).logsumexp(dim=-1)
        loss = loss + (lse * problem.grad_lse[:, :, rows].double()).sum()
    return torch.autograd.grad(loss, (q, k, v))


@pytest.mark.parametrize("lse", [False, True], ids=["output", "output and LSE"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("seqlen_q", "seqlen_k"), [(9, 9), (3, 11), (11, 3), (1, 5)])
def test_gradients_agree_with_autograd(causal, seqlen_q, seqlen_k, lse, monkeypatch):
    monkeypatch.setattr(reference_backward, "_CHUNK_ELEMENTS", 20)  # several blocks of rows even here
    problem = _problem(seqlen_q, seqlen_k, causal=causal, lse=lse)
    for actual, expected in zip(gradients(problem), _by_autograd(problem), strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)


def test_gradients_agree_with_differences_of_the_forward_reference():
    problem = _problem(5, 7, heads=2, kv_heads=1)
    inputs = [x.double() for x in (problem.q, problem.k, problem.v)]
    directions = [torch.randn(x.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) for x in inputs]

    def loss(step: float) -> float:
        moved = (x + step * d for x, d in zip(inputs, directions, strict=True))
        out, _ = reference.attention(*moved, causal=True, softmax_scale=SCALE)
        return (out * problem.grad.double()).sum().item()

    slope = sum((g * d).sum().item() for g, d in zip(gradients(problem), directions, strict=True))
    assert slope == pytest.approx((loss(1e-5) - loss(-1e-5)) / 2e-5, rel=1e-8)


def test_no_keys_and_no_rows_give_no_gradients():
    dq, dk, dv = gradients(_problem(4, 0))
    assert not dq.any()
    assert dk.shape == dv.shape == (2, 0, 2, 64)
    dq, dk, dv = gradients(_problem(0, 4))
    assert dq.numel() == 0
    assert not dk.any()
    assert not dv.any()


def _right(problem: Problem) -> list[torch.Tensor]:
    """What good kernels give: the gradients, rounded."""
    return [x.to(problem.q.dtype) for x in gradients(problem)]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_right_gradients_pass(dtype):
    problem = _problem(dtype=dtype, seqlen_q=90)  # 20 rows see nothing
    for agreement in check(problem, *_right(problem)):
        assert agreement.error <= agreement.tolerance
        assert agreement.rms_error <= agreement.rms_tolerance
        assert agreement.checked == 1.0


@pytest.mark.parametrize(("dtype", "most"), [("float32", 1e-4), ("float16", 2e-2), ("bfloat16", 0.16)])
def test_the_tolerance_is_a_few_roundings(dtype, most):
    problem = _problem(dtype=dtype)
    for agreement in check(problem, *_right(problem)):
        assert 0 < agreement.tolerance < most


def _one_value(dq, dk, dv):
    dk[1, 69, 1, 63] += 0.1


def _everything_a_little(dq, dk, dv):
    dv *= 1.02


def _nan(dq, dk, dv):
    dq[0, 33, 2, 1] = math.nan


def _a_row_that_sees_nothing(dq, dk, dv):
    dq[0, 0, 2, 1] = 1e-30


def _heads_exchanged(dq, dk, dv):
    dk[:] = dk.flip(2)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (_one_value, r"dk: largest error .*; the first, dk\[1, 69, 1, 63\]"),
        (_everything_a_little, "dv: "),
        (_nan, r"dq: largest error nan .*1 of 69,120 values are wrong"),
        (_a_row_that_sees_nothing, r"dq: a row that sees no key must have gradient 0"),
        (_heads_exchanged, "dk: "),
    ],
)
def test_what_is_wrong_is_seen(damage, says, dtype):
    problem = _problem(dtype=dtype, seqlen_q=90)
    found = _right(problem)
    damage(*found)
    with pytest.raises(WrongResult, match=f"(?s){says}"):
        check(problem, *found)


def test_a_large_problem_is_compared_in_part():
    problem = _problem()
    found = _right(problem)
    (dq, *_) = check(problem, *found, limit=2 * 3 * 70 * 70)
    assert dq.checked == 0.5
    assert check(problem, *found, limit=1)[0].checked == 0.25


def test_the_gradient_of_the_lse_counts():
    problem = _problem(lse=True)
    with pytest.raises(WrongResult, match="dq"):
        check(problem, *_right(dataclasses.replace(problem, grad_lse=None)))
