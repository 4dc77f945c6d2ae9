"""Which kernels the library ships for a chip, for `tilegate isa`: it looks at compiled code where no such chip is.

`configurations` and `lower` are the whole interface. A kernel's id names what is compiled into it, and is the same on every
chip and at every commit that has it.
"""

from __future__ import annotations

import functools

import tilekernels
from benchmarks.families import families
from benchmarks.family import Family
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
    for family in families().values():
        for work in family.workloads:
            for policy in family.policies if kind in work.targets else ():
                kernel = family.kernel(work, policy, arch)
                found.setdefault(family.id_of(kernel), []).append(family.case_of(work, policy))
    return found


def parts(id: str, arch: str) -> tuple[str, ...]:
    """Return the names that `tilegate isa` gives the compiled kernels of a launch: the id where there is one only.

    Raises:
        ValueError: there is no such kernel.
    """
    steps = find(id, arch)[1].steps
    return (id,) if len(steps) == 1 else tuple(f"{id} #{step}_kernel" for step in steps)


def lower(id: str, arch: str) -> list[Artifact]:
    """Generate the source of one of `configurations(arch)`; needs no device and no compiler.

    Raises:
        ValueError: there is no such kernel.
    """
    return [Artifact(made.name, made.source, made.launch, made.resources) for made in find(id, arch)[1].artifacts()]


def find(id: str, arch: str) -> tuple[Family, tilekernels.Kernel]:
    """Return one of `configurations(arch)` and its family.

    Raises:
        ValueError: there is no such kernel.
    """
    if id not in _shipped(arch):
        raise ValueError(f"there is no kernel {id!r} on {arch}")
    return _shipped(arch)[id]


@functools.cache
def _shipped(arch: str) -> dict[str, tuple[Family, tilekernels.Kernel]]:
    chip = tilekernels.chip_by_name(arch)
    return {family.id_of(made): (family, made) for family in families().values() for made in family.shipped(chip)}
