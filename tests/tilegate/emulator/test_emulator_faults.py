"""Faults planted in the library's own kernel: each is caught, and named with the right line.

Those of arithmetic alone (a wrong mask, a lost factor) leave every access in order: the comparison with the reference
catches them. All others must be named by the emulator, whether or not the result happens to be right.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from attention_kernel import (
    SHAPE,
    barriers,
    behind_next_loop,
    change_line,
    execute,
    in_line,
    line_of,
    substitute,
    text,
)

from tilegate import emulator
from tilegate.emulator import Limits

pytestmark = pytest.mark.thorough

K_STORE, K_READ, V_STORE, V_READ = (
    "((half_t*)k) + ((((((((((int)",
    "(B_local + (j_1 * 4)) =",
    "((half_t*)v)[",
    "(B_local_1 + (j_3 * 4)) =",
)
QK, PV = "(((float16x4*)q) + ki)", "(((float16x4*)probabilities) + ki_1)"
KERNEL = text()
SITES = barriers(KERNEL)

# The kernel has K, V and scratch in the same LDS. Of the three barriers between its last read of K and its first store of V
# (97, 111, 146) any two can go; the others are needed each.
REDUNDANT = {97, 111, 146}


@pytest.mark.parametrize("arch", ["gfx942", "gfx90a", "gfx950"])
@pytest.mark.parametrize("schedule", emulator.SCHEDULES[:2], ids=str)
def test_the_kernel_itself_is_clean(arch: str, schedule: emulator.Schedule) -> None:
    outcome = execute(text("gfx950" if arch == "gfx950" else "gfx942"), arch=arch, schedule=schedule)
    assert outcome.kinds == set()


def test_redundant_barriers_are_hints() -> None:
    assert len(SITES) == 6
    assert {hint.line for hint in execute(KERNEL).run.hints} == REDUNDANT


@pytest.mark.parametrize("site", SITES)
def test_a_dropped_barrier(site: int) -> None:
    outcome = execute(change_line(KERNEL, site, lambda line: line.replace("__syncthreads()", "")))
    if site in REDUNDANT:
        assert outcome.kinds == set()
        return
    race = outcome.of("race")
    assert race.other is not None
    # One side of the race is before the barrier, the other behind it (of a loop: further up).
    lines = {race.line, race.other.line}
    near = {46: {K_STORE, V_READ}, 65: {K_STORE, K_READ}, 153: {V_STORE, V_READ}}[site]
    assert lines == {line_of(KERNEL, part) for part in near}


def test_all_redundant_barriers_dropped_at_once() -> None:
    source = KERNEL
    for site in REDUNDANT:
        source = change_line(source, site, lambda line: line.replace("__syncthreads()", ""))
    race = execute(source).of("race")
    assert race.other is not None
    assert {race.line, race.other.line} == {line_of(KERNEL, K_READ), line_of(KERNEL, V_STORE)}


@pytest.mark.parametrize("site", SITES)
def test_a_barrier_that_only_one_wave_reaches(site: int) -> None:
    source = change_line(KERNEL, site, lambda line: line.replace("__sync", "if (threadIdx.x < 64) __sync"))
    found = execute(source).of("divergent-barrier")
    assert site in (found.line, found.other.line if found.other else 0)


@pytest.mark.parametrize("site", sorted(set(SITES) - REDUNDANT))
def test_a_misplaced_barrier(site: int) -> None:
    outcome = execute(behind_next_loop(KERNEL, site))
    assert "race" in outcome.kinds


Edit = Callable[[str], str]

# name: (edit, kinds of which at least one must be found, part of the line that must be named)
ACCESSES: dict[str, tuple[Edit, set[str], str]] = {
    "K is stored a row too far": (
        lambda s: in_line(s, K_STORE, ">> 4) * 64)", ">> 4) * 65)"),
        {"race", "uninitialised", "misaligned"},
        "half_t*)k)",
    ),
    "V is read a row too far": (
        lambda s: in_line(s, V_READ, "(j_3 * 1024)", "(j_3 * 1032)"),
        {"out-of-bounds"},
        V_READ,
    ),
    "V's store strides by 65": (
        lambda s: in_line(s, V_STORE, "(i_9 & 7) * 64", "(i_9 & 7) * 65"),
        {"wave-race", "out-of-bounds"},
        "half_t*)v)",
    ),
    "K's tail reads one row too many": (
        lambda s: in_line(s, "* 64) + (i_2 * 16)) + ", "< seqlen_k", "<= seqlen_k"),
        {"out-of-bounds"},
        "(K + ",
    ),
    "V's tail reads one row too many": (
        lambda s: in_line(s, "* 64) + (i_8 * 16)) + ", "< seqlen_k", "<= seqlen_k"),
        {"out-of-bounds"},
        "(V + ",
    ),
    "O's tail writes one row too many": (
        lambda s: substitute(s, "< (seqlen_q + 64)) {\n      uint2", "<= (seqlen_q + 64)) {\n      uint2"),
        {"out-of-bounds"},
        "(uint2*)(O + ",
    ),
    "LSE's tail writes one row too many": (
        lambda s: substitute(s, "< (seqlen_q + 64)) {\n      LSE", "<= (seqlen_q + 64)) {\n      LSE"),
        {"out-of-bounds", "workgroup-race"},
        "LSE[",
    ),
    "Q's tail reads one row too many": (
        lambda s: in_line(s, "(1 <= (((seqlen_q", "< (seqlen_q + 64)", "<= (seqlen_q + 64)"),
        {"out-of-bounds"},
        "(Q + ",
    ),
    "every lane group stores LSE's row of the next": (
        lambda s: in_line(s, "LSE[(", "- (int64_t)64)]", "- (int64_t)63)]"),
        {"out-of-bounds", "workgroup-race"},
        "LSE[",
    ),
    "K and V are indexed by the query head": (
        lambda s: substitute(s, "/ (((int64_t)heads) / ((int64_t)kv_heads))", "", 2),
        {"out-of-bounds"},
        "(K + ",
    ),
    "K is loaded off by four elements": (
        lambda s: in_line(s, "condval_1 = *(uint4*)(K", "(int64_t)15) * (int64_t)8)", "(int64_t)15) * (int64_t)8 + 4)"),
        {"misaligned"},
        "(K + ",
    ),
    "K is read from LDS off by one element": (
        lambda s: in_line(s, K_READ, "(j_1 * 1024)", "(j_1 * 1024 + 1)"),
        {"misaligned"},
        K_READ,
    ),
    "half of K's tile is not stored": (lambda s: substitute(s, "i_2 < 4;", "i_2 < 2;"), {"uninitialised"}, K_READ),
    "half of V's tile is not stored": (lambda s: substitute(s, "i_9 < 32;", "i_9 < 16;"), {"race", "wrong-result"}, ""),
    "a matrix instruction under a condition of lanes": (
        lambda s: substitute(s, "{\n      *(((float32x4*)out)", "if (threadIdx.x & 32) {\n      *(((float32x4*)out)"),
        {"divergent-operation"},
        "float32x4*)out) + j_4) = ",
    ),
    "a reduction that half of the lanes take part in": (
        lambda s: in_line(s, "tl::SumOp", "tile_sum[0] =", "if (threadIdx.x & 16) tile_sum[0] ="),
        {"inactive-lane"},
        "tl::SumOp",
    ),
    "a reduction over two waves in LDS that holds K": (
        lambda s: substitute(s, "tl::MaxOp, 64, 16, 0", "tl::MaxOp, 128, 64, 0").replace(
            "__syncthreads();\n    row_max_clear", ";\n    row_max_clear"
        ),
        {"wrong-result"},
        "",
    ),
    "the loop over tiles never ends": (lambda s: substitute(s, "++j) {", "j += 0) {"), {"time-limit"}, ""),
    "the first tile is a negative one": (
        lambda s: substitute(s, "for (int j = 0; j <", "for (int j = -1; j <"),
        {"out-of-bounds"},
        "(K + ",
    ),
    "the swizzle of K's store lacks a bit": (
        lambda s: in_line(
            s, K_STORE, "((((int)threadIdx.x) & 7) >> 2)) & 1) * 32", "((((int)threadIdx.x) & 7) >> 2)) & 0) * 32"
        ),
        {"wave-race"},
        "half_t*)k)",
    ),
}


@pytest.mark.parametrize("name", ACCESSES)
def test_faults_of_access(name: str) -> None:
    edit, kinds, part = ACCESSES[name]
    source = edit(KERNEL)
    outcome = execute(source, limits=Limits(seconds=10))
    assert outcome.kinds & kinds, (name, outcome.kinds)
    if part:
        named = {finding.text for finding in outcome.run.findings} | {
            finding.other.text for finding in outcome.run.findings if finding.other
        }
        assert any(part in line for line in named), named


VALUES: dict[str, Edit] = {
    "the swizzle of K's read shifts by one": lambda s: in_line(s, K_READ, "& 7) >> 2)", "& 7) >> 1)"),
    "the swizzle of V's store swaps two bits": lambda s: in_line(s, V_STORE, "(i_9 & 7) >> 2", "(i_9 & 3) >> 1"),
    "the swizzle of V's read lacks a bit": lambda s: in_line(s, V_READ, "+ (ki_1 & 1)) & 1) * 16", ") & 1) * 16"),
    "K's pack is read in the wrong order": lambda s: in_line(s, QK, "+ ki)", "+ (ki ^ 1))"),
    "V's pack is read in the wrong order": lambda s: in_line(s, PV, "+ ki_1)", "+ (ki_1 ^ 1))"),
    "the operands of a matrix instruction are swapped": lambda s: substitute(
        s,
        "(*(((float16x4*)B_local) + j_2),\n                    *(((float16x4*)q) + ki),",
        "(*(((float16x4*)q) + ki),\n                    *(((float16x4*)B_local) + j_2),",
    ),
    "the causal mask lacks the diagonal": lambda s: in_line(s, "+ (i_4 & 3)) + 64) <= ", "+ 64) <= ", "+ 64) < "),
    "the mask of the tail lets one column in": lambda s: in_line(
        s, "+ (i_4 & 3)) + 64) <= ", "< seqlen_k)", "<= seqlen_k) | true"
    ),
    "the sum is of half of the lanes": lambda s: substitute(s, "tl::SumOp, 64, 16, 0", "tl::SumOp, 64, 32, 0"),
    "the sum is of the wrong lanes": lambda s: substitute(s, "tl::SumOp, 64, 16, 0", "tl::SumOp, 64, 8, 0"),
    "the output is not rescaled": lambda s: substitute(s, "__2.x = (v__1.x*v__2.x)", "__2.x = (v__1.x)"),
    "the row sum is not rescaled": lambda s: substitute(
        s, "((row_sum[0] * rescale[0]) + tile_sum[0])", "(row_sum[0] + tile_sum[0])"
    ),
    "the scores are not cleared": lambda s: substitute(s, "i_3 < 4;", "i_3 < 3;"),
    "the row maximum starts above every score": lambda s: substitute(
        s, "row_max[0] = -1.000000e+30f", "row_max[0] = 9999.0f"
    ),
    "the exponential is of base e": lambda s: substitute(
        s, "softmax_scale * 1.442695e+00f)) - ", "softmax_scale * 1.0f)) - "
    ),
    "the LSE forgets its scale": lambda s: substitute(s, "(row_max[0] * softmax_scale)", "row_max[0]"),
}


@pytest.mark.parametrize("name", VALUES)
def test_faults_of_value(name: str) -> None:
    outcome = execute(VALUES[name](KERNEL))
    assert outcome.kinds == {"wrong-result"}
    assert outcome.wrong is not None
    what, where = outcome.wrong.split("\n")
    assert what.startswith(("out: largest error", "lse: largest error"))
    assert re.fullmatch(
        r"[\d,]+ of (17,152|134) values are wrong: .+; the first, (out|lse)\[.*\], is .+ instead of .+", where
    )


TWO_KV_HEADS = (1, 4, 2, 67, 193)
O_TAIL, LSE_TAIL = ("< (seqlen_q + 64)) {\n      uint2", "< (seqlen_q + 64)) {\n      LSE")

# name: (edit, shape, what the message says of the place)
PLACED: dict[str, tuple[Edit, tuple[int, int, int, int, int], str]] = {
    "O's tail ends one row early": (
        lambda s: substitute(s, O_TAIL, O_TAIL.replace("64", "63")),
        SHAPE,
        "256 of 17,152 values are wrong: all values of rows 66; the first, out[0, 66, 0, 0], is nan instead of",
    ),
    "LSE's tail ends one row early": (
        lambda s: substitute(s, LSE_TAIL, LSE_TAIL.replace("64", "63")),
        SHAPE,
        "2 of 134 values are wrong: all values of rows 66; the first, lse[0, 0, 66], is nan instead of",
    ),
    "Q's tail ends one row early": (
        lambda s: in_line(s, "(1 <= (((seqlen_q", "< (seqlen_q + 64)", "< (seqlen_q + 63)"),
        SHAPE,
        "values of rows 66; the first, out[0, 66, 0, 0], is ",
    ),
    "K's tail ends one key early": (  # which the last row alone sees
        lambda s: in_line(s, "* 64) + (i_2 * 16)) + ", "< seqlen_k", "< seqlen_k - 1"),
        SHAPE,
        "values of rows 66, ",
    ),
    "V's tail ends one key early": (
        lambda s: in_line(s, "* 64) + (i_8 * 16)) + ", "< seqlen_k", "< seqlen_k - 1"),
        SHAPE,
        "values of rows 66, ",
    ),
    "all heads use the keys of the first": (
        lambda s: substitute(
            s, "((int64_t)((int)blockIdx.x)) / (((int64_t)heads) / ((int64_t)kv_heads))", "(int64_t)0", 2
        ),
        TWO_KV_HEADS,
        "values of heads 2-3; the first, out[0, 0, 2, 0], is ",
    ),
    "the second workgroup's maximum starts above every score": (
        lambda s: substitute(
            s, "row_max[0] = -1.000000e+30f", "row_max[0] = blockIdx.y == 0 ? 9999.0f : -1.000000e+30f"
        ),
        SHAPE,
        "values of rows 64-66; the first, out[0, 64, 0, 0], is 0 instead of",
    ),
    "a quarter of the output is not rescaled": (
        lambda s: substitute(s, "__2.x = (v__1.x*v__2.x)", "__2.x = (v__1.x)"),
        SHAPE,
        "columns 0-124 that are 0 modulo 4",
    ),
    "the swizzle of V's store swaps two bits": (
        VALUES["the swizzle of V's store swaps two bits"],
        SHAPE,
        "values of columns 2-125 that are 2-5 modulo 8; the first, out[0, 0, 0, 2], is ",
    ),
}


@pytest.mark.parametrize("name", PLACED)
def test_the_place_of_wrong_values_is_named(name: str) -> None:
    edit, shape, says = PLACED[name]
    outcome = execute(edit(KERNEL), shape=shape)
    assert outcome.kinds == {"wrong-result"}
    assert outcome.wrong is not None
    assert says in outcome.wrong


# The same kernel for gfx950 copies K asynchronously, into LDS of its own.
GFX950 = text("gfx950")


def test_a_wait_for_copies_that_is_missing() -> None:
    for site in [number for number, line in enumerate(GFX950.splitlines(), 1) if "cp_async_wait" in line]:
        source = change_line(GFX950, site, lambda line: line.replace("tl::cp_async_wait<0>()", ""))
        found = execute(source, arch="gfx950").of("copy-race")
        assert "half_t*)k)" in found.text
        assert found.other is not None
        assert "cp_async_gs" in found.other.text


def test_a_buffer_that_is_copied_into_too_early() -> None:
    (site,) = [s for s in barriers(GFX950) if "cp_async_gs" in "".join(GFX950.splitlines()[s : s + 4])]
    race = execute(change_line(GFX950, site, lambda line: line.replace("__syncthreads()", "")), arch="gfx950").of(
        "race"
    )
    assert race.other is not None
    assert {"cp_async_gs" in race.text, "cp_async_gs" in race.other.text} == {True, False}


def test_lds_smaller_than_the_kernel_uses() -> None:
    found = execute(KERNEL, shared_bytes=15360).of("out-of-bounds")
    assert "LDS" in found.message


def test_lds_larger_than_the_chip_has() -> None:
    outcome = execute(KERNEL, shared_bytes=66000)
    assert outcome.kinds == {"lds-overflow"}
    assert not outcome.run.completed


def test_a_dropped_barrier_that_the_result_does_not_show() -> None:
    """Where waves take turns none gets far enough ahead of another for a wrong result: only the detector sees it."""
    source = change_line(KERNEL, SITES[0], lambda line: line.replace("__syncthreads()", ""))
    in_turns = emulator.SCHEDULES[2]
    assert execute(source, traced=False, schedule=in_turns).kinds == set()
    race = execute(source, schedule=in_turns).of("race")
    assert race.other is not None
    assert {race.line, race.other.line} == {line_of(KERNEL, K_STORE), line_of(KERNEL, V_READ)}
