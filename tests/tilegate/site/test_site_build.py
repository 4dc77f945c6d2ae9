"""The builder: what it writes, what it leaves alone, what it refuses."""

import base64
import hashlib
import json
import math
import re
import struct
from importlib import resources
from xml.etree import ElementTree as ET

import pytest
from hostile_history import HOSTILE, HOSTILE_CASE, kept

from tilegate import cli
from tilegate.files import UsageError
from tilegate.history import inbox, synthetic
from tilegate.history.network import Contrast, interval
from tilegate.history.store import Store
from tilegate.history.view import view
from tilegate.site.build import build
from tilegate.site.cases import parameters, sampled
from tilegate.site.output import Output, floats
from tilegate.site.states import state_of


def overview(site):
    text = (site / "data" / "overview.js").read_text()
    return json.loads(re.fullmatch(r'Tilegate\.receive\("overview",(.*)\);\n', text).group(1))


def numbers(text):
    raw = base64.b64decode(text)
    return list(struct.unpack(f"<{len(raw) // 4}f", raw))


def test_the_overview_says_what_the_read_model_says(site, history):
    shown = overview(site)
    base = shown["base"]
    assert base == history.last_release
    assert shown["cases"]["name"] == list(history.cases)
    for at, case in enumerate(history.cases.values()):
        contrast = case.contrast(base, len(history.commits) - 1)
        assert shown["cases"]["state"][at] == state_of(contrast)
        assert numbers(shown["cases"]["log"])[at] == pytest.approx(contrast.estimate, abs=1e-7)
    entries = inbox.entries(history)
    assert len(entries) >= 2
    assert [entry["id"] for entry in shown["entries"]] == [entry.id for entry in entries]


def test_a_build_after_one_commit_writes_only_what_changed(tmp_path, history):
    size = synthetic.Size(commits=40, cases=40)
    records = list(synthetic.records(size))
    first = build(view(records), tmp_path / "site")
    assert build(view(records), tmp_path / "site").written == 0
    tip = next(record for record in reversed(records) if record["kind"] == "commit")
    same = next(record for record in records if record["kind"] == "versions" and record["commit"] == tip["sha"])
    new = {**tip, "sha": "f" * 40, "parents": [tip["sha"]], "subject": "Prose"}
    second = build(view([*records, new, {**same, "commit": new["sha"]}]), tmp_path / "site")
    assert first.written > 50
    assert second.written <= 6  # overview, a block of commits, today, commits, feed, manifest: no case


def test_only_files_of_an_earlier_build_are_removed(tmp_path, history):
    out = tmp_path / "site"
    build(history, out)
    (out / "mine.txt").write_text("mine")
    few = view(list(synthetic.records(synthetic.Size(commits=20, cases=2))))
    build(few, out)
    assert (out / "mine.txt").read_text() == "mine"
    assert len(list((out / "json" / "cases").iterdir())) == 2


