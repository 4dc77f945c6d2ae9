"""What a chip offers a kernel: compute units, wavefront, LDS, registers. Asked from the device, or from a table.

A device knows its own number of compute units (an MI308X is a gfx942 with 80 of them, an MI300A one with 228), so
`chip_of` always asks it; the table supplies what no device query tells, and stands in for the whole chip where a kernel
is only compiled.

Sources of the table:
    [rocm-spec]  AMD GPU specifications, https://rocm.docs.amd.com/en/latest/reference/gpu-specs.html
    [cdna3]      AMD CDNA 3 white paper; Instinct MI300X data sheet
    [cdna2]      AMD CDNA 2 white paper; Instinct MI250X data sheet (one of its two dies is one device)
    [cdna4]      AMD CDNA 4 white paper; Instinct MI355X data sheet
    [llvm]       LLVM, User Guide for AMDGPU Backend (register granules, unified VGPR and AGPR file)
    [hopper]     NVIDIA CUDA C++ Programming Guide, compute capability 9.0; H200 data sheet (dense rates)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

KIB = 1024


@dataclass(frozen=True)
class Chip:
    """One device as a kernel sees it.

    Attributes:
        name: what the device calls itself, or the product the table describes.
        arch: "gfx942", "sm_90", … or "cpu"; names the code generator's target.
        kind: "hip", "cuda" or "cpu": the dialect kernels are written in for it.
        compute_units: compute units (AMD) or streaming multiprocessors (NVIDIA) that workgroups are dealt to.
        wavefront: lanes that execute together.
        lds_bytes: shared memory that one workgroup can have.
        lds_bytes_per_cu: shared memory of one compute unit, shared by the workgroups on it.
        max_threads: threads that one workgroup can have.
        registers_per_lane: 32-bit registers that one lane can address, accumulation registers included.
        register_file_bytes: vector registers of one compute unit.
        l2_bytes: level 2 cache, of one XCD where there are several; None where it plays no part.
        copies_into_lds: whether TileLang fetches the next K tile from global memory into LDS while the present V tile is in
            use (AMD: gfx950, which loads 16 bytes a lane past the registers), so that the two cannot share memory.
        half_tflops: dense fp16/bf16 matrix rate, TFLOP/s; None when this product's rate is not known.
        memory_tbytes: memory bandwidth, TB/s; None when this product's is not known.
    """

    name: str
    arch: str
    kind: str
    compute_units: int
    wavefront: int
    lds_bytes: int
    lds_bytes_per_cu: int
    max_threads: int
    registers_per_lane: int
    register_file_bytes: int
    l2_bytes: int | None = None
    copies_into_lds: bool = False
    half_tflops: float | None = None
    memory_tbytes: float | None = None


CHIPS: dict[str, Chip] = {
    chip.arch: chip
    for chip in (
        Chip(
            name="AMD Instinct MI300X",
            arch="gfx942",
            kind="hip",
            compute_units=304,  # 8 XCDs of 38 [rocm-spec]
            wavefront=64,
            lds_bytes=64 * KIB,  # [rocm-spec]
            lds_bytes_per_cu=64 * KIB,
            max_threads=1024,
            registers_per_lane=512,  # 256 VGPRs + 256 AGPRs, one file [llvm]
            register_file_bytes=512 * KIB,  # [rocm-spec]
            l2_bytes=4 * KIB * KIB,  # each XCD [rocm-spec]
            half_tflops=1307.4,  # [cdna3]
            memory_tbytes=5.3,  # [cdna3]
        ),
        Chip(
            name="AMD Instinct MI250X",
            arch="gfx90a",
            kind="hip",
            compute_units=110,  # one of the two dies [cdna2]
            wavefront=64,
            lds_bytes=64 * KIB,  # [rocm-spec]
            lds_bytes_per_cu=64 * KIB,
            max_threads=1024,
            registers_per_lane=512,  # [llvm]
            register_file_bytes=512 * KIB,  # [rocm-spec]
            l2_bytes=8 * KIB * KIB,  # [rocm-spec]
            half_tflops=191.5,  # half of 383.0 [cdna2]
            memory_tbytes=1.6,  # half of 3.2 [cdna2]
        ),
        Chip(
            name="AMD Instinct MI355X",
            arch="gfx950",
            kind="hip",
            compute_units=256,  # 8 XCDs of 32 [rocm-spec]
            wavefront=64,
            lds_bytes=160 * KIB,  # [rocm-spec]
            lds_bytes_per_cu=160 * KIB,
            max_threads=1024,
            registers_per_lane=512,  # [llvm]
            register_file_bytes=512 * KIB,  # [rocm-spec]
            l2_bytes=4 * KIB * KIB,  # each XCD [rocm-spec]
            copies_into_lds=True,
            half_tflops=2500.0,  # [cdna4]
            memory_tbytes=8.0,  # [cdna4]
        ),
        Chip(
            name="NVIDIA H200",
            arch="sm_90",
            kind="cuda",
            compute_units=132,
            wavefront=32,
            lds_bytes=227 * KIB,  # 228 less the 1 KiB that the system reserves for each block [hopper]
            lds_bytes_per_cu=228 * KIB,  # [hopper]
            max_threads=1024,
            registers_per_lane=255,  # [hopper]
            register_file_bytes=256 * KIB,  # [hopper]
            l2_bytes=60 * KIB * KIB,
            half_tflops=989.0,  # [hopper]
            memory_tbytes=4.8,  # [hopper]
        ),
        # Here a workgroup is a loop body and its tiles are arrays on the calling thread's stack. The budget leaves most
        # of the smallest usual stack of a secondary thread (512 KiB, macOS; 8 MiB, glibc) to everyone else; a lane is
        # the whole thread and keeps its accumulators on that stack too, so registers set no limit.
        Chip(
            name="CPU",
            arch="cpu",
            kind="cpu",
            compute_units=1,  # the generated loop nest runs on the calling thread
            wavefront=1,
            lds_bytes=256 * KIB,
            lds_bytes_per_cu=256 * KIB,
            max_threads=1,
            registers_per_lane=2**31 - 1,
            register_file_bytes=2**31 - 1,
        ),
    )
}


def chip_by_name(arch: str) -> Chip:
    """The chip of the table, for compiling where there is no such device.

    Args:
        arch: a key of `CHIPS`, e.g. "gfx942".

    Raises:
        ValueError: for an architecture that is not in the table; the message lists those that are.
    """
    try:
        return CHIPS[arch]
    except KeyError:
        raise ValueError(_unknown(arch)) from None


def chip_of(device: torch.device | str | None = None) -> Chip:
    """The chip behind a torch device: the table's entry with what the device says of itself laid over it.

    Rates are kept only when the device's name says that it is the product they belong to.

    Args:
        device: e.g. "cuda:1" or "cpu"; the current CUDA/ROCm device when None and there is one, else the CPU.

    Raises:
        ValueError: for a device type or an architecture that is not supported, saying what to do about it.
    """
    import torch  # noqa: PLC0415 - the table alone must not cost an import of torch

    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    where = torch.device(device)
    if where.type == "cpu":
        return CHIPS["cpu"]
    if where.type != "cuda":
        raise ValueError(f"device {where} is not supported; use a CUDA, ROCm or CPU device")
    return chip_from_properties(torch.cuda.get_device_properties(where), hip=torch.version.hip is not None)


def chip_from_properties(properties: Any, *, hip: bool) -> Chip:
    """The chip that a `torch.cuda.get_device_properties` result describes.

    Args:
        properties: has name, multi_processor_count and warp_size, and gcnArchName on ROCm or major, minor,
            shared_memory_per_block_optin and shared_memory_per_multiprocessor on CUDA.
        hip: whether torch was built for ROCm.

    Raises:
        ValueError: when the architecture is not in the table.
    """
    # gcnArchName is e.g. "gfx942:sramecc+:xnack-"
    arch = properties.gcnArchName.split(":")[0] if hip else f"sm_{properties.major}{properties.minor}"
    known = CHIPS.get(arch)
    if known is None:
        raise ValueError(f"{properties.name} is a chip that tilekernels does not know. {_unknown(arch)}")
    chip = replace(
        known,
        name=properties.name,
        compute_units=properties.multi_processor_count,
        wavefront=properties.warp_size,
    )
    if not hip:
        # On AMD the table rules: LDS is a property of the architecture, and older drivers report 64 KiB for gfx950.
        chip = replace(
            chip,
            lds_bytes=properties.shared_memory_per_block_optin,
            lds_bytes_per_cu=properties.shared_memory_per_multiprocessor,
        )
    product = known.name.split()[-1]
    if product not in properties.name:
        chip = replace(chip, half_tflops=None, memory_tbytes=None)
    return chip


def _unknown(arch: str) -> str:
    return (
        f"architecture {arch!r} is not one of {', '.join(CHIPS)}; "
        "add its limits to CHIPS in tilekernels/chips.py and its tiles to TILES in tilekernels/policy.py"
    )
