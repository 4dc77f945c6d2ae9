"""What others wrote becomes records: gates with the machine's health, figures of the compiler, counts of the emulator."""

import dataclasses
import json
import lzma
import math
from pathlib import Path

import pytest
from history_records import CASE, code, commit

from tilegate import files
from tilegate.emulator.counters import Counts
from tilegate.files import UsageError
from tilegate.history import importing, records
from tilegate.history.view import view
from tilegate.isa.figures import Figures

ROOT = Path(__file__).parents[3]
GATES = ROOT / "tests" / "data" / "h200_gates"


def of_kind(found, kind):
    return [record for record in found if record["kind"] == kind]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Records of a gate on an H200 that had controls, through the store's own reader."""
    path = tmp_path_factory.mktemp("gate") / "samples.json"
    path.write_bytes(lzma.decompress((GATES / "slower-1.json.xz").read_bytes()))
    return [records.parse(records.text_of(record)) for record in importing.from_file(path)]


def test_a_gate_says_how_fit_its_machine_was(recorded):
    (run,) = of_kind(recorded, "run")
    comparisons = of_kind(recorded, "comparison")
    assert run["controls"] > 0
    assert run["pairs"] >= sum(record["pairs"] for record in comparisons)
    assert abs(run["shift"]) < 0.01  # identical code stood still on that machine
    assert abs(run["shift"]) <= abs(run["worst"])
    assert 0 < run["scatter"] < 3
    assert 0 < run["bias"] < 0.02
    assert all(record["run"] == run["run"] and 0 <= record["bias"] < 0.05 for record in comparisons)
    history = view(recorded)
    assert [each["run"] for each in history.runs] == [run["run"]]


def test_a_comparison_keeps_what_the_suite_tolerates_of_its_case(recorded):
    assert not any("tolerated" in record for record in of_kind(recorded, "comparison"))
    document = files.load_samples(ROOT / "docs" / "examples" / "h200-gate" / "samples.json")
    document["config"]["overrides"] = [{"cases": "*", "promise": 0.09, "tolerated": 0.03}]
    found = of_kind(importing.from_samples(document), "comparison")
    assert found
    assert {records.parse(records.text_of(record))["tolerated"] for record in found} == {0.03}
    with pytest.raises(records.BrokenRecordError):
        records.parse(records.text_of({**found[0], "tolerated": "much"}))


def test_controls_that_scatter_are_seen(recorded):
    """Controls that are off by twice their errors: the factor says it. So it is no constant."""
    (run,) = of_kind(recorded, "run")
    doubled = importing._Health()
    doubled._controls = [(0.004, 0.002), (-0.004, 0.002)]
    document = files.load_samples(ROOT / "docs" / "examples" / "h200-gate" / "samples.json")
    made = doubled.record(document, "r", "f", "c")
    assert made["scatter"] == pytest.approx(2)
    assert made["shift"] == pytest.approx(0)
    assert abs(made["worst"]) == pytest.approx(0.004)
    assert run["scatter"] < made["scatter"]


def test_what_the_suite_says_of_changed_code_is_kept_as_numbers():
    stated = {"main": {"lds": 65536, "tile": {"m": 128}, "name": "x", "waves": 8.0, "ok": True}}
    assert importing._numbers(stated) == {"lds": 65536, "waves": 8.0}
    assert importing._numbers({"a": {"x": 1}, "b": {"x": 2}}) == {"a x": 1, "b x": 2}
    assert importing._numbers(None) == importing._numbers({"a": "text"}) == {}
    assert importing._numbers({"a": {"nan": math.nan}}) == {}


ISA = {
    "schema": "tilegate-isa/1", "created": "2026-01-02T00:00:00+00:00", "revision": {"rev": "HEAD", "commit": "b" * 8, "tree": "t"},
    "toolchains": {"gfx942": {"clang": "19"}},
    "kernels": {"gfx942": {"k": {"cases": [CASE], "figures": {"vgprs": 128, "lds": 65536, "waves": 2.0, "counts": {}}, "problems": []}}},
}  # fmt: skip
EMULATED = {
    "schema": "tilegate-emulate/1", "created": "2026-01-02T00:00:00+00:00", "revision": {"rev": "HEAD", "commit": "b" * 8}, "toolchain": "clang 19",
    "kernels": {"gfx942": {"k": {"cases": [CASE], "problems": {
        "p1": {"findings": [{}], "counters": {"main": {"total": {"mfma": 8, "lds_reads": 3}}, "second": {"total": {"mfma": 1}}}},
        "p2": {"findings": [], "counters": {"main": {"total": {"mfma": 99}}}},
    }}}},
}  # fmt: skip


def test_figures_of_a_commit_reach_the_case(tmp_path):
    found = []
    for number, document in enumerate((ISA, EMULATED)):
        path = tmp_path / f"{number}.json"
        path.write_text(json.dumps(document))
        found += [records.parse(records.text_of(record)) for record in importing.from_file(path)]
    history = view([commit("a"), commit("b", "a"), code("a", "x"), code("b", "y"), *found])
    assert history.cases[CASE].figures == {
        1: {
            "gfx942 isa": {"vgprs": 128, "lds": 65536, "waves": 2.0},
            "gfx942 emulator": {"findings": 1, "mfma": 9, "lds_reads": 3},
        }
    }


def test_the_names_are_those_of_isa_and_emulator():
    assert set(importing._ISA_FIGURES) <= {field.name for field in dataclasses.fields(Figures)}
    assert {"mfma", "lds_reads"} <= {field.name for field in dataclasses.fields(Counts)}


@pytest.mark.parametrize(
    "change", [{"revision": {"commit": None}}, {"kernels": {"gfx942": {"k": {}}}}, {"kernels": []}, {"revision": None}]
)
def test_figures_of_nothing_are_refused(tmp_path, change):
    (tmp_path / "isa.json").write_text(json.dumps(ISA | change))
    with pytest.raises(UsageError, match=r"not of a commit|not whole"):
        list(importing.from_file(tmp_path / "isa.json"))


def test_a_commit_that_says_the_same_names_the_other():
    whole = [commit(s, *([] if s == "a" else [chr(ord(s) - 1)])) for s in "abc"]
    same = {**code("b", None), "same": "a" * 8}
    lost = {**code("c", None), "same": "z" * 8}
    history = view([*whole, code("a", "x"), same, lost])
    versions = history.cases[CASE].versions
    assert versions[0] == versions[1] is not None
    assert versions[2] is None  # the record that it leads to is not there: not known, and nothing breaks
