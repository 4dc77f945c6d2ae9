"""Rows divided by their sums: sums first, then the division."""

from typing import Any

import tilelang.language as T


def build(spec: Any, tile: Any, dialect: Any) -> Any:
    rows, width, block, dtype = T.dynamic("rows"), spec.width, tile.rows, spec.dtype
    alloc_accumulator, parallel = dialect.alloc_accumulator, dialect.parallel

    @T.prim_func
    def row_sums(X: T.Tensor((rows, width), dtype), Sums: T.Tensor((rows,), "float32")):
        with T.Kernel(T.ceildiv(rows, block), threads=tile.threads) as step:
            x = alloc_accumulator((block, width), "float32")
            total = alloc_accumulator((block,), "float32")
            T.copy(X[step * block : (step + 1) * block, :], x)
            T.reduce_sum(x, total, dim=1)
            for i in parallel(block):
                if step * block + i < rows:
                    Sums[step * block + i] = total[i]

    @T.prim_func
    def divide_rows(
        X: T.Tensor((rows, width), dtype),
        Sums: T.Tensor((rows,), "float32"),
        Y: T.Tensor((rows, width), dtype),
        factor: T.float32,
    ):
        with T.Kernel(T.ceildiv(rows, block), threads=tile.threads) as step:
            for i, j in parallel(block, width):
                if step * block + i < rows:
                    Y[step * block + i, j] = X[step * block + i, j] / Sums[step * block + i] * factor

    return row_sums, divide_rows
