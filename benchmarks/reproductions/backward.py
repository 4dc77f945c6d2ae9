"""The backward pass of attention as a problem of its own: inputs, one launch, what it should compute, how much work that is.

Needs torch alone. A length is that of the keys; there are as many rows, unless the shape says how many.
"""

import math

import torch

from benchmarks.reproductions.dense import attended, backward_error, seen_pairs
from tilekernels.backward_policy import ROW_PADDING


def build(kernel, dialect, spec, tile):
    """The TileLang kernels of one launch: what each row contributes, then the gradients of the keys, then of the rows."""
    return kernel.build(spec, tile, dialect)


def inputs(length, shape, device):
    """Q, K, V, O, dO in (batch, length, heads, head dimension) and the LSE, the same numbers every time."""
    generator = torch.Generator(device).manual_seed(length)
    rows = (shape["batch"], shape.get("seqlen_q", length), shape["heads"], shape["head_dim"])
    keys = (shape["batch"], length, shape["kv_heads"], shape["head_dim"])
    drawn = [torch.randn(s, generator=generator, device=device) for s in (rows, keys, keys, rows)]
    q, k, v, grad = (x.to(getattr(torch, shape["dtype"])) for x in drawn)
    made = [attended(*entry, shape["causal"], shape["softmax_scale"]) for entry in zip(q, k, v, strict=True)]
    out, lse = (torch.stack(each) for each in zip(*made, strict=True))
    return [q, k, v, out, grad, lse]


def outputs(length, shape, device, tile):
    """Statistics of the rows, dQ, dK, dV, full of NaN: what a kernel leaves out shows."""
    rows = (shape["batch"], shape.get("seqlen_q", length), shape["heads"], shape["head_dim"])
    keys = (shape["batch"], length, shape["kv_heads"], shape["head_dim"])
    padded = -(-rows[1] // ROW_PADDING) * ROW_PADDING
    made = [torch.full(s, math.nan, device=device).to(getattr(torch, shape["dtype"])) for s in (rows, keys, keys)]
    return [torch.full((shape["batch"], 2, shape["heads"], padded), math.nan, device=device), *made]


def launch(steps, tensors, shape):
    """Enqueue one launch."""
    q, k, v, out, grad, lse, stats, dq, dk, dv = tensors
    steps[0](out, grad, lse, stats)
    steps[1](q, k, v, grad, stats, dk, dv, shape["softmax_scale"])
    steps[2](q, k, v, grad, stats, dq, shape["softmax_scale"])


def error(tensors, shape):
    """Largest error over tolerance, of all three gradients; above 1 is wrong."""
    q, k, v, _, grad, _, _, dq, dk, dv = tensors
    entries = zip(q, k, v, grad, zip(dq, dk, dv, strict=True), strict=True)
    return max(backward_error(*entry, shape["causal"], shape["softmax_scale"]) for entry in entries)


def work(length, shape):
    """(amount, unit of amount a second / 1e12): operations of the five matrix products."""
    pairs = seen_pairs(shape.get("seqlen_q", length), length, shape["causal"])
    return 10 * shape["batch"] * shape["heads"] * pairs * shape["head_dim"], "TFLOP/s"
