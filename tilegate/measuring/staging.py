"""A revision of a repository, made ready for a worker: its package beside the suite of a revision."""

from __future__ import annotations

from pathlib import Path

from tilegate.config import GateConfig, load_config
from tilegate.files import UsageError
from tilegate.measuring import trees
from tilegate.measuring.session import Stage, stage
from tilegate.schemas.samples import Target, Tier


def staged(
    repository: trees.Repository,
    revision: trees.Revision,
    suite: trees.Revision,
    folder: Path,
    *,
    target: Target,
    tier: Tier,
) -> tuple[Stage, GateConfig]:
    """Stage a revision's package with the suite of another (the base's, in a comparison).

    Args:
        repository, revision: what has the package.
        suite: the revision that has the suite, and the settings that name it.
        folder: made here; its name is the stage's.
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
    return stage(folder, config, exported=exported, suite_root=suite_root, target=target, tier=tier), config
