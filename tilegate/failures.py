"""What an exception in the suite or the package means for a verdict."""

from __future__ import annotations

import inspect
import re
import traceback
from pathlib import Path

from tilegate.protocol import WrongResult, WrongTreeError

MISSING = "missing"
"""Not a failure of the code: this side does not have what the suite asked for."""
SKIPPED = "skipped"
"""Nor this: the suite itself says that the case does not apply here."""

_MAX_MESSAGE = 4000
_OUT_OF_MEMORY = re.compile(r"out of memory|hipErrorOutOfMemory|cudaErrorMemoryAllocation|CL_MEM_OBJECT_ALLOC", re.I)
_COMPILE = re.compile(r"compil|lowering|nvcc|hipcc|ptxas", re.I)
_KIND_OF_OPERATION = {"import": "import", "precompile": "compile", "artifacts": "compile", "setup": "setup"}


class CaughtError(Exception):
    """What was timed is not what it seems to be.

    Attributes:
        kind: "off-clock" (work that the clock does not see), "side-effect" (inputs are changed, or handed out as results)
            or "tampered" (parts of the measuring are replaced).
    """

    def __init__(self, kind: str, message: str) -> None:
        """Say which kind, and what was seen."""
        super().__init__(message)
        self.kind = kind


class SkippedError(Exception):
    """The suite skips this case: NotImplementedError in `setup`, which asv takes for that, or in `artifacts`."""


def explain(error: BaseException, operation: str, package: str, package_root: Path) -> dict[str, str]:
    """Classify `error`, raised while the worker was at `operation`.

    Args:
        error: what the suite or the package raised.
        operation: "import", "precompile", "artifacts", "setup", "check", "warm-up" or "measure".
        package: import name of the package under test.
        package_root: the folder of the commit's tree that holds it.

    Returns:
        ``{"kind", "message"}``; the kind is one of the samples schema, or `MISSING`, or `SKIPPED`.
    """
    text = "".join(traceback.format_exception_only(error)).strip()
    if isinstance(error, WrongResult | WrongTreeError | SkippedError | CaughtError):
        text = str(error)
    return {"kind": _kind(error, text, operation, package, package_root), "message": text[:_MAX_MESSAGE]}


def _kind(error: BaseException, text: str, operation: str, package: str, package_root: Path) -> str:  # noqa: PLR0911
    if isinstance(error, WrongResult):
        return "wrong-result"
    if isinstance(error, CaughtError):
        return error.kind
    if isinstance(error, WrongTreeError):
        return "leak"
    if isinstance(error, SkippedError) or (operation == "artifacts" and isinstance(error, NotImplementedError)):
        return SKIPPED
    if _asks_for_what_is_not_there(error, package, package_root):
        return MISSING
    if isinstance(error, MemoryError) or _OUT_OF_MEMORY.search(text):
        return "out-of-memory"
    if isinstance(error, ImportError):
        return "import"
    if operation == "setup" and _COMPILE.search(type(error).__name__):
        return "compile"
    return _KIND_OF_OPERATION.get(operation, "error")


def _asks_for_what_is_not_there(error: BaseException, package: str, package_root: Path) -> bool:
    """Whether the suite asked the package for a module or name that it does not have.

    The same error raised inside the package is not that: there the package itself is broken.
    """
    if isinstance(error, ImportError):
        owner = error.name
    elif isinstance(error, AttributeError) and error.obj is not None:
        holder = error.obj if inspect.ismodule(error.obj) or inspect.isclass(error.obj) else type(error.obj)
        owner = holder.__name__ if inspect.ismodule(holder) else holder.__module__
    else:
        return False
    if owner != package and not (owner or "").startswith(f"{package}."):
        return False
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    asking = next((file for file in reversed(files) if not file.startswith("<frozen importlib")), None)
    return asking is None or not Path(asking).resolve().is_relative_to(package_root)
