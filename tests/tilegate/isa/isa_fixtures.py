"""What the tests of `tilegate isa` share: compilers where there are any, kernels, and listings of real compilers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilegate.isa.assembly import Listing, parse
from tilegate.isa.toolchain import Toolchain, ToolchainError, find_toolchain
from tilegate.protocol import Artifact

DATA = Path(__file__).parents[2] / "data" / "isa"


def toolchain_or_skip(arch: str) -> Toolchain:
    try:
        return find_toolchain(arch)
    except ToolchainError as error:
        pytest.skip(str(error))


def listing(name: str) -> Listing:
    (found,) = parse((DATA / name).read_text())
    return found


def artifact(name: str, threads: int, dynamic: int = 0) -> Artifact:
    source = (DATA / f"{name}.hip").read_text()
    return Artifact(f"{name}_kernel", source, {"block": [threads, 1, 1], "dynamic_shared_bytes": dynamic})
