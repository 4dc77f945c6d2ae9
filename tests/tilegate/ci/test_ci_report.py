"""From a run to checks and comment: what an honest run gives, and what each forgery gives instead of a pass."""

import dataclasses
import hashlib
import io
import json
import zipfile
from pathlib import Path

import change
import fake_github
import payloads
import pytest
import sample_builder
import yaml
from change import CASE, EXPECTED, packed
from commonmark import outside_code

from tilegate import cli
from tilegate.ci import archive, binding, event, publish, report
from tilegate.ci.github import from_environment
from tilegate.files import UsageError

ROOT = Path(__file__).parents[3]
APPROVED = [{"state": "approved", "comment": "", "environments": [{"name": "bench-outside"}], "user": {"login": "m"}}]
SLOWER = {CASE: sample_builder.case(0.10, confirm=2)}
HOSTILE = [
    "$(touch /tmp/owned)",
    "`touch /tmp/owned`",
    "'; touch /tmp/owned; '",
    "a\n::set-output name=x::y",
    "<img src=x onerror=alert(1)>",
    "</details> @octo-org/everyone [click](javascript:alert(1))",
    "| a | b |\n|---|---|",
    "<!-- tilegate report -->",
    "```\n# not code any more",
    "\u202egnp.exe",
]


def deliver(github, project, head, *, samples=None, plan=None):
    github.add_pull(head)
    if plan is not False:
        github.add_artifact("plan", {"plan.json": packed(plan or project.plan(head))}, head)
    if samples is not False:
        document = samples or project.samples(head)
        content = document if isinstance(document, bytes) else packed(document)
        github.add_artifact("samples", {"samples.json": content}, head)
    github.approvals = list(APPROVED)


def conclude(github, project, head, **run):
    of = event.finished_run(payloads.workflow_run(head, **run))
    return report.publish(github.client(), of, project.path, EXPECTED)


def conclude_inside(github, project, head):
    """Conclude on a branch of the repository."""
    github.pulls.clear()
    github.add_pull(head, owner="octo-org", repository_id=fake_github.REPOSITORY_ID)
    conclude(github, project, head, owner="octo-org")


def outcome(github, name="tilegate/latency"):
    check = github.check(name)
    return check["conclusion"], check["output"]["summary"]


def comment(github):
    (found,) = [c for c in github.comments.get(7, []) if c["user"]["login"] == "github-actions[bot]"]
    return found["body"]


def refused(github, words, *, conclusion=None, name="tilegate/latency"):
    """No pass, and the reason says what is wrong."""
    found, summary = outcome(github, name)
    assert found in ("failure", "action_required")  # GitHub lets "neutral" and "skipped" through
    assert conclusion in (None, found)
    assert words.lower() in summary.lower()


def test_an_honest_run_passes(github, project):
    head = project.change()
    deliver(github, project, head)
    conclude(github, project, head)
    conclusion, summary = outcome(github)
    assert conclusion == "success"
    assert "PASS" in summary
    assert outcome(github, "tilegate/isa")[0] == "success"
    assert "PASS" in comment(github)
    assert f"/actions/runs/{payloads.RUN_ID}/artifacts/12" in comment(github)  # the raw samples


def test_a_slower_kernel_fails_and_the_comment_shows_it(github, project):
    head = project.change()
    deliver(github, project, head, samples=project.samples(head, cases=SLOWER))
    conclude(github, project, head, conclusion="failure")
    assert outcome(github)[0] == "failure"
    assert "REGRESSED" in comment(github)
    assert "+9.9 %" in comment(github)
    base = project.git("rev-parse", "main")
    assert f"tilegate gate --base {base[:12]} --head {head[:12]}" in comment(github)  # how to see it at home
    assert f'" --base {base} --rev {head}\n' in comment(github).partition('tilegate repro "')[2]


@pytest.mark.parametrize(
    ("cases", "finished"),
    [
        ({CASE: sample_builder.case(0.0)}, None),
        ({CASE: sample_builder.case(0.02, confirm=0)}, "2026-01-01T00:05:00Z"),
    ],
    ids=["interrupted", "unconfirmed"],
)
def test_partial_samples_are_no_pass(github, project, cases, finished):
    head = project.change()
    deliver(github, project, head, samples=project.samples(head, cases=cases, finished=finished))
    conclude(github, project, head)
    refused(github, "INCONCLUSIVE", conclusion="action_required")


def test_samples_without_a_case_of_the_suite_are_no_pass(github, project):
    head = project.change()
    others = {"scale.Scale.latency_scale('b')": sample_builder.case(0.0)}  # of the same kernel, and of another
    deliver(github, project, head, samples=project.samples(head, cases=others))
    conclude(github, project, head)
    refused(github, f"they lack `{CASE}`", conclusion="failure")


@pytest.mark.parametrize("conclusion", ["success", "failure", "cancelled", "timed_out", "action_required", "skipped"])
def test_missing_samples_are_no_pass_however_the_run_ended(github, project, conclusion):
    head = project.change()
    deliver(github, project, head, samples=False)
    conclude(github, project, head, conclusion=conclusion)
    refused(github, "No verdict", conclusion="action_required")


def test_nothing_at_all_is_no_pass(github, project):
    head = project.change()
    deliver(github, project, head, samples=False, plan=False)
    conclude(github, project, head)
    refused(github, "No verdict")
    refused(github, "not compiled", name="tilegate/isa")


def test_a_change_of_the_documentation_needs_no_gpu(github, project):
    head = project.change("docs/new.md", "words")
    deliver(github, project, head, samples=False, plan=False)  # not even a plan has to be believed
    conclude(github, project, head)
    assert outcome(github)[0] == "success"
    assert "nothing to measure" in outcome(github)[1].lower()


def test_only_samples_have_the_suite_listed(github, project):
    def listed():
        raise UsageError("the suite cannot be listed")

    expected = dataclasses.replace(EXPECTED, cases=listed)
    head = project.change("docs/new.md", "words")
    deliver(github, project, head, samples=False, plan=False)
    report.publish(github.client(), event.finished_run(payloads.workflow_run(head)), project.path, expected)
    assert outcome(github)[0] == "success"
    head = project.change(branch="kernel")
    deliver(github, project, head)
    with pytest.raises(UsageError, match="cannot be listed"):
        report.publish(github.client(), event.finished_run(payloads.workflow_run(head)), project.path, expected)
    assert outcome(github, "tilegate/isa")[0] == "success"


