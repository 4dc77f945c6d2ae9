"""A family of kernels for the tests: rows divided by their sums, in two steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilekernels.chips import Chip
from tilekernels.handle import Kernel, chip_at, resolve, shared


@dataclass(frozen=True)
class ToySpec:
    width: int
    dtype: str


@dataclass(frozen=True)
class ToyTile:
    rows: int
    threads: int


class ToyKernel(Kernel):
    module = "tilekernels.kernels.toy"
    steps = ("row_sums", "divide_rows")

    def launch(self, x: Any, y: Any, sums: Any, factor: float) -> None:
        row_sums, divide_rows = self._compiled or self.compile()
        row_sums(x, sums)
        divide_rows(x, sums, y, factor)


def tiles(chip: Chip, policy: str) -> ToyTile:
    return ToyTile(4 if policy == "fixed" else 8, 1 if chip.kind == "cpu" else 64)


def toy_kernel(width: int, dtype: str, policy: str, device: Any) -> ToyKernel:
    chip = chip_at(resolve(device))
    return shared(ToyKernel, chip, ToySpec(width, dtype), tiles(chip, policy))
