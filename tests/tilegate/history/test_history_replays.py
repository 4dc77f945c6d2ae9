"""What went wrong elsewhere, replayed. Others stand beside what they test: `grep -rn ' [0-9]\\{3,6\\}[.:]' tests/tilegate/history`."""

import json

import pytest
from history_records import CASE, code, commit, comparison

from tilegate import cli
from tilegate.history import inbox
from tilegate.history.importing import from_asv
from tilegate.history.store import Store
from tilegate.history.view import view
from tilegate.measuring import environment

OTHER = CASE.replace("'a'", "'b'")


def compared(tmp_path, capsys, records):
    store = Store(tmp_path)
    for record in records:
        store.add(record)
    status = cli.main(["history", "compare", "a" * 8, "b" * 8, "--json", "--store", str(tmp_path)])
    return status, json.loads(capsys.readouterr().out)


def test_a_mean_is_of_the_cases_that_both_have(tmp_path, capsys):
    """pytorch/test-infra 6969: a mean over other cases before than after moved when a case came or went."""
    line = [commit("a"), commit("b", "a"), code("a", "x"), code("b", "y"), comparison("x", "y", 0.02)]
    status, found = compared(tmp_path, capsys, line)
    assert status == 0
    assert found["geomean"]["cases"] == 1
    newcomer = [code("b", "q", case=OTHER), comparison("p", "q", 3.0, case=OTHER)]
    status, later = compared(tmp_path, capsys, newcomer)
    assert later["geomean"] == found["geomean"]
    assert later["excluded"] == {OTHER: "no code version at A"}
    both = [code("a", "p", case=OTHER)]
    _, last = compared(tmp_path, capsys, both)
    assert last["geomean"]["cases"] == 2
    assert last["geomean"]["ratio"] > 3


def asv_result(params, values, **more):
    return {
        "commit_hash": "a" * 40, "date": 0, "env_name": "e", "params": {"cpu": "C", "machine": "m1", "os": "Linux 6.1", "ram": "1"} | more,
        "result_columns": ["result", "params", "version"], "results": {"s.time_x": [values, [params], "1"]}, "version": 2,
    }  # fmt: skip


def test_a_case_is_its_name_and_not_its_place():
    """ClickHouse 121278: results were kept by a query's place in its file, and one put in front shifted all that followed."""
    before = {
        r["case"]: r["seconds"] for r in from_asv(asv_result(["'b'", "'c'"], [2.0, 3.0])) if r["kind"] == "observation"
    }
    after = {
        r["case"]: r["seconds"]
        for r in from_asv(asv_result(["'a'", "'b'", "'c'"], [1.0, 2.0, 3.0]))
        if r["kind"] == "observation"
    }
    assert {case: after[case] for case in before} == before
    assert set(after) - set(before) == {"s.time_x('a')"}
    # The order in which a survey lists cases says nothing either.
    line = [commit("a"), commit("b", "a")]
    first = {
        **code("a", "x"),
        "cases": {CASE: {"identity": "x", "method": "1"}, OTHER: {"identity": "p", "method": "1"}},
    }
    second = {
        **code("b", "x"),
        "cases": {OTHER: {"identity": "p", "method": "1"}, CASE: {"identity": "x", "method": "1"}},
    }
    history = view([*line, first, second])
    assert all(case.contrast(0, 1).error == 0 for case in history.cases.values())


def test_a_restart_or_a_renamed_host_begins_no_new_series():
    """folo-rs/folo 429: clock speeds that differ after every restart were part of the machine's key, so each was a new machine."""

    def fingerprint(**more):
        (found,) = [r for r in from_asv(asv_result(["'a'"], [1.0], **more)) if r["kind"] == "environment"]
        return found["fingerprint"]

    assert fingerprint() == fingerprint(machine="m2") == fingerprint(ram="2") == fingerprint(os="Linux 6.1.0-99")
    assert fingerprint() != fingerprint(cpu="another")
    described = environment.describe("cpu")
    machine = {**described["machine"], "id": "another", "memory_bytes": 1}
    assert environment.fingerprint({**described, "machine": machine}) == described["fingerprint"]


def test_a_base_that_has_no_result_is_no_improvement(tmp_path, capsys):
    """asciidoc-rs/asciidoc-parser 1295: a base without a result gave -52 %."""
    records = [
        commit("a"),
        commit("b", "a"),
        code("a", None, failed="does not compile"),
        code("b", "y"),
        comparison("y", "z", -0.7),
    ]
    status, found = compared(tmp_path, capsys, records)
    assert status == 4
    assert found["cases"] == []
    assert found["geomean"] is None
    assert found["excluded"] == {CASE: "no code version at A"}


@pytest.mark.parametrize("after", ["recovers", "is reverted"])
def test_a_regression_that_came_and_went_keeps_its_entry(after):
    """treeverse/dvc-bench 105: while it lasted it was filed; it stays listed, under the same id."""
    line = [commit(s, *([] if s == "a" else [chr(ord(s) - 1)])) for s in "abc"]
    lasting = [*line, code("a", "x"), code("b", "y"), comparison("x", "y", 0.05)]
    (entry,) = inbox.entries(view(lasting))
    assert entry.open
    filed = inbox.unfiled(view(lasting), [entry], "A", "2026-01-05")
    gone = [code("c", "z"), comparison("y", "z", -0.05)] if after == "recovers" else [code("c", "x")]
    (later,) = inbox.entries(view([*lasting, *filed, *gone]))
    assert (later.id, later.recovered, later.open) == (entry.id, True, False)
