"""The yardstick itself: right where it can be told independently, and sharp enough to see small mistakes."""

from __future__ import annotations

import dataclasses
import math
import re

import pytest
import torch

from benchmarks import reference
from benchmarks.inputs import qkv
from benchmarks.workloads import Workload
from tilegate.protocol import WrongResult

PLAIN = Workload("reference", 2, 6, 2, 70, 70, 64, "float32", True, ("cpu",), "smoke", "")
SCALE = 0.125


def _by_hand(q, k, v, *, causal, softmax_scale):
    """Attention one row at a time, in Python's own words."""
    batch, seqlen_q, heads, _ = q.shape
    seqlen_k, kv_heads = k.shape[1:3]
    out, lse = torch.zeros(q.shape, dtype=torch.float64), torch.full((batch, heads, seqlen_q), -math.inf).double()
    for b in range(batch):
        for h in range(heads):
            for i in range(seqlen_q):
                last = min(seqlen_k, i + seqlen_k - seqlen_q + 1) if causal else seqlen_k
                if last <= 0:
                    continue
                keys, values = k[b, :last, h * kv_heads // heads].double(), v[b, :last, h * kv_heads // heads].double()
                weights = torch.exp(keys @ q[b, i, h].double() * softmax_scale)
                out[b, i, h] = weights @ values / weights.sum()
                lse[b, h, i] = torch.log(weights.sum())
    return out, lse


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("seqlen_q", "seqlen_k"), [(9, 9), (3, 11), (11, 3), (1, 5), (4, 0)])
def test_attention_agrees_with_one_row_at_a_time(causal, seqlen_q, seqlen_k, monkeypatch):
    monkeypatch.setattr(reference, "_CHUNK_ELEMENTS", 20)  # several chunks even here
    work = dataclasses.replace(PLAIN, seqlen_q=seqlen_q, seqlen_k=seqlen_k)
    inputs = qkv(work, "cpu")
    options = {"causal": causal, "softmax_scale": SCALE}
    for actual, expected in zip(reference.attention(*inputs, **options), _by_hand(*inputs, **options), strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_agrees_with_torch(causal):
    q, k, v = (x.double() for x in qkv(PLAIN, "cpu"))
    expected = torch.nn.functional.scaled_dot_product_attention(
        *(x.transpose(1, 2) for x in (q, k, v)), is_causal=causal, scale=SCALE, enable_gqa=True
    )
    out, _ = reference.attention(q, k, v, causal=causal, softmax_scale=SCALE)
    torch.testing.assert_close(out, expected.transpose(1, 2), rtol=1e-12, atol=1e-12)


def _right(work: Workload):
    """What a good kernel gives: inputs, and the output in the inputs' dtype and LSE in float32."""
    inputs = qkv(work, "cpu")
    out, lse = reference.attention(*inputs, causal=work.causal, softmax_scale=SCALE)
    return inputs, out.to(inputs[0].dtype), lse.float()


def _check(work, inputs, out, lse, **options):
    return reference.check(*inputs, out, lse, causal=work.causal, softmax_scale=SCALE, **options)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_right_result_passes(dtype):
    work = dataclasses.replace(PLAIN, dtype=dtype)
    for agreement in _check(work, *_right(work)):
        assert agreement.error <= agreement.tolerance
        assert agreement.rms_error <= agreement.rms_tolerance
        assert agreement.checked == 1.0


@pytest.mark.parametrize(("dtype", "most"), [("float32", 2e-5), ("float16", 1e-2), ("bfloat16", 8e-2)])
def test_the_tolerance_is_a_few_roundings(dtype, most):
    work = dataclasses.replace(PLAIN, dtype=dtype)
    out, lse = _check(work, *_right(work))
    assert 0 < out.tolerance < most
    assert 0 < lse.tolerance < 2e-5


def _one_element(out, lse):
    out[1, 69, 5, 63] += 0.1


def _one_lse(out, lse):
    lse[1, 5, 69] += 1e-3


def _everything_a_little(out, lse):
    out *= 1.02


def _nan(out, lse):
    out[0, 3, 2, 1] = math.nan


def _nan_lse(out, lse):
    lse[0, 2, 3] = math.nan


def _heads_exchanged(out, lse):
    out[:] = out.flip(2)


def _log2(out, lse):
    lse /= math.log(2)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(
    ("spoil", "tensor"),
    [
        (_one_element, "out"),
        (_everything_a_little, "out"),
        (_nan, "out"),
        (_heads_exchanged, "out"),
        (_one_lse, "lse"),
        (_nan_lse, "lse"),
        (_log2, "lse"),
    ],
)
def test_a_wrong_result_is_caught(dtype, spoil, tensor):
    work = dataclasses.replace(PLAIN, dtype=dtype)
    inputs, out, lse = _right(work)
    spoil(out, lse)
    with pytest.raises(WrongResult, match=rf"^{tensor}: .*\(2, 70, 6, 64\).*causal=True"):
        _check(work, inputs, out, lse)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (
            _one_element,
            r"1 of 53,760 values are wrong: all values of batch entries 1, rows 69, heads 5, columns 63; "
            r"the first, out\[1, 69, 5, 63\], is (\S+) instead of (\S+)",
        ),
        (_nan, r"1 of 53,760 .* rows 3, heads 2, columns 1; the first, out\[0, 3, 2, 1\], is nan instead of \S+"),
        (_nan_lse, r"1 of 840 .* batch entries 0, heads 2, rows 3; the first, lse\[0, 2, 3\], is nan instead of \S+"),
        (_log2, r"\d+ of 840 values are wrong: .+; the first, lse\[0, 0, 0\], is \S+ instead of \S+"),
    ],
)
def test_the_place_of_what_is_wrong_is_named(spoil, says, monkeypatch):
    monkeypatch.setattr(reference, "_CHUNK_ELEMENTS", 3 * 70 * 10)  # the place spans chunks of ten rows
    inputs, out, lse = _right(PLAIN)
    right = out[1, 69, 5, 63].item()
    spoil(out, lse)
    with pytest.raises(WrongResult) as caught:
        _check(PLAIN, inputs, out, lse)
    found = re.fullmatch(says, str(caught.value).splitlines()[1])
    assert found, caught.value
    if found.groups():
        assert [float(number) for number in found.groups()] == pytest.approx([right + 0.1, right], rel=1e-4)


