"""Matrix instructions against AMD's documented layouts, written down here a second time, from the matrix to the lanes.

Source: AMD's matrix instruction calculator (github.com/ROCm/amd_matrix_instruction_calculator), "--register-layout" of each
instruction: A[i][k] lies in lane i + R*(k // n), value k % n, with n values a lane; B[k][j] in lane j + R*(k // n), value
k % n; D[i][j] of 16 x 16 in lane j + 16*(i // 4), value i % 4; of 32 x 32 in lane j + 32*((i // 4) % 2), value
4*(i // 8) + i % 4.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from small_hip_kernels import run

CDNA2, CDNA3, CDNA4 = ("gfx90a",), ("gfx942", "gfx950"), ("gfx950",)
ALL = CDNA2 + CDNA3

# name, R, K, bytes of one lane's operand, type in C++, chips
INSTRUCTIONS = [
    ("f32_16x16x16f16", 16, 16, 8, "float16x4", ALL),
    ("f32_32x32x8f16", 32, 8, 8, "float16x4", ALL),
    ("f32_16x16x16bf16_1k", 16, 16, 8, "bfloat16x4_vec", ALL),
    ("f32_32x32x8bf16_1k", 32, 8, 8, "bfloat16x4_vec", ALL),
    ("f32_16x16x4f32", 16, 4, 4, "float", ALL),
    ("f32_32x32x2f32", 32, 2, 4, "float", ALL),
    ("i32_16x16x16i8", 16, 16, 4, "int", CDNA2),
    ("i32_32x32x8i8", 32, 8, 4, "int", CDNA2),
    ("i32_16x16x32_i8", 16, 32, 8, "int64_t", CDNA3),
    ("i32_32x32x16_i8", 32, 16, 8, "int64_t", CDNA3),
    *[(f"f32_16x16x32_{a}_{b}", 16, 32, 8, "int64_t", CDNA3) for a in ("fp8", "bf8") for b in ("fp8", "bf8")],
    *[(f"f32_32x32x16_{a}_{b}", 32, 16, 8, "int64_t", CDNA3) for a in ("fp8", "bf8") for b in ("fp8", "bf8")],
    ("f32_16x16x32_f16", 16, 32, 16, "float16x8", CDNA4),
    ("f32_32x32x16_f16", 32, 16, 16, "float16x8", CDNA4),
    ("f32_16x16x32_bf16", 16, 32, 16, "bfloat16x8_vec", CDNA4),
    ("f32_32x32x16_bf16", 32, 16, 16, "bfloat16x8_vec", CDNA4),
    ("i32_16x16x64_i8", 16, 64, 16, "int32x4", CDNA4),
    ("i32_32x32x32_i8", 32, 32, 16, "int32x4", CDNA4),
]

# Small integers in each format, as bits: value -> encoding. OCP and FNUZ (one more in the exponent's bias) of 8-bit floats.
SMALL = np.array([0, 1, 2, 4, -1, -2, -4, 3])


def encode(kind: str, values: np.ndarray, arch: str) -> np.ndarray:
    if kind == "f16":
        return values.astype(np.float16)
    if kind == "bf16":
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    if kind == "f32":
        return values.astype(np.float32)
    if kind == "i8":
        return values.astype(np.int8)
    mantissa = 3 if kind == "fp8" else 2
    bias = (7 if kind == "fp8" else 15) + (arch == "gfx942")
    exponent = np.floor(np.log2(np.where(values == 0, 1, np.abs(values)))).astype(int)  # of normal numbers
    fraction = (np.abs(values) / 2.0**exponent - 1) * 2**mantissa
    code = ((exponent + bias) << mantissa) + fraction.astype(int)
    return np.where(values == 0, 0, code | np.where(values < 0, 128, 0)).astype(np.uint8)


def types_of(name: str) -> tuple[str, str]:
    for a in ("fp8", "bf8"):
        for b in ("fp8", "bf8"):
            if name.endswith(f"_{a}_{b}"):
                return a, b
    for kind in ("bf16", "f16", "i8", "f32"):
        if name.removesuffix("_1k").endswith(kind):
            return kind, kind
    raise AssertionError(name)


def in_lanes(matrix: np.ndarray, n: int) -> np.ndarray:
    """(R, K) of A, or the transpose of B, as (64, n)."""
    rows, depth = matrix.shape
    lanes = np.empty((64, n), matrix.dtype)
    for i in range(rows):
        for k in range(depth):
            lanes[i + rows * (k // n), k % n] = matrix[i, k]
    return lanes


def results_in_lanes(matrix: np.ndarray) -> np.ndarray:
    size = len(matrix)
    lanes = np.empty((64, size * size // 64), matrix.dtype)
    for i in range(size):
        for j in range(size):
            if size == 16:
                lanes[j + 16 * (i // 4), i % 4] = matrix[i, j]
            else:
                lanes[j + 32 * (i // 4 % 2), 4 * (i // 8) + i % 4] = matrix[i, j]
    return lanes


CASES = [(name, arch) for name, *_, archs in INSTRUCTIONS for arch in archs]


def call(name: str, arch: str, a: np.ndarray, b: np.ndarray, c: np.ndarray, *, rounding: str = "chip") -> np.ndarray:
    """The instruction of lanes' operands as bytes (64, bytes) and accumulators (64, values)."""
    _, size, _, _, operand, _ = next(entry for entry in INSTRUCTIONS if entry[0] == name)
    accumulator = f"{'int32' if name.startswith('i32') else 'float32'}x{size * size // 64}"
    body = f"  (({accumulator}*)d)[t] = __builtin_amdgcn_mfma_{name}((({operand}*)a)[t], (({operand}*)b)[t], (({accumulator}*)c)[t], 0, 0, 0);"
    element = "int" if name.startswith("i32") else "float"
    parameters = (
        f"{element}* __restrict__ d, {element}* __restrict__ c, uint8_t* __restrict__ a, uint8_t* __restrict__ b"
    )
    d = np.zeros_like(c)
    arguments = {"d": d, "c": c, "a": a.copy().view(np.uint8), "b": b.copy().view(np.uint8)}
    done = run(body, arguments, parameters=parameters, arch=arch, traced=False, rounding=rounding)
    assert done.findings == ()
    return d


