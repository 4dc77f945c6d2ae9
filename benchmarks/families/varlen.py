"""Attention over packed sequences of different lengths, both tile policies."""

from __future__ import annotations

import dataclasses
import math
import random
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch

import tilekernels
from benchmarks import reference
from benchmarks.family import Family, Numbers, Tensors, full_of_nan
from benchmarks.inputs import VALUES, scaled
from benchmarks.problems import between
from benchmarks.workloads import Workload
from tilegate.protocol import WrongResult

_GPU = ("cuda", "hip")
_QWEN2_5_0_5B = (14, 2, 64)  # query heads, kv heads, head dimension, as in `workloads`
_QWEN2_5_7B = (28, 4, 128)
_QWEN2_5_72B_TP8 = (8, 1, 128)


@dataclass(frozen=True)
class VarlenWorkload:
    """A batch of packed sequences.

    Attributes:
        heads, kv_heads, head_dim, dtype, causal, targets, tier, why: as in `workloads.Workload`.
        rows, keys: of each sequence.
    """

    id: str
    heads: int
    kv_heads: int
    head_dim: int
    rows: tuple[int, ...]
    keys: tuple[int, ...]
    dtype: str
    causal: bool
    targets: tuple[str, ...]
    tier: str
    why: str

    @property
    def shape(self) -> str:
        """Sequences, heads/kv heads, rows and keys in all, head dimension: "n16 h28/4 q16384 k16384 d128 causal"."""
        mask = " causal" if self.causal else ""
        heads = f"h{self.heads}/{self.kv_heads}"
        return f"n{len(self.rows)} {heads} q{sum(self.rows)} k{sum(self.keys)} d{self.head_dim}{mask}"

    @property
    def flops(self) -> int:
        """Floating-point operations of the two matrix products, counted as in `Workload.flops`, sequence by sequence."""
        pairs = 0  # twice the pairs of a row and a key that it sees
        for rows, keys in zip(self.rows, self.keys, strict=True):
            seeing = min(rows, keys)
            pairs += seeing * (2 * keys - seeing) if self.causal else 2 * rows * keys
        return 2 * self.heads * self.head_dim * pairs

    @property
    def bytes(self) -> int:
        """Bytes that have to move at least: Q, K, V and both bounds read once, O and the LSE written once."""
        size = 4 if self.dtype == "float32" else 2
        elements = 2 * self.head_dim * (self.heads * sum(self.rows) + self.kv_heads * sum(self.keys))
        return size * elements + 4 * self.heads * sum(self.rows) + 8 * (len(self.rows) + 1)


def _drawn(sequences: int, total: int, seed: int) -> tuple[int, ...]:
    """Lengths with the long tail of conversations: log-normal with sigma 1, scaled to a total."""
    chance = random.Random(seed)  # noqa: S311 - a mix, not a secret
    weights = [chance.lognormvariate(0, 1) for _ in range(sequences)]
    ends = [round(total * part / sum(weights)) for part in accumulate(weights)]
    return tuple(end - start for start, end in pairwise([0, *ends]))


def _row(
    id: str,
    model: tuple[int, int, int],
    rows: tuple[int, ...],
    tier: str,
    why: str,
    *,
    keys: tuple[int, ...] | None = None,
    dtype: str = "bfloat16",
    causal: bool = True,
    targets: tuple[str, ...] = _GPU,
) -> VarlenWorkload:
    return VarlenWorkload(id, *model, rows, keys or rows, dtype, causal, targets, tier, why)


def _gpu() -> Iterable[VarlenWorkload]:
    mix = _drawn(16, 16384, seed=0)
    chunks, cached = (512,) * 4 + (128, 64, 1, 1), (1024, 4096, 0, 8192, 300, 2000, 1000, 6000)
    over_cache = tuple(new + old for new, old in zip(chunks, cached, strict=True))
    yield _row("varlen-7b-n16-t16384", _QWEN2_5_7B, mix, "smoke", "prompts of one step, packed; Qwen2.5-7B")
    yield _row(
        "varlen-7b-n16-s1024", _QWEN2_5_7B, (1024,) * 16, "pr", "equal lengths: the price beside the dense kernel"
    )
    yield _row("varlen-7b-n4-s4096", _QWEN2_5_7B, (4096,) * 4, "pr", "equal lengths: the price beside the dense kernel")
    yield _row("varlen-7b-n64-t16384", _QWEN2_5_7B, _drawn(64, 16384, seed=1), "pr", "many short prompts, packed")
    yield _row("varlen-72b-tp8-n16-t16384", _QWEN2_5_72B_TP8, mix, "pr", "Qwen2.5-72B on 8 GPUs, one kv head")
    yield _row("varlen-0.5b-n16-t16384", _QWEN2_5_0_5B, mix, "pr", "Qwen2.5-0.5B, head dimension 64")
    why = "chunks and single rows over caches of other lengths"
    yield _row("varlen-7b-n8-chunks", _QWEN2_5_7B, chunks, "pr", why, keys=over_cache)
    packed = _drawn(12, 32768, seed=2)
    yield _row("varlen-7b-n12-t32768", _QWEN2_5_7B, packed, "full", "documents packed for training, forward pass")


