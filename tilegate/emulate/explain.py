"""Beside what changed in the compiled code of a slower case: what its kernel executes, counted by the emulator.

For information only, as all causes are: whatever is missing here is left out without a word, for the compiled code has
been compared already.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tilegate import emulator
from tilegate.emulate.compare import changes
from tilegate.emulate.gating import for_amd
from tilegate.emulate.survey import Kernel, Wanted, execute, missing_seam
from tilegate.lowering.lowering import Lowering, LoweringError
from tilegate.lowering.store import Store, default_store
from tilegate.measuring.causes import looks_slower
from tilegate.measuring.samples import Record
from tilegate.measuring.workspace import Workspace
from tilegate.progress import Reporter
from tilegate.protocol.selection import EMULATED
from tilegate.schemas.samples import Case

RUN_SECONDS = 120.0  # for all cases together
_MOST_LINES = 4  # of a case; schemas/samples-1.json allows 20 in all, of which `tilegate.measuring.causes` takes 12


def attach(
    record: Record,
    workspaces: Mapping[str, Workspace],
    names: Sequence[str],
    arch: str | None,
    *,
    logs: Path,
    reporter: Reporter,
) -> None:
    """Add to the causes of each case which counters of its kernel changed, the largest growth first.

    Args:
        record: the run's; not saved.
        workspaces: "base" and "head".
        names: the cases, the most important first: time may run out.
        arch: the chip that the cases ran on; nothing is done for one that the emulator does not have.
        logs: where the workers' output goes.
        reporter: shows progress.
    """
    if arch not in EMULATED or any(workspace.package_root is None for workspace in workspaces.values()):
        return
    with contextlib.suppress(emulator.ToolchainMissing, LoweringError), contextlib.ExitStack() as stack:
        emulator.prepare(emulator.toolchain())
        store = default_store()
        sides = []
        for name in ("base", "head"):
            folder = logs / f"count-{name}"
            folder.mkdir(parents=True, exist_ok=True)
            sides.append(stack.enter_context(Lowering(for_amd(workspaces[name]), folder, store)))
        if any(missing_seam(side) is not None for side in sides):
            return
        phase = stack.enter_context(reporter.phase("count", len(names)))
        for name, lines in _lines(sides, record.cases, names, arch, store):
            if lines:
                record.cases[name].setdefault("cause", []).extend(lines[:_MOST_LINES])
            phase.done(name)


def _lines(
    sides: Sequence[Lowering], cases: Mapping[str, Case], names: Sequence[str], arch: str, store: Store
) -> Iterator[tuple[str, list[str]]]:
    deadline = time.monotonic() + RUN_SECONDS
    ids = [{case: id for id, cases in side.configurations(arch).items() for case in cases} for side in sides]
    for name in names:
        base, head = (
            _execute(side, arch, known.get(name), store, deadline) for side, known in zip(sides, ids, strict=True)
        )
        found = [] if base is None or head is None else changes(base, head)
        if looks_slower(cases[name]):  # for which having less to execute is no reason
            found = tuple(change for change in found if change.head > change.base)
        yield name, [f"emulated on small problems: {change}" for change in found]


def _execute(side: Lowering, arch: str, id: str | None, store: Store, deadline: float) -> Kernel | None:
    if id is None or time.monotonic() > deadline:
        return None
    try:
        artifacts = side.lower(id, arch)
    except LoweringError:
        return None
    return execute(side, Wanted(arch, id, (), artifacts), store, thorough=0, deadline=deadline)
