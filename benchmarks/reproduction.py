"""What `tilegate repro` puts into its folder for a case: the kernel's own source, its problem, its tiles by length."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

import tilekernels
from benchmarks.family import Family
from tilekernels import dialect

_OWN_IMPORT = re.compile(r"^    from tilekernels[.\w]* import [^\n]*\n", re.MULTILINE)
_EMPTY_BLOCK = re.compile(r"^if TYPE_CHECKING:\n(?!    )", re.MULTILINE)
_FUTURE = re.compile(r"^from __future__ import annotations\n+", re.MULTILINE)
_DOCSTRING = re.compile(r'\A"""(.*?)"""\n', re.DOTALL)
_KERNELS = "tilekernels.kernels"
_PROBLEMS = "benchmarks.reproductions"
_NOT_SHAPE = ("id", "targets", "tier", "why")
_OF_LENGTHS = ("max_seqlen_q", "max_seqlen_k")  # numbers of a launch that a problem counts for each length itself


def describe(
    family: Family, work: Any, policy: str, device: torch.device | str, lengths: Sequence[int]
) -> dict[str, Any]:
    """Describe a case, at its own and other lengths, for a script that has neither this suite nor the package.

    Args:
        family, work, policy: the case.
        device: where it is to run.
        lengths: of what `family.length` names; empty: some below the case's own, and that.

    Returns:
        ``{"problem": text, "kernel": text, "dialect": text, "lengths", "shape", "device", "dialect_name", "spec", "tiles":
        {length: tile}, "target", "pass_configs", "compile_flags"}``.

    Raises:
        NotImplementedError: the family's module in `benchmarks.reproductions` is missing.
    """
    if find_spec(f"{_PROBLEMS}.{family.name}") is None:
        raise NotImplementedError(f"{family.name} kernels have no problem in benchmarks/reproductions/{family.name}.py")
    own = _length(family, work)
    lengths = sorted(set(lengths)) or _ladder(family, work)
    works = {length: _at(family, work, length) for length in lengths}
    kernels = {length: family.kernel(works[length], policy, device) for length in lengths}
    kernel = kernels[lengths[-1]]
    lowered = kernel.artifacts()[0]
    return {
        "problem": in_one_file(f"{_PROBLEMS}.{family.name}"),
        "kernel": in_one_file(kernel.module),
        "dialect": Path(dialect.__file__).read_text(encoding="utf-8"),
        "lengths": lengths,
        "shape": {
            **{
                name: value
                for name, value in vars(work).items()
                if name not in _NOT_SHAPE and not (name in family.length and value == own)
            },
            **{name: value for name, value in family.numbers(work, kernel).items() if name not in _OF_LENGTHS},
        },
        "device": torch.device(device).type,
        "dialect_name": kernel.chip.kind,
        "spec": dataclasses.asdict(kernel.spec),
        "tiles": {str(length): _tile(family, works[length], each) for length, each in kernels.items()},
        "target": lowered.target,
        "pass_configs": lowered.launch["pass_configs"],
        "compile_flags": lowered.launch["compile_flags"],
    }


def _tile(family: Family, work: Any, kernel: tilekernels.Kernel) -> dict[str, Any]:
    """Return how a launch divides its work: the kernel's tile, and into how many parts, where it says that at the launch."""
    symbols = family.symbols(work, kernel)
    return {**dataclasses.asdict(kernel.tile), **{name: symbols[name] for name in ("splits",) if name in symbols}}


def in_one_file(module: str) -> str:
    """Return a builder's or a problem's source with what it imports: others' sources, and plain constants of the package.

    A builder takes its specification and tile as they come; imports of their types, for checkers alone, are dropped.

    Raises:
        NotImplementedError: it imports something else of the package.
    """
    return _with_own_imports(module, set())


def _with_own_imports(module: str, there: set[str]) -> str:
    text = _EMPTY_BLOCK.sub("", _OWN_IMPORT.sub("", _source(module)))
    there.add(module)
    for statement in reversed(ast.parse(text).body):
        if not isinstance(statement, ast.ImportFrom) or not (statement.module or "").startswith(
            ("tilekernels", _PROBLEMS)
        ):
            continue
        lines, of = text.splitlines(keepends=True), statement.module or ""
        names = [alias.name for alias in statement.names]
        before, after = lines[: statement.lineno - 1], lines[statement.end_lineno :]
        if of == _KERNELS:  # modules, of which each has a `build`
            parts = []
            for name in names:
                part = _inlined(f"{_KERNELS}.{name}", there)
                parts.append(re.sub(r"^def build\(", f"def build_{name}(", part, flags=re.MULTILINE))
                after = [line.replace(f"{name}.build(", f"build_{name}(") for line in after]
            put = "\n\n".join(parts)
        elif of.startswith((f"{_KERNELS}.", f"{_PROBLEMS}.")):
            put = _inlined(of, there)
        else:
            put = "".join(f"{name} = {_constant(of, name)!r}\n" for name in names)
        text = "".join([*before, put, *after])
    return text


def _inlined(module: str, there: set[str]) -> str:
    """A module's source for the middle of another's file; nothing if it is there already."""
    if module in there:
        return ""
    text = _FUTURE.sub("", _with_own_imports(module, there))
    return _DOCSTRING.sub(
        lambda found: "".join(f"# {line}".rstrip() + "\n" for line in found[1].strip().splitlines()), text
    )


def _constant(module: str, name: str) -> int | float | str:
    value = getattr(import_module(module), name)
    if not isinstance(value, int | float | str):
        raise NotImplementedError(f"a reproduction cannot hold {module}.{name}: it is no number and no text")
    return value


def _source(module: str) -> str:
    return Path(import_module(module).__file__ or "").read_text(encoding="utf-8")


def _length(family: Family, work: Any) -> int:
    """The case's own length: of its longest sequence, where it has several."""
    value: int | tuple[int, ...] = getattr(work, family.length[-1])
    return max(value) if isinstance(value, tuple) else value


def _at(family: Family, work: Any, length: int) -> Any:
    """The case at another length: packed sequences keep their shares, and rows over more keys stay as many."""
    own = _length(family, work)
    values = {name: getattr(work, name) for name in family.length}
    changed = {
        name: tuple(-(-each * length // own) for each in value) if isinstance(value, tuple) else length
        for name, value in values.items()
        if isinstance(value, tuple) or value == own
    }
    return dataclasses.replace(work, **changed)


def _ladder(family: Family, work: Any) -> list[int]:
    """Powers of two from 1/32 of the case's own length, at least 32 and no fewer keys than rows that stay, up to it; and it."""
    own, rows = _length(family, work), getattr(work, family.length[0])
    least = max(32, own // 32, rows if isinstance(rows, int) and rows < own else 0)
    return sorted({own, *(1 << power for power in range(5, 31) if least <= 1 << power <= own)})
