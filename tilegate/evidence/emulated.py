"""What the emulator counts of a case's kernels, beside the hardware's counters: for AMD's chips alone, on a small problem."""

from __future__ import annotations

from pathlib import Path

from tilegate import emulator
from tilegate.emulate.gating import for_amd
from tilegate.emulate.survey import Wanted, execute, missing_seam
from tilegate.lowering.lowering import Lowering, LoweringError
from tilegate.lowering.store import Store
from tilegate.measuring.workspace import Workspace
from tilegate.protocol import JSON
from tilegate.protocol.selection import EMULATED


def counts(workspace: Workspace, case: str, arch: str, logs: Path, store: Store) -> JSON:
    """Return what a launch of the case's kernels executes on the first small problem that the suite has for them.

    Args:
        workspace: the revision.
        case: id of the case.
        arch: the chip: "gfx942", "sm_90", …
        logs: where the worker's output goes; made here.
        store: the cache.

    Returns:
        ``{"kernel": id, "problem": name, "total": {count: number}}`` (`emulator.Counts`), or the sentence that says why there
        are none.
    """
    if arch not in EMULATED:
        return f"the emulator executes HIP code for {', '.join(EMULATED)} alone: there are no counts for {arch}"
    try:
        emulator.prepare(emulator.toolchain())
        logs.mkdir(parents=True, exist_ok=True)
        with Lowering(for_amd(workspace), logs, store) as lowering:
            lacking = missing_seam(lowering)
            if lacking is not None:
                return lacking
            ids = [id for id, cases in lowering.configurations(arch).items() if case in cases]
            if not ids:
                return f"the suite names no kernel of {case} for {arch} (docs/protocol.md, `configurations`)"
            kernel = execute(
                lowering, Wanted(arch, ids[0], (case,), lowering.lower(ids[0], arch)), store, thorough=0, first=True
            )
    except (emulator.ToolchainMissing, LoweringError) as error:
        return str(error)
    trial = next((done for done in kernel.trials if done.counters), None)
    if trial is None:
        return f"the emulator did not run {kernel.id} to its end; `tilegate emulate` says why"
    total: dict[str, JSON] = dict(trial.total)
    return {"kernel": kernel.id, "problem": trial.problem, "total": total}
