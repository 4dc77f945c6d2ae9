"""The report: what a reviewer sees first, and that nothing from a commit acts in it."""

import dataclasses
import re
from pathlib import Path

import pytest
from commonmark import outside_code
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from sample_builder import CONFIG, case, document, side

from tilegate import config, files
from tilegate.judging import judge
from tilegate.showing import markup, report, terminal

CONTROL = {"control": case(role="control", seed=9)}
HOSTILE = (
    "a`b``c```| <script>x</script> @team [l](http://e.vil) ![i](x) <!-- \u202e\x1b[31m\r\n# heading\n```\n</details>"
)


EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "h200-gate"


def rendered(cases, **options):
    return report.render(judge.judge(document(cases, **options)))


def test_the_first_line_says_what_happened():
    text = rendered({"good": case(), "slow": case(0.04, confirm=2), **CONTROL})
    assert re.match(r"## ❌ REGRESSED: 1 case of 3 got slower, at worst by [34]\.\d %\.\n", text)


def folded(text):
    """Return what a reader sees at first, and the rest."""
    return re.sub(r"(?s)<details>.*</details>", "", text), "".join(re.findall(r"(?s)<details>.*</details>", text))


def test_a_reviewer_sees_the_three_worst_and_what_to_do_and_the_rest_is_folded():
    text = rendered(
        {
            "fine": case(),
            "slow": case(0.04, confirm=2),
            "slowest": case(0.09, confirm=2) | {"cause": ["waves a SIMD 4 -> 2"]},
            "slower": case(0.06, confirm=2),
            "unclear": case(0.05),
            "same": case(role="identical", screen=False),
            **CONTROL,
        }
    )
    seen, rest = folded(text)
    assert seen.count("\n") < 25
    rows = [line for line in seen.split("\n") if line.startswith("| **")]
    assert [re.search("`(.*?)`", row)[1] for row in rows] == ["slowest", "slower", "slow"]
    assert re.match(
        r"\| \*\*regressed\*\* \| `slowest` \| 100 µs \| 10\d(\.\d)? µs \| \+[89]\.\d % \| \+.* … \+.* \| "
        r"likely `waves a SIMD 4 -> 2` \|$",
        rows[0],
    )
    zeros = "0" * 12
    assert (
        f"```sh\ntilegate gate --base {zeros} --head {zeros} --target cuda --tier pr -b '^slowest$|^slower$|^slow$'\n```"
        in seen
    )
    places = [rest.index(f"`{name}`") for name in ("slowest", "slower", "slow", "unclear", "fine", "control", "same")]
    assert places == sorted(places)
    row = next(line for line in rest.split("\n") if "`fine`" in line)
    assert re.search(r"\| pass \| `fine` .* \| \d\.\d % \| 8 in 1 \| no sign of a change", row)


def test_a_pass_needs_no_table_and_no_command():
    seen, _ = folded(rendered({"a": case(), **CONTROL}))
    assert "What to do" not in seen
    assert "|" not in seen.replace("\\|", "")


def test_says_how_to_measure_a_worktree_again():
    samples = document({"a": case(0.05), **CONTROL})
    samples["head"] |= {"rev": "WORKTREE", "commit": None}
    assert "--head WORKTREE --target cuda --tier pr -b '^a$' --fresh\n" in report.render(judge.judge(samples))


def test_rates_stand_beside_times_where_the_suite_states_the_work():
    stated = {"fast": case() | {"work": {"flops": 3e10, "bytes": 1e6}}, "copy": case() | {"work": {"bytes": 1e8}}}
    text = rendered({**stated, "silent": case(), **CONTROL})
    for name, shown in (
        ("fast", "3.. TFLOP/s|300 TFLOP/s|29.* TFLOP/s"),
        ("copy", "1.* GB/s|9.* GB/s"),
        ("silent", "-"),
    ):
        row = next(line for line in text.split("\n") if f"`{name}`" in line)
        assert re.search(rf"\| ({shown}) \|", row)
    assert "TFLOP" not in rendered(stated, target="cpu")


def test_the_shape_stands_beside_the_case_and_is_no_markup():
    slow = case(0.05) | {"work": {"flops": 3e10, "shape": "s4096 | **d64**"}}
    seen, rest = folded(rendered({"slow": slow, **CONTROL}))
    for text in (seen, rest):
        row = next(line for line in text.split("\n") if "`slow`" in line)
        assert "s4096 \\| " in row
        assert "**d64**" not in row
    assert re.search(r"`slow` \| .* \| [\d.]+ TFLOP/s \|", seen)


WAIVER = {
    "name": "known",
    "cases": "slow*",
    "ceiling": 8.0,
    "isa": [],
    "expires": "2026-12-01",
    "reason": "split-K comes",
    "link": "https://e.org/1",
    "origin": "base",
}


