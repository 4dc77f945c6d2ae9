"""The base against itself, in the controls that moved: is it the machine, or what the change did around its kernels?

See `tilegate.judging.itself`, which judges.
"""

from __future__ import annotations

import random
import time

from tilegate.judging import judge, run_verdict
from tilegate.measuring import duet, layout, rounds
from tilegate.measuring.rounds import Timing
from tilegate.measuring.workspace import Workspace
from tilegate.schemas.samples import Replicate, Stage


def measure(timing: Timing) -> None:
    """Measure the base against itself where controls moved, as often as base against head; enter it in the record."""
    names = [name for name in _moved(timing) if "itself" not in timing.record.cases[name]]
    if not names:
        return
    timing.reporter.note(
        "cases with identical code moved: measuring the base against itself, to see whose doing that is"
    )
    found: dict[str, list[Replicate]] = {name: [] for name in names}
    workspaces: dict[str, Workspace] = {side: timing.workspaces["base"] for side in duet.SIDES}
    confirmations: list[Stage] = ["confirm"] * timing.config.replicates
    stages: list[Stage] = ["screen", *confirmations]
    with timing.reporter.phase("itself", len(stages) * len(names)) as phase:
        for number, stage in enumerate(stages):
            if timing.budget.left <= timing.budget.startup:
                return
            with timing.record.timed("start"):
                pool = rounds.fresh_pool(timing, "itself", workspaces)
            with pool, timing.record.timed("itself"):
                pool.start()
                pool.precompile({side: names for side in workspaces})
                for name in layout.order(timing.record.document["seed"], f"itself-{number}", names):
                    phase.doing(name)
                    started, config = time.monotonic(), timing.config.for_case(name)
                    pairs = config.screen_pairs if stage == "screen" else config.confirm_pairs
                    order = random.Random(f"{timing.record.document['seed']}/{name}/itself/{number}")  # noqa: S311 - not for secrets
                    try:
                        result = duet.measure(
                            pool,
                            name,
                            pairs,
                            config,
                            order,
                            warm_up=config.warm_up_seconds,
                            patience=timing.patience,
                            apart="apart" in timing.record.cases[name],
                        )
                    except duet.SideError:  # the base has just worked: whatever that is, it acquits nobody
                        return
                    replicate: Replicate = {
                        "replicate": number,
                        "stage": stage,
                        "session": f"{pool.label}-{name}"[:200],
                        "pairs": result["pairs"],
                    }
                    if result["recorded"] > 1:
                        replicate["recorded"] = result["recorded"]
                    found[name].append(replicate)
                    timing.budget.paid(name, pairs, time.monotonic() - started)
                    phase.done(name)
    for name, replicates in found.items():
        timing.record.cases[name]["itself"] = replicates
    timing.record.save()


def _moved(timing: Timing) -> list[str]:
    """Return the controls that moved; all of them, if it was together that they did."""
    document = timing.record.document
    controls = judge.judge(document)["controls"]
    if controls["moved"]:
        return list(controls["moved"])
    together = run_verdict.moved(controls)
    return [n for n, c in document["cases"].items() if together and c["role"] == "control" and c["replicates"]]
