"""Forward attention, both tile policies over the workloads of the selected tier."""

from __future__ import annotations

import dataclasses
import itertools
import math

import torch

import tilekernels
from benchmarks import reference
from benchmarks.inputs import qkv
from benchmarks.problems import problem
from benchmarks.workloads import Workload, select, workload
from tilegate.protocol import Artifact, cold_sets, listing, selection, verify_origin

if not listing():
    import tilelang  # noqa: F401 - asv forks a process for each case: what is imported here takes its 2 s only once

verify_origin(tilekernels)

SELECTION = selection()
DEVICE = "cpu" if SELECTION.target == "cpu" else "cuda"  # torch calls AMD's GPUs cuda, too

if DEVICE == "cpu":
    # The kernels use one thread, and the reference's tensors are small: on a shared machine, where a thread may wait
    # for a core, OpenMP makes an operation on them take milliseconds instead of a fraction of one.
    torch.set_num_threads(1)


class Forward:
    """One launch of the forward kernel, on inputs and into outputs that are there already."""

    params = ([work.id for work in select(SELECTION)], ["fixed", "adaptive"])
    param_names = ("workload", "policy")
    version = "2"  # launches below 50 us are timed as recorded graphs
    timeout = 600.0
    warmup_time = 0.05 if SELECTION.target == "cpu" else 0.3
    sample_time = 0.2 if SELECTION.target == "cpu" else 0.5
    checked_scores = 1 << 31
    """What `check` compares: 28 heads of 8k rows and keys in full. In double precision four times as much takes an H200 a
    second, longer than the timing of the case; the tests do it."""

    def setup(self, workload_id: str, policy: str) -> None:
        """Compile the kernel and draw the inputs, in as many copies as leave none of them in a cache."""
        self.workload = workload(workload_id)
        self._kernel = _kernel(self.workload, policy)
        self._kernel.compile()
        self._scale = 1 / math.sqrt(self.workload.head_dim)
        self._inputs = qkv(self.workload, DEVICE)
        self._outputs = _outputs(self.workload)
        copies = cold_sets(self.workload.bytes) - 1
        sets = [(*self._inputs, *self._outputs)]
        sets += [tuple(tensor.clone() for tensor in sets[0]) for _ in range(copies)]
        self._next_set = itertools.cycle(sets)

    @classmethod
    def precompile(cls, params: list[tuple[str, str]]) -> None:
        """Compile all that these (workload, policy) need, in parallel, with a progress bar on stderr."""
        for policy in dict.fromkeys(policy for _, policy in params):
            problems = [problem(workload(id)) for id, wanted in params if wanted == policy]
            tilekernels.precompile(problems, [policy], DEVICE)

    def latency_forward(self, workload_id: str, policy: str) -> None:
        """Launch once."""
        self._kernel.launch(*next(self._next_set), self._scale)

    def check(self, workload_id: str, policy: str) -> None:
        """Compare output and LSE with the reference, on inputs that no launch has seen; raises WrongResult."""
        inputs, outputs = qkv(self.workload, DEVICE, draw=1), _outputs(self.workload)
        self._kernel.launch(*inputs, *outputs, self._scale)
        scale, limit = self._scale, self.checked_scores
        reference.check(*inputs, *outputs, causal=self.workload.causal, softmax_scale=scale, limit=limit)

    def work(self, workload_id: str, policy: str) -> dict[str, int | str]:
        """Return what one launch computes and moves, and for which shape; needs no `setup`."""
        work = workload(workload_id)
        return {"flops": work.flops, "bytes": work.bytes, "shape": work.shape}

    def artifacts(self, workload_id: str, policy: str) -> list[Artifact]:
        """Return what the compiler makes of the kernel, without launching it; needs no `setup`."""
        kernel = _kernel(workload(workload_id), policy)
        tile = dataclasses.asdict(kernel.tile)  # beside the resources, so that a gate can name a changed tile
        return [
            Artifact(made.name, made.source, made.launch, {**made.resources, "tile": tile})
            for made in kernel.artifacts()
        ]


def _kernel(work: Workload, policy: str) -> tilekernels.ForwardKernel:
    return tilekernels.forward_kernel(problem(work), policy=policy, device=DEVICE)


def _outputs(work: Workload) -> tuple[torch.Tensor, torch.Tensor]:
    """Allocate O and LSE, full of NaN: what a kernel leaves out shows."""
    out = torch.full(
        (work.batch, work.seqlen_q, work.heads, work.head_dim),
        math.nan,
        dtype=getattr(torch, work.dtype),
        device=DEVICE,
    )
    return out, torch.full((work.batch, work.heads, work.seqlen_q), math.nan, dtype=torch.float32, device=DEVICE)
