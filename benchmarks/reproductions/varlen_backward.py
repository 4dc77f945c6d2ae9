"""The backward pass over packed sequences as a problem of its own: inputs, one launch, what it should compute, how much work.

Needs torch alone. A length is the number of keys of the sequence that has most.
"""

import math

import torch

from benchmarks.reproductions.dense import attended, backward_error, seen_pairs
from benchmarks.reproductions.packed import bounds, lengths, slices
from tilekernels.backward_policy import ROW_PADDING


def build(kernel, dialect, spec, tile):
    """The TileLang kernels of one launch: what each row contributes, then the gradients of the keys, then of the rows."""
    return kernel.build(spec, tile, dialect)


def inputs(length, shape, device):
    """Q, K, V, O, dO and LSE of all sequences, their bounds, the most rows and keys of one; the same numbers every time."""
    generator = torch.Generator(device).manual_seed(length)
    rows, keys = lengths(length, shape)
    sizes = [(sum(rows), shape["heads"]), *[(sum(keys), shape["kv_heads"])] * 2, (sum(rows), shape["heads"])]
    drawn = [torch.randn((*s, shape["head_dim"]), generator=generator, device=device) for s in sizes]
    q, k, v, grad = (x.to(getattr(torch, shape["dtype"])) for x in drawn)
    ends = bounds(length, shape, device)
    made = [attended(q[r], k[s], v[s], shape["causal"], shape["softmax_scale"]) for r, s in slices(*ends)]
    out, lse = torch.cat([out for out, _ in made]), torch.cat([lse for _, lse in made], dim=1)
    return [q, k, v, out, grad, lse, *ends, max(rows), max(keys)]


def outputs(length, shape, device, tile):
    """Statistics of the rows, dQ, dK, dV, full of NaN: what a kernel leaves out shows."""
    rows, keys = lengths(length, shape)
    dtype, width = getattr(torch, shape["dtype"]), shape["head_dim"]
    sizes = [(sum(rows), shape["heads"], width), *[(sum(keys), shape["kv_heads"], width)] * 2]
    padded = (sum(rows) // ROW_PADDING + len(rows)) * ROW_PADDING
    stats = torch.full((2, shape["heads"], padded), math.nan, device=device)
    return [stats, *[torch.full(s, math.nan, device=device).to(dtype) for s in sizes]]


def launch(steps, tensors, shape):
    """Enqueue one launch."""
    q, k, v, out, grad, lse, bounds_q, bounds_k, most_rows, most_keys, stats, dq, dk, dv = tensors
    steps[0](out, grad, lse, bounds_q, stats, most_rows)
    given = (q, k, v, grad, bounds_q, bounds_k, stats)
    steps[1](*given, dk, dv, most_keys, shape["softmax_scale"])
    steps[2](*given, dq, most_rows, shape["softmax_scale"])


def error(tensors, shape):
    """Largest error over tolerance, of all three gradients of each sequence; above 1 is wrong."""
    q, k, v, _, grad, _, bounds_q, bounds_k, _, _, _, dq, dk, dv = tensors
    return max(
        backward_error(
            *(q[rows], k[keys], v[keys], grad[rows]),
            (dq[rows], dk[keys], dv[keys]),
            shape["causal"],
            shape["softmax_scale"],
        )
        for rows, keys in slices(bounds_q, bounds_k)
    )


def work(length, shape):
    """(amount, unit of amount a second / 1e12): operations of the five matrix products."""
    pairs = sum(seen_pairs(*each, shape["causal"]) for each in zip(*lengths(length, shape), strict=True))
    return 10 * shape["heads"] * pairs * shape["head_dim"], "TFLOP/s"
