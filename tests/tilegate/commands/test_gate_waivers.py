"""Waivers and overrides from the files of a repository to the exit status of the gate and the judge."""

from __future__ import annotations

import pytest

from tilegate import cli, files

pytestmark = pytest.mark.usefixtures("toy_surroundings")

KERNELS = "toykernels/kernels.py"
TOTAL = "sums.Total.latency_total(1000)"
ONE_TOTAL = ("-b", r"latency_total\(1000\)")
FILE = "tilegate-waivers.toml"
WAIVER = """
[waiver.total]
cases = "sums.Total.*"
ceiling = 15
expires = 9999-12-31
reason = "known"
link = "https://example.org/1"
"""


def make_base(toy, text):
    toy.write(FILE, text)
    toy.commit("Waive")
    toy.git("tag", "--force", "base")


def make_slower(toy):
    toy.replace(KERNELS, "TOTAL_MS = 4.0", "TOTAL_MS = 4.4")
    toy.commit("Slower")


def test_a_waiver_of_the_base_lets_a_slower_kernel_pass(toy):
    make_base(toy, WAIVER)
    make_slower(toy)
    outcome = toy.gate("base", "HEAD", *ONE_TOTAL)
    assert outcome.status == 0, outcome
    assert (outcome.case(TOTAL)["verdict"], outcome.case(TOTAL)["waiver"]) == ("waived", "total")
    assert {w["origin"] for w in toy.samples()["waivers"]} == {"base", "head"}


def test_past_the_ceiling_or_expired_it_fails(toy):
    make_base(toy, WAIVER.replace("15", "5"))
    make_slower(toy)
    assert toy.gate("base", "HEAD", *ONE_TOTAL).status == 1
    make_base(toy, WAIVER.replace("9999-12-31", "2020-02-29"))
    outcome = toy.gate("base", "HEAD", *ONE_TOTAL)
    assert outcome.status == 4
    assert "total (on 2020-02-29)" in outcome.verdict["reason"]


def test_one_that_the_change_adds_counts_with_leave_which_needs_no_new_measurement(toy):
    toy.write(FILE, WAIVER)
    make_slower(toy)
    outcome = toy.gate("base", "HEAD", *ONE_TOTAL)
    assert outcome.status == 1
    assert [w["name"] for w in outcome.verdict["waivers"]["refused"]] == ["total"]
    outcome = toy.gate("base", "HEAD", *ONE_TOTAL, "--allow-head-waivers")
    assert outcome.status == 0
    assert "holds this run already" in outcome.err
    assert toy.gate("base", "HEAD", *ONE_TOTAL).status == 1


@pytest.mark.parametrize("side", ["base", "head"])
def test_a_bad_file_of_either_side_stops_the_run_before_it_measures(toy, side):
    bad = WAIVER.replace("ceiling = 15", "ceiling = 'much'")
    make_base(toy, bad if side == "base" else "")
    toy.write(FILE, WAIVER if side == "base" else bad)
    make_slower(toy)
    outcome = toy.gate("base", "HEAD", *ONE_TOTAL)
    assert outcome.status == 2
    assert f"{FILE} of the {side}, line 2: waiver.total.ceiling must be" in outcome.err
    assert not list(toy.path.glob(".tilegate/*/"))


def test_uncommitted_waivers_are_not_overlooked(toy):
    make_slower(toy)
    toy.write(FILE, WAIVER)
    toy.git("add", FILE)
    outcome = toy.gate("base", "HEAD", *ONE_TOTAL)
    assert (outcome.status, FILE in outcome.err) == (2, True)


def test_a_publisher_takes_waivers_from_its_own_file(toy, tmp_path, capsys):
    make_base(toy, WAIVER)
    make_slower(toy)
    assert toy.gate("base", "HEAD", *ONE_TOTAL).status == 0
    (samples,) = toy.path.glob(".tilegate/*/samples.json")
    own, none, expired = tmp_path / "own.toml", tmp_path / "none.toml", tmp_path / "expired.toml"
    own.write_text(WAIVER)
    none.write_text("")
    expired.write_text(WAIVER.replace("9999-12-31", "2020-01-01"))
    pyproject = str(toy.path / "pyproject.toml")

    def judge(*options):
        return cli.main(["judge", str(samples), *map(str, options)])

    assert judge() == 0
    assert judge("--waivers", none) == 1
    assert judge("--waivers", own) == 0
    assert judge("--waivers", expired) == 1
    assert judge("--config", pyproject) == 1  # who does not believe the thresholds believes no waivers
    assert judge("--config", pyproject, "--waivers", own) == 0
    assert judge("--waivers", none, "--head-waivers", own) == 1
    assert judge("--waivers", none, "--head-waivers", own, "--allow-head-waivers") == 0
    assert judge("--allow-head-waivers") == 2
    assert judge("--waivers", tmp_path / "nowhere.toml") == 2
    own.write_text("[")
    assert judge("--waivers", own) == 2
    assert "not valid TOML" in capsys.readouterr().err


def test_forged_waivers_in_the_samples_are_refused(toy):
    make_base(toy, WAIVER)
    make_slower(toy)
    assert toy.gate("base", "HEAD", *ONE_TOTAL).status == 0
    (path,) = toy.path.glob(".tilegate/*/samples.json")
    samples = files.load_samples(path)
    samples["waivers"][0]["ceiling"] = 1e9
    files.write_json(path, samples)
    assert cli.main(["judge", str(path)]) == 2


def test_an_override_applies_to_measuring_and_judging(toy):
    toy.replace("pyproject.toml", r"\Z", '\n[[tool.tilegate.overrides]]\ncases = "sums.Total.*"\nscreen_pairs = 10\n')
    toy.commit("Look closer")
    toy.git("tag", "--force", "base")
    make_slower(toy)
    outcome = toy.gate("base", "HEAD", *ONE_TOTAL)
    assert outcome.status == 1
    assert len(toy.samples()["cases"][TOTAL]["replicates"][0]["pairs"]) == 10
