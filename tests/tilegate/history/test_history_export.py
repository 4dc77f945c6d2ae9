"""A history in other tools: CSV, JSON, Parquet, and asv's own commands on asv's result files."""

import csv
import json
import math
import subprocess
import sys

import pytest
import toy_repository
from history_records import CASE, code, commit, comparison
from hypothesis import given
from hypothesis import strategies as st

from tilegate import cli
from tilegate.history import asv_results, exporting
from tilegate.history.store import Store
from tilegate.history.view import view

LINE = [commit("a"), commit("b", "a"), commit("c", "b"), commit("d", "c")]
FOUND = [
    *LINE, code("a", "x"), code("b", "x"), code("c", "y"), code("d", None, failed="does not compile"), comparison("x", "y", 0.03),
    {"kind": "observation", "case": CASE, "method": "1", "commit": "b" * 8, "seconds": 0.5, "error": 0.015, "environment": "o",
     "created": "2026-01-01", "source": "asv"},
    {"kind": "run", "run": "r", "environment": "e1", "card": "c", "created": "2026-01-02", "base_commit": None, "head_commit": "c" * 8,
     "controls": 2, "shift": 0.001, "worst": -0.002, "scatter": 1.25, "bias": None, "pairs": 64, "disturbed": 1, "seconds": 12.5},
]  # fmt: skip


@pytest.fixture
def store(tmp_path):
    made = Store(tmp_path / "store")
    for record in FOUND:
        made.add(record)
    return made


def exported(store, path, *more):
    status = cli.main(["history", "export", str(path), "--store", str(store.folder), *more])
    assert status == 0
    return path


def test_the_same_rows_in_every_format(store, tmp_path):
    pyarrow = pytest.importorskip("pyarrow.parquet", reason="pip install pyarrow")
    for table in exporting.TABLES:
        as_json = json.loads(exported(store, tmp_path / "t.json", "--table", table).read_text())
        as_parquet = pyarrow.read_table(exported(store, tmp_path / "t.parquet", "--table", table)).to_pylist()
        assert as_json == as_parquet
        with exported(store, tmp_path / "t.csv", "--table", table).open(newline="") as file:
            as_csv = list(csv.DictReader(file))
        shown = [{key: "" if value is None else str(value) for key, value in row.items()} for row in as_json]
        assert as_csv == shown
        assert list(as_json[0]) == list(exporting.COLUMNS[table])


def test_asvs_results_are_written_where_one_asks_for_them(store, tmp_path, capsys):
    store.add({"kind": "environment", "fingerprint": "e1", "described": {"machine": {"cpu": "c"}}})
    for changed in (5, 0):  # the commits with a level, the machine, the benchmarks
        exported(store, tmp_path / "results", "--format", "asv")
        assert f"{changed} result files of asv in {tmp_path / 'results'} are new or changed" in capsys.readouterr().out
    assert (tmp_path / "results" / "benchmarks.json").is_file()
    assert cli.main(["history", "export", str(tmp_path / "t.xls"), "--store", str(store.folder)]) == 2
    assert "--format says which" in capsys.readouterr().err


def test_what_is_known_and_what_is_not(store, tmp_path):
    rows = json.loads(exported(store, tmp_path / "t.json").read_text())
    assert [row["ratio"] for row in rows] == [1.0, 1.0, pytest.approx(math.exp(0.03)), None]
    assert [row["error"] for row in rows] == [0.0, 0.0, pytest.approx(0.001), None]
    assert rows[3]["failed"] == "does not compile"
    assert rows[2]["seconds"] / rows[0]["seconds"] == pytest.approx(math.exp(0.03))
    assert rows[2]["low"] < rows[2]["ratio"] < rows[2]["high"]


def test_wrong_calls_write_nothing(store, tmp_path, capsys, monkeypatch):
    for arguments, said in (
        ((str(tmp_path / "t.xlsx"),), "--format says"),
        ((str(tmp_path / "store" / "records" / "x.csv" / "y.csv"), "--format", "csv"), ""),
    ):
        cli.main(["history", "export", "--store", str(store.folder), *arguments])
        assert said in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert cli.main(["history", "export", "--store", str(store.folder), str(tmp_path / "t.parquet")]) == 2
    assert "pip install" in capsys.readouterr().err
    assert not (tmp_path / "t.parquet").exists()


