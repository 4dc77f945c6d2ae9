"""One side's suite in this process: its cases, and the case that is set up."""

from __future__ import annotations

import gc
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tilegate.failures import CaughtError, SkippedError
from tilegate.protocol import (
    JSON,
    Artifact,
    Clock,
    Timed,
    WrongResult,
    call_clock_for,
    clock_for,
    digest,
    is_call,
    recorded,
    selection,
)
from tilegate.worker import arrays
from tilegate.worker.cases import Case, Made, stated_work, unlisted
from tilegate.worker.looks import Drawn, Looks
from tilegate.worker.observing import observe
from tilegate.worker.placement import Placement
from tilegate.worker.seals import Seals
from tilegate.worker.sources import Sources

_NO_CLOCK = "this worker was started without a clock"
_NOTHING_TO_SEE = "the suite does not show what a launch of this case reads and writes"
SEAMS = ("inputs", "buffers", "verify")
"""Methods of a suite's class by which a launch can be looked at."""
PROBES = ("probe", "verify_probe")
"""Those by which its kernels can be tried on problems that no case has."""


class Side:
    """A suite and the package under test, imported from the staged folders.

    Args:
        suite: import name of the suite; `suite_root` holds its files.
        package: import name of the package; `package_root` holds its files, None if this side has no such package.
        timed: make the clocks, before any code under test is imported.
        placement: seed of where things lie and in which order they are imported; None: as it comes.
    """

    def __init__(
        self,
        suite: str,
        suite_root: str,
        package: str,
        package_root: str | None,
        *,
        timed: bool = False,
        placement: int | None = None,
    ) -> None:
        """Make the clocks, and nothing of the code under test yet (see `load`)."""
        self._placement = None if placement is None else Placement(placement)
        self._sources = Sources(
            suite,
            Path(suite_root).resolve(),
            package,
            Path(package_root).resolve() if package_root else None,
            self._placement,
        )
        self._seals = Seals()
        target = selection().target
        self._clock: Clock | None = clock_for(target) if timed else None
        self._call_clock: Clock | None = call_clock_for(target) if timed else None
        self._cases: dict[str, Case] = {}
        self._unlisted: dict[str, Case] | None = None
        self._made = Made()
        self._current: Any = None
        self._launch: Callable[[], object] = _nothing_is_set_up
        self._timed = Timed(_nothing_is_set_up)
        self._looks: Looks | None = None
        self._drawn: tuple[str, Drawn] | None = None
        self._sources.begin()

    def explain(self, error: BaseException, stage: str) -> dict[str, str]:
        """Classify `error` (see `failures.explain`)."""
        return self._sources.explain(error, stage)

    def load(self) -> dict[str, Any]:
        """Import the whole suite; return its cases and the modules that could not be imported."""
        found, broken = self._sources.load()
        self._cases = {case.id: case for case in found}
        cases = [
            {
                "id": case.id,
                "benchmark": case.benchmark.name,
                "params": list(case.shown),
                "version": str(case.benchmark.version),
                **stated_work(case),
            }
            for case in found
        ]
        _keep_what_is_there()
        return {"cases": cases, "broken": broken}

    def precompile(self, cases: Sequence[str]) -> None:
        """Compile what `cases` need, as many at a time as the suite wants."""
        groups: dict[type, list[tuple[Any, ...]]] = {}
        for case in map(self._found, self._sources.in_order(cases)):
            holder = getattr(case.benchmark.func, "__self__", None)
            if hasattr(type(holder), "precompile"):
                values = groups.setdefault(type(holder), [])
                if case.values not in values:
                    values.append(case.values)
        for holder_type, params in groups.items():
            holder_type.precompile(params)  # type: ignore[attr-defined]
        _keep_what_is_there()

    def artifacts(self, case: str) -> dict[str, Any]:
        """Return the identity of the case's generated code, None if the suite cannot tell, and its resources."""
        artifacts = self._generate(case)
        if artifacts is None:
            return {"identity": None, "resources": None}
        resources = {artifact.name: dict(artifact.resources) for artifact in artifacts if artifact.resources}
        return {"identity": digest(artifacts), "resources": resources or None}

    def generated(self, case: str) -> list[dict[str, Any]]:
        """Return the case's generated kernels whole, each as the values of an `Artifact`."""
        return [asdict(artifact) for artifact in self._generate(case) or ()]

    def reproduction(self, case: str, lengths: list[int]) -> dict[str, Any]:
        """Return what a script needs to run the case without this suite.

        Raises:
            NotImplementedError: the suite has none for it.
        """
        found = self._cases[case]
        describe = getattr(getattr(found.fresh().func, "__self__", None), "reproduction", None)
        if describe is None:
            raise NotImplementedError(
                "its class has no method reproduction(*params, lengths); docs/protocol.md describes it"
            )
        described: dict[str, Any] = describe(*found.values, lengths)
        self._sources.verify()
        return described

    def setup(self, case: str) -> bool:
        """Set the case up; the one before is torn down first. Return whether its suite shows what launches read and write."""
        self._let_go()
        if self._placement is not None:
            self._placement.renew()
        found = self._cases[case]
        benchmark = found.fresh()
        benchmark._current_params = found.values
        cached = self._made.once(benchmark)
        self._current = (benchmark, (*cached, *found.values))
        if benchmark.do_setup():
            raise SkippedError(f"the suite skips {case} here (NotImplementedError in setup)")
        self._sources.verify()
        function, values = benchmark.func, (*cached, *found.values)
        self._launch = lambda: function(*values)
        self._timed = Timed(self._launch)
        holder = getattr(function, "__self__", None)
        if all(hasattr(holder, seam) for seam in SEAMS):
            self._looks = Looks(holder, values, self._draw(case))
        return self._looks is not None

    def launch(self, count: int) -> None:
        """Launch `count` times, untimed: for a profiler."""
        for _ in range(count):
            self._launch()

    def observe(self) -> list[str] | None:
        """Return what one launch of the case that is set up does, a line for each thing; None if that is not to be seen."""
        self._launch()
        return observe(self._launch, selection().target, (self._sources.package, self._sources.suite))

    def check(self) -> bool:
        """Check the result of the case that is set up; False if the suite has no check for it."""
        benchmark, values = self._current
        check = getattr(getattr(benchmark.func, "__self__", None), "check", None)
        if check is None:
            return False
        _must_have_compared(check, check(*values))
        return True

    def warm_up(self, seconds: float) -> None:
        """Launch for `seconds`."""
        self._timer().warm_up(self._launch, seconds)

    def record(self, seconds: float) -> int:
        """From now on measure launches of about `seconds` as that is best done; return how many make a sample."""
        self._timed = recorded(self._timer(), self._launch, seconds)
        return self._timed.launches

    def single(self) -> None:
        """Measure single launches again."""
        self._timed = Timed(self._launch)

    def measure(self, launches: int, draw: str = "", spot: float | None = None) -> list[float]:
        """Return the seconds of each of `launches` launches, or of the mean launch of each of so many recordings.

        Args:
            launches: how many.
            draw: decides the inputs of this turn; "" leaves them alone.
            spot: from 0 to 1, which of them is looked at (see `deliver`), if any.
        """
        if self._looks is None or not draw:
            times = self._timed.measure(self._timer(), launches)
        else:
            self._looks.begin(draw, None if spot is None else int(spot * launches * self._timed.parts))
            times = self._timed.measure(self._timer(), launches, self._looks)
        self._refuse_tampering()
        return times

    def _refuse_tampering(self) -> None:
        if (replaced := self._seals.broken()) is not None:
            raise CaughtError("tampered", f"{replaced} has been replaced in the process that measures")

    def look(self, draw: str) -> None:
        """Launch once on new inputs, without a clock; `deliver` hands out the result."""
        if self._looks is None:
            raise RuntimeError(_NOTHING_TO_SEE)
        self._looks.begin(draw, 0)
        self._looks.before()
        self._looks.ready()
        self._launch()
        self._looks.after()

    def deliver(self, path: str, choice: float) -> dict[str, Any]:
        """Write the results of the launch that was looked at to a file; return what `verify` needs to judge them."""
        if self._looks is None:
            raise RuntimeError(_NOTHING_TO_SEE)
        return self._looks.deliver(Path(path), choice, recorded=self._timed.launches > 1 and self._timed.parts == 1)

    def verify(self, case: str, path: str, about: Mapping[str, Any]) -> None:
        """Compare what another process delivered with the reference, on inputs that are drawn here. Needs no `setup`.

        Raises:
            WrongResult: it is not what it should be.
        """
        found, drawn = self._cases[case], self._draw(case)
        inputs = drawn.windows(about["draw"], about["launch"], frozenset(about["light"]), about["set"], about["sets"])
        device = next((x.device for x in inputs.values() if arrays.is_tensor(x)), None)
        found.fresh().func.__self__.verify(inputs, arrays.read(Path(path), device), *found.values)

    def unlisted(self) -> list[str]:
        """Return the ids of what no case of this tier times, and whose kernels have to be right all the same."""
        return list(self._others())

    def probe(self, case: str, seed: int, path: str) -> bool:
        """Launch the case's kernel on a problem that nobody has seen, and write what it made of it; needs no `setup`.

        Returns:
            Whether the suite has such problems.
        """
        found = self._found(case)
        holder: Any = getattr(found.fresh().func, "__self__", None)
        if not all(hasattr(holder, seam) for seam in PROBES):
            return False
        arrays.write(Path(path), holder.probe(seed, *found.values))
        self._sources.verify()
        return True

    def verify_probe(self, case: str, seed: int, path: str) -> None:
        """Compare what another process made of that problem with the reference.

        Raises:
            WrongResult: it is not what it should be.
        """
        found = self._found(case)
        device = "cpu" if selection().target == "cpu" else "cuda"
        found.fresh().func.__self__.verify_probe(seed, arrays.read(Path(path), device), *found.values)

    def state(self) -> Mapping[str, JSON]:
        """Return what the device's sensors say."""
        if self._clock is None:
            raise RuntimeError(_NO_CLOCK)
        return self._clock.state()

    def teardown(self) -> None:
        """Let go of the case that is set up and of its memory."""
        self._drawn = None
        self._let_go()

    def _draw(self, case: str) -> Drawn:
        """Return the values of the case's inputs; drawn once, however often it is set up."""
        if self._drawn is None or self._drawn[0] != case:
            self._drawn = None
            found = self._cases[case]
            self._drawn = (case, Drawn.of(found.fresh().func.__self__, found.values))
        return self._drawn[1]

    def _let_go(self) -> None:
        if self._current is None:
            return
        benchmark, _ = self._current
        self._current, self._launch, self._timed = None, _nothing_is_set_up, Timed(_nothing_is_set_up)
        self._looks = None
        benchmark.do_teardown()
        del benchmark
        if self._placement is not None:
            self._placement.release()
        gc.collect()
        # A caching allocator would keep the memory from the other side, which shares the device.
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_initialized():
            torch.cuda.empty_cache()

    def time_limit(self, operation: str, case: str | None) -> float:
        """Return the seconds that a benchmark's own `timeout` allows what is to be done, infinite without one."""
        if operation == "setup" and case in self._cases:
            benchmark = self._cases[case].benchmark
        elif operation in ("check", "warm_up", "record", "measure") and self._current is not None:
            benchmark = self._current[0]
        else:
            return math.inf
        limit = benchmark.timeout
        return float(limit) if isinstance(limit, int | float) and limit > 0 else math.inf

    def _found(self, case: str) -> Case:
        return self._cases[case] if case in self._cases else self._others()[case]

    def _others(self) -> dict[str, Case]:
        if self._unlisted is None:
            self._unlisted = {case.id: case for case in unlisted(self._cases.values())}
        return self._unlisted

    def _generate(self, case: str) -> Sequence[Artifact] | None:
        found = self._found(case)
        generate = getattr(getattr(found.fresh().func, "__self__", None), "artifacts", None)
        artifacts: Sequence[Artifact] | None = None if generate is None else generate(*found.values)
        self._sources.verify()
        if is_call(found.benchmark.name):  # the caller waits for the package's own code, whatever kernel that launches
            return [*(artifacts or ()), self._sources.package_artifact()]
        return artifacts

    def _timer(self) -> Clock:
        calls = self._current is not None and is_call(self._current[0].name)
        clock = self._call_clock if calls else self._clock
        if clock is None:
            raise RuntimeError(_NO_CLOCK)
        return clock


def _must_have_compared(check: Any, returned: object) -> None:
    """Refuse what a check returns if that says, or if the check shows, that it compared nothing.

    Raises:
        WrongResult: it returned False, 0 or something else that is empty; or it returned nothing, and does nothing.
    """
    code = getattr(check, "__code__", None)
    if returned is None:
        if code is not None and not (code.co_names or code.co_freevars):
            raise WrongResult("check() compares nothing; let it raise WrongResult where a result is wrong")
    elif not bool(returned):
        raise WrongResult(
            f"check() returned {returned!r}; it must raise WrongResult where a result is wrong, and may return how many "
            "values it compared"
        )


def _keep_what_is_there() -> None:
    """Let later collections pass over what is there now: looking through all that a compiler imports takes 0.1 s a case."""
    gc.collect()
    gc.freeze()


def _nothing_is_set_up() -> None:
    raise RuntimeError("no case is set up")
