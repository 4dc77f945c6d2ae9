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
from benchmarks.attention import DEVICE, Forward
from benchmarks.inputs import qkv
from benchmarks.workloads import Workload
from tilegate.protocol import WrongResult

CASES = list(itertools.product(*Forward.params))
DTYPES = ["float32"] if DEVICE == "cpu" else ["float16", "bfloat16"]
HALF = "float16"  # everywhere; on the CPU too slow for more than a few examples


@pytest.fixture(scope="module")
def compiled() -> None:
    """Compile in parallel what all cases need."""
    Forward.precompile(CASES)


def _set_up(case: tuple[str, str]) -> Forward:
    forward = Forward()
    forward.setup(*case)
    return forward


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("case", CASES, ids=" ".join)
def test_a_timed_kernel_is_right(case):
    forward = _set_up(case)
    forward.checked_scores = reference.CHECKED_SCORES
    forward.check(*case)


@pytest.mark.usefixtures("compiled")
def test_the_check_notices_a_kernel_that_does_nothing(monkeypatch):
    forward = _set_up(CASES[0])
    monkeypatch.setattr(tilekernels.ForwardKernel, "launch", lambda self, *tensors: None)
    with pytest.raises(WrongResult, match="out: largest error nan"):
        forward.check(*CASES[0])


@pytest.mark.usefixtures("compiled")
def test_the_check_notices_another_scale(monkeypatch):
    forward, launch = _set_up(CASES[0]), tilekernels.ForwardKernel.launch
    monkeypatch.setattr(tilekernels.ForwardKernel, "launch", lambda self, *a: launch(self, *a[:-1], a[-1] * 1.05))
    with pytest.raises(WrongResult):
        forward.check(*CASES[0])


@pytest.mark.usefixtures("compiled")
def test_a_timed_launch_writes_both_outputs():
    forward = _set_up(CASES[0])
    out, lse = forward._outputs
    assert out.isnan().all()
    assert lse.isnan().all()
    forward.latency_forward(*CASES[0])
    assert not out.isnan().any()
    assert not lse.isnan().any()


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("case", [CASES[0], CASES[-1]], ids=" ".join)
def test_fifty_launches_give_the_same_bits(case):
    forward = _set_up(case)
    forward.latency_forward(*case)
    first = [x.clone() for x in forward._outputs]
    for _ in range(49):
        forward.latency_forward(*case)
        assert all(torch.equal(x, y) for x, y in zip(first, forward._outputs, strict=True))


def test_artifacts_need_no_setup_and_hold_the_generated_code():
    for artifact in Forward().artifacts(*CASES[0]):
        assert artifact.name in artifact.source
        assert artifact.launch
        tile = artifact.resources["tile"]  # a gate names it when it changes; plain values, for its JSON
        assert json.loads(json.dumps(tile)) == tile
        assert tile["block_m"] > 0


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
