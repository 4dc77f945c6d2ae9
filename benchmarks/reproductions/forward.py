"""Forward attention as a problem of its own: inputs, one launch, what it should compute, and how much work that is.

Needs torch alone. Rows are checked against float64. Tolerance of O: twice the error of the same computation in the inputs'
precision, plus twice what adding and subtracting 0.3 rounds away (the rule of FlashAttention-3's tests), plus what float32
scores are rounded by; of LSE: twice the error of float32, plus sqrt(D) * 2**-24 * the largest score that could be (Higham and
Mary 2019, doi 10.1137/18M1226312).
"""

import math

import torch

SAMPLE = 64  # rows of a head that are checked: all of 32k rows and keys would need 240 GB in float64


def build(kernel, dialect, spec, tile):
    """The TileLang kernels of one launch."""
    return (kernel.build(spec, tile, dialect),)


def inputs(length, shape, device):
    """Q, K, V in (batch, length, heads, head dimension), the same numbers every time."""
    generator = torch.Generator(device).manual_seed(length)
    sizes = [(shape["batch"], length, heads, shape["head_dim"]) for heads in (shape["heads"], *[shape["kv_heads"]] * 2)]
    return [torch.randn(s, generator=generator, device=device).to(getattr(torch, shape["dtype"])) for s in sizes]


def outputs(length, shape, device, tile):
    """O and LSE, full of NaN: what a kernel leaves out shows."""
    out = torch.full((shape["batch"], length, shape["heads"], shape["head_dim"]), math.nan, device=device)
    return [
        out.to(getattr(torch, shape["dtype"])),
        torch.full((shape["batch"], shape["heads"], length), math.nan, device=device),
    ]


def launch(steps, tensors, shape):
    """Enqueue one launch."""
    steps[0](*tensors, shape["softmax_scale"])


def error(tensors, shape):
    """Largest error over tolerance, of O and LSE at sampled rows; above 1 is wrong."""
    q, k, v, out, lse = tensors
    rows = torch.linspace(0, q.shape[1] - 1, min(SAMPLE, q.shape[1]), device=q.device).long().unique()
    score = 2.0**-24 * shape["softmax_scale"] * q.double().norm(dim=-1).max() * k.double().norm(dim=-1).max()
    worst = 0.0
    for entry in range(q.shape[0]):
        for head in range(q.shape[2]):
            kv = head * k.shape[2] // q.shape[2]
            parts = q[entry, rows, head], k[entry, :, kv], v[entry, :, kv]
            exact, exact_lse = _attention(*[part.double() for part in parts], rows, shape)
            same, _ = _attention(*parts, rows, shape)
            _, single = _attention(*[part.float() for part in parts], rows, shape)
            rounded = exact.to(q.dtype)
            allowed = (
                2 * (same.double() - exact).abs().max() + 2 * ((rounded + 0.3 - 0.3) - rounded).double().abs().max()
            )
            allowed += 2 * score * parts[2].double().abs().max()
            allowed_lse = 2 * (single.double() - exact_lse).abs().max() + math.sqrt(q.shape[-1]) * score
            got = (out[entry, rows, head].double() - exact).abs().max() / allowed
            got_lse = (lse[entry, head, rows].double() - exact_lse).abs().max() / allowed_lse
            worst = max(worst, *(math.inf if x.isnan() else x.item() for x in (got, got_lse)))
    return worst


def work(length, shape):
    """(amount, unit of amount a second / 1e12): operations of both matrix products."""
    return 4 * shape["batch"] * shape["heads"] * length * length * shape["head_dim"] / (
        2 if shape["causal"] else 1
    ), "TFLOP/s"


def _attention(q, k, v, rows, shape):
    scores = q @ k.T * shape["softmax_scale"]
    if shape["causal"]:
        scores = scores.masked_fill(torch.arange(len(k), device=q.device) > rows[:, None], -math.inf)
    return torch.softmax(scores, -1) @ v, torch.logsumexp(scores, -1)
