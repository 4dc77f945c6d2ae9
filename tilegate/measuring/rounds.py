"""The timing of a run: which cases come next, each round of them in a fresh pair of processes, until all are decided."""

from __future__ import annotations

import contextlib
import math
import random
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tilegate.config import GateConfig
from tilegate.files import UsageError
from tilegate.judging import rules, stats
from tilegate.judging.decision import Step
from tilegate.judging.measured import of_turns
from tilegate.measuring import crosscheck, duet, inspection, layout, samples
from tilegate.measuring.budget import Budget
from tilegate.measuring.disturbance import Patience
from tilegate.measuring.pool import WorkerPool
from tilegate.measuring.referee import Referee
from tilegate.measuring.session import WorkerError, wants_to_be_alone
from tilegate.measuring.workspace import Workspace
from tilegate.progress import Reporter
from tilegate.schemas.samples import Case, Replicate, Side, Stage, Target

PATIENCE = 300.0
"""Seconds that a run waits, in all, for other work on the device or for heat to pass."""

LATER_WARM_UP = 0.1  # of the first: the device is warm, only the case's own first launches are left


@dataclass(frozen=True)
class Timing:
    """What the timing of a run works with.

    Attributes:
        record: the samples so far; gets the new ones.
        config: the base's.
        target: "cpu", "cuda" or "hip".
        workspaces: "base" and "head", and "new" if the head has a suite of its own.
        logs: folder for the workers' output.
        reporter: shows progress.
        budget: how long it may take.
        patience: how long it may wait for the machine to be quiet.
        layouts: what differs between its processes besides the code.
        referee: compares timed launches with the reference.
        watches: by case, what the gate's own clock said in this run.
    """

    record: samples.Record
    config: GateConfig
    target: Target
    workspaces: Mapping[str, Workspace]
    logs: Path
    reporter: Reporter
    budget: Budget
    patience: Patience = field(default_factory=lambda: Patience(PATIENCE))
    layouts: layout.Layouts = field(default_factory=layout.Layouts)
    referee: Referee | None = None
    watches: dict[str, crosscheck.Watch] = field(default_factory=dict)


def run(timing: Timing) -> None:
    """Measure replicates until every case is decided or the time is up; then what only the head has."""
    for case in timing.record.cases.values():
        case.pop("stopped", None)
    while pending := _pending(timing):
        # All screens come before any confirmation: how many cases are confirmed decides how often.
        stage: Stage = "screen" if any(step.action == "screen" for step in pending.values()) else "confirm"
        steps = {name: step for name, step in pending.items() if step.action == stage}
        chosen = _within_budget(timing, stage, steps)
        if not chosen:
            _stop(timing, pending)
            break
        _replicate(timing, stage, chosen)
    _measure_new(timing)


def _pending(timing: Timing) -> dict[str, Step]:
    """Return what to measure next of every case that needs it: all steps have "screen" or "confirm" as their action."""
    cases, target = timing.record.cases, timing.target
    document = timing.record.document
    terms = rules.rules_of(document, timing.config, rules.profile_of(document)).terms
    confirming = {
        role: sum(
            case["role"] == role and (_confirmed(case) > 0 or rules.should_confirm(case, terms[name], target=target))
            for name, case in cases.items()
        )
        for role in ("gated", "control")
    }
    pending = {}
    for name, case in cases.items():
        if not _can_be_timed(case) or "stopped" in case:
            continue
        step = rules.next_step(case, terms[name], target=target, suspects=max(1, confirming.get(case["role"], 1)))
        if step.action != "done":
            pending[name] = step
    return pending


def _confirmed(case: Case) -> int:
    return sum(replicate["stage"] == "confirm" for replicate in case["replicates"])


def _can_be_timed(case: Case) -> bool:
    return case["role"] != "identical" and all(case[side]["status"] == "ok" for side in duet.SIDES)


def _within_budget(timing: Timing, stage: str, steps: Mapping[str, Step]) -> dict[str, Step]:
    """Return the steps that can be paid for, the most worthwhile first: everything is screened before the rest."""
    if not timing.budget.limited:
        return dict(steps)
    pairs = {name: step.pairs for name, step in steps.items()}
    rounds = {name: step.replicates for name, step in steps.items()}
    order = list(steps) if stage == "screen" else sorted(steps, key=lambda name: _worth(timing, name, steps[name]))
    return {name: steps[name] for name in timing.budget.affordable(order, pairs, rounds)}


def _worth(timing: Timing, name: str, step: Step) -> tuple[int, float]:
    """Sort key: what looks slower, by slowdown per second; then what looks faster; last what is only noisy; cheap first."""
    cost = max(timing.budget.cost(name, step.pairs * step.replicates), 1e-9)
    case = timing.record.cases[name]
    (screen,) = [r for r in case["replicates"] if r["stage"] == "screen"][-1:]
    pairs = [pair for pair in screen["pairs"] if "disturbed" not in pair] or screen["pairs"]
    base, head = of_turns(pairs, timing.target)
    estimate = stats.hodges_lehmann(np.log(head / base))
    noticed = math.log1p(timing.config.for_case(name).screen)
    if estimate > noticed:
        return 0, -estimate / cost
    return (1 if estimate < -noticed else 2), cost


