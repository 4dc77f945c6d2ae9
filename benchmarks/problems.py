"""A workload as the library takes it."""

from __future__ import annotations

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