@pytest.mark.parametrize(("name", "arch"), CASES, ids=[f"{name}-{arch}" for name, arch in CASES])
def test_layout(name: str, arch: str) -> None:
    _, size, depth, width, _, _ = next(entry for entry in INSTRUCTIONS if entry[0] == name)
    random = np.random.default_rng(size * depth)
    a, b = random.choice(SMALL, (size, depth)), random.choice(SMALL, (depth, size))
    c = random.integers(-99, 99, (size, size))
    kind_a, kind_b = types_of(name)
    n = size * depth // 64
    lanes_a, lanes_b = in_lanes(encode(kind_a, a, arch), n), in_lanes(encode(kind_b, b.T, arch), n)
    assert lanes_a.itemsize * n == width
    dtype = np.int32 if name.startswith("i32") else np.float32
    d = call(name, arch, lanes_a, lanes_b, results_in_lanes(c.astype(dtype)))
    assert np.array_equal(d, results_in_lanes((a @ b + c).astype(dtype)))


def test_rounding_models() -> None:
    name, arch = "f32_16x16x16f16", "gfx942"
    random = np.random.default_rng(0)
    a, b = (random.standard_normal((16, 16)).astype(np.float16) for _ in range(2))
    c = random.standard_normal((16, 16)).astype(np.float32)
    exact = a.astype(np.float64) @ b.astype(np.float64) + c
    arguments = in_lanes(a, 4), in_lanes(np.ascontiguousarray(b.T), 4), results_in_lanes(c)
    results = {rounding: call(name, arch, *arguments, rounding=rounding) for rounding in ("fma", "exact", "groups")}
    assert np.array_equal(results["exact"], results_in_lanes(exact.astype(np.float32)))
    one = np.abs(results["exact"] - results_in_lanes(exact)).max()
    for rounding in ("fma", "groups"):
        error = np.abs(results[rounding] - results_in_lanes(exact)).max()
        assert one < error < 16 * 2.0**-24 * 30
    assert not np.array_equal(results["fma"], results["groups"])


