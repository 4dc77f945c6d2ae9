"""Multi-head latent attention over a paged cache as a problem of its own: inputs, one launch, what it should compute and read.

Needs torch alone. A length is that of the longest sequence. Every row is checked against float64, for a few sequences.
Tolerance of O: twice the error of the same computation in the inputs' precision, plus twice what adding and subtracting 0.3
rounds away (the rule of FlashAttention-3's tests), plus what float32 scores are rounded by; of LSE: twice the error of float32,
plus sqrt(D) * 2**-24 * the largest score that could be (Higham and Mary 2019, doi 10.1137/18M1226312).
"""

import math

import torch

SEQUENCES = 8  # that are checked: first, last, and some between
LATENT, ROPE = 512, 64


def build(kernel, dialect, spec, tile):
    """The TileLang kernels of one launch: a second one, where the keys are split, combines the parts."""
    spec.split = tile.splits > 1
    made = kernel.build(spec, tile, dialect)
    return made if isinstance(made, tuple) else (made,)


def inputs(length, shape, device):
    """Q, the rows of the cache, pages in any order, and each sequence's keys; the same numbers every time."""
    generator = torch.Generator(device).manual_seed(length)
    batch, page = shape["batch"], shape["page"]
    pages = -(-length // page)
    sizes = [(batch, shape["rows"], shape["heads"], LATENT + ROPE), (batch * pages * page, LATENT + ROPE)]
    drawn = [torch.randn(s, generator=generator, device=device).to(getattr(torch, shape["dtype"])) for s in sizes]
    table = torch.randperm(batch * pages, generator=generator, device=device).view(batch, pages).int()
    return [*drawn, table, torch.tensor(_lengths(length, shape), dtype=torch.int32, device=device)]


def outputs(length, shape, device, tile):
    """Parts, O and LSE, full of NaN: what a kernel leaves out shows. A part that is the only one is the result."""
    batch, rows, heads = shape["batch"], shape["rows"], shape["heads"]
    dtype = getattr(torch, shape["dtype"])
    parts_dtype = torch.float32 if tile.splits > 1 else dtype
    parts = torch.full((tile.splits, batch, rows, heads, LATENT), math.nan, device=device, dtype=parts_dtype)
    parts_lse = torch.full((tile.splits, batch, heads, rows), math.nan, device=device)
    if tile.splits == 1:
        return [parts, parts_lse, parts[0], parts_lse[0]]
    return [parts, parts_lse, parts[0].to(dtype), parts_lse[0].clone()]


def launch(steps, tensors, shape):
    """Enqueue one launch."""
    *given, out, lse = tensors
    steps[0](*given, *[shape[name] for name in ("kv_stride", "page_shift", "causal", "softmax_scale")])
    if steps[1:]:
        steps[1](*given[-2:], out, lse)


def error(tensors, shape):
    """Largest error over tolerance, of O and LSE; above 1 is wrong."""
    q, kv, table, lengths, _, _, out, lse = tensors
    page, worst = shape["page"], 0.0
    for entry in torch.linspace(0, len(q) - 1, min(SEQUENCES, len(q))).long().unique().tolist():
        keys = torch.arange(int(lengths[entry]), device=q.device)
        cached = kv[table[entry, keys // page].long() * page + keys % page]
        parts = q[entry].transpose(0, 1), cached
        longest = [part.double().norm(dim=-1).max() for part in parts]
        score = 2.0**-24 * shape["softmax_scale"] * longest[0] * longest[1]
        exact, exact_lse = _attention(*[part.double() for part in parts], shape)
        same, _ = _attention(*parts, shape)
        _, single = _attention(*[part.float() for part in parts], shape)
        rounded = exact.to(q.dtype)
        allowed = 2 * (same.double() - exact).abs().max()
        allowed += 2 * ((rounded + 0.3 - 0.3) - rounded).double().abs().max()
        allowed += 2 * score * cached[:, :LATENT].double().abs().max()
        allowed_lse = 2 * (single.double() - exact_lse).abs().max() + math.sqrt(LATENT + ROPE) * score
        got = (out[entry].transpose(0, 1).double() - exact).abs().max() / allowed
        got_lse = (lse[entry].double() - exact_lse).abs().max() / allowed_lse
        worst = max(worst, *(math.inf if x.isnan() else x.item() for x in (got, got_lse)))
    return worst


def work(length, shape):
    """(amount, unit of amount a second / 1e12): bytes of the cache that are read."""
    size = torch.empty(0, dtype=getattr(torch, shape["dtype"])).element_size()
    return size * (LATENT + ROPE) * sum(_lengths(length, shape)), "TB/s"


def _lengths(length, shape):
    """Keys of each sequence: all as many, or from a quarter of them in even steps."""
    batch, least = shape["batch"], length // 4 if shape["ragged"] else length
    return [length - i * (length - least) // max(1, batch - 1) for i in range(batch)]


def _attention(q, kv, shape):
    """Of (heads, rows, 576) over (keys, 576), whose first 512 are the values; the last row sees all keys."""
    scores = q @ kv.T * shape["softmax_scale"]
    rows, keys = scores.shape[1:]
    sees = torch.arange(rows, device=q.device)[:, None] + keys - rows
    scores = scores.masked_fill(torch.arange(keys, device=q.device) > sees, -math.inf)
    return torch.softmax(scores, -1) @ kv[:, :LATENT], torch.logsumexp(scores, -1)
