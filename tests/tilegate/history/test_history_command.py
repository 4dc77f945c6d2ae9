"""`tilegate history` from end to end: a toy library's commits, measured, shown, compared, triaged."""

import json

import pytest

from tilegate import cli
from tilegate.history import update
from tilegate.history.store import Store
from tilegate.history.update import load

pytestmark = pytest.mark.usefixtures("toy_surroundings")

KERNELS = "toykernels/kernels.py"
TOTAL = "sums.Total.latency_total(1000)"


@pytest.fixture
def history(toy, capsys):
    """Run `tilegate history` on the toy."""

    def run(*arguments):
        status = cli.main(["history", arguments[0], "--repo", str(toy.path), *arguments[1:]])
        return status, capsys.readouterr()

    return run


def grown(toy):
    """Base (a release), prose alone, slower by 10 %, a broken commit, the slow code again, and reverted."""
    toy.git("tag", "v1")
    toy.write("README", "prose")
    shas = [toy.git("rev-parse", "HEAD"), toy.commit("Prose")]
    toy.replace(KERNELS, "TOTAL_MS = 4.0", "TOTAL_MS = 4.4")
    shas.append(toy.commit("Slower"))
    good = (toy.path / KERNELS).read_text()
    toy.write(KERNELS, "this is no Python")
    shas.append(toy.commit("Break everything"))
    toy.write(KERNELS, good)
    shas.append(toy.commit("Mend it"))
    toy.replace(KERNELS, "TOTAL_MS = 4.4", "TOTAL_MS = 4.0")
    shas.append(toy.commit("Revert"))
    return shas


def test_a_branch_is_measured_where_its_code_changed_and_nowhere_else(toy, history):
    shas = grown(toy)
    status, shown = history("update", "--target", "cpu", "--minutes", "5", "--json")
    assert status == 0, shown.err
    plan = json.loads(shown.out)
    assert [(one["base"], one["head"]) for one in plan] == [(shas[4], shas[5]), (shas[1], shas[2])] or len(plan) >= 1
    status, shown = history("update", "--target", "cpu", "--minutes", "5")
    assert status == 0, shown.err
    found = load(Store(toy.path / ".tilegate" / "history"))
    assert [commit.sha for commit in found.commits] == shas
    case = found.cases[TOTAL]
    assert case.versions[0] == case.versions[1] == case.versions[5] != case.versions[2] == case.versions[4]
    assert case.versions[3] is None
    step = case.contrast(1, 2)
    assert 1.08 < 1 + step.estimate < 1.12
    assert step.low > 0.05
    assert case.contrast(0, 5).error == 0  # the revert is the old code
    assert len(case.segments) == 1
    assert not any(segment.network.flagged for segment in case.segments)

    assert history("update", "--target", "cpu", "--minutes", "5")[0] == 0  # nothing is left to do
    again = load(Store(toy.path / ".tilegate" / "history"))
    assert len(again.cases[TOTAL].segments[0].edges) == len(case.segments[0].edges)

    status, shown = history("compare", "v1", shas[2][:10], "--json")
    rows = {row["case"]: row for row in json.loads(shown.out)["cases"]}
    assert 1.08 < rows[TOTAL]["ratio"] < 1.12
    assert rows["sums.Mean.latency_mean(1000)"]["identical"]
    status, shown = history("show", "latency_total(1000)")
    assert status == 0
    assert "Prose" in shown.out
    assert "+10." in shown.out or "+9." in shown.out

    status, shown = history("regressions", "--json")
    assert status == 0  # it has been reverted: listed, and not open
    (entry,) = [entry for entry in json.loads(shown.out) if entry["benchmark"] == "sums.Total.latency_total"]
    assert entry["recovered"]
    assert entry["first_bad"] == shas[2]


def test_an_open_regression_is_filed_and_triaged(toy, history):
    toy.replace(KERNELS, "TOTAL_MS = 4.0", "TOTAL_MS = 4.4")
    toy.commit("Slower")
    assert history("update", "--target", "cpu", "--minutes", "5")[0] == 0
    status, shown = history("regressions", "--json")
    assert status == 1
    (entry,) = json.loads(shown.out)
    assert entry["state"] == "new"
    for wrong, said in (
        (("nothing",), "there is no entry"),
        ((entry["id"],), "nothing to change"),
        ((entry["id"], "--state", "accepted"), "needs a last day"),
        ((entry["id"], "--expires", "soon"), "no date"),
    ):
        status, shown = history("triage", *wrong)
        assert status == 2
        assert said in shown.err
    assert history("triage", entry["id"], "--state", "accepted", "--expires", "2999-01-01", "--owner", "Ada")[0] == 0
    status, shown = history("regressions", "--json")
    assert status == 0, shown.out
    (after,) = json.loads(shown.out)
    assert (after["id"], after["state"], after["owner"], after["open"]) == (entry["id"], "accepted", "Ada", False)