@pytest.mark.parametrize(("link", "leads_to"), [("mykernels", "code/mykernels"), ("src", "code")])
def test_a_link_to_the_package_hides_no_change_of_it(github, project, link, leads_to):
    project.write("code/mykernels/kernel.py", "SPEED = 1\n")
    project.git("rm", "--quiet", "-r", "mykernels")
    (project.path / link).symlink_to(leads_to)
    project.commit("Link the package")
    head = project.change("code/mykernels/kernel.py")
    deliver(github, project, head, samples=False)
    conclude(github, project, head)
    refused(github, "no samples")


def test_equal_code_needs_no_gpu(github, project):
    head = project.change()
    deliver(github, project, head, samples=False, plan=project.plan(head, measure=False, identities=("a", "a")))
    conclude_inside(github, project, head)
    assert outcome(github)[0] == "success"


def test_equal_code_of_a_fork_is_the_word_of_its_own_code(github, project):
    head = project.change()
    deliver(github, project, head, samples=False, plan=project.plan(head, measure=False, identities=("a", "a")))
    github.approvals.clear()
    conclude(github, project, head)
    refused(github, "delivered no samples", conclusion="action_required")


def test_a_plan_that_lies_about_what_it_found_is_not_believed(github, project):
    head = project.change()
    deliver(
        github, project, head, samples=False, plan=project.plan(head, measure=False, identities=("a", "b"), changed=[])
    )
    conclude(github, project, head)
    refused(github, "no samples")


def test_a_suite_that_times_calls_has_to_be_measured_when_the_package_changes(github, project):
    project.write(change.SUITE, "class Scale:\n    def call_scale(self, name):\n        pass\n")
    project.commit("Time calls, too")
    head = project.change()
    deliver(github, project, head, samples=False, plan=project.plan(head, measure=False, identities=("a", "a")))
    conclude_inside(github, project, head)
    refused(github, "no samples")


def test_compiled_code_that_cannot_run_fails_its_check(github, project):
    head = project.change()
    plan = project.plan(head)
    problem = {"check": "lds", "severity": "broken", "message": "LDS 67,584 bytes, limit 65,536"}
    plan["isa"]["head"] = project.survey(head, "b", problems=[problem])
    deliver(github, project, head, plan=plan)
    conclude(github, project, head)
    assert outcome(github, "tilegate/isa")[0] == "failure"
    assert "67,584" in comment(github)


def test_a_suite_without_a_list_of_kernels_has_no_check_of_them(github, project):
    project.git("rm", "--quiet", "benchmarks/kernels.py")
    project.commit("List nothing")
    head = project.change()
    deliver(github, project, head, plan=project.plan(head, isa=None, isa_missing="has no kernels to list"))
    conclude(github, project, head)
    assert outcome(github, "tilegate/isa")[0] == "neutral"
    assert outcome(github)[0] == "success"


# --- one comment, two checks


def test_there_is_one_comment_and_it_is_changed_in_place(github, project):
    head = project.change()
    deliver(github, project, head, samples=project.samples(head, cases=SLOWER))
    github.comments[7] = [
        {"id": n, "user": {"login": "stranger"}, "body": "<!-- tilegate report -->\nall is well"} for n in range(3)
    ]
    conclude(github, project, head)
    first = comment(github)
    github.add_artifact("samples", {"samples.json": packed(project.samples(head))}, head)  # measured again
    conclude(github, project, head, run_attempt=2)
    assert "REGRESSED" in first
    assert "PASS" in comment(github)
    assert [c["body"] for c in github.comments[7][:3]] == ["<!-- tilegate report -->\nall is well"] * 3


def test_a_run_that_begins_again_takes_back_what_was_concluded(github, project):
    head = project.change()
    deliver(github, project, head)
    conclude(github, project, head)
    assert github.check("tilegate/latency")["conclusion"] == "success"
    assert conclude(github, project, head, action="requested").results == ()
    for name in ("tilegate/latency", "tilegate/isa"):
        assert (github.check(name)["status"], github.check(name)["conclusion"]) == ("in_progress", None)
    conclude(github, project, head, action="in_progress")
    assert len(github.checks) == 4  # the same two are under way
    github.artifacts.clear()
    conclude(github, project, head, conclusion="cancelled")
    refused(github, "No verdict")


def test_a_run_that_is_started_again_is_reported_although_nobody_requests_it_again():
    """GitHub's `requested` does not come for it."""
    workflow = yaml.safe_load((ROOT / ".github/workflows/bench-report.yml").read_text())
    assert workflow[True]["workflow_run"]["types"] == ["requested", "in_progress", "completed"]


def test_a_report_that_is_too_long_is_cut_where_it_harms_nothing(github, project):
    head = project.change()
    cases = SLOWER | {f"{CASE[:-1]}{'x' * 300} {n})": sample_builder.case(0.1, confirm=2, seed=n) for n in range(4)}
    plan = project.plan(head)
    for side, identity in (("base", "a"), ("head", "b")):
        kernels = plan["isa"][side]["kernels"]["gfx942"]
        for n in range(700):
            broken = [{"check": "lds", "severity": "broken", "message": "y" * 200}] if side == "head" else []
            one = {"cases": [], "arch": "gfx942", "figures": None, "problems": broken, "identity": identity}
            kernels[f"kernel {n}"] = one
    deliver(github, project, head, samples=project.samples(head, cases=cases), plan=plan)
    conclude(github, project, head)
    assert "REGRESSED" in comment(github)
    assert "too long" in comment(github)
    assert comment(github).count("<details>") == comment(github).count("</details>")
    assert outcome(github, "tilegate/isa")[0] == "failure"


# --- whose run is it


