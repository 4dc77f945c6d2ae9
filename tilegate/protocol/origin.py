"""Proof that the imported package is the commit's, not one that happens to be installed."""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType

ROOT_VARIABLE = "TILEGATE_PACKAGE_ROOT"


class WrongTreeError(ImportError):
    """The package under test was imported from somewhere other than the commit's tree."""


def verify_origin(module: ModuleType) -> None:
    """Check that `module` lies under `TILEGATE_PACKAGE_ROOT`, where that is set.

    Whoever measures a particular commit sets it to the root of that commit's tree. An editable install or a
    leftover `PYTHONPATH` would otherwise let every commit measure the same code, and no difference would ever show.

    Raises:
        WrongTreeError: it lies elsewhere.
    """
    root = os.environ.get(ROOT_VARIABLE)
    if not root:
        return
    file = module.__file__
    if file is None or not Path(file).resolve().is_relative_to(Path(root).resolve()):
        raise WrongTreeError(
            f"{module.__name__} was imported from {file}, not from {root}, the tree that is to be measured: an "
            f"installed copy comes first on sys.path, or that tree has no {module.__name__}"
        )
