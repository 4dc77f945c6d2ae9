"""This repository's own suite as `tilegate isa` and asv see it."""

from __future__ import annotations

import pytest
from isa_fixtures import toolchain_or_skip

from benchmarks import compiled, kernels
from benchmarks.families import families
from benchmarks.workloads import WORKLOADS
from tilegate.protocol import Artifact

ARCHS = ("gfx942", "gfx90a", "gfx950")


@pytest.mark.parametrize("arch", ARCHS)
def test_every_case_of_a_gpu_has_one_kernel(arch: str) -> None:
    cases = [case for cases in kernels.configurations(arch).values() for case in cases]
    wanted = {
        family.case_of(work, policy)
        for family in families().values()
        for work in family.workloads
        for policy in family.policies
        if "hip" in work.targets
    }
    assert len(cases) == len(set(cases))
    assert set(cases) == wanted


def test_cases_are_spelled_as_asv_does() -> None:
    spelled = [case for cases in kernels.configurations("gfx942").values() for case in cases]
    assert f"attention.Forward.latency_forward({WORKLOADS[0].id!r}, 'fixed')" in spelled


def test_ids_are_the_same_on_every_chip_for_the_same_kernel() -> None:
    ids = [set(kernels.configurations(arch)) for arch in ARCHS]
    assert ids[0] & ids[1] & ids[2]


def test_an_unknown_kernel_is_refused() -> None:
    with pytest.raises(ValueError, match="forward nonsense"):
        kernels.lower("forward nonsense", "gfx942")


@pytest.mark.slow
def test_a_kernel_is_generated_and_tracked(monkeypatch: pytest.MonkeyPatch) -> None:
    id = next(id for id in kernels.configurations("gfx942") if id.startswith("forward "))
    (artifact,) = kernels.lower(id, "gfx942")
    assert isinstance(artifact, Artifact)
    assert "__global__" in artifact.source
    toolchain_or_skip("gfx942")
    monkeypatch.setattr(kernels, "configurations", lambda arch: {id: []})
    suite = compiled.Compiled()
    found = suite.setup_cache()
    suite.setup(found, id)
    for name in ("registers", "lds", "missing_waves", "loop_cycles"):
        assert getattr(suite, f"track_{name}")(found, id) > 0
    assert suite.track_spills(found, id) >= 0
    assert 0 <= suite.track_idle_matrix(found, id) < 1
    with pytest.raises(NotImplementedError):
        suite.setup({}, id)


def test_no_compiler_means_no_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    from tilegate.isa import toolchain

    def nothing(arch: str) -> None:
        raise toolchain.ToolchainError(f"no compiler for {arch}")

    monkeypatch.setattr(toolchain, "find_toolchain", nothing)
    monkeypatch.setattr(kernels, "lower", lambda id, arch: pytest.fail("generated for no compiler"))
    assert compiled.Compiled().setup_cache() == {}