def test_a_commit_that_is_no_longer_the_head_comes_too_late(github, project):
    head = project.change()
    deliver(github, project, head)
    project.git("switch", "--quiet", "topic")
    project.write(change.PACKAGE, "SPEED = 3\n")
    github.pulls[0]["head"]["sha"] = project.commit("Push again")
    conclude(github, project, head)
    refused(github, "too late")
    assert github.comments == {}


@pytest.mark.parametrize(
    "changes",
    [
        {"path": ".github/workflows/evil.yml"},  # it may be called bench-pr, too
        {"path": ".github/workflows/bench-pr.yml@evil.yml"},  # a file may have such a name
        {"path": ".github/workflows/bench-pr.yml@evil.YAML"},
        {"path": ".github/workflows/bench-pr.yml@evil.yml@main"},
        {"event": "push"},
        {"head_repository": None},
        {"head_branch": "another"},
    ],
    ids=["workflow", "file with @", "file with @, again", "file with @ and branch", "event", "repository", "branch"],
)
def test_a_run_that_is_not_of_the_pull_request_says_nothing_about_it(github, project, changes):
    head = project.change()
    deliver(github, project, head)
    conclude(github, project, head, **changes)
    refused(github, "No verdict")
    assert github.comments == {}


def test_the_path_of_a_workflow_may_end_with_its_branch(github, project):
    head = project.change()
    deliver(github, project, head)
    conclude(github, project, head, path=".github/workflows/bench-pr.yml@main")
    assert outcome(github)[0] == "success"


def test_an_older_run_that_is_reported_once_more_says_nothing_any_more(github, project):
    """After a newer one of the same commit, for which what was said, or a label that was set, was not meant."""
    head = project.change()
    deliver(github, project, head, samples=project.samples(head, cases=SLOWER))
    conclude(github, project, head, id=payloads.RUN_ID)
    github.runs = [payloads.workflow_run(head, id=payloads.RUN_ID + 1)["workflow_run"]]
    github.artifacts[-1]["workflow_run"]["id"] = 0
    github.add_artifact("samples", {"samples.json": packed(project.samples(head))}, head)
    assert conclude(github, project, head).results == ()
    assert outcome(github)[0] == "failure"
    github.runs[0]["head_repository"]["id"] = 12345  # of somebody else, who proposes the same commit
    conclude(github, project, head)
    assert outcome(github)[0] == "success"


def test_another_fork_with_the_same_names_is_another_pull_request(github, project):
    head = project.change()
    deliver(github, project, head)
    github.pulls[0]["head"]["repo"]["id"] = 12345
    conclude(github, project, head)
    refused(github, "too late")


def test_two_pull_requests_of_one_commit_are_not_told_apart(github, project):
    head = project.change()
    deliver(github, project, head)
    github.add_pull(head, number=8)
    conclude(github, project, head)
    refused(github, "several open pull requests")


def test_what_passes_against_another_branch_is_no_pass_for_main(github, project):
    project.git("branch", "lenient")
    head = project.change("docs/new.md", "words")
    github.add_pull(head, base="lenient")
    conclude(github, project, head)
    for check in ("tilegate/latency", "tilegate/isa"):
        refused(github, "not for the default branch", conclusion="action_required", name=check)


def test_a_run_of_a_fork_that_nobody_approved_is_not_believed(github, project):
    head = project.change()
    deliver(github, project, head)
    github.approvals = [{**APPROVED[0], "state": "rejected"}]
    conclude(github, project, head)
    refused(github, "nobody approved", conclusion="failure")


def test_a_branch_of_the_repository_needs_no_approval(github, project):
    head = project.change()
    deliver(github, project, head)
    github.approvals.clear()
    conclude_inside(github, project, head)
    assert outcome(github)[0] == "success"


def test_a_job_that_is_called_like_the_check_is_found_out(github, project):
    head = project.change()
    deliver(github, project, head)
    job = {
        "id": 1,
        "name": "tilegate/latency",
        "head_sha": head,
        "external_id": "8f1b",
        "app": {"slug": "github-actions"},
    }
    github.checks.append({**job, "status": "completed", "conclusion": "success", "html_url": "https://github.com/j/1"})
    conclude(github, project, head)
    refused(github, "is called `tilegate/latency`", conclusion="failure")
    assert github.checks[0]["conclusion"] == "success"  # not ours to change


# --- artifacts


def test_an_artifact_of_another_commit_is_not_taken(github, project):
    head = project.change()
    deliver(github, project, head, samples=False)
    github.add_artifact("samples", {"samples.json": packed(project.samples(head))}, "e" * 40)
    github.artifacts[-1]["workflow_run"]["id"] = payloads.RUN_ID
    conclude(github, project, head)
    refused(github, "no samples")


def test_an_artifact_of_nobody_knows_which_run_is_not_taken(github, project):
    head = project.change()
    deliver(github, project, head)
    conclude(github, project, head)
    assert outcome(github)[0] == "success"
    listed = github.artifacts[-1]["workflow_run"]
    github.artifacts[-1] |= {"workflow_run": None, "of": listed["id"], "created_at": None}
    github.label(WAIVER, at=LATER)  # for which the times of the artifacts are looked at
    conclude(github, project, head)
    refused(github, "no samples")


def test_an_artifact_that_has_expired_is_missing(github, project):
    head = project.change()
    deliver(github, project, head)
    github.artifacts[-1]["expired"] = True
    conclude(github, project, head)
    refused(github, "no samples")


def _with_entry(name, data=b"{}", *, mode=0o100644):
    packed_zip = io.BytesIO()
    with zipfile.ZipFile(packed_zip, "w", zipfile.ZIP_DEFLATED) as opened:
        entry = zipfile.ZipInfo(name)
        entry.external_attr = mode << 16
        opened.writestr(entry, data)
    return packed_zip.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        _with_entry("../samples.json"),
        _with_entry("/etc/passwd"),
        _with_entry("a/../../samples.json"),
        _with_entry("samples.json", b"/etc/passwd", mode=0o120777),
        _with_entry("samples.json", b"", mode=0o010644),
        _with_entry("verdict.json", b'{"verdict": "pass"}'),
        _with_entry("sampl\u0435s.json"),
        _with_entry("samples.json/"),
        b"not a zip",
        _with_entry("samples.json")[:-30],
    ],
    ids=["..", "absolute", "inner ..", "symlink", "pipe", "verdict", "lookalike", "folder", "no zip", "cut"],
)
def test_a_hostile_archive_fails_both_checks(github, project, content, tmp_path):
    head = project.change()
    deliver(github, project, head, samples=False)
    github.add_artifact("samples", content, head)
    before = sorted(tmp_path.rglob("*"))
    conclude(github, project, head)
    refused(github, "forged", conclusion="failure")
    refused(github, "forged", conclusion="failure", name="tilegate/isa")
    assert sorted(tmp_path.rglob("*")) == before  # nothing was unpacked


