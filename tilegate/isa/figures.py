"""The numbers of one compiled kernel on one chip: resources, occupancy, instruction counts, and the main loop's time.

Where each number comes from is said at its field. Resources and counts are facts of the compiler's output. Everything
in cycles is an estimate from peak rates; `tilegate.isa.instructions` has the model.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from tilegate.isa import instructions as ins
from tilegate.isa.assembly import Block, Instruction, Listing
from tilegate.isa.chips import Chip
from tilegate.isa.loops import Loop, main_loop
from tilegate.protocol.artifacts import JSON, Artifact


@dataclass(frozen=True)
class Counts:
    """Static counts: how many instructions of each kind the compiler wrote, whether or not they run.

    Attributes:
        instructions: all.
        matrix: matrix instructions (MFMA).
        vector: vector ALU instructions, without the next two.
        transcendental: exponentials, logarithms, reciprocals, roots: a quarter of the vector rate.
        agpr_copies: moves between VGPRs and AGPRs.
        scalar: scalar ALU instructions.
        lds_reads, lds_writes, global_loads, global_stores: by bytes a lane, as decimal text for JSON: {"16": 8}.
        lds_permutes: lane exchanges through the LDS hardware; they take no LDS memory.
        atomics: on LDS or global memory.
        scratch: accesses to a lane's memory stack: spills and arrays that are not in registers.
        scalar_loads: through the scalar cache.
        barriers: of the workgroup.
        waits: s_waitcnt.
        drains: those that wait until no vector memory access is under way, vmcnt(0).
        spills: instructions that the compiler marks as spilling or reloading, to scratch or to AGPRs.
    """

    instructions: int
    matrix: int
    vector: int
    transcendental: int
    agpr_copies: int
    scalar: int
    lds_reads: Mapping[str, int]
    lds_writes: Mapping[str, int]
    lds_permutes: int
    global_loads: Mapping[str, int]
    global_stores: Mapping[str, int]
    atomics: int
    scratch: int
    scalar_loads: int
    barriers: int
    waits: int
    drains: int
    spills: int

    @staticmethod
    def of(code: Iterable[Instruction]) -> Counts:
        """Count."""
        kinds: Counter[str] = Counter()
        widths: dict[str, Counter[int]] = {}
        drains = spills = total = 0
        for instruction in code:
            kind = ins.kind_of(instruction.mnemonic, instruction.operands)
            total += 1
            kinds[kind.name] += 1
            widths.setdefault(kind.name, Counter())[kind.width] += 1
            drains += kind.name == ins.WAIT and "vmcnt(0)" in instruction.operands
            spills += instruction.spill

        def by_width(name: str) -> dict[str, int]:
            return {str(width): count for width, count in sorted(widths.get(name, {}).items(), reverse=True)}

        return Counts(
            instructions=total,
            matrix=kinds[ins.MATRIX],
            vector=kinds[ins.VECTOR],
            transcendental=kinds[ins.TRANSCENDENTAL],
            agpr_copies=kinds[ins.AGPR_COPY],
            scalar=kinds[ins.SCALAR],
            lds_reads=by_width(ins.LDS_READ),
            lds_writes=by_width(ins.LDS_WRITE),
            lds_permutes=kinds[ins.LDS_PERMUTE],
            global_loads=by_width(ins.GLOBAL_LOAD),
            global_stores=by_width(ins.GLOBAL_STORE),
            atomics=kinds[ins.LDS_ATOMIC] + kinds[ins.GLOBAL_ATOMIC],
            scratch=kinds[ins.SCRATCH],
            scalar_loads=kinds[ins.SCALAR_LOAD],
            barriers=kinds[ins.BARRIER],
            waits=kinds[ins.WAIT],
            drains=drains,
            spills=spills,
        )


@dataclass(frozen=True)
class LoopFigures:
    """The innermost loop with the most matrix instructions.

    Attributes:
        counts: of all its blocks, rarely taken ones included.
        steady: of the blocks that every round passes through (see `loops.Loop.steady`).
        cycles: estimate: for how many cycles one round of one workgroup keeps each unit of its compute unit busy, at peak
            rate, the workgroup having it to itself: {"matrix", "vector", "lds", "memory"}. Of the steady blocks; memory,
            whose instructions sit behind bounds checks, of all blocks.
        limiter: the unit with the most cycles.
        matrix_share: estimate: the share of the matrix units' peak that remains if only the limiter limits.
    """

    counts: Counts
    steady: Counts
    cycles: Mapping[str, float]
    limiter: str
    matrix_share: float


@dataclass(frozen=True)
class Figures:
    """One kernel on one chip.

    Attributes:
        name: the kernel's symbol.
        arch: the chip.
        threads: of a workgroup; from the launch configuration.
        lds_static: bytes that the code declares; metadata `.group_segment_fixed_size`.
        lds_dynamic: bytes asked for at launch; from the launch configuration.
        lds: the sum.
        lds_share: the sum over the chip's limit.
        vgprs: VGPRs a lane; the compiler's comment `NumVgprs`, or without it `.vgpr_count` less the AGPRs.
        agprs: accumulation registers a lane; `.agpr_count`.
        registers: vector registers a lane, both kinds and the gap between them; `.vgpr_count`.
        sgprs: scalar registers; `.sgpr_count`.
        vgpr_spills, sgpr_spills: registers that found no room; `.vgpr_spill_count`, `.sgpr_spill_count`.
        scratch: bytes of memory stack a lane; `.private_segment_fixed_size`.
        dynamic_stack: the compiler could not bound the stack (calls through pointers, or not inlined).
        waves_by_registers: waves a SIMD holds, if only registers limited it.
        waves_by_lds: the same for LDS, whole workgroups only.
        waves: waves a SIMD holds of this kernel, all limits and whole workgroups considered; 0: it cannot launch.
        workgroups: workgroups that a compute unit holds.
        code_bytes: size of the code, None if the compiler did not say.
        counts: of the whole kernel.
        loop: the main loop; None for a kernel without loops.
    """

    name: str
    arch: str
    threads: int
    lds_static: int
    lds_dynamic: int
    lds: int
    lds_share: float
    vgprs: int
    agprs: int
    registers: int
    sgprs: int
    vgpr_spills: int
    sgpr_spills: int
    scratch: int
    dynamic_stack: bool
    waves_by_registers: int
    waves_by_lds: float
    waves: float
    workgroups: int
    code_bytes: int | None
    counts: Counts
    loop: LoopFigures | None

    def to_json(self) -> dict[str, JSON]:
        """Return plain values."""
        return asdict(self)

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> Figures:
        """Read what `to_json` wrote."""
        loop = values["loop"]
        return Figures(
            **{
                **values,
                "counts": _counts_from(values["counts"]),
                "loop": loop
                and LoopFigures(
                    **{**loop, "counts": _counts_from(loop["counts"]), "steady": _counts_from(loop["steady"])}
                ),
            }
        )


def figures_of(listing: Listing, artifact: Artifact, chip: Chip) -> Figures:
    """Work out the numbers of one kernel.

    Args:
        listing: the compiled code.
        artifact: where it came from; its launch configuration gives threads and dynamic LDS.
        chip: what it was compiled for.

    Raises:
        ValueError: the launch configuration does not say how many threads a workgroup has.
    """
    threads, dynamic = threads_of(artifact), dynamic_lds_of(artifact)
    static = listing.number("group_segment_fixed_size")
    registers, agprs = listing.number("vgpr_count"), listing.number("agpr_count")
    lds = static + dynamic
    by_registers = _waves_by_registers(registers, chip)
    waves_in_group = -(-threads // 64)
    workgroups = _workgroups(lds, waves_in_group, by_registers, chip)
    groups_by_lds = _workgroups_by_lds(lds, chip)
    loop = main_loop(listing.blocks, _weight)
    return Figures(
        name=listing.name,
        arch=chip.arch,
        threads=threads,
        lds_static=static,
        lds_dynamic=dynamic,
        lds=lds,
        lds_share=round(lds / chip.lds_bytes, 4),
        vgprs=registers - agprs if listing.vgprs is None else listing.vgprs,
        agprs=agprs,
        registers=registers,
        sgprs=listing.number("sgpr_count"),
        vgpr_spills=listing.number("vgpr_spill_count"),
        sgpr_spills=listing.number("sgpr_spill_count"),
        scratch=listing.number("private_segment_fixed_size"),
        dynamic_stack=listing.metadata.get("uses_dynamic_stack") == "true",
        waves_by_registers=by_registers,
        waves_by_lds=min(float(chip.waves_per_simd), groups_by_lds * waves_in_group / chip.simds),
        waves=workgroups * waves_in_group / chip.simds,
        workgroups=workgroups,
        code_bytes=listing.code_bytes,
        counts=Counts.of(listing.instructions),
        loop=_loop_figures(listing.blocks, loop, waves_in_group, chip) if loop else None,
    )


def threads_of(artifact: Artifact) -> int:
    """Return the threads of a workgroup, from `launch["block"]`: a number or a list of extents.

    Raises:
        ValueError: there is no such entry.
    """
    block = artifact.launch.get("block")
    extents = list(block) if isinstance(block, list | tuple) else [block]
    total = 1
    for extent in extents or [None]:
        if not isinstance(extent, int) or isinstance(extent, bool):
            raise ValueError(f'{artifact.name}: launch["block"] must hold the threads of a workgroup, not {block!r}')
        total *= extent
    return total


def dynamic_lds_of(artifact: Artifact) -> int:
    """Return the bytes of LDS asked for at launch, from `launch["dynamic_shared_bytes"]`; 0 without that entry."""
    value = artifact.launch.get("dynamic_shared_bytes", 0)
    return value if isinstance(value, int) else 0


_BUFFER = re.compile(r"void\* (\w+) = \(\(void\*\)\(\(char\*\)buf_dyn_shmem \+ (\d+)\)\);")


def lds_buffers(source: str, dynamic: int) -> tuple[tuple[str, int], ...]:
    """Return the names and sizes of the buffers that TileLang laid out in dynamic LDS; empty if the text has none.

    Buffers that share memory are one entry, their names joined with "=".
    """
    names: dict[int, list[str]] = {}
    for name, offset in _BUFFER.findall(source):
        names.setdefault(int(offset), []).append(name)
    offsets = [*sorted(names), dynamic]
    return tuple(("=".join(names[start]), end - start) for start, end in itertools.pairwise(offsets) if end > start)


def _waves_by_registers(registers: int, chip: Chip) -> int:
    taken = -(-max(registers, 1) // chip.register_granule) * chip.register_granule
    return min(chip.waves_per_simd, chip.registers // taken)


def _workgroups_by_lds(lds: int, chip: Chip) -> int:
    taken = -(-lds // chip.lds_granule) * chip.lds_granule
    return chip.lds_bytes // taken if taken else chip.waves_per_simd * chip.simds


def _workgroups(lds: int, waves: int, waves_by_registers: int, chip: Chip) -> int:
    """Workgroups that fit on a compute unit; their waves may be dealt to the SIMDs in any way."""
    slots = waves_by_registers * chip.simds
    limits = [slots // waves, _workgroups_by_lds(lds, chip)]
    return min(limits) if waves == 1 else min(*limits, chip.workgroups_per_cu)


def _weight(block: Block) -> tuple[int, int]:
    return sum("mfma" in i.mnemonic for i in block.instructions), len(block.instructions)


def _loop_figures(blocks: tuple[Block, ...], loop: Loop, waves: int, chip: Chip) -> LoopFigures:
    every = [i for index in sorted(loop.blocks) for i in blocks[index].instructions]
    steady = [i for index in sorted(loop.steady) for i in blocks[index].instructions]
    # A SIMD works off its share of the workgroup's waves one after the other; LDS and memory serve all of them.
    turns = {"matrix": -(-waves // chip.simds), "vector": -(-waves // chip.simds), "lds": waves, "memory": waves}
    once = _unit_cycles(steady, chip) | {"memory": _unit_cycles(every, chip)["memory"]}
    cycles = {unit: round(once[unit] * turns[unit], 1) for unit in ins.UNITS}
    limiter = max(ins.UNITS, key=lambda unit: cycles[unit])
    share = cycles["matrix"] / cycles[limiter] if cycles[limiter] else 0.0
    return LoopFigures(Counts.of(every), Counts.of(steady), cycles, limiter, round(share, 4))


def _unit_cycles(code: Iterable[Instruction], chip: Chip) -> dict[str, float]:
    total = dict.fromkeys(ins.UNITS, 0.0)
    for instruction in code:
        kind = ins.kind_of(instruction.mnemonic, instruction.operands)
        used = ins.cycles(instruction.mnemonic, kind, chip)
        if used:
            total[used[0]] += used[1]
    return total


def _counts_from(values: Mapping[str, Any]) -> Counts:
    return Counts(**{field.name: values[field.name] for field in fields(Counts)})
