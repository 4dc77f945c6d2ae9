"""The workspace of a worker: one side's package beside a suite, and nothing else that could be imported in their place."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tilegate.config import GateConfig, load_config
from tilegate.files import UsageError
from tilegate.measuring import git, trees
from tilegate.measuring.layout import Layout
from tilegate.protocol.selection import LISTING_VARIABLE
from tilegate.schemas.samples import Target, Tier

_KEPT_VARIABLES = frozenset(
    {"PYTHONHOME", "PYTHONNOUSERSITE", "PYTHONUSERBASE", "PYTHONUTF8", "PYTHONIOENCODING", "PYTHONCOERCECLOCALE"}
)


@dataclass(frozen=True)
class Workspace:
    """One side, ready for a worker: a folder for sys.path in which nothing but the side's package and the suite is found.

    Attributes:
        name: "base", "head" or "new" (the head with its own suite).
        folder: goes first on the worker's sys.path.
        trees: exported folders that the names in it point to, with the names under which a log shows them.
        suite: import name of the suite in it; `suite_root` is its folder in the exported tree.
        package: import name of the package; `package_root` is its folder or file, None if the tree has none.
        target, tier: what the suite is told to select.
        only_data: its worker only draws inputs and compares results, so what compiles kernels need not be imported.
    """

    name: str
    folder: Path
    trees: Mapping[str, Path]
    suite: str
    suite_root: Path
    package: str
    package_root: Path | None
    target: Target
    tier: Tier
    only_data: bool = False


def make_workspace(
    folder: Path, config: GateConfig, *, exported: Path, suite_root: Path, target: Target, tier: Tier
) -> Workspace:
    """Fill `folder` with links to the package in `exported`, to the suite, and to this tilegate: today's ruler.

    Args:
        folder: made here; its name is the workspace's.
        config: names package and suite.
        exported: the tree that has the package.
        suite_root: the suite's folder, in whichever tree.
        target, tier: what the suite is told to select.

    Raises:
        UsageError: package and suite cannot come from different commits, or the package is a link out of its tree.
    """
    package = config.package.partition(".")[0]
    suite = config.suite.rpartition(".")[2]  # asv imports a suite by its folder's name
    if suite == package or config.suite.startswith(f"{package}."):
        raise UsageError(
            f"the suite {config.suite!r} lies inside the package {config.package!r}, so the base's suite cannot measure "
            "the head's package; move it out and set `suite` in [tool.tilegate]"
        )
    package_root = trees.find_module(exported, package)
    if package_root is not None:
        trees.refuse_links_out(exported, package_root)
    folder.mkdir(parents=True)
    if package_root is not None:
        (folder / package_root.name).symlink_to(package_root)
    (folder / suite).symlink_to(suite_root)
    if package != "tilegate":
        (folder / "tilegate").symlink_to(Path(__file__).resolve().parents[1])
    known = {f"<{folder.name}>": exported, "<suite>": suite_root}
    return Workspace(folder.name, folder, known, suite, suite_root, package, package_root, target, tier)


def workspace_of(
    repository: git.Repository,
    revision: trees.Revision,
    suite: trees.Revision,
    folder: Path,
    *,
    target: Target,
    tier: Tier,
) -> tuple[Workspace, GateConfig]:
    """Make the workspace of a revision's package with the suite of another (the base's, in a comparison).

    Args:
        repository, revision: what has the package.
        suite: the revision that has the suite, and the settings that name it.
        folder: made here; its name is the workspace's.
        target, tier: what the suite is told to select.

    Raises:
        UsageError: there is no such suite, or the settings do not name one.
    """
    try:
        config = load_config(trees.read_file(repository, suite, "pyproject.toml"))
    except UsageError as error:
        raise UsageError(f"{suite.rev}: {error}") from None
    package, suite_path = config.package.partition(".")[0], config.suite.replace(".", "/")
    needed = [package, f"src/{package}", suite_path]
    cache = trees.cache_folder()
    suite_root = trees.export(repository, suite, needed, cache) / suite_path
    if not suite_root.is_dir():
        raise UsageError(f"{suite.rev} has no suite {config.suite!r}, which [tool.tilegate] names")
    exported = trees.export(repository, revision, needed, cache)
    return make_workspace(folder, config, exported=exported, suite_root=suite_root, target=target, tier=tier), config


def environment_of(workspace: Workspace, layout: Layout | None = None) -> dict[str, str]:
    """Return the environment of a process that loads a workspace.

    Python's switches are left out, all but those that say where things are: with PYTHONOPTIMIZE a check made of `assert`
    would check nothing.
    """
    path = os.pathsep.join(filter(None, [str(workspace.folder), os.environ.get("PYTHONPATH")]))
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON") or k in _KEPT_VARIABLES}
    return {
        **inherited,
        "PYTHONPATH": path,
        "PYTHONSAFEPATH": "1",  # also for the processes that it starts to compile
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "PYTHONHASHSEED": "0",  # code generated from a set must come out the same in every process
        "TILEGATE_TARGET": workspace.target,
        "TILEGATE_TIER": workspace.tier,
        **({LISTING_VARIABLE: "1"} if workspace.only_data else {}),
        **({} if layout is None else layout.variables()),
    }
