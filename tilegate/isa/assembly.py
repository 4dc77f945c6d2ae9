"""Reading the compiler's assembler text for AMD GPUs: each kernel's resources, instructions and control flow.

Resources come from the code object metadata at the end of the text (LLVM, User Guide for AMDGPU Backend, code object V3
and later), which the driver itself goes by. The control flow is rebuilt from labels and branches; nothing depends on
the compiler's comments except the code size, the VGPRs without the gap before the AGPRs, and which instructions spill:
only comments give those.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_LABEL = re.compile(r"([A-Za-z_.$][\w.$@]*):")
_METADATA = re.compile(r"\.amdgpu_metadata\n(.*?)\.end_amdgpu_metadata", re.DOTALL)
_ENTRY = re.compile(r"^ {2}- |^amdhsa\.target", re.MULTILINE)
_KEY = re.compile(r"^(?: {4}|  - )\.(\w+):\s+(\S.*)$", re.MULTILINE)
_CODE_SIZE = re.compile(r"codeLenInByte = (\d+)")
_VGPRS = re.compile(r"NumVgprs: (\d+)")
_SPILL = re.compile(r"Folded (?:Spill|Reload)|Reload Reuse")
_CONDITIONAL = "s_cbranch"


class AssemblyError(Exception):
    """The text is not assembler output with kernels in it."""


@dataclass(frozen=True)
class Instruction:
    """One instruction.

    Attributes:
        mnemonic: as printed, with its encoding suffix.
        operands: the rest of the line, without comment.
        spill: the compiler marks it as moving a register to or from memory or an AGPR for want of room.
    """

    mnemonic: str
    operands: str
    spill: bool = False


@dataclass(frozen=True)
class Block:
    """Instructions without a jump into or out of their middle.

    Attributes:
        instructions: in order.
        successors: indices of the blocks that can follow.
        skips_idle: the successor that a branch on an empty execution mask leads to, if the block ends in one: taken
            only when no lane has work in what is skipped.
    """

    instructions: tuple[Instruction, ...]
    successors: tuple[int, ...]
    skips_idle: int | None = None


@dataclass(frozen=True)
class Listing:
    """One compiled kernel.

    Attributes:
        name: the symbol.
        metadata: the driver's view of it, by the metadata's keys without the dot (vgpr_count, agpr_count, …).
        blocks: the control flow; the first block is the entry.
        code_bytes: size of the code; None if the compiler did not say.
        vgprs: VGPRs without AGPRs and without the gap that may lie between the two; None if the compiler did not say.
    """

    name: str
    metadata: Mapping[str, str]
    blocks: tuple[Block, ...]
    code_bytes: int | None
    vgprs: int | None

    def number(self, key: str) -> int:
        """Return a count of the metadata; 0 where the compiler leaves it out.

        Raises:
            AssemblyError: it is no number.
        """
        text = self.metadata.get(key, "0")
        try:
            return int(text)
        except ValueError:
            raise AssemblyError(f"{self.name}: .{key} is {text!r}, not a number") from None

    @property
    def instructions(self) -> Iterator[Instruction]:
        """All instructions, in order."""
        return (instruction for block in self.blocks for instruction in block.instructions)


def parse(text: str) -> tuple[Listing, ...]:
    """Read every kernel of an assembler text.

    Args:
        text: what `clang -S` or `hipcc -S` wrote for an AMD GPU.

    Raises:
        AssemblyError: there is no metadata, no kernel, or a kernel without code.
    """
    entries = tuple(_entries(text))
    if not entries:
        raise AssemblyError("no kernel in the compiler's output (no .amdgpu_metadata with amdhsa.kernels)")
    return tuple(_listing(text, metadata) for metadata in entries)


def _entries(text: str) -> Iterator[dict[str, str]]:
    found = _METADATA.search(text)
    if found is None:
        return
    _, _, kernels = found[1].partition("amdhsa.kernels:\n")
    starts = [match.start() for match in _ENTRY.finditer(kernels)] + [len(kernels)]
    for start, end in itertools.pairwise(starts):
        values = {key: value.strip().strip("'\"") for key, value in _KEY.findall(kernels[start:end])}
        if "name" in values:
            yield values


def _listing(text: str, metadata: dict[str, str]) -> Listing:
    name = metadata["name"]
    found = re.search(
        rf"^{re.escape(name)}:.*?\n(.*?)^\.Lfunc_end\d+:(.*?)(?=^\S+:|\Z)", text, re.DOTALL | re.MULTILINE
    )
    if found is None:
        raise AssemblyError(f"the metadata names a kernel {name} whose code is not in the text")
    size, vgprs = _CODE_SIZE.search(found[2]), _VGPRS.search(found[2])
    return Listing(name, metadata, _blocks(found[1]), int(size[1]) if size else None, int(vgprs[1]) if vgprs else None)


def _blocks(body: str) -> tuple[Block, ...]:
    """Cut code at labels and after branches, and connect the pieces."""
    pieces: list[list[Instruction]] = [[]]
    labels: dict[str, int] = {}
    for line in body.splitlines():
        code, _, comment = line.partition(";")
        code = code.strip()
        label = _LABEL.match(code)
        if label:
            if pieces[-1]:
                pieces.append([])
            labels[label[1]] = len(pieces) - 1
            code = code[label.end() :].strip()
        if not code or code.startswith("."):
            continue
        mnemonic, _, operands = code.partition(" ")
        mnemonic, _, tabbed = mnemonic.partition("\t")
        pieces[-1].append(Instruction(mnemonic, (tabbed or operands).strip(), bool(_SPILL.search(comment))))
        if mnemonic.startswith((_CONDITIONAL, "s_branch", "s_endpgm", "s_setpc")):
            pieces.append([])
    if not pieces[-1]:
        pieces.pop()
    return tuple(_connect(index, piece, pieces, labels) for index, piece in enumerate(pieces))


def _connect(index: int, piece: list[Instruction], pieces: list[list[Instruction]], labels: Mapping[str, int]) -> Block:
    following = (index + 1,) if index + 1 < len(pieces) else ()
    last = piece[-1] if piece else None
    if last is None or not last.mnemonic.startswith(("s_branch", _CONDITIONAL, "s_endpgm", "s_setpc")):
        return Block(tuple(piece), following)
    target = labels.get(last.operands)
    targets = (target,) if target is not None and target < len(pieces) else ()
    if last.mnemonic.startswith(_CONDITIONAL):
        idle = target if last.mnemonic == "s_cbranch_execz" else None
        return Block(tuple(piece), tuple(dict.fromkeys(following + targets)), idle)
    return Block(tuple(piece), targets)
