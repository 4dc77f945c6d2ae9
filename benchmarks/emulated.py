"""Small problems for every kernel, for `tilegate emulate`: what to run it on, and whether the result is right.

`problems`, `arguments` and `check` are the whole interface (docs/protocol.md). Problems, reference and tolerances are the
families' own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import tilekernels
from benchmarks import kernels, reference
from benchmarks.families import forward
from benchmarks.family import Family

Arguments = dict[str, "np.ndarray[Any, Any] | int | float"]


def problems(id: str, arch: str) -> list[str]:
    """Return the names of the problems for one of `kernels.configurations(arch)`; the first is the one to run in a hurry."""
    family, kernel = kernels.find(id, arch)
    return [work.id for work in family.problems(kernel)]


def arguments(id: str, arch: str, problem: str) -> Arguments:
    """Return what the kernels are called with, by parameter name: outputs full of NaN, bfloat16 as its bits in uint16.

    Raises:
        ValueError: there is no such kernel or problem.
    """
    family, kernel = kernels.find(id, arch)
    return _arguments(family, kernel, _work(family, kernel, problem))


def arguments_of_one_head(id: str, arch: str, rows: int) -> Arguments:
    """Return the same for one head of a forward kernel with as many rows as keys, to see how long it takes.

    Raises:
        ValueError: there is no such kernel.
    """
    family, kernel = kernels.find(id, arch)
    return _arguments(family, kernel, forward.small_workload(kernel, (1, 1, 1, rows, rows), "head"))


def check(id: str, arch: str, problem: str, arguments: Arguments) -> None:
    """Compare what the kernels left in `arguments` with the reference.

    Raises:
        WrongResult: a result is out of tolerance.
        ValueError: there is no such kernel or problem.
    """
    family, kernel = kernels.find(id, arch)
    work = _work(family, kernel, problem)
    outputs = {name: _tensor(arguments[name], x.dtype) for name, x in family.outputs(work, kernel, "cpu").items()}
    family.check(work, family.inputs(work, "cpu", 0), outputs, reference.CHECKED_SCORES)


def _arguments(family: Family, kernel: tilekernels.Kernel, work: Any) -> Arguments:
    tensors = {**family.inputs(work, "cpu", 0), **family.outputs(work, kernel, "cpu")}
    return {
        **{name: _array(x) for name, x in tensors.items()},
        **family.symbols(work, kernel),
        **family.numbers(work, kernel),
    }


def _work(family: Family, kernel: tilekernels.Kernel, problem: str) -> Any:
    works = {work.id: work for work in family.problems(kernel)}
    if problem not in works:
        raise ValueError(f"there is no problem {problem!r}; there are {', '.join(map(repr, works))}")
    return works[problem]


def _array(x: torch.Tensor) -> np.ndarray[Any, Any]:
    return x.view(torch.uint16).numpy() if x.dtype == torch.bfloat16 else x.numpy()


def _tensor(x: Any, dtype: torch.dtype) -> torch.Tensor:
    return torch.from_numpy(x).view(dtype)
