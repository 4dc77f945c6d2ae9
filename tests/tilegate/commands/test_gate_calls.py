"""What only the caller of a public function notices: the kernel is the same, and the call got slower."""

from __future__ import annotations

import pytest
import toy_repository

pytestmark = [pytest.mark.thorough, pytest.mark.usefixtures("toy_surroundings")]

API = "toykernels/api.py"
CALLS = "calls.Squares.call_squares({!r})"
PACKAGE = '''
"""The public function. 20 us a call, for any length."""

import time

import numpy as np

from toykernels.kernels import Kernel

_kernel = Kernel(0.020)


def squares(values):
    out = np.empty(1)
    _for(len(values)).launch(values, out)
    return out


def _for(length):
    return _kernel
'''
SUITE = '''
"""Calls with the same length and with ever new ones."""

import itertools

import numpy as np
from toykernels import api

from tilegate.protocol import WrongResult


class Squares:
    params = (["same", "new"],)
    param_names = ("lengths",)
    version = "1"

    def setup(self, lengths):
        values = np.ones(100_000)
        self._next = itertools.cycle([values] if lengths == "same" else [values[:n] for n in range(1, 20_000)])

    def call_squares(self, lengths):
        api.squares(next(self._next))

    def check(self, lengths):
        if api.squares(np.full(3, 2.0))[0] != 12:
            raise WrongResult("not 12")
'''


@pytest.fixture
def toy(tmp_path):
    made = toy_repository.make(tmp_path / "toy")
    made.write(API, PACKAGE)
    made.write("toybench/calls.py", SUITE)
    made.commit("Add a public function")
    made.git("tag", "--force", "base")
    return made


def test_work_added_on_the_host_is_caught_though_every_kernel_is_the_same(toy):
    toy.replace(
        API, "^    out = np.empty.1.", "    out = np.empty(1)\n    time.sleep(2e-6)  # waits for the device, say"
    )
    toy.commit("Wait")
    outcome = toy.gate("base", "HEAD", "-b", r"call_squares|latency_total")
    assert outcome.status == 1, outcome
    for lengths in ("same", "new"):
        call = outcome.case(CALLS.format(lengths))
        assert call["verdict"] == "regressed"
        assert 1.05 < call["ratio"] < 1.15
    assert outcome.case("sums.Total.latency_total(1000)")["verdict"] == "unchanged"
    assert outcome.verdict["controls"]["count"] == 1
    cause = toy.samples()["cases"][CALLS.format("same")]["cause"]
    assert any("files.toykernels/api.py" in line for line in cause), cause


def test_a_kernel_compiled_anew_for_each_length_is_caught_where_lengths_vary(toy):
    toy.replace(
        API,
        "^    return _kernel$",
        "    if length not in _kernels:\n"
        "        time.sleep(300e-6)  # compiles\n"
        "        _kernels[length] = _kernel\n"
        "    return _kernels[length]\n\n\n_kernels = {}",
    )
    toy.commit("Compile for each length")
    outcome = toy.gate("base", "HEAD", "-b", "call_squares")
    assert outcome.status == 1, outcome
    assert outcome.case(CALLS.format("new"))["ratio"] > 10
    assert outcome.case(CALLS.format("same"))["verdict"] == "pass"


def test_any_change_of_the_package_is_reason_to_time_its_calls(toy):
    toy.replace(API, "^def _for", "# For the reader.\ndef _for")
    toy.commit("Comment")
    outcome = toy.gate("base", "HEAD", "-b", r"call_squares|latency_total\(1000\)")
    assert outcome.status == 0, outcome
    assert {outcome.case(CALLS.format(lengths))["verdict"] for lengths in ("same", "new")} == {"pass"}
    cases = toy.samples()["cases"]
    assert cases[CALLS.format("new")]["role"] == "gated"
    assert cases["sums.Total.latency_total(1000)"]["role"] == "control"


def test_a_call_is_identical_where_the_package_is_the_same(toy):
    toy.write("README", "Something else.\n")
    toy.commit("Document")
    outcome = toy.gate("base", "HEAD", "-b", "call_squares")
    assert outcome.status == 0, outcome
    assert {case["role"] for case in outcome.verdict["cases"].values()} <= {"control", "identical"}