def remarkable():
    """A document with something of every kind to remark on."""
    alternating = case(0.0, noise=0.001)
    for pair in alternating["replicates"][0]["pairs"][::2]:
        pair["head"] = [1.06 * t for t in pair["head"]]
    disturbed = case(seed=5)
    disturbed["replicates"][0]["pairs"] += [
        {**p, "disturbed": "throttled"} for p in case(seed=6)["replicates"][0]["pairs"]
    ]
    overrides = (config.Override("loose*", {"promise": 0.1}),)
    return document(
        {
            "slow one": case(0.04, confirm=2),
            "loose one": case(seed=4),
            "alternating": alternating,
            "disturbed": disturbed,
            **{f"fine{i}": case(seed=20 + i) for i in range(9)},
            **CONTROL,
        },
        configuration=dataclasses.replace(CONFIG, overrides=overrides),
        waivers=[
            WAIVER,
            *({**WAIVER, "name": "old", "expires": "2025-12-31", "origin": side} for side in ("base", "head")),
            {**WAIVER, "name": "fresh", "origin": "head"},
        ],
        stages={"compile": 41.2, "screen": 8.5},
    )


def test_what_may_hide_a_slowdown_is_said_everywhere(capsys):
    samples = remarkable()
    files.check_samples(samples)
    verdict = judge.judge(samples)
    files.check(verdict, files.VERDICT_SCHEMA)
    terminal.show(verdict)
    shown = " ".join(capsys.readouterr().out.split())
    seen, rest = folded(report.render(verdict))
    for text in (
        "1 case would have failed and is waived.",
        "Expired waivers fail the run until they are renewed or removed.",
        "Waivers that this change adds or alters do not count without --allow-head-waivers.",
        "1 case judged by other thresholds than the run's.",
        "8 of 152 pairs were disturbed (throttled 8) and do not count.",
        "1 case alternates between a fast and a slow mode.",
    ):
        assert f"- {text}\n" in seen
        assert text in rest
        assert text in shown
    for detail in (
        "waived by known (at most 8 %, until 2026-12-01)",
        "old, at most 8 %, until 2025-12-31",
        "fresh, at most 8 %, until 2026-12-01",
        "promise 10 % (not 3 %)",
        "% apart from turn to turn: more launches a turn",
    ):
        assert detail in rest.replace("\\_", "_")
        assert detail in shown
    for text in (report.render(verdict), shown):
        assert "compile 41.2 s, screen 8.5 s; 49.7 s in all" in text


def broken(message, log=None):
    failure = {"kind": "wrong-result", "message": message, "log": log}
    return case(head=side("b", status="failed", failure=failure, checked=False))


def test_a_broken_case_shows_its_message():
    text = rendered({"a": broken("out: |error| 0.5 > 0.01 at (3, 4)\nsecond line", "log tail")})
    assert text.startswith("## 💥 BROKEN: 1 case of 1 broken")
    assert "| **broken** | `a` | - | - | - | - | `out: │error│ 0.5 > 0.01 at (3, 4)` |" in folded(text)[0]
    assert "```text\nout: |error| 0.5 > 0.01 at (3, 4)\nsecond line\n```" in text
    assert "log tail" in text


def test_every_red_kernel_case_has_the_line_that_shows_it_elsewhere():
    cases = {"m.A.latency_wrong('x')": broken("off"), "m.A.latency_slow('x')": case(0.05, confirm=2)}
    others = {"m.A.latency_good('x')": case(), "m.A.call_slow('x')": case(0.05, confirm=2)}
    verdict = judge.judge(document({**cases, **others}))
    lines = report.reproductions(verdict)
    assert [line.partition(" --base ")[0] for line in lines] == [f'tilegate repro "{name}"' for name in cases]
    assert all(f"\n{line}\n" in report.render(verdict) for line in lines)
    many = judge.judge(document({f"m.A.latency_wrong({i})": broken("off") for i in range(20)}))
    assert len(report.reproductions(many)) == 20
    assert "# and 12 more: the same line with another case of verdict.json" in report.render(many)


@pytest.mark.parametrize("name", [HOSTILE, "`", "``", "|", "a\\|b", " ", "a\nb", "@all", "<b>", "x" * 900])
def test_hostile_names_stay_in_their_cell(name):
    text = rendered(
        {
            f"a({name})": case(0.05, confirm=2),
            f"b({name})": broken(name, name),
            f"c({name})": case(base=side(status="missing")),
        }
    )
    acting = outside_code(text)
    for sign in ("<script", "@team", "@all", "e.vil", "<b>", "<!--", "\x1b", "\u202e", "# heading"):
        assert sign not in acting
    assert acting.count("<details>") == acting.count("</details>")
    for start, pipes in (("| **regressed", 8), ("| regressed", 11)):
        row = next(line for line in acting.split("\n") if line.startswith(start))
        assert row.count("|") == pipes


@given(st.text(max_size=60))
@settings(max_examples=300)
def test_code_span_holds_any_text(text):
    span = markup.code(text)
    assert "\n" not in span
    assert "|" not in span
    assert outside_code(f"x {span} y") == "x CODE y"


@given(st.text(max_size=200))
def test_block_holds_any_text(text):
    assert outside_code(f"before\n{markup.block(text)}\nafter") == "before\nafter"


