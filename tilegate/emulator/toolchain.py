"""Which compiler builds a kernel for this machine, and what it calls its tools."""

from __future__ import annotations

import functools
import os
import re
import shutil
from dataclasses import dataclass

from tilegate.files import UsageError
from tilegate.tools import tool_version

COMPILER_VARIABLE = "TILEGATE_HOST_COMPILER"
INSTALL = "apt-get install -y clang-19 llvm-19"

# 16 and later take what the headers need: vectors of half precision and __builtin_elementwise_fma.
_OLDEST = 16
_VERSIONS = (19, 20, 21, 22, 23, 18, 17, 16)


class EmulatorError(Exception):
    """A kernel cannot be emulated; the message says why and what to do."""


class ToolchainMissing(EmulatorError):  # noqa: N818 - a state of the machine, which callers turn into a skip
    """Something that builds kernels is not here, clang or what it needs; the message has the line that installs it."""


@dataclass(frozen=True)
class Toolchain:
    """A clang and the symbolizer that reads its debug information.

    Attributes:
        compiler, symbolizer: paths.
        version: the compiler's version line.
    """

    compiler: str
    symbolizer: str
    version: str


def toolchain() -> Toolchain:
    """Find clang (`TILEGATE_HOST_COMPILER`, else the first of clang++-19, …) and llvm-symbolizer.

    Raises:
        ToolchainMissing: there is none.
        UsageError: `TILEGATE_HOST_COMPILER` names none.
    """
    return _find(os.environ.get(COMPILER_VARIABLE), os.environ.get("PATH", ""))


@functools.cache
def _find(named: str | None, _path: str) -> Toolchain:
    if named:
        compiler = shutil.which(named)
        if compiler is None or _major(compiler) is None:
            raise UsageError(
                f"{COMPILER_VARIABLE} names {named!r}, which is not a clang++ of version {_OLDEST} or later"
            )
    else:
        names = [*(f"clang++-{version}" for version in _VERSIONS), "clang++"]
        compiler = next((path for path in map(shutil.which, names) if path and _major(path) is not None), None)
        if compiler is None:
            raise ToolchainMissing(f"kernels are emulated with clang, which is not here: {INSTALL}")
    symbolizer = shutil.which(f"llvm-symbolizer-{_major(compiler)}") or shutil.which("llvm-symbolizer")
    if symbolizer is None:
        raise ToolchainMissing(f"the emulator names lines with llvm-symbolizer, which is not here: {INSTALL}")
    return Toolchain(compiler, symbolizer, tool_version(compiler) or "unknown")


def _major(compiler: str) -> int | None:
    found = re.search(r"clang version (\d+)", tool_version(compiler) or "")
    return int(found[1]) if found and int(found[1]) >= _OLDEST else None