@pytest.mark.parametrize(
    "jobs",
    [
        [fake_github.job("plan")],
        [fake_github.job("plan"), fake_github.job("measure on MI300X", "Hand the samples over", "failure")],
        [fake_github.job("plan", "Hand the samples over"), fake_github.job("measure on MI300X", conclusion="skipped")],
        [fake_github.job("measure on MI300X", "Measure, in a container")],
        [],
    ],
    ids=["not measured", "the name was taken", "another job's step", "not handed over", "none"],
)
def test_samples_that_another_job_of_the_run_left_fail(github, project, jobs):
    """The change's code runs where it is compiled, and could upload an artifact there."""
    head = project.change()
    deliver(github, project, head)
    github.jobs = jobs
    conclude(github, project, head)
    refused(github, "not the measuring job's", conclusion="failure")


def test_the_measuring_job_is_called_as_the_workflow_calls_it():
    workflow = yaml.safe_load((ROOT / binding.WORKFLOW).read_text())
    (steps,) = [job["steps"] for job in workflow["jobs"].values() if job["name"] == binding._JOB]
    (step,) = [step for step in steps if step["name"] == binding._STEP]
    assert step["with"]["name"] == binding.SAMPLES


def test_an_archive_that_is_too_large_is_not_downloaded(github, project):
    head = project.change()
    deliver(github, project, head)
    github.artifacts[-1]["size_in_bytes"] = 10 * 2**30
    conclude(github, project, head)
    refused(github, "forged", conclusion="failure")
    assert not any(path.startswith("/blob/12") for _, path in github.requests)


# --- samples


def forged(project, head, **changes):
    return project.samples(head) | changes


@pytest.mark.parametrize("side", ["base", "head"])
@pytest.mark.parametrize("key", ["commit", "tree"])
def test_samples_of_another_commit_fail(github, project, side, key):
    head = project.change()
    samples = project.samples(head)
    samples[side] = samples[side] | {key: "e" * 40}
    deliver(github, project, head, samples=samples)
    conclude(github, project, head)
    refused(github, f"of another {side}", conclusion="failure")


def test_samples_of_the_pull_request_before_last_fail(github, project):
    old = project.change(text="SPEED = 5\n", branch="old")
    head = project.change()
    deliver(github, project, head, samples=project.samples(old))
    conclude(github, project, head)
    refused(github, "of another head", conclusion="failure")


def test_the_base_is_where_the_branch_left_main_however_far_main_has_moved(github, project):
    head = project.change()
    base = project.git("rev-parse", "main")
    project.write("README.md", "news")
    project.commit("Move on")
    deliver(github, project, head, samples=project.samples(head, base=base), plan=project.plan(head, base=base))
    conclude(github, project, head)
    assert outcome(github)[0] == "success"
    github.artifacts.clear()
    deliver(github, project, head, samples=project.samples(head), plan=project.plan(head))  # against the tip
    github.pulls.pop()
    conclude(github, project, head)
    refused(github, "of another base", conclusion="failure")


def test_a_base_with_an_older_suite_is_no_way_around_a_new_case(github, project):
    head = project.change()
    base = project.git("rev-parse", "main")
    project.write(change.SUITE, "class Scale:\n    def latency_more(self, name):\n        pass\n")
    project.commit("Add a case")
    deliver(github, project, head, samples=project.samples(head, base=base), plan=project.plan(head, base=base))
    conclude(github, project, head)
    refused(github, "another suite by now")


@pytest.mark.parametrize(("key", "value"), [("target", "cpu"), ("tier", "smoke"), ("filter", "the fast one")])
def test_samples_that_leave_something_out_fail(github, project, key, value):
    head = project.change()
    deliver(github, project, head, samples=forged(project, head, **{key: value}))
    conclude(github, project, head)
    refused(github, f"have the {key}", conclusion="failure")


def test_samples_that_call_identical_what_compiles_to_other_code_fail(github, project):
    head = project.change()
    cases = {CASE: sample_builder.case(role="identical", screen=False), "x": sample_builder.case(0.0)}
    deliver(github, project, head, samples=project.samples(head, cases=cases))
    conclude(github, project, head)
    refused(github, "compiles to other code", conclusion="failure")


def test_lenient_thresholds_in_the_samples_are_not_used(github, project):
    """They would pass as they come, and do not when judged by the base's rules."""
    head = project.change()
    samples = project.samples(head, cases=SLOWER)
    samples["config"] |= {
        "promise": 0.5,
        "regression": 0.4,
        "replicate_regression": 0.4,
        "tolerated": 0.4,
        "screen": 0.3,
    }
    deliver(github, project, head, samples=samples)
    conclude(github, project, head)
    assert outcome(github)[0] == "failure"
    assert "REGRESSED" in outcome(github)[1]


def test_a_waiver_in_the_samples_is_not_used(github, project):
    head = project.change()
    waiver = {"name": "w", "cases": "*", "ceiling": 90.0, "isa": [], "expires": "2030-01-01", "reason": "r"}
    samples = project.samples(head, cases=SLOWER, waivers=[{**waiver, "link": "https://x.invalid", "origin": "base"}])
    deliver(github, project, head, samples=samples)
    conclude(github, project, head)
    assert outcome(github)[0] == "failure"


