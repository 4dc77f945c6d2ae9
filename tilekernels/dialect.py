"""What differs between targets inside a kernel: where a tile lives and how a loop over it is written.

A kernel is one Python function for every target; the `Dialect` it is given supplies the allocators and the elementwise
loop. On a GPU a staging tile is shared memory (LDS), an accumulator is a register fragment spread over the threads of
the workgroup, and an elementwise loop is `T.Parallel`. On the CPU a workgroup is one thread: tiles and accumulators are
arrays on the stack, and the loop is a plain nest.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Dialect:
    """Allocators and loops of one family of targets.

    Attributes:
        name: "cpu", "cuda" or "hip".
        alloc_tile: `(shape, dtype) -> buffer` for a tile that the whole workgroup reads (Q, K, V).
        alloc_accumulator: `(shape, dtype) -> buffer` for values that stay with their thread (scores, output, row sums).
        parallel: `(*extents) -> loop` over the elements of a tile, in any order.
        stages_output: whether a result goes through a staging tile on its way out, so that each thread stores wide rows
            (or TMA does) instead of the few elements that the matrix unit left in its registers.
        transposes_v: whether V lies transposed in its staging tile, (head_dim, block_n): the AMD matrix unit takes that
            operand four keys at a time, which from rows of V are four LDS reads of two bytes each. A store through
            registers costs fewer instructions than those reads. Hopper's transposes by itself.
        exp2: `(float32) -> float32`, 2**x of a softmax: exp2(-inf) = 0 and NaN stays NaN; a subnormal result may be 0.
        tanh: `(float32) -> float32`, with an absolute error of at most 4 * 2**-24.
        start_gemm: as `T.gemm`, but does not wait for the result: `T.wait_wgmma` does. None where there is no such thing.
        in_use: `(tile) -> statement` that generates nothing: TileLang lets a tile be loaded anew after the last statement
            that names it, and does not see that a product is still under way.
    """

    name: str
    alloc_tile: Callable[..., Any]
    alloc_accumulator: Callable[..., Any]
    parallel: Callable[..., Any]
    stages_output: bool
    transposes_v: bool
    exp2: Callable[..., Any]
    tanh: Callable[..., Any]
    start_gemm: Callable[..., Any] | None = None
    in_use: Callable[..., Any] | None = None


def dialect_for(name: str) -> Dialect:
    """The dialect of a target family.

    Args:
        name: "cpu", "cuda" or "hip".

    Raises:
        ValueError: for any other name.
    """
    import tilelang.language as T  # noqa: PLC0415 - takes 2-2.5 s, and only kernel builders need it

    if name == "cpu":
        # Scope "shared" and not the default "shared.dyn": TileLang's C code generator takes one dynamic buffer at most.
        return Dialect(
            name,
            alloc_tile=lambda shape, dtype: T.alloc_shared(shape, dtype, scope="shared"),
            alloc_accumulator=T.alloc_local,
            parallel=T.grid,
            stages_output=False,
            transposes_v=False,
            exp2=T.exp2,
            tanh=T.tanh,
        )

    def tanh_by(exp2: Callable[..., Any]) -> Callable[..., Any]:
        # CUDA's fast math makes tanhf an instruction with an error of 2**-11. Here the exponential's error of 2 units in the
        # last place weighs at most a half; infinity gives 1.
        return lambda x: 1.0 - 2.0 / (1.0 + exp2(x * (2 * math.log2(math.e))))

    cuda = Dialect(
        "cuda",
        alloc_tile=T.alloc_shared,
        alloc_accumulator=T.alloc_fragment,
        parallel=T.Parallel,
        stages_output=True,
        transposes_v=False,
        exp2=T.exp2,
        tanh=tanh_by(T.exp2),
    )
    if name == "cuda":
        from tilelang.cuda.language import wgmma_gemm  # noqa: PLC0415

        return replace(
            cuda,
            start_gemm=wgmma_gemm,
            in_use=lambda tile: T.call_extern("handle", "(void)", T.address_of(tile[0, 0])),
        )
    if name == "hip":
        # HIP's exp2f keeps subnormal results, with four instructions around the one that computes. The terms of a row's
        # softmax are at most 1 and one of them is 1: it loses none above 2**-126.
        def exp2(x: Any) -> Any:
            return T.call_extern("float32", "__builtin_amdgcn_exp2f", x)

        return replace(cuda, name=name, transposes_v=True, exp2=exp2, tanh=tanh_by(exp2))
    raise ValueError(f"unknown dialect {name!r}; expected 'cpu', 'cuda' or 'hip'")
