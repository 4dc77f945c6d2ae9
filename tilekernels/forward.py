"""Forward attention kernels in memory: one for each specification and tile, whatever the lengths, heads and batch."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tilekernels.chips import CHIPS, Chip, chip_of
from tilekernels.compiler import (
    CompiledKernel,
    CompileJob,
    LoweredKernel,
    compile_kernel,
    compile_many,
    despite_parser_clashes,
    lower,
)
from tilekernels.policy import TileConfig, choose_tiles
from tilekernels.problem import AttentionProblem

if TYPE_CHECKING:
    import torch


class ForwardKernel:
    """One forward kernel for one chip; compiled at the first launch, unless `compile` or `precompile` came before.

    Attributes:
        chip: what it is compiled for.
        tile: how it divides the work.
        problem_key: (head_dim, dtype, causal), all that it knows of the problem: batch, heads, kv_heads and both
            lengths are read from the tensors of each launch.
    """

    def __init__(self, chip: Chip, problem_key: tuple[int, str, bool], tile: TileConfig) -> None:
        """Describe a kernel; nothing is compiled."""
        self.chip = chip
        self.problem_key = problem_key
        self.tile = tile
        self._compiled: CompiledKernel | None = None
        self._compiling = threading.Lock()
        self._artifacts: tuple[LoweredKernel, ...] | None = None

    def launch(  # noqa: PLR0917 - the kernel's own argument list, on the path that is timed
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        out: torch.Tensor,
        lse: torch.Tensor,
        softmax_scale: float,
    ) -> None:
        """Enqueue one launch on the current stream of the current device. Allocates nothing, waits for nothing.

        Shapes are the caller's to get right; `attention` checks them. At least one query, key and batch entry.

        Args:
            q: (batch, seqlen_q, heads, head_dim); contiguous and aligned to 16 bytes, like all of them.
            k: (batch, seqlen_k, kv_heads, head_dim); kv_heads divides heads.
            v: as k.
            out: as q; written.
            lse: (batch, heads, seqlen_q), float32; written.
            softmax_scale: > 0; multiplies Q K^T.

        Raises:
            CompilationError: at the first launch, when the kernel does not compile.
        """
        (self._compiled or self.compile())(q, k, v, out, lse, softmax_scale)

    def compile(self) -> CompiledKernel:
        """Compile, or load from the disk cache, unless that is done already.

        Raises:
            CompilationError: the kernel does not compile here.
        """
        with self._compiling:
            if self._compiled is None:
                self._compiled = compile_kernel(self.prim_func(), self.chip.arch)
            return self._compiled

    def artifacts(self) -> tuple[LoweredKernel, ...]:
        """Source and launch configuration of every kernel that a launch starts. Works without the chip.

        Raises:
            CompilationError: TileLang cannot generate the kernel.
        """
        if self._artifacts is None:  # a tenth of a second or more, and hundreds of cases may share the kernel
            self._artifacts = (lower(self.prim_func(), self.chip.arch),)
        return self._artifacts

    def prim_func(self) -> Any:
        """The TileLang kernel."""
        # Importing TileLang takes 2-2.5 s.
        from tilekernels.dialect import dialect_for  # noqa: PLC0415
        from tilekernels.kernels.attention_forward import ForwardSpec, build  # noqa: PLC0415

        spec, dialect = ForwardSpec(*self.problem_key), dialect_for(self.chip.kind)
        return despite_parser_clashes(lambda: build(spec, self.tile, dialect))

    def __repr__(self) -> str:
        """Name chip, problem and tile."""
        head_dim, dtype, causal = self.problem_key
        mask = "causal" if causal else "full"
        return f"ForwardKernel({self.chip.arch} {dtype} d{head_dim} {mask} {self.tile})"


_kernels: dict[tuple[str, tuple[int, str, bool], TileConfig], ForwardKernel] = {}


def forward_kernel(
    problem: AttentionProblem, policy: str = "adaptive", device: torch.device | str | None = None
) -> ForwardKernel:
    """The kernel that `policy` gives a problem; the same object for every problem that the same kernel serves.

    Args:
        problem: shapes, dtype and mask.
        policy: "adaptive" or "fixed".
        device: a torch device; or the name of an architecture ("gfx942"), to look at its kernels anywhere; the current
            GPU, or the CPU where there is none, when None.

    Raises:
        TypeError, ValueError: as `policy.choose_tiles` and `chips.chip_of`.
    """
    return _find(problem, policy, _resolve(device))


def _resolve(device: torch.device | str | None) -> torch.device | str:
    """Name the device or architecture so that it stays the same whatever the current device becomes."""
    if isinstance(device, str) and device in CHIPS:
        return device
    import torch  # noqa: PLC0415 - an architecture's kernels can be looked at without torch

    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    where = torch.device(device)
    if where.type == "cuda" and where.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return where


@functools.lru_cache(maxsize=4096)  # choosing a tile takes longer than everything else before a launch
def _find(problem: AttentionProblem, policy: str, device: torch.device | str) -> ForwardKernel:
    chip = CHIPS[device] if isinstance(device, str) else chip_of(device)
    tile = choose_tiles(problem, chip, policy)
    key = (chip.arch, (problem.head_dim, problem.dtype, problem.causal), tile)
    kernel = _kernels.get(key)
    if kernel is None:
        kernel = _kernels.setdefault(key, ForwardKernel(chip, key[1], tile))
    return kernel


def precompile(
    problems: Iterable[AttentionProblem],
    policies: Iterable[str] = ("adaptive",),
    device: torch.device | str | None = None,
    *,
    progress: bool = True,
) -> None:
    """Compile every kernel that these problems need, in parallel, with a progress bar on stderr.

    Args:
        problems: as for `forward_kernel`; many may share a kernel.
        policies: which policies' kernels.
        device: as for `forward_kernel`.
        progress: show the progress bar; it appears only if there is something to compile.

    Raises:
        CompilationError: some did not compile; names them. The others did.
        TypeError, ValueError: as `forward_kernel`.
    """
    policies = tuple(policies)
    kernels = {forward_kernel(problem, policy, device): None for problem in problems for policy in policies}
    wanted = [kernel for kernel in kernels if kernel._compiled is None]
    jobs = [CompileJob(kernel.prim_func, kernel.chip.arch, repr(kernel)) for kernel in wanted]
    for kernel, compiled in zip(wanted, compile_many(jobs, progress=progress), strict=True):
        kernel._compiled = compiled
