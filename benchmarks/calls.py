"""What `tilekernels.attention()` costs its caller: checks, allocation, choice of the kernel, launch."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

import tilekernels
from benchmarks import reference
from benchmarks.inputs import VALUES, qkv
from benchmarks.launches import DEVICE, SELECTION
from benchmarks.problems import problem
from benchmarks.workloads import Workload
from tilegate.protocol import Artifact, Buffers, WrongResult, verify_origin

verify_origin(tilekernels)

CHECKED = 3  # calls that `check` compares with the reference
_LONGEST_DRAWN = 300  # rows, keys
# The same values: as they are; heads before rows in memory; rows with a gap; not aligned.
_STRIDES: tuple[Callable[[torch.Tensor], torch.Tensor], ...] = (
    lambda x: x,
    lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
    lambda x: torch.cat([x, x], dim=3)[..., : x.shape[3]],
    lambda x: torch.cat([x.flatten()[:1], x.flatten()])[1:].view(x.shape),
)
SETS = 4  # of tensors: as many calls in a row have tensors of their own


@dataclass(frozen=True)
class Caller:
    """Who calls.

    Attributes:
        heads, kv_heads, head_dim: of every call.
        most_rows, most_keys: no call has more.
        why: what it stands for.
    """

    heads: int
    kv_heads: int
    head_dim: int
    most_rows: int
    most_keys: int
    why: str

    def work(self, rows: int, keys: int) -> Workload:
        """The work of one call of batch 1, under the causal mask."""
        dtype = "float32" if SELECTION.target == "cpu" else "bfloat16"
        shape = (1, self.heads, self.kv_heads, rows, keys, self.head_dim, dtype, True)
        return Workload(f"call-q{rows}-k{keys}", *shape, (SELECTION.target,), "smoke", self.why)

    def lengths(self, which: str) -> list[tuple[int, int]]:
        """(rows, keys) of successive calls: "same" every time, or each "new", in one order for all processes.

        All are odd, and of the new ones none comes again before all have been there. Four in a row have one of each quarter
        of the numbers of keys, so that blocks of calls, of which the clock takes the fastest, take about as long as each other.
        """
        if which == "same":
            return [(self.most_rows // 2 | 1, self.most_keys // 2 | 1)]
        rows, keys = range(1, self.most_rows + 1, 2), range(1, self.most_keys + 1, 2)
        fitting = [(few, many) for few in rows for many in keys if few <= many]
        chance = random.Random(0)  # noqa: S311 - an order, not a secret
        ordered = sorted(chance.sample(fitting, min(len(fitting), 8192)), key=lambda lengths: lengths[1])
        few = len(ordered) // 4
        quarters = [chance.sample(ordered[i * few : (i + 1) * few], few) for i in range(4)]
        return [lengths for four in zip(*quarters, strict=True) for lengths in four]

    def kernels(self) -> list[tilekernels.ForwardKernel]:
        """The kernels of even lengths: the library must not have met a call's length before the call."""
        few = range(2, self.most_rows + 2, 2 * math.ceil(self.most_rows / 32))
        many = range(2, self.most_keys + 1, 2 * math.ceil(self.most_keys / 128))
        works = [self.work(rows, keys) for rows in few for keys in many]
        return list(dict.fromkeys(tilekernels.forward_kernel(problem(work), device=DEVICE) for work in works))


# A turn of some hundred calls fits the device's queue, so no call waits for it. 8192 new lengths are more than a replicate
# makes calls in one process. The CPU computes before it returns, hence the short ones.
CALLERS = (
    {
        "cpu-chunk": Caller(2, 1, 64, 15, 127, "a few rows over a cache"),
        "cpu-decode": Caller(2, 1, 64, 1, 512, "one row over a growing cache"),
    }
    if SELECTION.target == "cpu"
    else {
        "decode": Caller(28, 4, 128, 1, 16384, "one row over a growing cache, Qwen2.5-7B"),
        "chunk": Caller(28, 4, 128, 127, 511, "a few rows over a cache, Qwen2.5-7B"),
    }
)
_TIMED = ["cpu-chunk"] if (SELECTION.target, SELECTION.tier) == ("cpu", "smoke") else list(CALLERS)


@dataclass(frozen=True)
class _Call:
    """The arguments of one call, and from which set of tensors they are cut."""

    which: int
    rows: int
    keys: int
    inputs: tuple[torch.Tensor, torch.Tensor, torch.Tensor]

    @staticmethod
    def of(sets: Sequence[dict[str, torch.Tensor]], number: int, rows: int, keys: int) -> _Call:
        # Batch 1: what is cut off the end of a sequence leaves a contiguous tensor.
        q, k, v = sets[number % len(sets)].values()
        return _Call(number % len(sets), rows, keys, (q[:, :rows], k[:, :keys], v[:, :keys]))


