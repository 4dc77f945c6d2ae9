"""What a side may import: its own trees, and no other copy of the package."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from tilegate.protocol import WrongTreeError


class Absent:
    """Hides installed copies of a package that this side does not have."""

    def __init__(self, package: str) -> None:
        """Hide `package`, an import name."""
        self._package = package

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Refuse the package (see importlib.abc.MetaPathFinder)."""
        if name == self._package:
            raise ModuleNotFoundError(f"this revision has no package {name!r}", name=name)


def verify_place(name: str, module: ModuleType, root: Path | None) -> None:
    """Check that a loaded module lies in the tree `root`; with None, it should not have been found at all.

    Raises:
        WrongTreeError: it lies elsewhere.
    """
    file = getattr(module, "__file__", None)
    places = [file] if file else [*getattr(module, "__path__", ())]
    for place in places:
        if root is None or not (Path(place).resolve() == root or Path(place).resolve().is_relative_to(root)):
            raise WrongTreeError(
                f"{name} was imported from {place}, which is not the tree that is to be measured; look for changes to "
                "sys.path or __path__ in the suite, or for an editable install"
            )
