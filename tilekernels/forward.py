"""Forward attention kernels in memory: one for each specification and tile, whatever the lengths, heads and batch."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any

from tilekernels.chips import Chip
from tilekernels.handle import Kernel, chip_at, compile_kernels, resolve, shared
from tilekernels.policy import TileConfig, choose_tiles
from tilekernels.problem import AttentionProblem

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class ForwardSpec:
    """What is compiled into a forward kernel; batch, heads and lengths are not: they are arguments."""

    head_dim: int
    dtype: str
    causal: bool
    head_dim_v: int | None = None
    window_left: int | None = None
    window_right: int | None = None
    softcap: float = 0.0
    sinks: bool = False


class ForwardKernel(Kernel):
    """One forward kernel for one chip: it reads batch, heads, kv heads and both lengths from the tensors of each launch.

    Args:
        chip: what it is compiled for.
        problem_key: the fields of a `ForwardSpec`.
        tile: how it divides the work.
    """

    module = "tilekernels.kernels.attention_forward"
    steps = ("attention_forward",)

    def __init__(self, chip: Chip, problem_key: tuple[int, str, bool] | ForwardSpec, tile: TileConfig) -> None:
        """Describe a kernel; nothing is compiled."""
        spec = problem_key if isinstance(problem_key, ForwardSpec) else ForwardSpec(*problem_key)
        super().__init__(chip, spec, tile)

    @property
    def problem_key(self) -> tuple[Any, ...]:
        """All that it knows of the problem: head dimension, dtype, mask; all fields of the specification where others are set."""
        values = astuple(self.spec)
        return values[:3] if self.spec == ForwardSpec(*values[:3]) else values

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
        (self._compiled or self.compile())[0](q, k, v, out, lse, softmax_scale)

    def __repr__(self) -> str:
        """Name chip, problem and tile."""
        mask = "causal" if self.spec.causal else "full"
        return f"ForwardKernel({self.chip.arch} {self.spec.dtype} d{self.spec.head_dim} {mask} {self.tile})"


def forward_kernel(
    problem: AttentionProblem, policy: str = "adaptive", device: torch.device | str | None = None
) -> ForwardKernel:
    """The kernel that `policy` gives a problem; the same object for every problem that the same kernel serves.

    Args:
        problem: shapes, dtype and mask.
        policy: "adaptive" or "fixed".
        device: as for `handle.resolve`.

    Raises:
        TypeError, ValueError: as `policy.choose_tiles` and `chips.chip_of`.
    """
    return _find(problem, policy, resolve(device))


@functools.lru_cache(maxsize=4096)  # choosing a tile takes longer than everything else before a launch
def _find(problem: AttentionProblem, policy: str, device: torch.device | str) -> ForwardKernel:
    chip = chip_at(device)
    spec = ForwardSpec(problem.head_dim, problem.dtype, problem.causal)
    return shared(ForwardKernel, chip, spec, choose_tiles(problem, chip, policy))


def precompile(
    problems: Iterable[AttentionProblem],
    policies: Iterable[str] = ("adaptive",),
    device: torch.device | str | None = None,
    *,
    backward: bool = False,
    progress: bool = True,
) -> None:
    """Compile every kernel that these problems need, in parallel, with a progress bar on stderr.

    Args:
        problems: as for `forward_kernel`; many may share a kernel.
        policies: which policies' kernels.
        device: as for `forward_kernel`.
        backward: also what their gradients need.
        progress: show the progress bar; it appears only if there is something to compile.

    Raises:
        CompilationError: some did not compile; names them. The others did.
        TypeError, ValueError: as `forward_kernel`.
    """
    from tilekernels.backward import backward_kernel, fused_kernel  # noqa: PLC0415 - who infers needs neither

    policies = tuple(policies)
    wanted = [(problem, policy) for problem in problems for policy in policies]
    kernels: list[Kernel] = [forward_kernel(problem, policy, device) for problem, policy in wanted]
    if backward:
        kernels += [backward_kernel(problem, policy, device) for problem, policy in wanted]
        fused = [fused_kernel(problem, resolve(device)) for problem, _ in wanted]
        kernels += [kernel for kernel in fused if kernel is not None]
    compile_kernels(kernels, progress=progress)
