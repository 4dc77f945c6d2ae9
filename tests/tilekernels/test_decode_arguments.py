"""`attention_decode` takes what flash-attn's does, and refuses the rest by name."""

from __future__ import annotations

import pytest
import torch

from tilekernels import attention_decode


def arguments(batch=2, seqlen_q=1, heads=4):
    torch.manual_seed(0)
    pages = 3
    q = torch.randn(batch, seqlen_q, heads, 64)
    k, v = (torch.randn(batch * pages, 16, 2, 64) for _ in range(2))
    table = torch.randperm(batch * pages).view(batch, pages).int()
    return {
        "q": q,
        "k_cache": k,
        "v_cache": v,
        "block_table": table,
        "cache_seqlens": torch.tensor([37, 20][:batch]).int(),
    }


def call(**changes):
    given = {**arguments(), **changes}
    return attention_decode(given.pop("q"), given.pop("k_cache"), given.pop("v_cache"), **given)


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"q": 1}, TypeError, "q must be a torch.Tensor, got int"),
        ({"q": torch.zeros(2, 4, 64)}, ValueError, "q must have 4 dimensions"),
        ({"q": torch.zeros(2, 1, 4, 64, dtype=torch.float64)}, TypeError, "k_cache has dtype float32, expected q's"),
        ({"q": torch.zeros(2, 1, 3, 64)}, ValueError, "divides q's 3"),
        ({"q": torch.zeros(2, 1, 4, 128)}, ValueError, "head_dim 128 as its last extent"),
        ({"v_cache": torch.zeros(6, 16, 1, 64)}, ValueError, "v_cache must have k_cache's shape"),
        ({"k_cache": torch.zeros(6, 12, 2, 64), "v_cache": torch.zeros(6, 12, 2, 64)}, ValueError, "power of two"),
        ({"block_table": torch.zeros(2, 3).long()}, TypeError, r"block_table must be int32, got int64; call .to"),
        ({"block_table": torch.zeros(3, 3).int()}, ValueError, r"block_table must have shape \(2, pages\)"),
        ({"block_table": [[0]]}, TypeError, "block_table must be an int32 tensor, got list"),
        ({"block_table": None}, ValueError, r"without block_table k_cache must have shape \(2, seqlen_cache"),
        ({"cache_seqlens": torch.zeros(3).int()}, ValueError, r"cache_seqlens must have shape \(2,\)"),
        ({"cache_seqlens": torch.zeros(2)}, TypeError, "cache_seqlens must be int32, got float32"),
        ({"cache_seqlens": 49}, ValueError, "between 0 and the 48 keys there is room for, got 49"),
        ({"causal": 1}, TypeError, "causal must be a bool"),
        ({"num_splits": -1}, ValueError, "num_splits must be between 0"),
        ({"num_splits": 2.0}, TypeError, "num_splits must be an int"),
        ({"softmax_scale": 0.0}, ValueError, "softmax_scale must be above 0"),
        ({"policy": "best"}, ValueError, "policy must be one of"),
        ({"policy": 3}, TypeError, "policy must be a string"),
        ({"return_softmax_lse": None}, TypeError, "return_softmax_lse must be a bool"),
        ({"q": torch.zeros(2, 1, 4, 64, requires_grad=True)}, NotImplementedError, "q requires grad"),
        ({"q": torch.zeros(2, 1, 4, 64).to_sparse()}, TypeError, "q must be a dense tensor"),
    ],
)
def test_what_does_not_go_together_is_refused(changes, error, said):
    with pytest.raises(error, match=said):
        call(**changes)


def test_a_cache_that_would_have_to_be_copied_is_refused():
    given = arguments()
    turned = given["k_cache"].transpose(1, 2).contiguous().transpose(1, 2)
    with pytest.raises(ValueError, match="k_cache must be contiguous within a page"):
        call(k_cache=turned)
    wide = torch.zeros(6, 16, 2, 65)[..., :64]
    with pytest.raises(ValueError, match="v_cache must be contiguous within a page"):
        call(v_cache=wide)


def test_pages_that_keep_k_and_v_together_are_read_where_they_are():
    given = arguments()
    both = torch.stack([given["k_cache"], given["v_cache"]], dim=1)
    assert not both[:, 0].is_contiguous()
    assert torch.equal(call(k_cache=both[:, 0], v_cache=both[:, 1]), call())


