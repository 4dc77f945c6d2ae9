"""What a worker may answer: everything else is told apart, whatever the code under test writes."""

import json

import pytest

from tilegate.measuring import replies

CASE = {"id": "a.b(1)", "benchmark": "a.b", "params": ["1"], "version": "1"}
IDENTITY = {"identity": "0" * 64, "resources": {"sum": {"vgpr": 8}}}


@pytest.mark.parametrize(
    ("operation", "answer"),
    [
        ("start", None),
        ("load", {"cases": [CASE], "broken": {"": {"kind": "missing", "message": "gone"}}}),
        ("artifacts", IDENTITY),
        ("artifacts", {"identity": None, "resources": None}),
        ("check", False),
        ("record", 32),
        ("measure", [1e-6, 2.5]),
        ("state", {"clock": 1.0}),
    ],
)
def test_an_answer_is_taken(operation, answer):
    assert replies.decode(operation, "7", json.dumps({"ticket": "7", "ok": answer}).encode()) == (answer, None)


def test_a_failure_is_taken():
    line = b'{"ticket": "7", "failure": {"kind": "hang", "message": "too long"}}'
    assert replies.decode("check", "7", line) == (None, ("hang", "too long"))


@pytest.mark.parametrize("reply", [{"ok": [1e-6]}, {"failure": {"kind": "missing", "message": "gone"}}])
@pytest.mark.parametrize("ticket", [{}, {"ticket": "6"}, {"ticket": 7}, {"ticket": None}], ids=str)
def test_an_answer_to_another_request_is_refused(reply, ticket):
    line = json.dumps({**ticket, **reply}).encode()
    with pytest.raises(replies.NoReplyError):
        replies.decode("measure", "7", line)


@pytest.mark.parametrize(
    "line",
    [
        *(b"", b"garbage", b"\xff", b"[" * 100_000, b"9" * 5_000, b"null", b"[1]", b"{}", b'{"failure": null}'),
        b'{"ticket": "7", "failure": {"kind": "lucky", "message": ""}}',
        b'{"ticket": "7", "failure": {"kind": "hang", "message": 3}}',
    ],
    ids=lambda line: line[:20].decode(errors="replace"),
)
def test_what_is_no_reply_is_refused(line):
    with pytest.raises(replies.NoReplyError):
        replies.decode("start", "7", line)


@pytest.mark.parametrize(
    ("operation", "answer"),
    [
        ("load", {"cases": 7}),
        ("load", {"cases": [{**CASE, "id": 7}], "broken": {}}),
        ("load", {"cases": [{**CASE, "role": "identical"}], "broken": {}}),
        ("load", {"cases": [{**CASE, "work": None}], "broken": {}}),
        ("load", {"cases": [{**CASE, "work": {"flops": -1.0}}], "broken": {}}),
        ("load", {"cases": [{**CASE, "work": {"flops": 1.0}, "role": "identical"}], "broken": {}}),
        ("load", {"cases": [], "broken": {"": {"kind": "lucky", "message": ""}}}),
        ("artifacts", {**IDENTITY, "checked": True}),
        ("artifacts", {**IDENTITY, "identity": "0"}),
        ("artifacts", {**IDENTITY, "resources": []}),
        ("check", 1),
        ("record", True),
        ("record", 0),
        ("record", 10**6),
        ("measure", None),
        ("measure", ["1"]),
        ("measure", [0.0]),
        ("measure", [-1.0]),
        ("measure", [1e9]),
        ("measure", [True]),
        ("measure", [float("nan")]),
        ("measure", [float("inf")]),
        ("state", []),
    ],
)
def test_an_answer_of_another_shape_is_refused(operation, answer):
    with pytest.raises(replies.NoReplyError):
        replies.decode(operation, "7", json.dumps({"ticket": "7", "ok": answer}).encode())
