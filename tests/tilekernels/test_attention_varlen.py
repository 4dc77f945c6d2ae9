"""What attention_varlen() takes and refuses, and that packing changes nothing. The suite judges its numbers more finely."""

import math
from itertools import accumulate
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tilekernels import attention, attention_varlen
from tilekernels.varlen import VarlenProblem, varlen_kernel


def packed(
    rows: list[int], keys: list[int], *, heads: int = 2, kv_heads: int = 1, head_dim: int = 64, device: str = "cpu"
) -> tuple[Any, ...]:
    """The first seven arguments."""
    generator = torch.Generator().manual_seed(0)
    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    shapes = ((sum(rows), heads, head_dim), *[(sum(keys), kv_heads, head_dim)] * 2)
    q, k, v = (torch.randn(shape, generator=generator).to(device, dtype) for shape in shapes)
    bounds = [torch.tensor([0, *accumulate(lengths)], dtype=torch.int32, device=device) for lengths in (rows, keys)]
    return q, k, v, *bounds, max(rows, default=0), max(keys, default=0)


def one_by_one(q, k, v, cu_q, cu_k, _max_q, _max_k, **options) -> tuple[torch.Tensor, torch.Tensor]:
    """The same by `attention`, a sequence at a time."""
    outs, lses = [q[:0]], [torch.empty(q.shape[1], 0, device=q.device)]
    for s in range(len(cu_q) - 1):
        mine, seen = slice(cu_q[s], cu_q[s + 1]), slice(cu_k[s], cu_k[s + 1])
        out, lse = attention(q[None, mine], k[None, seen], v[None, seen], return_lse=True, **options)
        outs.append(out[0])
        lses.append(lse[0])
    return torch.cat(outs), torch.cat(lses, dim=1)


lengths = st.lists(st.tuples(st.integers(0, 70), st.integers(0, 70)), min_size=0, max_size=5)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(lengths, st.booleans(), st.sampled_from(["fixed", "adaptive"]))
def test_packing_changes_nothing(pairs: list[tuple[int, int]], causal: bool, policy: str) -> None:
    arguments = packed([rows for rows, _ in pairs], [keys for _, keys in pairs], heads=6, kv_heads=2)
    out, lse = attention_varlen(*arguments, causal=causal, return_lse=True, policy=policy)
    expected_out, expected_lse = one_by_one(*arguments, causal=causal, policy=policy)
    torch.testing.assert_close(out, expected_out, rtol=0, atol=2e-6)
    torch.testing.assert_close(lse, expected_lse, rtol=0, atol=2e-6)


def test_other_sequences_do_not_matter() -> None:
    q, k, v, cu_q, cu_k, max_q, max_k = packed([5, 33, 20], [9, 40, 31])
    expected = attention_varlen(q, k, v, cu_q, cu_k, max_q, max_k, causal=True)
    for tensor, bounds in ((q, cu_q), (k, cu_k), (v, cu_k)):
        tensor[: bounds[1]] = 1e4
        tensor[bounds[2] :] = -1e4
    out = attention_varlen(q, k, v, cu_q, cu_k, max_q, max_k, causal=True)
    assert torch.equal(out[5:38], expected[5:38])


def test_the_result_needs_no_longest_length_to_be_exact() -> None:
    *arguments, max_q, max_k = packed([5, 33], [9, 40])
    expected = attention_varlen(*arguments, max_q, max_k, policy="fixed")
    assert torch.equal(attention_varlen(*arguments, 1000, 9999, policy="fixed"), expected)


def test_a_scale_and_strided_inputs() -> None:
    q, k, v, *rest = packed([5, 33], [9, 40])
    q, k, v = (x.transpose(0, 1).contiguous().transpose(0, 1) for x in (q, k, v))
    out = attention_varlen(q, k, v, *rest, softmax_scale=0.5)
    torch.testing.assert_close(out, one_by_one(q, k, v, *rest, softmax_scale=0.5)[0], rtol=0, atol=2e-6)


def test_new_lengths_do_not_recompile() -> None:
    kernels = {
        varlen_kernel(VarlenProblem(n, 4, 2, n * longest, longest, longest, 64, "float32", True), "fixed", "cpu")
        for n in (1, 3)
        for longest in (1, 70, 500)
    }
    assert len(kernels) == 1


