"""The backward pass over packed sequences, both tile policies."""

from __future__ import annotations

import dataclasses
import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch

import tilekernels
from benchmarks import reference, reference_backward
from benchmarks.families import varlen
from benchmarks.families.varlen import VarlenWorkload
from benchmarks.family import Family, Numbers, Tensors, full_of_nan
from tilegate.protocol import WrongResult

_WHY_CPU = "the backward pass of the same problem"


@dataclass(frozen=True)
class VarlenBackwardWorkload(VarlenWorkload):
    """The backward pass of attention over packed sequences; the attributes are those of the forward pass."""

    @property
    def flops(self) -> int:
        """Floating-point operations of the five matrix products, counted as for `BackwardWorkload`."""
        return 5 * super().flops // 2

    @property
    def bytes(self) -> int:
        """Bytes that have to move at least: Q, K, V, O, dO, the LSE and both bounds read once, dQ, dK and dV written once."""
        size = 4 if self.dtype == "float32" else 2
        elements = 4 * self.head_dim * (self.heads * sum(self.rows) + self.kv_heads * sum(self.keys))
        return size * elements + 4 * self.heads * sum(self.rows) + 8 * (len(self.rows) + 1)


def _of(id: str, forward: VarlenWorkload, tier: str, why: str) -> VarlenBackwardWorkload:
    fields = {field.name: getattr(forward, field.name) for field in dataclasses.fields(forward)}
    return VarlenBackwardWorkload(**{**fields, "id": id, "tier": tier, "why": why})


def _workloads() -> Iterable[VarlenBackwardWorkload]:
    forward = {work.id: work for work in varlen.WORKLOADS}
    for name, tier, why in (
        ("7b-n12-t32768", "smoke", "training step on packed documents, Qwen2.5-7B"),
        ("7b-n4-s4096", "pr", "equal lengths: the price beside the dense kernels"),
        ("0.5b-n16-t16384", "full", "training step on packed documents, Qwen2.5-0.5B, head dimension 64"),
    ):
        yield _of(f"varlen-backward-{name}", forward[f"varlen-{name}"], tier, why)
    for name, tier in (
        ("g7-d64-n4", "smoke"),
        ("g2-d64-n3-full", "smoke"),
        ("g6-d128-n2", "pr"),
        ("g5-d64-n2-fp16", "pr"),
    ):
        yield _of(f"cpu-varlen-backward-{name}", forward[f"cpu-varlen-{name}"], tier, _WHY_CPU)


WORKLOADS: tuple[VarlenBackwardWorkload, ...] = tuple(_workloads())


def _kernel(work: VarlenWorkload, policy: str, device: torch.device | str) -> tilekernels.VarlenBackwardKernel:
    return tilekernels.varlen_backward_kernel(varlen.problem(work), policy, device)


def _shipped(chip: tilekernels.Chip) -> Iterable[tilekernels.VarlenBackwardKernel]:
    """Every specification that a workload of the chip's kind has, in every tile that a policy has for it."""
    specifications = sorted({(w.head_dim, w.dtype, w.causal) for w in WORKLOADS if chip.kind in w.targets})
    for head_dim, dtype, causal in specifications:
        for policy in tilekernels.POLICIES:
            for tile in tilekernels.backward_variants(chip, head_dim, dtype, policy):
                yield tilekernels.VarlenBackwardKernel(chip, tilekernels.VarlenSpec(head_dim, dtype, causal), tile)


