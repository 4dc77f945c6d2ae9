"""What attention() takes, what it refuses, and how it says so. The suite's tests judge its numbers more finely."""

import math
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from tilekernels import attention
from tilekernels.forward import ForwardKernel


def draw(
    *,
    batch: int = 2,
    seqlen_q: int = 33,
    seqlen_k: int = 47,
    heads: int = 6,
    kv_heads: int = 2,
    head_dim: int = 64,
    dtype: torch.dtype = torch.float32,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = ((batch, seqlen_q, heads, head_dim), *[(batch, seqlen_k, kv_heads, head_dim)] * 2)
    q, k, v = (torch.randn(shape, generator=generator).to(dtype) for shape in shapes)
    return q, k, v


def reference(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, scale: float | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    q, k, v = q.double(), *(x.double().repeat_interleave(q.shape[2] // k.shape[2], dim=2) for x in (k, v))
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * (scale or 1 / math.sqrt(q.shape[3]))
    if causal:
        seen = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool).tril(k.shape[1] - q.shape[1])
        scores = scores.masked_fill(~seen, -math.inf)
    weights = scores.softmax(dim=-1).nan_to_num(0.0)
    return torch.einsum("bhqk,bkhd->bqhd", weights, v), scores.logsumexp(dim=-1)


def close(got: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(got.double(), expected, rtol=0, atol=1e-5 if got.dtype == torch.float32 else 5e-3)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_output_and_lse(dtype: torch.dtype, causal: bool) -> None:
    q, k, v = draw(dtype=dtype)
    out, lse = attention(q, k, v, causal=causal, return_lse=True)
    expected_out, expected_lse = reference(q, k, v, causal)
    assert (out.shape, out.dtype, out.is_contiguous()) == (q.shape, dtype, True)
    assert (lse.shape, lse.dtype) == ((2, 6, 33), torch.float32)
    close(out, expected_out)
    close(lse, expected_lse)
    assert torch.equal(attention(q, k, v, causal=causal), out)


@pytest.mark.parametrize("scale", [0.01, 1, 0.5])
def test_softmax_scale(scale: float) -> None:
    q, k, v = draw()
    close(attention(q, k, v, softmax_scale=scale), reference(q, k, v, False, scale)[0])


def test_both_policies_agree() -> None:
    q, k, v = draw(seqlen_q=100, seqlen_k=130)
    close(attention(q, k, v, causal=True, policy="fixed"), attention(q, k, v, causal=True).double())


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "sizes", [{"batch": 0}, {"seqlen_q": 0}, {"seqlen_k": 0}, {"seqlen_q": 0, "seqlen_k": 0}, {"seqlen_q": 90}], ids=str
)
def test_empty_and_fully_masked(sizes: dict[str, int], causal: bool) -> None:
    q, k, v = draw(**sizes)
    out, lse = attention(q, k, v, causal=causal, return_lse=True)
    expected_out, expected_lse = reference(q, k, v, causal)
    assert out.shape == expected_out.shape
    assert lse.shape == expected_lse.shape
    close(out, expected_out)
    close(lse, expected_lse)
    if k.shape[1] == 0:
        assert torch.count_nonzero(out) == 0
        assert bool((lse == -math.inf).all())


def packed(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> list[torch.Tensor]:
    """Views of one (batch, seqlen, q and k and v heads, head_dim) tensor, as a fused projection leaves them."""
    length = min(q.shape[1], k.shape[1])
    whole = torch.cat([x[:, :length] for x in (q, k, v)], dim=2)
    return list(whole.split([q.shape[2], k.shape[2], v.shape[2]], dim=2))


def misaligned(tensor: torch.Tensor) -> torch.Tensor:
    """The same values, contiguous, one element off any alignment."""
    room = torch.empty(tensor.numel() + 1, dtype=tensor.dtype)
    room[1:] = tensor.flatten()
    return room[1:].view(tensor.shape)


STRIDES = {
    "heads before lengths": lambda *x: [t.transpose(1, 2).contiguous().transpose(1, 2) for t in x],
    "packed": packed,
    "every other row": lambda *x: [t.repeat_interleave(2, dim=1)[:, ::2] for t in x],
    "last dimension apart": lambda *x: [t.transpose(2, 3).contiguous().transpose(2, 3) for t in x],
    "expanded": lambda q, k, v: [q, k[:1].expand_as(k), v[:, :1].expand_as(v)],
    "misaligned": lambda *x: [misaligned(t) for t in x],
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("name", STRIDES)
def test_strided_inputs(name: str, dtype: torch.dtype) -> None:
    inputs = STRIDES[name](*draw(dtype=dtype))
    before = [tensor.clone() for tensor in inputs]
    assert not all(tensor.is_contiguous() and tensor.data_ptr() % 16 == 0 for tensor in inputs)
    close(attention(*inputs, causal=True), reference(*inputs, True)[0])
    assert all(torch.equal(tensor, old) for tensor, old in zip(inputs, before, strict=True))


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[tuple]:
    """The arguments of every launch, none of which takes place."""
    given: list[tuple] = []
    monkeypatch.setattr(ForwardKernel, "launch", lambda self, *arguments: given.append(arguments))
    return given


def test_inputs_that_are_ready_are_not_copied(launches: list[tuple]) -> None:
    q, k, v = draw()
    attention(q, k, v)
    ((got_q, got_k, got_v, *_),) = launches
    assert got_q is q
    assert got_k is k
    assert got_v is v


@pytest.mark.parametrize("name", STRIDES)
def test_kernels_are_given_contiguous_aligned_tensors(name: str, launches: list[tuple]) -> None:
    inputs = STRIDES[name](*draw(dtype=torch.float16))
    attention(*inputs)
    ((*got, out, lse, _),) = launches
    for tensor in (*got, out, lse):
        assert tensor.is_contiguous()
        assert tensor.data_ptr() % 16 == 0
    assert all(torch.equal(tensor, given) for tensor, given in zip(got, inputs, strict=True))


@pytest.mark.parametrize("sizes", [{"batch": 0}, {"seqlen_q": 0}, {"seqlen_k": 0}], ids=str)
def test_nothing_to_compute_launches_nothing(sizes: dict[str, int], launches: list[tuple]) -> None:
    attention(*draw(**sizes), causal=True)
    assert launches == []


Q, K, V = draw()


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"q": [1.0]}, TypeError, "q must be a torch.Tensor, got list"),
        ({"v": None}, TypeError, "v must be a torch.Tensor, got NoneType"),
        ({"k": K.to_sparse()}, TypeError, "k must be a dense tensor, got layout torch.sparse_coo"),
        ({"q": Q[0]}, ValueError, r"q must have 4 dimensions \(batch, seqlen, heads, head_dim\), got \(33, 6, 64\)"),
        ({"k": K.half()}, TypeError, "k has dtype float16, expected q's dtype float32"),
        ({"v": V.half()}, TypeError, "v has dtype float16, expected q's dtype float32"),
        ({"k": K.to("meta")}, ValueError, "k is on meta, expected q's device cpu"),
        (
            {"k": K[:1], "v": V[:1]},
            ValueError,
            r"k must have shape \(2, seqlen_k, kv_heads, 64\) to go with q, got \(1, ",
        ),
        ({"k": K[..., :32]}, ValueError, r"k must have shape \(2, seqlen_k, kv_heads, 64\)"),
        ({"v": V[:, :-1]}, ValueError, r"v must have k's shape \(2, 47, 2, 64\), got \(2, 46, 2, 64\)"),
        ({"q": Q[:, :, :5]}, ValueError, r"k must have a number of heads that divides q's 5 .*, got \(2, 47, 2, 64\)"),
        ({"k": K[:, :, :0], "v": V[:, :, :0]}, ValueError, "k must have a number of heads that divides q's 6"),
        ({"q": Q[:, :, :0]}, ValueError, "k must have a number of heads that divides q's 0"),
        (dict(zip("qkv", draw(head_dim=80), strict=True)), ValueError, r"head_dim must be one of \(64, 128\), got 80"),
        (
            dict(zip("qkv", draw(dtype=torch.float64), strict=True)),
            TypeError,
            "q has dtype float64, which is not supported on cpu",
        ),
        (
            dict(zip("qkv", draw(dtype=torch.bfloat16), strict=True)),
            TypeError,
            "q has dtype bfloat16, .* use float16 or float32",
        ),
        (
            dict(zip("qkv", (x.to("meta") for x in (Q, K, V)), strict=True)),
            ValueError,
            "q is on meta, expected a CUDA, ROCm or CPU device",
        ),
        ({"softmax_scale": 0.0}, ValueError, "softmax_scale must be above 0 .* and at most 1e6, got 0.0"),
        ({"softmax_scale": 1e-300}, ValueError, "softmax_scale must be above 0 .*, got 1e-300"),
        ({"softmax_scale": 10**5000}, ValueError, "softmax_scale must be above 0 .*, got inf"),
        ({"softmax_scale": -1.0}, ValueError, "softmax_scale must be above 0"),
        ({"softmax_scale": math.nan}, ValueError, "softmax_scale must be above 0 .*, got nan"),
        ({"softmax_scale": math.inf}, ValueError, "softmax_scale must be above 0 .*, got inf"),
        ({"softmax_scale": "1"}, TypeError, "softmax_scale must be a number, got '1'"),
        ({"softmax_scale": True}, TypeError, "softmax_scale must be a number, got True"),
        ({"causal": 1}, TypeError, "causal must be a bool, got 1"),
        ({"return_lse": "no"}, TypeError, "return_lse must be a bool, got 'no'"),
        ({"policy": "fastest"}, ValueError, "policy must be one of"),
        ({"policy": []}, TypeError, r"policy must be a string, got \[\]"),
        ({"k": torch.nested.as_nested_tensor([K[0], K[1]])}, TypeError, "k must be a dense tensor, got a nested one"),
    ],
)
def test_bad_arguments_are_named(changes: dict[str, Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        attention(**{"q": Q, "k": K, "v": V, **changes})


def test_a_tensor_without_memory_is_refused() -> None:
    with FakeTensorMode() as mode, pytest.raises(TypeError, match="q must be a tensor with memory of its own"):
        attention(*(mode.from_tensor(x) for x in (Q, K, V)))


def test_a_negated_view_counts_as_what_it_stands_for() -> None:
    assert torch.equal(attention(torch._neg_view(Q), K, V), attention(-Q, K, V))


@pytest.mark.parametrize("causal", [False, True])
def test_the_least_scale_weighs_all_visible_keys_alike(causal: bool) -> None:
    close(attention(Q, K, V, causal=causal, softmax_scale=2.0**-126), reference(Q, K, V, causal, 2.0**-126)[0])


def test_not_a_number_in_not_a_number_out() -> None:
    k = K.clone()
    k[0, 3] = math.nan
    out, lse = attention(Q, k, V, return_lse=True)
    assert bool(out[0].isnan().all())
    assert bool(lse[0].isnan().all())
    assert not bool(out[1].isnan().any())


def test_a_small_stack_is_enough() -> None:
    script = (
        "import threading, torch\n"
        "from tilekernels import attention\n"
        "threading.stack_size(512 * 1024)\n"
        "q = torch.randn(1, 80, 2, 128)\n"
        "expected, got = attention(q, q, q, policy='fixed'), []\n"
        "t = threading.Thread(target=lambda: got.append(attention(q, q, q, policy='fixed')))\n"
        "t.start(); t.join()\n"
        "assert torch.equal(got[0], expected)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


gpu = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA or ROCm device")]


class TestOnAGpu:
    pytestmark = gpu

    def inputs(self, **sizes: int) -> list[torch.Tensor]:
        return [tensor.cuda() for tensor in draw(dtype=torch.bfloat16, **sizes)]

    def test_nothing_waits_for_the_device(self) -> None:
        q, k, v = self.inputs()
        attention(q, k, v, causal=True)
        torch.cuda.set_sync_debug_mode("error")
        try:
            attention(q, k, v, causal=True)
            attention(q.transpose(1, 2).contiguous().transpose(1, 2), k, v, causal=True)
            attention(q, k[:, :0], v[:, :0], causal=True)
        finally:
            torch.cuda.set_sync_debug_mode("default")

    def test_it_can_be_captured_in_a_graph(self) -> None:
        q, k, v = self.inputs()
        expected = attention(q, k, v, causal=True)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = attention(q, k, v, causal=True)
        q.copy_(2 * q)
        graph.replay()
        assert torch.equal(out, attention(q, k, v, causal=True))
        assert not torch.equal(out, expected)

    @pytest.mark.parametrize("name", [name for name in STRIDES if name != "misaligned"])
    def test_strided_inputs(self, name: str) -> None:
        inputs = STRIDES[name](*self.inputs())
        expected, _ = reference(*(tensor.cpu() for tensor in inputs), True)
        torch.testing.assert_close(attention(*inputs, causal=True).cpu().double(), expected, rtol=0, atol=2e-2)

    @pytest.mark.parametrize("off", [1, 2, 4, 8, 16, 32])
    def test_any_alignment(self, off: int) -> None:
        q, k, v = self.inputs()
        room = torch.empty(q.numel() + off, dtype=q.dtype, device="cuda")
        room[off:] = q.flatten()
        assert torch.equal(attention(room[off:].view(q.shape), k, v), attention(q, k, v))

    def test_the_current_stream_is_used(self) -> None:
        q, k, v = self.inputs()
        expected = attention(q, k, v)
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(200_000_000)
            q = q.clone()
            out = attention(q, k, v)
        assert not stream.query()
        stream.synchronize()
        assert torch.equal(out, expected)

    @pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two devices")
    def test_a_device_that_is_not_the_current_one(self) -> None:
        q, k, v = self.inputs()
        expected = attention(q, k, v)
        out = attention(q.to("cuda:1"), k.to("cuda:1"), v.to("cuda:1"))
        assert out.device == torch.device("cuda:1")
        assert torch.equal(out.to("cuda:0"), expected)

    def test_float32_is_refused(self) -> None:
        q, k, v = (tensor.cuda() for tensor in draw())
        with pytest.raises(
            TypeError, match="q has dtype float32, which is not supported on cuda:0; use float16 or bfloat16"
        ):
            attention(q, k, v)
