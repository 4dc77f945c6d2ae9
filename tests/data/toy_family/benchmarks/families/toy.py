"""The toy family as the suite knows it."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import torch
from tilekernels.toy import ToyKernel, ToySpec, tiles, toy_kernel

from benchmarks.family import Family, full_of_nan
from tilegate.protocol import WrongResult


@dataclass(frozen=True)
class ToyWork:
    id: str
    rows: int
    width: int
    dtype: str
    targets: tuple[str, ...]
    tier: str = "smoke"
    why: str = "a family that nothing else knows"

    @property
    def shape(self):
        return f"{self.rows} x {self.width}"

    @property
    def flops(self):
        return 2 * self.rows * self.width

    @property
    def bytes(self):
        return 3 * self.rows * self.width * getattr(torch, self.dtype).itemsize


def _inputs(work, device, draw):
    generator = torch.Generator(device=device).manual_seed(zlib.crc32(f"{work.id} {draw}".encode()))
    x = torch.rand((work.rows, work.width), generator=generator, device=device) + 0.5
    return {"X": x.to(getattr(torch, work.dtype))}


def _outputs(work, kernel, device):
    y = full_of_nan((work.rows, work.width), work.dtype, device)
    return {"Y": y, "Sums": full_of_nan((work.rows,), "float32", device)}


def _check(work, inputs, outputs, limit):
    x = inputs["X"].double()
    expected = 0.5 * x / x.sum(dim=1, keepdim=True)
    error = ((outputs["Y"].double() - expected) / expected).abs().amax().item()
    if not error <= 2 * torch.finfo(outputs["Y"].dtype).eps:
        raise WrongResult(f"Y: largest error {error:.3g}")


FAMILY = Family(
    name="toy",
    case="toy.Toy.latency_toy",
    workloads=(
        ToyWork("cpu-toy-13x32", 13, 32, "float32", ("cpu",)),
        ToyWork("toy-1000x64", 1000, 64, "float16", ("cuda", "hip")),
    ),
    kernel=lambda work, policy, device: toy_kernel(work.width, work.dtype, policy, device),
    shipped=lambda chip: [ToyKernel(chip, ToySpec(64, "float16"), tiles(chip, p)) for p in ("fixed", "adaptive")],
    spell=lambda spec: f"{spec.dtype} w{spec.width}",
    inputs=_inputs,
    varied=("X",),
    outputs=_outputs,
    numbers=lambda work, kernel: {"factor": 0.5},
    symbols=lambda work, kernel: {"rows": work.rows},
    check=_check,
    problems=lambda kernel: [
        ToyWork(f"r{rows}", rows, kernel.spec.width, kernel.spec.dtype, ("hip",)) for rows in (13, 1)
    ],
)
