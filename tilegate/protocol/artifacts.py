"""What the compiler made of a kernel, and the identity by which two commits' kernels are called the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

JSON: TypeAlias = "str | int | float | bool | Sequence[JSON] | Mapping[str, JSON] | None"


@dataclass(frozen=True)
class Artifact:
    """One generated kernel.

    Attributes:
        name: the kernel's name, unique within a case.
        source: the generated text (HIP C++, CUDA C++, C, LLVM or TTGIR), without paths or times.
        launch: what the launch needs beside the text: grid, block, dynamic shared bytes, compiler flags.
        resources: what the compiler reports (registers, spills, LDS bytes), and choices such as the tile that are worth
            naming when they change. Not part of the identity: it follows from the text and the toolchain.
    """

    name: str
    source: str
    launch: Mapping[str, JSON] = field(default_factory=dict)
    resources: Mapping[str, JSON] = field(default_factory=dict)


def digest(artifacts: Sequence[Artifact]) -> str:
    """Return the sha256 (hex) over names, sources and launches, in the order given.

    Raises:
        ValueError: there are no artifacts: equal digests would then call any two kernels identical.
        TypeError: `launch` holds something that JSON cannot express.
    """
    if not artifacts:
        raise ValueError("no artifacts: a case without generated source has no identity")
    canonical = [[artifact.name, artifact.source, artifact.launch] for artifact in artifacts]
    text = json.dumps(canonical, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
