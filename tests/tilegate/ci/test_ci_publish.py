"""Results on their branch, the site without other hosts, issues of regressed kernels."""

import json
import shutil
import subprocess
from pathlib import Path

import asv
import fake_github
import pytest
import sample_builder
from change import CASE

from tilegate.ci import history, publish, site, triage
from tilegate.files import UsageError
from tilegate.judging import judge, noise_file

ASSETS = Path(__file__).parents[3] / ".github" / "site" / "node_modules"
COMMIT = "abcdef12" + "0" * 32
RESULT = {"commit_hash": COMMIT, "env_name": "shared", "results": {}, "version": 2}


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
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


NOISE = {"schema": "tilegate-noise/1", "created": "2026-01-10T01:40:00Z", "environment": {}, "cases": {"a": {}}}
GOOD = {
    "mi300x__abcdef12-shared.json": RESULT,
    "mi300x__machine.json": {"machine": "mi300x", "version": 1},
    "benchmarks.json": {"version": 2},
}


def test_results_are_committed_and_pushed_once(project, branch, tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_TOKEN", fake_github.TOKEN)
    delivered = deliver(tmp_path, **GOOD)
    assert publish.keep(delivered, branch, "mi300x") == 3
    assert "mi300x/abcdef12-shared.json" in project.git("ls-tree", "-r", "--name-only", "bench-results")
    assert fake_github.TOKEN not in (branch / ".git" / "config").read_text()
    assert publish.keep(delivered, branch, "mi300x") == 0
    assert publish.keep(tmp_path / "nothing", branch, "mi300x") == 0


def test_two_runs_that_push_at_once_both_arrive(project, branch, tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_TOKEN", fake_github.TOKEN)
    other = tmp_path / "other"
    shutil.copytree(branch, other)
    publish.keep(deliver(tmp_path, **{"a__abcdef12-x.json": RESULT}), other, "a")
    shutil.rmtree(tmp_path / "delivered")
    publish.keep(deliver(tmp_path, **{"b__abcdef12-x.json": RESULT}), branch, "b")
    kept = project.git("ls-tree", "-r", "--name-only", "bench-results")
    assert "a/abcdef12-x.json" in kept
    assert "b/abcdef12-x.json" in kept


@pytest.mark.parametrize(
    "contents",
    [
        {"mi300x__../../x.json": RESULT},
        {".github__workflows__evil.yml": "on: push"},
        {".git__config": "[core]"},
        {"mi300x__index.html": "<script>"},
        {"mi300x__deep__abcdef12-x.json": RESULT},
        {"mi300x__abcdef12-x.json": "no JSON"},
        {"mi300x__abcdef12-x.json": {}},
        {"mi300x__abcdef13-x.json": RESULT},
        {"-mi300x__abcdef12-x.json": RESULT},
        {"h200__abcdef12-x.json": RESULT},  # another machine's, which may have them already
        {"MI300X__abcdef12-x.json": RESULT},
        {"mi300x__mi300x.profile": NOISE},
        {"noise__mi300x.profile": NOISE},
    ],
)
def test_what_is_no_result_keeps_everything_out(project, branch, tmp_path, monkeypatch, contents):
    monkeypatch.setenv("GITHUB_TOKEN", fake_github.TOKEN)
    before = project.git("rev-parse", "bench-results")
    delivered = deliver(tmp_path, **GOOD)
    if ".." in next(iter(contents)):
        (delivered / "x.json").write_text("{}")  # what such a name becomes on disk
    else:
        deliver(tmp_path, **contents)
    with pytest.raises(UsageError):
        publish.keep(delivered, branch, "mi300x")
    assert project.git("rev-parse", "bench-results") == before
    assert subprocess.run(["git", "status", "--porcelain"], cwd=branch, capture_output=True, check=True).stdout == b""


def test_a_link_among_the_results_is_not_followed(branch, tmp_path, monkeypatch):
    delivered = deliver(tmp_path, **GOOD)
    (delivered / "mi300x" / "abcdef12-link.json").symlink_to("/etc/passwd")
    with pytest.raises(UsageError, match="cannot be read"):
        publish.keep(delivered, branch, "mi300x")


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
        (RESULT, "mi300x"),
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


def test_commits_without_results_are_found_oldest_first(project, tmp_path):
    for n in range(4):
        project.commit(f"Change {n}")
    commits = project.git("rev-list", "--first-parent", "main").splitlines()
    (tmp_path / "mi300x").mkdir()
    (tmp_path / "mi300x" / f"{commits[1][:8]}-shared.json").write_text("{}")
    (tmp_path / "mi300x" / "machine.json").write_text("{}")
    assert history.missing(project.path, tmp_path, "mi300x", 3) == [commits[2], commits[0]]
    assert history.missing(project.path, tmp_path, "other", 2) == [commits[1], commits[0]]


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
