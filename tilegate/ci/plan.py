"""`tilegate ci plan`: does a pull request change anything that has to be measured? Answered without a GPU.

Both commits' kernels are generated and compiled for the chip. Where that is not possible everything is measured: a plan
saves time on the GPU, and never a measurement that might matter.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilegate import __version__
from tilegate.ci import repository
from tilegate.config import GateConfig, load_config
from tilegate.files import UsageError
from tilegate.isa.compare import pairs_of
from tilegate.isa.revision import document, run_survey
from tilegate.isa.survey import Survey, everything
from tilegate.isa.toolchain import ToolchainError, find_toolchain
from tilegate.lowering.revision import lowering_of
from tilegate.lowering.store import default_store
from tilegate.measuring import git, trees

SCHEMA = "tilegate-plan/1"
SCHEMA_FILE = "plan-1.json"

_CALL = re.compile(r"^\s+def call_\w", re.MULTILINE)


@dataclass(frozen=True)
class Needs:
    """Whether to measure, and why.

    Attributes:
        measure: a GPU is needed.
        reason: in one sentence.
        changed: the cases whose generated code differs, where that is known.
    """

    measure: bool
    reason: str
    changed: tuple[str, ...] = ()


def measured_paths(config: GateConfig) -> tuple[str, ...]:
    """Return the paths in a tree that hold what is measured: the package and the suite."""
    package = config.package.partition(".")[0]
    return package, f"{package}.py", f"src/{package}", f"src/{package}.py", suite_path(config)


def suite_path(config: GateConfig) -> str:
    """Return where in a tree the suite is."""
    return config.suite.replace(".", "/")


def times_calls(suite: Path) -> bool:
    """Return whether a suite times calls of public functions: then any change of the package is one to be measured."""
    return any(_CALL.search(file.read_text(encoding="utf-8", errors="replace")) for file in suite.rglob("*.py"))


def decide(
    *, package_same: bool, suite_same: bool, calls: bool, surveys: tuple[Survey, Survey] | None, outside: bool
) -> Needs:
    """Decide whether a change has to be measured.

    Args:
        package_same, suite_same: base and head have the same files there.
        calls: the suite times calls (see `times_calls`).
        surveys: the compiled kernels of base and head, None where they could not be had.
        outside: the change comes from a fork. Its own code ran where the surveys were made and may have written them, so
            they excuse no measurement, which somebody has to approve.
    """
    if package_same and suite_same:
        return Needs(False, "neither the package nor the suite differs, so there is nothing to measure")
    changed = () if surveys is None else changed_cases(*surveys)
    if not suite_same:
        return Needs(True, "the suite differs: its new cases have to be run", changed)
    if surveys is None:
        return Needs(True, "which kernels changed is not known without a GPU, so everything is measured")
    if calls:
        return Needs(True, "the package differs, and the suite times its calls as well as its kernels", changed)
    if differing(*surveys):
        return Needs(True, f"the generated code of {len(changed)} cases differs", changed)
    same = "the generated code of every kernel is the same"
    ending = ", by the word of a fork's own code" if outside else ", so there is nothing to measure"
    return Needs(outside, same + ending)


def differing(base: Survey, head: Survey) -> bool:
    """Return whether any kernel differs, or whether there is none to compare."""
    pairs = list(pairs_of(base, head))
    return not pairs or any(pair.difference.verdict != "unchanged" for pair in pairs)


def changed_cases(base: Survey, head: Survey) -> tuple[str, ...]:
    """Return the cases whose kernel differs between two surveys."""
    found = {
        case for pair in pairs_of(base, head) if pair.difference.verdict != "unchanged" for case in pair.cases
    }  # fmt: skip
    return tuple(sorted(found))


def make(folder: Path, base: str, head: str, arch: str, *, outside: bool) -> dict[str, Any]:
    """Work out the plan of a change.

    Args:
        folder: a clone that has both commits.
        base, head: hashes of commits.
        arch: the chip, "gfx942".
        outside: the change comes from a fork.

    Returns:
        The plan, as schemas/plan-1.json describes it.

    Raises:
        UsageError: a commit is not here, or the base has no settings.
    """
    opened = trees.open_repository(folder)
    sides = {"base": _revision(folder, base), "head": _revision(folder, head)}
    try:
        config = load_config(trees.read_file(opened, sides["base"], "pyproject.toml"))
    except UsageError as error:
        raise UsageError(f"base {base[:12]}: {error}") from None
    suite = suite_path(config)
    package_same = all(
        repository.same(folder, base, head, path) for path in measured_paths(config) if path != suite
    )  # fmt: skip
    suite_same = repository.same(folder, base, head, suite)
    surveys: dict[str, Survey] | None = None
    missing: str | None = "nothing that is compiled differs"
    calls = False
    if not (package_same and suite_same):
        surveys, missing = _surveys(opened, sides, arch)
        exported = trees.export(opened, sides["base"], [suite], trees.cache_folder())
        calls = times_calls(exported / suite)
    needs = decide(
        package_same=package_same,
        suite_same=suite_same,
        calls=calls,
        surveys=None if surveys is None else (surveys["base"], surveys["head"]),
        outside=outside,
    )
    return {
        "schema": SCHEMA,
        "tilegate": __version__,
        **{side: {"commit": of.commit, "tree": of.tree} for side, of in sides.items()},
        "measure": needs.measure,
        "reason": needs.reason,
        "changed": list(needs.changed),
        "isa": None if surveys is None else {side: document(surveys[side], sides[side]) for side in sides},
        "isa_missing": missing,
    }


def _revision(folder: Path, commit: str) -> trees.Revision:
    return trees.Revision(commit, commit, repository.tree_of(folder, commit))


def _surveys(
    opened: git.Repository, sides: Mapping[str, trees.Revision], arch: str
) -> tuple[dict[str, Survey] | None, str | None]:
    """Return the surveys of both sides with the base's suite, or why they cannot be had."""
    try:
        toolchains = (find_toolchain(arch),)
    except ToolchainError as error:
        return None, str(error)
    store = default_store()
    found = {}
    with tempfile.TemporaryDirectory(prefix="tilegate-plan-") as scratch:
        for side, revision in sides.items():
            try:
                with lowering_of(opened, revision, sides["base"], Path(scratch, side), store) as lowering:
                    found[side] = run_survey(lowering, toolchains, everything, side)
            except ToolchainError as error:
                return None, str(error)
            except UsageError as error:
                return None, f"{side}: {error}"[:2000]
    return found, None
