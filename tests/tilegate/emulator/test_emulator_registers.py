"""Values that nothing has written, indices that leave an array, and integers that wrap: each is found and named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from small_hip_kernels import kinds, line_of, out, run

FLOATS = "float* __restrict__ out"


def test_an_accumulator_that_is_never_cleared_is_named() -> None:
    body = """  float acc[4];  // declared
  for (int k = 0; k < n; ++k)
    *(float32x4*)acc = __builtin_amdgcn_mfma_f32_16x16x16f16(((float16x4*)a)[t], ((float16x4*)a)[t], *(float32x4*)acc, 0, 0, 0);
  *(float4*)(out + 4 * t) = *(float4*)acc;  // stored"""
    arguments = {"out": out(256, np.float32), "a": np.ones((64, 4), np.float16).view(np.uint8), "n": 3}
    parameters = f"{FLOATS}, uint8_t* __restrict__ a, int n"
    done = run(body, arguments, parameters=parameters, registers=True)
    (found,) = done.findings
    assert (found.kind, found.line) == ("uninitialised", line_of(body, "// stored"))
    assert f"the variable acc of line {line_of(body, '// declared')}" in found.message
    cleared = run(body.replace("acc[4];", "acc[4] = {0, 0, 0, 0};"), arguments, parameters=parameters, registers=True)
    assert cleared.findings == ()


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ("  float acc[16];\n  for (int i = 0; i < n; ++i) acc[i] += 1.0f;\n  out[t] = acc[t & 15];", True),
        ("  float x;\n  if (t < n) x = 1;\n  out[t] = x;", True),  # of some lanes
        ("  float x;\n  if (t < n) x = 1;\n  out[t] = t < n ? x : 0;", False),
        ("  float x;\n  x = __shfl_xor(x, 1);\n  out[t] = 1;", False),  # read, and not used
        ("  float x;\n  if (t & 1) x = 1;\n  out[t] = __shfl(x, 1);", False),
        ("  float x;\n  if (t & 1) x = 1;\n  out[t] = __shfl(x, 0);", True),
        ("  float x;\n  if (__ballot(x > 0)) out[t] = 1;", True),  # what all decide by
        ("  int i;\n  if (n < 0) i = 0;\n  out[i & 63] = 1;", True),  # an address
    ],
)
def test_what_depends_on_nothing_written_is_found(body: str, fault: bool) -> None:
    done = run(body, {"out": out(64, np.float32), "n": 16}, parameters=f"{FLOATS}, int n", registers=True)
    assert ("uninitialised" in kinds(done)) is fault, done.findings


def test_lds_that_is_read_and_not_used_is_no_fault() -> None:
    body = "  if (t < 63) lds[t] = t;\n  __syncthreads();\n  int4 x = *(int4*)(lds + (t & ~3));\n  out[t] = x.{used};"
    assert run(body.format(used="x"), {"out": out()}, registers=True).findings == ()
    assert kinds(run(body.format(used="w"), {"out": out()}, registers=True)) == ["uninitialised"]


@pytest.mark.parametrize(
    ("body", "kind", "says"),
    [
        ("  long i = (long)(t * n);\n  out[i & 63] = 1;", "overflow", "wraps"),
        ("  out[t] = t << (n >> 20);", "overflow", "shift"),
        ("  float x = n;\n  out[t] = (unsigned char)x;", "overflow", "8- or 16-bit"),
        (
            "  int a[4] = {0, 1, 2, 3}, b[4] = {9, 9, 9, 9};\n  a[(t & 7) + n - n] = 7;\n  out[t] = a[t & 3] + b[t & 3];",
            "private-bounds",
            "leaves",
        ),
        ("  __shared__ int s[64], u[64];\n  s[t + 1] = t;\n  u[t] = 1;\n  out[t] = u[t];", "private-bounds", "leaves"),
    ],
)
def test_integers_and_indices(body: str, kind: str, says: str) -> None:
    done = run(body, {"out": out(), "n": 100_000_000}, parameters="int* __restrict__ out, int n", registers=True)
    found = [f for f in done.findings if f.kind == kind]
    assert found, done.findings
    assert says in found[0].message
    assert found[0].line


@pytest.mark.parametrize(
    ("type", "dtype", "expected"),
    [
        ("int", np.int32, [2**31 - 1, -(2**31), 0, 2**31 - 1, -(2**31), -5]),
        ("unsigned int", np.uint32, [3_000_000_000, 0, 0, 2**32 - 1, 0, 0]),
    ],
)
def test_conversions_of_floats_saturate(type: str, dtype: Any, expected: list[int]) -> None:
    given = np.array([3e9, -3e9, np.nan, np.inf, -np.inf, -5.5], np.float32)
    result = np.zeros(6, dtype)
    parameters = f"{type}* __restrict__ out, float* __restrict__ v"
    done = run(f"  if (t < 6) out[t] = ({type})v[t];", {"out": result, "v": given}, parameters=parameters)
    assert done.findings == ()
    assert result.tolist() == expected
