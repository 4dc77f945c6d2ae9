"""Waivers: what a file may say, and which of them count on a day."""

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilegate import files
from tilegate.isa import rules
from tilegate.judging import waivers
from tilegate.judging.waivers import Waiver

TODAY = datetime.date(2026, 6, 15)
FULL = """
[waiver.decode]
cases = "attention.Decode.*"
ceiling = 8
isa = ["occupancy", "spills"]
expires = 2026-06-15
reason = "split-K comes next"
link = "https://example.org/12"
"""


def made(name="a", origin="base", *, ceiling=5.0, days=0, cases="*", isa=()):
    expires = TODAY + datetime.timedelta(days=days)
    return Waiver(name, cases, ceiling, isa, expires, "why", "https://e.org", origin)


def test_a_file_is_read():
    (found,) = waivers.parse(FULL, "base")
    assert found == Waiver(
        "decode",
        "attention.Decode.*",
        8.0,
        ("occupancy", "spills"),
        datetime.date(2026, 6, 15),
        "split-K comes next",
        "https://example.org/12",
        "base",
    )
    assert waivers.parse("", "base") == ()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("ceiling = 8", "ceiling = = 8"), r"not valid TOML.*line 4"),
        (("ceiling = 8", "celing = 8"), r"line 2: waiver\.decode: unknown key \"celing\", did you mean 'ceiling'"),
        (("ceiling = 8", "ceiling = 0"), r"line 2: waiver\.decode\.ceiling must be a number of percent"),
        (("ceiling = 8", "ceiling = -3"), r"waiver\.decode\.ceiling"),
        (("ceiling = 8", "ceiling = 101"), r"waiver\.decode\.ceiling"),
        (("ceiling = 8", "ceiling = nan"), r"waiver\.decode\.ceiling"),
        (("ceiling = 8", "ceiling = true"), r"waiver\.decode\.ceiling"),
        (("ceiling = 8", 'ceiling = "8 %"'), r"waiver\.decode\.ceiling"),
        (("expires = 2026-06-15", 'expires = "2026-06-15"'), r"decode\.expires must be a date without quotes"),
        (("expires = 2026-06-15", "expires = 2026-06-15T10:00:00Z"), r"decode\.expires"),
        (("expires = 2026-06-15", "expires = 2026-06-31"), r"not valid TOML"),
        (("expires = 2026-06-15\n", ""), r"waiver\.decode\.expires is missing"),
        (("reason = ", "# "), r"waiver\.decode\.reason is missing"),
        (("link = ", "# "), r"waiver\.decode\.link is missing"),
        (("cases = ", "# "), r"waiver\.decode\.cases is missing"),
        (('"split-K comes next"', '"  "'), r"waiver\.decode\.reason must be one line"),
        (('"split-K comes next"', '"a\\nb"'), r"waiver\.decode\.reason must be one line"),
        (('"split-K comes next"', '"\udcff"'), r"waiver\.decode\.reason must be one line"),
        (('"attention.Decode.*"', '"a\u202eb"'), r"waiver\.decode\.cases must be one line"),
        (('"split-K comes next"', f'"{"x" * 501}"'), r"waiver\.decode\.reason must be one line"),
        (("https://example.org/12", "javascript:x"), r"waiver\.decode\.link must be an address"),
        (('["occupancy", "spills"]', '["barriers"]'), r"waiver\.decode\.isa must be a list of spills, scratch"),
        (('["occupancy", "spills"]', "[]"), r"waiver\.decode\.isa"),
        (('["occupancy", "spills"]', "[[1]]"), r"waiver\.decode\.isa"),
        (("waiver.decode", "waiver.'a b'"), r"line 2: waiver name \"a b\""),
        (("[waiver.decode]", "[[waiver]]"), r"a table \[waiver\.NAME\]"),
        (("[waiver.decode]", "[wavier.decode]"), r"unknown key \"wavier\""),
        (("[waiver.decode]", "waiver.x = 1\n[waiver.decode]"), r"waiver\.x must be a table"),
    ],
)
def test_a_bad_file_is_refused_with_its_place(change, message):
    text = FULL.replace(*change)
    assert text != FULL
    with pytest.raises(files.UsageError, match=rf"tilegate-waivers\.toml.*{message}"):
        waivers.parse(text, "base")


def test_one_that_waives_nothing_is_refused():
    text = FULL.replace("ceiling = 8\n", "").replace('isa = ["occupancy", "spills"]\n', "")
    with pytest.raises(files.UsageError, match="waives nothing"):
        waivers.parse(text, "base")


def test_the_error_says_which_side_has_the_bad_file():
    with pytest.raises(files.UsageError, match="of the head is not valid TOML"):
        waivers.of_revisions(FULL, "[")
    assert [w.origin for w in waivers.of_revisions(FULL, FULL)] == ["base", "head"]
    assert waivers.of_revisions(None, None) == ()


