"""Multi-head latent attention, absorbed, over a paged cache: DeepSeek-V3 on eight GPUs, and on one of them alone."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch

import tilekernels
from benchmarks import reference_decode
from benchmarks.family import Family, Numbers, Tensors, full_of_nan
from tilekernels.mla import LATENT_DIM, ROPE_DIM, MlaSpec, choose_splits, variants

_GPU = ("cuda", "hip")
_TP8 = 16
_ALL = 128
SOFTMAX_SCALE = 1 / math.sqrt(128 + ROPE_DIM)
"""DeepSeek-V3's, of its heads before absorption: `qk_nope_head_dim` is 128. Without YaRN's factor."""


@dataclass(frozen=True)
class MlaWorkload:
    """New rows over a paged cache of latents.

    Attributes:
        id, dtype, targets, tier, why: as in `family.Work`.
        batch, heads: the shape; every head reads the same keys.
        rows: new rows of each sequence, causal among them.
        context: keys of the longest sequence, its new rows included.
        page: positions of a page.
        ragged: lengths from `context` / 4 to `context` in even steps, instead of `context` each.
    """

    id: str
    batch: int
    heads: int
    rows: int
    context: int
    page: int
    ragged: bool
    dtype: str
    targets: tuple[str, ...]
    tier: str
    why: str

    @property
    def lengths(self) -> list[int]:
        """Keys of each sequence."""
        if not self.ragged:
            return [self.context] * self.batch
        least, steps = self.context // 4, max(1, self.batch - 1)
        return [self.context - i * (self.context - least) // steps for i in range(self.batch)]

    @property
    def pages(self) -> int:
        """Of the longest sequence."""
        return -(-self.context // self.page)

    @property
    def shape(self) -> str:
        """Batch, heads, new rows if not one, keys, page: "b32 h16 k4096 p64 ragged"."""
        rows = "" if self.rows == 1 else f" q{self.rows}"
        return f"b{self.batch} h{self.heads}{rows} k{self.context} p{self.page}{' ragged' if self.ragged else ''}"

    @property
    def flops(self) -> int:
        """Floating-point operations of the two matrix products, 576 and 512 wide, for every key that a row of a head sees."""
        pairs = sum(max(0, length - i) for length in self.lengths for i in range(self.rows))
        return 2 * self.heads * (2 * LATENT_DIM + ROPE_DIM) * pairs

    @property
    def bytes(self) -> int:
        """Bytes that have to move at least: keys and Q read once, O and the float32 log-sum-exp written once, the table read."""
        size = 4 if self.dtype == "float32" else 2
        cache = size * (LATENT_DIM + ROPE_DIM) * sum(self.lengths)
        rows = self.batch * self.rows * self.heads
        table = 4 * sum(-(-length // self.page) for length in self.lengths)
        return cache + rows * (size * (2 * LATENT_DIM + ROPE_DIM) + 4) + table


def _gpu() -> Iterable[MlaWorkload]:
    tiers = {
        "mla-v3-tp8-b32-k4096-p64": "smoke",
        **dict.fromkeys(("mla-v3-b32-k4096-p64", "mla-v3-tp8-b1-k32768-p64", "mla-v3-tp8-b64-k4096-p1-ragged"), "pr"),
    }
    rows = (
        *(
            (name, heads, batch, context, 64, 1, False, f"{batch} sequences, {who}")
            for name, heads, who in (
                ("v3-tp8", _TP8, "DeepSeek-V3 on 8 GPUs, 16 heads"),
                ("v3", _ALL, "DeepSeek-V3, attention not split, 128 heads"),
            )
            for batch, context in ((1, 32768), (8, 4096), (32, 4096), (32, 16384), (128, 4096))
        ),
        ("v3-tp8", _TP8, 32, 4096, 64, 2, False, "two rows, one of them predicted, 16 heads"),
        ("v3-tp8", _TP8, 64, 4096, 1, 1, True, "ragged lengths in pages of 1, 16 heads"),
        ("v3", _ALL, 64, 8192, 16, 1, True, "ragged lengths in pages of 16, 128 heads"),
    )
    for name, heads, batch, context, page, new, ragged, why in rows:
        id = f"mla-{name}-b{batch}-k{context}-p{page}{f'-q{new}' if new > 1 else ''}{'-ragged' if ragged else ''}"
        shape = (batch, heads, new, context, page, ragged)
        yield MlaWorkload(id, *shape, "bfloat16", _GPU, tiers.get(id, "full"), why)


def _cpu() -> Iterable[MlaWorkload]:
    """Milliseconds each: for every branch of the kernels; they say nothing about a GPU."""
    for id, shape, ragged, dtype, tier, why in (
        ("cpu-mla-h16-k83-p16", (2, 16, 1, 83, 16), True, "float32", "smoke", "16 heads, ragged"),
        ("cpu-mla-h5-k49-p1-q4", (1, 5, 4, 49, 1), False, "float32", "pr", "pages of 1, four rows"),
        ("cpu-mla-h128-k33-p64", (1, 128, 1, 33, 64), False, "float32", "pr", "128 heads"),
        ("cpu-mla-h16-k40-p16-fp16", (1, 16, 1, 40, 16), False, "float16", "full", "half precision"),
    ):
        yield MlaWorkload(id, *shape, ragged, dtype, ("cpu",), tier, why)


WORKLOADS: tuple[MlaWorkload, ...] = (*_gpu(), *_cpu())

# (batch, heads, new rows, keys of the longest, page, ragged). The first says most in little time: a number of heads that is no
# power of two, rows of several tiles, two lengths, several tiles of keys, the last with three. Then a single key, pages of 1,
# whole tiles, and rows that see nothing.
_SHAPES = (
    *((2, 5, 4, 67, 16, True), (1, 16, 1, 1, 64, False), (1, 16, 2, 130, 1, False), (2, 3, 1, 64, 64, True)),
    (1, 9, 8, 3, 16, False),
)


def _problem(work: MlaWorkload) -> tilekernels.MlaProblem:
    capacity = work.pages * work.page
    return tilekernels.MlaProblem(work.batch, work.heads, work.rows, capacity, work.page, work.dtype)


def _kernel(work: MlaWorkload, policy: str, device: torch.device | str) -> tilekernels.MlaKernel:
    return tilekernels.mla_kernel(_problem(work), policy, device)[0]


def _shipped(chip: tilekernels.Chip) -> Iterable[tilekernels.MlaKernel]:
    for dtype in sorted({w.dtype for w in WORKLOADS if chip.kind in w.targets}):
        yield from variants(chip, dtype)


def _spell(spec: MlaSpec) -> str:
    return f"{spec.dtype} {'split' if spec.split else 'whole'}"


def _inputs(work: MlaWorkload, device: torch.device | str, draw: int) -> Tensors:
    """Draw Q and the cache from the standard normal distribution, and put the pages into any order."""
    generator = torch.Generator(device=device).manual_seed(zlib.crc32(f"{work.id} {draw}".encode()))
    dtype, width = getattr(torch, work.dtype), LATENT_DIM + ROPE_DIM
    blocks = work.batch * work.pages
    q, kv = (
        torch.randn(shape, generator=generator, device=device, dtype=dtype)
        for shape in ((work.batch, work.rows, work.heads, width), (blocks * work.page, width))
    )
    table = torch.randperm(blocks, generator=torch.Generator().manual_seed(blocks + draw)).view(work.batch, work.pages)
    lengths = torch.tensor(work.lengths, dtype=torch.int32, device=device)
    return {"Q": q, "KV": kv, "BlockTable": table.to(device, torch.int32), "Lengths": lengths}


def _outputs(work: MlaWorkload, kernel: tilekernels.MlaKernel, device: torch.device | str) -> Tensors:
    splits = _splits(work, kernel)
    out, lse = (work.batch, work.rows, work.heads, LATENT_DIM), (work.batch, work.heads, work.rows)
    parts = full_of_nan((splits, *out), "float32" if kernel.spec.split else work.dtype, device)
    parts_lse = full_of_nan((splits, *lse), "float32", device)
    if not kernel.spec.split:  # the one part is the result
        return {"Parts": parts, "PartsLSE": parts_lse, "O": parts[0], "LSE": parts_lse[0]}
    results = {"O": full_of_nan(out, work.dtype, device), "LSE": full_of_nan(lse, "float32", device)}
    return {"Parts": parts, "PartsLSE": parts_lse, **results}


def _splits(work: MlaWorkload, kernel: tilekernels.MlaKernel) -> int:
    """As many as the policy takes; three for a small problem that it would not split."""
    if not kernel.spec.split:
        return 1
    splits = choose_splits(_problem(work), kernel.chip, kernel.tile)
    return splits if splits > 1 else 3


def _numbers(work: MlaWorkload, kernel: tilekernels.MlaKernel) -> Numbers:
    shift = work.page.bit_length() - 1
    return {"kv_stride": work.page, "page_shift": shift, "causal": 1, "softmax_scale": SOFTMAX_SCALE}


def _symbols(work: MlaWorkload, kernel: tilekernels.MlaKernel) -> dict[str, int]:
    return {
        "batch": work.batch,
        "seqlen_q": work.rows,
        "heads": work.heads,
        "kv_rows": work.batch * work.pages * work.page,
        "pages": work.pages,
        "splits": _splits(work, kernel),
    }


def _check(
    work: MlaWorkload, inputs: Mapping[str, torch.Tensor], outputs: Mapping[str, torch.Tensor], limit: int
) -> None:
    keys = inputs["KV"].view(-1, work.page, 1, LATENT_DIM + ROPE_DIM)
    tables = (inputs["BlockTable"], inputs["Lengths"])
    results = (outputs["O"], outputs["LSE"])
    options = {"causal": True, "softmax_scale": SOFTMAX_SCALE, "limit": limit}
    reference_decode.check(inputs["Q"], keys, keys[..., :LATENT_DIM], *tables, *results, **options)


def _problems(kernel: tilekernels.MlaKernel) -> Sequence[MlaWorkload]:
    return [MlaWorkload(_name(*shape), *shape, kernel.spec.dtype, ("hip",), "smoke", "emulated") for shape in _SHAPES]


def _name(*shape: int) -> str:
    batch, heads, rows, keys, page, ragged = shape
    return f"b{batch} h{heads} q{rows} k{keys} p{page}{' ragged' if ragged else ''}"


FAMILY = Family(
    name="mla",
    case="mla.Mla.latency_mla",
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
    varied=("Q", "KV"),
    length=("context",),
)