def test_a_waiver_of_the_base_counts(github, project):
    project.write(
        "tilegate-waivers.toml",
        '[waiver.known]\ncases = "scale.*"\nceiling = 20.0\nexpires = 2026-02-01\nreason = "r"\nlink = "https://x.invalid"\n',
    )
    project.commit("Waive")
    head = project.change()
    deliver(github, project, head, samples=project.samples(head, cases=SLOWER))
    conclude(github, project, head)
    assert outcome(github)[0] == "success"
    assert "sets the label" not in comment(github)  # the change brings none of its own


def test_a_waiver_that_has_expired_blocks_both_checks(github, project):
    project.write(
        "tilegate-waivers.toml",
        '[waiver.old]\ncases = "*"\nceiling = 20.0\nisa = ["spills"]\nexpires = 2026-01-09\nreason = "r"\nlink = "https://x.invalid"\n',
    )
    project.commit("Waive")
    head = project.change()
    deliver(github, project, head)
    conclude(github, project, head)
    refused(github, "expired")
    refused(github, "expired", name="tilegate/isa")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"{}", "not valid"),
        (b"[" * 100_000, "nested"),
        (b'{"schema": NaN}', "not valid JSON"),
        (b"\xff\xfe", "not valid JSON"),
        (b'{"schema": "a", "schema": "b"}', "twice"),
    ],
    ids=["empty", "deep", "NaN", "no text", "twice"],
)
def test_what_is_no_samples_file_fails(github, project, content, words):
    head = project.change()
    deliver(github, project, head, samples=content)
    conclude(github, project, head)
    refused(github, words, conclusion="failure")


def test_a_verdict_that_lies_has_no_place_to_lie_in(github, project):
    head = project.change()
    deliver(
        github,
        project,
        head,
        samples=forged(project, head, verdict="pass", cases=project.samples(head, cases=SLOWER)["cases"]),
    )
    conclude(github, project, head)
    refused(github, "not valid", conclusion="failure")


def test_times_below_the_roofline_are_no_times(github, project):
    head = project.change()
    case = sample_builder.case(-0.5, confirm=2) | {"work": {"flops": 1e12}}
    deliver(github, project, head, samples=project.samples(head, cases={CASE: case}))
    conclude(github, project, head)
    refused(github, "INCONCLUSIVE", conclusion="action_required")


def test_times_below_a_nanosecond_are_a_patched_clock(github, project):
    head = project.change()
    case = sample_builder.case(0.0, seconds=1e-12)
    deliver(github, project, head, samples=project.samples(head, cases={CASE: case}))
    conclude(github, project, head)
    refused(github, "not valid", conclusion="failure")


def test_fabricated_replicates_that_do_not_hold_together_are_refused(github, project):
    """Would pass by its medians; the recomputation sees that one pair of processes is counted twice."""
    head = project.change()
    case = sample_builder.case(0.0, confirm=2)
    for replicate in case["replicates"]:
        replicate["session"] = "the same"
    deliver(github, project, head, samples=project.samples(head, cases={CASE: case}))
    conclude(github, project, head)
    refused(github, "INCONCLUSIVE", conclusion="action_required")


@pytest.mark.parametrize("side", ["base", "head"])
def test_compiled_kernels_of_another_commit_fail(github, project, side):
    head = project.change()
    plan = project.plan(head)
    plan["isa"][side]["revision"]["commit"] = "e" * 40
    deliver(github, project, head, plan=plan)
    conclude(github, project, head)
    refused(github, f"of another {side}", conclusion="failure", name="tilegate/isa")
    refused(github, f"of another {side}", conclusion="failure")


def test_compiled_kernels_that_contradict_themselves_fail(github, project):
    head = project.change()
    plan = project.plan(head)
    plan["isa"]["head"]["kernels"]["gfx942"]["scale 128x64"]["arch"] = "gfx90a"
    deliver(github, project, head, plan=plan)
    conclude(github, project, head)
    refused(github, "not valid", conclusion="failure", name="tilegate/isa")


@pytest.mark.parametrize("device", [{"arch": "sm_90"}, {"arch": "gfx90a"}, {"arch": None}, {}, None, "gfx942"])
def test_samples_of_another_chip_fail(github, project, device):
    head = project.change()
    deliver(github, project, head, samples=project.samples(head, environment={**change.ENVIRONMENT, "device": device}))
    conclude(github, project, head)
    refused(github, "", conclusion="failure")
    assert "of a device" in outcome(github)[1] or "not valid" in outcome(github)[1]


# --- the noise of our machine


def profile(bias, *, created="2026-01-09T01:30:00Z", **environment):
    """A noise profile of the case, with a bias that a promise of 3 % can live with (0.001) or not (0.09)."""
    known = {
        "version": "1",
        "seconds": 1e-4,
        "replicates": 8,
        "pairs": 192,
        "pair_noise": 0.003,
        "modes": None,
        "needs": None,
    }
    turn = {key: getattr(sample_builder.CONFIG, key) for key in ("min_launches", "max_launches", "turn_seconds")}
    cases = {CASE: {**known, "turn": turn, "bias": bias / 2, "bias_high": bias}}
    where = {**change.ENVIRONMENT, **environment}
    return json.dumps({"schema": "tilegate-noise/1", "created": created, "environment": where, "cases": cases})


def test_the_nights_noise_profile_judges_and_is_cited(github, project):
    head = project.change()
    github.add_night(profile(0.001))
    deliver(github, project, head)
    conclude(github, project, head)
    assert outcome(github)[0] == "success"
    assert f"profile {hashlib.sha256(profile(0.001).encode()).hexdigest()[:8]}" in comment(github)
    github.add_night(profile(0.09))  # a machine on which nothing can be promised for this case
    conclude(github, project, head)
    assert outcome(github)[0] == "action_required"


def test_a_profile_that_somebody_pushed_is_not_used(github, project):
    """Whoever may push branches can push to the branch of results; what nights left there is only for the measuring."""
    head = project.change()
    project.git("switch", "--quiet", "--create", publish.BRANCH)
    project.write(publish.noise_file("mi300x"), profile(0.09))
    project.commit("Keep the noise of a machine")
    project.git("switch", "--quiet", "main")
    deliver(github, project, head)
    for pushed in (
        {"event": "pull_request"},  # of a fork, whose branch has that name, too
        {"event": "push"},
        {"head_branch": "topic"},
        {"name": "noise-h200"},
    ):
        github.add_night(profile(0.09), **pushed)
    conclude(github, project, head)
    assert outcome(github)[0] == "success"
    assert "profile " not in comment(github)
    github.add_night(profile(0.09))
    conclude(github, project, head)
    assert outcome(github)[0] == "action_required"


