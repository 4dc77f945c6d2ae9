"""The attention of whole engine steps of a server with Qwen2.5-7B's heads, in the calls that a server makes."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, pairwise
from typing import Any

import torch

import tilekernels
from benchmarks import reference, reference_decode
from benchmarks.launches import DEVICE, SELECTION
from benchmarks.load import Chunk, Lengths, Load, Step, steps
from tilegate.protocol import Artifact, Buffers, WrongResult, verify_origin

verify_origin(tilekernels)

# Conversation: the medians of Azure's trace of a chat service, 1,020 tokens in and 129 out (Patel et al., "Splitwise", ISCA
# 2024, section III). The spreads are ours, as is all of "documents". A budget of 8,192 rows is the default of both engines
# on large GPUs (SGLang: --chunked-prefill-size, vLLM: max_num_batched_tokens).
LOADS = (
    {"cpu-chat": Load(Lengths(24, 0.8, 4, 96), Lengths(6, 0.6, 2, 16), 4, 64, 4, 24, "short prompts, for every branch")}
    if SELECTION.target == "cpu"
    else {
        "chat": Load(Lengths(1020, 0.9, 16, 16384), Lengths(129, 0.8, 4, 2048), 64, 8192, 16, 256, "conversation"),
        "documents": Load(
            Lengths(16384, 0.4, 4096, 32768), Lengths(64, 0.6, 8, 512), 16, 8192, 16, 256, "questions on documents"
        ),
    }
)
HEADS, KV_HEADS, HEAD_DIM = (4, 2, 64) if SELECTION.target == "cpu" else (28, 4, 128)
PAGE = 16
_DTYPE = "float32" if SELECTION.target == "cpu" else "bfloat16"
_SCALE = 1 / math.sqrt(HEAD_DIM)
_LOOKED_AT_SCORES = 1 << 27  # compared of each timed launch that is looked at


@dataclass(frozen=True)
class Call:
    """One call of a step.

    Attributes:
        chunks: the requests that it serves: all whose prompt begins (packed sequences), all that decode, or one whose prompt
            continues over its cached prefix.
        packed: it is one of `attention_varlen`; else of `attention_decode`.
    """

    chunks: Step
    packed: bool

    @property
    def rows(self) -> int:
        """New rows of all its requests."""
        return sum(chunk.rows for chunk in self.chunks)

    @property
    def keys(self) -> list[int]:
        """Keys of each request, those of the new rows included."""
        return [chunk.context + chunk.rows for chunk in self.chunks]

    @property
    def pages(self) -> int:
        """Of the longest request."""
        return max(-(-keys // PAGE) for keys in self.keys)

    def kernel(self, policy: str) -> tilekernels.VarlenKernel | tilekernels.DecodeKernel:
        """The kernel that the call launches."""
        if self.packed:
            longest = max(self.keys)
            shape = (len(self.chunks), HEADS, KV_HEADS, self.rows, longest, longest, HEAD_DIM, _DTYPE, True)
            return tilekernels.varlen_kernel(tilekernels.VarlenProblem(*shape), policy, DEVICE)
        rows = self.chunks[0].rows
        shape = (len(self.chunks), HEADS, KV_HEADS, rows, self.pages * PAGE, PAGE, HEAD_DIM, _DTYPE)
        return tilekernels.decode_kernel(tilekernels.DecodeProblem(*shape), policy, DEVICE)[0]


def calls_of(step: Step) -> Iterator[Call]:
    """Yield the calls of a step: new prompts packed, decoding requests together, each continued prompt by itself."""
    prompts = tuple(chunk for chunk in step if chunk.context == 0)
    decoding = tuple(chunk for chunk in step if chunk.context and chunk.rows == 1)
    if prompts:
        yield Call(prompts, packed=True)
    if decoding:
        yield Call(decoding, packed=False)
    yield from (Call((chunk,), packed=False) for chunk in step if chunk.context and chunk.rows > 1)


@cache
def calls(load: str) -> tuple[Call, ...]:
    """All calls of a launch, in order."""
    return tuple(call for step in steps(LOADS[load]) for call in calls_of(step))


class Serving:
    """One launch: the attention of one layer in all sampled steps of a load."""

    params = (list(LOADS)[: 1 if SELECTION.tier == "smoke" else None], ["fixed", "adaptive"])
    param_names = ("load", "policy")
    version = "1"
    timeout = 600.0
    warmup_time = 0.05 if SELECTION.target == "cpu" else 0.3
    sample_time = 0.2 if SELECTION.target == "cpu" else 0.5

    def setup(self, load: str, policy: str) -> None:
        """Compile the kernels; draw rows and a cache, with pages in any order."""
        self.precompile([(load, policy)])
        self._inputs = self.inputs(load, policy)
        self._results: dict[str, torch.Tensor] = {}
        self._calls = [
            (f"O{number}", _prepared(call, f"Q{number}", self._inputs, policy))
            for number, call in enumerate(calls(load))
        ]

    def latency_serving(self, load: str, policy: str) -> None:
        """Make all calls once."""
        for name, call in self._calls:
            self._results[name] = call()

    def check(self, load: str, policy: str) -> None:
        """Compare the results with the reference; raises WrongResult."""
        self.latency_serving(load, policy)
        self.verify(self._inputs, self._results, load, policy)

    @classmethod
    def precompile(cls, params: list[tuple[str, str]]) -> None:
        """Compile all that these (load, policy) need, in parallel."""
        tilekernels.compile_kernels(call.kernel(policy) for load, policy in params for call in calls(load))

    def inputs(self, load: str, policy: str) -> dict[str, torch.Tensor]:
        """Draw Q of every call, and one K and V cache for all; the same in every process. Needs no `setup`."""
        generator = torch.Generator(device=DEVICE).manual_seed(zlib.crc32(load.encode()))
        blocks = max(_blocks(call) for call in calls(load))
        shapes = {f"Q{i}": (call.rows, HEADS, HEAD_DIM) for i, call in enumerate(calls(load))}
        shapes |= {name: (blocks, PAGE, KV_HEADS, HEAD_DIM) for name in "KV"}
        dtype = getattr(torch, _DTYPE)
        return {
            name: torch.randn(shape, generator=generator, device=DEVICE, dtype=dtype) for name, shape in shapes.items()
        }

    def buffers(self, load: str, policy: str) -> list[Buffers]:
        """Return what the launches read, and what the last one returned."""
        return [Buffers(self._inputs, self._results)]

    def verify(self, inputs: dict[str, torch.Tensor], outputs: dict[str, torch.Tensor], load: str, policy: str) -> None:
        """Compare what a launch returned with the reference; needs no `setup`. Raises WrongResult."""
        for number, call in enumerate(calls(load)):
            q, out = inputs[f"Q{number}"], outputs[f"O{number}"]
            if out.numel() != q.numel() or out.dtype != q.dtype:
                raise WrongResult(f"call {number} returned {tuple(out.shape)} of {out.dtype} for {tuple(q.shape)}")
            try:
                _compare(call, q, (inputs["K"], inputs["V"]), out, _LOOKED_AT_SCORES // len(calls(load)))
            except WrongResult as error:
                raise WrongResult(f"call {number}: {error}") from None

    def artifacts(self, load: str, policy: str) -> list[Artifact]:
        """Return the kernels that a launch starts; needs no `setup`."""
        kernels = dict.fromkeys(call.kernel(policy) for call in calls(load))
        return [
            Artifact(f"{made.name} {kernel.spec} {kernel.tile}", made.source, made.launch, made.resources)
            for kernel in kernels
            for made in kernel.artifacts()
        ]

    def reproduction(self, load: str, policy: str, lengths: Sequence[int]) -> dict[str, Any]:
        """Say why there is none; see docs/protocol.md.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError(
            f"one launch makes {len(calls(load))} calls of the package's public functions; reproduce one of its kernels instead, "
            "a case of latency_varlen (new prompts) or latency_decode (the rest)"
        )

    def work(self, load: str, policy: str) -> dict[str, int | str]:
        """Return what one launch computes and moves, and the tokens that it is for; needs no `setup`."""
        chunks = [chunk for call in calls(load) for chunk in call.chunks]
        size = 4 if _DTYPE == "float32" else 2
        tokens = sum(chunk.rows for chunk in chunks)
        keys = sum(chunk.context + chunk.rows for chunk in chunks)
        return {
            "flops": 4 * HEADS * HEAD_DIM * sum(map(_pairs, chunks)),
            "bytes": 2 * size * HEAD_DIM * (KV_HEADS * keys + HEADS * tokens),  # K and V, Q and O
            "tokens": tokens,
            "shape": f"{LOADS[load].slots} requests, {LOADS[load].steps} steps",
        }


