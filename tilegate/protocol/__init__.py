"""How a suite measures: the only part of tilegate that a suite imports, and what every command measures through.

Light: importing this imports neither torch nor the kernels' compiler, neither asv nor scipy.

A suite is a package of asv classes with methods named `latency_*`, each of them exactly one launch of the kernel under
test, and `call_*`, exactly one call of a public function. `register()` in the suite's `__init__` teaches asv these kinds of
benchmarks. `asv run`, `tilegate gate` and pytest-benchmark then time the same method with the same `Clock`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from tilegate.protocol.artifacts import JSON, Artifact, digest
from tilegate.protocol.buffers import Buffers
from tilegate.protocol.calls import call_clock_for
from tilegate.protocol.clocks import RECORDED, SHORT, Around, Clock, Timed, clock_for, cold_sets, recorded
from tilegate.protocol.origin import WrongTreeError, verify_origin
from tilegate.protocol.selection import TARGETS, TIERS, Selection, listing, selection
from tilegate.protocol.whereabouts import whereabouts
from tilegate.protocol.work import verified_work

if TYPE_CHECKING:
    from tilegate.protocol.asv_type import CallBenchmark, LatencyBenchmark

__all__ = [
    "JSON",
    "RECORDED",
    "SHORT",
    "TARGETS",
    "TIERS",
    "Around",
    "Artifact",
    "Buffers",
    "CallBenchmark",
    "Clock",
    "LatencyBenchmark",
    "Selection",
    "Timed",
    "WrongResult",
    "WrongTreeError",
    "call_clock_for",
    "clock_for",
    "cold_sets",
    "digest",
    "is_call",
    "listing",
    "recorded",
    "register",
    "selection",
    "verified_work",
    "verify_origin",
    "whereabouts",
]


class WrongResult(AssertionError):  # noqa: N818 - it says what happened, and reads well in a verdict
    """A kernel's result differs from the reference by more than the tolerance; raised by a suite's `check()`."""


def is_call(benchmark: str) -> bool:
    """Return whether the benchmark of that name ("module.Class.call_name") times a call and not a kernel."""
    return benchmark.rpartition(".")[2].startswith("call_")


def register() -> None:
    """Teach asv the `latency_` and `call_` benchmarks. Does nothing without asv_runner, or on a second call."""
    try:
        from asv_runner.benchmarks import benchmark_types  # noqa: PLC0415 - optional
    except ImportError:
        return
    from tilegate.protocol.asv_type import CallBenchmark, LatencyBenchmark  # noqa: PLC0415 - needs asv_runner

    for kind in (LatencyBenchmark, CallBenchmark):
        if kind not in benchmark_types:
            benchmark_types.append(kind)


def __getattr__(name: str) -> object:
    if name in ("CallBenchmark", "LatencyBenchmark"):
        from tilegate.protocol import asv_type  # noqa: PLC0415 - imports asv_runner

        return getattr(asv_type, name)
    if name == "tracked":  # its place up to tilegate 0.2; the suite of an older base commit looks for it here
        return importlib.import_module("tilegate.tracked")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