Q, K, V, CU_Q, CU_K, MAX_Q, MAX_K = packed([5, 33], [9, 40])
NAMES = ("q", "k", "v", "cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k")


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"q": Q[None]}, ValueError, r"q must have 3 dimensions \(total, heads, head_dim\), got \(1, 38, 2, 64\)"),
        ({"k": K.half()}, TypeError, "k has dtype float16, expected q's dtype float32"),
        ({"k": K[..., :32]}, ValueError, r"k and v must have one shape \(total_k, kv_heads, 64\)"),
        ({"v": V[1:]}, ValueError, "k and v must have one shape"),
        ({"q": Q[:, :0]}, ValueError, "k must have a number of heads that divides q's 0"),
        ({"cu_seqlens_q": CU_Q.long()}, TypeError, r"cu_seqlens_q has dtype int64, expected int32; call .int\(\)"),
        ({"cu_seqlens_k": [0, 9, 49]}, TypeError, "cu_seqlens_k must be a torch.Tensor, got list"),
        ({"cu_seqlens_k": CU_K[:2]}, ValueError, r"for q and k the same .*, got \(3,\) and \(2,\)"),
        ({"cu_seqlens_q": CU_Q + 1}, ValueError, r"cu_seqlens_q must rise from 0 to at most 38, got \[1, 6, 39\]"),
        ({"cu_seqlens_k": CU_K.flip(0)}, ValueError, "cu_seqlens_k must rise from 0 to at most 49"),
        ({"max_seqlen_q": 32}, ValueError, "max_seqlen_q is 32, and the longest sequence has 33"),
        (
            {"max_seqlen_k": torch.tensor(40)},
            TypeError,
            "max_seqlen_k must be an int, got tensor.*waits for the device",
        ),
        ({"max_seqlen_q": -1}, ValueError, "max_seqlen_q must be between 0 and"),
        ({"causal": None}, TypeError, "causal must be a bool, got None"),
        ({"deterministic": 1}, TypeError, "deterministic must be a bool, got 1"),
        ({"return_lse": 1}, TypeError, "return_lse must be a bool, got 1"),
        ({"policy": 1}, TypeError, "policy must be a string, got 1"),
        ({"softmax_scale": 0}, ValueError, "softmax_scale must be above 0"),
        ({"q": Q.to("meta")}, ValueError, "k is on cpu, expected q's device meta"),
    ],
)
def test_bad_arguments_are_named(changes: dict[str, Any], error: type[Exception], says: str) -> None:
    arguments = dict(zip(NAMES, (Q, K, V, CU_Q, CU_K, MAX_Q, MAX_K), strict=True))
    with pytest.raises(error, match=says):
        attention_varlen(**{**arguments, **changes})


@settings(max_examples=12, deadline=None, derandomize=True)
@given(lengths.filter(bool), st.booleans())
def test_packing_changes_no_gradient(pairs: list[tuple[int, int]], causal: bool) -> None:
    """The suite holds the kernels against float64; here the gradient of the LSE, and whatever hypothesis thinks of."""
    q, k, v, *rest = packed([rows for rows, _ in pairs], [keys for _, keys in pairs], heads=4, kv_heads=2)
    leaves = [x.requires_grad_() for x in (q, k, v)]
    results = attention_varlen(q, k, v, *rest, causal=causal, return_lse=True)
    generator = torch.Generator().manual_seed(1)
    grads = [torch.randn(x.shape, generator=generator) for x in results]
    grads[1][~results[1].isfinite()] = 0  # a row that sees nothing has no LSE
    mine = torch.autograd.grad(results, leaves, grads)
    expected = torch.autograd.grad(one_by_one(q, k, v, *rest, causal=causal), leaves, grads, materialize_grads=True)
    for own, other in zip(mine, expected, strict=True):
        torch.testing.assert_close(own, other, rtol=0, atol=4e-6)


def test_gradients_have_the_same_bits_every_time() -> None:
    leaves = [x.clone().requires_grad_() for x in (Q, K, V)]

    def gradients() -> tuple[torch.Tensor, ...]:
        out = attention_varlen(*leaves, CU_Q, CU_K, MAX_Q, MAX_K, causal=True, deterministic=True)
        return torch.autograd.grad(out.square().sum(), leaves)

    first = gradients()
    for _ in range(49):
        assert all(torch.equal(x, y) for x, y in zip(gradients(), first, strict=True))