def _inputs(work: VarlenWorkload, device: torch.device | str, draw: int, values: str = "normal") -> Tensors:
    """Draw Q, K, V and dO; take O and LSE from the reference on a CPU, from the library's forward kernel on a GPU."""
    given = varlen.FAMILY.inputs(work, device, draw, values)
    q, k, v, cu_q, cu_k = given.values()
    generator = torch.Generator(device=device).manual_seed(zlib.crc32(f"{work.id} {draw} grad".encode()))
    grad = torch.randn(q.shape, generator=generator, device=device, dtype=q.dtype)
    if q.device.type == "cpu":
        out, lse = torch.empty_like(q), torch.empty(q.shape[1], q.shape[0])
        for mine, seen in _sequences(work):
            dense = reference.attention(
                q[None, mine], k[None, seen], v[None, seen], causal=work.causal, softmax_scale=_scale(work)
            )
            out[mine], lse[:, mine] = dense[0][0].to(q.dtype), dense[1][0].float()
    else:
        lengths = max(work.rows), max(work.keys)
        out, lse = tilekernels.attention_varlen(q, k, v, cu_q, cu_k, *lengths, causal=work.causal, return_lse=True)
    return {"Q": q, "K": k, "V": v, "O": out, "dO": grad, "LSE": lse, "CuQ": cu_q, "CuK": cu_k}


def _outputs(work: VarlenWorkload, kernel: tilekernels.Kernel, device: torch.device | str) -> Tensors:
    rows, keys = sum(work.rows), sum(work.keys)
    padded = tilekernels.padded_total(rows, len(work.rows))
    return {
        "Stats": full_of_nan((2, work.heads, padded), "float32", device),
        "dQ": full_of_nan((rows, work.heads, work.head_dim), work.dtype, device),
        "dK": full_of_nan((keys, work.kv_heads, work.head_dim), work.dtype, device),
        "dV": full_of_nan((keys, work.kv_heads, work.head_dim), work.dtype, device),
    }


def _numbers(work: VarlenWorkload, kernel: tilekernels.Kernel) -> Numbers:
    return {"max_seqlen_q": max(work.rows), "max_seqlen_k": max(work.keys), "softmax_scale": _scale(work)}


def _symbols(work: VarlenWorkload, kernel: tilekernels.Kernel) -> dict[str, int]:
    padded = tilekernels.padded_total(sum(work.rows), len(work.rows))
    return {**varlen.FAMILY.symbols(work, kernel), "padded": padded}


def _check(
    work: VarlenWorkload, inputs: Mapping[str, torch.Tensor], outputs: Mapping[str, torch.Tensor], limit: int
) -> None:
    """Compare every sequence with the dense reference; raise WrongResult that says which one is wrong."""
    q, k, v, grad = (inputs[name] for name in ("Q", "K", "V", "dO"))
    dq, dk, dv = (outputs[name] for name in ("dQ", "dK", "dV"))
    for number, (mine, seen) in enumerate(_sequences(work)):
        dense = reference_backward.Problem(
            q[None, mine], k[None, seen], v[None, seen], grad[None, mine], work.causal, _scale(work)
        )
        try:
            reference_backward.check(
                dense, dq[None, mine], dk[None, seen], dv[None, seen], limit=max(1, limit // len(work.rows))
            )
        except WrongResult as error:
            raise WrongResult(f"sequence {number}: {error}") from None


def _problems(kernel: tilekernels.VarlenBackwardKernel) -> Sequence[VarlenBackwardWorkload]:
    return [_of(work.id, work, work.tier, work.why) for work in varlen.FAMILY.problems(kernel)]


def _sequences(work: VarlenWorkload) -> list[tuple[slice, slice]]:
    """Rows and keys of each sequence."""
    rows, keys = (pairwise([0, *accumulate(lengths)]) for lengths in (work.rows, work.keys))
    return [(slice(*mine), slice(*seen)) for mine, seen in zip(rows, keys, strict=True)]


def _scale(work: VarlenWorkload) -> float:
    return 1 / math.sqrt(work.head_dim)


FAMILY = Family(
    name="varlen_backward",
    case="varlen_backward.VarlenBackward.latency_varlen_backward",
    workloads=WORKLOADS,
    kernel=_kernel,
    shipped=_shipped,
    spell=varlen.FAMILY.spell,
    inputs=_inputs,
    outputs=_outputs,
    numbers=_numbers,
    symbols=_symbols,
    check=_check,
    problems=_problems,
    drawn=varlen.FAMILY.drawn,
    # As for `backward`.
    drawn_values=("normal", "huge", "subnormal"),
    varied=("dO",),  # O and LSE belong to the Q, K and V from which they were made
    length=("rows", "keys"),
)
