"""Files between the parts: atomic, bounded, checked."""

import errno
import json
import os
import stat

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_builder import case, document

from tilegate import files


def test_written_values_come_back_and_nothing_else_stays(tmp_path):
    path = tmp_path / "new" / "value.json"
    files.write_json(path, {"a": [1, 2.5, None, "é"]})
    assert files.load_json(path) == {"a": [1, 2.5, None, "é"]}
    assert [p.name for p in path.parent.iterdir()] == ["value.json"]
    assert path.read_bytes().isascii()


def test_files_are_readable_as_the_umask_says(tmp_path):
    before = os.umask(0o022)
    try:
        files.write_text(tmp_path / "a", "x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o644


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch, call):
    path = tmp_path / "value.json"
    files.write_json(path, "old")

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(*{"fsync": (os, "fsync"), "replace": (type(path), "replace")}[call], full)
    with pytest.raises(files.UsageError, match="No space left"):
        files.write_json(path, "new")
    monkeypatch.undo()
    assert files.load_json(path) == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["value.json"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs Linux's /dev/full")
def test_a_file_that_cannot_hold_its_bytes_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "value.json"
    files.write_json(path, "old")
    real = os.open
    monkeypatch.setattr(
        os, "open", lambda p, flags, *a: real("/dev/full" if flags & os.O_WRONLY else p, flags & ~os.O_EXCL)
    )
    with pytest.raises(files.UsageError, match="No space left"):
        files.write_json(path, "new")
    monkeypatch.undo()
    assert files.load_json(path) == "old"


def test_interrupting_a_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "value.json"
    files.write_json(path, "old")

    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        files.write_json(path, "new")
    assert files.load_json(path) == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["value.json"]


def test_nan_is_never_written(tmp_path):
    with pytest.raises(ValueError, match="JSON compliant"):
        files.write_json(tmp_path / "a.json", {"a": float("nan")})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not valid JSON"),
        (b"\xff\xfe\x00", "not valid JSON"),
        (b'{"a": NaN}', "NaN is not a JSON number"),
        (b'{"a": -Infinity}', "-Infinity is not a JSON number"),
        (b'{"a": 1, "a": 2}', "the same key twice"),
        (b"[" * 100_000, "nested too deeply|not valid JSON"),
        (b'"' + b"a" * 2000 + b'"', "larger than 1000 bytes|nested"),
    ],
)
def test_hostile_json_is_refused(tmp_path, content, message):
    path = tmp_path / "a.json"
    path.write_bytes(content)
    limit = 1000 if len(content) == 2002 else files.MAX_BYTES
    with pytest.raises(files.UsageError, match=message):
        files.load_json(path, max_bytes=limit)


def test_missing_file_is_named(tmp_path):
    with pytest.raises(files.UsageError, match=r"cannot read .*none\.json: No such file"):
        files.load_samples(tmp_path / "none.json")


@pytest.mark.parametrize("schema", [files.SAMPLES_SCHEMA, files.VERDICT_SCHEMA])
def test_schemas_are_schemas_and_refuse_unknown_keys(schema):
    loaded = files.load_schema(schema)
    jsonschema.Draft202012Validator.check_schema(loaded)
    assert loaded["additionalProperties"] is False


def test_a_file_of_another_kind_is_called_by_its_kind(tmp_path):
    path = tmp_path / "noise.json"
    path.write_text('{"schema": "tilegate-noise/1", "cases": {}}')
    with pytest.raises(files.UsageError, match=r"tilegate-noise/1.*, expected .*tilegate-samples/1"):
        files.load_samples(path)


