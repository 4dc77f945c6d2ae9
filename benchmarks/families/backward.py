"""Backward attention: the gradients of one training step, under both tile policies."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch

import tilekernels
from benchmarks import reference, reference_backward
from benchmarks.family import Family, Numbers, Tensors, full_of_nan
from benchmarks.inputs import qkv
from benchmarks.problems import between, problem
from benchmarks.workloads import Workload

_GPU = ("cuda", "hip")
_QWEN2_5_0_5B = (14, 2, 64)  # query heads, kv heads, head dimension, as in `workloads`
_QWEN2_5_7B = (28, 4, 128)
_QWEN2_5_14B = (40, 8, 128)
_LLAMA_3_70B = (64, 8, 128)


@dataclass(frozen=True)
class BackwardWorkload(Workload):
    """The backward pass of one attention problem; the attributes are those of the forward pass."""

    @property
    def flops(self) -> int:
        """Floating-point operations of the five matrix products, by the convention of FlashAttention's benchmarks.

        2.5 times those of the forward pass, which has two: S, dV, dP, dQ and dK. Kernels that compute S and dP twice, to need
        no atomics, execute seven; they count for nothing.
        """
        return 5 * super().flops // 2

    @property
    def bytes(self) -> int:
        """Bytes that have to move at least: Q, K, V, O, dO and the LSE read once, dQ, dK and dV written once."""
        size = 4 if self.dtype == "float32" else 2
        elements = 4 * self.head_dim * (self.heads * self.seqlen_q + self.kv_heads * self.seqlen_k)
        return self.batch * (size * elements + 4 * self.heads * self.seqlen_q)


def _gpu() -> Iterable[BackwardWorkload]:
    tiers = {
        "backward-7b-b4-s4096": "smoke",
        **dict.fromkeys(("backward-7b-b8-s2048", "backward-7b-b2-s8192", "backward-14b-b4-s4096"), "pr"),
        **dict.fromkeys(("backward-7b-b4-s4097", "backward-0.5b-b8-s2048", "backward-64x8-b1-s8192-full"), "pr"),
    }
    training = [(length, 16384 // length) for length in (2048, 4096, 8192)]
    rows = [
        *(("7b", _QWEN2_5_7B, batch, length, True, "training step, Qwen2.5-7B, group 7") for length, batch in training),
        *(
            ("14b", _QWEN2_5_14B, batch, length, True, "training step, Qwen2.5-14B, group 5")
            for length, batch in training
        ),
        ("7b", _QWEN2_5_7B, 4, 4097, True, "one past every tile: the price of masking"),
        ("7b", _QWEN2_5_7B, 1, 2048, True, "one short sequence: too few tiles for the GPU"),
        ("0.5b", _QWEN2_5_0_5B, 8, 2048, True, "training step, Qwen2.5-0.5B, head dimension 64"),
        *(
            ("64x8", _LLAMA_3_70B, 1, length, causal, "as published by the vendors, head counts of Llama-3-70B")
            for length in (4096, 8192, 16384)
            for causal in (True, False)
        ),
    ]
    for name, model, batch, length, causal, why in rows:
        id = f"backward-{name}-b{batch}-s{length}{'' if causal else '-full'}"
        heads, kv_heads, head_dim = model
        shape = (batch, heads, kv_heads, length, length, head_dim)
        yield BackwardWorkload(id, *shape, "bfloat16", causal, _GPU, tiers.get(id, "full"), why)


def _cpu() -> Iterable[BackwardWorkload]:
    """Milliseconds each: for every branch of the kernels; they say nothing about a GPU."""
    for id, model, lengths, dtype, causal, tier, why in (
        ("cpu-backward-g7-d64-s95", (7, 1, 64), (95, 95), "float32", True, "smoke", "group 7, one short of a tile"),
        ("cpu-backward-g2-d64-q33-k130", (4, 2, 64), (33, 130), "float32", True, "smoke", "new rows over a cache"),
        ("cpu-backward-g1-d64-q65-k40", (3, 3, 64), (65, 40), "float32", True, "smoke", "some rows see nothing"),
        ("cpu-backward-g5-d128-s64-full", (5, 1, 128), (64, 64), "float32", False, "smoke", "group 5, no mask"),
        ("cpu-backward-g6-d64-s48-fp16", (6, 1, 64), (48, 48), "float16", True, "pr", "half precision"),
        ("cpu-backward-0.5b-s128", _QWEN2_5_0_5B, (128, 128), "float32", True, "pr", "Qwen2.5-0.5B, aligned"),
    ):
        heads, kv_heads, head_dim = model
        yield BackwardWorkload(id, 1, heads, kv_heads, *lengths, head_dim, dtype, causal, ("cpu",), tier, why)


WORKLOADS: tuple[BackwardWorkload, ...] = (*_gpu(), *_cpu())

# (batch, heads, kv heads, rows, keys). The first says most in little time: a group of two, workgroups with three rows and
# with three keys whatever the tile, and several steps under either mask. Then a single row and key, ends of tiles and one
# past them, more rows than keys (under a causal mask rows that see nothing), many more keys than rows, two batch entries.
_SHAPES = (
    *((1, 2, 1, 131, 195), (1, 7, 1, 1, 1), (1, 2, 1, 129, 67), (1, 3, 1, 63, 65), (1, 2, 2, 65, 128)),
    *((1, 2, 1, 257, 5), (1, 1, 1, 3, 200), (2, 4, 2, 129, 63)),
)


def _kernel(work: Workload, policy: str, device: torch.device | str) -> tilekernels.BackwardKernel:
    return tilekernels.backward_kernel(problem(work), policy=policy, device=device)


def _shipped(chip: tilekernels.Chip) -> Iterable[tilekernels.BackwardKernel]:
    """Every specification that a workload of the chip's kind has, in every tile that a policy has for it."""
    specifications = sorted({(w.head_dim, w.dtype, w.causal) for w in WORKLOADS if chip.kind in w.targets})
    for head_dim, dtype, causal in specifications:
        for policy in tilekernels.POLICIES:
            for tile in tilekernels.backward_variants(chip, head_dim, dtype, policy):
                yield tilekernels.BackwardKernel(chip, tilekernels.BackwardSpec(head_dim, dtype, causal), tile)


