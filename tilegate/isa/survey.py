"""Every kernel of one revision on every chip asked for: generated, compiled, read, checked, in parallel."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

from tilegate.isa.analysis import Analysis, analyse, failed
from tilegate.isa.lowering import Lowering, LoweringError
from tilegate.isa.store import Store
from tilegate.isa.toolchain import Toolchain
from tilegate.protocol.artifacts import JSON
from tilegate.worker.failures import MISSING

SCHEMA = "tilegate-isa/1"


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


def survey(
    lowering: Lowering,
    toolchains: Sequence[Toolchain],
    store: Store,
    *,
    pattern: str | None = None,
    say: Callable[[int, int, str], None] = lambda done, total, what: None,
) -> Survey:
    """Look at every kernel of a revision whose id, or one of whose cases, `pattern` is found in.

    Args:
        lowering: the revision.
        toolchains: one for each chip.
        store: the cache.
        pattern: a regular expression; all kernels without it.
        say: told of progress: done (0 before the first), total, what was done.

    Raises:
        LoweringError: the revision's kernels cannot even be listed.
    """
    wanted: list[tuple[Toolchain, str, tuple[str, ...]]] = []
    for toolchain in toolchains:
        for id, cases in lowering.configurations(toolchain.arch).items():
            if pattern is None or any(re.search(pattern, text) for text in (id, *cases)):
                wanted.append((toolchain, id, tuple(cases)))
    found: list[list[Kernel]] = [[] for _ in wanted]
    if wanted:
        say(0, len(wanted), "")
    with ThreadPoolExecutor(max(1, min(_cores(), len(wanted)))) as pool:
        jobs: dict[Future[list[Kernel]], int] = {
            pool.submit(_look, lowering, store, *job): index for index, job in enumerate(wanted)
        }
        try:
            pending, done = set(jobs), 0
            while pending:
                ready, pending = wait(pending, return_when=FIRST_COMPLETED)
                for job in ready:
                    index, done = jobs[job], done + 1
                    found[index] = job.result()
                    say(done, len(wanted), f"{wanted[index][0].arch} {wanted[index][1]}")
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            lowering.__exit__()
            raise
    kernels: dict[str, tuple[Kernel, ...]] = {toolchain.arch: () for toolchain in toolchains}
    for (toolchain, _, _), made in zip(wanted, found, strict=True):
        kernels[toolchain.arch] += tuple(made)
    return Survey(kernels, {toolchain.arch: toolchain.identity() for toolchain in toolchains})


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


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
