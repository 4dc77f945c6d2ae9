"""Forward attention: both tile policies over the table of workloads."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import torch

import tilekernels
from benchmarks import reference
from benchmarks.family import Family, Numbers, Tensors, full_of_nan
from benchmarks.inputs import VALUES, qkv
from benchmarks.problems import between, problem
from benchmarks.workloads import WORKLOADS, Workload

# (batch, heads, kv heads, rows, keys). The first says most in little time: groups, a workgroup with three rows whatever the
# tile, four or more tiles of keys under either mask, so that maxima change and sums are rescaled, and a last tile with three
# keys. Then few keys for many rows, a single row and key, ends of 128-row and 64-key tiles and one past them, more rows than
# keys (under a causal mask rows that see nothing), many more keys than rows, and two batch entries.
_SHAPES = (
    *((1, 2, 1, 131, 195), (1, 2, 1, 129, 67), (1, 7, 1, 1, 1), (1, 7, 1, 63, 65), (1, 2, 2, 65, 65)),
    *((1, 2, 1, 129, 129), (1, 7, 1, 257, 5), (1, 1, 1, 3, 200), (2, 4, 2, 129, 63), (1, 14, 2, 130, 131)),
)


def small_workload(kernel: tilekernels.ForwardKernel, shape: tuple[int, int, int, int, int], id: str = "") -> Workload:
    """Return a problem of (batch, heads, kv heads, rows, keys) for a kernel, to be emulated."""
    batch, heads, kv_heads, rows, keys = shape
    spec = kernel.spec
    id = id or f"b{batch} h{heads}/{kv_heads} q{rows} k{keys}"
    return Workload(id, *shape, spec.head_dim, spec.dtype, spec.causal, ("hip",), "smoke", "emulated")


def _kernel(work: Workload, policy: str, device: torch.device | str) -> tilekernels.ForwardKernel:
    return tilekernels.forward_kernel(problem(work), policy=policy, device=device)


def _shipped(chip: tilekernels.Chip) -> Iterable[tilekernels.ForwardKernel]:
    """Every specification that a workload of the chip's kind has, in every tile that a policy has for it."""
    specifications = sorted({(w.head_dim, w.dtype, w.causal) for w in WORKLOADS if chip.kind in w.targets})
    for head_dim, dtype, causal in specifications:
        for policy in tilekernels.POLICIES:
            for tile in tilekernels.variants(chip, head_dim, dtype, policy):
                yield tilekernels.ForwardKernel(chip, (head_dim, dtype, causal), tile)


def _spell(spec: tilekernels.ForwardSpec) -> str:
    return f"{spec.dtype} d{spec.head_dim} {'causal' if spec.causal else 'full'}"


def _inputs(work: Workload, device: torch.device | str, draw: int, values: str = "normal") -> Tensors:
    return dict(zip("QKV", qkv(work, device, draw, values), strict=True))


def _outputs(work: Workload, kernel: tilekernels.Kernel, device: torch.device | str) -> Tensors:
    out = (work.batch, work.seqlen_q, work.heads, work.head_dim)
    return {
        "O": full_of_nan(out, work.dtype, device),
        "LSE": full_of_nan((work.batch, work.heads, work.seqlen_q), "float32", device),
    }


def _numbers(work: Workload, kernel: tilekernels.Kernel) -> Numbers:
    return {"softmax_scale": _scale(work)}


def _symbols(work: Workload, kernel: tilekernels.Kernel) -> dict[str, int]:
    return {name: getattr(work, name) for name in ("batch", "heads", "kv_heads", "seqlen_q", "seqlen_k")}


def _check(work: Workload, inputs: Mapping[str, torch.Tensor], outputs: Mapping[str, torch.Tensor], limit: int) -> None:
    out, lse = outputs["O"], outputs["LSE"]
    reference.check(*inputs.values(), out, lse, causal=work.causal, softmax_scale=_scale(work), limit=limit)


def _problems(kernel: tilekernels.ForwardKernel) -> Sequence[Workload]:
    return [small_workload(kernel, shape) for shape in _SHAPES]


def _scale(work: Workload) -> float:
    return 1 / math.sqrt(work.head_dim)


FAMILY = Family(
    name="forward",
    case="attention.Forward.latency_forward",
    workloads=WORKLOADS,
    kernel=_kernel,
    shipped=_shipped,
    spell=_spell,
    inputs=_inputs,
    outputs=_outputs,
    numbers=_numbers,
    symbols=_symbols,
    check=_check,
    problems=_problems,
    drawn=between,
    drawn_values=VALUES,
    varied=("Q", "K", "V"),
)
