"""A workload as the library takes it."""

from __future__ import annotations

import dataclasses
import random

import tilekernels
from benchmarks.workloads import Workload


def problem(work: Workload) -> tilekernels.AttentionProblem:
    """Return shapes, dtype and mask of a workload, from which the library chooses a kernel."""
    return tilekernels.AttentionProblem(
        batch=work.batch,
        heads=work.heads,
        kv_heads=work.kv_heads,
        seqlen_q=work.seqlen_q,
        seqlen_k=work.seqlen_k,
        head_dim=work.head_dim,
        dtype=work.dtype,
        causal=work.causal,
    )


_LENGTHS = (16, 64, 128)
_MOST_HEADS, _LARGEST_GROUP = 16, 8


def between(work: Workload, chance: random.Random, scores: int) -> Workload:
    """Draw a problem for the kernels of `work` with other heads and lengths: any, or next to the end of a tile.

    Args:
        work: gives head dimension, dtype and mask.
        chance: draws.
        scores: how many it has at most.
    """
    kv_heads = chance.choice((1, 1, 2))
    group = chance.randint(1, min(_LARGEST_GROUP, _MOST_HEADS // kv_heads))
    batch = chance.choice((1, 1, 2))
    pairs = max(1, scores // (batch * kv_heads * group))
    rows = _length(chance, int(pairs**0.5))
    keys = rows if chance.random() < 0.25 else _length(chance, max(1, pairs // rows))
    id = f"drawn b{batch} h{kv_heads * group}/{kv_heads} q{rows} k{keys}"
    changed = {"batch": batch, "heads": kv_heads * group, "kv_heads": kv_heads, "seqlen_q": rows, "seqlen_k": keys}
    return dataclasses.replace(work, id=id, **changed)


def _length(chance: random.Random, most: int) -> int:
    """Draw a length from 1 to `most`: long and short ones as often, and every second one at most one from a multiple."""
    length = round(most ** chance.random())
    if chance.random() < 0.5:
        multiple = chance.choice(_LENGTHS)
        length = -(-length // multiple) * multiple + chance.choice((-1, 0, 1))
    return max(1, min(length, most))
