"""`tilegate report`: everything in it comes from stored results, and what is missing is named."""

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tilegate import cli, files
from tilegate.evidence import figures, upstream
from tilegate.evidence.upstream import Material
from tilegate.judging.judge import judge
from tilegate.judging.roofline import peak_of

ROOT = Path(__file__).parents[3]
SAMPLES = ROOT / "docs" / "examples" / "h200-gate" / "samples.json"
CASE = "attention.Forward.latency_forward('prefill-7b-b4-s4096', 'adaptive')"
ENVIRONMENT = {"device": {"name": "NVIDIA H200"}, "versions": {"torch": "2.11.0+cu130", "tilelang": "0.1.15"}}


def row(length, base, head, low=None, high=None):
    ratio = head / base
    return {
        "length": length, "base_us": base, "base_TFLOP/s": 400.0, "base_error": 0.3, "head_us": head, "head_TFLOP/s": 500.0,
        "head_error": 0.25, "ratio": [ratio, low or ratio, high or ratio],
    }  # fmt: skip


@pytest.fixture(scope="module")
def verdict():
    return judge(files.load_samples(SAMPLES))


@pytest.fixture
def reproduced(verdict):
    revisions = {role: verdict[role]["commit"][:12] for role in ("base", "head")}
    tiles = {"base": {"block_m": 128}, "head": {"block_m": 192}}
    sides = {role: {"tiles": dict.fromkeys(("1024", "4096"), tile)} for role, tile in tiles.items()}
    settings = {"case": CASE, "lengths": ["1024", "4096"], "revisions": revisions, "sides": sides}
    results = {"rows": [row(1024, 40.0, 35.0), row(4096, 300.0, 250.0, 0.82, 0.85)], "wrong": False}
    return {"settings": settings, "environment": ENVIRONMENT, "results": results}


def headings(text):
    return re.findall(r"^## (.*)$", text, re.MULTILINE)


def test_nothing_is_invented():
    for kind in upstream.KINDS:
        text = upstream.render(kind, "Slow", Material())
        parts = text.split("\n## ")[1:]
        assert parts
        assert all("**Missing**: " in part and "`" in part for part in parts), kind
        assert not re.search(r"\d+(\.\d+)? (us|ms|%|TFLOP)", text)


def test_a_pull_request(reproduced, verdict):
    text = upstream.render("pr", "Faster", Material(reproduced, verdict, log=("abc1234 Choose other tiles",)))
    assert headings(text) == [
        "What is slow", "Cause", "Change", "Latency and throughput by length", "Hardware counters", "Other architectures",
        "Correctness", "Environment", "How to reproduce",
    ]  # fmt: skip
    assert "16.7% faster (95 %: -18.0% to -15.0%)" in text
    assert "`tile.block_m 192 -> 128`" in text  # a cause of this case
    assert "`tile.block_m 128 -> 64`" not in text  # and not of another
    assert "abc1234 Choose other tiles" in text
    assert "python repro.py --lengths 1024,4096" in text
    assert text.count("**Missing**") == 2  # counters, other architectures
    assert "- at length 1,024, 4,096: `block_m 128 -> 192`" in text
    assert "The gate compared the head's results of 4 cases with the suite's reference" in text


def test_an_interval_around_one_shows_no_difference(reproduced):
    reproduced["results"]["rows"][-1] = row(4096, 300.0, 302.0, 0.9, 1.1)
    text = upstream.render("issue", "Slow?", Material(reproduced))
    assert "no difference is shown (+0.7%; 95 %: -10.0% to +10.0%)" in text
    assert "slower" not in text


def test_of_two_profiles_the_first_is_the_base(tmp_path, capsys):
    field = ROOT / "docs" / "examples" / "h200-field"
    folders = [str(field / f"profile-b4-s4096-{name}") for name in ("fixed", "adaptive")]
    assert cli.main(["report", "issue", "--profile", *folders, "--out", str(tmp_path)]) == 0
    text = (tmp_path / "report.md").read_text()
    assert "| time | 1009.9 us | 839.2 us | -16.9 % |" in text
    assert "| matrix units | 51.3 % | 68.0 % | +16.7 points |" in text
    assert "base: attention\\_forward\\_kernel: limited by matrix units, busy 51 % of the time." in text
    other = json.loads((field / "profile-b4-s4096-fixed" / "profile.json").read_text())
    other["environment"]["device"]["name"] = "NVIDIA H100"
    (tmp_path / "profile.json").write_text(json.dumps(other))
    assert cli.main(["report", "issue", "--profile", str(tmp_path), folders[1], "--out", str(tmp_path)]) == 2
    assert "different devices" in capsys.readouterr().err


