"""Every kernel that the library ships for an AMD chip computes the right thing, executed on this machine.

By default each kernel on one small ragged problem, under every order of execution and every model of rounding;
`TILEGATE_TIER=full` takes all problems. `-k emulated-gfx942` is one chip. What was executed before is not executed again.
A run that is not thorough takes one kernel of each family: building and executing all of them takes twenty minutes.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from benchmarks import kernels
from tilegate import emulator
from tilegate.config import load_config
from tilegate.emulate.survey import Kernel, survey
from tilegate.emulate.table import findings_of
from tilegate.lowering.lowering import Lowering
from tilegate.lowering.store import default_store
from tilegate.measuring.workspace import make_workspace

ROOT = Path(__file__).parents[2]
ARCHS = ("gfx942", "gfx90a")
SHIPPED = [(arch, id) for arch in ARCHS for id in kernels.configurations(arch)]
# The last of a family on the first chip: those have the smallest tiles.
QUICK = {id.partition(" ")[0]: (arch, id) for arch, id in SHIPPED if arch == ARCHS[0]}.values()
CASES = [
    pytest.param(arch, id, id=f"emulated-{arch} {id}", marks=() if (arch, id) in QUICK else pytest.mark.thorough)
    for arch, id in SHIPPED
]


@pytest.fixture(scope="module")
def executed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Kernel]:
    """Generate, compile and execute those that tests were selected for, as many at a time as there are cores."""
    try:
        emulator.toolchain()
    except emulator.ToolchainMissing as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("emulated")
    config = load_config((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    workspace = make_workspace(
        folder / "stage", config, exported=ROOT, suite_root=ROOT / "benchmarks", target="hip", tier="full"
    )
    first = os.environ.get("TILEGATE_TIER") != "full"
    made: dict[tuple[str, str], Kernel] = {}
    wanted = [item.callspec.params for item in request.session.items if item.path == request.path]
    with Lowering(workspace, folder, default_store()) as lowering:
        for arch in ARCHS:
            ids = [re.escape(case["id"]) for case in wanted if case["arch"] == arch]
            if ids:
                pattern = f"^(?:{'|'.join(ids)})$"
                found = survey(lowering, (arch,), default_store(), pattern=pattern, first=first)
                made |= {(arch, kernel.id): kernel for kernel in found[arch]}
    return made


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("arch", "id"), CASES)
def test_a_shipped_kernel_is_right(executed: dict[tuple[str, str], Kernel], arch: str, id: str) -> None:
    kernel = executed[arch, id]
    said = "\n".join(paragraph for paragraph, _ in findings_of(kernel))
    assert kernel.verdict == "pass", said or kernel.failure
    assert all(done.runs > len(emulator.SCHEDULES) for done in kernel.trials)
