"""A revision of a repository, made ready for its kernels to be generated."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tilegate.lowering.lowering import Lowering
from tilegate.lowering.store import Store
from tilegate.measuring import git, trees
from tilegate.measuring.workspace import workspace_of


@contextlib.contextmanager
def lowering_of(
    repository: git.Repository, revision: trees.Revision, suite: trees.Revision, folder: Path, store: Store
) -> Iterator[Lowering]:
    """Put a revision's package beside the suite of another (the base's, in a comparison). Raises as `workspace_of`."""
    workspace, _ = workspace_of(repository, revision, suite, folder / "workspace", target="hip", tier="full")
    with Lowering(workspace, folder, store) as lowering:
        yield lowering
