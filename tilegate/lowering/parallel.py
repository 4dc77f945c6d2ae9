"""Surveys of many kernels: as many at once as there are cores, with progress shown."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TypeVar

from tilegate.failures import MISSING
from tilegate.files import UsageError
from tilegate.lowering.lowering import Lowering, LoweringError
from tilegate.progress import Reporter
from tilegate.tools import available_cores

Job = TypeVar("Job")
Result = TypeVar("Result")

Say = Callable[[int, int, str], None]
"""Told of progress: done (0 before the first), total, what was done."""

_MOST_EXECUTING = 16  # workers; each holds a whole suite in memory


def in_parallel(
    act: Callable[[Job], Result],
    jobs: Sequence[Job],
    names: Sequence[str],
    lowering: Lowering,
    say: Say,
    *,
    at_most: int = _MOST_EXECUTING,
) -> list[Result]:
    """Do all jobs, as many at once as there are cores; an exception ends the workers of `lowering`, then continues.

    Args:
        act: does one.
        jobs, names: the jobs, and how progress calls them.
        lowering: the revision that they belong to.
        say: told of progress.
        at_most: how many at once, however many cores there are.
    """
    results: dict[int, Result] = {}
    with ThreadPoolExecutor(max(1, min(available_cores(), at_most, len(jobs)))) as pool:
        running: dict[Future[Result], int] = {pool.submit(act, job): index for index, job in enumerate(jobs)}
        try:
            pending = set(running)
            while pending:
                ready, pending = wait(pending, return_when=FIRST_COMPLETED)
                for future in ready:
                    results[running[future]] = future.result()
                    say(len(results), len(jobs), names[running[future]])
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            lowering.__exit__()
            raise
    return [results[index] for index in range(len(jobs))]


def with_progress(name: str, doing: str, survey: Callable[[Say], Result]) -> Result:
    """Do a survey with progress on stderr.

    Args:
        name: of the progress.
        doing: what is done to the kernels, in words, as "generate and compile".
        survey: does it, telling of progress.

    Raises:
        UsageError: the suite cannot list its kernels.
    """
    reporter = Reporter()
    try:
        with contextlib.ExitStack() as stack:
            phase = None

            def say(done: int, total: int, what: str) -> None:
                nonlocal phase
                if phase is None:
                    reporter.note(f"{name}: {total} kernel{'s' * (total != 1)} to {doing}")
                    phase = stack.enter_context(reporter.phase(name, total))
                if done:
                    phase.done(what)

            return survey(say)
    except LoweringError as error:
        what = "has no kernels to list" if error.kind == MISSING else "cannot list its kernels"
        raise UsageError(f"the suite {what}: {error}") from None
