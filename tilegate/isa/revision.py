"""What the subcommands of `tilegate isa` share: one survey of one revision, its document and its exit code."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tilegate import __version__, invocation
from tilegate.isa.chips import chip_of
from tilegate.isa.survey import SCHEMA, Choice, Survey, matching, refuse_unmatched, survey
from tilegate.isa.toolchain import Toolchain, find_toolchain
from tilegate.lowering.lowering import Lowering
from tilegate.lowering.parallel import with_progress
from tilegate.lowering.revision import lowering_of
from tilegate.lowering.store import default_store
from tilegate.measuring import trees

EXIT_PASS, EXIT_REGRESSED, EXIT_BROKEN, EXIT_NOTHING, EXIT_ENVIRONMENT = 0, 1, 3, 4, 5


def exit_code(found: Survey) -> int:
    """Return the exit code of one survey: nothing to look at never passes."""
    kernels = [kernel for kernels in found.kernels.values() for kernel in kernels]
    if not kernels:
        print("tilegate: no kernel matches; nothing was looked at (without -b all are)", file=sys.stderr)
        return EXIT_NOTHING
    return EXIT_BROKEN if any(kernel.analysis.broken for kernel in kernels) else EXIT_PASS


def document(found: Survey, revision: trees.Revision) -> dict[str, Any]:
    """Return the JSON document of one survey."""
    return {
        "schema": SCHEMA,
        "tilegate": __version__,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "revision": {"rev": revision.rev, "commit": revision.commit, "tree": revision.tree},
        **found.to_json(),
    }


def survey_of(args: argparse.Namespace, rev: str) -> tuple[Survey, trees.Revision]:
    """Survey one revision with its own suite. Raises as `run`."""
    toolchains = toolchains_of(args)
    with tempfile.TemporaryDirectory(prefix="tilegate-isa-") as scratch:
        repository = trees.open_repository(args.repo.resolve())
        revision = trees.resolve(repository, rev, Path(scratch, "objects"))
        with lowering_of(repository, revision, revision, Path(scratch, "side"), default_store()) as lowering:
            refuse_unmatched(args.bench, [toolchain.arch for toolchain in toolchains], [lowering])
            return run_survey(lowering, toolchains, matching(args.bench), "isa"), revision


def toolchains_of(args: argparse.Namespace) -> tuple[Toolchain, ...]:
    """Return a compiler for every chip asked for. Raises ToolchainError, UsageError."""
    invocation.pattern(args.bench)
    archs = dict.fromkeys(part.strip() for part in args.arch.split(",") if part.strip())
    for arch in archs:
        chip_of(arch)
    return tuple(find_toolchain(arch, args.compiler) for arch in archs)


def run_survey(lowering: Lowering, toolchains: Sequence[Toolchain], choice: Choice, name: str) -> Survey:
    """Survey with progress on stderr.

    Raises:
        UsageError: the suite cannot list its kernels.
    """
    store = default_store()
    store.prune()
    return with_progress(
        name, "generate and compile", lambda say: survey(lowering, toolchains, store, choice=choice, say=say)
    )