def test_nights_without_a_profile_are_passed_over(github, project):
    head = project.change()
    deliver(github, project, head)
    github.add_night(profile(0.09))
    for _ in range(4):
        github.add_night("", name="nightly")
    github.add_night(profile(0.001))
    github.artifacts[-1]["expired"] = True
    conclude(github, project, head)
    assert outcome(github)[0] == "action_required"


@pytest.mark.parametrize("content", [b"no zip", fake_github.zipped({"../noise.json": b"{}"})])
def test_a_night_that_left_something_else_is_named(github, project, content):
    head = project.change()
    deliver(github, project, head)
    github.add_night(content, packed=True)
    conclude(github, project, head)
    assert outcome(github)[0] == "success"
    assert "Judged with the expected noise" in comment(github)


def test_a_profile_in_the_samples_is_not_used(github, project):
    """With so much noise a case would be excused from the gate."""
    head = project.change()
    theirs = json.loads(profile(0.09))
    known = {
        "created": theirs["created"],
        "digest": "ab" * 32,
        "device": "AMD Instinct MI300X",
        "cases": theirs["cases"],
    }
    del known["cases"][CASE]["needs"]
    deliver(github, project, head, samples=project.samples(head, cases=SLOWER, noise_profile=known))
    conclude(github, project, head)
    assert outcome(github)[0] == "failure"
    github.add_night(profile(0.001))
    conclude(github, project, head)
    assert outcome(github)[0] == "failure"


def test_a_run_is_judged_by_the_profile_that_was_there_when_it_began(github, project):
    head = project.change()
    older, digest = profile(0.001), hashlib.sha256(profile(0.001).encode()).hexdigest()
    theirs = json.loads(older)
    known = {"created": theirs["created"], "digest": digest, "device": "AMD Instinct MI300X", "cases": theirs["cases"]}
    del known["cases"][CASE]["needs"]
    github.add_night(older)
    github.add_night(profile(0.09))
    deliver(github, project, head, samples=project.samples(head, noise_profile=known))
    conclude(github, project, head)
    assert outcome(github)[0] == "success"
    for night in range(3):
        github.add_night(profile(0.09 + night / 1000))
    conclude(github, project, head)  # too long ago
    assert outcome(github)[0] == "action_required"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (profile(0.09, fingerprint="e" * 64), "another machine"),
        (profile(0.09, created="2025-01-09T01:30:00Z"), "days old"),
        ("{}", "cannot be used"),
    ],
    ids=["another driver", "old", "no profile"],
)
def test_a_profile_that_does_not_fit_is_left_out_and_named(github, project, text, words):
    head = project.change()
    github.add_night(text)
    deliver(github, project, head)
    conclude(github, project, head)
    assert outcome(github)[0] == "success"
    assert "Judged with the expected noise" in comment(github)
    assert words in comment(github)


@pytest.mark.parametrize("environment", [{"device": {"arch": "gfx942"}}, {"device": {"arch": "gfx942"}, "versions": 3}])
def test_samples_that_do_not_say_what_they_are_of_use_no_profile(github, project, environment):
    head = project.change()
    github.add_night(profile(0.09))
    deliver(
        github,
        project,
        head,
        samples=project.samples(head, environment={"machine": {}, "fingerprint": "e" * 64, **environment}),
    )
    conclude(github, project, head)
    assert "Judged with the expected noise" in outcome(github)[1] or outcome(github)[0] == "failure"


# --- what a change may edit


@pytest.mark.parametrize(
    ("path", "text", "named"),
    [
        ("pyproject.toml", change._PYPROJECT + "promise = 0.5\nregression = 0.4\n", "pyproject.toml"),
        ("tilegate-waivers.toml", '[waiver.mine]\ncases = "*"\nceiling = 90.0\n', "tilegate-waivers.toml"),
        ("tilegate/judging/judge.py", "EVERYTHING_PASSES = True\n", "tilegate"),
        (".github/bench.toml", 'image = ""\n', ".github"),
    ],
)
def test_editing_the_rules_changes_nothing_about_the_verdict_and_is_named(github, project, path, text, named):
    head = project.change(path, text, also={change.PACKAGE: change.SPEED})
    deliver(github, project, head, samples=project.samples(head, cases=SLOWER))
    conclude(github, project, head)
    assert outcome(github)[0] == "failure"
    assert "REGRESSED" in outcome(github)[1]
    assert f"This change edits `{named}`" in comment(github)


def test_editing_the_suite_has_to_be_measured_and_is_named(github, project):
    head = project.change(change.SUITE, "")
    deliver(github, project, head, samples=False, plan=project.plan(head, measure=False, identities=("a", "a")))
    conclude(github, project, head)
    refused(github, "no samples")
    assert "This change edits `benchmarks`" in comment(github)


def test_editing_the_measuring_workflow_makes_its_results_worthless(github, project):
    head = project.change(change.WORKFLOW, "name: bench-pr\non: pull_request\njobs: {}\n")
    deliver(github, project, head)
    conclude(github, project, head)
    refused(github, "edits the workflow that measures", conclusion="action_required")
    refused(github, "edits the workflow", name="tilegate/isa")


# --- what a maintainer's label allows

MINE = (
    '[waiver.mine]\ncases = "scale.*"\nceiling = 20.0\nexpires = 2026-02-01\nreason = "r"\nlink = "https://x.invalid"\n'
)
WAIVER, WORKFLOWS = "tilegate: waiver", "tilegate: workflows"
LATER, BEFORE = "2026-01-10T14:59:23Z", "2026-01-10T14:59:22Z"  # than the samples were handed over