def _cpu() -> Iterable[VarlenWorkload]:
    """Milliseconds each: for every branch of the kernel; they say nothing about a GPU."""
    yield _row(
        "cpu-varlen-g7-d64-n4", (7, 1, 64), (33, 0, 64, 1), "smoke", "one is empty", dtype="float32", targets=("cpu",)
    )
    yield _row(
        "cpu-varlen-g2-d64-n3-full",
        (4, 2, 64),
        (17, 40, 3),
        "smoke",
        "other lengths of keys, no mask",
        keys=(65, 0, 70),
        dtype="float32",
        causal=False,
        targets=("cpu",),
    )
    yield _row(
        "cpu-varlen-g6-d128-n2",
        (6, 1, 128),
        (20, 50),
        "pr",
        "rows that see nothing",
        keys=(60, 30),
        dtype="float32",
        targets=("cpu",),
    )
    yield _row(
        "cpu-varlen-g5-d64-n2-fp16", (5, 1, 64), (40, 33), "pr", "half precision", dtype="float16", targets=("cpu",)
    )


WORKLOADS: tuple[VarlenWorkload, ...] = (*_gpu(), *_cpu())

# (heads, kv heads, rows, keys). The first says most in little time: an empty sequence between others, lengths that end within
# tiles, several steps, rows that see nothing. Then sequences without keys, single rows, lengths of whole tiles.
_SMALL = (
    (2, 1, (131, 0, 40), (195, 7, 9)),
    (7, 1, (1, 65, 1), (200, 0, 1)),
    (4, 2, (128, 64, 63), (128, 64, 129)),
    (2, 2, (5,), (1,)),
)


def problem(work: VarlenWorkload) -> tilekernels.VarlenProblem:
    """Return what the library's tile choice is asked about a workload."""
    return tilekernels.VarlenProblem(
        sequences=len(work.rows),
        heads=work.heads,
        kv_heads=work.kv_heads,
        total_q=sum(work.rows),
        max_seqlen_q=max(work.rows),
        max_seqlen_k=max(work.keys),
        head_dim=work.head_dim,
        dtype=work.dtype,
        causal=work.causal,
    )


def _kernel(work: VarlenWorkload, policy: str, device: torch.device | str) -> tilekernels.VarlenKernel:
    return tilekernels.varlen_kernel(problem(work), policy, device)


def _shipped(chip: tilekernels.Chip) -> Iterable[tilekernels.VarlenKernel]:
    """Every specification that a workload of the chip's kind has, in every tile that a policy has for it."""
    specifications = sorted({(w.head_dim, w.dtype, w.causal) for w in WORKLOADS if chip.kind in w.targets})
    for head_dim, dtype, causal in specifications:
        for policy in tilekernels.POLICIES:
            for tile in tilekernels.variants(chip, head_dim, dtype, policy):
                yield tilekernels.VarlenKernel(chip, tilekernels.VarlenSpec(head_dim, dtype, causal), tile)


def _spell(spec: tilekernels.VarlenSpec) -> str:
    return f"{spec.dtype} d{spec.head_dim} {'causal' if spec.causal else 'full'}"


def _inputs(work: VarlenWorkload, device: torch.device | str, draw: int, values: str = "normal") -> Tensors:
    generator = torch.Generator(device=device).manual_seed(zlib.crc32(f"{work.id} {draw}".encode()))
    dtype = getattr(torch, work.dtype)

    def normal(rows: int, heads: int) -> torch.Tensor:
        drawn = torch.randn((rows, heads, work.head_dim), generator=generator, device=device, dtype=dtype)
        return scaled(drawn, values) if rows else drawn

    def bounds(lengths: tuple[int, ...]) -> torch.Tensor:
        return torch.tensor([0, *accumulate(lengths)], dtype=torch.int32, device=device)

    q, k, v = normal(sum(work.rows), work.heads), *(normal(sum(work.keys), work.kv_heads) for _ in range(2))
    return {"Q": q, "K": k, "V": v, "CuQ": bounds(work.rows), "CuK": bounds(work.keys)}


