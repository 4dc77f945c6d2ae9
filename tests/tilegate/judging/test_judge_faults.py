"""Planted faults, from the file to the exit status: each ends in the right verdict or a clear refusal, never in a pass.

test_judge.py and test_measured.py plant those that only a schema-conforming file can hold: sessions and replicates that
are not fresh, orders, roles, copies, disturbances, impossible times. test_judge_waivers.py those in waivers.
"""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sample_builder import case, document

from tilegate import cli, files
from tilegate.judging import judge

CONTROL = {"control": case(role="control", seed=9)}


def clean():
    return document({"a": case(), **CONTROL})


def slow():
    return document({"a": case(0.05, confirm=2), **CONTROL})


def status(path, content, capsys, *options):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    code = cli.main(["judge", str(path), *map(str, options)])
    return code, capsys.readouterr().err


def test_what_the_faults_are_planted_in_is_sound(tmp_path, capsys):
    assert status(tmp_path / "s.json", json.dumps(clean()), capsys)[0] == 0
    assert status(tmp_path / "s.json", json.dumps(slow()), capsys)[0] == 1


# --- times that are none ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", ["base", "head"])
@pytest.mark.parametrize(
    "bad", ["NaN", "Infinity", "-Infinity", "1e999", "-1e-4", "0", "0.0", "-0.0", "1e-300", "9" * 400, '"1e-4"', "null"]
)
def test_a_clock_that_runs_backwards_or_gives_no_numbers_is_refused(tmp_path, capsys, side, bad):
    text = json.dumps(clean()).replace(f'"{side}": [0.0001', f'"{side}": [{bad}', 1)
    if side == "head":
        samples = clean()
        samples["cases"]["a"]["replicates"][0]["pairs"][3]["head"][1] = 12345
        text = json.dumps(samples).replace("12345", bad)
    assert bad in text
    code, message = status(tmp_path / "s.json", text, capsys)
    assert code == 2
    assert "s.json" in message


# --- arms -------------------------------------------------------------------------------------------------------------


def swap(replicate):
    for pair in replicate["pairs"]:
        pair["base"], pair["head"], pair["order"] = pair["head"], pair["base"], 1 - pair["order"]


@pytest.mark.parametrize("replicates", [(1,), (2,), (0,), (0, 1)])
def test_arms_that_were_swapped_in_some_replicates_never_pass(replicates):
    samples = slow()
    for number in replicates:
        swap(samples["cases"]["a"]["replicates"][number])
    entry = judge.judge(samples)["cases"]["a"]
    assert entry["verdict"] in ("inconclusive", "regressed")
    if {1, 2} & set(replicates):
        assert entry["verdict"] == "inconclusive"


def test_arms_that_were_swapped_throughout_are_an_improvement_with_its_sign():
    samples = slow()
    for replicate in samples["cases"]["a"]["replicates"]:
        swap(replicate)
    entry = judge.judge(samples)["cases"]["a"]
    assert (entry["verdict"], entry["ratio"] < 0.97) == ("improved", True)


# --- outliers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("factor", [0.001, 0.5, 2.0, 1000.0])
@pytest.mark.parametrize("side", ["base", "head"])
def test_one_outlier_a_replicate_decides_nothing(factor, side):
    for samples, expected in (
        (document({"a": case(confirm=2, screen_effect=0.05), **CONTROL}), "pass"),
        (slow(), "regressed"),
    ):
        for replicate in samples["cases"]["a"]["replicates"][1:]:
            replicate["pairs"][5][side] = [factor * t for t in replicate["pairs"][5][side]]
        assert judge.judge(samples)["cases"]["a"]["verdict"] == expected


@pytest.mark.parametrize("factor", [0.001, 1000.0])
def test_an_outlier_in_a_screen_is_measured_again_or_does_no_harm(factor):
    samples = clean()
    pair = samples["cases"]["a"]["replicates"][0]["pairs"][5]
    pair["head"] = [factor * t for t in pair["head"]]
    assert judge.judge(samples)["cases"]["a"]["verdict"] in ("pass", "inconclusive")
    samples = document({"a": case(0.05), **CONTROL})
    pair = samples["cases"]["a"]["replicates"][0]["pairs"][5]
    pair["head"] = [factor * t for t in pair["head"]]
    assert judge.judge(samples)["cases"]["a"]["verdict"] == "inconclusive"


def test_one_slow_launch_in_each_turn_decides_nothing():
    samples = clean()
    for pair in samples["cases"]["a"]["replicates"][0]["pairs"]:
        pair["head"][0] *= 50
    assert judge.judge(samples)["cases"]["a"]["verdict"] == "pass"


# --- files ------------------------------------------------------------------------------------------------------------


@given(st.floats(0, 1, exclude_max=True), st.booleans())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_truncated_file_is_refused(tmp_path, capsys, share, indented):
    text = json.dumps(clean(), indent=1 if indented else None)
    code, message = status(tmp_path / "s.json", text[: int(share * len(text))], capsys)
    assert (code, "not valid JSON" in message) == (2, True)