def _stop(timing: Timing, pending: Mapping[str, Step]) -> None:
    for name in pending:
        timing.record.cases[name]["stopped"] = "budget"
    timing.record.save()
    timing.reporter.note(f"the time budget is used up; left undecided: {len(pending)}")


def _replicate(timing: Timing, stage: Stage, steps: Mapping[str, Step]) -> None:
    """Measure one replicate of each case in one fresh pair of processes, replaced if one of them fails."""

    def one(pool: WorkerPool, name: str, warm_up: float) -> duet.SideError | None:
        failed = _one(timing, pool, (stage, name, steps[name].pairs), warm_up)
        if failed is not None:
            pool.close()  # the other side has seen half a case
            _blame(timing, name, failed, steps[name].pairs)
        return failed

    number = max(len(timing.record.cases[name]["replicates"]) for name in steps)
    names = layout.order(timing.record.document["seed"], f"{stage}-{number}", list(steps))
    _each_case(timing, stage, {side: timing.workspaces[side] for side in duet.SIDES}, names, one)


def _each_case(
    timing: Timing,
    stage: str,
    workspaces: Mapping[str, Workspace],
    names: Sequence[str],
    one: Callable[[WorkerPool, str, float], duet.SideError | None],
) -> None:
    """Do `one` for each case in the same fresh processes, which are replaced if one fails, until the time is up."""
    pool: WorkerPool | None = None
    try:
        with timing.reporter.phase(stage, len(names)) as phase:
            for index, name in enumerate(names):
                if timing.budget.left <= 0:
                    break
                phase.doing(name)
                warm_up = timing.config.for_case(name).warm_up_seconds * (1.0 if pool is None else LATER_WARM_UP)
                if pool is None:
                    with timing.record.timed("start"):
                        pool = _started(timing, stage, workspaces, names[index:])
                with timing.record.timed(stage):
                    failed = one(pool, name, warm_up)
                if failed is not None:
                    pool.close()
                    pool = None
                timing.record.save()
                phase.done(name if failed is None else f"{name}: {failed.side}: {failed.error.kind}")
    finally:
        if pool is not None:
            pool.close()


def _started(timing: Timing, stage: str, workspaces: Mapping[str, Workspace], names: Sequence[str]) -> WorkerPool:
    """Return fresh processes that have loaded all kernels."""
    pool = fresh_pool(timing, stage, workspaces)
    try:
        if not _start(timing, pool, names):
            timing.layouts.hash_seeds = False
            timing.reporter.note(
                "the generated code depends on PYTHONHASHSEED (a set's order, most likely), so every process gets the same "
                "one; sort what the code is generated from, and it will be drawn as the rest of the layout is"
            )
            pool.close()
            pool = fresh_pool(timing, stage, workspaces)
            _start(timing, pool, names)
    except BaseException:
        pool.close()
        raise
    return pool


def fresh_pool(timing: Timing, stage: str, workspaces: Mapping[str, Workspace]) -> WorkerPool:
    """Return fresh processes, none of them started, with a layout of its own for each."""
    # The processes' identity is their label: the judge accepts no two replicates of a case from the same.
    label = f"{stage}-{secrets.token_hex(4)}"
    layouts = {name: timing.layouts.draw(timing.record.document["seed"], label, name) for name in workspaces}
    return WorkerPool(workspaces, timing.logs, timing.config, label=label, timed=True, layouts=layouts)


def _start(timing: Timing, pool: WorkerPool, names: Sequence[str]) -> bool:
    """Start the processes and let them load all kernels at once; whatever fails fails again with its case.

    Returns:
        Whether they generate the code that was looked at.
    """
    started = time.monotonic()
    pool.start()
    known = {}
    for side in pool.workspaces:
        with contextlib.suppress(WorkerError):
            here = {case["id"] for case in pool.worker(side).catalogue()["cases"]}
            known[side] = [name for name in names if name in here]
    pool.precompile(known)
    same = not set(duet.SIDES) <= set(pool.workspaces) or _verified(timing, pool, names)
    timing.budget.startup = max(timing.budget.startup, time.monotonic() - started)
    return same


def _verified(timing: Timing, pool: WorkerPool, names: Sequence[str]) -> bool:
    """Ask both sides for the code of one case, one that differs if there is any; return whether it is what it was.

    Raises:
        UsageError: the sides are exchanged, so that a slowdown would be called an improvement.
    """
    recorded = {name: [timing.record.cases[name][side]["identity"] for side in duet.SIDES] for name in names}
    known = [name for name, identities in recorded.items() if None not in identities]
    telling = next((name for name in known if recorded[name][0] != recorded[name][1]), next(iter(known), None))
    if telling is None:
        return True
    asked: dict[str, dict[str, str]] = {side: {"case": telling} for side in duet.SIDES}
    found = []
    for answer in pool.request_all("artifacts", timing.config.for_case(telling).compile_timeout, asked).values():
        try:
            found.append(answer()["identity"])
        except WorkerError:  # fails again with its case
            return True
    if found == recorded[telling]:
        return True
    if found == recorded[telling][::-1]:
        raise UsageError(
            f"base and head are exchanged: the base's process has the head's code for {telling}; nothing it measured "
            "was kept. Please report this, it is a defect of tilegate"
        )
    return False


