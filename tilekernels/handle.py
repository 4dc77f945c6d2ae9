"""What one launch starts on one chip: built, compiled, kept and found again in the same way for every kernel family."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from tilekernels.chips import CHIPS, Chip, chip_of
from tilekernels.compiler import (
    CompiledKernel,
    CompileJob,
    LoweredKernel,
    compile_kernel,
    compile_many,
    despite_parser_clashes,
    lower,
    tracing,
)

if TYPE_CHECKING:
    import torch


class Kernel:
    """One TileLang kernel, or several that a launch starts in order; compiled at the first launch, or by `compile`.

    A family is a subclass that says where its builder is and how it is launched (docs/kernel-families.md). Get kernels from
    `shared`, so that each exists and is compiled once.

    Class attributes:
        module: of the builder, imported when it is needed: `build(spec, tile, dialect)` gives a PrimFunc, or a tuple of as
            many as there are `steps`.

    Attributes:
        steps: the names of the PrimFuncs, in the order in which a launch starts them; of the class, or of each object where
            it depends on the specification.
        chip: what it is compiled for.
        spec: what is compiled in beside the tile; frozen. Shapes that are not in it are read from the tensors of a launch.
        tile: how it divides the work; frozen.
    """

    module: ClassVar[str]
    steps: tuple[str, ...]

    def __init__(self, chip: Chip, spec: Any, tile: Any) -> None:
        """Describe a kernel; nothing is compiled."""
        self.chip = chip
        self.spec = spec
        self.tile = tile
        self._compiled: tuple[CompiledKernel, ...] | None = None
        self._compiling = threading.Lock()
        self._artifacts: tuple[LoweredKernel, ...] | None = None

    def launch(self, *arguments: Any) -> None:
        """Enqueue one launch on the current stream of the current device; allocate nothing, wait for nothing.

        Subclasses give it arguments of their own and call what `compile` returns.
        """
        raise NotImplementedError

    def compile(self) -> tuple[CompiledKernel, ...]:
        """Compile every step, or load it from the disk cache, unless that is done already.

        Raises:
            CompilationError: a kernel does not compile here.
        """
        with self._compiling:
            if self._compiled is None:
                self._compiled = tuple(compile_kernel(step, self.chip.arch) for step in self.prim_funcs())
            return self._compiled

    def artifacts(self) -> tuple[LoweredKernel, ...]:
        """Source and launch configuration of every step. Works without the chip.

        Raises:
            CompilationError: TileLang cannot generate a kernel.
        """
        if self._artifacts is None:  # a tenth of a second or more, and hundreds of cases may share the kernel
            self._artifacts = tuple(lower(step, self.chip.arch) for step in self.prim_funcs())
        return self._artifacts

    def prim_funcs(self) -> tuple[Any, ...]:
        """The TileLang kernels, one a step.

        Raises:
            TypeError: the builder gives other kernels than `steps` names.
        """
        from tilekernels.dialect import dialect_for  # noqa: PLC0415 - importing TileLang takes 2-2.5 s

        build, dialect = import_module(self.module).build, dialect_for(self.chip.kind)
        with tracing:
            made = despite_parser_clashes(lambda: build(self.spec, self.tile, dialect))
        made = made if isinstance(made, tuple) else (made,)
        names = tuple(str(step.attrs["global_symbol"]) for step in made)
        if names != self.steps:
            raise TypeError(f"{self.module}.build gave the kernels {names}, and {type(self).__name__} has {self.steps}")
        return made

    def __repr__(self) -> str:
        """Name family, chip, specification and tile."""
        return f"{type(self).__name__}({self.chip.arch} {self.spec} {self.tile})"


SomeKernel = TypeVar("SomeKernel", bound=Kernel)

_kernels: dict[tuple[type[Kernel], str, Any, Any], Kernel] = {}


def shared(family: type[SomeKernel], chip: Chip, spec: Any, tile: Any) -> SomeKernel:
    """The kernel of a family for a chip's architecture, a specification and a tile: the same object every time."""
    key = (family, chip.arch, spec, tile)
    kernel = _kernels.get(key)
    if kernel is None:
        kernel = _kernels.setdefault(key, family(chip, spec, tile))
    return kernel  # type: ignore[return-value]


def compile_kernels(kernels: Iterable[Kernel], *, progress: bool = True) -> None:
    """Compile what is not compiled yet, in parallel.

    Args:
        kernels: of any families.
        progress: show a progress bar on stderr; it appears only if there is something to compile.

    Raises:
        CompilationError: some did not compile; names them. The others did.
    """
    wanted = [kernel for kernel in dict.fromkeys(kernels) if kernel._compiled is None]
    jobs = [
        CompileJob(lambda kernel=kernel, step=step: kernel.prim_funcs()[step], kernel.chip.arch, _label(kernel, step))
        for kernel in wanted
        for step in range(len(kernel.steps))
    ]
    compiled = iter(compile_many(jobs, progress=progress))
    for kernel in wanted:
        kernel._compiled = tuple(next(compiled) for _ in kernel.steps)


def _label(kernel: Kernel, step: int) -> str:
    return repr(kernel) if len(kernel.steps) == 1 else f"{kernel!r} {kernel.steps[step]}"


def resolve(device: torch.device | str | None) -> torch.device | str:
    """Name a device or an architecture so that it stays the same whatever the current device becomes.

    Args:
        device: a torch device; or the name of an architecture ("gfx942"), to look at its kernels anywhere; the current GPU,
            or the CPU where there is none, when None.
    """
    if isinstance(device, str) and device in CHIPS:
        return device
    import torch  # noqa: PLC0415 - an architecture's kernels can be looked at without torch

    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    where = torch.device(device)
    if where.type == "cuda" and where.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return where


def chip_at(device: torch.device | str) -> Chip:
    """The chip of what `resolve` gives.

    Raises:
        ValueError: as `chips.chip_of`.
    """
    return CHIPS[device] if isinstance(device, str) else chip_of(device)
