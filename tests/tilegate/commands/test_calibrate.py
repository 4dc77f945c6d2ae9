"""Calibration from end to end, on the toy library and a simulated clock whose noise is known."""

from __future__ import annotations

import contextlib
import datetime
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import toy_repository

import tilegate
from tilegate import cli, files
from tilegate.judging import noise_file
from tilegate.measuring import environment

pytestmark = pytest.mark.usefixtures("toy_surroundings")

TOTAL, MEAN = "sums.Total.latency_total(1000)", "sums.Mean.latency_mean(1000)"
BOTH = ("-b", r"latency_(total|mean)\(1000\)")
KERNELS = toy_repository.KERNELS


def calibrate(toy, *arguments):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = cli.main(
            ["calibrate", "--repo", str(toy.path), "--target", "cpu", "--json", "--same-layout", "0", *arguments]
        )
    return toy_repository.Outcome(status, out.getvalue(), err.getvalue())


def biased(toy, percent):
    """Let every process have a bias of its own: the kernel takes as much longer in all its launches."""
    toy.replace(
        KERNELS,
        r"self\._seconds = milliseconds / 1000",
        f"import os, random; self._seconds = milliseconds / 1000 * random.Random(os.getpid()).gauss(1, {percent / 100})",
    )
    toy.commit("Let processes differ")
    toy.git("tag", "--force", "base")


def test_planted_noise_is_recovered(toy):
    biased(toy, 1.0)
    outcome = calibrate(toy, *BOTH, "--replicates", "12")
    assert outcome.status == 0, outcome
    cases = json.loads(outcome.out)["cases"]
    assert set(cases) == {TOTAL, MEAN}
    for case in cases.values():
        assert (case["replicates"], case["pairs"]) == (12, 288)
        # Each side's process is off by 1 %, so their ratio by 1.41 %. 12 replicates know that to about 20 %: 3.5 sigma.
        assert 0.3 * 0.0141 < case["bias"] < 1.7 * 0.0141
        assert case["bias_high"] > case["bias"]
        # 0.2 % a launch, 0.28 % a ratio of two, of which the median of three has 0.67.
        assert case["pair_noise"] == pytest.approx(0.0019, rel=0.3)
    assert cases[TOTAL]["seconds"] == pytest.approx(0.004, rel=0.02)
    written = files.load_json(toy.path / ".tilegate" / "noise-cpu.json")
    assert written == json.loads(outcome.out)
    assert not list(toy.path.glob(".tilegate/*.partial"))
    assert toy.git("status", "--porcelain") == ""


@pytest.mark.parametrize(("source", "share"), [("os.environ['PYTHONHASHSEED']", 1.0), ("os.getpid()", 0.0)])
def test_the_share_of_the_layout_is_measured(toy, source, share):
    toy.replace(
        KERNELS,
        r"self\._seconds = milliseconds / 1000",
        f"import os, random; self._seconds = milliseconds / 1000 * random.Random({source}).gauss(1, 0.02)",
    )
    toy.commit("Let processes differ")
    outcome = calibrate(toy, *BOTH, "--replicates", "6", "--same-layout", "5")
    assert outcome.status == 0, outcome
    document = json.loads(outcome.out)
    # Of processes that differ by themselves, 6 and 5 pairs can show a share by chance.
    assert document["layout_share"] == pytest.approx(share, abs=0.05 if share else 0.9)
    alike = [found["bias_same_layout"] for found in document["cases"].values()]
    assert all(size < 0.002 for size in alike) if share else all(size > 0.004 for size in alike)


def test_a_quiet_machine_needs_little(toy):
    outcome = calibrate(toy, *BOTH, "--replicates", "5")
    assert outcome.status == 0, outcome
    for case in json.loads(outcome.out)["cases"].values():
        assert case["bias_high"] < 0.002
        assert case["needs"] == {"screen_pairs": 8, "replicates": 2, "pairs": 16}


def test_the_gate_uses_the_profile_and_says_so(toy):
    toy.write("noise.json", calibrate(toy, *BOTH, "--replicates", "5").out)
    toy.config(noise_profile="noise.json")
    toy.replace(KERNELS, "TOTAL_MS = 4.0", "TOTAL_MS = 4.4")
    toy.commit("Slower")
    outcome = toy.gate("base", "HEAD", *BOTH)
    assert outcome.status == 1, outcome
    assert outcome.case(TOTAL)["verdict"] == "regressed"
    cited = outcome.verdict["noise_profile"]
    assert cited["digest"] == toy.samples()["noise_profile"]["digest"]
    assert [len(r["pairs"]) for r in toy.samples()["cases"][TOTAL]["replicates"]] == [8, 16, 16]


def test_a_case_too_noisy_for_the_promise_is_not_gating_and_never_a_pass(toy):
    biased(toy, 8.0)
    toy.write("noise.json", calibrate(toy, *BOTH, "--replicates", "6").out)
    assert json.loads((toy.path / "noise.json").read_text())["cases"][TOTAL]["needs"] is None
    toy.config(noise_profile="noise.json")
    toy.replace(KERNELS, "TOTAL_MS = 4.0", "TOTAL_MS = 4.01")
    toy.commit("Change")
    outcome = toy.gate("base", "HEAD", *BOTH)
    assert outcome.status in (4, 5), outcome  # nothing that counts was measured; or the only control moved
    assert outcome.case(TOTAL)["verdict"] == "not-gating"


