"""What executed kernels mean for a run: pure functions of the "emulation" of a samples document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tilegate.schemas import verdict
from tilegate.schemas.samples import EmulatedChip, EmulatedKernel, EmulatedSide
from tilegate.schemas.verdict import KernelVerdict

# Kinds of findings and failures that say something of the emulator, the suite or the machine, but nothing of the kernel.
_NOT_THE_KERNEL = ("unsupported", "error", "missing", "setup", "import", "leak")


@dataclass(frozen=True)
class Broken:
    """A kernel that is wrong at the head, and was not at the base.

    Attributes:
        arch, id: which.
        cases: that run it.
        message: the findings, and on which problems.
    """

    arch: str
    id: str
    cases: tuple[str, ...]
    message: str


def blames(side: EmulatedSide) -> bool:
    """Return whether what was found speaks against the kernel."""
    failed = side["failure"] is not None and side["failure"]["kind"] not in _NOT_THE_KERNEL
    return failed or any(finding["kind"] not in _NOT_THE_KERNEL for finding in side["findings"])


def verdict_of(kernel: EmulatedKernel) -> KernelVerdict:
    """Return "broken", "pass", or "inconclusive": not all of it could be executed, or the base is wrong, too."""
    head, base = kernel["head"], kernel["base"]
    if blames(head):
        return "inconclusive" if base is not None and blames(base) else "broken"
    whole = head["complete"] and head["problems"] and head["failure"] is None and not head["findings"]
    return "pass" if whole else "inconclusive"


def broken(section: Mapping[str, EmulatedChip]) -> Iterator[Broken]:
    """Return the kernels that make a run broken."""
    for arch, found in section.items():
        for id, kernel in found["kernels"].items():
            if verdict_of(kernel) == "broken":
                yield Broken(arch, id, tuple(kernel["cases"]), message_of(arch, id, kernel))


def message_of(arch: str, id: str, kernel: EmulatedKernel) -> str:
    """Say what is wrong with a kernel of the head, or why that is not known."""
    head, base = kernel["head"], kernel["base"]
    lines = [f"{id} on {arch}, emulated:"]
    if head["failure"] is not None:
        lines.append(f"not executed ({head['failure']['kind']}): {head['failure']['message']}")
    for finding in head["findings"]:
        lines += [finding["message"], f"  at {finding['where']}"]
    if base is not None and blames(base):
        lines.append("the base has findings, too, so the change need not be to blame")
    elif not head["complete"]:
        lines.append(f"there was time for {head['problems']} problems only (emulate_seconds)")
    return "\n".join(lines)


def report(section: Mapping[str, EmulatedChip]) -> dict[str, verdict.EmulatedChip]:
    """Return the "emulation" of a verdict document."""
    return {
        arch: {
            "note": found["note"],
            "unchanged": found["unchanged"],
            "unselected": found.get("unselected", 0),
            "kernels": {
                id: {
                    "verdict": verdict_of(kernel),
                    "cases": list(kernel["cases"]),
                    "message": message_of(arch, id, kernel) if verdict_of(kernel) != "pass" else None,
                }
                for id, kernel in found["kernels"].items()
            },
        }
        for arch, found in section.items()
    }
