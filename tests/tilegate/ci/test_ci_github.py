"""The client: retries, pages, rate limits, and where its token goes."""

import fake_github
import pytest

from tilegate.ci.github import Client, GitHubError, from_environment
from tilegate.files import UsageError


def test_lists_are_read_over_all_pages(github):
    github.comments[7] = [{"id": n, "user": None, "body": ""} for n in range(7)]
    assert [c["id"] for c in github.client().pages("/issues/7/comments")] == list(range(7))
    assert len(github.requests) == 4


@pytest.mark.parametrize("status", [500, 502, 503])
def test_trouble_of_the_server_is_waited_out(github, status):
    waits = []
    github.faults = [(status, {}), (status, {})]
    assert github.client(sleep=waits.append).get("/git/commits/HEAD")["sha"] == "HEAD"
    assert waits == [2.0, 4.0]


def test_trouble_that_does_not_end_is_an_error(github):
    github.faults = [(503, {})] * 9
    with pytest.raises(GitHubError, match="HTTP 503 fault"):
        github.client(sleep=lambda seconds: None).get("/pulls")
    assert len(github.requests) == 5


def test_what_may_have_been_created_is_not_created_again(github):
    github.faults = [(502, {})]
    with pytest.raises(GitHubError, match="HTTP 502"):
        github.client(sleep=lambda seconds: None).post("/check-runs", {})
    assert len(github.requests) == 1


def test_a_secondary_rate_limit_is_waited_for(github):
    waits = []
    github.faults = [(403, {"Retry-After": "60"})]
    github.client(sleep=waits.append).post("/issues/7/comments", {"body": "x"})
    assert waits == [60.0]
    assert len(github.comments[7]) == 1


def test_a_primary_rate_limit_is_waited_for(github):
    waits = []
    github.faults = [(403, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1100"})]
    github.client(sleep=waits.append, now=lambda: 1000.0).get("/git/commits/HEAD")
    assert waits == [100.0]


def test_a_rate_limit_that_ends_too_late_is_an_error(github):
    github.faults = [(429, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "99999"})]
    with pytest.raises(GitHubError, match="rate limit ends in 98999 s"):
        github.client(now=lambda: 1000.0).get("/pulls")


def test_a_right_that_is_missing_is_not_asked_for_again(github):
    github.faults = [(403, {})]
    with pytest.raises(GitHubError, match="permissions"):
        github.client().get("/pulls")
    assert len(github.requests) == 1


def test_what_is_not_there_is_none(github):
    assert github.client().find("/git/commits/" + "e" * 40) is None
    assert github.client().text("/missing.toml", "main") is None


def test_a_file_is_read_as_it_is(github, project):
    assert github.client().text("/mykernels/kernel.py", "main") == "SPEED = 1\n"
    project.write("blob", "\x00")
    (project.path / "blob").write_bytes(b"\xff\xfe\x00")
    project.commit("Add a blob")
    with pytest.raises(GitHubError, match="not UTF-8"):
        github.client().text("/blob", "main")
    with pytest.raises(GitHubError, match="more than 4 bytes"):
        github.client().text("/mykernels/kernel.py", "main", max_bytes=4)


def test_the_token_does_not_follow_to_another_host(github):
    github.add_artifact("samples", {"samples.json": b"{}"}, "e" * 40)
    assert github.client().download("/actions/artifacts/11/zip", max_bytes=1000).startswith(b"PK")
    assert [(host, bool(token)) for host, token in github.authorized] == [("127.0.0.1", True), ("localhost", False)]


def test_a_download_that_is_larger_than_allowed_stops(github):
    github.add_artifact("samples", {"samples.json": b"{}"}, "e" * 40)
    with pytest.raises(GitHubError, match="more than 10 bytes"):
        github.client().download("/actions/artifacts/11/zip", max_bytes=10)


def test_a_list_that_continues_elsewhere_is_not_followed(github, monkeypatch):
    monkeypatch.setattr(
        Client, "_send", lambda self, *_: (b"[]", {"Link": '<https://evil.invalid/repos/x?page=2>; rel="next"'})
    )
    with pytest.raises(GitHubError, match="another host"):
        list(github.client().pages("/pulls"))


def test_the_token_comes_from_the_environment_and_is_shown_nowhere():
    environment = {"GITHUB_TOKEN": fake_github.TOKEN, "GITHUB_REPOSITORY": "octo-org/kernels"}
    client = from_environment(environment)
    assert client.api == "https://api.github.com"
    assert fake_github.TOKEN not in repr(client)
    for name in environment:
        with pytest.raises(UsageError, match=name):
            from_environment({**environment, name: ""})


@pytest.mark.parametrize("api", ["http://api.github.com", "ftp://api.github.com", "file:///etc/passwd"])
def test_the_token_is_sent_over_https_only(api):
    with pytest.raises(UsageError, match="https only"):
        Client("octo-org/kernels", fake_github.TOKEN, api)


@pytest.mark.parametrize("name", ["kernels", "a/b/c", "a/b?x", "a b/c", ""])
def test_a_repository_is_an_owner_and_a_name(name):
    with pytest.raises(UsageError, match="owner/name"):
        Client(name, fake_github.TOKEN)


def test_no_answer_at_all_names_the_request():
    client = Client("octo-org/kernels", fake_github.TOKEN, "http://127.0.0.1:9", sleep=lambda seconds: None)
    with pytest.raises(GitHubError, match="GET /repos/octo-org/kernels/pulls: no answer") as raised:
        client.get("/pulls")
    assert fake_github.TOKEN not in str(raised.value)
