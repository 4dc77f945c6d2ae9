"""What `tilegate repro` puts into its folder for a case: the kernel's own source, its problem, its tiles by length."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from benchmarks.family import Family
from tilekernels import dialect

# A builder takes its specification and tile as they come; what it imports of the package are their types.
_OWN_IMPORT = re.compile(r"^(    )?from tilekernels[.\w]* import [^\n]*\n", re.MULTILINE)
_EMPTY_BLOCK = re.compile(r"^if TYPE_CHECKING:\n(?!    )", re.MULTILINE)


def describe(
    family: Family, work: Any, policy: str, device: torch.device | str, lengths: Sequence[int]
) -> dict[str, Any]:
    """Describe a case, at its own and other lengths, for a script that has neither this suite nor the package.

    Args:
        family, work, policy: the case.
        device: where it is to run.
        lengths: of rows and keys; empty: some below the case's own, and that.

    Returns:
        ``{"problem": text, "kernel": text, "dialect": text, "lengths", "shape", "device", "dialect_name", "spec", "tiles":
        {length: tile}, "target", "pass_configs", "compile_flags"}``.

    Raises:
        NotImplementedError: the family's module in `benchmarks.reproductions` is missing.
    """
    module = find_spec(f"benchmarks.reproductions.{family.name}")
    if module is None or module.origin is None:
        raise NotImplementedError(
            f"{family.name} kernels have no reproduction yet: benchmarks/reproductions/{family.name}.py"
        )
    own = work.seqlen_q
    lengths = sorted(set(lengths)) or sorted({*(length for length in _ladder(own)), own})
    kernels = {
        length: family.kernel(dataclasses.replace(work, seqlen_q=length, seqlen_k=length), policy, device)
        for length in lengths
    }
    kernel = kernels[lengths[-1]]
    lowered = kernel.artifacts()[0]
    builder = Path(import_module(kernel.module).__file__ or "").read_text(encoding="utf-8")
    return {
        "problem": Path(module.origin).read_text(encoding="utf-8"),
        "kernel": _EMPTY_BLOCK.sub("", _OWN_IMPORT.sub("", builder)),
        "dialect": Path(dialect.__file__).read_text(encoding="utf-8"),
        "lengths": lengths,
        "shape": {
            **{name: getattr(work, name) for name in ("batch", "heads", "kv_heads", "head_dim", "dtype", "causal")},
            **family.numbers(work, kernel),
        },
        "device": torch.device(device).type,
        "dialect_name": kernel.chip.kind,
        "spec": dataclasses.asdict(kernel.spec),
        "tiles": {str(length): dataclasses.asdict(each.tile) for length, each in kernels.items()},
        "target": lowered.target,
        "pass_configs": lowered.launch["pass_configs"],
        "compile_flags": lowered.launch["compile_flags"],
    }


def _ladder(own: int) -> list[int]:
    """Powers of two from 1/32 of the case's own length, at least 32, up to it."""
    return [1 << power for power in range(5, 31) if max(32, own // 32) <= 1 << power <= own]
