"""Decoding over a paged cache: new rows of many sequences, of equal and of ragged lengths."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch

import tilekernels
from benchmarks import reference_decode
from benchmarks.family import Family, Numbers, Tensors, full_of_nan
from tilekernels.decode import DecodeSpec, choose_splits, variants

_GPU = ("cuda", "hip")
_QWEN2_5_0_5B = (14, 2, 64)  # query heads, kv heads, head dimension, as in `workloads`
_QWEN2_5_7B = (28, 4, 128)
_QWEN2_5_32B_TP4 = (10, 2, 128)
_QWEN2_5_72B_TP8 = (8, 1, 128)
_LLAMA_3_8B = (32, 8, 128)


@dataclass(frozen=True)
class DecodeWorkload:
    """New rows over a paged cache.

    Attributes:
        id, dtype, targets, tier, why: as in `family.Work`.
        batch, heads, kv_heads, head_dim: the shape; `heads` is a multiple of `kv_heads`.
        rows: new rows of each sequence, causal among them.
        context: keys of the longest sequence, its new rows included.
        page: positions of a page.
        ragged: lengths from `context` / 4 to `context` in even steps, instead of `context` each.
    """

    id: str
    batch: int
    heads: int
    kv_heads: int
    head_dim: int
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
        """Batch, heads/kv heads, new rows if not one, keys, head dimension, page: "b32 h28/4 k4096 d128 p16 ragged"."""
        rows = "" if self.rows == 1 else f" q{self.rows}"
        ragged = " ragged" if self.ragged else ""
        return (
            f"b{self.batch} h{self.heads}/{self.kv_heads}{rows} k{self.context} d{self.head_dim} p{self.page}{ragged}"
        )

    @property
    def flops(self) -> int:
        """Floating-point operations of the two matrix products: 4 * head_dim for every row of a head and key that it sees."""
        rows = self.rows
        pairs = sum(max(0, length - i) for length in self.lengths for i in range(rows))
        return 4 * self.heads * self.head_dim * pairs

    @property
    def bytes(self) -> int:
        """Bytes that have to move at least: K, V and Q read once, O and the float32 log-sum-exp written once, the table read."""
        size = 4 if self.dtype == "float32" else 2
        cache = 2 * size * self.kv_heads * self.head_dim * sum(self.lengths)
        rows = self.batch * self.rows * self.heads
        table = 4 * sum(1 - (-length // self.page) for length in self.lengths)
        return cache + rows * (2 * size * self.head_dim + 4) + table


def _gpu() -> Iterable[DecodeWorkload]:
    tiers = {
        "decode-7b-b32-k4096-p16": "smoke",
        "decode-7b-b1-k32768-p16": "smoke",
        **dict.fromkeys(("decode-7b-b8-k4096-p16", "decode-7b-b128-k4096-p16", "decode-7b-b32-k4096-p1"), "pr"),
        **dict.fromkeys(("decode-72b-tp8-b32-k16384-p16", "decode-7b-b32-k4096-p64-q4"), "pr"),
        **dict.fromkeys(
            ("decode-7b-b64-k16384-p16-ragged", "decode-7b-b32-k4096-p256", "decode-0.5b-b32-k4096-p16"), "pr"
        ),
    }
    seven = "Qwen2.5-7B, group 7"
    rows = (
        *(
            ("7b", _QWEN2_5_7B, batch, context, 16, 1, False, f"{batch} sequences, {seven}")
            for batch in (1, 8, 32, 64, 128)
            for context in (1024, 4096, 16384, 32768)
            if batch * context <= 1 << 20
        ),
        *(("7b", _QWEN2_5_7B, 32, 4096, page, 1, False, f"pages of {page}, {seven}") for page in (1, 64, 256)),
        ("7b", _QWEN2_5_7B, 1, 32768, 1, 1, False, f"one long sequence in pages of 1, {seven}"),
        ("7b", _QWEN2_5_7B, 64, 16384, 16, 1, True, f"ragged lengths, {seven}"),
        ("7b", _QWEN2_5_7B, 128, 4096, 1, 1, True, f"ragged lengths in pages of 1, {seven}"),
        *(("7b", _QWEN2_5_7B, 32, 4096, 64, n, False, f"{n} rows of speculative decoding, {seven}") for n in (4, 8)),
        ("7b", _QWEN2_5_7B, 1, 8704, 64, 512, False, f"512 new tokens over 8192 in pages, {seven}"),
        *(
            ("72b-tp8", _QWEN2_5_72B_TP8, batch, 16384, 16, 1, False, "Qwen2.5-72B on 8 GPUs, group 8, one kv head")
            for batch in (8, 32)
        ),
        ("32b-tp4", _QWEN2_5_32B_TP4, 32, 16384, 16, 1, False, "Qwen2.5-32B on 4 GPUs, group 5"),
        ("0.5b", _QWEN2_5_0_5B, 32, 4096, 16, 1, False, "Qwen2.5-0.5B, head dimension 64"),
        ("llama-8b", _LLAMA_3_8B, 32, 4096, 16, 1, False, "Llama-3-8B, group 4"),
    )
    for name, (heads, kv_heads, head_dim), batch, context, page, new, ragged, why in rows:
        id = f"decode-{name}-b{batch}-k{context}-p{page}{f'-q{new}' if new > 1 else ''}{'-ragged' if ragged else ''}"
        shape = (batch, heads, kv_heads, head_dim, new, context, page, ragged)
        yield DecodeWorkload(id, *shape, "bfloat16", _GPU, tiers.get(id, "full"), why)


def _cpu() -> Iterable[DecodeWorkload]:
    """Milliseconds each: for every branch of the kernels; they say nothing about a GPU."""
    for id, shape, ragged, dtype, tier, why in (
        ("cpu-decode-g7-d64-k200-p16", (2, 7, 1, 64, 1, 200, 16), True, "float32", "smoke", "group 7, ragged"),
        (
            "cpu-decode-g4-d128-k300-p1-q4",
            (1, 8, 2, 128, 4, 300, 1),
            False,
            "float32",
            "smoke",
            "pages of 1, four rows",
        ),
        ("cpu-decode-g5-d64-k130-p64-q40", (1, 5, 1, 64, 40, 130, 64), False, "float32", "pr", "extending over pages"),
        ("cpu-decode-g8-d128-k257-p256", (3, 8, 1, 128, 1, 257, 256), True, "float32", "pr", "one past a page"),
        ("cpu-decode-g7-d64-k96-p16-fp16", (2, 7, 1, 64, 2, 96, 16), False, "float16", "full", "half precision"),
    ):
        yield DecodeWorkload(id, *shape, ragged, dtype, ("cpu",), tier, why)


WORKLOADS: tuple[DecodeWorkload, ...] = (*_gpu(), *_cpu())

# (batch, heads, kv heads, new rows, keys of the longest, page, ragged). The first says most in little time: a group that is
# no power of two, two lengths, several tiles of keys, the last with three, and lengths that end within a page. Then a single
# key, ends of tiles and one past them, other pages, rows that see nothing, and more rows than a tile has.
_SHAPES = (
    *(
        (2, 7, 1, 2, 259, 16, True),
        (1, 7, 1, 1, 1, 256, False),
        (1, 4, 2, 5, 129, 1, False),
        (2, 5, 1, 1, 64, 64, True),
    ),
    *((1, 2, 2, 8, 3, 16, False), (1, 6, 1, 30, 300, 256, False)),
)


def _problem(work: DecodeWorkload) -> tilekernels.DecodeProblem:
    capacity = work.pages * work.page
    shape = (work.batch, work.heads, work.kv_heads, work.rows, capacity, work.page, work.head_dim)
    return tilekernels.DecodeProblem(*shape, work.dtype)


def _kernel(work: DecodeWorkload, policy: str, device: torch.device | str) -> tilekernels.DecodeKernel:
    return tilekernels.decode_kernel(_problem(work), policy, device)[0]


def _shipped(chip: tilekernels.Chip) -> Iterable[tilekernels.DecodeKernel]:
    for head_dim, dtype in sorted({(w.head_dim, w.dtype) for w in WORKLOADS if chip.kind in w.targets}):
        yield from variants(chip, head_dim, dtype)


def _spell(spec: DecodeSpec) -> str:
    return f"{spec.dtype} d{spec.head_dim} {'split' if spec.split else 'whole'}"


def _inputs(work: DecodeWorkload, device: torch.device | str, draw: int) -> Tensors:
    """Draw Q and both caches from the standard normal distribution, and put the pages into any order."""
    generator = torch.Generator(device=device).manual_seed(zlib.crc32(f"{work.id} {draw}".encode()))
    dtype = getattr(torch, work.dtype)
    blocks = work.batch * work.pages
    rows = (blocks * work.page, work.kv_heads, work.head_dim)
    q = (work.batch, work.rows, work.heads, work.head_dim)
    q, k, v = (torch.randn(shape, generator=generator, device=device, dtype=dtype) for shape in (q, rows, rows))
    table = torch.randperm(blocks, generator=torch.Generator().manual_seed(blocks + draw)).view(work.batch, work.pages)
    lengths = torch.tensor(work.lengths, dtype=torch.int32, device=device)
    return {"Q": q, "K": k, "V": v, "BlockTable": table.to(device, torch.int32), "Lengths": lengths}


def _outputs(work: DecodeWorkload, kernel: tilekernels.DecodeKernel, device: torch.device | str) -> Tensors:
    splits = _splits(work, kernel)
    out, lse = (work.batch, work.rows, work.heads, work.head_dim), (work.batch, work.heads, work.rows)
    parts = full_of_nan((splits, *out), "float32" if kernel.spec.split else work.dtype, device)
    parts_lse = full_of_nan((splits, *lse), "float32", device)
    if not kernel.spec.split:  # the one part is the result
        return {"Parts": parts, "PartsLSE": parts_lse, "O": parts[0], "LSE": parts_lse[0]}
    results = {"O": full_of_nan(out, work.dtype, device), "LSE": full_of_nan(lse, "float32", device)}
    return {"Parts": parts, "PartsLSE": parts_lse, **results}


def _splits(work: DecodeWorkload, kernel: tilekernels.DecodeKernel) -> int:
    """As many as the policy takes; three for a small problem that it would not split."""
    if not kernel.spec.split:
        return 1
    splits = choose_splits(_problem(work), kernel.chip, kernel.tile)
    return splits if splits > 1 else 3


def _numbers(work: DecodeWorkload, kernel: tilekernels.DecodeKernel) -> Numbers:
    shift = work.page.bit_length() - 1
    return {
        "k_stride": work.page,
        "v_stride": work.page,
        "page_shift": shift,
        "causal": 1,
        "softmax_scale": 1 / math.sqrt(work.head_dim),
    }


def _symbols(work: DecodeWorkload, kernel: tilekernels.DecodeKernel) -> dict[str, int]:
    rows = work.batch * work.pages * work.page
    return {
        "batch": work.batch,
        "seqlen_q": work.rows,
        "heads": work.heads,
        "kv_heads": work.kv_heads,
        "k_rows": rows,
        "v_rows": rows,
        "pages": work.pages,
        "splits": _splits(work, kernel),
    }


def _check(
    work: DecodeWorkload, inputs: Mapping[str, torch.Tensor], outputs: Mapping[str, torch.Tensor], limit: int
) -> None:
    pages = (-1, work.page, work.kv_heads, work.head_dim)
    caches = (inputs["K"].view(pages), inputs["V"].view(pages))
    scale = 1 / math.sqrt(work.head_dim)
    tables = (inputs["BlockTable"], inputs["Lengths"])
    results = (outputs["O"], outputs["LSE"])
    reference_decode.check(inputs["Q"], *caches, *tables, *results, causal=True, softmax_scale=scale, limit=limit)


def _problems(kernel: tilekernels.DecodeKernel) -> Sequence[DecodeWorkload]:
    spec = kernel.spec
    return [
        DecodeWorkload(_name(*shape), *shape[:3], spec.head_dim, *shape[3:], spec.dtype, ("hip",), "smoke", "emulated")
        for shape in _SHAPES
    ]


def _name(*shape: int) -> str:
    batch, heads, kv_heads, rows, keys, page, ragged = shape
    return f"b{batch} h{heads}/{kv_heads} q{rows} k{keys} p{page}{' ragged' if ragged else ''}"


FAMILY = Family(
    name="decode",
    case="decode.Decode.latency_decode",
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
    varied=("Q", "K", "V"),
    length=("context",),
)
