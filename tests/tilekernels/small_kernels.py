"""A kernel that lowers and compiles fast, and what is broken about it on request."""

from typing import Any

import tilelang.language as T


def scale_rows(dtype: str = "float32", width: int = 16, factor: float = 2.0) -> Any:
    """B = factor * A for A of shape (rows, width); rows is a symbol."""
    rows = T.dynamic("rows")

    @T.prim_func
    def scale_rows(A: T.Tensor((rows, width), dtype), B: T.Tensor((rows, width), dtype)):
        with T.Kernel(rows, threads=64) as row:
            for i in T.grid(width):
                B[row, i] = A[row, i] * T.cast(factor, dtype)

    return scale_rows


def two_dynamic_tiles() -> Any:
    """What TileLang's C code generator rejects: two tiles in dynamic shared memory."""
    rows = T.dynamic("rows")

    @T.prim_func
    def two_dynamic_tiles(A: T.Tensor((rows, 16), "float32"), B: T.Tensor((rows, 16), "float32")):
        with T.Kernel(rows, threads=64) as row:
            first = T.alloc_shared((16,), "float32")
            second = T.alloc_shared((16,), "float32")
            for i in T.grid(16):
                first[i] = A[row, i]
            for i in T.grid(16):
                second[i] = first[15 - i]
            for i in T.grid(16):
                B[row, i] = second[i] + first[i]

    return two_dynamic_tiles