def test_the_gradient_of_another_sequence_does_not_matter() -> None:
    q, k, v, cu_q, cu_k, max_q, max_k = packed([5, 33, 20], [9, 40, 31])
    leaves = [x.requires_grad_() for x in (q, k, v)]
    out = attention_varlen(*leaves, cu_q, cu_k, max_q, max_k, causal=True)
    grad = torch.randn_like(out)
    expected = torch.autograd.grad(out, leaves, grad, retain_graph=True)
    grad[:5], grad[38:] = 1e6, -1e6
    changed = torch.autograd.grad(out, leaves, grad)
    for x, y, part in zip(changed, expected, (slice(5, 38), slice(9, 49), slice(9, 49)), strict=True):
        assert torch.equal(x[part], y[part])


def test_the_operator_is_what_torch_asks_for() -> None:
    from tilekernels.operators_varlen import attention_varlen as operator

    arguments = (Q, K, V, CU_Q, CU_K, MAX_Q, MAX_K, True, None, "adaptive")
    torch.library.opcheck(operator, arguments, test_utils=("test_schema", "test_faketensor"))
    leaves = [x.clone().requires_grad_() for x in (Q, K, V)]
    torch.library.opcheck(operator, (*leaves, *arguments[3:]), test_utils=("test_autograd_registration",))


def test_torch_compile_traces_it() -> None:
    @torch.compile(backend="eager", fullgraph=True)
    def twice(*arguments: Any) -> torch.Tensor:
        return 2 * attention_varlen(*arguments, causal=True)

    arguments = (Q, K, V, CU_Q, CU_K, MAX_Q, MAX_K)
    assert torch.equal(twice(*arguments), 2 * attention_varlen(*arguments, causal=True))
    q = Q.clone().requires_grad_()
    (grad,) = torch.autograd.grad(twice(q, *arguments[1:]).sum(), q)
    (expected,) = torch.autograd.grad(2 * attention_varlen(q, *arguments[1:], causal=True).sum(), q)
    assert torch.equal(grad, expected)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA or ROCm device")
class TestOnAGpu:
    def test_packing_changes_little(self) -> None:
        arguments = packed([5, 0, 131, 64, 1, 200], [300, 7, 131, 0, 64, 129], heads=7, head_dim=128, device="cuda")
        for causal in (False, True):
            out, lse = attention_varlen(*arguments, causal=causal, return_lse=True)
            expected_out, expected_lse = one_by_one(*arguments, causal=causal)
            torch.testing.assert_close(out, expected_out, rtol=0, atol=2e-2)
            torch.testing.assert_close(lse, expected_lse, rtol=0, atol=1e-4)

    def test_packing_changes_gradients_little(self) -> None:
        q, k, v, *rest = packed(
            [5, 0, 131, 64, 1, 200], [300, 7, 131, 0, 64, 129], heads=7, head_dim=128, device="cuda"
        )
        leaves = [x.requires_grad_() for x in (q, k, v)]
        for causal in (False, True):
            out, lse = attention_varlen(*leaves, *rest, causal=causal, return_lse=True)
            grads = torch.randn_like(out), torch.randn_like(lse).masked_fill(~lse.isfinite(), 0)
            mine = torch.autograd.grad((out, lse), leaves, grads, retain_graph=True)
            expected = torch.autograd.grad(one_by_one(*leaves, *rest, causal=causal), leaves, grads)
            for own, other in zip(mine, expected, strict=True):
                torch.testing.assert_close(own, other, rtol=2e-2, atol=6e-2)
            for _ in range(20):
                again = torch.autograd.grad((out, lse), leaves, grads, retain_graph=True)
                assert all(torch.equal(x, y) for x, y in zip(again, mine, strict=True))

    def test_nothing_waits_and_a_graph_takes_new_lengths(self) -> None:
        arguments = packed([50, 30, 48], [50, 30, 48], head_dim=128, device="cuda")
        attention_varlen(*arguments, causal=True)
        graph = torch.cuda.CUDAGraph()
        torch.cuda.set_sync_debug_mode("error")
        try:
            with torch.cuda.graph(graph):
                out = attention_varlen(*arguments, causal=True)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        bounds = torch.tensor([0, 10, 60, 110], dtype=torch.int32, device="cuda")
        arguments[3].copy_(bounds)
        arguments[4].copy_(bounds)
        graph.replay()
        assert math.isfinite(float(out.float().sum()))
        assert torch.equal(out[:110], attention_varlen(*arguments, causal=True)[:110])
