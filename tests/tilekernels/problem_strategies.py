"""Hypothesis strategies shared by the tests of this folder."""

from hypothesis import strategies as st

from tilekernels.chips import CHIPS, Chip
from tilekernels.policy import DTYPES_OF
from tilekernels.problem import HEAD_DIMS, MAX_BATCH, MAX_SEQLEN, AttentionProblem

chips = st.sampled_from(tuple(CHIPS.values()))

# Lengths of everyday size, those just around powers of two, and the whole legal range.
lengths = st.one_of(
    st.integers(0, 300),
    st.builds(lambda power, off: max(0, 2**power + off), st.integers(4, 17), st.integers(-1, 1)),
    st.integers(0, MAX_SEQLEN),
)


@st.composite
def problems(draw: st.DrawFn, chip: Chip | None = None) -> AttentionProblem:
    """Any legal problem, of a dtype that the chip takes when one is given."""
    kv_heads = draw(st.integers(1, 64))
    dtypes = DTYPES_OF[chip.kind] if chip else ("float16", "bfloat16", "float32")
    return AttentionProblem(
        batch=draw(st.one_of(st.integers(0, 64), st.integers(0, MAX_BATCH))),
        heads=kv_heads * draw(st.integers(1, 16)),
        kv_heads=kv_heads,
        seqlen_q=draw(lengths),
        seqlen_k=draw(lengths),
        head_dim=draw(st.sampled_from(HEAD_DIMS)),
        dtype=draw(st.sampled_from(dtypes)),
        causal=draw(st.booleans()),
    )
