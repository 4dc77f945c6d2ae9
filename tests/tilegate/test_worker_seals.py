"""A part of what measures that was replaced is found, and what was there before is not taken for that."""

import json
import sys
import types

import pytest

from tilegate.protocol import clocks
from tilegate.worker import looks
from tilegate.worker.seals import Seals


def test_untouched_seals_are_whole():
    assert Seals().broken() is None


@pytest.mark.parametrize(
    ("owner", "name", "place"),
    [
        (clocks, "perf_counter_ns", "tilegate.protocol.clocks.perf_counter_ns"),
        (clocks.CpuClock, "measure", "tilegate.protocol.clocks.CpuClock.measure"),
        (sys.modules["tilegate.worker.arrays"], "copy", "tilegate.worker.arrays.copy"),
        (looks.Looks, "before", "tilegate.worker.looks.Looks.before"),
        (json, "dumps", "json.dumps"),
    ],
)
def test_what_is_replaced_is_named(monkeypatch, owner, name, place):
    seals = Seals()
    monkeypatch.setattr(owner, name, lambda *_, **__: None)
    assert seals.broken() == place
    assert Seals().broken() is None  # it is what was there


def test_a_function_whose_code_is_exchanged_is_another(monkeypatch):
    seals = Seals()
    monkeypatch.setattr(clocks.check_launches, "__code__", (lambda launches: None).__code__)
    assert seals.broken() == "tilegate.protocol.clocks.check_launches"


def test_a_function_of_torch_that_is_not_built_in_any_more_is_found(monkeypatch):
    class Tensor:
        clone = str.upper

    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(Tensor=Tensor))
    Tensor.clone = lambda self: self
    assert Seals().broken() == "torch.Tensor.clone"