def test_samples_give_back_what_was_put_in():
    found = waivers.of_revisions(FULL, FULL.replace("8", "9"))
    again = waivers.from_samples([w.to_json() for w in found])
    assert again == found
    assert [w.origin for w in again] == ["base", "head"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ceiling": 0}, "ceiling"),
        ({"ceiling": None}, "waives nothing"),
        ({"expires": "2026-02-30"}, "no date"),
        ({"link": "x"}, "link"),
    ],
)
def test_samples_cannot_say_what_no_file_could(change, message):
    with pytest.raises(files.UsageError, match=f"samples.*{message}"):
        waivers.from_samples([made().to_json() | change])
    with pytest.raises(files.UsageError, match="twice"):
        waivers.from_samples([made().to_json()] * 2)


def test_it_counts_until_its_last_day_is_over():
    for days, group in ((0, "counting"), (1, "counting"), (-1, "expired")):
        waiver = made(days=days)
        both = (waiver, made("a", "head", days=days))
        assert getattr(waivers.resolve(both, today=TODAY, allow_head=False), group) == (waiver,)


def test_what_the_change_brings_counts_only_with_leave():
    both = (made("old"), made("old", "head", ceiling=50.0), made("new", "head"))
    resolved = waivers.resolve(both, today=TODAY, allow_head=False)
    assert resolved.counting == (made("old"),)
    assert {w.name for w in resolved.refused} == {"old", "new"}
    resolved = waivers.resolve(both, today=TODAY, allow_head=True)
    assert [(w.name, w.ceiling) for w in resolved.counting] == [("old", 50.0), ("new", 5.0)]
    assert resolved.refused == ()


def test_taking_out_or_renewing_an_expired_one():
    old = made(days=-1)
    assert waivers.resolve((old,), today=TODAY, allow_head=False) == waivers.ResolvedWaivers()
    renewed = (old, made("a", "head", days=30))
    resolved = waivers.resolve(renewed, today=TODAY, allow_head=False)
    assert (resolved.expired, len(resolved.refused)) == ((old,), 1)
    resolved = waivers.resolve(renewed, today=TODAY, allow_head=True)
    assert (resolved.expired, len(resolved.counting)) == ((), 1)


names = st.sampled_from(["a", "b", "c"])
some = st.builds(
    made,
    names,
    st.sampled_from(["base", "head"]),
    ceiling=st.sampled_from([None, 2.0, 5.0]),
    days=st.integers(-3, 3),
    cases=st.sampled_from(["*", "x*", "y"]),
    isa=st.sampled_from([("spills",), ("spills", "occupancy")]),
)


@given(st.lists(some, max_size=6, unique_by=lambda w: (w.name, w.origin)), st.booleans())
def test_whatever_the_files_say(found, allow_head):
    resolved = waivers.resolve(found, today=TODAY, allow_head=allow_head)
    assert all(w.expires >= TODAY for w in resolved.counting)
    assert all(w.expires < TODAY for w in resolved.expired)
    base = {w.name: w for w in found if w.origin == "base"}
    if not allow_head:
        assert all(base[w.name] == w for w in (*resolved.counting, *resolved.expired))
    assert bool(resolved.refused) <= (not allow_head)
    assert waivers.from_samples([w.to_json() for w in found]) == tuple(found)
    # With no head waivers allowed, nothing that the head's file says makes anything else count.
    alone = waivers.resolve([w for w in found if w.origin == "base"], today=TODAY, allow_head=False)
    if not allow_head:
        assert resolved.counting == alone.counting
    for case in ("x1", "y"):
        best = waivers.highest(resolved.counting, case)
        covering = [w.ceiling for w in resolved.counting if w.covers(case) and w.ceiling is not None]
        assert (best.ceiling if best else None) == max(covering, default=None)


def test_leave_for_one_case_is_none_for_the_others_of_its_kernel():
    (waiver,) = waivers.parse(FULL, "base")
    decode, prefill = "attention.Decode.latency(1)", "attention.Forward.latency(1)"
    assert waivers.for_finding([waiver], "spills", [decode], "k") == waiver
    assert waivers.for_finding([waiver], "scratch", [decode], "k") is None
    assert waivers.for_finding([waiver], "spills", [decode, prefill], "k") is None
    assert waivers.for_finding([waiver], "spills", [], "k") is None
    by_kernel = made(cases="forward *", isa=("spills",))
    assert waivers.for_finding([by_kernel], "spills", [decode, prefill], "forward d128") == by_kernel


def test_what_can_be_waived_is_what_can_fail():
    failing = [rule for rule, function in rules.RULES.items() if function.__doc__.rstrip().endswith(": fails.")]
    assert tuple(failing) == waivers.ISA_RULES


def test_the_example_in_the_module_is_one():
    text = "\n".join(line[4:] for line in waivers.__doc__.split("\n") if line.startswith("    "))
    (example,) = waivers.parse(text, "base")
    assert (example.ceiling, example.isa) == (8.0, ("occupancy",))