def propose_waiver(github, project, text=MINE):
    """Propose a slower kernel with a waiver of its own, and judge it: refused."""
    head = project.change("tilegate-waivers.toml", text, also={change.PACKAGE: change.SPEED})
    deliver(github, project, head, samples=project.samples(head, cases=SLOWER))
    conclude(github, project, head)
    assert outcome(github)[0] == "failure"
    assert "does not count before somebody with write permission, not its author, sets the label" in comment(github)
    github.permissions = {"maintainer": "write", "owner": "admin", "helper": "read"}  # "triage" reads as "read"
    return head


@pytest.mark.parametrize("by", ["maintainer", "owner"])
def test_a_maintainers_label_lets_the_waivers_of_a_change_count(github, project, by):
    head = propose_waiver(github, project)
    github.label(WAIVER, by=by, at=LATER)
    conclude(github, project, head)
    assert outcome(github)[0] == "success"
    assert f"`{by}` set the label `tilegate: waiver`" in comment(github)
    assert "mine" in comment(github).split("set the label")[1]  # which waiver it was
    assert "1 waived" in comment(github)
    github.label(WAIVER, by=by, at="2026-01-10T15:01:00Z", event="unlabeled")
    conclude(github, project, head)
    assert outcome(github)[0] == "failure"


@pytest.mark.parametrize(
    "how",
    [
        {"by": "helper"},
        {"by": "stranger"},
        {"by": None},
        {"by": "maintainer", "kind": "Bot"},
        {"by": "maintainer", "at": BEFORE},
        {"by": "maintainer", "at": "2026-01-10T14:55:00Z"},
        {"by": "maintainer", "at": "2026-01-10T09:00:00Z"},
    ],
    ids=["triage", "stranger", "deleted", "a workflow", "same second", "while it was measured", "before the push"],
)
def test_a_label_that_no_maintainer_set_for_this_commit_allows_nothing(github, project, how):
    head = propose_waiver(github, project)
    github.label(WAIVER, **{"at": LATER, **how})
    conclude(github, project, head)
    assert outcome(github)[0] == "failure"
    assert "set the label" not in comment(github)


def test_a_label_counts_by_who_set_it_last(github, project):
    head = propose_waiver(github, project)
    github.label(WAIVER, at=LATER)
    github.label(WAIVER, at="2026-01-10T15:01:00Z", event="unlabeled")
    github.label(WAIVER, by="helper", at="2026-01-10T15:02:00Z")
    conclude(github, project, head)
    assert outcome(github)[0] == "failure"


def test_an_author_with_write_permission_allows_himself_nothing(github, project):
    head = propose_waiver(github, project)
    github.permissions["stranger"] = "admin"
    github.label(WAIVER, by="stranger", at=LATER)
    conclude(github, project, head)
    assert outcome(github)[0] == "failure"
    github.label(WAIVER, at="2026-01-10T15:02:00Z")
    conclude(github, project, head)
    assert outcome(github)[0] == "success"


def test_a_label_from_before_the_end_of_a_run_that_measured_nothing_allows_nothing(github, project):
    """The commit may have been pushed between a maintainer's look and click: there are no samples that tell."""
    head = project.change(".github/workflows/another.yml", "on: pull_request\n")
    deliver(github, project, head, samples=False)
    github.jobs = [fake_github.job("plan", at="2026-01-10T14:53:00Z")]
    github.permissions = {"maintainer": "write"}
    github.label(WORKFLOWS, at="2026-01-10T14:53:00Z")
    conclude(github, project, head)
    refused(github, "sets the label")
    github.label(WORKFLOWS, at="2026-01-10T14:53:01Z")
    conclude(github, project, head)
    assert outcome(github)[0] == "success"


@pytest.mark.parametrize("name", ["tilegate: Waiver", "tilegate: waiver ", "tilegate:waiver", "tilegate: w\u0430iver"])
def test_the_label_is_not_another_one_of_a_similar_name(github, project, name):
    head = propose_waiver(github, project)
    github.label(name, at=LATER)
    conclude(github, project, head)
    assert outcome(github)[0] == "failure"


def test_a_waiver_covers_no_more_than_it_says_label_or_not(github, project):
    head = propose_waiver(github, project, MINE.replace("20.0", "5.0"))
    github.label(WAIVER, at=LATER)
    conclude(github, project, head)
    assert outcome(github)[0] == "failure"


def test_the_event_of_a_label_finds_the_run_that_it_judges_again(github, project):
    head = propose_waiver(github, project)
    github.label(WAIVER, at=LATER)
    of = event.labelled(payloads.labelled(head))
    assert binding.newest_run(github.client(), of) is None
    run = payloads.workflow_run(head)["workflow_run"]
    others = [payloads.workflow_run("e" * 40)["workflow_run"], {**run, "id": 1}, {**run, "id": 10**9, "event": "push"}]
    github.runs = [*others, run]
    found = binding.newest_run(github.client(), of)
    assert found == event.finished_run(payloads.workflow_run(head))
    report.publish(github.client(), found, project.path, EXPECTED)
    assert outcome(github)[0] == "success"
    github.runs.append({**run, "id": run["id"] + 1, "status": "in_progress", "conclusion": None})
    assert binding.newest_run(github.client(), of) is None  # its own report will see the label


def test_the_event_of_a_label_finds_no_run_of_another_fork_with_the_same_commit(github, project):
    head = project.change()
    run = payloads.workflow_run(head)["workflow_run"]
    theirs = payloads.workflow_run(head, id=run["id"] + 1, owner="another")["workflow_run"]
    theirs["head_repository"]["id"] = 12345
    github.runs = [run, theirs, {**run, "id": run["id"] + 2, "head_branch": "another"}]
    assert binding.newest_run(github.client(), event.labelled(payloads.labelled(head))).id == run["id"]
    gone = payloads.labelled(head)
    gone["pull_request"]["head"]["repo"] = None
    assert binding.newest_run(github.client(), event.labelled(gone)) is None


