"""What the README shows: a barrier taken out of a shipped kernel, which a comparison with torch need not notice."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest

from benchmarks import emulated, kernels
from tilegate import emulator
from tilegate.config import load_config
from tilegate.emulate.survey import survey
from tilegate.lowering.lowering import Lowering
from tilegate.lowering.store import Store
from tilegate.measuring.workspace import make_workspace
from tilegate.protocol import Artifact, WrongResult

ROOT = Path(__file__).parents[2]
ARCH, KERNEL = "gfx942", "forward bfloat16 d128 causal 128x64 threads=512 q_in=registers"
BARRIER = "__syncthreads();"  # the first: around the loop, K's tile is not written before V's has been read
PLANTED = f"""
import dataclasses

_lower = lower


def lower(prim_func, arch):
    made = _lower(prim_func, arch)
    return dataclasses.replace(made, source=made.source.replace("{BARRIER}", "", 1))
"""


@pytest.fixture(autouse=True)
def _clang() -> None:
    try:
        emulator.toolchain()
    except emulator.ToolchainMissing as error:
        pytest.skip(str(error))


def _values_are_right(artifact: Artifact, schedule: emulator.Schedule) -> bool:
    program = emulator.compile_kernel(
        artifact.source,
        artifact.name,
        arch=ARCH,
        shared_bytes=artifact.launch["dynamic_shared_bytes"],
        traced=False,
    )
    problem = emulated.problems(KERNEL, ARCH)[0]
    arguments = emulated.arguments(KERNEL, ARCH, problem)
    own = {parameter.name: arguments[parameter.name] for parameter in program.parameters}
    integers = {name: value for name, value in arguments.items() if isinstance(value, int)}
    grid = emulator.grid_of(artifact.launch["grid"], integers)
    run = emulator.run(program, own, grid, artifact.launch["block"], schedule=schedule)
    assert run.completed, run.findings
    try:
        emulated.check(KERNEL, ARCH, problem, arguments)
    except WrongResult:
        return False
    return True


@pytest.mark.slow
def test_torch_misses_a_dropped_barrier_when_the_waves_take_turns() -> None:
    (artifact,) = kernels.lower(KERNEL, ARCH)
    faulty = dataclasses.replace(artifact, source=artifact.source.replace(BARRIER, "", 1))
    assert _values_are_right(faulty, emulator.Schedule(waves="robin"))
    assert not _values_are_right(faulty, emulator.Schedule(waves="greedy"))
    assert _values_are_right(artifact, emulator.Schedule(waves="greedy"))


@pytest.mark.slow
def test_the_race_is_named_with_both_lines(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "tilekernels", tmp_path / "tree/tilekernels", ignore=shutil.ignore_patterns("__pycache__"))
    handle = tmp_path / "tree/tilekernels/handle.py"
    handle.write_text(handle.read_text(encoding="utf-8") + PLANTED, encoding="utf-8")
    config = load_config((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    workspace = make_workspace(
        tmp_path / "work/stage",
        config,
        exported=tmp_path / "tree",
        suite_root=ROOT / "benchmarks",
        target="hip",
        tier="full",
    )
    with Lowering(workspace, tmp_path, Store(tmp_path / "store")) as lowering:
        (kernel,) = survey(lowering, [ARCH], Store(tmp_path / "store"), pattern=f"^{KERNEL}$", thorough=0, first=True)[
            ARCH
        ]
    assert kernel.verdict == "broken"
    race = next(finding for _, finding in kernel.findings if finding["kind"] == "race")
    (artifact,) = kernels.lower(KERNEL, ARCH)
    lines = artifact.source.splitlines()
    for line, text, accesses in (
        (race["line"], race["text"], "(bfloat16_t*)v)"),
        (race["other"]["line"], race["other"]["text"], "(bfloat16_t*)k)"),
    ):
        assert lines[line - 1].strip() == text
        assert accesses in text
    assert "with no barrier between the two" in race["message"]
