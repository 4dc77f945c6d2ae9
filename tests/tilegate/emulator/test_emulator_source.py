"""What is read from the text of a kernel, and arguments that do not fit it."""

from __future__ import annotations

import subprocess
import sys

import attention_kernel
import numpy as np
import pytest
from small_hip_kernels import out, run, source

from tilegate import emulator


def test_parameters_of_the_librarys_kernel() -> None:
    found = emulator.parameters_of(attention_kernel.text(), attention_kernel.NAME)
    assert [p.name for p in found] == [
        *("K", "LSE", "O", "Q", "V", "batch", "heads", "kv_heads", "seqlen_k", "seqlen_q", "softmax_scale")
    ]
    assert [(p.type, p.pointer, p.bytes) for p in found[:2]] == [("half_t", True, 2), ("float", True, 4)]
    assert [(p.type, p.pointer, p.bytes) for p in found[-2:]] == [("int", False, 4), ("float", False, 4)]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "void other(int* x) {",
        'extern "C" __global__ void small(strange_t* x) {',
        'extern "C" __global__ void small(int (*x)[3]) {',
    ],
)
def test_kernels_that_cannot_be_called(text: str) -> None:
    with pytest.raises(emulator.EmulatorError):
        emulator.parameters_of(text, "small")


@pytest.mark.parametrize(
    ("extents", "expected"),
    [
        ([4], (4, 1, 1)),
        (["heads", "(seqlen_q + 127) // 128", "batch"], (7, 2, 3)),
        (["T.ceildiv(seqlen_q, 64)", "T.max(1, heads - 9)"], (3, 1, 1)),
        (["T.min(heads, 2) * 3 % 4", 'T.Cast("int64", heads)', "seqlen_q >> 7"], (2, 7, 1)),
        ([], (1, 1, 1)),
    ],
)
def test_grids(extents: list[int | str], expected: tuple[int, int, int]) -> None:
    assert emulator.grid_of(extents, {"heads": 7, "seqlen_q": 130, "batch": 3}) == expected


@pytest.mark.parametrize(
    "extent",
    [
        "unknown",
        "heads +",
        "__import__('os')",
        "heads.real",
        "heads / 0 // 0",
        "heads // 0",
        "-heads",
        "f(heads)",
        "[heads]",
        "heads if heads else 1",
    ],
)
def test_extents_that_are_refused(extent: str) -> None:
    with pytest.raises(emulator.EmulatorError, match="grid"):
        emulator.grid_of([extent], {"heads": 7})


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({}, ValueError, "out"),
        ({"out": out(), "more": 1}, ValueError, "more"),
        ({"out": [1]}, TypeError, "numpy"),
        ({"out": out(64, np.float32)}, TypeError, "float32"),
        ({"out": out(64, np.int64)}, TypeError, "int64"),
        ({"out": out(128)[::2]}, ValueError, "contiguous"),
        ({"out": 3}, TypeError, "numpy"),
    ],
)
def test_arguments_that_do_not_fit(arguments: dict[str, object], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        run("  out[t] = 1;", arguments)


@pytest.mark.parametrize(
    ("type", "value", "error"),
    [
        ("int", 1 << 40, ValueError),
        ("int", 1.5, ValueError),
        ("int", "1", TypeError),
        ("int", True, TypeError),
        ("uint8_t", -200, ValueError),
    ],
)
def test_numbers_that_do_not_fit(type: str, value: object, error: type[Exception]) -> None:
    with pytest.raises(error, match="n"):
        run("  out[t] = n;", {"out": out(), "n": value}, parameters=f"int* __restrict__ out, {type} n")


def test_numbers_of_every_type_arrive() -> None:
    parameters = "double* __restrict__ out, int a, int64_t b, float c, double d, bool e, unsigned int f"
    result = out(6, np.float64)
    numbers = {"a": -3, "b": -(1 << 40), "c": 0.5, "d": 0.1, "e": 1, "f": (1 << 32) - 1}
    done = run(
        "  if (t == 0) { out[0] = a; out[1] = b; out[2] = c; out[3] = d; out[4] = e; out[5] = f; }",
        {"out": result, **numbers},
        parameters=parameters,
    )
    assert done.findings == ()
    assert result.tolist() == [-3, -(1 << 40), 0.5, 0.1, 1, (1 << 32) - 1]


def test_an_array_that_may_not_be_written_keeps_its_values() -> None:
    result = out()
    result.flags.writeable = False
    assert run("  out[t] = 1;", {"out": result}).completed
    assert set(result) == {77}


def test_empty_arrays_and_grids() -> None:
    assert run("  out[t] = 1;", {"out": out(0)}, grid=(0,)).completed
    (found,) = run("  out[t] = 1;", {"out": out(0)}).findings
    assert found.kind == "out-of-bounds"


@pytest.mark.parametrize(
    ("keywords", "says"),
    [
        ({"threads": 2048}, "1024"),
        ({"grid": (1, 2, 3, 4)}, "three"),
        ({"grid": (-1,)}, "grid"),
        ({"rounding": "up"}, "rounding"),
        ({"schedule": emulator.Schedule("sideways")}, "schedule"),
        ({"arch": "gfx1100"}, "gfx942"),
        ({"shared": -1}, "shared"),
    ],
)
def test_launches_that_are_refused(keywords: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        run("  out[t] = 1;", {"out": out()}, **keywords)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ("out[t] = __builtin_amdgcn_ubfe(t, 1, 2);", "__builtin_amdgcn_ubfe"),
        ('asm volatile("s_nop 0");', "inline assembly"),
        ("out[t] = unheard_of(t);", "unheard_of"),
    ],
)
def test_unknown_constructs_are_named_with_their_line(body: str, name: str) -> None:
    with pytest.raises(emulator.UnsupportedKernel, match=name) as caught:
        run(f"  {body}", {"out": out()})
    if "asm" not in body:
        assert f"line 14: {body}" in str(caught.value)


