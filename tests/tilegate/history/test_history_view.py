"""What a store says: versions, segments, renames, reverts, merges, broken records."""

import json

import pytest
from history_records import CASE, code, commit, comparison, event
from hypothesis import given
from hypothesis import strategies as st

from tilegate.files import UsageError
from tilegate.history import records, synthetic
from tilegate.history.records import BrokenRecordError
from tilegate.history.store import Store
from tilegate.history.view import version_of, view


def test_identical_code_is_flat_without_measuring():
    shown = view([commit("a"), commit("b", "a"), commit("c", "b"), code("a", "x"), code("b", "x"), code("c", "y")])
    case = shown.cases[CASE]
    assert case.versions[0] == case.versions[1] != case.versions[2]
    contrast = case.contrast(0, 1)
    assert (contrast.estimate, contrast.low, contrast.high) == (0, 0, 0)
    assert case.contrast(0, 2) is None  # not measured, so not known


def test_a_revert_has_the_old_level_again():
    found = [commit("a"), commit("b", "a"), commit("c", "b"), code("a", "x"), code("b", "y"), code("c", "x")]
    case = view([*found, comparison("x", "y", 0.03)]).cases[CASE]
    assert case.contrast(0, 1).estimate == pytest.approx(0.03)
    assert case.contrast(1, 2).estimate == pytest.approx(-0.03)
    assert case.contrast(0, 2).error == 0


def test_the_order_is_the_first_parents_whatever_the_dates_say():
    line = [
        commit("a", date="2026-05-01"), commit("b", "a", date="2026-01-01"), commit("x", "a", date="2026-04-01"),
        commit("c", "b", "x", date="2026-02-01"),
    ]  # fmt: skip
    assert [each.subject for each in view(reversed(line)).commits] == ["a", "b", "c"]


def test_a_missing_base_invents_no_change():
    """asciidoc-rs/asciidoc-parser 1295: a base without a result gave -52 %."""
    found = [commit("a"), commit("b", "a"), code("a", None, failed="does not compile"), code("b", "y")]
    case = view([*found, comparison("y", "z", 0.5)]).cases[CASE]
    assert case.versions[0] is None
    assert case.failed == {0: "does not compile"}
    assert case.contrast(0, 1) is None


def test_an_incomplete_newest_commit_is_only_not_known():
    """rustc-perf 1343."""
    case = view([commit("a"), commit("b", "a"), code("a", "x")]).cases[CASE]
    assert case.versions == (version_of("x", "1"), None)


def test_comparisons_never_cross_environments():
    found = [commit("a"), commit("b", "a"), commit("c", "b"), code("a", "x"), code("b", "y"), code("c", "z")]
    shown = view(
        [*found, comparison("x", "y", 0.03), comparison("y", "z", 0.02, environment="e2", created="2026-02-01")]
    )
    case = shown.cases[CASE]
    assert [segment.environment for segment in case.segments] == ["e2", "e1"]
    assert case.contrast(0, 1).estimate == pytest.approx(0.03)
    assert case.contrast(1, 2).estimate == pytest.approx(0.02)
    assert case.contrast(0, 2) is None


def test_another_way_of_measuring_is_another_series():
    """newton-physics/newton 3992."""
    found = [commit("a"), commit("b", "a"), code("a", "x", method="1"), code("b", "x", method="2")]
    shown = view([*found, comparison("x", "y", 0.01, method="1")])
    assert set(shown.cases) == {CASE, f"{CASE} [method 1]"}
    assert shown.cases[CASE].segments == ()


def test_a_renamed_case_goes_on_by_an_alias():
    new = CASE.replace("'a'", "'b'")
    found = [commit("a"), commit("b", "a"), code("a", "x"), code("b", "y", case=new)]
    assert set(view(found).cases) == {CASE, new}
    shown = view([*found, comparison("x", "y", 0.01), event("alias", CASE, to=new)])
    assert set(shown.cases) == {new}
    assert shown.cases[new].names == (CASE,)
    assert shown.cases[new].contrast(0, 1).estimate == pytest.approx(0.01)
    circle = [event("alias", CASE, to=new), event("alias", new, to=CASE)]
    assert len(view([*found, *circle]).cases) >= 1  # and it ends