@given(st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_flipped_byte_never_makes_a_slow_run_pass(tmp_path, capsys, data):
    content = bytearray(json.dumps(slow()).encode())
    content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    assert status(tmp_path / "s.json", bytes(content), capsys)[0] in (1, 2, 4, 5)


def test_a_day_that_is_none_is_refused(tmp_path, capsys):
    text = json.dumps(clean()).replace("2026-01-01T00:00", "2026-01-00T00:00")
    code, message = status(tmp_path / "s.json", text, capsys)
    assert (code, "/created" in message) == (2, True)


@pytest.mark.parametrize(
    "content", ["", "{}", "[]", "null", "\x00", '{"schema": "tilegate-verdict/1", "verdict": "pass"}']
)
def test_a_file_of_another_kind_is_refused(tmp_path, capsys, content):
    assert status(tmp_path / "s.json", content, capsys)[0] == 2


# --- conclusions that came along --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "forge",
    [
        lambda s: s.update(verdict="pass", exit_code=0),
        lambda s: s["cases"]["a"].update(verdict="pass"),
        lambda s: s["cases"]["a"].update(waiver="known"),
        lambda s: s["cases"]["a"]["replicates"][1].update(verdict="pass"),
        lambda s: s.update(schema="tilegate-verdict/1"),
    ],
)
def test_a_forged_conclusion_in_the_samples_is_refused(tmp_path, capsys, forge):
    samples = slow()
    forge(samples)
    assert status(tmp_path / "s.json", json.dumps(samples), capsys)[0] == 2


@pytest.mark.parametrize(
    "forge",
    [
        lambda c: c.update(benchmark="calls.Attention.call_attention"),  # of which a host's noise would be expected
        lambda c: c.update(params=["'b'"]),
        lambda c: c.update(benchmark="attention.Forward.latency_forward('a')", params=[]),
    ],
)
def test_a_case_under_the_name_of_another_is_refused(forge):
    samples = clean()
    name = "attention.Forward.latency_forward('a')"
    samples["cases"][name] = {**case(), "benchmark": "attention.Forward.latency_forward", "params": ["'a'"]}
    assert judge.judge(samples)["exit_code"] == 0
    forge(samples["cases"][name])
    verdict = judge.judge(samples)
    assert (verdict["exit_code"], verdict["cases"][name]["verdict"]) == (4, "inconclusive")
    assert "another case" in verdict["cases"][name]["reason"]


def test_a_forged_verdict_beside_the_samples_is_replaced(tmp_path, capsys):
    forged = judge.judge(clean())
    files.write_json(tmp_path / "out" / "verdict.json", forged)
    files.write_text(tmp_path / "out" / "report.md", "## PASS")
    code, _ = status(tmp_path / "out" / "samples.json", json.dumps(slow()), capsys, "--out", tmp_path / "out")
    assert code == 1
    assert files.load_verdict(tmp_path / "out" / "verdict.json")["verdict"] == "regressed"
    assert "REGRESSED" in (tmp_path / "out" / "report.md").read_text()


def test_a_full_disk_keeps_the_verdict_that_was_there_and_says_so(tmp_path, capsys, monkeypatch):
    (tmp_path / "s.json").write_text(json.dumps(slow()))
    assert cli.main(["judge", str(tmp_path / "s.json"), "--out", str(tmp_path / "out")]) == 1
    before = (tmp_path / "out" / "verdict.json").read_text()

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    (tmp_path / "s.json").write_text(json.dumps(clean()))
    assert cli.main(["judge", str(tmp_path / "s.json"), "--out", str(tmp_path / "out")]) == 2
    assert "No space left" in capsys.readouterr().err
    assert (tmp_path / "out" / "verdict.json").read_text() == before


def test_a_session_that_serves_two_replicates_of_a_case_is_refused_and_one_that_serves_two_cases_is_not():
    samples = document({"a": case(0.0, screen_effect=0.05, confirm=2), "b": case(seed=8), **CONTROL})
    assert judge.judge(samples)["exit_code"] == 0  # the cases share the sessions "screen-0" …
    samples["cases"]["a"]["replicates"][2]["session"] = samples["cases"]["a"]["replicates"][1]["session"]
    assert judge.judge(samples)["exit_code"] == 4


# --- files that are named -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        ("--config", "BAD"),
        ("--noise-profile", "BAD"),
        ("--waivers", "BAD"),
        ("--waivers", "good.toml", "--head-waivers", "BAD"),
    ],
)
@pytest.mark.parametrize("content", ["[", "[waiver.x]\ncases = 'a'\n[tool.tilegate]\npromis = 1", "\udcff", None])
def test_a_file_that_cannot_be_used_is_called_by_its_name(tmp_path, capsys, options, content):
    bad, good = tmp_path / "mine", tmp_path / "good.toml"
    good.write_text("")
    if content is not None:
        bad.write_bytes(content.encode(errors="surrogateescape"))
    given = {"BAD": bad, "good.toml": good}
    code, message = status(tmp_path / "s.json", json.dumps(clean()), capsys, *(given.get(o, o) for o in options))
    assert (code, str(bad) in message) == (2, True), message
    assert "pyproject.toml" not in message
    assert "tilegate-waivers.toml" not in message
