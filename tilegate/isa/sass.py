"""The instructions of a compiled CUDA kernel's main loop, by class: what AMD's listing tells `figures`, for NVIDIA.

nvdisasm (CUDA toolkit, or `pip install nvidia-cuda-nvdisasm`) prints a cubin's machine code. Opcodes are those of the CUDA
Binary Utilities manual, "Instruction Set Reference", Hopper.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tilegate.isa.toolchain import ToolchainError
from tilegate.tools import captured

INSTALL = "pip install nvidia-cuda-nvdisasm"

CLASSES: dict[str, tuple[str, ...]] = {
    "matrix": ("HGMMA", "QGMMA", "IGMMA", "BGMMA", "HMMA", "QMMA", "IMMA", "BMMA", "DMMA"),
    "exp2, reciprocal and the like": ("MUFU",),
    "fp32 arithmetic": ("FFMA", "FMUL", "FADD", "FMNMX", "FSETP", "FSEL", "FSET", "FCHK", "FSWZADD"),
    "half arithmetic": ("HFMA2", "HMUL2", "HADD2", "HMNMX2", "HSETP2", "HSET2"),
    "conversions": ("F2F", "F2FP", "F2I", "F2IP", "I2F", "I2FP", "I2IP", "FRND"),
    "exchanges between lanes": ("SHFL", "VOTE", "VOTEU", "MATCH", "REDUX"),
    "spills (local memory)": ("LDL", "STL"),
    "shared memory": ("LDS", "STS", "LDSM", "STSM", "ATOMS", "LDGSTS"),
    "global memory": ("LDG", "STG", "LD", "ST", "ATOM", "ATOMG", "RED"),
    "bulk copies (TMA)": ("UTMALDG", "UTMASTG", "UTMAREDG", "UBLKCP", "UBLKRED", "UTMAPF", "UBLKPF"),
    "waits and barriers": ("BAR", "SYNCS", "WARPSYNC", "DEPBAR", "LDGDEPBAR", "WARPGROUP", "MEMBAR", "ERRBAR", "NANOSLEEP", "UTMACMDFLUSH"),
    "branches": ("BRA", "BRX", "JMP", "JMX", "CALL", "RET", "EXIT", "BSSY", "BSYNC", "BREAK", "YIELD"),
}  # fmt: skip
REST = "integers, addresses and moves"
"""All other opcodes."""

_CLASS_OF = {opcode: name for name, opcodes in CLASSES.items() for opcode in opcodes}
_FUNCTION = re.compile(r"^\.text\.(\S+):", re.MULTILINE)
_INSTRUCTION = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P[0-9T]\s+)?([A-Z][A-Z0-9_]*)")
_LABEL = re.compile(r"^(\.L\w+):", re.MULTILINE)
_TARGET = re.compile(r"`\((\.L\w+)\)")
_TIMEOUT = 120.0


@dataclass(frozen=True)
class Instruction:
    """One instruction.

    Attributes:
        address: in the kernel, bytes.
        opcode: without its modifiers, such as "FFMA".
        target: the address that it may branch to, if it names one.
    """

    address: int
    opcode: str
    target: int | None = None


def disassembler() -> str:
    """Return the path of nvdisasm: on PATH, in the CUDA toolkit, or of a Python package.

    Raises:
        ToolchainError: there is none; with the line that installs it.
    """
    roots = [os.environ[key] for key in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(key)]
    for folder in (None, *(Path(root, "bin") for root in (*roots, "/usr/local/cuda")), *_packaged()):
        found = shutil.which("nvdisasm") if folder is None else shutil.which(str(folder / "nvdisasm"))
        if found:
            return found
    raise ToolchainError(f"there is no nvdisasm here: {INSTALL}")


def _packaged() -> Iterator[Path]:
    """Yield where Python packages keep nvdisasm: NVIDIA's own, and triton."""
    for package, pattern in (("nvidia", "cu*/bin"), ("nvidia", "cuda_nvdisasm/bin"), ("triton", "backends/nvidia/bin")):
        spec = importlib.util.find_spec(package)
        for root in (spec.submodule_search_locations or ()) if spec else ():
            yield from sorted(Path(root).glob(pattern))


def disassemble(cubin: Path) -> str:
    """Return nvdisasm's listing.

    Raises:
        ToolchainError: there is no nvdisasm.
        ValueError: it does not read the file.
    """
    try:
        done = captured([disassembler(), "-c", str(cubin)], _TIMEOUT)
    except subprocess.TimeoutExpired:
        raise ValueError(f"nvdisasm took longer than {_TIMEOUT:.0f} s") from None
    if done.returncode != 0:
        raise ValueError(f"nvdisasm: {done.stderr.strip()[:200]}")
    return done.stdout


def parse(listing: str, kernel: str) -> list[Instruction]:
    """Read the instructions of one kernel from a listing of `nvdisasm -c`; of the only one if none has that name."""
    parts = _FUNCTION.split(listing)
    bodies = dict(zip(parts[1::2], parts[2::2], strict=True))
    body = bodies.get(kernel) or next(iter(bodies.values()), "")
    labels: dict[str, int] = {}
    found: list[tuple[int, str, str | None]] = []
    waiting: list[str] = []
    for line in body.splitlines():
        if label := _LABEL.match(line):
            waiting.append(label[1])
        elif instruction := _INSTRUCTION.search(line):
            address = int(instruction[1], 16)
            labels |= dict.fromkeys(waiting, address)
            waiting.clear()
            target = _TARGET.search(line)
            found.append((address, instruction[2], target[1] if target else None))
    return [Instruction(address, opcode, labels.get(target or "")) for address, opcode, target in found]


def main_loop(instructions: Sequence[Instruction]) -> Sequence[Instruction]:
    """Return the loop that holds the most matrix instructions, the shortest of equals; without any loop, everything.

    A loop is what lies between a branch back and its target. Waiting loops, which the compiler puts behind the kernel, jump
    back into the main one and so span it, too: hence the shortest. Where no loop has a matrix instruction, the longest
    loop that holds no other one counts.
    """
    loops = [
        [other for other in instructions if instruction.target <= other.address <= instruction.address]
        for instruction in instructions
        if instruction.opcode == "BRA" and instruction.target is not None and instruction.target < instruction.address
    ]
    if not loops:
        return instructions
    matrix = [sum(_CLASS_OF.get(each.opcode) == "matrix" for each in loop) for loop in loops]
    if max(matrix):
        return min((loop for loop, count in zip(loops, matrix, strict=True) if count == max(matrix)), key=len)
    spans = [(loop[0].address, loop[-1].address) for loop in loops]
    innermost = [
        loop
        for loop, (start, end) in zip(loops, spans, strict=True)
        if not any(start <= other[0] and other[1] <= end and other != (start, end) for other in spans)
    ]
    return max(innermost, key=len)


def counts(instructions: Sequence[Instruction]) -> dict[str, int]:
    """Count instructions by class, in the order of `CLASSES`, `REST` last."""
    found = Counter(_CLASS_OF.get(instruction.opcode, REST) for instruction in instructions)
    return {name: found[name] for name in (*CLASSES, REST)}