def test_releases_and_places():
    shown = view([commit("a"), commit("b", "a"), event("release", "v1", to="a" * 8)])
    assert shown.place("v1") == 0
    assert shown.place("bbbb") == 1
    assert shown.place("b") is None
    assert shown.last_release == 0


def test_levels_are_against_the_first_version_of_the_newest_component():
    found = [commit(s, *([] if s == "a" else [chr(ord(s) - 1)])) for s in "abcd"]
    found += [code(s, i) for s, i in zip("abcd", "wxyz", strict=True)]
    (segment,) = view([*found, comparison("w", "x", 0.5), comparison("y", "z", 0.02)]).cases[CASE].segments
    assert segment.reference == version_of("y", "1")
    assert segment.levels == {version_of("y", "1"): 0.0, version_of("z", "1"): pytest.approx(0.02)}


def test_a_flagged_edge_is_shown_and_does_not_count():
    found = [commit("a"), commit("b", "a"), code("a", "x"), code("b", "y")]
    edges = [comparison("x", "y", 0.01, created=f"2026-01-0{n}") for n in (1, 2, 3)]
    (segment,) = view([*found, *edges, comparison("x", "y", 0.08, created="2026-01-04")]).cases[CASE].segments
    assert [each.flagged is not None for each in segment.edges] == [False, False, False, True]
    assert segment.levels[version_of("y", "1")] == pytest.approx(0.01, abs=1e-6)


def test_a_synthetic_history_is_the_same_every_time_and_fits_the_store(tmp_path):
    size = synthetic.Size(commits=30, cases=5, versions=3, busy_versions=8, release_every=10)
    first, second = list(synthetic.records(size, 3)), list(synthetic.records(size, 3))
    assert first == second
    store = Store(tmp_path)
    assert all(store.add(record) for record in first)
    assert not any(store.add(record) for record in second)
    found, broken = store.read()
    assert not broken
    shown = view(found)
    assert (len(shown.commits), len(shown.cases), shown.orphans) == (30, 5, 0)
    assert shown.last_release is not None
    assert all(case.contrast(0, 29) is not None for case in shown.cases.values())


def test_a_broken_record_is_named_and_skipped(tmp_path):
    store = Store(tmp_path)
    store.add(commit("a"))
    store.add(code("a", "x"))
    (good,) = (tmp_path / "records/commit").glob("*/*.json")
    for name, content in {
        "cut.json": good.read_text()[:20],
        "changed.json": good.read_text().replace('"A"', '"B"'),
    }.items():
        (good.parent / name).write_text(content)
    (tmp_path / "records/comparison/ab").mkdir(parents=True)
    (tmp_path / "records/comparison/ab/bytes.json").write_bytes(b"\xff\xfe")
    (tmp_path / "packs").mkdir()
    (tmp_path / "packs/2026-01-x.jsonl.xz").write_bytes(b"no xz")
    found, broken = store.read()
    assert len(found) == 2
    assert len(broken) == 4
    assert all(each.path and each.reason for each in broken)
    with pytest.raises(UsageError, match="no history"):
        Store(tmp_path / "nowhere").read()


@given(st.dictionaries(st.text(max_size=8), st.one_of(st.none(), st.floats(), st.text(max_size=5)), max_size=4))
def test_no_json_breaks_the_reader(value):
    for kind in (None, *records.KINDS):
        text = json.dumps({**value, **({"kind": kind} if kind else {})})
        with pytest.raises(BrokenRecordError):
            records.parse(text)


def test_two_writers_never_conflict_and_packing_loses_nothing(tmp_path):
    size = synthetic.Size(commits=12, cases=3, versions=3, busy=0, release_every=5)
    everything = list(synthetic.records(size))
    one, two = Store(tmp_path / "one"), Store(tmp_path / "two")
    for record in everything[::2]:
        one.add(record)
    for record in everything[1::2] + everything[:4]:
        two.add(record)
    for path in sorted((tmp_path / "two").rglob("*.json")):  # what a merge of two branches does
        target = tmp_path / "one" / path.relative_to(tmp_path / "two")
        if target.exists():
            assert target.read_bytes() == path.read_bytes()
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    before = one.read()
    assert len(before[0]) == len(everything)
    assert one.pack("2199-12") > 0
    assert not list((tmp_path / "one/records/comparison").glob("*/*.json"))
    assert one.read() == before
    assert one.pack("2199-12") == 0