def test_a_folder_with_something_else_is_refused_and_kept(tmp_path, history):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(UsageError, match="something else than a site"):
        build(history, tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_manifest_cannot_make_it_remove_files_elsewhere(tmp_path, history):
    out, victim = tmp_path / "site", tmp_path / "victim"
    victim.write_text("x")
    build(history, out)
    manifest = json.loads((out / "tilegate-site.json").read_text())
    manifest["files"] |= {"../victim": "0", str(victim): "0"}
    (out / "tilegate-site.json").write_text(json.dumps(manifest))
    build(history, out)
    assert victim.read_text() == "x"


def test_an_empty_history_has_a_page(tmp_path):
    built = build(view([]), tmp_path / "site")
    assert built.index.is_file()
    assert overview(tmp_path / "site")["commits"]["count"] == 0


def test_nothing_is_loaded_from_elsewhere(site):
    for path in site.rglob("*"):
        if path.suffix in (".html", ".css", ".js") and "vendor" not in path.parts and "data" not in path.parts:
            text = path.read_text()
            assert not re.search(r"(src|href)=[\"']?(https?:)?//", text), path
            assert "innerHTML" not in re.sub(r"//.*", "", text), path
            assert not re.search(r"\b(fetch|import)\(", text), path
    html = (site / "index.html").read_text()
    assert "Content-Security-Policy" in html
    assert "unsafe" not in html
    assert not re.search(r"<script(?![^>]*src=)", html)  # no script inside the page, so that the policy can forbid them


def test_hostile_text_ends_no_script_and_no_element(hostile_site):
    for path in (hostile_site / "data").rglob("*.js"):
        assert path.read_bytes().isascii()
        assert len(path.read_text().splitlines()) == 1
    feed = ET.fromstring((hostile_site / "feed.xml").read_text())  # noqa: S314 - written just now
    entries = feed.findall("{http://www.w3.org/2005/Atom}entry")
    assert len(entries) == 2
    assert HOSTILE in entries[0].findtext("{http://www.w3.org/2005/Atom}content")
    assert {element.tag.partition("}")[2] for element in feed.iter()} <= {
        "feed", "title", "id", "updated", "published", "link", "entry", "author", "name", "content",
    }  # fmt: skip


def test_the_feed_has_dates_and_ids_that_readers_accept(hostile_site):
    feed = ET.fromstring((hostile_site / "feed.xml").read_text())  # noqa: S314
    for element in feed.iter():
        if element.tag.endswith(("updated", "published")):
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d", element.text)


def test_json_of_every_view_is_strict(site, history):
    def refuse(constant):
        raise ValueError(constant)

    documents = {
        path.relative_to(site / "json").as_posix(): json.loads(path.read_text(), parse_constant=refuse)
        for path in (site / "json").rglob("*.json")
    }
    assert {"today.json", "inbox.json", "commits.json", "machine.json"} <= documents.keys()
    today = documents["today.json"]
    assert {each["case"] for each in today["cases"]} == set(history.cases)
    assert all(each["file"] in documents for each in today["cases"])
    changed = {name for each in documents["commits.json"] for name in each["changed"]}
    assert changed <= set(history.cases)
    worst = documents["inbox.json"][0]["cases"][0]
    assert worst["low"] < worst["ratio"] < worst["high"]


@pytest.mark.parametrize(
    ("contrast", "state"),
    [
        (None, "unmeasured"),
        (Contrast(0.0, 0.0, 0.0, 0.0), "identical"),
        (interval(0.02, 0.001), "slower"),
        (interval(-0.02, 0.001), "faster"),
        (interval(0.02, 0.02), "undecided"),
        (interval(0.003, 0.001), "same"),  # certainly slower, and too little for anybody to mind
        (interval(0.0095, 0.001), "undecided"),
    ],
)
def test_states(contrast, state):
    assert state_of(contrast) == state


@pytest.mark.parametrize(
    ("id", "expected"),
    [
        ("a.B.c('w', 'fixed')", ("a.B.c", ["w", "fixed"])),
        ("a.b", ("a.b", [])),
        ("a.b('x, y', (1, 2))", ("a.b", ["x, y", "(1, 2)"])),
        ("a.b('it' [method 2]", ("a.b('it' [method 2]", [])),
        ("a.b('w') [method 2]", ("a.b", ["w"])),
        ("tests/x.py::test[a(b]", ("tests/x.py::test[a(b]", [])),
    ],
)
def test_parameters(id, expected):
    assert parameters(id) == expected


def test_floats_are_what_the_page_decodes():
    assert numbers(floats([1.5, None, math.inf]))[0] == 1.5
    assert all(math.isnan(value) for value in numbers(floats([None, math.inf])))


def test_a_long_line_keeps_its_ends():
    line = sampled([float(at) for at in range(1000)])
    assert (len(line), line[0], line[-1]) == (48, 0.0, 999.0)


def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    output = Output(tmp_path / "site")
    output.text("a.txt", "old")
    output.finish()
    monkeypatch.setattr(
        "tilegate.site.output.os.replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device"))
    )
    with pytest.raises(UsageError, match="No space left"):
        Output(tmp_path / "site").text("a.txt", "new")
    assert (tmp_path / "site" / "a.txt").read_text() == "old"
    assert not list((tmp_path / "site").glob(".*"))


def test_the_command_builds_from_a_store_and_names_what_it_skips(tmp_path, capsys):
    store = Store(tmp_path / "store")
    for record in kept():
        store.add(record)
    (tmp_path / "store" / "records" / "commit" / "00").mkdir(parents=True, exist_ok=True)
    (tmp_path / "store" / "records" / "commit" / "00" / f"{'0' * 30}.json").write_text("{")
    status = cli.main(["site", "build", "--store", str(tmp_path / "store"), "--out", str(tmp_path / "out")])
    shown = capsys.readouterr()
    assert status == 0
    assert "4 commits, 1 cases" in shown.out.replace("case,", "cases,")
    assert "skipped records/commit/00" in shown.err
    assert HOSTILE_CASE in overview(tmp_path / "out")["cases"]["name"]


def test_the_command_names_what_is_missing(tmp_path, capsys):
    assert cli.main(["site", "build", "--store", str(tmp_path / "none"), "--out", str(tmp_path / "out")]) == 2
    assert "tilegate history update" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_vendored_code_is_what_was_released():
    """uPlot 1.6.32, dist/uPlot.iife.min.js of the npm package."""
    content = resources.files("tilegate.site").joinpath("static/vendor/uplot/uPlot.iife.min.js").read_bytes()
    assert hashlib.sha256(content).hexdigest() == "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f"


def test_an_interrupted_build_is_begun_again(tmp_path, history, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("tilegate.site.build.feed.atom", interrupted)
        with pytest.raises(KeyboardInterrupt):
            build(history, tmp_path / "site")
    build(history, tmp_path / "site")
    assert overview(tmp_path / "site")["commits"]["count"] == 60
