"""The asv series of what kernels execute."""

from __future__ import annotations

import importlib

import pytest

from benchmarks import emulated, executed, kernels
from tilegate import emulator, tracked

ID = next(id for id in kernels.configurations(executed.ARCH) if id.startswith("forward "))


@pytest.fixture
def in_tier(monkeypatch):
    def load(tier):
        monkeypatch.setenv("TILEGATE_TIER", tier)
        return importlib.reload(executed)

    yield load
    monkeypatch.undo()
    importlib.reload(executed)


def test_a_plain_run_on_a_cpu_does_not_wait_for_it(in_tier):
    assert "Executed" in vars(in_tier("pr"))
    vars(executed).pop("Executed")
    assert "Executed" not in vars(in_tier("smoke"))


def test_counters_of_a_kernel_are_tracked(in_tier, monkeypatch):
    try:
        emulator.toolchain()
    except emulator.ToolchainMissing as error:
        pytest.skip(str(error))
    suite = in_tier("pr").Executed()
    monkeypatch.setattr(kernels, "configurations", lambda arch: {ID: []})
    found = suite.setup_cache()
    suite.setup(found, ID)
    tracks = {name: getattr(suite, name) for name in dir(suite) if name.startswith("track_")}
    assert len(tracks) == 6
    values = {name: track(found, ID) for name, track in tracks.items()}
    assert all(value >= 0 for value in values.values())
    assert values["track_spare_lines"] < values["track_lines"]
    assert values["track_matrix"] > 0
    assert values["track_barriers"] > 0
    with pytest.raises(NotImplementedError):
        suite.setup({}, ID)


def test_no_clang_means_no_numbers(in_tier, monkeypatch):
    def missing():
        raise emulator.ToolchainMissing("no clang")

    suite = in_tier("pr").Executed()
    monkeypatch.setattr("tilegate.emulator.toolchain", missing)
    monkeypatch.setattr("tilegate.emulator.program.toolchain", missing)
    assert suite.setup_cache() == {}
    assert tracked.executed(emulated, ID, executed.ARCH, kernels.lower(ID, executed.ARCH)) is None
