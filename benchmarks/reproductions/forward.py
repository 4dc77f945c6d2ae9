"""Forward attention as a problem of its own: inputs, one launch, what it should compute, and how much work that is.

Needs torch alone. A length is that of the keys; there are as many rows, unless the shape says how many.
"""

import math

import torch

from benchmarks.reproductions.dense import forward_error, seen_pairs


def build(kernel, dialect, spec, tile):
    """The TileLang kernels of one launch."""
    return (kernel.build(spec, tile, dialect),)


def inputs(length, shape, device):
    """Q, K, V in (batch, length, heads, head dimension), the same numbers every time."""
    generator = torch.Generator(device).manual_seed(length)
    rows = shape.get("seqlen_q", length)
    sizes = [(rows, shape["heads"]), *[(length, shape["kv_heads"])] * 2]
    sizes = [(shape["batch"], *size, shape["head_dim"]) for size in sizes]
    return [torch.randn(s, generator=generator, device=device).to(getattr(torch, shape["dtype"])) for s in sizes]


def outputs(length, shape, device, tile):
    """O and LSE, full of NaN: what a kernel leaves out shows."""
    rows = shape.get("seqlen_q", length)
    out = torch.full((shape["batch"], rows, shape["heads"], shape["head_dim"]), math.nan, device=device)
    return [
        out.to(getattr(torch, shape["dtype"])),
        torch.full((shape["batch"], shape["heads"], rows), math.nan, device=device),
    ]


def launch(steps, tensors, shape):
    """Enqueue one launch."""
    steps[0](*tensors, shape["softmax_scale"])


def error(tensors, shape):
    """Largest error over tolerance, of O and LSE at sampled rows; above 1 is wrong."""
    return max(forward_error(*entry, shape["causal"], shape["softmax_scale"]) for entry in zip(*tensors, strict=True))


def work(length, shape):
    """(amount, unit of amount a second / 1e12): operations of both matrix products."""
    pairs = seen_pairs(shape.get("seqlen_q", length), length, shape["causal"])
    return 4 * shape["batch"] * shape["heads"] * pairs * shape["head_dim"], "TFLOP/s"
