"""Every tile that may be worth measuring on Hopper, run there: values, and bits over repeats."""

from __future__ import annotations

import pytest
import torch

from benchmarks.families.backward import FAMILY, BackwardWorkload
from tilekernels import BackwardKernel, BackwardSpec, BackwardTile, Blocks, FusedBackwardKernel, chip_of

HOPPER = torch.cuda.is_available() and torch.version.hip is None and torch.cuda.get_device_capability()[0] == 9
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not HOPPER, reason="needs an NVIDIA GPU of compute capability 9")]

# (batch, heads, kv heads, rows, keys): aligned, one past a tile, more keys, rows that see nothing, one row.
SHAPES = ((2, 14, 2, 512, 512), (1, 7, 1, 257, 257), (1, 8, 2, 100, 700), (1, 4, 4, 300, 140), (1, 7, 1, 1, 65))
TILES = ("64x128/256/2:128x64/256/2", "64x128/256/2o:128x64/256/2o", "64x64/128/2o:64x64/128/2o")
FUSED = ("64x128/256/2", "64x128/256/2o")


def workloads(head_dim: int, causal: bool) -> list[BackwardWorkload]:
    return [
        BackwardWorkload(f"hopper-{shape}", *shape, head_dim, "bfloat16", causal, ("cuda",), "smoke", "")
        for shape in SHAPES
    ]


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "full"])
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("tile", TILES)
def test_a_deterministic_tile_is_right_fifty_times(tile: str, head_dim: int, causal: bool) -> None:
    keys, queries = map(Blocks.parse, tile.split(":"))
    kernel = BackwardKernel(chip_of(), BackwardSpec(head_dim, "bfloat16", causal), BackwardTile(keys, queries))
    for work in workloads(head_dim, causal):
        inputs, outputs = FAMILY.inputs(work, "cuda", 0), FAMILY.outputs(work, kernel, "cuda")
        kernel.launch(*inputs.values(), *outputs.values(), head_dim**-0.5)
        FAMILY.check(work, inputs, outputs, 1 << 33)
        first = {name: x.clone() for name, x in outputs.items()}
        for _ in range(49):
            kernel.launch(*inputs.values(), *outputs.values(), head_dim**-0.5)
            assert all(torch.equal(x, outputs[name]) for name, x in first.items())


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "full"])
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("blocks", FUSED)
def test_a_tile_with_atomics_is_right_and_repeats_dk_and_dv(blocks: str, head_dim: int, causal: bool) -> None:
    kernel = FusedBackwardKernel(chip_of(), BackwardSpec(head_dim, "bfloat16", causal), Blocks.parse(blocks))
    for work in workloads(head_dim, causal):
        inputs, outputs = FAMILY.inputs(work, "cuda", 0), FAMILY.outputs(work, kernel, "cuda")
        stats, *gradients = outputs.values()
        sums = torch.empty_like(outputs["dQ"], dtype=torch.float32)
        kernel.launch(*inputs.values(), stats, sums, *gradients, head_dim**-0.5)
        FAMILY.check(work, inputs, outputs, 1 << 33)
        first = {name: outputs[name].clone() for name in ("dK", "dV")}
        for _ in range(49):
            kernel.launch(*inputs.values(), stats, sums, *gradients, head_dim**-0.5)
            assert all(torch.equal(x, outputs[name]) for name, x in first.items())
        FAMILY.check(work, inputs, outputs, 1 << 33)