def _spell(spec: tilekernels.BackwardSpec) -> str:
    return f"{spec.dtype} d{spec.head_dim} {'causal' if spec.causal else 'full'}"


def _inputs(work: Workload, device: torch.device | str, draw: int, values: str = "normal") -> Tensors:
    """Draw Q, K, V and dO; take O and LSE from the reference on a CPU, from the library's forward kernel on a GPU."""
    q, k, v = qkv(work, device, draw, values)
    generator = torch.Generator(device=device).manual_seed(zlib.crc32(f"{work.id} {draw} grad".encode()))
    grad = torch.randn(q.shape, generator=generator, device=device, dtype=q.dtype)
    if q.device.type == "cpu":
        out, lse = reference.attention(q, k, v, causal=work.causal, softmax_scale=_scale(work))
        out, lse = out.to(q.dtype), lse.float()
    else:
        out, lse = tilekernels.attention(q, k, v, causal=work.causal, return_lse=True)
    return {"Q": q, "K": k, "V": v, "O": out, "dO": grad, "LSE": lse}


def _outputs(work: Workload, kernel: tilekernels.Kernel, device: torch.device | str) -> Tensors:
    rows = (work.batch, work.seqlen_q, work.heads, work.head_dim)
    keys = (work.batch, work.seqlen_k, work.kv_heads, work.head_dim)
    stats = (work.batch, 2, work.heads, tilekernels.padded_rows(work.seqlen_q))
    return {
        "Stats": full_of_nan(stats, "float32", device),
        "dQ": full_of_nan(rows, work.dtype, device),
        "dK": full_of_nan(keys, work.dtype, device),
        "dV": full_of_nan(keys, work.dtype, device),
    }


def _numbers(work: Workload, kernel: tilekernels.Kernel) -> Numbers:
    return {"softmax_scale": _scale(work)}


def _symbols(work: Workload, kernel: tilekernels.Kernel) -> dict[str, int]:
    names = ("batch", "heads", "kv_heads", "seqlen_q", "seqlen_k")
    return {**{name: getattr(work, name) for name in names}, "padded_q": tilekernels.padded_rows(work.seqlen_q)}


def _check(work: Workload, inputs: Mapping[str, torch.Tensor], outputs: Mapping[str, torch.Tensor], limit: int) -> None:
    given = (inputs[name] for name in ("Q", "K", "V", "dO"))
    problem = reference_backward.Problem(*given, work.causal, _scale(work))
    reference_backward.check(problem, outputs["dQ"], outputs["dK"], outputs["dV"], limit=limit)


def _problems(kernel: tilekernels.BackwardKernel) -> Sequence[BackwardWorkload]:
    spec = kernel.spec
    return [
        BackwardWorkload(
            f"b{batch} h{heads}/{kv_heads} q{rows} k{keys}",
            *(batch, heads, kv_heads, rows, keys, spec.head_dim, spec.dtype, spec.causal),
            *(("hip",), "smoke", "emulated"),
        )
        for batch, heads, kv_heads, rows, keys in _SHAPES
    ]


def _scale(work: Workload) -> float:
    return 1 / math.sqrt(work.head_dim)


FAMILY = Family(
    name="backward",
    case="backward.Backward.latency_backward",
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
    # Not "equal": roundings are then alike, and the tolerance takes them for independent.
    drawn_values=("normal", "huge", "subnormal"),
    varied=("dO",),  # O and LSE belong to the Q, K and V from which they were made
)