def test_packing_launders_nothing(tmp_path):
    store = Store(tmp_path)
    store.add(commit("a", date="2026-01-05"))
    store.add(code("a", "x"))
    store.add(comparison("x", "y", 0.01))
    (path,) = (tmp_path / "records/comparison").glob("*/*.json")
    path.write_text(path.read_text().replace("0.01", "0.02"))
    (tmp_path / "records/comparison/ab").mkdir(parents=True)
    (tmp_path / "records/comparison/ab/bytes.json").write_bytes(b"\xff\xfe")
    before = store.read()
    assert len(before[1]) == 2
    assert store.pack("2026-01") == 1  # the versions, by their commit's month
    assert store.read() == before


@pytest.mark.parametrize("more", [{"state": "nonsense"}, {"expires": 3}, {"to": ""}])
def test_optional_fields_are_checked_too(more):
    with pytest.raises(BrokenRecordError):
        records.parse(json.dumps(event("triage", "id", **more)))


def test_packing_everything_before_a_commit_of_the_branch(tmp_path):
    store = Store(tmp_path)
    for record in (commit("a", date="2026-01-05"), code("a", "x"), comparison("x", "y", 0.01, created="2999-01-01")):
        store.add(record)
    before = store.read()
    assert store.pack("9999-12", label="2026-02") == 2
    assert [path.name.startswith("2026-02-") for path in (tmp_path / "packs").iterdir()] == [True]
    assert store.read() == before
    assert not store.add(commit("a", date="2026-01-05"))  # commits stay loose, so that they are not written again


def kept(folder):
    store = Store(folder)
    for record in synthetic.records(synthetic.Size(commits=12, cases=4, versions=3, busy_versions=5)):
        store.add(record)
    store.add({**code("b", None), "same": "a" * 8})
    return store


def test_what_was_read_before_is_not_opened_again_and_says_the_same(tmp_path):
    store, cache = kept(tmp_path / "store"), tmp_path / "cache" / "read.json"
    plain = store.read()
    assert store.read(cache) == plain  # makes it
    assert store.read(cache) == plain  # uses it
    for path in (tmp_path / "store").rglob("*.json"):
        path.write_text("gone")  # none of them is opened
    assert store.read(cache) == plain
    assert store.read()[0] == []


def test_a_new_record_a_removed_one_and_a_pack_are_seen_through_the_cache(tmp_path):
    store, cache = kept(tmp_path / "store"), tmp_path / "read.json"
    store.read(cache)
    store.add(commit("a"))
    assert store.read(cache) == store.read()
    next((tmp_path / "store" / "records" / "comparison").glob("*/*.json")).unlink()
    assert store.read(cache) == store.read()
    store.pack("2030-01")
    assert store.read(cache) == store.read(cache) == store.read()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"format": "other"}', '{"format": 3, "table": 1}'])
def test_a_damaged_cache_is_made_again(tmp_path, content):
    store, cache = kept(tmp_path / "store"), tmp_path / "read.json"
    cache.write_text(content)
    assert store.read(cache) == store.read()
    assert len(cache.read_text()) > 1000


def test_a_broken_record_is_named_each_time(tmp_path):
    store, cache = kept(tmp_path / "store"), tmp_path / "read.json"
    path = next((tmp_path / "store" / "records" / "comparison").glob("*/*.json"))
    path.write_text("{")
    for _ in range(2):
        found, broken = store.read(cache)
        assert [each.path for each in broken] == [path.relative_to(tmp_path / "store").as_posix()]
    assert len(found) > 10


def test_no_pack_grows_larger_than_a_reader_takes(tmp_path, monkeypatch):
    store = kept(tmp_path / "store")
    before = store.read()
    monkeypatch.setattr("tilegate.history.store._MOST_BYTES", 8000)
    assert store.pack("2030-01") > 20
    assert len(list((tmp_path / "store" / "packs").iterdir())) > 2
    assert store.read() == before
