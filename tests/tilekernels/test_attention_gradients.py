"""Gradients through attention(): right for every shape, the same bits every time, traceable, and no second derivatives."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from benchmarks import reference_backward
from tilekernels import AttentionProblem, attention, backward_policy, precompile
from tilekernels.backward import BackwardKernel, FusedBackwardKernel, backward_kernel, fused_kernel, padded_rows

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPES = [torch.float32] if DEVICE == "cpu" else [torch.float16, torch.bfloat16]
HALF = torch.float16  # everywhere; on the CPU too slow for more than a few examples
HEAD_DIMS = [64] if DEVICE == "cpu" else [64, 128]  # there each takes a minute to compile; one example has 128

Shape = tuple[int, int, int, int, int, int]  # batch, heads, kv heads, rows, keys, head dimension


def draw(shape: Shape, dtype: torch.dtype = DTYPES[0]) -> list[torch.Tensor]:
    """Q, K, V, which want gradients, and the gradient of the output."""
    batch, heads, kv_heads, seqlen_q, seqlen_k, head_dim = shape
    generator = torch.Generator(DEVICE).manual_seed(0)
    rows, keys = (batch, seqlen_q, heads, head_dim), (batch, seqlen_k, kv_heads, head_dim)
    q, k, v, grad = (
        torch.randn(size, generator=generator, device=DEVICE, dtype=dtype) for size in (rows, keys, keys, rows)
    )
    return [*(x.requires_grad_() for x in (q, k, v)), grad]


def check(q, k, v, grad, gradients, *, causal, scale=None, grad_lse=None) -> None:
    problem = reference_backward.Problem(
        *(x.detach() for x in (q, k, v, grad)), causal, scale or q.shape[3] ** -0.5, grad_lse
    )
    reference_backward.check(problem, *gradients)


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    lengths = st.one_of(st.integers(1, 200), st.sampled_from([1, 63, 64, 65, 127, 128, 129]))
    batch, kv_heads = draw(st.sampled_from([(1, 1), (1, 2), (2, 1)]))
    heads = kv_heads * draw(st.integers(1, 8))
    return batch, heads, kv_heads, draw(lengths), draw(st.one_of(lengths, st.just(0))), draw(st.sampled_from(HEAD_DIMS))


@settings(max_examples=20, deadline=None, derandomize=True)
@given(
    shape=shapes(), causal=st.booleans(), dtype=st.sampled_from(DTYPES), policy=st.sampled_from(["fixed", "adaptive"])
)
@example((1, 7, 1, 129, 65, 64), True, HALF, "adaptive")
@example((1, 5, 1, 1, 63, 64), False, HALF, "fixed")
@example((2, 12, 2, 1, 1, 128), True, DTYPES[0], "adaptive")
@example((1, 2, 1, 3, 0, 64), True, DTYPES[0], "adaptive")
@example((1, 2, 1, 0, 3, 64), True, DTYPES[0], "adaptive")
def test_gradients_are_right_for_any_shape(shape: Shape, causal: bool, dtype: torch.dtype, policy: str) -> None:
    q, k, v, grad = draw(shape, dtype)
    out = attention(q, k, v, causal=causal, policy=policy)
    gradients = torch.autograd.grad(out, (q, k, v), grad)
    assert [x.dtype for x in gradients] == [dtype] * 3
    check(q, k, v, grad, gradients, causal=causal)


@pytest.mark.parametrize("causal", [False, True])
def test_the_lse_passes_its_gradient_on(causal: bool) -> None:
    q, k, v, grad = draw((2, 6, 2, 70, 50, 64))
    out, lse = attention(q, k, v, causal=causal, softmax_scale=0.3, return_lse=True)
    grad_lse = torch.randn_like(lse)
    gradients = torch.autograd.grad((out, lse), (q, k, v), (grad, grad_lse))
    check(q, k, v, grad, gradients, causal=causal, scale=0.3, grad_lse=grad_lse)
    only = torch.autograd.grad(attention(q, k, v, return_lse=True)[1], (q, k), grad_lse)
    problem = reference_backward.Problem(
        *(x.detach() for x in (q, k, v)), torch.zeros_like(grad), False, 64**-0.5, grad_lse
    )
    expected = reference_backward.gradients(problem)
    for x, right in zip(only, expected, strict=False):
        torch.testing.assert_close(x.double(), right, rtol=0, atol=5e-5 if x.dtype == torch.float32 else 2e-2)


def test_strided_inputs_and_gradients() -> None:
    q, k, v, grad = draw((2, 6, 3, 40, 60, 64))
    out = attention(q, k, v, causal=True)
    expected = torch.autograd.grad(out, (q, k, v), grad)
    packed = torch.cat([x.detach().transpose(1, 2) for x in (k, v)], dim=1).requires_grad_()  # heads first
    rows = q.detach().transpose(1, 2).contiguous().transpose(1, 2).requires_grad_()
    out = attention(rows, packed[:, :3].transpose(1, 2), packed[:, 3:].transpose(1, 2), causal=True)
    sideways = grad.transpose(1, 2).contiguous().transpose(1, 2)
    got = torch.autograd.grad(out, (rows, packed), sideways)
    assert torch.equal(got[0], expected[0])
    assert torch.equal(got[1], torch.cat([x.transpose(1, 2) for x in expected[1:]], dim=1))
    (summed,) = torch.autograd.grad(attention(q, k, v).sum(), q)  # an expanded gradient of the output
    assert torch.equal(summed, torch.autograd.grad(attention(q, k, v), q, torch.ones_like(q))[0])


def test_only_what_wants_a_gradient_gets_one() -> None:
    q, k, v, grad = draw((1, 2, 1, 20, 20, 64))
    whole = torch.autograd.grad(attention(q, k, v), (q, k, v), grad)
    frozen = attention(q.detach(), k, v.detach())
    frozen.backward(grad)
    assert torch.equal(k.grad, whole[1])
    assert q.grad is v.grad is None
    with torch.no_grad():
        assert not attention(q, k, v).requires_grad
    assert not attention(q.detach(), k.detach(), v.detach()).requires_grad


@pytest.mark.parametrize("deterministic", [False, True])
def test_fifty_backward_passes_give_the_same_bits(deterministic: bool) -> None:
    q, k, v, grad = draw((1, 6, 2, 70, 131, 64))
    first = torch.autograd.grad(attention(q, k, v, causal=True, deterministic=deterministic), (q, k, v), grad)
    for _ in range(49):
        out = attention(q, k, v, causal=True, deterministic=deterministic)
        again = torch.autograd.grad(out, (q, k, v), grad)
        assert all(torch.equal(x, y) for x, y in zip(first, again, strict=True))


@pytest.mark.skipif(DEVICE != "cpu", reason="the tile is a CPU's")
@pytest.mark.parametrize("causal", [pytest.param(False, marks=pytest.mark.thorough), True])
def test_a_pass_with_atomics_is_right_and_not_for_those_who_insist(
    causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(backward_policy.FUSED, ("cpu", 64), backward_policy.Blocks(32, 32, 1))
    fused_kernel.cache_clear()
    launched = []
    for family in (BackwardKernel, FusedBackwardKernel):
        launch = family.launch
        monkeypatch.setattr(
            family, "launch", lambda self, *a, launch=launch: (launched.append(type(self)), launch(self, *a))
        )
    for shape in ((2, 6, 2, 70, 131, 64), (1, 2, 1, 90, 33, 64)):
        q, k, v, grad = draw(shape)
        out, lse = attention(q, k, v, causal=causal, return_lse=True)
        grad_lse = torch.randn_like(lse)
        gradients = torch.autograd.grad((out, lse), (q, k, v), (grad, grad_lse))
        check(q, k, v, grad, gradients, causal=causal, grad_lse=grad_lse)
    torch.autograd.grad(attention(q, k, v, causal=causal, deterministic=True), q, grad)
    out = attention(q, k, v, causal=causal)
    torch.use_deterministic_algorithms(True)
    try:
        torch.autograd.grad(out, q, grad)
    finally:
        torch.use_deterministic_algorithms(False)
        fused_kernel.cache_clear()
    assert launched == [FusedBackwardKernel] * 2 + [BackwardKernel] * 2


def test_extreme_scores_do_not_overflow() -> None:
    q, k, v, grad = draw((1, 2, 1, 40, 47, 64))
    with torch.no_grad():
        q.mul_(30), k.mul_(30)  # scores in the hundreds: exponentials of 0 beside them are infinite
    gradients = torch.autograd.grad(attention(q, -k.abs() * q.sign().mean(), v, causal=True), (q, v), grad)
    assert all(x.isfinite().all() for x in gradients)
    low = q.detach().abs().requires_grad_()
    gradients = torch.autograd.grad(attention(low, -k.abs(), v), (low, k, v), grad)  # every LSE far below 0
    assert all(x.isfinite().all() for x in gradients)


def test_there_is_no_second_derivative() -> None:
    q, k, v, _ = draw((1, 2, 1, 8, 8, 64))
    (first,) = torch.autograd.grad(attention(q, k, v).sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match=r"attention_backward.*no autograd formula"):
        first.sum().backward()


def test_errors_are_those_of_the_plain_call() -> None:
    q, k, v, _ = draw((1, 2, 1, 8, 8, 64))
    with pytest.raises(ValueError, match="v must have k's shape"):
        attention(q, k, v[:, 1:])
    with pytest.raises(ValueError, match="softmax_scale must be above 0"):
        attention(q, k, v, softmax_scale=0.0)
    with pytest.raises(ValueError, match="policy must be one of"):
        attention(q, k, v, policy="best")
    with pytest.raises(TypeError, match="deterministic must be a bool, got 1"):
        attention(q, k, v, deterministic=1)


@pytest.mark.parametrize("dynamic", [False, True])
def test_torch_compile_traces_forward_and_backward(dynamic: bool) -> None:
    def step(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        out, lse = attention(2 * q, k, v, causal=True, return_lse=True)
        return (out.float() ** 2).sum() + lse.sum()

    compiled = torch.compile(step, backend="aot_eager", fullgraph=True, dynamic=dynamic)
    for rows, keys in ((40, 40), (33, 70)):
        q, k, v, _ = draw((1, 4, 2, rows, keys, 64))
        expected = torch.autograd.grad(step(q, k, v), (q, k, v))
        got = torch.autograd.grad(compiled(q, k, v), (q, k, v))
        assert all(torch.equal(x, y) for x, y in zip(got, expected, strict=True))


def test_the_operators_keep_torchs_contract() -> None:
    from tilekernels import operators

    q, k, v, grad = draw((1, 2, 1, 8, 9, 64))
    torch.library.opcheck(operators.attention_forward, (q, k, v, True, None, "adaptive", False))
    with torch.no_grad():
        out, lse = operators.attention_forward(q, k, v, True, None, "adaptive", False)
        torch.library.opcheck(
            operators.attention_backward,
            (grad, None, q, k, v, out, lse, True, None, "adaptive", False),
            test_utils="test_schema",
        )
        torch.library.opcheck(
            operators.attention_backward,
            (grad, None, q, k, v, out, lse, True, None, "adaptive", False),
            test_utils="test_faketensor",
        )


@pytest.mark.skipif(DEVICE != "cpu", reason="minutes of nvcc")
def test_precompiling_leaves_nothing_to_compile_for_a_backward_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = AttentionProblem(1, 2, 1, 40, 40, 64, "float32", True)
    precompile([problem], backward=True, progress=False)
    assert backward_kernel(problem)._compiled is not None
    q, k, v, grad = draw((1, 2, 1, 40, 40, 64))
    monkeypatch.setattr(BackwardKernel, "compile", None)  # calling it would fail
    assert torch.autograd.grad(attention(q, k, v, causal=True), q, grad)[0].isfinite().all()


def test_statistics_are_padded_to_whole_tiles() -> None:
    assert [padded_rows(n) for n in (1, 127, 128, 129)] == [128, 128, 128, 256]


@pytest.mark.gpu
@pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU")
def test_a_training_step_can_be_captured_in_a_graph_and_waits_for_nothing() -> None:
    q, k, v, grad = draw((2, 8, 2, 300, 300, 128))
    static = [x.detach().clone().requires_grad_() for x in (q, k, v)]

    def step() -> tuple[torch.Tensor, ...]:
        return torch.autograd.grad(attention(*static, causal=True), static, grad)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda.set_sync_debug_mode("error")
        try:
            step()
            step()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    with torch.no_grad():
        for x in static:
            x.copy_(torch.randn_like(x))
    graph.replay()
    torch.cuda.synchronize()
    assert all(torch.equal(x, y) for x, y in zip(captured, step(), strict=True))
    assert math.isfinite(sum(x.float().sum().item() for x in captured))
