"""How a suite measures: the only part of tilegate that a suite imports, and what every command measures through.

Light: importing this imports neither torch nor the kernels' compiler, neither asv nor scipy.

A suite is a package of asv classes with methods named `latency_*`, each of them exactly one launch of the kernel under
test. `register()` in the suite's `__init__` teaches asv that kind of benchmark. `asv run`, `tilegate gate` and
pytest-benchmark then time the same method with the same `Clock`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilegate.protocol.artifacts import JSON, Artifact, digest
from tilegate.protocol.clocks import Clock, clock_for
from tilegate.protocol.origin import WrongTreeError, verify_origin
from tilegate.protocol.selection import TARGETS, TIERS, Selection, selection
from tilegate.protocol.work import verified_work

if TYPE_CHECKING:
    from tilegate.protocol.asv_type import LatencyBenchmark

__all__ = [
    "JSON",
    "TARGETS",
    "TIERS",
    "Artifact",
    "Clock",
    "LatencyBenchmark",
    "Selection",
    "WrongResult",
    "WrongTreeError",
    "clock_for",
    "digest",
    "register",
    "selection",
    "verified_work",
    "verify_origin",
]


class WrongResult(AssertionError):  # noqa: N818 - it says what happened, and reads well in a verdict
    """A kernel's result differs from the reference by more than the tolerance; raised by a suite's `check()`."""


def register() -> None:
    """Teach asv the `latency_` benchmarks. Does nothing where asv_runner is not installed, or on a second call."""
    try:
        from asv_runner.benchmarks import benchmark_types  # noqa: PLC0415 - optional
    except ImportError:
        return
    from tilegate.protocol.asv_type import LatencyBenchmark  # noqa: PLC0415 - needs asv_runner

    if LatencyBenchmark not in benchmark_types:
        benchmark_types.append(LatencyBenchmark)


def __getattr__(name: str) -> object:
    if name == "LatencyBenchmark":
        from tilegate.protocol.asv_type import LatencyBenchmark  # noqa: PLC0415 - imports asv_runner

        return LatencyBenchmark
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
