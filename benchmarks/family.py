"""What the suite has to know of a kernel family, as data: asv classes, `tilegate isa`, `tilegate emulate` and tests read it.

docs/kernel-families.md walks through a new one.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import torch

import tilekernels

Tensors = dict[str, torch.Tensor]
Numbers = dict[str, int | float]


class Work(Protocol):
    """One problem that is measured: a row of a family's table, frozen.

    Attributes:
        id: stable and unique among all families; spells out what matters. To change a problem, give it a new id.
        dtype: torch's name of the element type.
        targets: where it is measured: "cpu", "cuda", "hip".
        tier: the smallest tier it belongs to: "smoke", "pr" or "full".
        why: what it stands for.
        shape: the problem in at most 40 characters, for reports.
        flops: floating-point operations of the matrix products of one launch.
        bytes: bytes that one launch has to move at least: inputs read once, outputs written once.
    """

    id: str
    dtype: str
    targets: tuple[str, ...]
    tier: str
    why: str
    shape: str
    flops: int
    bytes: int


@dataclasses.dataclass(frozen=True)
class Family:
    """One kernel family. `work` is always a row of the family's own type.

    Attributes:
        name: the first word of its kernels' ids.
        case: asv's name of the method that times it, "module.Class.latency_name".
        workloads: the table.
        kernel: `(work, policy, device) -> Kernel` that the library chooses; device also an architecture ("gfx942").
        shipped: `(chip) -> kernels` that the policies can choose on a chip for any problem, in a stable order.
        spell: `(spec) -> str`, a specification in words without blanks at the ends: "bfloat16 d128 causal".
        inputs: `(work, device, draw, values="normal") -> tensors` by the kernels' parameter names; another draw, other
            numbers; `values` is one of `inputs.VALUES`. The same arguments give the same numbers in every process, and the global generators are left alone.
        outputs: `(work, kernel, device) -> tensors` by name, full of NaN: results, and what one step of a launch leaves for
            the next.
        numbers: `(work, kernel) -> numbers` by name that a launch takes after the tensors.
        symbols: `(work, kernel) -> integers` by name: the symbols in the kernels' shapes and grids.
        check: `(work, inputs, outputs, limit) -> None`: compare with a reference of at most `limit` scores where it can be
            done in part; raise `tilegate.protocol.WrongResult`.
        problems: `(kernel) -> works`: small problems for the emulator, the one to run in a hurry first. Their ids are names.
        drawn: `(work, chance, scores) -> work`: a problem of other lengths for the kernels of a work, with at most so many
            scores; None: none are drawn.
        drawn_values: of their inputs, as in `inputs.VALUES`.
        varied: those of the inputs that can take other values while the others keep theirs.
        policies: of the tile choice, as `kernel` takes them.
        length: the fields of `work` that a reproduction sets to one length after the other, the one that counts keys last. One
            that differs from it stays as it is; of a tuple, lengths of packed sequences, all keep their shares of the longest.

    `kernel.launch` is called with the values of inputs, outputs and numbers, in that order.
    """

    name: str
    case: str
    workloads: Sequence[Any]
    kernel: Callable[[Any, str, torch.device | str], tilekernels.Kernel]
    shipped: Callable[[tilekernels.Chip], Iterable[tilekernels.Kernel]]
    spell: Callable[[Any], str]
    inputs: Callable[..., Tensors]
    outputs: Callable[[Any, tilekernels.Kernel, torch.device | str], Tensors]
    numbers: Callable[[Any, tilekernels.Kernel], Numbers]
    symbols: Callable[[Any, tilekernels.Kernel], dict[str, int]]
    check: Callable[[Any, Mapping[str, torch.Tensor], Mapping[str, torch.Tensor], int], None]
    problems: Callable[[tilekernels.Kernel], Sequence[Any]]
    varied: tuple[str, ...]
    drawn: Callable[[Any, random.Random, int], Any] | None = None
    drawn_values: tuple[str, ...] = ("normal",)
    policies: tuple[str, ...] = ("fixed", "adaptive")
    length: tuple[str, ...] = ("seqlen_q", "seqlen_k")

    def id_of(self, kernel: tilekernels.Kernel) -> str:
        """Spell out what is compiled: "forward bfloat16 d128 causal 128x64 threads=512 q_in=registers"."""
        return " ".join([self.name, self.spell(kernel.spec), *_tile(kernel.tile)])

    def case_of(self, work: Work, policy: str) -> str:
        """The id of a case, as asv spells it."""
        return f"{self.case}({work.id!r}, {policy!r})"

    def workload(self, id: str) -> Any:
        """The row of that id.

        Raises:
            ValueError: there is none.
        """
        found = next((work for work in self.workloads if work.id == id), None)
        if found is None:
            raise ValueError(f"there is no workload {id!r} for {self.name} kernels")
        return found


def full_of_nan(shape: Sequence[int], dtype: str, device: torch.device | str) -> torch.Tensor:
    """An output that shows what a kernel leaves out."""
    return torch.full(tuple(shape), float("nan"), dtype=getattr(torch, dtype), device=device)


def _tile(tile: Any) -> list[str]:
    """Rows x keys, then every field that has no default or another value."""
    fields = {field.name: field for field in dataclasses.fields(tile)}
    parts = []
    if "block_m" in fields and "block_n" in fields:
        parts.append(f"{tile.block_m}x{tile.block_n}")
        del fields["block_m"], fields["block_n"]
    return parts + [
        f"{name}={getattr(tile, name)}" for name, field in fields.items() if getattr(tile, name) != field.default
    ]
