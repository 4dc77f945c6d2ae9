"""The kernel families of the suite: one a module, each with a `FAMILY`. A new module is found; nothing lists it."""

from __future__ import annotations

import functools
import pkgutil
from importlib import import_module
from typing import Any

from benchmarks.family import Family


@functools.cache
def families() -> dict[str, Family]:
    """Return every family by name, in the order of their modules' names.

    Raises:
        ValueError: two have one name, or share a workload's id: results are filed under both.
    """
    found: dict[str, Family] = {}
    ids: dict[str, str] = {}
    for module in sorted(info.name for info in pkgutil.iter_modules(__path__)):
        family: Family = import_module(f"{__name__}.{module}").FAMILY
        if family.name in found:
            raise ValueError(f"two kernel families are called {family.name!r}")
        for work in family.workloads:
            if ids.setdefault(work.id, family.name) != family.name:
                raise ValueError(f"workload {work.id!r} is in both {ids[work.id]} and {family.name}")
        found[family.name] = family
    return found


def suite_classes() -> list[Any]:
    """Return the class that times each family: a `benchmarks.launches.Launches`.

    Raises:
        ValueError: a family's `case` names a class that times another one.
    """
    found = []
    for family in families().values():
        module, name, _ = family.case.split(".")
        timed = getattr(import_module(f"benchmarks.{module}"), name)
        if timed.family is not family:
            raise ValueError(f"{family.case} times {timed.family.name} kernels, not {family.name}")
        found.append(timed)
    return found
