"""From a generated kernel to its numbers: compile (or recall), read, count, check."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tilegate.isa.assembly import AssemblyError, parse
from tilegate.isa.checks import BROKEN, Problem, check
from tilegate.isa.chips import chip_of
from tilegate.isa.figures import Figures, figures_of
from tilegate.isa.toolchain import CompileError, Toolchain
from tilegate.lowering.store import Store, key_of
from tilegate.protocol.artifacts import JSON, Artifact


@dataclass(frozen=True)
class Analysis:
    """What is known of one kernel on one chip.

    Attributes:
        arch: the chip.
        figures: the numbers; None if there is no compiled code.
        problems: what is wrong with it, worst first.
        identity: hash over source and launch configuration: equal for two commits, equal kernels. None if it could not be
            generated.
    """

    arch: str
    figures: Figures | None
    problems: tuple[Problem, ...]
    identity: str | None

    @property
    def broken(self) -> bool:
        """Whether it cannot run."""
        return any(problem.severity == BROKEN for problem in self.problems)

    def to_json(self) -> dict[str, JSON]:
        """Return plain values."""
        return {
            "arch": self.arch,
            "figures": self.figures.to_json() if self.figures else None,
            "problems": [asdict(problem) for problem in self.problems],
            "identity": self.identity,
        }

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> Analysis:
        """Read what `to_json` wrote."""
        figures = values["figures"]
        return Analysis(
            values["arch"],
            Figures.from_json(figures) if figures else None,
            tuple(Problem(**problem) for problem in values["problems"]),
            values["identity"],
        )


def failed(arch: str, check_name: str, message: str, identity: str | None = None) -> Analysis:
    """An analysis of a kernel of which there is no code."""
    return Analysis(arch, None, (Problem(check_name, BROKEN, message),), identity)


def assemble(artifact: Artifact, toolchain: Toolchain, store: Store) -> str:
    """Return the assembler text of a kernel, from the cache if it was compiled before.

    Raises:
        CompileError: the compiler rejects it.
        ToolchainError: something is missing on this machine.
    """
    key = key_of("assembly", artifact.source, toolchain.identity()["fingerprint"])
    text = store.get(key)
    if text is None:
        text = toolchain.compile(artifact.source)
        store.put(key, text)
    return text


def analyse(artifact: Artifact, toolchain: Toolchain, store: Store) -> Analysis:
    """Compile one kernel and work out its numbers; what cannot be compiled is broken, not an exception.

    Raises:
        ToolchainError: something is missing on this machine, so nothing can be said of the kernel.
        ValueError: the artifact does not say how the kernel is launched.
    """
    identity = key_of(artifact.name, artifact.source, dict(artifact.launch))
    chip = chip_of(toolchain.arch)
    try:
        listings = parse(assemble(artifact, toolchain, store))
    except CompileError as error:
        return failed(toolchain.arch, "compile", f"does not compile: {error}", identity)
    except AssemblyError as error:
        return failed(toolchain.arch, "compile", str(error), identity)
    named = [listing for listing in listings if artifact.name in (listing.name, f"{listing.name}_kernel")]
    listing = named[0] if named else listings[0]
    figures = figures_of(listing, artifact, chip)
    return Analysis(toolchain.arch, figures, check(figures, artifact, chip), identity)
