"""The cases that time calls of the public function."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

import tilekernels
from benchmarks.calls import CALLERS, Attention
from tilegate.protocol import WrongResult, call_clock_for, recorded, selection

CASES = list(itertools.product(CALLERS, Attention.params[1]))  # those of larger tiers, too


def _set_up(case: tuple[str, str]) -> Attention:
    calls = Attention()
    calls.setup(*case)
    return calls


@pytest.mark.parametrize("case", CASES, ids=" ".join)
def test_a_timed_call_is_right(case):
    _set_up(case).check(*case)


def test_calls_are_right_on_drawn_problems_whatever_their_strides():
    calls, strides = Attention(), set()
    for number in range(8):
        seed = number << 8
        strides |= {(x.is_contiguous(), x.data_ptr() % 16) for x in calls._drawn(seed, CASES[0][0])}
        calls.verify_probe(seed, calls.probe(seed, *CASES[0]), *CASES[0])
    assert {contiguous for contiguous, _ in strides} == {True, False}
    assert len({offset for _, offset in strides}) > 1


def test_a_call_that_takes_strides_for_others_is_noticed(monkeypatch):
    calls, attention = Attention(), tilekernels.attention
    drawn = [calls._drawn(number << 8, CASES[0][0]) for number in range(8)]
    number = next(n for n, tensors in enumerate(drawn) if not tensors[2].is_contiguous() and tensors[2].std() > 0)
    monkeypatch.setattr(
        tilekernels,
        "attention",
        lambda q, k, v, **options: attention(q, k, v.as_strided(v.shape, torch.empty(v.shape).stride()), **options),
    )
    with pytest.raises(WrongResult):
        calls.verify_probe(number << 8, calls.probe(number << 8, *CASES[0]), *CASES[0])


def test_the_check_notices_a_wrong_result(monkeypatch):
    calls, launch = _set_up(CASES[0]), tilekernels.ForwardKernel.launch
    monkeypatch.setattr(tilekernels.ForwardKernel, "launch", lambda self, *a: launch(self, *a[:-1], a[-1] * 1.05))
    with pytest.raises(WrongResult):
        calls.check(*CASES[0])


def test_new_lengths_are_new_to_the_library_and_same_ones_are_not(monkeypatch):
    seen, attention = [], tilekernels.attention

    def spy(q, k, v, **options):
        seen.append((q.shape[1], k.shape[1]))
        return attention(q, k, v, **options)

    monkeypatch.setattr(tilekernels, "attention", spy)
    for lengths in ("new", "same"):
        calls = _set_up((CASES[0][0], lengths))
        for _ in range(100):
            calls.call_attention(CASES[0][0], lengths)
    assert len(set(seen[:100])) == 100
    assert len(set(seen[100:])) == 1
    assert all(rows % 2 and keys % 2 for rows, keys in seen)  # kernels are compiled by way of even lengths


@pytest.mark.parametrize("caller", CALLERS)
def test_new_lengths_come_once_and_four_in_a_row_have_one_of_each_quarter_of_the_keys(caller):
    lengths = CALLERS[caller].lengths("new")
    assert len(set(lengths)) == len(lengths) >= 256
    keys = np.array([keys for _, keys in lengths]).reshape(-1, 4)
    assert (keys.max(axis=0)[:-1] <= keys.min(axis=0)[1:]).all()
    assert (np.diff(keys, axis=0) < 0).any()  # not in order within a quarter


@pytest.mark.parametrize("case", CASES, ids=" ".join)
def test_a_call_is_timed(case):
    calls = _set_up(case)
    clock = call_clock_for(selection().target)
    timed = recorded(clock, lambda: calls.call_attention(*case), 1e-3)
    assert all(seconds > 0 for seconds in timed.measure(clock, 3))


def test_artifacts_need_no_setup_and_name_each_kernel_once():
    names = [artifact.name for artifact in Attention().artifacts(*CASES[-1])]
    assert names
    assert len(set(names)) == len(names)