@given(st.text(max_size=300) | st.text("\u202e\t\x1ba", max_size=300), st.integers(10, 200))
def test_plain_text_is_as_short_as_asked_for(text, limit):
    assert len(markup.plain(text, limit=limit)) <= limit
    assert len(markup.plain(text, lines=True, limit=limit)) <= limit


@given(st.text(max_size=300))
def test_plain_text_cannot_control_a_terminal(text):
    for lines in (True, False):
        shown = markup.plain(text, lines=lines)
        assert all(c.isprintable() or (lines and c == "\n") or c.isspace() for c in shown)
        assert not set(shown) & set("\x00\x07\x08\x0d\x1b\x7f\x9b\u202e\u2066\u200b\u2028")


def test_likely_causes_stand_behind_the_cases_that_are_not_fine():
    lines = ["block [256, 1, 1] -> [512, 1, 1]", "waves a SIMD 4 -> 2"]
    cases = {"slow": case(0.05, confirm=2), "good": case(), "broken": broken("wrong")}
    text = rendered({name: {**built, "cause": lines} for name, built in cases.items()})
    shown = "`block [256, 1, 1] -> [512, 1, 1]`; `waves a SIMD 4 -> 2`"
    assert (
        "<summary>Likely causes</summary>\n\nWhat differs in launch configuration and compiled code; it decides nothing."
        f"\n\n- `slow`: {shown}\n" in text
    )
    assert f"```\n\nChanged: {shown}\n" in text
    assert text.count(shown) == 3  # nothing is to blame for a pass; the slow one is also among the worst


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
    terminal.show(verdict)
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert out.count("likely cause: ") == 9


def test_a_report_fits_into_a_comment():
    bidi = "\u202e"
    cause = {"cause": [bidi * 500] * 20}
    cases = {f"{bidi * 120}{i}": broken(bidi * 9000, "`" * 9000) | cause for i in range(150)}
    cases |= {f"slow{'x' * 120}{i + 1000}": case(0.05, confirm=2, launches=3) | cause for i in range(90)}
    alternating = remarkable()["cases"]["alternating"]
    cases |= {f"loose{'|' * 120}{i + 2000}": alternating for i in range(90)}
    optional = remarkable()
    optional = {key: optional[key] for key in ("waivers", "stages")}
    for w in optional["waivers"]:
        w |= {"cases": "slow" + "*" * 900, "reason": "r" * 500, "link": "https://" + "l" * 400}
    overrides = (config.Override("loose*", {"promise": 0.1, "regression": 0.09, "replicate_regression": 0.08}),)
    text = rendered(cases, configuration=dataclasses.replace(CONFIG, overrides=overrides), **optional)
    assert len(text) < 65_536
    assert re.search(r"… and 14\d more, in verdict.json", text)
    assert text.count("<details>") == text.count("</details>")


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(None, "-"), (2.0, "2 s"), (0.0123456, "12.35 ms"), (9.99e-5, "99.9 µs"), (5e-8, "50 ns")],
)
def test_durations(seconds, shown):
    assert markup.duration(seconds) == shown


@pytest.mark.parametrize("width", [40, 60, 100, 200])
def test_no_terminal_is_too_narrow_for_a_whole_number(capsys, monkeypatch, width):
    verdict = judge.judge(document({"slow": case(0.3464, confirm=2), **CONTROL}))  # ln 1.414
    monkeypatch.setattr(
        terminal, "Console", lambda **_: Console(width=width, highlight=False, force_terminal=True, color_system=None)
    )
    terminal.show(verdict)
    out = capsys.readouterr().out
    for number in report.figures(verdict["cases"]["slow"]):
        assert re.search(rf"(?<![\w.]){re.escape(number)}(?![\w.])", out), number


def test_terminal_table_shows_the_verdict_last_and_no_control_character(capsys):
    verdict = judge.judge(
        document({HOSTILE: case(0.05, confirm=2), "[red]b[/red]": broken("\x1b[2J[bold]"), **CONTROL})
    )
    terminal.show(verdict)
    out = capsys.readouterr().out
    assert out.strip().split("\n")[-1].startswith("BROKEN: 1 case of 3 broken")
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert r"  | \u{1b}[2J[bold]" in out
    assert "[red]b[/red]" in out


def test_the_example_in_the_documentation_is_what_its_samples_say():
    samples = files.load_samples(EXAMPLE / "samples.json")
    assert report.render(judge.judge(samples)) == (EXAMPLE / "report.md").read_text(encoding="utf-8")


def test_an_improvement_that_is_too_good_comes_with_a_request_to_look():
    text = rendered({"much": case(-0.4, confirm=2), **CONTROL})
    assert "Please look before you believe it: 1 case got faster by more than changes usually do." in text
    assert "1.7 times as fast" in text
    assert "nobody looked at what the timed launches wrote" in text
    assert "Please look" not in rendered({"little": case(-0.2, confirm=2), **CONTROL})