def test_an_undefined_function_is_named_when_it_is_loaded() -> None:
    (found,) = run("  out[t] = elsewhere(t);", {"out": out()}, prelude='extern "C" int elsewhere(int);').findings
    assert found.kind == "unsupported"
    assert "elsewhere" in found.message


def test_the_cache_is_used_and_pruned() -> None:
    import os
    import time

    text = source("  out[t] = 4321;")
    first = emulator.compile_kernel(text, "small", arch="gfx942", shared_bytes=0)
    made = first.library.stat().st_ino
    assert emulator.compile_kernel(text, "small", arch="gfx942", shared_bytes=0).library.stat().st_ino == made
    assert emulator.compile_kernel(text, "small", arch="gfx90a", shared_bytes=0).library != first.library
    assert emulator.compile_kernel(text, "small", arch="gfx942", shared_bytes=64).library != first.library
    emulator.prune()
    assert first.library.exists()
    old = time.time() - 40 * 86_400
    os.utime(first.library, (old, old))
    emulator.prune()
    assert not first.library.exists()


def test_kernels_compile_in_parallel() -> None:
    from concurrent.futures import ThreadPoolExecutor

    texts = [source(f"  out[t] = {number % 3};") for number in range(9)]
    with ThreadPoolExecutor(4) as pool:
        programs = list(
            pool.map(lambda text: emulator.compile_kernel(text, "small", arch="gfx942", shared_bytes=0), texts)
        )
    assert len({program.library for program in programs}) == 3
    result = out()
    assert emulator.run(programs[5], {"out": result}, [1], [64]).completed
    assert set(result) == {2}


def test_schedules_are_compared_bit_by_bit() -> None:
    def go(body: str, traced: bool = False) -> emulator.Run:
        program = emulator.compile_kernel(source(body), "small", arch="gfx942", shared_bytes=1024, traced=traced)
        return emulator.run_schedules(program, {"out": out(128)}, [1], [128], workers=2)

    assert go("  lds[t] = t;\n  __syncthreads();\n  out[t] = lds[t ^ 64];", traced=True).findings == ()
    (found,) = go("  lds[0] = t;\n  __syncthreads();\n  out[t] = lds[0];").findings
    assert found.kind == "schedule-dependent"
    assert "out[0]" in found.message
    atomics = go("  out[t] = AtomicAddRet(&lds[0], 1);")
    assert {f.kind for f in atomics.findings} == {"schedule-dependent"}


def test_importing_is_light() -> None:
    code = "import sys, tilegate.emulator; print([m for m in ('torch', 'tilelang', 'numpy', 'tilekernels') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(emulator.ToolchainMissing, match="apt-get install -y clang-19 llvm-19"):
        emulator.toolchain()