def test_strided_rows_and_tables_give_the_same():
    given = arguments()
    q = torch.zeros(2, 4, 1, 64)
    q.copy_(given["q"].transpose(1, 2))
    table = torch.zeros(2, 6, dtype=torch.int32)
    table[:, ::2] = given["block_table"]
    assert torch.equal(call(q=q.transpose(1, 2), block_table=table[:, ::2]), call())


@pytest.mark.parametrize("seqlen", [48, 64, 37])
def test_a_contiguous_cache_is_one_of_pages(seqlen):
    q = arguments()["q"]
    k, v = torch.randn(2, seqlen, 2, 64), torch.randn(2, seqlen, 2, 64)
    lengths = torch.tensor([seqlen, 9], dtype=torch.int32)
    table = torch.arange(2 * seqlen, dtype=torch.int32).view(2, seqlen)
    paged = attention_decode(
        q, k.view(-1, 1, 2, 64), v.view(-1, 1, 2, 64), cache_seqlens=lengths, block_table=table, num_splits=2
    )
    assert torch.equal(attention_decode(q, k, v, cache_seqlens=lengths, num_splits=2), paged)


def test_one_length_for_all_and_none_for_all_there_is_room_for():
    assert torch.equal(call(cache_seqlens=48), call(cache_seqlens=None))
    assert torch.equal(call(cache_seqlens=20)[1], call()[1])


@pytest.mark.parametrize(("batch", "seqlen_q"), [(0, 1), (2, 0)])
def test_no_rows_give_none(batch, seqlen_q):
    given = arguments(batch=batch, seqlen_q=seqlen_q)
    q, k, v = (
        torch.zeros(2, 16, 2, 64) if not given[n].numel() and n != "q" else given[n]
        for n in ("q", "k_cache", "v_cache")
    )
    out, lse = attention_decode(q, k, v, block_table=given["block_table"], return_softmax_lse=True)
    assert out.shape == q.shape
    assert lse.shape == (batch, 4, seqlen_q)


@pytest.mark.parametrize("pages", [0, 3])
def test_rows_that_see_nothing_are_zeros(pages):
    table = arguments()["block_table"][:, :pages].contiguous()
    out, lse = call(block_table=table, cache_seqlens=torch.zeros(2).int(), return_softmax_lse=True)
    assert (out == 0).all()
    assert (lse == -torch.inf).all()


def test_nothing_beyond_a_length_is_read():
    given = arguments()
    expected = call(num_splits=2)
    k, v, table = given["k_cache"].clone(), given["v_cache"].clone(), given["block_table"].clone()
    for entry, length in enumerate([37, 20]):
        for place in range(length, 48):
            k[table[entry, place // 16], place % 16] = torch.nan
            v[table[entry, place // 16], place % 16] = torch.inf
    table[1, 2] = -(1 << 30)
    assert torch.equal(call(k_cache=k, v_cache=v, block_table=table, num_splits=2), expected)


@pytest.mark.parametrize("num_splits", [1, 2, 5, 128])
def test_any_number_of_splits_gives_the_same_but_for_rounding(num_splits):
    (one, one_lse), (other, other_lse) = (
        call(num_splits=n, return_softmax_lse=True, causal=True) for n in (1, num_splits)
    )
    torch.testing.assert_close(one, other, rtol=0, atol=2e-6)
    torch.testing.assert_close(one_lse, other_lse, rtol=0, atol=2e-6)


def test_torch_compile_traces_it_as_one_graph():
    given = arguments()

    def step(q, k, v, table, lengths):
        out, lse = attention_decode(
            2 * q, k, v, cache_seqlens=lengths, block_table=table, causal=True, return_softmax_lse=True
        )
        return out + 1, lse

    tensors = [given[name] for name in ("q", "k_cache", "v_cache", "block_table", "cache_seqlens")]
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    for a, b in zip(compiled(*tensors), step(*tensors), strict=True):
        assert torch.equal(a, b)


def test_the_operator_agrees_with_its_fake():
    from tilekernels.operators_decode import decode

    given = arguments(seqlen_q=2)
    tensors = (given["q"].transpose(0, 1).contiguous().transpose(0, 1), given["k_cache"], given["v_cache"])
    torch.library.opcheck(decode, (*tensors, given["cache_seqlens"], given["block_table"], 0.125, True, 0, "adaptive"))
