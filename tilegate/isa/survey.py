"""Every kernel of one revision on every chip asked for: generated, compiled, read, checked, in parallel."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilegate.failures import MISSING
from tilegate.files import UsageError
from tilegate.isa.analysis import Analysis, analyse, failed
from tilegate.isa.toolchain import Toolchain
from tilegate.lowering.lowering import Lowering, LoweringError
from tilegate.lowering.parallel import Say, in_parallel
from tilegate.lowering.store import Store
from tilegate.protocol.artifacts import JSON

SCHEMA = "tilegate-isa/1"
_LISTED = 10  # kernels that an error message names

Choice = Callable[[str, Mapping[str, Sequence[str]]], Collection[str]]
"""Given a chip and a revision's kernels for it (ids, each with its cases): the ids of those to look at."""


@dataclass(frozen=True)
class Kernel:
    """One kernel of a survey.

    Attributes:
        id: as the suite's `kernels` module spells it; " #name" is added where one configuration makes several kernels.
        cases: the benchmark cases that run it.
        analysis: what was found.
    """

    id: str
    cases: tuple[str, ...]
    analysis: Analysis


@dataclass(frozen=True)
class Survey:
    """All kernels of a revision.

    Attributes:
        kernels: by chip, in the suite's order.
        toolchains: by chip, the identity of the compiler (see `Toolchain.identity`).
    """

    kernels: Mapping[str, tuple[Kernel, ...]]
    toolchains: Mapping[str, Mapping[str, JSON]]

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "toolchains": {arch: dict(identity) for arch, identity in self.toolchains.items()},
            "kernels": {
                arch: {kernel.id: {"cases": list(kernel.cases), **kernel.analysis.to_json()} for kernel in kernels}
                for arch, kernels in self.kernels.items()
            },
        }

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> Survey:
        """Read what `to_json` wrote."""
        return Survey(
            {
                arch: tuple(Kernel(id, tuple(v["cases"]), Analysis.from_json(v)) for id, v in kernels.items())
                for arch, kernels in values["kernels"].items()
            },
            values["toolchains"],
        )


def everything(arch: str, kernels: Mapping[str, Sequence[str]]) -> Collection[str]:
    """Choose all kernels."""
    return kernels


def matching(pattern: str | None) -> Choice:
    """Choose the kernels whose id, or one of whose cases, a regular expression is found in; all without one."""
    return lambda arch, kernels: [id for id, cases in kernels.items() if found(pattern, (id, *cases))]


def found(pattern: str | None, texts: Sequence[str]) -> bool:
    """Return whether a regular expression is found in any of the texts, or there is none."""
    return pattern is None or any(re.search(pattern, text) for text in texts)


def unmatched(pattern: str | None, archs: Sequence[str], lowerings: Sequence[Lowering]) -> str | None:
    """Return a message that lists what there is, if an expression is found in no kernel of any revision; else None."""
    if pattern is None:
        return None
    there: dict[str, None] = {}
    for lowering, arch in itertools.product(lowerings, archs):
        try:
            kernels = lowering.configurations(arch)
        except LoweringError:  # is raised again, and explained, when they are looked at
            return None
        if any(found(pattern, (id, *cases)) for id, cases in kernels.items()):
            return None
        there |= dict.fromkeys(kernels)
    some = "\n  ".join(list(there)[:_LISTED])
    more = f"\n  and {len(there) - _LISTED} more, and the cases that run them" if len(there) > _LISTED else ""
    return f"no kernel or case matches {pattern!r}; there are the kernels\n  {some}{more}" if there else None


def refuse_unmatched(pattern: str | None, archs: Sequence[str], lowerings: Sequence[Lowering]) -> None:
    """Raise UsageError if there is such a message."""
    message = unmatched(pattern, archs, lowerings)
    if message is not None:
        raise UsageError(message)


def survey(
    lowering: Lowering,
    toolchains: Sequence[Toolchain],
    store: Store,
    *,
    choice: Choice = everything,
    say: Say = lambda done, total, what: None,
) -> Survey:
    """Look at the kernels of a revision.

    Args:
        lowering: the revision.
        toolchains: one for each chip.
        store: the cache.
        choice: of which of them.
        say: told of progress.

    Raises:
        LoweringError: the revision's kernels cannot even be listed.
        ToolchainError: something is missing on this machine that a kernel is compiled with.
    """
    wanted: list[tuple[Toolchain, str, tuple[str, ...]]] = []
    for toolchain in toolchains:
        kernels = lowering.configurations(toolchain.arch)
        chosen = choice(toolchain.arch, kernels)
        wanted += [(toolchain, id, tuple(cases)) for id, cases in kernels.items() if id in chosen]
    names = [f"{toolchain.arch} {id}" for toolchain, id, _ in wanted]
    if wanted:
        say(0, len(wanted), "")
    looked = in_parallel(lambda job: _look(lowering, store, *job), wanted, names, lowering, say, at_most=len(wanted))
    surveyed: dict[str, tuple[Kernel, ...]] = {toolchain.arch: () for toolchain in toolchains}
    for (toolchain, _, _), made in zip(wanted, looked, strict=True):
        surveyed[toolchain.arch] += tuple(made)
    return Survey(surveyed, {toolchain.arch: toolchain.identity() for toolchain in toolchains})


def _look(lowering: Lowering, store: Store, toolchain: Toolchain, id: str, cases: tuple[str, ...]) -> list[Kernel]:
    try:
        artifacts = lowering.lower(id, toolchain.arch)
    except LoweringError as error:
        if error.kind == MISSING:
            return []
        return [Kernel(id, cases, failed(toolchain.arch, "generate", str(error)))]
    names = [id] if len(artifacts) == 1 else [f"{id} #{artifact.name}" for artifact in artifacts]
    return [
        Kernel(name, cases, analyse(artifact, toolchain, store))
        for name, artifact in zip(names, artifacts, strict=True)
    ]
