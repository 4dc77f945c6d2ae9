"""The report: what a reviewer sees first, and that nothing from a commit acts in it."""

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_builder import case, document, side

from tilegate import files, judge, report

CONTROL = {"control": case(role="control", seed=9)}
HOSTILE = (
    "a`b``c```| <script>x</script> @team [l](http://e.vil) ![i](x) <!-- \u202e\x1b[31m\r\n# heading\n```\n</details>"
)


EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "h200-gate"


def rendered(cases, **options):
    return report.render(judge.judge(document(cases, **options)))


def outside_code(text):
    """Drop fenced blocks and code spans as CommonMark finds them: what is left can act."""
    kept, fence = [], None
    for line in text.split("\n"):
        opening = re.match(r"(`{3,})", line)
        if fence is None and opening:
            fence = opening[1]
        elif fence is not None:
            if re.fullmatch(f"{fence}`* *", line):
                fence = None
        else:
            kept.append(line)
    assert fence is None, "a block is left open"
    return "\n".join(re.sub(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", "CODE", line) for line in kept)


def test_the_first_line_says_what_happened():
    text = rendered({"good": case(), "slow": case(0.04, confirm=2), **CONTROL})
    assert re.match(r"## ❌ REGRESSED: 1 case of 3 got slower, at worst by [34]\.\d %\.\n", text)


def test_worst_first_and_passes_folded():
    text = rendered(
        {
            "fine": case(),
            "slow": case(0.04, confirm=2),
            "slower": case(0.09, confirm=2),
            "unclear": case(0.05),
            "same": case(role="identical", screen=False),
            **CONTROL,
        }
    )
    places = [text.index(f"`{name}`") for name in ("slower", "slow", "unclear", "fine", "control", "same")]
    assert places == sorted(places)
    assert text.index("<details>") < places[3]
    row = next(line for line in text.split("\n") if "`slower`" in line)
    assert re.search(
        r"\| regressed \| `slower` \| 100 µs \| 10\d(\.\d)? µs \| \+[89]\.\d % \| \+.* … \+.* \| \d\.\d % \|", row
    )


def test_says_how_to_measure_again():
    text = rendered({"a": case(), **CONTROL})
    assert f"`tilegate gate --base {'0' * 40} --head {'0' * 40} --target cuda --tier pr`" in text


def broken(message, log=None):
    failure = {"kind": "wrong-result", "message": message, "log": log}
    return case(head=side("b", status="failed", failure=failure, checked=False))


def test_a_broken_case_shows_its_message():
    text = rendered({"a": broken("out: |error| 0.5 > 0.01 at (3, 4)\nsecond line", "log tail")})
    assert text.startswith("## 💥 BROKEN: 1 case of 1 broken")
    assert "```text\nout: |error| 0.5 > 0.01 at (3, 4)\nsecond line\n```" in text
    assert "log tail" in text


@pytest.mark.parametrize("name", [HOSTILE, "`", "``", "|", "a\\|b", " ", "a\nb", "@all", "<b>", "x" * 900])
def test_hostile_names_stay_in_their_cell(name):
    text = rendered(
        {name: case(0.05, confirm=2), f"{name}2": broken(name, name), f"{name}3": case(base=side(status="missing"))}
    )
    acting = outside_code(text)
    for sign in ("<script", "@team", "@all", "e.vil", "<b>", "<!--", "\x1b", "\u202e", "# heading"):
        assert sign not in acting
    assert acting.count("<details>") == acting.count("</details>")
    row = next(line for line in acting.split("\n") if line.startswith("| regressed"))
    assert row.count("|") == 9


@given(st.text(max_size=60))
@settings(max_examples=300)
def test_code_span_holds_any_text(text):
    span = report.code(text)
    assert "\n" not in span
    assert "|" not in span
    assert outside_code(f"x {span} y") == "x CODE y"


@given(st.text(max_size=200))
def test_block_holds_any_text(text):
    assert outside_code(f"before\n{report.block(text)}\nafter") == "before\nafter"


@given(st.text(max_size=300))
def test_plain_text_cannot_control_a_terminal(text):
    for lines in (True, False):
        shown = report.plain(text, lines=lines)
        assert all(c.isprintable() or (lines and c == "\n") or c.isspace() for c in shown)
        assert not set(shown) & set("\x00\x07\x08\x0d\x1b\x7f\x9b\u202e\u2066\u200b\u2028")


def test_likely_causes_stand_behind_the_cases_that_are_not_fine():
    lines = ["block [256, 1, 1] -> [512, 1, 1]", "waves a SIMD 4 -> 2"]
    cases = {"slow": case(0.05, confirm=2), "good": case(), "broken": broken("wrong")}
    text = rendered({name: {**built, "cause": lines} for name, built in cases.items()})
    shown = "`block [256, 1, 1] -> [512, 1, 1]`; `waves a SIMD 4 -> 2`"
    assert (
        f"### Likely causes\n\nWhat differs in launch configuration and compiled code; it decides nothing.\n\n- `slow`: {shown}\n"
        in text
    )
    assert f"```\n\nChanged: {shown}\n" in text
    assert text.count(shown) == 2  # nothing is to blame for a pass


@pytest.mark.parametrize("line", [HOSTILE, "", " ", "`", "a\nb", "\u202e" * 500, "x" * 500])
def test_hostile_causes_stay_in_their_code_span(line, capsys):
    verdict = judge.judge(
        document({"slow": {**case(0.05, confirm=2), "cause": [line] * 20}, "bad": {**broken("x"), "cause": [line]}})
    )
    text = report.render(verdict)
    assert len(text) < 10_000
    acting = outside_code(text)
    for sign in ("<script", "@team", "e.vil", "<!--", "\x1b", "\u202e", "# heading", "xxx"):
        assert sign not in acting
    assert acting.count("<details>") == acting.count("</details>")
    (shown,) = (row for row in acting.split("\n") if row.startswith("- "))
    assert set(re.findall(r"\w+", shown)) == {"CODE"}
    report.show(verdict)
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert out.count("likely cause: ") == 9


def test_a_report_fits_into_a_comment():
    cause = {"cause": ["\u202e" * 500] * 20}
    cases = {f"{'x' * 120}{i}": broken("y" * 9000, "z" * 9000) | cause for i in range(150)}
    cases |= {f"{'x' * 120}{i + 1000}": case(0.05, confirm=2, launches=3) | cause for i in range(90)}
    text = rendered(cases)
    assert len(text) < 65_536
    assert "… and 142 more" in text
    assert "… and 30 more" in text


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(None, "-"), (2.0, "2 s"), (0.0123456, "12.35 ms"), (9.99e-5, "99.9 µs"), (5e-8, "50 ns")],
)
def test_durations(seconds, shown):
    assert report.duration(seconds) == shown


def test_terminal_table_shows_the_verdict_last_and_no_control_character(capsys):
    verdict = judge.judge(
        document({HOSTILE: case(0.05, confirm=2), "[red]b[/red]": broken("\x1b[2J[bold]"), **CONTROL})
    )
    report.show(verdict)
    out = capsys.readouterr().out
    assert out.strip().split("\n")[-1].startswith("BROKEN: 1 case of 3 broken")
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert r"  | \u{1b}[2J[bold]" in out
    assert "[red]b[/red]" in out


def test_the_example_in_the_documentation_is_what_its_samples_say():
    samples = files.load_samples(EXAMPLE / "samples.json")
    assert report.render(judge.judge(samples)) == (EXAMPLE / "report.md").read_text(encoding="utf-8")