def broken_samples():
    def at(samples, *place):
        for key in place:
            samples = samples[key]
        return samples

    yield "/", lambda s: s.update(extra=1)
    yield "/", lambda s: s.pop("cases")
    yield "/schema", lambda s: s.update(schema="tilegate-samples/2")
    yield "/target", lambda s: s.update(target="tpu")
    yield "/created", lambda s: s.update(created="yesterday")
    yield "/base/tree", lambda s: s["base"].update(tree="xyz")
    yield "/environment", lambda s: s["environment"].pop("fingerprint")
    yield "/cases/a", lambda s: at(s, "cases", "a").update(verdict="pass")
    yield "/cases/a/role", lambda s: at(s, "cases", "a").update(role="trusted")
    yield "/cases/a/head", lambda s: at(s, "cases", "a", "head").pop("checked")
    yield (
        "/cases/a/head/failure/kind",
        lambda s: at(s, "cases", "a", "head").update(
            status="failed", failure={"kind": "bad luck", "message": "", "log": None}
        ),
    )
    yield "/cases/a/cause", lambda s: at(s, "cases", "a").update(cause="one line")
    yield "/cases/a/cause", lambda s: at(s, "cases", "a").update(cause=[])
    yield "/cases/a/cause", lambda s: at(s, "cases", "a").update(cause=["x"] * 21)
    yield "/cases/a/cause/1", lambda s: at(s, "cases", "a").update(cause=["x", 1])
    yield "/cases/a/cause/0", lambda s: at(s, "cases", "a").update(cause=["x" * 501])
    yield "/cases/a/replicates/0/stage", lambda s: at(s, "cases", "a", "replicates", 0).update(stage="encore")
    yield (
        "/cases/a/replicates/0/pairs/1/base",
        lambda s: at(s, "cases", "a", "replicates", 0, "pairs", 1).update(base=[]),
    )
    yield (
        "/cases/a/replicates/0/pairs/1/order",
        lambda s: at(s, "cases", "a", "replicates", 0, "pairs", 1).update(order=2),
    )
    yield (
        "/cases/a/replicates/0/pairs/1/base/2",
        lambda s: at(s, "cases", "a", "replicates", 0, "pairs", 1, "base").__setitem__(2, 0.0),
    )


@pytest.mark.parametrize(("place", "damage"), list(broken_samples()))
def test_an_error_names_file_and_place(tmp_path, place, damage):
    samples = document({"a": case()})
    path = tmp_path / "samples.json"
    files.write_json(path, samples)
    assert files.load_samples(path) == samples
    damage(samples)
    files.write_json(path, samples)
    with pytest.raises(files.UsageError, match=f"samples.json: at {place}: "):
        files.load_samples(path)


def test_an_error_message_does_not_repeat_a_huge_value():
    samples = document({"a": case()})
    samples["tier"] = "x" * 100_000
    with pytest.raises(files.UsageError) as caught:
        files.check_samples(samples)
    assert len(str(caught.value)) < 1000


json_values = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.data())
def test_any_replaced_part_is_accepted_or_refused_but_never_a_crash(data):
    samples = document({"a": case()})
    del samples["cases"]["a"]["replicates"][0]["pairs"][2:]
    node, key = samples, "cases"
    while data.draw(st.booleans()):
        inner = node[key]
        if not isinstance(inner, dict | list) or not inner:
            break
        keys = sorted(inner) if isinstance(inner, dict) else range(len(inner))
        node, key = inner, data.draw(st.sampled_from(list(keys)))
    node[key] = data.draw(json_values)
    try:
        files.check_samples(samples)
    except files.UsageError:
        return
    jsonschema.validate(samples, files.load_schema(files.SAMPLES_SCHEMA))  # the shortcut for times changes nothing
    json.dumps(samples, allow_nan=False)


def test_what_is_no_regular_file_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path, reason in ((tmp_path / "pipe", "not a regular file"), (tmp_path, "Is a directory")):
        with pytest.raises(files.UsageError, match=reason):
            files.load_json(path)


def test_a_time_that_no_float_can_hold_is_refused():
    samples = document({"a": case()})
    samples["cases"]["a"]["replicates"][0]["pairs"][0]["base"][0] = 10**400
    with pytest.raises(files.UsageError, match="is not a time between"):
        files.check_samples(samples)
