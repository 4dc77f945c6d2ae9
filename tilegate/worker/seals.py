"""Seals on what measures and looks: whether the code under test has replaced a part of it in this process.

Code in the same process can change anything in it, so a broken seal proves tampering and a whole one proves nothing; the
gate's own clock (tilegate.measuring.crosscheck) and the referee do not depend on this process. Sealed are the functions of
tilegate's modules, from before the code under test was imported, and functions of Python, numpy and torch that measuring
relies on: those are built in, and one that is not any more has been replaced.
"""

from __future__ import annotations

import builtins
import ctypes
import gc
import inspect
import json
import os
import sys
import time
import types
from collections.abc import Iterator
from typing import Any

_BUILT_IN = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)
_SEALED_MODULES = ("tilegate.protocol", "tilegate.worker", "json")
_OF_TORCH = ("clone", "detach", "copy_", "fill_", "isnan", "all", "data_ptr", "reshape", "view")
_NAMED: tuple[tuple[object, tuple[str, ...]], ...] = (
    (time, ("perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns")),
    (gc, ("collect", "disable", "enable")),
    (os, ("write",)),
    (builtins, ("sum", "len", "min", "max", "float", "int", "zip", "list", "getattr")),
    (ctypes, ("memset", "addressof")),
    (json, ("dumps", "loads")),
)


class Seals:
    """What was there when this was made."""

    def __init__(self) -> None:
        """Note the functions of all modules of tilegate that are loaded, and the named ones of others."""
        self._functions = dict(_functions())
        self._named = {(id(owner), name): getattr(owner, name) for owner, names in _NAMED for name in names}

    def broken(self) -> str | None:
        """Return the name of something that has been replaced since, None if nothing has."""
        for place, (owner, name, function, code) in self._functions.items():
            now = vars(owner).get(name)
            if now is not function or getattr(now, "__code__", None) is not code:
                return place
        for owner, names in _NAMED:
            for name in names:
                if getattr(owner, name, None) is not self._named[id(owner), name]:
                    return f"{owner.__name__}.{name}"  # type: ignore[attr-defined]
        torch: Any = sys.modules.get("torch")
        tensor = getattr(torch, "Tensor", None)
        for name in _OF_TORCH if tensor is not None else ():
            if not isinstance(inspect.getattr_static(tensor, name, None), _BUILT_IN):
                return f"torch.Tensor.{name}"
        return None


def _functions() -> Iterator[tuple[str, tuple[Any, str, object, object]]]:
    """Yield every function and method of the sealed modules: where it is, and its owner, name, self and code."""
    for module_name, module in list(sys.modules.items()):
        if module is None or not any(module_name == s or module_name.startswith(f"{s}.") for s in _SEALED_MODULES):
            continue
        for name, value in list(vars(module).items()):
            if inspect.isfunction(value) or inspect.isbuiltin(value):
                yield f"{module_name}.{name}", (module, name, value, getattr(value, "__code__", None))
            elif inspect.isclass(value) and value.__module__ == module_name:
                for attribute, method in list(vars(value).items()):
                    if inspect.isfunction(method):
                        where = f"{module_name}.{name}.{attribute}"
                        yield where, (value, attribute, method, method.__code__)