def test_everything_off_by_little_is_named_by_what_is_off_more_than_the_average_may_be():
    inputs, out, lse = _right(PLAIN)
    allowed, _ = _check(PLAIN, inputs, out, lse)
    out[:, 15:] += 0.98 * allowed.tolerance - allowed.error
    with pytest.raises(
        WrongResult, match=r"^out: root mean square .*\n[\d,]+ of 53,760 values are wrong: all values of rows 15-69"
    ):
        _check(PLAIN, inputs, out, lse)


def test_another_mask_is_caught():
    inputs, out, lse = _right(PLAIN)
    with pytest.raises(WrongResult, match="out: largest error"):
        _check(dataclasses.replace(PLAIN, causal=False), inputs, out, lse)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_float32_kernel_that_computes_in_half_is_caught(dtype):
    inputs = qkv(PLAIN, "cpu")
    rounded = (x.to(dtype).float() for x in inputs)
    out, lse = reference.attention(*rounded, causal=True, softmax_scale=SCALE)
    with pytest.raises(WrongResult):
        _check(PLAIN, inputs, out.float(), lse.float())


def test_top_left_masking_is_caught():
    work = dataclasses.replace(PLAIN, seqlen_k=71)
    q, k, v = qkv(work, "cpu")
    out, lse = reference.attention(q, k[:, :70], v[:, :70], causal=True, softmax_scale=SCALE)
    with pytest.raises(WrongResult):
        _check(work, (q, k, v), out.float(), lse.float())


EMPTY = dataclasses.replace(PLAIN, seqlen_q=80)


def test_rows_that_see_nothing_pass_as_zero_and_minus_infinity():
    inputs, out, lse = _right(EMPTY)
    assert (lse[:, :, :10] == -math.inf).all()
    _check(EMPTY, inputs, out, lse)


@pytest.mark.parametrize("value", [1e-30, math.nan, math.inf])
def test_rows_that_see_nothing_must_be_exactly_zero(value):
    inputs, out, lse = _right(EMPTY)
    out[0, 9, 0, 0] = value
    with pytest.raises(WrongResult, match=r"sees no key.*\n1 of .* the first, out\[0, 9, 0, 0\]"):
        _check(EMPTY, inputs, out, lse)


@pytest.mark.parametrize("value", [0.0, -1e30, math.nan, math.inf])
def test_the_lse_of_rows_that_see_nothing_must_be_minus_infinity(value):
    inputs, out, lse = _right(EMPTY)
    lse[1, 3, 9] = value
    with pytest.raises(WrongResult, match="lse: a row that sees no key"):
        _check(EMPTY, inputs, out, lse)


def test_no_keys_at_all():
    work = dataclasses.replace(PLAIN, seqlen_k=0)
    _check(work, *_right(work))


def test_a_large_problem_is_compared_in_part_and_says_so(monkeypatch):
    monkeypatch.setattr(reference, "_CHUNK_ELEMENTS", 3 * 70 * 10)  # ten rows a chunk
    inputs, out, lse = _right(PLAIN)
    agreement, _ = _check(PLAIN, inputs, out, lse, limit=PLAIN.batch * PLAIN.heads * 70 * 70 // 2)
    assert agreement.checked == pytest.approx(0.5, abs=0.05)
    for row in (0, 69):  # the first and the last rows are always among them
        spoiled = out.clone()
        spoiled[0, row] += 0.1
        with pytest.raises(WrongResult):
            _check(PLAIN, inputs, spoiled, lse, limit=PLAIN.batch * PLAIN.heads * 70 * 70 // 2)


def test_something_is_compared_whatever_the_limit():
    agreement, _ = _check(PLAIN, *_right(PLAIN), limit=1)
    assert agreement.checked > 0


def test_inputs_are_seeded_and_leave_the_global_generator_alone():
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    first, second, other = qkv(PLAIN, "cpu"), qkv(PLAIN, "cpu"), qkv(PLAIN, "cpu", draw=1)
    assert torch.rand(1) == expected
    assert all(torch.equal(x, y) for x, y in zip(first, second, strict=True))
    assert not any(torch.equal(x, y) for x, y in zip(first, other, strict=True))
    assert not torch.equal(first[1], first[2])
    assert [tuple(x.shape) for x in first] == [(2, 70, 6, 64), (2, 70, 2, 64), (2, 70, 2, 64)]
