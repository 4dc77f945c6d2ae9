"""Identity is observed: what a launch does at both commits, where their generated code is the same and the package is not.

The generated code says what the compiler was given; that a launch also copies, fills, waits or starts another kernel it does
not say. So one case of each kernel is set up at both commits, and a launch of it is observed (`tilegate.worker.observing`).
Cases of a kernel whose launches do other things are timed as if their code had changed.
"""

from __future__ import annotations

import hashlib

from tilegate.config import GateConfig
from tilegate.measuring.pool import WorkerPool
from tilegate.measuring.samples import Record
from tilegate.measuring.session import WorkerError
from tilegate.progress import Reporter
from tilegate.protocol import is_call
from tilegate.schemas.samples import SideName, same_code

_SIDES: tuple[SideName, ...] = ("base", "head")


def observe(pool: WorkerPool, record: Record, config: GateConfig, reporter: Reporter) -> None:
    """Observe a launch of every kernel whose code is the same; cases whose launches differ become gated."""
    kernels: dict[tuple[str, str | None], list[str]] = {}
    for name, case in record.cases.items():
        sound = all(case[side]["status"] == "ok" for side in _SIDES)
        if sound and same_code(case) and not is_call(case["benchmark"]):
            kernels.setdefault((case["benchmark"], case["head"]["identity"]), []).append(name)
    if not kernels:
        return
    with record.timed("observe"), reporter.phase("observe", len(kernels)) as phase:
        for names in kernels.values():
            phase.doing(names[0])
            seen = _observed(pool, names[0], config.for_case(names[0]))
            if seen is None:
                phase.done(names[0])
                continue
            for name in names:
                case = record.cases[name]
                case["base"]["observed"], case["head"]["observed"] = (_digest(lines) for lines in seen)
                if not same_code(case):
                    case["role"] = "gated"
            differ = "" if seen[0] == seen[1] else f": a launch does other things: {_difference(*seen)}"
            phase.done(f"{names[0]}{differ}")
            record.save()


def _observed(pool: WorkerPool, name: str, config: GateConfig) -> list[list[str]] | None:
    """Return what a launch does at base and head; None if that is not to be seen at either."""
    found: dict[str, list[str] | None] = {}
    for operation, timeout in (("setup", config.compile_timeout), ("observe", config.check_timeout)):
        arguments: dict[str, dict[str, str]] = dict.fromkeys(_SIDES, {"case": name} if operation == "setup" else {})
        for side, answer in pool.request_all(operation, timeout, arguments).items():
            try:
                found[side] = answer()
            except WorkerError:  # its check, or its timing, says so
                return None
    pool.request_all("teardown", config.check_timeout, {side: {} for side in _SIDES})
    base, head = found["base"], found["head"]
    return None if base is None or head is None else [base, head]


def _difference(base: list[str], head: list[str]) -> str:
    more = [line for line in head if line not in base] or [line for line in base if line not in head]
    return more[0] if more else "the same in another order"


def _digest(lines: list[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
