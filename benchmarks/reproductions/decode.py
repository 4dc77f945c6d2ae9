"""Attention over a paged cache as a problem of its own: inputs, one launch, what it should compute, and what it has to read.

Needs torch alone. A length is that of the longest sequence. Every row is checked against float64, for a few sequences.
Tolerance of O: twice the error of the same computation in the inputs' precision, plus twice what adding and subtracting 0.3
rounds away (the rule of FlashAttention-3's tests), plus what float32 scores are rounded by; of LSE: twice the error of float32,
plus sqrt(D) * 2**-24 * the largest score that could be (Higham and Mary 2019, doi 10.1137/18M1226312).
"""

import math

import torch

SEQUENCES = 8  # that are checked: first, last, and some between


def build(kernel, dialect, spec, tile):
    """The TileLang kernels of one launch: a second one, where the keys are split, combines the parts."""
    spec.split = tile.splits > 1
    made = kernel.build(spec, tile, dialect)
    return made if isinstance(made, tuple) else (made,)


def inputs(length, shape, device):
    """Q, the rows of both caches, pages in any order, and each sequence's keys; the same numbers every time."""
    generator = torch.Generator(device).manual_seed(length)
    batch, page = shape["batch"], shape["page"]
    pages = -(-length // page)
    rows = (batch * pages * page, shape["kv_heads"], shape["head_dim"])
    sizes = [(batch, shape["rows"], shape["heads"], shape["head_dim"]), rows, rows]
    drawn = [torch.randn(s, generator=generator, device=device).to(getattr(torch, shape["dtype"])) for s in sizes]
    table = torch.randperm(batch * pages, generator=generator, device=device).view(batch, pages).int()
    return [*drawn, table, torch.tensor(_lengths(length, shape), dtype=torch.int32, device=device)]


def outputs(length, shape, device, tile):
    """Parts, O and LSE, full of NaN: what a kernel leaves out shows. A part that is the only one is the result."""
    out, lse = (shape["batch"], shape["rows"], shape["heads"], shape["head_dim"]), _lse(shape)
    dtype = getattr(torch, shape["dtype"])
    parts_dtype = torch.float32 if tile.splits > 1 else dtype
    parts = torch.full((tile.splits, *out), math.nan, device=device, dtype=parts_dtype)
    parts_lse = torch.full((tile.splits, *lse), math.nan, device=device)
    if tile.splits == 1:
        return [parts, parts_lse, parts[0], parts_lse[0]]
    return [parts, parts_lse, torch.full(out, math.nan, device=device, dtype=dtype), parts_lse[0].clone()]


def launch(steps, tensors, shape):
    """Enqueue one launch."""
    *given, out, lse = tensors
    steps[0](*given, *[shape[name] for name in ("k_stride", "v_stride", "page_shift", "causal", "softmax_scale")])
    if steps[1:]:
        steps[1](*given[-2:], out, lse)


def error(tensors, shape):
    """Largest error over tolerance, of O and LSE; above 1 is wrong."""
    q, k, v, table, lengths, _, _, out, lse = tensors
    page, group, worst = shape["page"], shape["heads"] // shape["kv_heads"], 0.0
    for entry in torch.linspace(0, len(q) - 1, min(SEQUENCES, len(q))).long().unique().tolist():
        length = int(lengths[entry])
        keys = torch.arange(length, device=q.device)
        rows = table[entry, keys // page].long() * page + keys % page
        for kv in range(shape["kv_heads"]):
            heads = slice(kv * group, (kv + 1) * group)
            parts = q[entry, :, heads].transpose(0, 1), k[rows, kv], v[rows, kv]
            longest = [part.double().norm(dim=-1).max() for part in parts[:2]]
            score = 2.0**-24 * shape["softmax_scale"] * longest[0] * longest[1]
            exact, exact_lse = _attention(*[part.double() for part in parts], shape)
            same, _ = _attention(*parts, shape)
            _, single = _attention(*[part.float() for part in parts], shape)
            rounded = exact.to(q.dtype)
            allowed = (
                2 * (same.double() - exact).abs().max() + 2 * ((rounded + 0.3 - 0.3) - rounded).double().abs().max()
            )
            allowed += 2 * score * parts[2].double().abs().max()
            allowed_lse = 2 * (single.double() - exact_lse).abs().max() + math.sqrt(q.shape[-1]) * score
            got = (out[entry, :, heads].transpose(0, 1).double() - exact).abs().max() / allowed
            got_lse = (lse[entry, heads].double() - exact_lse).abs().max() / allowed_lse
            worst = max(worst, *(math.inf if x.isnan() else x.item() for x in (got, got_lse)))
    return worst


def work(length, shape):
    """(amount, unit of amount a second / 1e12): bytes of the keys and values that are read."""
    size = torch.empty(0, dtype=getattr(torch, shape["dtype"])).element_size()
    return 2 * size * shape["kv_heads"] * shape["head_dim"] * sum(_lengths(length, shape)), "TB/s"


def _lengths(length, shape):
    """Keys of each sequence: all as many, or from a quarter of them in even steps."""
    batch, least = shape["batch"], length // 4 if shape["ragged"] else length
    return [length - i * (length - least) // max(1, batch - 1) for i in range(batch)]


def _lse(shape):
    return (shape["batch"], shape["heads"], shape["rows"])


def _attention(q, k, v, shape):
    """Of (group, rows, head dimension) over (keys, head dimension); the last row sees all keys."""
    scores = q @ k.T * shape["softmax_scale"]
    rows, keys = scores.shape[1:]
    sees = torch.arange(rows, device=q.device)[:, None] + keys - rows
    scores = scores.masked_fill(torch.arange(keys, device=q.device) > sees, -math.inf)
    return torch.softmax(scores, -1) @ v, torch.logsumexp(scores, -1)
