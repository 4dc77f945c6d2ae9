"""One step of online softmax, and what it comes to, for every forward kernel."""

# No `from __future__ import annotations`: what is imported by builders has to do without, as they do.
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import tilelang.language as T

if TYPE_CHECKING:
    from tilekernels.dialect import Dialect

LOWEST = -1e30
"""Where a running maximum starts. Finite: a row that has seen nothing would otherwise compute -inf - -inf = NaN. Far below
any score of finite fp16 inputs (65504**2 * head_dim), and scaling it does not overflow float32."""

_LOG2_E = math.log2(math.e)


@dataclass(frozen=True)
class OnlineSoftmax:
    """The parts of a kernel's softmax; row vectors hold one float32 a row of the tile.

    Attributes:
        unit: `(softmax_scale) -> factor` that makes a natural logarithm of a score as `step` takes it.
        scale: the same to base 2. exp2 is the hardware's exponential: scores are scaled by log2(e) once instead of at
            every exponential.
        cap: macro `(scores, softmax_scale)`: tanh(scores * softmax_scale / softcap), in units of softcap.
        step: macro `(scores, row_max, row_max_before, rescale, row_sum, tile_sum, scale)`: scores become their weights
            under the new maximum, and rescale the factor of what was summed up under the old one.
        lse: `(row_max, row_sum, softmax_scale) -> log-sum-exp`, natural.
    """

    unit: Callable[[Any], Any]
    scale: Callable[[Any], Any]
    cap: Any
    step: Any
    lse: Callable[[Any, Any, Any], Any]


def online_softmax(dialect: "Dialect", block_m: int, block_n: int, softcap: float = 0.0) -> OnlineSoftmax:
    """The softmax of tiles of block_m rows and block_n keys; softcap as in `ForwardSpec`."""
    parallel, exp2 = dialect.parallel, dialect.exp2

    def unit(softmax_scale):
        return T.float32(softcap) if softcap else softmax_scale

    def scale(softmax_scale):
        return T.float32(softcap * _LOG2_E) if softcap else softmax_scale * _LOG2_E

    @T.macro
    def cap(scores, softmax_scale):
        for m, n in parallel(block_m, block_n):
            scores[m, n] = dialect.tanh(scores[m, n] * (softmax_scale / softcap))

    @T.macro
    def step(scores, row_max, row_max_before, rescale, row_sum, tile_sum, scale):
        T.copy(row_max, row_max_before)
        T.reduce_max(scores, row_max, dim=1, clear=False)
        for m in parallel(block_m):
            row_max[m] = T.max(row_max[m], row_max_before[m])
        # The difference first: a fused multiply-add would make 1 +- 1e-7 of an unchanged maximum, in every tile.
        for m in parallel(block_m):
            rescale[m] = exp2((row_max_before[m] - row_max[m]) * scale)
        for m, n in parallel(block_m, block_n):
            scores[m, n] = exp2(scores[m, n] * scale - row_max[m] * scale)
        T.reduce_sum(scores, tile_sum, dim=1)
        for m in parallel(block_m):
            row_sum[m] = row_sum[m] * rescale[m] + tile_sum[m]

    def lse(row_max, row_sum, softmax_scale):
        # log1p: under CUDA's fast math every other logarithm has a relative error of 2**-22, too much for an LSE of a long
        # row. The largest term of row_sum is 1, so nothing cancels.
        return row_max * unit(softmax_scale) + T.log1p(row_sum - 1.0)

    return OnlineSoftmax(unit, scale, cap, step, lse)