@given(
    st.lists(
        st.one_of(st.text(max_size=6), st.integers(), st.floats(allow_nan=False), st.booleans(), st.none()), max_size=4
    )
)
def test_parameters_are_split_as_they_were_joined(values):
    shown = tuple(map(repr, values))
    case = f"a.B.time_c({', '.join(shown)})" if shown else "a.B.time_c"
    assert asv_results.split(case) == ("a.B.time_c", shown)


@pytest.mark.parametrize("case", ["a.b(", "a.b(<object at 0x1>)", "a.b('", "a.b(x=1)", "a.b(" + "(" * 500, "a.b(\x00)"])
def test_what_is_no_python_is_one_parameter(case):
    benchmark, values = asv_results.split(case)
    assert benchmark == "a.b"
    assert len(values) == 1


def test_asv_shows_and_publishes_the_same_commits(tmp_path):
    toy = toy_repository.make(tmp_path / "toy")
    shas = [toy.git("rev-parse", "HEAD"), toy.commit("Prose"), toy.commit("Slower"), toy.commit("Does not build")]
    settings = {
        "version": 1, "project": "toykernels", "repo": ".", "branches": ["main"], "benchmark_dir": "toybench",
        "environment_type": "existing", "results_dir": ".asv/results", "html_dir": ".asv/html",
    }  # fmt: skip
    toy.write("asv.conf.json", "// comments are allowed\n" + json.dumps(settings))
    date = toy.git("log", "-1", "--format=%cI")
    line = [{**commit("x", date=date), "sha": sha, "parents": shas[max(0, n - 1) : n]} for n, sha in enumerate(shas)]
    codes = [{**code("x", identity), "commit": sha} for sha, identity in zip(shas, ["x", "x", "y"], strict=False)]
    other = [
        {**each, "cases": {CASE.replace("'a'", "'b'"): entry for entry in each["cases"].values()}} for each in codes[:1]
    ]
    described = {"kind": "environment", "fingerprint": "e1", "described": {"device": {"name": "A GPU/1 ../"}}}
    history = view([*line, *codes, *other, described, comparison("x", "y", 0.05)])
    folder = asv_results.results_folder(toy.path)
    assert asv_results.write(history, folder) == 5  # three commits, the machine, the benchmarks
    assert asv_results.write(history, folder) == 0
    assert sorted(path.name for path in folder.iterdir()) == ["A-GPU-1", "benchmarks.json"]

    def asv(*arguments):
        done = subprocess.run(
            [sys.executable, "-m", "asv", *arguments],
            cwd=toy.path,
            capture_output=True,
            text=True,
            check=False,
            timeout=250,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    for sha, time in zip(shas, ("100", "100", "105"), strict=False):
        shown = asv("show", "--machine", "A-GPU-1", sha)
        assert "latency_forward" in shown
        assert time in shown
    asv("publish", "--no-pull")
    published = json.loads((toy.path / ".asv/html/index.json").read_text())
    assert set(published["benchmarks"]) == {CASE.partition("(")[0]}
    (graph,) = [path for path in (toy.path / ".asv/html/graphs").rglob("*latency*.json") if "summary" not in path.parts]
    points = json.loads(graph.read_text())
    values = [value[0] if isinstance(value, list) else value for _, value in points]
    assert values == [pytest.approx(1e-4), pytest.approx(1e-4), pytest.approx(1e-4 * math.exp(0.05))]


def test_asv_s_own_description_of_a_benchmark_stands(tmp_path):
    name = CASE.partition("(")[0]
    theirs = {
        name: {"name": name, "code": "def …", "param_names": ["w", "p"], "params": [["'a'"], ["'fixed'"]]},
        "version": 2,
    }
    (tmp_path / "benchmarks.json").write_text(json.dumps(theirs))
    described = {"kind": "environment", "fingerprint": "e1", "described": {}}
    asv_results.write(view([*FOUND, described]), tmp_path)
    assert json.loads((tmp_path / "benchmarks.json").read_text()) == theirs
    (tmp_path / "benchmarks.json").write_text("[")
    with pytest.raises(asv_results.UsageError, match="just-discover"):
        asv_results.write(view([*FOUND, described]), tmp_path)


def test_results_outside_of_the_repository_are_refused(tmp_path):
    assert asv_results.results_folder(tmp_path) is None
    (tmp_path / "asv.conf.json").write_text('{"results_dir": "../elsewhere"}')
    with pytest.raises(asv_results.UsageError, match="--no-asv"):
        asv_results.results_folder(tmp_path)
    (tmp_path / "asv.conf.json").write_text("[1]")
    with pytest.raises(asv_results.UsageError, match="cannot read"):
        asv_results.results_folder(tmp_path)
