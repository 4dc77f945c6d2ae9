"""The engine steps of a loaded server: that the load is one, that its calls are right, and what a launch states."""

from __future__ import annotations

import dataclasses
import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilekernels
from benchmarks import serving
from benchmarks.load import Lengths, Load, _run, steps
from benchmarks.serving import Serving
from tilegate.protocol import WrongResult

CASES = list(itertools.product(serving.LOADS, Serving.params[1]))  # those of larger tiers, too
CHAT = Load(Lengths(1020, 0.9, 16, 16384), Lengths(129, 0.8, 4, 2048), 64, 8192, 16, 256, "")
LENGTHS = st.builds(
    lambda median, sigma: Lengths(median, sigma, 1, 4 * median), st.integers(2, 200), st.floats(0.1, 1.5)
)


@settings(max_examples=50, deadline=None)
@given(prompt=LENGTHS, answer=LENGTHS, slots=st.integers(1, 8), spare=st.integers(1, 64), seed=st.integers(0, 99))
def test_every_request_gets_all_its_rows_in_order_and_no_step_more_than_the_budget(prompt, answer, slots, spare, seed):
    load = Load(prompt, answer, slots, slots + spare, 1, 1, "")
    done: dict[int, int] = {}
    for step in itertools.islice(_run(load, random.Random(seed)), 200):  # noqa: S311
        assert 0 < sum(chunk.rows for chunk in step) <= load.budget
        assert len({chunk.slot for chunk in step}) == len(step)
        for chunk in step:
            assert chunk.rows > 0
            assert chunk.context in (0, done.get(chunk.slot, 0))  # goes on where it was, or is the slot's next request
            done[chunk.slot] = chunk.context + chunk.rows


def test_the_same_seed_gives_the_same_load_and_another_another():
    assert steps(CHAT) == steps(CHAT)
    assert steps(CHAT) != steps(CHAT, seed=1)


def test_a_full_server_decodes_and_begins_prompts():
    found = steps(CHAT)
    assert len(found) == CHAT.steps
    assert all(len(step) <= CHAT.slots for step in found)
    assert sum(chunk.rows == 1 for step in found for chunk in step) > 0.9 * CHAT.slots * CHAT.steps
    assert any(chunk.rows > 100 for step in found for chunk in step)


def test_the_calls_of_a_step_have_each_of_its_chunks_once():
    for step in steps(CHAT):
        assert sorted(c.slot for call in serving.calls_of(step) for c in call.chunks) == sorted(c.slot for c in step)


@pytest.fixture(params=CASES, ids=" ".join)
def case(request):
    return request.param


def test_a_launch_is_right(case):
    suite = Serving()
    suite.setup(*case)
    suite.check(*case)


@pytest.mark.parametrize("function", ["attention_varlen", "attention_decode"])
def test_the_check_notices_a_wrong_result(monkeypatch, function):
    right = getattr(tilekernels, function)
    monkeypatch.setattr(tilekernels, function, lambda *a, **k: right(*a, **k) * 1.05)
    suite = Serving()
    suite.setup(*CASES[0])
    with pytest.raises(WrongResult, match=r"^call \d"):
        suite.check(*CASES[0])


def test_a_launch_states_its_tokens(case):
    stated = Serving().work(*case)
    counted = sum(call.rows for call in serving.calls(case[0]))
    assert stated["tokens"] == counted
    assert stated["bytes"] > 0


def test_every_kernel_of_a_launch_is_in_its_identity(monkeypatch):
    launched = set()
    for family in (tilekernels.VarlenKernel, tilekernels.DecodeKernel):
        launch = family.launch
        monkeypatch.setattr(
            family, "launch", lambda self, *a, _launch=launch: (launched.add(self), _launch(self, *a))[1]
        )
    suite = Serving()
    suite.setup(*CASES[0])
    suite.latency_serving(*CASES[0])
    assert launched == {call.kernel(CASES[0][1]) for call in serving.calls(CASES[0][0])}


def test_lengths_that_cannot_be_drawn_are_refused():
    with pytest.raises(ValueError, match="least <= median <= most"):
        Lengths(10, 0.5, 20, 30)


@pytest.mark.parametrize("changed", [{"slots": 0}, {"steps": 0}, {"steps": 300}, {"budget": 64}])
def test_a_load_that_no_server_has_is_refused(changed):
    with pytest.raises(ValueError, match=r"slots >= 1|leaves no prompt any"):
        dataclasses.replace(CHAT, **changed)
