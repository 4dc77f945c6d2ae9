"""Every changed kernel on problems that no case has: other lengths, other values, drawn anew for each run.

A kernel that is right for the shapes of the suite can be wrong for those between them, and one that was written to pass can
know them. So the suite's `probe` launches a kernel on a problem that is drawn from a number, which nobody knows before the
run; the referee draws the same problem and compares. So do kernels that no case of the run times, where the suite names them
(`probed`). A problem on which the base is wrong, too, says nothing of the change.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from tilegate.config import GateConfig
from tilegate.measuring.pool import WorkerPool
from tilegate.measuring.referee import Referee
from tilegate.measuring.samples import Record, new_side
from tilegate.measuring.session import WorkerError
from tilegate.progress import Reporter
from tilegate.schemas.samples import Case, Side, SideName

PROBLEMS = 8
"""Of each kernel. One that is wrong for a quarter of what can be drawn gets past 8 in 1 of 10 runs."""

_AGAIN = 2  # times a problem is drawn once more with other numbers, before a kernel is called wrong for it
_NUMBERS = 1 << 8  # seeds have the same lengths but for these bits
_SEEDS = 2**40
_SIDES: tuple[SideName, ...] = ("base", "head")


def probe(
    pool: WorkerPool, record: Record, config: GateConfig, reporter: Reporter, referee: Referee, *, everything: bool
) -> None:
    """Probe every changed kernel; what the head computes wrong, and the base right, is entered as the head's failure.

    Args:
        pool: has untimed workers "base" and "head".
        record: has the cases, inspected and checked.
        config: timeouts.
        reporter: shows progress.
        referee: compares.
        everything: also kernels that no case of the run times.
    """
    kernels = _changed(record.cases)
    with record.timed("probe"):
        if everything:
            unlisted = _unlisted(pool, config)
            kernels |= _changed(unlisted)
            broken = [
                name for name, c in unlisted.items() if (c["base"]["status"], c["head"]["status"]) == ("ok", "failed")
            ]
            record.cases.update({name: unlisted[name] for name in broken})
        if not kernels:
            return
        others = {name: case for name, case in kernels.items() if name not in record.cases}
        pool.precompile({side: list(others) for side in _SIDES} if others else {})
        with reporter.phase("probe", len(kernels)) as phase:
            for name, case in kernels.items():
                phase.doing(name)
                wrong = _wrong(pool, referee, name)
                if wrong is None:
                    phase.done(f"{name}: the suite has no probe() for it")
                    continue
                for alike, other in record.cases.items():
                    if _same_kernel(other, case) and wrong:
                        _fail(record.cases[alike], wrong[0])
                if wrong and name not in record.cases:
                    _fail(case, wrong[0])
                    record.cases[name] = case
                phase.done(f"{name}: {wrong[0].kind}" if wrong else name)
                record.save()


def _wrong(pool: WorkerPool, referee: Referee, name: str) -> list[WorkerError] | None:
    """Return what is wrong with the head's kernel and not with the base's, at most one; None if the suite has no probes."""
    for number in range(PROBLEMS):
        seed = _NUMBERS * (
            PROBLEMS * secrets.randbelow(_SEEDS) + number
        )  # so that a suite can take every kind of values
        tried = [referee.probe(pool, _SIDES, name, seed)]
        if tried[0] is None:
            return None
        if tried[0]["head"] is None or tried[0]["base"] is not None:
            continue
        # A right result may lie at the edge of what is tolerated, for some numbers, but not time and again.
        tried += [referee.probe(pool, _SIDES, name, seed + more) for more in range(1, _AGAIN + 1)]
        wrong = [found["head"] for found in tried if found and found["head"] and not found["base"]]
        if len(wrong) > 1:
            error = wrong[0]
            return [WorkerError(error.kind, f"on a problem that no case has: {error.message}", error.log)]
    return []


def _changed(cases: Mapping[str, Case]) -> dict[str, Case]:
    """Return one case of every kernel whose code differs; of those that are broken or missing anyway, none."""
    chosen: dict[tuple[str, str | None], str] = {}
    for name, case in cases.items():
        sound = all(case[side]["status"] == "ok" for side in _SIDES)
        if sound and (case["base"]["identity"] != case["head"]["identity"] or case["head"]["identity"] is None):
            # Without an identity any two cases may be different kernels.
            chosen.setdefault((case["benchmark"], case["head"]["identity"] or name), name)
    return {name: cases[name] for name in chosen.values()}


def _same_kernel(one: Case, other: Case) -> bool:
    alike = one["benchmark"] == other["benchmark"] and one["head"]["identity"] == other["head"]["identity"]
    return one is other or (alike and one["head"]["identity"] is not None)


def _fail(case: Case, error: WorkerError) -> None:
    case["head"]["status"], case["head"]["failure"] = "failed", error.failure()


def _unlisted(pool: WorkerPool, config: GateConfig) -> dict[str, Case]:
    """Return the kernels that no case times, as cases with their identities; only those that both sides know."""
    asked_for: dict[str, dict[str, str]] = {side: {} for side in _SIDES}
    try:
        names = [answer() for answer in pool.request_all("unlisted", config.import_timeout, asked_for).values()]
    except WorkerError:  # its cases have said so
        return {}
    found: dict[str, Case] = {}
    for name in sorted(set(names[0]) & set(names[1])):
        benchmark, _, params = name.partition("(")
        case: Case = {
            "benchmark": benchmark,
            "params": [params.removesuffix(")")],
            "version": "0",
            "base": new_side(),
            "head": new_side(),
            "role": "gated",
            "replicates": [],
        }
        asked: dict[str, dict[str, str]] = {side: {"case": name} for side in _SIDES}
        for side, answer in pool.request_all("artifacts", config.compile_timeout, asked).items():
            of: Side = case["base"] if side == "base" else case["head"]
            try:
                made = answer()
                of["identity"], of["resources"] = made["identity"], made["resources"]
            except WorkerError as error:
                of["status"] = "missing" if error.kind in ("missing", "skipped") else "failed"
                of["failure"] = None if of["status"] == "missing" else error.failure()
        found[name] = case
    return found
