"""A history on its branch, the site without other hosts, issues of regressed kernels."""

import datetime
import hashlib
import json
import lzma
import shutil
import subprocess
from pathlib import Path

import asv
import fake_github
import pytest
import sample_builder
from change import CASE
from history_records import code, commit, comparison, event

from tilegate.ci import publish, site, triage
from tilegate.files import UsageError
from tilegate.history import inbox, records
from tilegate.history.store import Store
from tilegate.history.view import view
from tilegate.judging import judge, noise_file

ASSETS = Path(__file__).parents[3] / ".github" / "site" / "node_modules"


@pytest.fixture
def branch(project, tmp_path):
    """A checkout of the branch of results."""
    project.git("branch", "bench-results")
    subprocess.run(
        ["git", "clone", "--quiet", "--branch", "bench-results", project.path, tmp_path / "branch"], check=True
    )
    return tmp_path / "branch"


def deliver(tmp_path, **contents):
    folder = tmp_path / "delivered"
    for name, content in contents.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


NOISE = {"schema": "tilegate-noise/1", "created": "2026-01-10T01:40:00Z", "environment": {}, "cases": {"a": {}}}
LINE = commit("a")


def recorded(record, kind=None):
    """A record's place in a delivery, and what is in it."""
    text = records.text_of(record)
    name = records.name_of(text)
    return {f"history__records__{kind or record['kind']}__{name[:2]}__{name[2:]}.json": text + "\n"}


def packed(*lines, name=None):
    text = "\n".join(lines) + "\n"
    digest = name or hashlib.sha256(text.encode()).hexdigest()[:16]
    return {f"history__packs__2026-01-{digest}.jsonl.xz": lzma.compress(text.encode())}


GOOD = recorded(LINE) | packed(records.text_of(comparison("x", "y", 0.01)), records.text_of(code("a", "x")))


