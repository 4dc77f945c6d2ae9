"""A kernel family is what its own files say: a second one, of two kernels a launch, needs no edit of any other file."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import kernels
from benchmarks.families import families, suite_classes
from tilegate import emulator
from tilegate.config import load_config
from tilegate.emulate.survey import survey
from tilegate.lowering.lowering import Lowering
from tilegate.lowering.store import Store
from tilegate.measuring.workspace import make_workspace

ROOT = Path(__file__).parents[2]
TOY = ROOT / "tests/data/toy_family"
ARCH = "gfx942"
IDS = [f"toy float16 w64 rows={rows} threads=64" for rows in (4, 8)]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of library and suite to which the toy's files are added, and only added."""
    root = tmp_path_factory.mktemp("tree")
    for name in ("tilekernels", "benchmarks"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", root)
    shutil.copytree(ROOT / "tests/benchmarks", root / "tests/benchmarks")
    for path in TOY.rglob("*.py"):
        added = root / path.relative_to(TOY)
        assert not added.exists()
        shutil.copy(path, added)
    return root


def _in(tree: Path, *command: str) -> str:
    environment = {**os.environ, "TILEGATE_TARGET": "cpu", "TILEGATE_TIER": "smoke"}
    done = subprocess.run(
        [sys.executable, *command], cwd=tree, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_its_cases_are_tested_as_every_family_is(tree: Path) -> None:
    tests = ["tests/benchmarks/test_correctness.py", "tests/benchmarks/test_latency.py"]
    said = _in(tree, "-m", "pytest", "-p", "no:cacheprovider", "-v", "-k", "toy", *tests)
    for policy in ("fixed", "adaptive"):
        for name in ("test_a_timed_kernel_is_right", "test_a_launch"):
            assert f"{name}[toy cpu-toy-13x32 {policy}] PASSED" in said
    assert "test_the_check_notices_another_scale[toy cpu-toy-13x32 fixed] PASSED" in said


def test_asv_finds_its_cases(tree: Path) -> None:
    script = (
        "from tilegate.protocol import register; register()\n"
        "from asv_runner.discovery import disc_benchmarks\n"
        "print(*sorted({b.name for b in disc_benchmarks('benchmarks') if b.type == 'latency'}))\n"
    )
    found = _in(tree, "-c", script).split()
    # Besides them what is no family: the attention of a server's whole steps.
    assert {*(family.case for family in families().values()), "toy.Toy.latency_toy"} <= set(found)


def test_it_is_listed_generated_and_executed_for_the_mi300x(tree: Path, tmp_path: Path) -> None:
    try:
        emulator.toolchain()
    except emulator.ToolchainMissing as error:
        pytest.skip(str(error))
    config = load_config((tree / "pyproject.toml").read_text(encoding="utf-8"))
    workspace = make_workspace(
        tmp_path / "stage", config, exported=tree, suite_root=tree / "benchmarks", target="hip", tier="full"
    )
    store = Store(tmp_path / "store")
    with Lowering(workspace, tmp_path, store) as lowering:
        listed = lowering.configurations(ARCH)
        artifacts = lowering.lower(IDS[0], ARCH)
        found = survey(lowering, [ARCH], store, pattern="^toy ", first=False)[ARCH]
    assert [id for id in listed if id.startswith("toy ")] == IDS
    assert listed[IDS[1]] == ["toy.Toy.latency_toy('toy-1000x64', 'adaptive')"]
    assert [artifact.name for artifact in artifacts] == ["row_sums_kernel", "divide_rows_kernel"]
    assert [(kernel.id, kernel.verdict) for kernel in found] == [(id, "pass") for id in IDS]
    assert {trial.problem for kernel in found for trial in kernel.trials} == {"r13", "r1"}
    assert set(found[0].trials[0].counters) == {"row_sums_kernel", "divide_rows_kernel"}


def test_the_emulator_sees_what_is_wrong_with_its_second_step(tree: Path, tmp_path: Path) -> None:
    try:
        emulator.toolchain()
    except emulator.ToolchainMissing as error:
        pytest.skip(str(error))
    faulty = tmp_path / "tree"
    shutil.copytree(tree, faulty)
    path = faulty / "tilekernels/kernels/toy.py"
    text = path.read_text(encoding="utf-8")
    assert text.count(" * factor") == 1
    path.write_text(text.replace(" * factor", " * (factor + 0.01)"), encoding="utf-8")
    config = load_config((tree / "pyproject.toml").read_text(encoding="utf-8"))
    workspace = make_workspace(
        tmp_path / "stage", config, exported=faulty, suite_root=tree / "benchmarks", target="hip", tier="full"
    )
    store = Store(tmp_path / "store")
    with Lowering(workspace, tmp_path, store) as lowering:
        found = survey(lowering, [ARCH], store, pattern=f"^{IDS[0]}$", thorough=0, first=True)[ARCH]
    assert [kernel.verdict for kernel in found] == ["broken"]
    assert any("Y: largest error" in finding["message"] for _, finding in found[0].findings)


@pytest.mark.parametrize("arch", ["gfx942", "gfx90a", "gfx950"])
def test_parts_are_named_as_isa_names_them(arch: str) -> None:
    for id in kernels.configurations(arch):
        steps = kernels.find(id, arch)[1].steps
        assert kernels.parts(id, arch) == (
            (id,) if len(steps) == 1 else tuple(f"{id} #{step}_kernel" for step in steps)
        )


def test_every_family_names_the_class_that_times_it() -> None:
    assert [timed.family for timed in suite_classes()] == list(families().values())


@pytest.mark.parametrize("family", families().values(), ids=families())
def test_rows_say_what_reports_need(family) -> None:
    ids = [work.id for work in family.workloads]
    assert len(ids) == len(set(ids))
    for work in family.workloads:
        assert work.tier in ("smoke", "pr", "full")
        assert set(work.targets) <= {"cpu", "cuda", "hip"}
        assert 0 < len(work.shape) <= 40
        assert work.flops >= 0
        assert work.bytes > 0
        assert work.why
        assert ("cpu" in work.targets) == work.id.startswith("cpu-")  # the settings of CPU cases go by it
        assert re.fullmatch(r"[a-z0-9.-]+", work.id)


@pytest.mark.parametrize("family", families().values(), ids=families())
def test_inputs_are_drawn_alike_and_another_draw_is_another(family) -> None:
    work = next(work for work in family.workloads if "cpu" in work.targets)
    one, same, other = (family.inputs(work, "cpu", draw) for draw in (0, 0, 1))
    assert list(one) == list(same) == list(other)
    assert all(one[name].equal(same[name]) for name in one)
    assert any(not one[name].equal(other[name]) for name in one)