def _outputs(work: VarlenWorkload, kernel: tilekernels.Kernel, device: torch.device | str) -> Tensors:
    total = sum(work.rows)
    return {
        "O": full_of_nan((total, work.heads, work.head_dim), work.dtype, device),
        "LSE": full_of_nan((work.heads, total), "float32", device),
    }


def _numbers(work: VarlenWorkload, kernel: tilekernels.Kernel) -> Numbers:
    return {"max_seqlen_q": max(work.rows), "softmax_scale": 1 / math.sqrt(work.head_dim)}


def _symbols(work: VarlenWorkload, kernel: tilekernels.Kernel) -> dict[str, int]:
    return {
        "bounds": len(work.rows) + 1,
        "total_q": sum(work.rows),
        "total_k": sum(work.keys),
        "heads": work.heads,
        "kv_heads": work.kv_heads,
    }


def check(
    work: VarlenWorkload, inputs: Mapping[str, torch.Tensor], outputs: Mapping[str, torch.Tensor], limit: int
) -> None:
    """Compare every sequence with the dense reference; raise WrongResult that says which one is wrong."""
    q, k, v, out, lse = inputs["Q"], inputs["K"], inputs["V"], outputs["O"], outputs["LSE"]
    ends = zip(pairwise([0, *accumulate(work.rows)]), pairwise([0, *accumulate(work.keys)]), strict=True)
    for number, (rows, keys) in enumerate(ends):
        if rows[0] == rows[1]:
            continue
        mine, seen = slice(*rows), slice(*keys)
        try:
            reference.check(
                *(q[None, mine], k[None, seen], v[None, seen], out[None, mine], lse[None, :, mine]),
                causal=work.causal,
                softmax_scale=1 / math.sqrt(work.head_dim),
                limit=max(1, limit // len(work.rows)),
            )
        except WrongResult as error:
            raise WrongResult(f"sequence {number}: {error}") from None


def _between(work: VarlenWorkload, chance: random.Random, scores: int) -> VarlenWorkload:
    """Draw a problem for the kernels of `work`: a few dense ones of the same heads, packed, now and then one without rows or keys."""
    shape = Workload("", 1, work.heads, work.kv_heads, 1, 1, work.head_dim, work.dtype, work.causal, (), "", "")
    sequences = chance.randint(1, 4)
    drawn = [between(shape, chance, scores // sequences) for _ in range(sequences)]
    heads, kv_heads = drawn[0].heads, drawn[0].kv_heads
    rows = tuple(each.seqlen_q if chance.random() < 0.9 else 0 for each in drawn)
    keys = tuple(each.seqlen_k if chance.random() < 0.9 else 0 for each in drawn)
    if not sum(rows) or not sum(keys):
        rows, keys = (1, *rows[1:]), (1, *keys[1:])
    id = f"drawn h{heads}/{kv_heads} q{'+'.join(map(str, rows))} k{'+'.join(map(str, keys))}"
    return dataclasses.replace(work, id=id, heads=heads, kv_heads=kv_heads, rows=rows, keys=keys)


def _problems(kernel: tilekernels.VarlenKernel) -> Sequence[VarlenWorkload]:
    spec = kernel.spec
    return [
        VarlenWorkload(
            f"h{heads}/{kv_heads} q{'+'.join(map(str, rows))} k{'+'.join(map(str, keys))}",
            *(heads, kv_heads, spec.head_dim, rows, keys, spec.dtype, spec.causal),
            *(("hip",), "smoke", "emulated"),
        )
        for heads, kv_heads, rows, keys in _SMALL
    ]


FAMILY = Family(
    name="varlen",
    case="varlen.Varlen.latency_varlen",
    workloads=WORKLOADS,
    kernel=_kernel,
    shipped=_shipped,
    spell=_spell,
    inputs=_inputs,
    outputs=_outputs,
    numbers=_numbers,
    symbols=_symbols,
    check=check,
    problems=_problems,
    drawn=_between,
    drawn_values=VALUES,
    varied=("Q", "K", "V"),
    length=("rows", "keys"),
)
