"""What `tilegate emulate` and `tilegate emulate diff` share: surveys, the head of a document, the exit code."""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime
from typing import Any, TypedDict, Unpack

from tilegate import __version__, emulator
from tilegate.emulate.survey import ALL, Kernel, missing_seam, survey
from tilegate.files import UsageError
from tilegate.lowering.lowering import Lowering
from tilegate.lowering.parallel import with_progress
from tilegate.lowering.store import Store
from tilegate.measuring import trees

EXIT_PASS, EXIT_USAGE, EXIT_BROKEN, EXIT_INCONCLUSIVE, EXIT_ENVIRONMENT = 0, 2, 3, 4, 5

Kernels = dict[str, tuple[Kernel, ...]]


class Depth(TypedDict):
    """How much of everything is executed; see `survey`."""

    thorough: int
    first: bool


def header(schema: str) -> dict[str, Any]:
    """Return how every JSON document of this command begins."""
    return {
        "schema": schema,
        "tilegate": __version__,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def identity(revision: trees.Revision) -> dict[str, Any]:
    """Return a revision as the documents hold it."""
    return {"rev": revision.rev, "commit": revision.commit, "tree": revision.tree}


def verdict_of(verdicts: list[str]) -> tuple[str, int]:
    """Return the run's verdict and exit code: the worst of its kernels, and never a pass for nothing."""
    if not verdicts:
        print("tilegate: no kernel matches; nothing was executed (without REGEX all are)", file=sys.stderr)
    if "broken" in verdicts:
        return "broken", EXIT_BROKEN
    if not verdicts or "inconclusive" in verdicts:
        return "inconclusive", EXIT_INCONCLUSIVE
    return "pass", EXIT_PASS


def depth(args: argparse.Namespace) -> Depth:
    """Return how much of everything is executed, as `survey` takes it."""
    return {"thorough": ALL if args.schedules == "all" else 0, "first": args.problems == "first"}


def run_survey(
    lowering: Lowering, archs: tuple[str, ...], store: Store, pattern: str | None, name: str, **depth: Unpack[Depth]
) -> Kernels:
    """Survey with progress on stderr.

    Args:
        lowering, archs, store, pattern, depth: as `survey` takes them.
        name: of the progress.

    Raises:
        UsageError: the suite cannot list its kernels, or has no problems for them.
    """
    lacking = missing_seam(lowering)
    if lacking is not None:
        raise UsageError(lacking)
    store.prune()
    emulator.prune()
    return with_progress(
        name,
        "generate and execute",
        lambda say: survey(lowering, archs, store, pattern=pattern, say=say, **depth),
    )
