"""Where a side's code comes from: its suite and its package, imported from their own trees."""

from __future__ import annotations

import hashlib
import importlib
import os
import pkgutil
import sys
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tilegate.failures import explain
from tilegate.protocol import Artifact, WrongTreeError, register
from tilegate.protocol.origin import ROOT_VARIABLE
from tilegate.worker import imports
from tilegate.worker.cases import Case, cases_of
from tilegate.worker.placement import Placement

_T = TypeVar("_T")


@dataclass(frozen=True)
class Sources:
    """A suite and the package under test, in the staged folders.

    Attributes:
        suite, package: import names.
        suite_root, package_root: their files; a package_root of None: this side has no such package.
        placement: draws the order in which they are imported; None: the usual one.
    """

    suite: str
    suite_root: Path
    package: str
    package_root: Path | None
    placement: Placement | None

    def begin(self) -> None:
        """See that the package is imported from its tree, or not found at all."""
        if self.package_root is None:
            sys.meta_path.insert(0, imports.Absent(self.package))
        else:
            os.environ[ROOT_VARIABLE] = str(self.package_root)

    def explain(self, error: BaseException, stage: str) -> dict[str, str]:
        """Classify `error` (see `failures.explain`)."""
        return explain(error, stage, self.package, self.package_root or Path("/nonexistent"))

    def load(self) -> tuple[list[Case], dict[str, dict[str, str]]]:
        """Import the whole suite; return its cases, and why the modules that are missing could not be imported."""
        register()
        broken: dict[str, dict[str, str]] = {}
        for name in self._modules(broken):
            print(f"imported {name}", flush=True)
        try:
            self.verify()
        except WrongTreeError as error:
            print(error, flush=True)
            broken[""] = self.explain(error, "import")
        # Modules that failed above fail again here, and asv prints why; the others come from sys.modules.
        from asv_runner.discovery import disc_benchmarks  # noqa: PLC0415 - only workers need it

        benchmarks = disc_benchmarks(self.suite, ignore_import_errors=True)
        return [case for found in benchmarks if found.type in ("latency", "call") for case in cases_of(found)], broken

    def verify(self) -> None:
        """Check that every loaded module of the package and the suite lies in its own tree.

        Raises:
            WrongTreeError: one does not.
        """
        for name, module in list(sys.modules.items()):
            if name == self.package or name.startswith(f"{self.package}."):
                imports.verify_place(name, module, self.package_root)
            elif name == self.suite or name.startswith(f"{self.suite}."):
                imports.verify_place(name, module, self.suite_root)

    def in_order(self, items: Sequence[_T]) -> list[_T]:
        """Return `items` in the order that was drawn."""
        return list(items) if self.placement is None else self.placement.order(items)

    def package_artifact(self) -> Artifact:
        """Return the package's files, as something to compare: {name in the package: start of its sha256}."""
        root = self.package_root or Path("/nonexistent")
        found = [root] if root.is_file() else sorted(file for file in root.rglob("*") if file.is_file())
        files = {
            file.relative_to(root.parent).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()[:16]
            for file in found
            if "__pycache__" not in file.parts
        }
        return Artifact("package", "", {"files": files})

    def _modules(self, broken: dict[str, dict[str, str]]) -> Iterator[str]:
        """Import the suite and its submodules one by one; what fails goes to `broken` under its asv name.

        In an order that was drawn, what fails is tried again in the usual one after the others: it may need one of them.
        """
        pending, again = [self.suite], list[str]()
        while pending or again:
            last = not pending or self.placement is None
            name = (pending or again).pop(0)
            try:
                module = importlib.import_module(name)
            except BaseException as error:  # a suite may well call sys.exit or pytest.skip
                traceback.print_exc()
                if last:
                    broken[name.partition(".")[2]] = self.explain(error, "import")
                else:
                    again = sorted([*again, name])
                continue
            yield name
            found = [found.name for found in pkgutil.iter_modules(getattr(module, "__path__", ()), f"{name}.")]
            pending += self.in_order(found)
