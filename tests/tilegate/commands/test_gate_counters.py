"""What a slower kernel of an AMD chip executes, beside what its compiled code says."""

from __future__ import annotations

from types import SimpleNamespace

import hip_toy
import pytest

from tilegate import emulator
from tilegate.config import load_config
from tilegate.emulate import compare, explain
from tilegate.lowering.store import Store
from tilegate.measuring.workspace import make_workspace
from tilegate.progress import Reporter

CASES = ["toy.Run.latency_run('double')", "toy.Run.latency_run('triple')", "other.Case.latency_else(1)"]


@pytest.fixture
def attached(tmp_path, monkeypatch):
    """Run `attach` for a head whose "double" has two barriers more than the base's."""
    monkeypatch.setattr(explain, "default_store", lambda: Store(tmp_path / "store"))
    trees_of = {}
    for side in ("base", "head"):
        toy = hip_toy.make(tmp_path / side)
        if side == "head":
            toy.replace(
                "    return KERNEL",
                f'    if name == "double":\n        return KERNEL.replace({hip_toy.BARRIER!r}, {3 * hip_toy.BARRIER!r})'
                '.replace("FACTOR", "2.0f")\n    return KERNEL',
            )
        trees_of[side] = toy.path
    config = load_config(hip_toy.PYPROJECT)
    workspaces = {
        side: make_workspace(tmp_path / "work" / side, config, exported=tree, suite_root=trees_of["base"] / "hipbench",
                    target="cpu", tier="smoke")
        for side, tree in trees_of.items()
    }  # fmt: skip

    def attach(arch, failure=None):
        record = SimpleNamespace(cases={name: {"head": {"failure": failure}} for name in CASES})
        record.cases[CASES[0]]["cause"] = ["barriers in the loop 1 -> 3"]
        explain.attach(record, workspaces, CASES, arch, logs=tmp_path / "logs", reporter=Reporter())
        return record.cases

    return attach


def test_counters_that_changed_follow_the_causes_that_are_known(attached):
    try:
        emulator.toolchain()
    except emulator.ToolchainMissing as error:
        pytest.skip(str(error))
    cases = attached("gfx942")
    assert cases[CASES[0]]["cause"] == [
        "barriers in the loop 1 -> 3",
        "emulated on small problems: barriers 4 -> 12 (+200.0 %)",
    ]
    assert "cause" not in cases[CASES[1]] | cases[CASES[2]]


def test_fewer_of_everything_is_no_reason_for_slower(monkeypatch):
    fewer, more = compare.Change("barriers", "barriers", 12, 4), compare.Change("LDS reads", "lds_reads", 1, 2)
    monkeypatch.setattr(explain, "changes", lambda base, head: (more, fewer))
    monkeypatch.setattr(explain, "_execute", lambda *_: object())
    side = SimpleNamespace(configurations=lambda arch: {"k": ["a"]})

    def lines(failure):
        return next(explain._lines([side, side], {"a": {"head": {"failure": failure}}}, ["a"], "gfx942", None))[1]

    assert [line.partition(": ")[2] for line in lines(None)] == [str(more)]
    assert [line.partition(": ")[2] for line in lines({"kind": "crash"})] == [str(more), str(fewer)]


@pytest.mark.parametrize("arch", [None, "sm_90", "gfx1100"])
def test_another_chip_is_left_alone(attached, arch):
    assert attached(arch)[CASES[0]]["cause"] == ["barriers in the loop 1 -> 3"]


def test_without_clang_nothing_is_added(attached, monkeypatch):
    def missing():
        raise emulator.ToolchainMissing("no clang")

    monkeypatch.setattr(emulator, "toolchain", missing)
    assert attached("gfx942")[CASES[0]]["cause"] == ["barriers in the loop 1 -> 3"]
