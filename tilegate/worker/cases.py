"""The cases of a suite: benchmarks with their parameters, and the work that the suite says they do."""

from __future__ import annotations

import itertools
import pickle
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tilegate.protocol import verified_work


@dataclass(frozen=True)
class Case:
    """A benchmark with one combination of its parameters.

    Attributes:
        id: asv's spelling, ``attention.Forward.latency_forward('decode', 'fixed')``.
        benchmark: the asv benchmark object that was discovered.
        values: the parameters.
        shown: their spelling in the id.
    """

    id: str
    benchmark: Any
    values: tuple[Any, ...]
    shown: tuple[str, ...]

    def fresh(self) -> Any:
        """Return a new benchmark object with an instance of its own, so that no case sees what another left."""
        holder = getattr(self.benchmark.func, "__self__", None)
        if holder is None:
            return self.benchmark
        instance = type(holder)()
        function = getattr(instance, self.benchmark.func.__name__)
        sources = [function, instance, *self.benchmark._attr_sources[2:]]
        return type(self.benchmark)(self.benchmark.name, function, sources)


def cases_of(benchmark: Any) -> Iterator[Case]:
    """Yield a case for every combination of the benchmark's parameters that it does not skip."""
    skipped = [tuple(values) for values in benchmark._skip_tuples]
    combinations = itertools.product(*benchmark._params) if benchmark._params else [()]
    shown = itertools.product(*benchmark.params) if benchmark.params else [()]
    for values, names in zip(combinations, shown, strict=True):
        if tuple(values) not in skipped:
            suffix = f"({', '.join(names)})" if names else ""
            yield Case(f"{benchmark.name}{suffix}", benchmark, tuple(values), tuple(names))


def unlisted(listed: Iterable[Case]) -> list[Case]:
    """Return what has to be right although no case of this tier times it: what `probed` of the suite's classes names."""
    listed = list(listed)
    known = {case.id for case in listed}
    of_class = {type(holder): case for case in listed if (holder := getattr(case.benchmark.func, "__self__", None))}
    found = []
    for holder, case in of_class.items():
        for values in getattr(holder, "probed", list)():
            shown = tuple(map(repr, values))
            found.append(Case(f"{case.benchmark.name}({', '.join(shown)})", case.benchmark, tuple(values), shown))
    return [case for case in found if case.id not in known]


def stated_work(case: Case) -> dict[str, dict[str, float | str]]:
    """Return the entry for what the suite's `work` says of a case, nothing if it has none.

    One that fails or says nonsense only costs the report its rates, so it is as good as none; the log has the reason.
    """
    try:
        function = getattr(getattr(case.fresh().func, "__self__", None), "work", None)
        if function is None:
            return {}
        stated = function(*case.values)
        return {"work": verified_work(stated)}
    except Exception:
        traceback.print_exc()
        return {}


class Made:
    """What asv's `setup_cache` made, kept for all cases that have it."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._kept: dict[str, bytes] = {}

    def once(self, benchmark: Any) -> tuple[object, ...]:
        """Return what asv puts before a benchmark's parameters: a copy of what its `setup_cache` made, if it made any."""
        key = benchmark.setup_cache_key
        if key is None:
            return ()
        if key not in self._kept:
            self._kept[key] = pickle.dumps(benchmark.do_setup_cache())
        made = pickle.loads(self._kept[key])  # noqa: S301 - of this process; asv has it in a file
        if made is None:
            return ()
        if hasattr(benchmark, "set_cache"):
            benchmark.set_cache(made)
        else:  # asv_runner up to 0.2
            benchmark.insert_param(made)
        return (made,)
