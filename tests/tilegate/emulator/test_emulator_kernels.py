"""Every kernel that the library ships for AMD chips, traced, in two orders, against the reference."""

from __future__ import annotations

import pytest

from benchmarks import emulated, kernels
from tilegate import emulator
from tilegate.protocol.selection import EMULATED

pytestmark = pytest.mark.thorough

KERNELS = [(arch, id) for arch in EMULATED for id in kernels.configurations(arch)]


@pytest.mark.parametrize(("arch", "id"), KERNELS, ids=[f"{arch} {id}" for arch, id in KERNELS])
def test_a_shipped_kernel(arch: str, id: str) -> None:
    (artifact,) = kernels.lower(id, arch)
    program = emulator.compile_kernel(
        artifact.source, artifact.name, arch=arch, shared_bytes=int(str(artifact.launch["dynamic_shared_bytes"]))
    )
    problem = emulated.problems(id, arch)[0]
    arguments = emulated.arguments(id, arch, problem)
    launch: dict[str, list[int]] = dict(artifact.launch)  # type: ignore[arg-type]
    grid = emulator.grid_of(launch["grid"], {name: n for name, n in arguments.items() if isinstance(n, int)})
    done = emulator.run_schedules(program, arguments, grid, launch["block"], schedules=emulator.SCHEDULES[:3:2])
    assert done.findings == ()
    assert done.completed
    emulated.check(id, arch, problem, arguments)
    assert done.counters is not None
    assert done.counters.total.mfma > 0
    assert done.counters.workgroups == grid[0] * grid[1] * grid[2]
