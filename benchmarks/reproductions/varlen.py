"""Attention over packed sequences as a problem of its own: inputs, one launch, what it should compute, how much work that is.

Needs torch alone. A length is the number of keys of the sequence that has most.
"""

import math

import torch

from benchmarks.reproductions.dense import forward_error, seen_pairs
from benchmarks.reproductions.packed import bounds, lengths, slices


def build(kernel, dialect, spec, tile):
    """The TileLang kernels of one launch."""
    return (kernel.build(spec, tile, dialect),)


def inputs(length, shape, device):
    """Q, K, V of all sequences, their bounds, and the most rows of one; the same numbers every time."""
    generator = torch.Generator(device).manual_seed(length)
    rows, keys = lengths(length, shape)
    sizes = [(sum(rows), shape["heads"]), *[(sum(keys), shape["kv_heads"])] * 2]
    drawn = [torch.randn((*s, shape["head_dim"]), generator=generator, device=device) for s in sizes]
    return [*[x.to(getattr(torch, shape["dtype"])) for x in drawn], *bounds(length, shape, device), max(rows)]


def outputs(length, shape, device, tile):
    """O and LSE, full of NaN: what a kernel leaves out shows."""
    rows, heads = sum(lengths(length, shape)[0]), shape["heads"]
    out = torch.full((rows, heads, shape["head_dim"]), math.nan, device=device)
    return [out.to(getattr(torch, shape["dtype"])), torch.full((heads, rows), math.nan, device=device)]


def launch(steps, tensors, shape):
    """Enqueue one launch."""
    *given, most_rows, out, lse = tensors
    steps[0](*given, out, lse, most_rows, shape["softmax_scale"])


def error(tensors, shape):
    """Largest error over tolerance, of O and LSE at sampled rows of each sequence; above 1 is wrong."""
    q, k, v, bounds_q, bounds_k, _, out, lse = tensors
    return max(
        forward_error(*(q[rows], k[keys], v[keys], out[rows], lse[:, rows]), shape["causal"], shape["softmax_scale"])
        for rows, keys in slices(bounds_q, bounds_k)
    )


def work(length, shape):
    """(amount, unit of amount a second / 1e12): operations of both matrix products."""
    pairs = sum(seen_pairs(*each, shape["causal"]) for each in zip(*lengths(length, shape), strict=True))
    return 4 * shape["heads"] * pairs * shape["head_dim"], "TFLOP/s"