FIELD, GATE = ("docs/examples/h200-field", "docs/examples/h200-gate")
PROFILES = [f"{FIELD}/profile-b4-s4096-{name}" for name in ("fixed", "adaptive")]
STORED = {
    f"{FIELD}/issue": [
        *("issue", "--repro", f"{FIELD}/repro", "--profile", *PROFILES),
        *("--title", "The fixed tile is slow on long prompts (H200, Qwen2.5-7B's heads)"),
    ],
    f"{FIELD}/pr": [
        *("pr", "--repro", f"{FIELD}/repro", "--profile", *PROFILES),
        *("--title", "Choose the tile by the problem instead of one for all"),
    ],
    f"{GATE}/release": [
        *("release", "--gate", GATE, "--isa", f"{GATE}/isa", "--base", "18c2009", "--head", "3e083fe"),
        *("--title", "What going back from 18c2009 to 3e083fe costs (H200, smoke tier, four cases)"),
    ],
}
"""The reports that the docs show, and the words of `tilegate report` that made each."""


@pytest.mark.parametrize("folder", STORED)
def test_the_stored_reports_are_made_of_the_stored_results(folder, tmp_path, monkeypatch):
    words = STORED[folder]
    if "--base" in words and subprocess.run(["git", "cat-file", "-e", "3e083fe"], cwd=ROOT, check=False).returncode:
        pytest.skip("this checkout has not the history that the report lists")
    monkeypatch.chdir(ROOT)
    assert cli.main(["report", *words, "--out", str(tmp_path)]) == 0
    made, kept = ((place / "report.md").read_text() for place in (tmp_path, ROOT / folder))
    if not figures.available():
        kept = re.sub(r"!\[[^\n]*\n\n", "", kept)
    assert made == kept


def test_the_commands_of_the_stored_reports_are_in_the_docs():
    page = (ROOT / "docs" / "evidence.md").read_text().replace("\\\n", "")
    shown = [shlex.split(line) for line in page.splitlines() if line.startswith("tilegate report")]
    for folder, words in STORED.items():
        assert ["tilegate", "report", *words, "--out", folder] in shown