def test_a_profile_of_another_machine_is_refused_before_anything_is_measured(toy, tmp_path):
    document = json.loads(calibrate(toy, *BOTH, "--replicates", "5").out)
    document["environment"]["machine"]["id"] = "0" * 12
    (tmp_path / "theirs.json").write_text(json.dumps(document))
    outcome = toy.gate("base", "HEAD", "--noise-profile", str(tmp_path / "theirs.json"))
    assert outcome.status == 2
    assert "another computer" in outcome.err
    assert not list(toy.path.glob(".tilegate/*/samples.json"))

    document["environment"] = environment.describe("cpu")
    document["created"] = (
        datetime.date.today() - datetime.timedelta(days=noise_file.MOST_DAYS + 2)
    ).isoformat() + "T00:00:00"
    (tmp_path / "old.json").write_text(json.dumps(document))
    outcome = toy.gate("base", "HEAD", "--noise-profile", str(tmp_path / "old.json"))
    assert (outcome.status, "days old" in outcome.err) == (2, True)
    outcome = toy.gate("base", "HEAD", "--noise-profile", str(tmp_path / "old.json"), "--skip-unfit-noise", *BOTH)
    assert "gating without a noise profile" in outcome.err
    assert "days old" in outcome.err
    assert outcome.verdict["noise_profile"] is None

    toy.config(noise_profile="nowhere.json")
    outcome = toy.gate("base", "HEAD")
    assert (outcome.status, "has no nowhere.json" in outcome.err) == (2, True)


def test_a_case_that_fails_is_left_out_and_the_rest_is_calibrated(toy):
    toy.replace(KERNELS, r"def mean\(\):", "def mean():\n    raise RuntimeError('no mean today')\n\n\ndef _mean():")
    toy.commit("Break one")
    outcome = calibrate(toy, *BOTH, "--replicates", "5", "--rev", "HEAD")
    assert outcome.status == 0, outcome
    assert set(json.loads(outcome.out)["cases"]) == {TOTAL}
    assert f"not calibrated: {MEAN}: " in outcome.err
    outcome = calibrate(toy, "-b", r"latency_mean\(1000\)", "--rev", "HEAD")
    assert outcome.status == 4
    assert "nothing could be calibrated" in outcome.err


def test_without_time_nothing_is_written(toy):
    outcome = calibrate(toy, *BOTH, "--budget", "0.0001")
    assert outcome.status == 4
    assert "budget is used up after 0 of 8 replicates" in outcome.err
    assert not (toy.path / ".tilegate" / "noise-cpu.json").exists()


@pytest.mark.parametrize("ending", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.thorough)])
def test_killed_in_the_middle_it_continues_and_measures_nothing_twice(toy, ending):
    command = toy_repository._COMMAND.format(facts=toy_repository.NO_TORCH)
    arguments = ["calibrate", "--repo", str(toy.path), "--target", "cpu", "--replicates", "6", *BOTH]
    path = os.pathsep.join([str(toy_repository.VIRTUAL_TIME), str(Path(tilegate.__file__).parents[1])])
    running = subprocess.Popen(
        [sys.executable, "-c", command, *arguments],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    partial = toy.path / ".tilegate" / "noise-cpu.json.partial"

    def replicates():
        return (
            [len(c["replicates"]) for c in json.loads(partial.read_text())["cases"].values()]
            if partial.exists()
            else [0]
        )

    while max(replicates()) < 2:
        assert running.poll() is None
        time.sleep(0.02)
    running.send_signal(ending)
    _, said = running.communicate(timeout=30)
    if ending == signal.SIGTERM:
        assert running.returncode == 130
        assert "to resume: tilegate calibrate" in said
    kept = json.loads(partial.read_text())["cases"]
    assert not (toy.path / ".tilegate" / "noise-cpu.json").exists()

    refused = calibrate(toy, "-b", "latency_total", "--replicates", "6")
    assert (refused.status, "different filter" in refused.err) == (2, True)
    outcome = calibrate(toy, *BOTH, "--replicates", "6")
    assert outcome.status == 0, outcome
    assert "continuing: " in outcome.err
    done = outcome.err.count("replicate ")
    assert done == 2 * 6 - sum(len(c["replicates"]) for c in kept.values())


def test_a_damaged_partial_file_is_refused_and_fresh_discards_it(toy):
    (toy.path / ".tilegate").mkdir()
    partial = toy.path / ".tilegate" / "noise-cpu.json.partial"
    for content in ('{"schema": "tilegate-calibration/1"}', "[]", '{"cases": {"x": 1}}', "{"):
        partial.write_text(content)
        outcome = calibrate(toy, *BOTH)
        assert outcome.status == 2, content
    assert calibrate(toy, *BOTH, "--replicates", "5", "--fresh").status == 0