def _pairs(chunk: Chunk) -> int:
    """Rows and the keys that each sees, under the causal mask."""
    return chunk.rows * chunk.context + chunk.rows * (chunk.rows + 1) // 2


def _blocks(call: Call) -> int:
    return sum(-(-keys // PAGE) for keys in call.keys)


def _table(call: Call, blocks: int) -> torch.Tensor:
    """(requests, pages): every request's pages, in any order; the entries beyond its last are 0 and never read."""
    order = torch.randperm(blocks, generator=torch.Generator().manual_seed(blocks)).tolist()
    table = torch.zeros((len(call.chunks), call.pages), dtype=torch.int32)
    for row, keys in enumerate(call.keys):
        count = -(-keys // PAGE)
        table[row, :count] = torch.tensor(order[:count], dtype=torch.int32)
        del order[:count]
    return table


def _bounds(call: Call) -> list[int]:
    return [0, *accumulate(call.keys)]


def _prepared(call: Call, name: str, inputs: dict[str, torch.Tensor], policy: str) -> Callable[[], torch.Tensor]:
    """Return the call with its arguments; what it needs beside them is on the device already."""
    q, k, v = inputs[name], inputs["K"], inputs["V"]
    if call.packed:  # K and V of new prompts come from the projection, packed like Q
        packed = [x.view(-1, KV_HEADS, HEAD_DIM)[: call.rows] for x in (k, v)]
        bounds = torch.tensor(_bounds(call), dtype=torch.int32, device=DEVICE)
        longest = max(call.keys)
        return lambda: tilekernels.attention_varlen(
            q, *packed, bounds, bounds, longest, longest, causal=True, policy=policy
        )
    rows = q.view(len(call.chunks), -1, HEADS, HEAD_DIM)
    lengths = torch.tensor(call.keys, dtype=torch.int32, device=DEVICE)
    table = _table(call, k.shape[0]).to(DEVICE)
    return lambda: tilekernels.attention_decode(
        rows, k, v, cache_seqlens=lengths, block_table=table, causal=True, policy=policy
    )


def _compare(
    call: Call, q: torch.Tensor, caches: tuple[torch.Tensor, torch.Tensor], out: torch.Tensor, limit: int
) -> None:
    k, v = caches
    if not call.packed:
        shape = (len(call.chunks), -1, HEADS, HEAD_DIM)
        table = _table(call, k.shape[0]).to(q.device)
        lengths = torch.tensor(call.keys, device=q.device)
        reference_decode.check(
            *(q.view(shape), k, v, table, lengths, out.view(shape), None),
            causal=True,
            softmax_scale=_SCALE,
            limit=limit,
        )
        return
    k, v = k.view(-1, KV_HEADS, HEAD_DIM), v.view(-1, KV_HEADS, HEAD_DIM)
    bounds = _bounds(call)
    for first, last in pairwise(bounds):
        one = slice(first, last)
        reference.check(
            *(q[None, one], k[None, one], v[None, one], out[None, one], None),
            causal=True,
            softmax_scale=_SCALE,
            limit=max(1, limit // len(call.chunks)),
        )
