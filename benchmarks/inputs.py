"""Inputs of a workload: seeded, so that two commits and two runs see the same numbers."""

from __future__ import annotations

import zlib

import torch

from benchmarks.workloads import Workload

VALUES = ("normal", "equal", "huge", "subnormal")
"""What inputs can be: standard normal; one number everywhere in a tensor; so large that in most rows a single key has all the
weight; so small that their dtype holds them with fewer digits."""


def qkv(
    work: Workload, device: torch.device | str, draw: int = 0, values: str = "normal"
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Draw Q, K and V.

    Args:
        work: gives shapes and dtype.
        device: where to; the numbers differ between kinds of device, torch's generators being different.
        draw: another number, other inputs.
        values: one of VALUES.

    Returns:
        Q (batch, seqlen_q, heads, head_dim), K and V (batch, seqlen_k, kv_heads, head_dim). The global generator of
        torch is left alone.
    """
    generator = torch.Generator(device=device).manual_seed(zlib.crc32(f"{work.id} {draw}".encode()))
    dtype = getattr(torch, work.dtype)
    rows = (work.batch, work.seqlen_q, work.heads, work.head_dim)
    columns = (work.batch, work.seqlen_k, work.kv_heads, work.head_dim)
    q, k, v = (
        torch.randn(shape, generator=generator, device=device, dtype=dtype) for shape in (rows, columns, columns)
    )
    return scaled(q, values), scaled(k, values), scaled(v, values)


def scaled(x: torch.Tensor, values: str) -> torch.Tensor:
    """Make of a standard normal tensor what `values`, one of VALUES, names."""
    if values == "equal":
        return x.flatten()[:1].expand(x.shape).contiguous()
    if values == "huge":
        return x * 16
    if values == "subnormal":
        return x * (torch.finfo(x.dtype).tiny / 4)
    return x
