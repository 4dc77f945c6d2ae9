"""Which kernels the library ships for a chip, for `tilegate isa`: it looks at compiled code where no such chip is.

Two functions are the whole interface. A kernel's id names what is compiled into it, and is the same on every chip and at
every commit that has it.
"""

from __future__ import annotations

import dataclasses
import functools

import tilekernels
from benchmarks.problems import problem
from benchmarks.workloads import WORKLOADS
from tilegate.protocol import Artifact, verify_origin

verify_origin(tilekernels)


def configurations(arch: str) -> dict[str, list[str]]:
    """Return the ids of all kernels that the tile policies can choose on a chip, in a stable order.

    Each with the cases of the suite that choose it, as asv spells them; none for a kernel that other problems need.

    Raises:
        ValueError: an architecture without tiles.
    """
    found: dict[str, list[str]] = {id: [] for id in _shipped(arch)}
    kind = tilekernels.chip_by_name(arch).kind
    for work in WORKLOADS:
        for policy in tilekernels.POLICIES if kind in work.targets else ():
            kernel = tilekernels.forward_kernel(problem(work), policy=policy, device=arch)
            case = f"attention.Forward.latency_forward({work.id!r}, {policy!r})"
            found.setdefault(_id(kernel.problem_key, kernel.tile), []).append(case)
    return found


def lower(id: str, arch: str) -> list[Artifact]:
    """Generate the source of one of `configurations(arch)`; needs no device and no compiler.

    Raises:
        ValueError: there is no such kernel.
    """
    kernel = tilekernels.ForwardKernel(tilekernels.chip_by_name(arch), *_find(id, arch))
    return [Artifact(made.name, made.source, made.launch, made.resources) for made in kernel.artifacts()]


def specification(id: str, arch: str) -> tuple[int, str, bool]:
    """Return head dimension, dtype and mask (causal?) of one of `configurations(arch)`.

    Raises:
        ValueError: there is no such kernel.
    """
    return _find(id, arch)[0]


def _find(id: str, arch: str) -> tuple[tuple[int, str, bool], tilekernels.TileConfig]:
    if id not in _shipped(arch):
        raise ValueError(f"there is no kernel {id!r} on {arch}")
    return _shipped(arch)[id]


@functools.cache
def _shipped(arch: str) -> dict[str, tuple[tuple[int, str, bool], tilekernels.TileConfig]]:
    """Every specification that a workload of the chip's kind has, in every tile that a policy has for it."""
    chip = tilekernels.chip_by_name(arch)
    specifications = sorted({(w.head_dim, w.dtype, w.causal) for w in WORKLOADS if chip.kind in w.targets})
    found = {}
    for head_dim, dtype, causal in specifications:
        for policy in tilekernels.POLICIES:
            for tile in tilekernels.variants(chip, head_dim, dtype, policy):
                found[_id((head_dim, dtype, causal), tile)] = ((head_dim, dtype, causal), tile)
    return found


def _id(problem_key: tuple[int, str, bool], tile: tilekernels.TileConfig) -> str:
    """Spell out specification and tile: "forward bfloat16 d128 causal 128x64 threads=512 q_in=registers"."""
    head_dim, dtype, causal = problem_key
    parts = dataclasses.asdict(tile)
    rows, keys = parts.pop("block_m"), parts.pop("block_n")
    usual = {field.name: field.default for field in dataclasses.fields(tile)}
    unusual = [f"{name}={value}" for name, value in parts.items() if value != usual[name]]
    return " ".join(["forward", dtype, f"d{head_dim}", "causal" if causal else "full", f"{rows}x{keys}", *unusual])