def cut_off(a: np.ndarray, b: np.ndarray, c: float, least: int, *, apart: int) -> float:
    """A second statement of the chip's sum of products (runtime/rounding.h), in exact fractions."""

    def exponent(x: float, least: int) -> int:
        return -126 if x == 0 else max(math.frexp(x)[1] - 1, least)

    def cut(x: Fraction, unit: int, *, down: bool) -> Fraction:
        scaled = x / Fraction(2) ** unit
        return (math.floor(scaled) if down else math.trunc(scaled)) * Fraction(2) ** unit

    sums = []
    for part in range(apart):
        pairs = [(float(x), float(y)) for x, y in zip(a[part::apart], b[part::apart], strict=True)]
        top = max(exponent(x, least) + exponent(y, least) for x, y in pairs)
        sums.append((top, sum((cut(Fraction(x) * Fraction(y), top - 24, down=False) for x, y in pairs), Fraction())))
    top = max(part for part, _ in sums)
    whole = sum((cut(value, top - 24, down=True) for _, value in sums), Fraction())
    above = max(top, exponent(c, -126))
    addend = cut(Fraction(c), above - 24, down=True)
    if apart == 2 and exponent(c, -126) < above - 25:
        addend = Fraction(0)
    return float(np.float32(float(cut(whole, above - 31, down=True) + addend)))


@pytest.mark.parametrize(
    ("name", "kind", "together", "apart", "least"),
    [("f32_16x16x16f16", "f16", 8, 1, -14), ("f32_16x16x32_fp8_fp8", "fp8", 16, 2, -7)],
)
def test_the_chip_cuts_products_off(name: str, kind: str, together: int, apart: int, least: int) -> None:
    depth = 2 * together
    random = np.random.default_rng(1)
    exponents = random.integers(-6, 6, (2, 16, depth))
    a, b = random.choice([-1.5, -1.0, 0.0, 1.0, 1.25, 1.75], (2, 16, depth)) * 2.0**exponents
    c = (random.standard_normal((16, 16)) * 2.0 ** random.integers(-20, 12, (16, 16))).astype(np.float32)
    n = depth // 4
    operands = in_lanes(encode(kind, a, "gfx942"), n), in_lanes(encode(kind, b, "gfx942"), n)
    got = call(name, "gfx942", *operands, results_in_lanes(c), rounding="chip")
    expected = c.astype(np.float64)
    for k in range(0, depth, together):
        for row in range(16):
            for column in range(16):
                part = slice(k, k + together)
                expected[row, column] = cut_off(
                    a[row, part], b[column, part], expected[row, column], least, apart=apart
                )
    assert np.array_equal(got, results_in_lanes(expected.astype(np.float32)))
    assert not np.array_equal(got, call(name, "gfx942", *operands, results_in_lanes(c), rounding="exact"))


@pytest.mark.parametrize(("arch", "expected"), [("gfx90a", 0.0), ("gfx942", 2.0**-18 * 4)])
def test_gfx90a_takes_subnormal_inputs_for_zero(arch: str, expected: float) -> None:
    a = np.zeros((16, 16), np.float16)
    a[0, 0] = 2.0**-16  # subnormal in half precision
    b = np.zeros((16, 16), np.float16)
    b[0, 0] = 1
    c = np.zeros((64, 4), np.float32)
    d = call("f32_16x16x16f16", arch, in_lanes(a, 4), in_lanes(b, 4), c)
    assert d[0, 0] == expected


@pytest.mark.parametrize(
    ("name", "arch"), [("f32_16x16x32_f16", "gfx942"), ("f32_16x16x32_fp8_fp8", "gfx90a"), ("f64_16x16x4f64", "gfx942")]
)
def test_an_instruction_that_the_chip_or_the_emulator_lacks_is_named(name: str, arch: str) -> None:
    from small_hip_kernels import out

    from tilegate import emulator

    with pytest.raises(emulator.UnsupportedKernel, match=f"__builtin_amdgcn_mfma_{name}") as caught:
        run(
            f"  float32x4 c = {{0}};\n  c = __builtin_amdgcn_mfma_{name}(t, t, c, 0, 0, 0);\n  out[t] = (int)c[0];",
            {"out": out()},
            arch=arch,
        )
    assert "line 15" in str(caught.value)