def test_a_history_is_committed_and_pushed_once(project, branch, tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_TOKEN", fake_github.TOKEN)
    delivered = deliver(tmp_path, **GOOD)
    assert publish.keep(delivered, branch) == 2
    kept = project.git("ls-tree", "-r", "--name-only", "bench-results").splitlines()
    assert {name.replace("__", "/") for name in GOOD} <= set(kept)
    assert fake_github.TOKEN not in (branch / ".git" / "config").read_text()
    assert publish.keep(delivered, branch) == 0
    assert publish.keep(tmp_path / "nothing", branch) == 0
    found, broken = Store(branch / "history").read()
    assert len(found) == 3
    assert not broken


def test_two_runs_that_push_at_once_both_arrive(project, branch, tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_TOKEN", fake_github.TOKEN)
    other = tmp_path / "other"
    shutil.copytree(branch, other)
    publish.keep(deliver(tmp_path, **recorded(commit("a"))), other)
    first = project.git("rev-parse", "bench-results")
    shutil.rmtree(tmp_path / "delivered")
    publish.keep(deliver(tmp_path, **recorded(commit("b"))), branch)
    kept = project.git("ls-tree", "-r", "--name-only", "bench-results")
    assert kept.count("history/records/commit/") == 2
    assert project.git("merge-base", "--is-ancestor", first, "bench-results") == ""  # nothing was forced


CHANGED = {name: text.replace('"A"', '"B"') for name, text in recorded(LINE).items()}


@pytest.mark.parametrize(
    "contents",
    [
        {".github__workflows__evil.yml": "on: push"},
        {".git__config": "[core]"},
        {"history__index.html": "<script>"},
        {"history__records__commit__ab__deep__x.json": "{}"},
        {"history": "{}"},
        {"x.json": "{}"},
        {"noise__mi300x.profile": "{}"},
        CHANGED,
        recorded(LINE, kind="event"),
        recorded({**LINE, "sha": ""}),
        {next(iter(recorded(LINE))): b"\xff\xfe"},
        packed(records.text_of(LINE), name="0" * 16),
        packed(records.text_of(LINE), "no record"),
        {next(iter(packed("x"))): b"no xz"},
    ],
)
def test_what_is_no_record_keeps_everything_out(project, branch, tmp_path, monkeypatch, contents):
    monkeypatch.setenv("GITHUB_TOKEN", fake_github.TOKEN)
    before = project.git("rev-parse", "bench-results")
    delivered = deliver(tmp_path, **contents) if "history" in contents else deliver(tmp_path, **{**GOOD, **contents})
    with pytest.raises(UsageError, match="nothing was kept"):
        publish.keep(delivered, branch)
    assert project.git("rev-parse", "bench-results") == before
    assert subprocess.run(["git", "status", "--porcelain"], cwd=branch, capture_output=True, check=True).stdout == b""


def test_a_pack_that_grows_without_end_is_refused(branch, tmp_path, monkeypatch):
    monkeypatch.setattr(publish, "_MOST_BYTES", 4096)
    delivered = deliver(tmp_path, **packed("x" * 10_000))
    with pytest.raises(UsageError, match="too large unpacked"):
        publish.keep(delivered, branch)


def test_a_link_among_the_records_is_not_followed(branch, tmp_path, monkeypatch):
    delivered = deliver(tmp_path, **GOOD)
    (delivered / "history" / "packs" / f"2026-01-{'0' * 16}.jsonl.xz").symlink_to("/etc/passwd")
    with pytest.raises(UsageError, match="cannot be read"):
        publish.keep(delivered, branch)


def test_the_noise_of_a_machine_is_kept_beside_the_results_and_replaced(project, branch, tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_TOKEN", fake_github.TOKEN)
    profile = tmp_path / "noise.json"
    assert publish.keep_noise(profile, branch, "mi300x") == 0  # a night without calibration
    for created in ("2026-01-10T01:40:00Z", "2026-01-11T01:40:00Z"):
        profile.write_text(json.dumps({**NOISE, "created": created}))
        assert publish.keep_noise(profile, branch, "mi300x") == 1
        kept = project.git("show", f"bench-results:{publish.noise_file('mi300x')}")
        assert json.loads(kept)["created"] == created
    assert publish.keep_noise(profile, branch, "mi300x") == 0


@pytest.mark.parametrize(
    ("document", "machine"),
    [
        ({**NOISE, "schema": "tilegate-noise/2"}, "mi300x"),
        ({**NOISE, "cases": {}}, "mi300x"),
        ([], "mi300x"),
        (NOISE, "../mi300x"),
        (NOISE, ".github"),
        (NOISE, "noise"),
        (NOISE, "mi300x\n"),
        ({**NOISE, "cases": {"a": {"bias_high": float("nan")}}}, "mi300x"),
    ],
)
def test_what_is_no_noise_profile_is_not_kept(project, branch, tmp_path, document, machine):
    before = project.git("rev-parse", "bench-results")
    (tmp_path / "noise.json").write_text(json.dumps(document))
    with pytest.raises(UsageError):
        publish.keep_noise(tmp_path / "noise.json", branch, machine)
    assert project.git("rev-parse", "bench-results") == before


def test_a_noise_profile_is_nothing_that_asv_would_read(tmp_path):
    from asv.results import iter_results_paths

    path = tmp_path / publish.noise_file("mi300x")
    path.parent.mkdir()
    path.write_text(json.dumps(NOISE))
    (path.parent / "machine.json").write_text('{"machine": "x", "version": 1}')
    assert list(iter_results_paths(str(tmp_path))) == []
    assert publish._NOISE_SCHEMA == noise_file.SCHEMA


# --- the site


@pytest.fixture
def html(tmp_path):
    folder = tmp_path / "html"
    shutil.copytree(Path(asv.__file__).parent / "www", folder)
    return folder


installed = pytest.mark.skipif(not ASSETS.is_dir(), reason="the libraries are not installed; `make lint` installs them")


@installed
def test_the_site_loads_nothing_from_elsewhere(html):
    site.vendor(html, ASSETS)
    page = (html / "index.html").read_text()
    assert 'src="vendor/jquery/dist/jquery.min.js"' in page
    assert "integrity=" not in page
    assert not site._LOADS.search(page)
    for asset in site.ASSETS:
        assert (html / "vendor" / asset.file).stat().st_size > 1000
        assert f'"vendor/{asset.file}"' in page
    assert list((html / "vendor" / "bootstrap" / "dist" / "fonts").iterdir())


@installed
def test_a_library_that_is_another_file_is_refused(html, tmp_path):
    other = tmp_path / "assets"
    shutil.copytree(ASSETS, other)
    (other / "jquery" / "dist" / "jquery.min.js").write_text("evil()")
    with pytest.raises(UsageError, match="not the file that asv's page names"):
        site.vendor(html, other)


def test_a_library_that_is_not_installed_names_the_command(html, tmp_path):
    with pytest.raises(UsageError, match=r"npm ci --prefix \.github/site"):
        site.vendor(html, tmp_path)


def test_a_new_version_of_asv_that_loads_something_else_is_noticed(html, tmp_path):
    page = html / "index.html"
    page.write_text(page.read_text().replace("jquery-3.3.1", "jquery-9"))
    with pytest.raises(UsageError, match=r"jquery-9\.min\.js, which is not among"):
        site.vendor(html, tmp_path)


# --- issues


def verdict(**cases):
    named = {f"attention.{name}": case for name, case in cases.items()}
    return judge.judge(sample_builder.document(named or {CASE: sample_builder.case(0.0)}, target="hip"))


def publish_issues(github, found):
    return triage.publish(github.client(), found, "v1.0", "https://github.com/octo-org/kernels/actions/runs/1")


SLOW, FINE = sample_builder.case(0.1, confirm=2), sample_builder.case(0.0)


def test_each_regressed_kernel_has_one_issue(github):
    found = verdict(**{"A.latency_a(1)": SLOW, "A.latency_a(2)": SLOW, "B.latency_b(1)": SLOW, "C.latency_c(1)": FINE})
    assert publish_issues(github, found).opened == (100, 101)
    assert [issue["title"] for issue in github.issues] == [
        "Slower since v1.0: attention.A.latency_a",
        "Slower since v1.0: attention.B.latency_b",
    ]
    assert "2 of 2 cases" in github.issues[0]["body"]
    again = publish_issues(github, found)
    assert (again.opened, again.updated) == ((), (100, 101))
    assert len(github.issues) == 2


def test_an_issue_is_closed_when_every_case_is_known_to_be_fine(github):
    publish_issues(github, verdict(**{"A.latency_a(1)": SLOW}))
    unknown = sample_builder.case(0.02)  # suspicious, and not confirmed
    assert publish_issues(github, verdict(**{"A.latency_a(1)": FINE, "A.latency_a(2)": unknown})).closed == ()
    assert publish_issues(github, verdict(**{"B.latency_b(1)": FINE})).closed == ()  # not measured at all
    assert publish_issues(github, verdict(**{"A.latency_a(1)": FINE, "A.latency_a(2)": FINE})).closed == (100,)
    assert github.issues[0]["state"] == "closed"
    assert "Recovered" in github.comments[100][0]["body"]
    assert publish_issues(github, verdict(**{"A.latency_a(1)": SLOW})).opened == (101,)


def test_a_bad_machine_opens_and_closes_nothing(github):
    publish_issues(github, verdict(**{"A.latency_a(1)": SLOW}))
    control = sample_builder.case(0.1, confirm=2, role="control")
    bad = verdict(**{"A.latency_a(1)": FINE, "B.latency_b(1)": control})
    assert bad["verdict"] == "environment-invalid"
    assert publish_issues(github, bad) == triage.Triage()
    interrupted = sample_builder.document({"attention.A.latency_a(1)": FINE}, target="hip", finished=None)
    assert publish_issues(github, judge.judge(interrupted)) == triage.Triage()
    assert github.issues[0]["state"] == "open"


def test_an_issue_that_a_stranger_made_to_look_like_ours_is_not_touched(github):
    marker = triage._marker("attention.A.latency_a")
    label = [{"name": triage.LABEL}]
    github.issues.append({"number": 1, "state": "open", "user": {"login": "x"}, "body": f"{marker}\n", "labels": label})
    assert publish_issues(github, verdict(**{"A.latency_a(1)": FINE})).closed == ()
    assert publish_issues(github, verdict(**{"A.latency_a(1)": SLOW})).opened


SLOW_CASE = "attention.A.latency_a('a')"


def told(state, size=0.1, **more):
    """A history in which the kernel of `SLOW_CASE` got slower, and what somebody decided about that."""
    found = [commit("a"), commit("b", "a"), code("a", "x", case=SLOW_CASE), code("b", "y", case=SLOW_CASE)]
    found += [comparison("x", "y", size, case=SLOW_CASE)]
    (entry,) = inbox.entries(view(found))
    return view([*found, event("triage", entry.id, state=state, **more)]), entry.id


def publish_told(github, history):
    found = verdict(**{"A.latency_a('a')": SLOW})
    return triage.publish(
        github.client(), found, "v1.0", "https://x.invalid", history=history, today=datetime.date(2026, 6, 1)
    )


def test_an_issue_says_what_the_inbox_knows(github):
    history, id = told("investigating", owner="<b>Ada</b>")
    assert len(publish_told(github, history).opened) == 1
    body = github.issues[0]["body"]
    assert f"entry `{id}`, investigating" in body
    assert "`aaaaaaaa..bbbbbbbb`" in body
    assert "owner `<b>Ada</b>`" in body  # as code: nothing that acts
    accepted, _ = told("accepted", expires="2026-12-31")
    assert len(publish_told(github, accepted).closed) == 1
    assert github.issues[0]["state"] == "closed"
    assert publish_told(github, accepted) == triage.Triage()


@pytest.mark.parametrize(
    ("state", "more", "size"),
    [("accepted", {"expires": "2026-05-01"}, 0.1), ("accepted", {"expires": "2026-12-31"}, 0.05)],
)
def test_what_is_no_longer_what_was_accepted_has_an_issue(github, state, more, size):
    """After its last day, or slower than it was then."""
    history, _ = told(state, size, **more)
    assert len(publish_told(github, history).opened) == 1


def test_hostile_names_stay_text_in_issues(github):
    name = "A.latency_a`--><img src=x onerror=alert(1)> @octo-org/all(1)"
    publish_issues(github, verdict(**{name: {**SLOW, "cause": ["</details> | <b>"]}}))
    body = github.issues[0]["body"]
    assert body.startswith("<!-- tilegate regression ")
    import re

    outside = re.sub(r"(?<!`)(`+)(?!`)(.*?)(?<!`)\1(?!`)", "", body)
    for bad in ("<img", "@octo-org", "</details>", "<b>"):
        assert bad not in outside


def test_the_last_release_is_the_highest_tag_in_the_history(project):
    from tilegate.ci import repository

    assert repository.release_tag(project.path) is None
    project.git("tag", "v1.9")
    project.commit("Go on")
    project.git("tag", "v1.10")
    project.git("tag", "v2.0-rc1")
    project.git("tag", "nightly")
    assert repository.release_tag(project.path) == "refs/tags/v1.9"  # HEAD is v1.10 itself
    project.commit("Go on")
    assert repository.release_tag(project.path) == "refs/tags/v1.10"
    project.change(branch="side")
    project.git("tag", "v3.0", "side")
    assert repository.release_tag(project.path) == "refs/tags/v1.10"
