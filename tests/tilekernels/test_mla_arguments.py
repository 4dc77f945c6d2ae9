"""`mla_decode` takes what FlashMLA does, by the names of `attention_decode`, and refuses the rest by name."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import reference_decode
from tilekernels import mla_decode


def arguments(heads=3, seqlen_q=1, lengths=(37, 20), page=16):
    torch.manual_seed(0)
    batch, pages = len(lengths), -(-48 // page)
    return {
        "q": torch.randn(batch, seqlen_q, heads, 576),
        "kv_cache": torch.randn(batch * pages, page, 1, 576),
        "block_table": torch.randperm(batch * pages).view(batch, pages).int(),
        "cache_seqlens": torch.tensor(lengths).int(),
    }


def call(given=None, **changes):
    given = {**(given or arguments()), **changes}
    return mla_decode(given.pop("q"), given.pop("kv_cache"), **given)


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"q": 1}, TypeError, "q must be a torch.Tensor, got int"),
        ({"q": torch.zeros(2, 3, 576)}, ValueError, "q must have 4 dimensions"),
        ({"q": torch.zeros(2, 1, 3, 512)}, ValueError, r"q must have shape \(batch, seqlen_q, heads, 576\)"),
        ({"q": torch.zeros(2, 1, 0, 576)}, ValueError, r"q must have shape \(batch, seqlen_q, heads, 576\)"),
        ({"q": torch.zeros(2, 1, 3, 576).half()}, TypeError, "kv_cache has dtype float32, expected q's dtype float16"),
        ({"kv_cache": torch.zeros(6, 16, 2, 576)}, ValueError, "kv_cache must have shape"),
        ({"kv_cache": torch.zeros(6, 12, 576)}, ValueError, "kv_cache must have pages of a power of two"),
        ({"kv_cache": None}, TypeError, "kv_cache must be a torch.Tensor, got NoneType"),
        ({"block_table": torch.zeros(2, 3).long()}, TypeError, "block_table must be int32, got int64"),
        ({"block_table": None}, ValueError, r"without block_table kv_cache must have shape \(2, seqlen_cache, 576\)"),
        ({"cache_seqlens": 49}, ValueError, "between 0 and the 48 keys there is room for, got 49"),
        ({"causal": 1}, TypeError, "causal must be a bool"),
        ({"num_splits": 129}, ValueError, "num_splits must be between 0"),
        ({"softmax_scale": -1.0}, ValueError, "softmax_scale must be above 0"),
        ({"policy": "best"}, ValueError, "policy must be one of"),
        ({"q": torch.zeros(2, 1, 3, 576, requires_grad=True)}, NotImplementedError, "q requires grad"),
    ],
)
def test_what_does_not_go_together_is_refused(changes, error, said):
    with pytest.raises(error, match=said):
        call(**changes)


def test_a_cache_may_lack_the_head_or_lie_in_one_piece_or_have_gaps_between_pages():
    given = arguments()
    expected = call()
    assert torch.equal(call(kv_cache=given["kv_cache"][:, :, 0]), expected)
    apart = torch.zeros(6, 20, 1, 576)
    apart[:, :16] = given["kv_cache"]
    assert torch.equal(call(kv_cache=apart[:, :16]), expected)
    whole = given["kv_cache"][given["block_table"].long()].view(2, 48, 576)
    assert torch.equal(call(kv_cache=whole, block_table=None), expected)
    with pytest.raises(ValueError, match="kv_cache must be contiguous within a page"):
        call(kv_cache=torch.zeros(6, 16, 1, 580)[..., :576])


@settings(max_examples=20, deadline=None, derandomize=True)
@given(
    heads=st.integers(1, 20),
    seqlen_q=st.integers(1, 8),
    lengths=st.lists(st.integers(0, 48), min_size=1, max_size=3),
    page=st.sampled_from([1, 16, 64]),
    causal=st.booleans(),
    num_splits=st.integers(0, 5),
    policy=st.sampled_from(["adaptive", "fixed"]),
)
def test_it_is_right_for_any_shape(heads, seqlen_q, lengths, page, causal, num_splits, policy):  # noqa: PLR0917
    given = arguments(heads, seqlen_q, tuple(lengths), page)
    options = {"causal": causal, "softmax_scale": 0.07}
    out, lse = call(given, **options, num_splits=num_splits, policy=policy, return_softmax_lse=True)
    keys = given["kv_cache"]
    tables = given["block_table"], given["cache_seqlens"]
    reference_decode.check(given["q"], keys, keys[..., :512], *tables, out, lse, **options)


@pytest.mark.parametrize("shape", [(0, 1), (2, 0)])
def test_no_rows_give_none(shape):
    given = arguments()
    batch, seqlen_q = shape
    out, lse = call(
        q=torch.zeros(batch, seqlen_q, 3, 576),
        block_table=given["block_table"][:batch],
        cache_seqlens=given["cache_seqlens"][:batch],
        return_softmax_lse=True,
    )
    assert out.shape == (batch, seqlen_q, 3, 512)
    assert lse.shape == (batch, 3, seqlen_q)


def test_nothing_beyond_a_length_is_read():
    given = arguments()
    expected = call(num_splits=2)
    cache, table = given["kv_cache"].clone(), given["block_table"].clone()
    for entry, length in enumerate([37, 20]):
        for place in range(length, 48):
            cache[table[entry, place // 16], place % 16] = torch.nan
    table[1, 2] = -(1 << 30)
    assert torch.equal(call(kv_cache=cache, block_table=table, num_splits=2), expected)


def test_torch_compile_traces_it_as_one_graph():
    given = arguments()

    def step(q, kv, table, lengths):
        out, lse = mla_decode(2 * q, kv, cache_seqlens=lengths, block_table=table, return_softmax_lse=True)
        return out + 1, lse

    tensors = [given[name] for name in ("q", "kv_cache", "block_table", "cache_seqlens")]
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    for a, b in zip(compiled(*tensors), step(*tensors), strict=True):
        assert torch.equal(a, b)


def test_the_operator_agrees_with_its_fake():
    from tilekernels.operators_decode import mla

    given = arguments(seqlen_q=2)
    strided = given["q"].transpose(0, 1).contiguous().transpose(0, 1)
    tensors = strided, given["kv_cache"], given["cache_seqlens"], given["block_table"]
    torch.library.opcheck(mla, (*tensors, 0.125, True, 0, "adaptive"))
