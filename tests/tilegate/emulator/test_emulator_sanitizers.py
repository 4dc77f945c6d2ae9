"""The runtime itself under clang's address and undefined-behaviour sanitizers, on what it does most and on faults.

Frames on the stack are not instrumented: lanes leave theirs without returning.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from attention_kernel import barriers, change_line, execute, text
from small_hip_kernels import kinds, out, run

from tilegate import emulator
from tilegate.emulator.program import build_runner

pytestmark = pytest.mark.thorough

OPTIONS = ("-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-mllvm", "-asan-stack=0")


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("sanitized") / "runner"
    try:
        build_runner(emulator.toolchain(), built, OPTIONS)
    except emulator.EmulatorError as error:
        if "clang_rt" in str(error) or "asan" in str(error):
            pytest.skip("clang's sanitizers are not here: apt-get install -y libclang-rt-19-dev")
        raise
    return built


def test_the_sanitizers_see_a_fault_of_the_runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check of this file's checks: a runtime that reads past a vector does not get through."""
    import shutil

    from tilegate.emulator import program

    broken = tmp_path / "runtime"
    shutil.copytree(program._RUNTIME, broken)
    schedule = broken / "schedule.cpp"
    schedule.write_text(
        schedule.read_text().replace(
            "generator.seed(mixed);",
            "int *p = new int[2]; generator.seed(p[2 + (seed > 99)]); delete[] p;",
        )
    )
    with monkeypatch.context() as patch:
        patch.setattr(program, "_RUNTIME", broken)
        try:
            build_runner(emulator.toolchain(), tmp_path / "runner", OPTIONS)
        except emulator.EmulatorError as error:
            pytest.skip(f"clang's sanitizers are not here: apt-get install -y libclang-rt-19-dev ({error})")
    assert not run("  out[t] = 1;", {"out": out()}, runner=tmp_path / "runner").completed


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
@pytest.mark.parametrize("schedule", [emulator.SCHEDULES[0], emulator.SCHEDULES[5]], ids=str)
@pytest.mark.parametrize("traced", [True, False])
def test_the_librarys_kernel(arch: str, schedule: emulator.Schedule, traced: bool, runner: Path) -> None:
    outcome = execute(text(arch), arch=arch, schedule=schedule, traced=traced, runner=runner)
    assert outcome.kinds == set()
    assert outcome.run.completed


def test_a_dropped_barrier(runner: Path) -> None:
    source = text()
    source = change_line(source, barriers(source)[1], lambda line: line.replace("__syncthreads()", ""))
    assert "race" in execute(source, runner=runner).kinds


@pytest.mark.parametrize(
    "instruction", ["f32_32x32x16_fp8_bf8", "i32_16x16x32_i8", "i32_32x32x16_i8", "f32_16x16x32_fp8_fp8"]
)
def test_matrix_instructions(instruction: str, runner: Path) -> None:
    size = 16 if "16x16" in instruction else 4 * 4
    kind = f"{'int32' if instruction.startswith('i32') else 'float32'}x{4 if '_16x16' in instruction else size}"
    body = f"  {kind} c = {{0}};\n  c = __builtin_amdgcn_mfma_{instruction}((int64_t)t * 0x0101010101010101, (int64_t)t, c, 0, 0, 0);\n  out[t] = (int)c[0];"
    assert run(body, {"out": out()}, runner=runner).findings == ()


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("lds[t] = t;\n  out[t] = lds[t ^ 64];", ["race", "uninitialised"]),
        ("out[t + 9] = 1;", ["out-of-bounds"]),
        ("if (t < 64) { __syncthreads(); }", ["divergent-barrier"]),
        ("if (t < 32) { out[t] = __shfl_xor(t, 32); }", ["inactive-lane"]),
        ("AtomicAdd(&out[0], (int)__ballot(t & 1));", []),
        ("tl::cp_async_gs<16>(lds + 4 * t, out + 4 * t);\n  tl::cp_async_wait<0>();", []),
        ("out[t] = t / (out[0] - 77);", ["fault"]),
    ],
)
def test_small_kernels(body: str, expected: list[str], runner: Path) -> None:
    result = run(
        f"  {body}",
        {"out": np.full(512, 77, np.int32)[: 128 if "+ 9" in body else 512]},
        threads=128,
        shared=2048,
        runner=runner,
    )
    assert kinds(result) == expected


def test_processes_that_share_workgroups(runner: Path) -> None:
    result = out(1024)
    done = run(
        "  out[blockIdx.x * 64 + t] = blockIdx.x;",
        {"out": result},
        traced=False,
        grid=(16,),
        processes=3,
        runner=runner,
    )
    assert done.completed
    assert np.array_equal(result, np.repeat(np.arange(16), 64))
    found = run(
        "  if (blockIdx.x == 7) { out[t] = t / (int)(gridDim.x - 16); }",
        {"out": out()},
        traced=False,
        grid=(16,),
        processes=3,
        runner=runner,
    )
    assert kinds(found) == ["fault"]
