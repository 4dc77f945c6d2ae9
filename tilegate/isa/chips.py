"""What static analysis needs to know of a chip: its limits, how it hands out registers and LDS, and peak rates.

Sources, named at each value:
    [llvm]   LLVM, User Guide for AMDGPU Backend, and the subtarget tables behind it (granules, waves per SIMD)
    [cdna2] [cdna3] [cdna4]  AMD's white papers and data sheets of the MI250X, MI300X and MI355X
    [isa]    AMD's instruction set reference guides for the same chips
    [mca]    checked against llvm-mca 19's model of the chip
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilegate.files import UsageError

KIB = 1024


@dataclass(frozen=True)
class Chip:
    """One architecture, as far as compiled code can be checked against it.

    Attributes:
        arch: the compiler's name for it.
        name: the product.
        lds_bytes: LDS of a compute unit, all of which one workgroup may have.
        lds_granule: LDS is handed out in multiples of this many bytes.
        matrix_rate: matrix operations (a multiply and an add are two) a cycle and SIMD, by operand type; dense.
        short_k_rate: the same for the shapes that chips before this one had, where those run at another rate.
        max_threads: of a workgroup.
        simds: of a compute unit; the waves of a workgroup are dealt to them in turn.
        waves_per_simd: most waves that a SIMD holds, whatever their size.
        workgroups_per_cu: most workgroups of more than one wave that a compute unit holds (its barriers).
        registers: 32-bit vector registers a lane can have, VGPRs and AGPRs together.
        register_granule: registers are handed out in multiples of this.
        lds_bytes_per_cycle: LDS bandwidth of a compute unit.
        memory_bytes_per_cycle: bandwidth between a compute unit and its vector L1 cache.
    """

    arch: str
    name: str
    lds_bytes: int
    lds_granule: int
    matrix_rate: Mapping[str, int]
    short_k_rate: Mapping[str, int]
    max_threads: int = 1024  # [llvm] amdgpu_flat_work_group_size
    simds: int = 4  # [cdna2] [cdna3] [cdna4]
    waves_per_simd: int = 8  # [llvm] gfx90a and later
    workgroups_per_cu: int = 16  # [llvm]
    registers: int = 512  # [llvm] 256 VGPRs + 256 AGPRs, one file
    register_granule: int = 8  # [llvm] gfx90a and later
    lds_bytes_per_cycle: int = 128  # [isa] 32 banks of 4 bytes; [cdna4]
    memory_bytes_per_cycle: int = 64  # [cdna2] [cdna3] [cdna4]


# Rates follow from the data sheets: peak TFLOP/s over compute units, SIMDs and peak clock.
CHIPS: Mapping[str, Chip] = {
    chip.arch: chip
    for chip in (
        Chip(
            arch="gfx942",
            name="AMD Instinct MI300X",
            lds_bytes=64 * KIB,
            lds_granule=512,
            # [cdna3] 1307.4 / 2614.9 / 653.7 / 163.4 / 163.4 TFLOP/s, 304 CUs, 2.1 GHz; 16 bit: [mca]
            matrix_rate={"f16": 512, "bf16": 512, "fp8": 1024, "i8": 1024, "xf32": 256, "f32": 64, "f64": 64},
            short_k_rate={},
        ),
        Chip(
            arch="gfx90a",
            name="AMD Instinct MI250X, one die",
            lds_bytes=64 * KIB,
            lds_granule=512,
            # [cdna2] 191.5 / 191.5 / 47.9 / 47.9 TFLOP/s, 110 CUs, 1.7 GHz; 16 bit: [mca]
            matrix_rate={"f16": 256, "bf16": 256, "i8": 256, "f32": 64, "f64": 64},
            short_k_rate={"bf16": 128},  # the bf16 shapes of gfx908, without "_1k"
        ),
        Chip(
            arch="gfx950",
            name="AMD Instinct MI355X",
            lds_bytes=160 * KIB,
            lds_granule=1280,
            # [cdna4] 2516.6 / 5033.2 / 157.3 / 78.6 TFLOP/s, 256 CUs, 2.4 GHz
            matrix_rate={"f16": 1024, "bf16": 1024, "fp8": 2048, "i8": 2048, "f32": 64, "f64": 32},
            # Only the shapes that are new on this chip, twice as long in K, run at twice gfx942's rate. Assumed.
            short_k_rate={"f16": 512, "bf16": 512, "fp8": 1024, "i8": 1024},
        ),
    )
}


def chip_of(arch: str) -> Chip:
    """Return the chip of an architecture.

    Raises:
        UsageError: it is not in the table; the message lists those that are.
    """
    chip = CHIPS.get(arch)
    if chip is None:
        raise UsageError(f"unknown architecture {arch!r}; choose from {', '.join(CHIPS)}")
    return chip
