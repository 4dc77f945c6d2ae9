"""The lines of generated source that a change made other ones."""

from __future__ import annotations

import re

import hypothesis.strategies as st
from hypothesis import given

from tilegate.emulate.excerpt import differing_lines
from tilegate.protocol import Artifact

LINES = st.lists(st.sampled_from(["a = 1;", "b = 2;", "}", "", "c = a + b;"]), max_size=9)


def launch(*sources):
    return [Artifact(f"kernel_{number}", source, {}) for number, source in enumerate(sources)]


@given(LINES, LINES)
def test_what_is_shown_turns_one_into_the_other(base, head):
    shown = differing_lines(launch("\n".join(base)), launch("\n".join(head)))
    if not shown:
        assert "\n".join(base).splitlines() == "\n".join(head).splitlines()
        return
    found = [re.fullmatch(r"  ([-+]) (\d+): (.*)", line).groups() for line in shown[1:13]]
    sides = {"-": "\n".join(base).splitlines(), "+": "\n".join(head).splitlines()}
    for sign, number, text in found:
        assert sides[sign][int(number) - 1] == text
    if len(shown) <= 13:
        kept = {
            sign: [line for number, line in enumerate(lines, 1) if (sign, str(number), line) not in found]
            for sign, lines in sides.items()
        }
        assert kept["-"] == kept["+"]


def test_a_long_line_is_shown_around_what_differs():
    long = "x = " + " + ".join(f"a[{n}]" for n in range(300)) + ";"
    _, old, new = differing_lines(launch(long), launch(long.replace("a[150]", "b[150]")))
    assert "a[150]" in old
    assert "b[150]" in new
    assert max(len(old), len(new)) < 140
    assert old.startswith("  - 1: … ")
    assert old.endswith(" …")


def test_only_so_many_lines_are_shown():
    shown = differing_lines(launch("\n".join(map(str, range(100)))), launch("\n".join(map(str, range(1000, 1100)))))
    assert len(shown) == 14
    assert shown[-1] == "  and 188 more"
    (_, all_of_it) = differing_lines(launch("a\n" * 5000), launch("b\n" * 4000))
    assert all_of_it == "  5000 lines from line 1 on became 4000"


def test_several_kernels_of_a_launch_are_told_apart():
    assert differing_lines(launch("a", "b"), launch("a", "c")) == [
        "lines of the generated source of kernel_1 that differ from the base's:",
        "  - 1: b",
        "  + 1: c",
    ]
    assert differing_lines(launch("a"), launch("a")) == []