@pytest.mark.parametrize(
    "results", ['{"rows": [], "wrong": false}', '{"rows": [{"length": 3}], "wrong": false}', "[]", "{}"]
)
def test_results_that_are_not_whole_are_refused(results, reproduced, tmp_path, capsys):
    for name in ("settings", "environment"):
        (tmp_path / f"{name}.json").write_text(json.dumps(reproduced[name]))
    (tmp_path / "results.json").write_text(results)
    assert cli.main(["report", "issue", "--repro", str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert "not whole" in said or "not what tilegate wrote" in said
    assert "Traceback" not in said
    assert not (tmp_path / "out").exists()


def test_commits_that_the_head_lacks_are_said_to_be_lacking(verdict):
    text = upstream.render("release", "Back", Material(verdict=verdict, log=("abc1234 New",), behind=True))
    assert "The head is older than the base. It lacks:\n\n- abc1234 New" in text


def test_results_and_commits_of_other_revisions_do_not_stand_in_one_report(verdict):
    named = {"base": "0" * 40, "head": str(verdict["head"]["commit"])}
    assert "they have another base: gate 18c20090e611, --base 000000000000" in str(
        upstream.disagreement(Material(verdict=verdict, named=named))
    )


def test_a_wrong_result_is_said_to_be_wrong(reproduced):
    reproduced["results"]["wrong"] = True
    text = upstream.render("issue", "Slow", Material(reproduced))
    assert "**WRONG**" in text
    assert "**A result is wrong.**" in text


def test_a_release_lists_all_cases(verdict):
    text = upstream.render("release", "0.3", Material(verdict=verdict))
    assert text.count("| `attention.") == sum(
        case["ratio"] is not None and case["role"] == "gated" for case in verdict["cases"].values()
    )


def test_results_of_two_machines_do_not_stand_in_one_report(reproduced, verdict):
    assert upstream.disagreement(Material(reproduced, verdict)) is None
    other = {**reproduced, "environment": {"device": {"name": "NVIDIA H100"}}}
    assert "different devices" in str(upstream.disagreement(Material(other, verdict)))
    revisions = {"base": "0" * 12, "head": verdict["head"]["commit"][:12]}
    other = {**reproduced, "settings": {**reproduced["settings"], "revisions": revisions}}
    assert "another base" in str(upstream.disagreement(Material(other, verdict)))


def test_the_command(reproduced, verdict, tmp_path, capsys):
    for name in ("settings", "environment", "results"):
        (tmp_path / "repro").mkdir(exist_ok=True)
        (tmp_path / "repro" / f"{name}.json").write_text(json.dumps(reproduced[name]))
    files.write_json(tmp_path / "gate" / "verdict.json", verdict)
    out = tmp_path / "out"
    call = ["report", "pr", "--repro", str(tmp_path / "repro"), "--gate", str(tmp_path / "gate"), "--out", str(out)]
    assert cli.main(call) == 0
    text = (out / "report.md").read_text()
    if figures.available():
        assert "![latency and throughput over length](lengths.svg)" in text
        assert {"lengths.svg", "lengths.png"} <= {file.name for file in out.iterdir()}
    else:
        assert "tilekernels[report]" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["report", "pr"], "nothing to report"),
        (["report", "pr", "--gate", "/nowhere"], "has no verdict.json"),
        (["report", "pr", "--gate", "/nowhere", "--base", "main"], "go together"),
        (["report", "pr", "--gate", str(SAMPLES.parent), "--base", "no-such", "--head", "main"], "does not know"),
        (["report", "pr", "--gate", str(SAMPLES.parent), "--base", "--help", "--head", "x"], "expected one argument"),
        (["report", "issue", "--profile", "a", "b", "c"], "two: the base's and the head's"),
        (["report", "issue", "--repro", str(SAMPLES.parent)], "has no settings.json"),
        (["report", "release", "--gate", str(SAMPLES.parent), "--out", "/dev/null/x"], "cannot write"),
    ],
)
def test_a_wrong_call_is_refused(arguments, said, capsys):
    try:
        status = cli.main(arguments)
    except SystemExit as stopped:
        status = stopped.code
    assert status == 2
    assert said in capsys.readouterr().err


@pytest.mark.skipif(not figures.available(), reason=f"matplotlib is not installed: {figures.INSTALL}")
def test_a_roofline_needs_a_chip_whose_peaks_are_known(tmp_path):
    case = {"head_seconds": 1e-3, "work": {"flops": 5e11, "bytes": 1e8}}
    known = {"environment": {"device": {"name": "NVIDIA H200"}}, "cases": {"a": case}}
    assert [file.suffix for file in figures.roofline(known, tmp_path / "roofline")] == [".svg", ".png"]
    assert figures.roofline({**known, "environment": {"device": {"name": "NVIDIA B200"}}}, tmp_path / "x") == []
    assert figures.roofline({**known, "cases": {"a": {"head_seconds": 1e-3}}}, tmp_path / "x") == []


@pytest.mark.parametrize("intensities", [[2000.0], [1.0], [1.0, 2000.0]])
def test_the_roofline_rises_to_the_ridge_and_spans_all_points(intensities):
    peak = peak_of({"device": {"name": "NVIDIA H200"}})
    assert peak is not None
    places, rates = figures._bounds(peak, intensities)
    assert places == sorted(places)
    assert places[0] < min(intensities) <= max(intensities) < places[-1]
    assert rates[0] < rates[1] == rates[2] == pytest.approx(peak.flops / 1e12)


def test_a_profile_has_a_point_for_each_side():
    stored = json.loads((ROOT / "docs/examples/h200-field/profile-b4-s4096-fixed/profile.json").read_text())
    ((role, intensity, rate),) = figures._of_sides(stored)
    work = stored["head"]["work"]
    assert (role, intensity) == ("head", work["flops"] / work["bytes"])
    assert rate == pytest.approx(work["flops"] / 1009.9e-6 / 1e12, rel=1e-3)
    stored["head"]["kernels"][0]["terms"]["time"]["value"] = None
    assert list(figures._of_sides(stored)) == []
