"""A revision of a repository, made ready for its kernels to be generated."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tilegate.config import load_config
from tilegate.files import UsageError
from tilegate.lowering.lowering import Lowering
from tilegate.lowering.store import Store
from tilegate.measuring import trees
from tilegate.measuring.session import stage


@contextlib.contextmanager
def lowering_of(
    repository: trees.Repository, revision: trees.Revision, suite: trees.Revision, folder: Path, store: Store
) -> Iterator[Lowering]:
    """Stage a revision's package with the suite of another (the base's, in a comparison).

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
    folder.mkdir(parents=True)
    staged = stage(folder / "stage", config, exported=exported, suite_root=suite_root, target="hip", tier="full")
    with Lowering(staged, folder, store) as lowering:
        yield lowering
