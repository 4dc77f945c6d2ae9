"""Decoding on a GPU: values over pages, groups, rows and splits; bits over repeats; graphs; other streams."""

from __future__ import annotations

import pytest
import torch

from benchmarks import reference_decode
from tilekernels import attention_decode, mla_decode

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA or ROCm device"),
]

LENGTHS = (1, 63, 64, 65, 1000, 2049, 0)


def caches(page, kv_heads, head_dim, dtype, seed=0):
    generator = torch.Generator("cuda").manual_seed(seed)
    pages = -(-max(LENGTHS) // page)
    blocks = len(LENGTHS) * pages
    k, v = (
        torch.randn(blocks, page, kv_heads, head_dim, device="cuda", generator=generator, dtype=dtype) for _ in "kv"
    )
    table = torch.randperm(blocks, device="cuda", generator=generator).view(len(LENGTHS), pages).int()
    return k, v, table, torch.tensor(LENGTHS, device="cuda", dtype=torch.int32)


def attend(*, page=16, rows=1, heads=28, kv_heads=4, head_dim=128, dtype=torch.bfloat16, **options):
    k, v, table, lengths = caches(page, kv_heads, head_dim, dtype)
    q = torch.randn(len(LENGTHS), rows, heads, head_dim, device="cuda", dtype=dtype)
    options = {"causal": True, "softmax_scale": head_dim**-0.5, **options}
    out, lse = attention_decode(q, k, v, cache_seqlens=lengths, block_table=table, return_softmax_lse=True, **options)
    scale, causal = options["softmax_scale"], options["causal"]
    reference_decode.check(q, k, v, table, lengths, out, lse, causal=causal, softmax_scale=scale)


@pytest.mark.parametrize("page", [1, 16, 64, 256])
@pytest.mark.parametrize("policy", ["adaptive", "fixed"])
def test_every_page_size_is_right(page, policy):
    attend(page=page, policy=policy)


@pytest.mark.parametrize("rows", [2, 3, 5, 8, 70])
def test_several_rows_are_right(rows):
    attend(rows=rows)


@pytest.mark.parametrize("heads", [(14, 2), (40, 8), (8, 1), (4, 4)])
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_every_group_is_right(heads, head_dim, dtype):
    attend(heads=heads[0], kv_heads=heads[1], head_dim=head_dim, dtype=dtype)


@pytest.mark.parametrize("num_splits", [1, 2, 7, 128])
def test_any_number_of_splits_is_right(num_splits):
    attend(num_splits=num_splits)


@pytest.mark.parametrize("page", [1, 64])
@pytest.mark.parametrize("heads", [5, 16, 128])
@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("num_splits", [0, 1])
def test_latent_attention_is_right(page, heads, rows, num_splits):
    keys, _, table, lengths = caches(page, 1, 576, torch.bfloat16)
    q = torch.randn(len(LENGTHS), rows, heads, 576, device="cuda", dtype=torch.bfloat16)
    options = {"causal": True, "softmax_scale": 192**-0.5}
    out, lse = mla_decode(
        q,
        keys,
        cache_seqlens=lengths,
        block_table=table,
        num_splits=num_splits,
        return_softmax_lse=True,
        **options,
    )
    reference_decode.check(q, keys, keys[..., :512], table, lengths, out, lse, **options)


def calls():
    k, v, table, lengths = caches(16, 4, 128, torch.bfloat16)
    keys, _, latent_table, _ = caches(16, 1, 576, torch.bfloat16)
    q = torch.randn(len(LENGTHS), 1, 28, 128, device="cuda", dtype=torch.bfloat16)
    wide = torch.randn(len(LENGTHS), 1, 16, 576, device="cuda", dtype=torch.bfloat16)
    return lengths, {
        "attention_decode": lambda: attention_decode(q, k, v, cache_seqlens=lengths, block_table=table),
        "mla_decode": lambda: mla_decode(wide, keys, cache_seqlens=lengths, block_table=latent_table),
    }


@pytest.mark.parametrize("name", ["attention_decode", "mla_decode"])
def test_fifty_calls_give_the_same_bits(name):
    call = calls()[1][name]
    first = call()
    assert all(torch.equal(call(), first) for _ in range(50))


@pytest.mark.parametrize("name", ["attention_decode", "mla_decode"])
def test_a_captured_call_follows_lengths_that_change(name):
    lengths, both = calls()
    call = both[name]
    call()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = call()
    lengths.copy_(lengths.flip(0))
    graph.replay()
    assert torch.equal(captured, call())


@pytest.mark.parametrize("name", ["attention_decode", "mla_decode"])
def test_it_runs_on_the_current_stream(name):
    call = calls()[1][name]
    expected = call()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(10_000_000)
        out = call()
        done = stream.record_event()
    assert not done.query()  # behind the sleep, and nothing waited for it
    done.synchronize()
    assert torch.equal(out, expected)