class Attention:
    """One call of the public function on tensors that are there already."""

    params = (_TIMED, ["same", "new"])
    param_names = ("caller", "lengths")
    version = "3"  # neighbouring calls have tensors of their own
    timeout = 600.0
    sample_time = 0.2 if SELECTION.target == "cpu" else 0.5

    def setup(self, caller: str, lengths: str) -> None:
        """Compile every kernel that is going to be called, and draw inputs of all lengths."""
        who = CALLERS[caller]
        for kernel in who.kernels():
            kernel.compile()
        drawn = self.inputs(caller, lengths)
        self._sets = [drawn, *({name: x.clone() for name, x in drawn.items()} for _ in range(SETS - 1))]
        wanted = who.lengths(lengths)
        self._calls = [_Call.of(self._sets, i, *wanted[i % len(wanted)]) for i in range(max(SETS, len(wanted)))]
        self._next_call = itertools.cycle(self._calls)
        self._last: _Call | None = None
        self._out: torch.Tensor | None = None

    def call_attention(self, caller: str, lengths: str) -> None:
        """Call once; the result lives until the next call has made its own, as a caller's does."""
        self._last = next(self._next_call)
        self._out = tilekernels.attention(*self._last.inputs, causal=True)

    def check(self, caller: str, lengths: str) -> None:
        """Compare a few results with the reference; raises WrongResult."""
        for q, k, v in (call.inputs for call in self._calls[:CHECKED]):
            out, lse = tilekernels.attention(q, k, v, causal=True, return_lse=True)
            reference.check(q, k, v, out, lse, causal=True, softmax_scale=1 / math.sqrt(q.shape[3]))

    def inputs(self, caller: str, lengths: str) -> dict[str, torch.Tensor]:
        """Draw what is long enough for every call. Needs no `setup`."""
        who = CALLERS[caller]
        return dict(zip("QKV", qkv(who.work(who.most_rows, who.most_keys), DEVICE), strict=True))

    def buffers(self, caller: str, lengths: str) -> list[Buffers]:
        """Return what the calls read, and what the last one returned."""
        return [Buffers(inputs, self._results(which)) for which, inputs in enumerate(self._sets)]

    def _results(self, which: int) -> dict[str, torch.Tensor]:
        if self._out is None or self._last is None or self._last.which != which:
            return {}
        return {"out": self._out, "lengths": torch.tensor([self._last.rows, self._last.keys])}

    def verify(
        self, inputs: dict[str, torch.Tensor], outputs: dict[str, torch.Tensor], caller: str, lengths: str
    ) -> None:
        """Compare what one call returned with the reference; needs no `setup`. Raises WrongResult."""
        rows, keys = outputs["lengths"].tolist()
        if (rows, keys) not in CALLERS[caller].lengths(lengths):
            raise WrongResult(f"no call of this case has {rows} rows and {keys} keys")
        q, k, v = inputs["Q"][:, :rows], inputs["K"][:, :keys], inputs["V"][:, :keys]
        if outputs["out"].shape != q.shape or outputs["out"].dtype != q.dtype:
            raise WrongResult(
                f"out is {tuple(outputs['out'].shape)} of {outputs['out'].dtype}, not as q, {tuple(q.shape)}"
            )
        reference.check(q, k, v, outputs["out"], None, causal=True, softmax_scale=1 / math.sqrt(q.shape[3]))

    def probe(self, seed: int, caller: str, lengths: str) -> dict[str, torch.Tensor]:
        """Call on a problem that `seed` draws, with other lengths, values and strides; needs no `setup`."""
        out, lse = tilekernels.attention(*self._drawn(seed, caller), causal=True, return_lse=True)
        return {"out": out, "lse": lse}

    def verify_probe(self, seed: int, outputs: dict[str, torch.Tensor], caller: str, lengths: str) -> None:
        """Compare what that call returned with the reference. Raises WrongResult."""
        q, k, v = self._drawn(seed, caller)
        scale = 1 / math.sqrt(q.shape[3])
        reference.check(q, k, v, outputs["out"], outputs["lse"], causal=True, softmax_scale=scale)

    def _drawn(self, seed: int, caller: str) -> list[torch.Tensor]:
        who, chance = CALLERS[caller], random.Random(seed >> 8)  # noqa: S311 - whoever gives the seed keeps it to himself
        rows, keys = (chance.randint(1, min(most, _LONGEST_DRAWN)) for most in (who.most_rows, who.most_keys))
        drawn = qkv(who.work(rows, keys), DEVICE, seed, VALUES[(seed >> 8) % len(VALUES)])
        return [chance.choice(_STRIDES)(x) for x in drawn]

    def artifacts(self, caller: str, lengths: str) -> list[Artifact]:
        """Return the kernels that the calls launch; needs no `setup`."""
        return [
            Artifact(f"{made.name} {kernel.tile}", made.source, made.launch, made.resources)
            for kernel in CALLERS[caller].kernels()
            for made in kernel.artifacts()
        ]
