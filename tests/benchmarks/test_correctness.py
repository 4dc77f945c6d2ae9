"""Every kernel that the suite times computes the right thing, on the device that is there.

`TILEGATE_TARGET` and `TILEGATE_TIER` select as everywhere; by default the GPU if there is one, and its `pr` tier.
"""

from __future__ import annotations

import itertools
import json
import math

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tilekernels
from benchmarks import reference
from benchmarks.families import suite_classes
from benchmarks.inputs import qkv
from benchmarks.launches import DEVICE, Launches
from benchmarks.workloads import Workload
from tilegate.protocol import WrongResult

CASES = [(timed, case) for timed in suite_classes() for case in itertools.product(*timed.params)]
FIRST = [next(c for c in CASES if c[0] is timed) for timed in suite_classes() if timed.params[0]]
ENDS = [*FIRST, *(next(c for c in reversed(CASES) if c[0] is timed) for timed, _ in FIRST)]
DTYPES = ["float32"] if DEVICE == "cpu" else ["float16", "bfloat16"]
HALF = "float16"  # everywhere; on the CPU too slow for more than a few examples


def _spelled(case: tuple[type[Launches], tuple[str, str]]) -> str:
    return " ".join([case[0].family.name, *case[1]])


def _marked(case: tuple[type[Launches], tuple[str, str]]):
    """On a CPU, where compiling takes most of the time, what is beyond the smoke tier is thorough."""
    quick = DEVICE != "cpu" or any(work.id == case[1][0] and work.tier == "smoke" for work in case[0].family.workloads)
    return pytest.param(case, id=_spelled(case), marks=() if quick else pytest.mark.thorough)


@pytest.fixture(scope="module")
def compiled(request: pytest.FixtureRequest) -> None:
    """Compile in parallel what the cases need that were selected."""
    params = [getattr(item, "callspec", None) for item in request.session.items if item.path == request.path]
    cases = [found.params["case"] for found in params if found is not None and "case" in found.params]
    for timed in suite_classes():
        timed.precompile([case for other, case in cases if other is timed])


def _set_up(case: tuple[type[Launches], tuple[str, str]]) -> Launches:
    instance = case[0]()
    instance.setup(*case[1])
    return instance


def _launch(instance: Launches, case: tuple[type[Launches], tuple[str, str]]) -> None:
    getattr(instance, instance.family.case.rpartition(".")[2])(*case[1])


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("case", map(_marked, CASES))
def test_a_timed_kernel_is_right(case):
    instance = _set_up(case)
    instance.checked_scores = reference.CHECKED_SCORES
    instance.check(*case[1])


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("case", FIRST, ids=_spelled)
def test_the_check_notices_a_kernel_that_does_nothing(monkeypatch, case):
    instance = _set_up(case)
    monkeypatch.setattr(type(instance.kernel), "launch", lambda self, *tensors: None)
    with pytest.raises(WrongResult, match="largest error nan"):
        instance.check(*case[1])


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("case", FIRST, ids=_spelled)
def test_the_check_notices_another_scale(monkeypatch, case):
    instance = _set_up(case)
    launch = type(instance.kernel).launch
    monkeypatch.setattr(type(instance.kernel), "launch", lambda self, *a: launch(self, *a[:-1], a[-1] * 1.05))
    with pytest.raises(WrongResult):
        instance.check(*case[1])


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("case", map(_marked, ENDS))
def test_fifty_launches_give_the_same_bits(case):
    instance = _set_up(case)
    assert all(x.isnan().all() for x in instance.outputs.values())
    _launch(instance, case)
    first = [x.clone() for x in instance.outputs.values()]
    assert not any(x.isnan().all() for x in first)
    for _ in range(49):
        _launch(instance, case)
        assert all(
            torch.equal(x.nan_to_num(), y.nan_to_num()) for x, y in zip(first, instance.outputs.values(), strict=True)
        )


@pytest.mark.parametrize("case", FIRST, ids=_spelled)
def test_artifacts_need_no_setup_and_hold_the_generated_code(case):
    for artifact in case[0]().artifacts(*case[1]):
        assert artifact.name in artifact.source
        assert artifact.launch
        tile = artifact.resources["tile"]  # a gate names it when it changes; plain values, for its JSON
        assert json.loads(json.dumps(tile)) == tile


def _shape(  # noqa: PLR0917 - a shape is that many numbers
    batch: int, heads: int, kv_heads: int, seqlen_q: int, seqlen_k: int, head_dim: int, dtype: str, causal: bool
) -> Workload:
    targets = ("cpu", "cuda", "hip")
    return Workload("shape", batch, heads, kv_heads, seqlen_q, seqlen_k, head_dim, dtype, causal, targets, "smoke", "")


@st.composite
def shapes(draw: st.DrawFn) -> Workload:
    lengths = st.one_of(st.integers(1, 200), st.sampled_from([1, 63, 64, 65, 127, 128, 129]))
    batch, kv_heads = draw(st.sampled_from([(1, 1), (1, 2), (2, 1)]))
    group = draw(st.integers(1, 8))
    return _shape(
        batch,
        kv_heads * group,
        kv_heads,
        draw(lengths),
        draw(st.one_of(lengths, st.just(0))),
        draw(st.sampled_from([64, 128])),
        draw(st.sampled_from(DTYPES)),
        draw(st.booleans()),
    )


@settings(max_examples=30, deadline=None, derandomize=True)
@given(work=shapes(), policy=st.sampled_from(["fixed", "adaptive"]))
@example(_shape(1, 7, 1, 129, 65, 64, HALF, True), "adaptive")
@example(_shape(1, 5, 1, 1, 63, 64, HALF, False), "fixed")
@example(_shape(2, 12, 2, 1, 1, 128, DTYPES[0], True), "adaptive")
@example(_shape(1, 2, 1, 3, 0, 64, DTYPES[0], True), "adaptive")
def test_attention_is_right_for_any_shape(work, policy):
    q, k, v = qkv(work, DEVICE)
    out, lse = tilekernels.attention(q, k, v, causal=work.causal, return_lse=True, policy=policy)
    reference.check(q, k, v, out, lse, causal=work.causal, softmax_scale=1 / math.sqrt(work.head_dim))
