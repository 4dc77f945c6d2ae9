"""A revision of a repository, made ready for its kernels to be generated."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tilegate.lowering.lowering import Lowering
from tilegate.lowering.store import Store
from tilegate.measuring import trees
from tilegate.measuring.staging import staged


@contextlib.contextmanager
def lowering_of(
    repository: trees.Repository, revision: trees.Revision, suite: trees.Revision, folder: Path, store: Store
) -> Iterator[Lowering]:
    """Stage a revision's package with the suite of another (the base's, in a comparison). Raises as `staged`."""
    stage, _ = staged(repository, revision, suite, folder / "stage", target="hip", tier="full")
    with Lowering(stage, folder, store) as lowering:
        yield lowering
