"""A real history from its first commit to its inbox: sixteen commits of the toy, measured on the CPU by `history update`."""

import json

import pytest

from tilegate import cli
from tilegate.history.store import Store
from tilegate.history.update import load, plan

pytestmark = [pytest.mark.usefixtures("toy_surroundings"), pytest.mark.thorough, pytest.mark.timeout(1500)]

KERNELS = "toykernels/kernels.py"
TOTAL, MEAN = "sums.Total.latency_total(1000)", "sums.Mean.latency_mean(1000)"


def test_what_was_planted_is_found_and_nothing_else(toy, capsys):
    settings = {
        "version": 1, "project": "toykernels", "repo": ".", "branches": ["main"], "benchmark_dir": "toybench", "results_dir": ".asv/results",
    }  # fmt: skip
    toy.write("asv.conf.json", json.dumps(settings))
    toy.write(".gitignore", ".asv\n__pycache__\n.tilegate\n")
    toy.replace(KERNELS, r"^STEPS = .*$", 'STEPS = ("first",)')
    toy.commit("Describe the suite to asv")
    toy.git("tag", "v1")

    def prose(count):
        for number in range(count):
            toy.write("README", f"{toy.git('rev-parse', 'HEAD')} {number}")
            toy.commit("Edit the README")

    def change(pattern, text, message):
        toy.replace(KERNELS, pattern, text)
        return toy.commit(message)

    prose(2)
    change("; out = sum", "; out = the sum", "Word the same work otherwise")
    prose(2)
    slower = change("TOTAL_MS = 4.0", "TOTAL_MS = 4.2", "Make Total slower by 5 %")
    prose(1)
    good = (toy.path / KERNELS).read_text()
    toy.write(KERNELS, "no Python")
    toy.commit("Break everything")
    toy.write(KERNELS, good.replace("MEAN_MS = 3.0", "MEAN_MS = 3.3"))
    mended = toy.commit("Mend it, and make Mean slower by 10 %")
    prose(2)
    change("MEAN_MS = 3.3", "MEAN_MS = 3.0", "Take the slower Mean back")
    prose(1)
    change("TOTAL_MS = 4.2", "TOTAL_MS = 4.1", "Make Total faster by 2.4 %")
    prose(1)

    arguments = ["--repo", str(toy.path), "--target", "cpu", "--minutes", "20"]
    assert cli.main(["history", "update", *arguments, "--tags", "v*"]) == 0
    assert cli.main(["history", "update", *arguments, "--tags", "v*"]) == 0
    capsys.readouterr()
    history = load(Store(toy.path / ".tilegate" / "history"))
    assert len(history.commits) == int(toy.git("rev-list", "--count", "HEAD"))
    missing = plan(history, [commit.sha for commit in history.commits])
    assert {one.reason for one in missing} <= {"head against the last release"}  # which may be narrowed without end
    total, mean = (history.cases[name] for name in (TOTAL, MEAN))
    assert len({version for version in total.versions if version}) == 4
    assert len({version for version in mean.versions if version}) == 3
    step = total.contrast(history.place(slower) - 1, history.place(slower))
    assert step.low <= 0.0488 <= step.high  # ln 1.05
    against_release = total.contrast(history.last_release, len(history.commits) - 1)
    assert against_release.low <= 0.0247 <= against_release.high  # ln 1.025

    cli.main(["history", "regressions", "--repo", str(toy.path), "--json"])
    entries = json.loads(capsys.readouterr().out)
    found = {(entry["benchmark"], entry["first_bad"], entry["recovered"]) for entry in entries}
    assert found == {("sums.Total.latency_total", slower, False), ("sums.Mean.latency_mean", mended, True)}

    # What is known is not measured again: the search needs nothing but the history.
    before = sum(len(segment.edges) for segment in total.segments)
    where = ["--repo", str(toy.path), "--target", "cpu", "--minutes", "20"]
    assert cli.main(["bisect", *where, "--good", "v1", "--bad", mended, "-b", TOTAL, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["suspects"] == [slower]
    after = load(Store(toy.path / ".tilegate" / "history")).cases[TOTAL]
    assert sum(len(segment.edges) for segment in after.segments) - before <= 2
    results = list((toy.path / ".asv" / "results").glob("*/*-tilegate-*.json"))
    assert len(results) == len(history.commits) - 1  # all but the one that does not build