def _one(timing: Timing, pool: WorkerPool, what: tuple[Stage, str, int], warm_up: float) -> duet.SideError | None:
    """Measure one replicate (stage, case, pairs) and enter it in the record; return what went wrong, if anything did."""
    stage, name, pairs = what
    case = timing.record.cases[name]
    number = len(case["replicates"])
    order = random.Random(f"{timing.record.document['seed']}/{name}/{number}")  # noqa: S311 - not for secrets
    config = timing.config.for_case(name)
    started = time.monotonic()
    try:
        result = duet.measure(
            pool,
            name,
            pairs,
            config,
            order,
            warm_up=warm_up,
            patience=timing.patience,
            apart="apart" in case,
            referee=timing.referee,
        )
    except duet.SideError as failed:
        return failed
    watch = timing.watches.setdefault(name, crosscheck.Watch())
    watch.add(result["watch"])
    if (finding := watch.finding()) is not None:
        return duet.SideError("head", WorkerError("off-clock", finding, None), "measure")
    timing.budget.paid(name, pairs, time.monotonic() - started)
    replicate: Replicate = {
        "replicate": number,
        "stage": stage,
        "session": pool.label,
        "layouts": {"base": pool.layouts["base"].to_json(), "head": pool.layouts["head"].to_json()},
        "pairs": result["pairs"],
    }
    if result["recorded"] > 1:
        replicate["recorded"] = result["recorded"]
    if result["looks"]:
        replicate["looks"] = result["looks"]
    case["replicates"].append(replicate)
    for side, state in result["host_state"].items():
        case[side]["host_state"] += [state] if state else []
    return None


def _fail(side: Side, error: WorkerError) -> None:
    side["status"], side["failure"] = "failed", error.failure()


def _blame(timing: Timing, name: str, failed: duet.SideError, pairs: int) -> None:
    """Find out whose fault a failure is, and enter it: a failure of both sides is never the head's.

    The other side is tried alone. If it does not fail, and the failure is one that a second process can cause, so is the one
    that failed: if it does not fail alone either, the case is measured apart from then on, once.
    """
    case = timing.record.cases[name]
    mine, other = (case["base"], case["head"]) if failed.side == "base" else (case["head"], case["base"])
    error = _tried_alone(timing, "head" if failed.side == "base" else "base", name, pairs)
    if error is not None:
        _fail(other, error)
    elif (
        "apart" not in case
        and wants_to_be_alone(failed.error.kind, failed.operation)
        and _tried_alone(timing, failed.side, name, pairs) is None
    ):
        case["apart"] = failed.error.failure()
        timing.reporter.note(f"{name} needs the device alone: its sides are measured one after the other")
        return
    _fail(mine, failed.error)


def _tried_alone(timing: Timing, side: str, name: str, turns: int) -> WorkerError | None:
    """Measure a case in one side's fresh process, the only one; return how it failed, if it did."""
    config = timing.config.for_case(name)
    with fresh_pool(timing, "alone", {side: timing.workspaces[side]}) as pool:
        try:
            pool.worker(side).catalogue()
            duet.measure_alone(pool, side, name, turns, config, warm_up=config.warm_up_seconds, referee=timing.referee)
        except duet.SideError as failed:
            return failed.error
        except WorkerError as error:
            return error
    return None


def _measure_new(timing: Timing) -> None:
    """Time what the base does not have, in the head alone: for the reader, since there is nothing to compare it with."""
    new = [name for name, case in timing.record.cases.items() if _is_new(case) and "alone" not in case]
    if new and timing.budget.left > timing.budget.startup:
        workspaces = {name: workspace for name, workspace in timing.workspaces.items() if name != "base"}
        _each_case(timing, "new", workspaces, new, lambda pool, name, warm_up: _alone(timing, pool, name, warm_up))


def _is_new(case: Case) -> bool:
    return (case["base"]["status"], case["head"]["status"]) == ("missing", "ok") and bool(case["head"]["checked"])


def _alone(timing: Timing, pool: WorkerPool, name: str, warm_up: float) -> duet.SideError | None:
    case, config = timing.record.cases[name], timing.config.for_case(name)
    try:
        turns = duet.measure_alone(
            pool, inspection.worker_of_head(pool, name), name, config.screen_pairs, config, warm_up=warm_up
        )
    except duet.SideError as failed:
        _fail(case["head"], failed.error)
        return failed
    case["alone"] = {"session": pool.label, "turns": turns}
    return None