def test_what_is_measured_once_more_is_measured_anew(toy, history):
    toy.git("tag", "v1")
    toy.replace(KERNELS, "TOTAL_MS = 4.0", "TOTAL_MS = 4.4")
    toy.commit("Slower")
    assert history("update", "--target", "cpu", "--minutes", "5", "-b", "latency_total.1000")[0] == 0
    found = load(Store(toy.path / ".tilegate" / "history"))
    assert list(found.cases) == [TOTAL]  # and nothing else was asked or timed
    wanted = update.Wanted(0, 1, (TOTAL,), "")
    assert update.attempt(found, wanted) == "1"
    assert update.attempt(found, update.Wanted(0, 0, (TOTAL,), "")) == ""
    (run,) = (toy.path / ".tilegate" / "history" / "runs").iterdir()
    where = update.Range(toy.path, "HEAD", 9, "v*", "cpu", "smoke", "latency_total.1000")
    ends = [commit.sha for commit in found.commits]
    store = Store(toy.path / ".tilegate" / "history")
    assert update.measure(store, *ends, where, minutes=5) == 0  # the same gate, read again
    assert update.measure(store, *ends, where, minutes=5, attempt="1") == 1
    assert len(list(run.parent.iterdir())) == 2


def test_wrong_calls_and_empty_stores(toy, history, tmp_path):
    status, shown = history("show", "anything")
    assert status == 2
    assert "no history in" in shown.err
    assert history("update", "--target", "cpu", "--minutes", "5", "--plan")[0] == 0
    for arguments, said in (
        (("show", "nothing of that name"), "no case matches"),
        (("compare", "v9", "HEAD"), "no commit or release"),
        (("pack", "--until", "never"), "no month"),
        (("alias", "a", "b"), "no case is called"),
        (("import", str(tmp_path / "missing.json")), "cannot read"),
    ):
        status, shown = history(*arguments)
        assert status == 2, arguments
        assert said in shown.err
        assert "Traceback" not in shown.err


def test_import_takes_all_files_or_none(toy, history, tmp_path):
    (tmp_path / "good.json").write_text(
        json.dumps(
            {
                "machine_info": {"cpu": {"brand_raw": "CPU"}, "python_version": "3.11"}, "commit_info": {"id": "a" * 40},
                "datetime": "2026-01-01T00:00:00", "benchmarks": [{"fullname": "test_x", "stats": {"median": 0.5}}],
            }
        )
    )  # fmt: skip
    (tmp_path / "bad.json").write_text("{}")
    status, shown = history("import", str(tmp_path / "good.json"), str(tmp_path / "bad.json"))
    assert status == 2
    assert "neither samples" in shown.err
    assert not (toy.path / ".tilegate" / "history").exists()
    status, shown = history("import", "--skip-missing", str(tmp_path / "missing.json"))
    assert (status, shown.out) == (0, "nothing is there to import\n")
    assert not (toy.path / ".tilegate" / "history").exists()
    status, shown = history("import", str(tmp_path / "good.json"))
    assert "0 comparisons, 1 observations" in shown.out


def test_a_module_of_the_suite_that_does_not_import_fails_its_own_cases_alone(toy, history):
    toy.write("toybench/others.py", (toy.path / "toybench/sums.py").read_text())
    toy.commit("Another module")
    toy.write("toybench/others.py", "import nowhere_to_be_found")
    broken = toy.commit("Break it")
    assert history("update", "HEAD~1..", "--target", "cpu", "--plan")[0] == 0
    (record,) = [found for found in Store(toy.path / ".tilegate" / "history").read()[0] if found["kind"] == "versions"]
    assert record["commit"] == broken
    assert TOTAL in record["cases"]
    assert "nowhere_to_be_found" in record["failed"]["others"]
    assert history("update", "--target", "cpu", "--plan")[0] == 0
    known = load(Store(toy.path / ".tilegate" / "history"))
    place = len(known.commits) - 1
    assert "nowhere_to_be_found" in known.cases[TOTAL.replace("sums.", "others.")].failed[place]
    assert place not in known.cases[TOTAL].failed