def test_a_label_whose_report_fails_leaves_nothing_of_what_was_said_before(github, project, tmp_path, monkeypatch):
    """The one that is taken away, say, while GitHub does not answer."""
    head = project.change()
    deliver(github, project, head)
    conclude(github, project, head)
    assert outcome(github)[0] == "success"
    github.runs = [payloads.workflow_run(head)["workflow_run"]]
    path = tmp_path / "event.json"
    for name, value in {
        "GITHUB_EVENT_PATH": str(path),
        "GITHUB_TOKEN": fake_github.TOKEN,
        "GITHUB_REPOSITORY": fake_github.REPOSITORY,
        "GITHUB_API_URL": github.address,
    }.items():
        monkeypatch.setenv(name, value)
    command = ["ci", "report", "--checkout", str(project.path)]
    of = payloads.labelled(head, action="unlabeled")
    github.pulls[0]["base"]["ref"] = "gone"  # which GitHub cannot compare with
    path.write_text(json.dumps(of | {"repository": of["repository"] | {"default_branch": "gone"}}))
    assert cli.main(command) == 2
    assert github.check("tilegate/latency")["conclusion"] is None
    github.pulls[0]["base"]["ref"] = "main"
    path.write_text(json.dumps(of))
    assert cli.main(command) == 0
    assert outcome(github)[0] == "success"
    assert len(github.checks) == 4  # two of the run, two of the label


@pytest.mark.parametrize("action", ["opened", "synchronize", "edited"])
def test_only_events_of_labels_judge_again(action):
    with pytest.raises(UsageError, match="no label"):
        event.labelled(payloads.labelled("a" * 40, action=action))


def test_an_edit_of_any_workflow_needs_a_maintainer_who_has_read_it(github, project):
    """It could hold a job of our check's name that finishes after the report."""
    project.git("switch", "--quiet", "--create", "topic")
    project.write(".github/workflows/another.yml", "on: pull_request\njobs: {a: {name: tilegate/latency}}\n")
    project.write(change.PACKAGE, "SPEED = 2\n")
    head = project.commit("Add a job")
    project.git("switch", "--quiet", "main")
    deliver(github, project, head)
    conclude(github, project, head)
    for check in ("tilegate/latency", "tilegate/isa"):
        refused(github, "sets the label `tilegate: workflows`", conclusion="action_required", name=check)
    github.permissions = {"maintainer": "write", "helper": "read"}
    github.label(WORKFLOWS, by="helper", at=LATER)
    conclude(github, project, head)
    refused(github, "sets the label")
    github.label(WORKFLOWS, at=LATER)
    conclude(github, project, head)
    assert outcome(github)[0] == outcome(github, "tilegate/isa")[0] == "success"


def test_no_label_makes_up_for_an_edit_of_the_measuring_workflow(github, project):
    head = project.change(change.WORKFLOW, "name: bench-pr\non: pull_request\njobs: {}\n")
    deliver(github, project, head)
    github.permissions = {"maintainer": "admin"}
    github.label(WORKFLOWS, at=LATER)
    conclude(github, project, head)
    refused(github, "edits the workflow that measures", conclusion="action_required")


def test_an_app_of_ones_own_speaks_for_itself(github, project, monkeypatch):
    """docs/security.md: then a ruleset can tell its checks from those of any job."""
    github.app = "our-bench"
    monkeypatch.setenv("GITHUB_TOKEN", fake_github.TOKEN)
    monkeypatch.setenv("GITHUB_REPOSITORY", fake_github.REPOSITORY)
    monkeypatch.setenv("GITHUB_API_URL", github.address)
    monkeypatch.setenv("TILEGATE_GITHUB_APP", "our-bench")
    client = from_environment()
    head = project.change()
    deliver(github, project, head)
    for _ in range(2):
        report.publish(client, event.finished_run(payloads.workflow_run(head)), project.path, EXPECTED)
    assert [check["app"]["slug"] for check in github.checks] == ["our-bench"] * 2  # changed in place
    assert len(github.comments[7]) == 1
    job = {
        "id": 1,
        "name": "tilegate/latency",
        "head_sha": head,
        "external_id": "tilegate:tilegate/latency",
        "html_url": "https://x.invalid",
    }
    github.checks.append({**job, "app": {"slug": "github-actions"}, "status": "completed", "conclusion": "success"})
    report.publish(client, event.finished_run(payloads.workflow_run(head)), project.path, EXPECTED)
    assert outcome(github)[0] == "failure"


# --- names


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_names_stay_text(github, project, text, tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary"))
    head = project.change()
    slow = sample_builder.case(0.1, confirm=2) | {"cause": [text]}
    broken = sample_builder.case(screen=False)
    broken["head"] = sample_builder.side("b", status="failed", failure={"kind": "crash", "message": text, "log": text})
    plan = project.plan(head)
    for side in ("base", "head"):
        kernels = plan["isa"][side]["kernels"]["gfx942"]
        problem = [{"check": "lds", "severity": "broken", "message": text}] if side == "head" else []
        kernels[text] = {"cases": [text], "arch": "gfx942", "figures": None, "problems": problem, "identity": side}
    cases = {f"slow({text})": slow, f"broken({text})": broken}
    deliver(github, project, head, samples=project.samples(head, cases=cases), plan=plan)
    github.pulls[0]["title"] = github.pulls[0]["head"]["ref"] = text
    github.pulls[0]["head"]["label"] = f"stranger:{text}"
    conclude(github, project, head, branch=text)
    assert outcome(github)[0] == "failure"
    for shown in (comment(github), *(c["output"]["summary"] for c in github.checks)):
        outside = outside_code(shown)
        for bad in ("<img", "javascript:", "@octo-org", "touch", "::set-output", "\u202e", "# not code"):
            assert bad not in outside
        assert outside.count("<!-- tilegate report -->") == shown.startswith("<!-- tilegate report -->")
    assert comment(github).startswith("<!-- tilegate report -->")


def test_no_answer_of_github_is_no_pass(github, project):
    head = project.change()
    deliver(github, project, head)
    conclude(github, project, head, action="requested")
    github.faults = [(404, {})]
    with pytest.raises(UsageError):
        conclude(github, project, head)
    assert github.check("tilegate/latency")["conclusion"] is None


def test_the_limits_of_archives_are_those_of_what_is_written():
    from tilegate.ci.checks import LIMITS

    assert max(LIMITS.values()) <= archive.MAX_ARCHIVE_BYTES
    assert json.dumps(sorted(LIMITS)) == '["plan.json", "samples.json"]'
