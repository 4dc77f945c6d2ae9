"""Which attention problems are measured, and why: one table that asv, the gate and the tests all draw from.

An id always names the same problem: years of results hang on it. A changed problem gets a new id.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilegate.protocol import TIERS, Selection

_GPU = ("cuda", "hip")
_CPU = ("cpu",)

# head counts (query/kv) and head dimensions: the models' published config.json
_QWEN2_5_0_5B = (14, 2, 64)
_QWEN2_5_7B = (28, 4, 128)
_QWEN2_5_14B = (40, 8, 128)
_QWEN2_5_32B_TP4 = (10, 2, 128)  # 40/8 over four GPUs
_QWEN2_5_72B_TP8 = (8, 1, 128)  # 64/8 over eight GPUs
_LLAMA_3_8B = (32, 8, 128)
_LLAMA_3_70B = (64, 8, 128)


@dataclass(frozen=True)
class Workload:
    """One forward attention problem.

    Attributes:
        id: stable, unique, spells out what matters.
        batch, heads, kv_heads, seqlen_q, seqlen_k, head_dim: the shape; `heads` is a multiple of `kv_heads`.
        dtype: torch's name of the element type of Q, K, V and O.
        causal: masked, aligned bottom right: row i sees columns up to i + seqlen_k - seqlen_q.
        targets: where it is measured.
        tier: the smallest tier it belongs to; the larger ones hold it too.
        why: what it stands for.
    """

    id: str
    batch: int
    heads: int
    kv_heads: int
    seqlen_q: int
    seqlen_k: int
    head_dim: int
    dtype: str
    causal: bool
    targets: tuple[str, ...]
    tier: str
    why: str

    @property
    def shape(self) -> str:
        """Batch, heads/kv heads, rows (and keys, if another number), head dimension: "b4 h28/4 s4096 d128 causal"."""
        rows = f"s{self.seqlen_q}" if self.seqlen_q == self.seqlen_k else f"q{self.seqlen_q} k{self.seqlen_k}"
        mask = " causal" if self.causal else ""
        return f"b{self.batch} h{self.heads}/{self.kv_heads} {rows} d{self.head_dim}{mask}"

    @property
    def flops(self) -> int:
        """Floating-point operations of the two matrix products, by the convention of FlashAttention's benchmarks.

        4*B*H*Sq*Sk*D in full; under a causal mask 2*B*H*D*Sq*(2*Sk - Sq), where rows that see nothing (Sq > Sk) count
        for nothing. Softmax is not counted.
        """
        per_pair = self.batch * self.heads * self.head_dim
        if not self.causal:
            return 4 * per_pair * self.seqlen_q * self.seqlen_k
        rows = min(self.seqlen_q, self.seqlen_k)
        return 2 * per_pair * rows * (2 * self.seqlen_k - rows)

    @property
    def bytes(self) -> int:
        """Bytes that have to move at least: Q, K and V read once, O and the float32 log-sum-exp written once."""
        elements = self.head_dim * (2 * self.heads * self.seqlen_q + 2 * self.kv_heads * self.seqlen_k)
        size = 4 if self.dtype == "float32" else 2
        return self.batch * (size * elements + 4 * self.heads * self.seqlen_q)


def _case(
    id: str,
    model: tuple[int, int, int],
    batch: int,
    lengths: int | tuple[int, int],
    tier: str,
    *,
    why: str,
    dtype: str = "bfloat16",
    causal: bool = True,
    targets: tuple[str, ...] = _GPU,
) -> Workload:
    heads, kv_heads, head_dim = model
    seqlen_q, seqlen_k = (lengths, lengths) if isinstance(lengths, int) else lengths
    return Workload(id, batch, heads, kv_heads, seqlen_q, seqlen_k, head_dim, dtype, causal, targets, tier, why)


def _prefill() -> tuple[Workload, ...]:
    """Prompts of a serving engine: 16k tokens a step at every length, one long prompt, and one short one.

    The 7B shapes at 16k tokens are also those of its training forward pass at 2k, 4k and 8k.
    """
    models = {
        "7b": (_QWEN2_5_7B, "Qwen2.5-7B, group 7"),
        "72b-tp8": (_QWEN2_5_72B_TP8, "Qwen2.5-72B on 8 GPUs, group 8, one kv head"),
        "32b-tp4": (_QWEN2_5_32B_TP4, "Qwen2.5-32B on 4 GPUs, group 5"),
        "0.5b": (_QWEN2_5_0_5B, "Qwen2.5-0.5B, head dimension 64"),
    }
    shapes = ((16, 1024), (8, 2048), (4, 4096), (2, 8192), (1, 16384), (1, 32768), (1, 65536))
    tiers = {
        **{("7b", length): "pr" for length in (1024, 2048, 8192, 16384, 32768)},
        **{(name, length): "pr" for name in ("72b-tp8", "32b-tp4") for length in (4096, 16384)},
        ("7b", 4096): "smoke",
        ("0.5b", 2048): "smoke",
        ("0.5b", 8192): "pr",
    }
    one, half = "one prompt", "prefill in half precision"
    return (
        *(
            _case(
                f"prefill-{name}-b{batch}-s{length}",
                model,
                batch,
                length,
                tiers.get((name, length), "full"),
                why=f"prefill, {who}",
            )
            for name, (model, who) in models.items()
            for batch, length in shapes
        ),
        _case("prefill-7b-b1-s1024", _QWEN2_5_7B, 1, 1024, "smoke", why="one short prompt: too few tiles for the GPU"),
        _case("prefill-7b-b1-s2048", _QWEN2_5_7B, 1, 2048, "full", why=one),
        _case("prefill-7b-b1-s4096", _QWEN2_5_7B, 1, 4096, "pr", why=one),
        _case("prefill-7b-b1-s8192", _QWEN2_5_7B, 1, 8192, "full", why=one),
        _case("prefill-7b-b4-s4097", _QWEN2_5_7B, 4, 4097, "smoke", why="one past every tile: the price of masking"),
        _case("prefill-7b-b1-s4096-fp16", _QWEN2_5_7B, 1, 4096, "pr", why=half, dtype="float16"),
        _case("prefill-7b-b1-s16384-fp16", _QWEN2_5_7B, 1, 16384, "full", why=half, dtype="float16"),
        _case("prefill-7b-b1-s32768-fp16", _QWEN2_5_7B, 1, 32768, "full", why=half, dtype="float16"),
    )


def _extend() -> tuple[Workload, ...]:
    """Chunked prefill: new rows over a cache that is already there, read as one contiguous block."""
    models = {"7b": (_QWEN2_5_7B, "Qwen2.5-7B"), "72b-tp8": (_QWEN2_5_72B_TP8, "Qwen2.5-72B on 8 GPUs")}
    tiers = {("7b", 512, 8192): "smoke", ("7b", 2048, 30720): "pr", ("72b-tp8", 2048, 8192): "pr"}
    return tuple(
        _case(
            f"extend-{name}-b1-q{new}-k{cached + new}",
            model,
            1,
            (new, cached + new),
            tiers.get((name, new, cached), "full"),
            why=f"{new} new tokens over {cached} cached, {who}",
        )
        for name, (model, who) in models.items()
        for new in (512, 2048)
        for cached in (8192, 30720)
    )


def _decode() -> tuple[Workload, ...]:
    """One row over a contiguous cache, with enough sequences to fill a GPU without splitting the keys.

    What `attention()` costs a caller who decodes with it. Fewer sequences, or pages, ask for a decode kernel.
    """
    return tuple(
        _case(
            f"decode-contiguous-7b-b{batch}-k{length}",
            _QWEN2_5_7B,
            batch,
            (1, length),
            tier,
            why=f"{batch} sequences, one new token each, contiguous cache",
        )
        for batch, length, tier in ((64, 4096, "pr"), (128, 1024, "full"))
    )


def _training() -> tuple[Workload, ...]:
    return tuple(
        _case(
            f"train-14b-b{batch}-s{length}",
            _QWEN2_5_14B,
            batch,
            length,
            "pr" if length == 4096 else "full",
            why="forward pass of training, Qwen2.5-14B, group 5",
        )
        for batch, length in ((8, 2048), (4, 4096), (2, 8192))
    )


def _vendor() -> tuple[Workload, ...]:
    """The shapes of which AMD (AITER) and NVIDIA (cuDNN, FlashAttention-3) publish numbers; at most 64k tokens each."""
    tiers = {
        (_LLAMA_3_8B, 1, 8192, True): "smoke",
        (_LLAMA_3_8B, 1, 4096, True): "pr",
        (_LLAMA_3_8B, 1, 4096, False): "pr",
        (_LLAMA_3_70B, 8, 8192, True): "pr",
        (_LLAMA_3_70B, 1, 16384, True): "pr",
    }
    return tuple(
        _case(
            f"vendor-{model[0]}x{model[1]}-b{batch}-s{length}-{'causal' if causal else 'full'}",
            model,
            batch,
            length,
            tiers.get((model, batch, length, causal), "full"),
            why="as published by the vendors, head counts of Llama-3",
            causal=causal,
        )
        for model in (_LLAMA_3_8B, _LLAMA_3_70B)
        for batch in (1, 4, 8)
        for length in (1024, 2048, 4096, 8192, 16384)
        if batch * length <= 65536
        for causal in (True, False)
    )


def _cpu() -> tuple[Workload, ...]:
    """Milliseconds each, up to tens in `full`: for every branch of kernel and harness; they say nothing about a GPU."""
    return tuple(
        _case(id, model, batch, lengths, tier, why=why, causal=causal, dtype=dtype, targets=_CPU)
        for id, model, batch, lengths, tier, causal, dtype, why in (
            ("cpu-g5-d64-s128", (5, 1, 64), 1, 128, "smoke", True, "float32", "group 5, aligned"),
            ("cpu-g6-d64-s127", (6, 1, 64), 1, 127, "smoke", True, "float32", "group 6, one short of a tile"),
            ("cpu-g7-d128-s96", (7, 1, 128), 1, 96, "smoke", True, "float32", "group 7, Qwen2.5-7B's ratio"),
            ("cpu-g8-d64-q33-k160", (8, 1, 64), 1, (33, 160), "smoke", True, "float32", "group 8, over a cache"),
            ("cpu-g1-d64-q129-k65", (4, 4, 64), 1, (129, 65), "smoke", True, "float32", "some rows see nothing"),
            ("cpu-g4-d128-s64-full", (8, 2, 128), 1, 64, "smoke", False, "float32", "no mask"),
            ("cpu-g7-d64-s48-fp16", (7, 1, 64), 1, 48, "smoke", True, "float16", "half precision"),
            ("cpu-0.5b-b1-s256", _QWEN2_5_0_5B, 1, 256, "pr", True, "float32", "Qwen2.5-0.5B, aligned"),
            ("cpu-0.5b-b2-s193-full", _QWEN2_5_0_5B, 2, 193, "pr", False, "float32", "batch 2, unaligned"),
            ("cpu-32b-tp4-b1-s129", _QWEN2_5_32B_TP4, 1, 129, "pr", True, "float32", "one past a tile"),
            ("cpu-72b-tp8-b2-q64-k320", _QWEN2_5_72B_TP8, 2, (64, 320), "pr", True, "float32", "extend, batch 2"),
            ("cpu-7b-b1-q1-k128", _QWEN2_5_7B, 1, (1, 128), "full", True, "float32", "one row over a cache"),
            ("cpu-7b-b1-s256", _QWEN2_5_7B, 1, 256, "full", True, "float32", "Qwen2.5-7B"),
            ("cpu-0.5b-b1-s512", _QWEN2_5_0_5B, 1, 512, "full", True, "float32", "many tiles a row"),
        )
    )


WORKLOADS: tuple[Workload, ...] = (*_prefill(), *_extend(), *_decode(), *_training(), *_vendor(), *_cpu())


def select(selection: Selection, workloads: Sequence[Any] = WORKLOADS) -> tuple[Any, ...]:
    """Return the workloads of a target's tier, in the order of their table."""
    tiers = TIERS[: TIERS.index(selection.tier) + 1]
    return tuple(w for w in workloads if selection.target in w.targets and w.tier in tiers)


def workload(id: str) -> Workload:
    """Return the workload of that id.

    Raises:
        ValueError: there is none.
    """
    found = next((w for w in WORKLOADS if w.id == id), None)
    if found is None:
        raise ValueError(f"there is no workload {id!r}; benchmarks/workloads.py lists them")
    return found
