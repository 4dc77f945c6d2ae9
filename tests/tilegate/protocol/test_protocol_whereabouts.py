"""Where wrong values are, in words: nothing left out, nothing added, and short where it can be."""

from __future__ import annotations

import re

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra import numpy as arrays

from tilegate.protocol import whereabouts
from tilegate.protocol.whereabouts import boxes, spelled

MASKS = arrays.arrays(bool, arrays.array_shapes(min_dims=1, max_dims=4, max_side=9))
SETS = st.sets(st.integers(0, 40), min_size=1).map(sorted)
AXES = ["entries", "rows", "heads", "columns"]


def inside(mask, box):
    chosen = np.zeros_like(mask)
    chosen[np.ix_(*box.indices)] = True
    return chosen


@given(MASKS)
def test_boxes_cover_what_is_wrong_once_and_count_it(mask):
    found = boxes(mask)
    covered = sum((inside(mask, box).astype(int) for box in found), np.zeros(mask.shape, int))
    assert covered.max(initial=0) <= 1
    assert not (mask & (covered == 0)).any()
    for box in found:
        own = inside(mask, box) & mask
        assert (box.wrong, box.size) == (own.sum(), inside(mask, box).sum())
        # No index could be left out.
        for axis, indices in enumerate(box.indices):
            assert set(np.nonzero(own)[axis]) == set(indices)


@given(st.data(), arrays.array_shapes(min_dims=1, max_dims=4, max_side=9))
def test_a_product_of_index_sets_is_said_exactly(data, shape):
    parts = [sorted(data.draw(st.sets(st.integers(0, side - 1), min_size=1))) for side in shape]
    mask = np.zeros(shape, bool)
    mask[np.ix_(*parts)] = True
    (box,) = boxes(mask)
    assert [list(indices) for indices in box.indices] == parts
    assert box.wrong == box.size
    text = whereabouts(mask, AXES[: len(shape)])
    assert text.startswith("all values")
    for name, indices, side in zip(AXES, parts, shape, strict=False):
        assert (f"{name} {spelled(indices)}" in text) == (len(indices) < side)


@given(SETS)
def test_spelled_indices_can_be_read_back(indices):
    text = spelled(indices)
    if vague := re.fullmatch(r"(\d+) from (\d+) to (\d+)", text):
        assert list(map(int, vague.groups())) == [len(indices), indices[0], indices[-1]]
        return
    spans, _, modulo = text.partition(" that are ")
    chosen = read(spans)
    if modulo:
        residues, _, period = modulo.partition(" modulo ")
        chosen = {index for index in chosen if index % int(period) in read(residues)}
    assert sorted(chosen) == indices


def read(spans):
    ends = [[int(end) for end in span.split("-")] for span in spans.split(", ")]
    return {index for span in ends for index in range(span[0], span[-1] + 1)}


def pattern(*places):
    mask = np.zeros((2, 131, 2, 128), bool)
    for place in places:
        mask[np.ix_(*(range(side) if part is None else part for part, side in zip(place, mask.shape, strict=True)))] = 1
    return mask


@pytest.mark.parametrize(
    ("places", "text"),
    [
        ([(None,) * 4], "all values"),
        ([(None, range(128, 131), None, None)], "all values of rows 128-130"),
        ([([1], None, [0], range(32, 64))], "all values of entries 1, heads 0, columns 32-63"),
        ([(None, None, None, range(0, 128, 8))], "all values of columns 0-120 that are 0 modulo 8"),
        (
            [(None, range(64), [1], range(64)), (None, range(128, 131), None, None)],
            "all values of rows 0-63, heads 1, columns 0-63; all values of rows 128-130",
        ),
    ],
)
def test_what_kernels_do_wrong_is_said_in_a_few_words(places, text):
    assert whereabouts(pattern(*places), AXES) == text


def test_a_few_values_that_happen_to_be_right_do_not_hide_the_place():
    mask = pattern((None, range(128, 131), None, None))
    mask[0, 129, 1, [5, 77]] = False
    assert whereabouts(mask, AXES) == "1,534 of the 1,536 values of rows 128-130"


def test_a_triangle_is_one_box_with_a_count():
    mask = np.zeros((40, 41), bool)
    mask[:, 1:] = np.tril(np.ones((40, 40), bool))
    assert whereabouts(mask, AXES[:2]) == "820 of the 1,600 values of rows 1-40"
    assert whereabouts(mask[:, 1:], AXES[:2]) == "all over"
