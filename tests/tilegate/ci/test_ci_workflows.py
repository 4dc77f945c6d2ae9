"""Every workflow, run from its event to its end: in a scratch repository with a toy library, on the CPU."""

import hashlib
import io
import json
import os
import shutil
import sys
import zipfile
from pathlib import Path

import fake_github
import payloads
import pytest
from toy_repository import KERNELS, TOY, VIRTUAL_TIME, ToyRepository
from workflow_runner import Machine

import tilegate

ROOT = Path(__file__).parents[3]
WORKFLOWS = ROOT / ".github" / "workflows"
ASSETS = ROOT / ".github" / "site" / "node_modules"
IMAGE = f"registry.example.org/kernels@sha256:{'a' * 64}"

# The package under test, in the CPU's numbers: the workflow files themselves say hip and gfx942.
ENV = {"TARGET": "cpu", "TIER": "smoke", "MACHINE": "toy"}
MAKEFILE = """\
setup:
\t@mkdir -p .venv/bin && ln -sf {tilegate} .venv/bin/tilegate && touch .venv/set-up

test-thorough:
\t@touch .thorough-ran
"""

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(1500)]  # seconds on an idle machine, minutes on one under load


@pytest.fixture
def repository(tmp_path):
    """What is on GitHub: the toy, a judge, the workflows. `main` is checked out."""
    made = ToyRepository(tmp_path / "origin")
    shutil.copytree(TOY, made.path, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(
        Path(tilegate.__file__).parent, made.path / "tilegate", ignore=shutil.ignore_patterns("__pycache__")
    )
    for name in ("workflows", "site", "runner"):
        ignored = shutil.ignore_patterns("node_modules")
        shutil.copytree(ROOT / ".github" / name, made.path / ".github" / name, ignore=ignored)
    made.write(".github/bench.toml", f'image = "{IMAGE}"\noutside_environment = "bench-outside"\n')
    made.write("Makefile", MAKEFILE.format(tilegate=tmp_path / "tools" / "tilegate"))
    made.write(".gitignore", "__pycache__/\n.venv/\n.asv/\n.ci-ran\n")
    made.write(".ci/run", "touch .ci-ran\n")
    settings = json.loads(
        "\n".join(line for line in (ROOT / "asv.conf.json").read_text().splitlines() if "//" not in line)
    )
    made.write("asv.conf.json", json.dumps(settings | {"project": "toykernels", "benchmark_dir": "toybench"}))
    made.replace(KERNELS, r"^STEPS = .*$", 'STEPS = ("first",)')  # fewer cases, and soon decided
    made.replace("pyproject.toml", r"^controls = 1$", "controls = 1\nmax_replicates = 2")
    made.git("init", "--quiet", "--initial-branch", "main")
    made.git("config", "uploadpack.allowAnySHA1InWant", "true")
    made.git("config", "receive.denyCurrentBranch", "ignore")
    made.commit("Base")
    made.git("branch", "bench-results", made.git("commit-tree", "-m", "Results", made.git("mktree", "--missing")))
    return made


@pytest.fixture
def github(repository):
    with fake_github.serve(repository.path) as state:
        yield state


@pytest.fixture
def machine(tmp_path, repository, github, monkeypatch):
    tools = tmp_path / "tools"
    tools.mkdir()
    # On the host of a runner there is Python and git, and no package of ours.
    _tool(tools / "python3", f'exec {sys.executable} -S "$@"')
    _tool(
        tools / "tilegate",
        f'PYTHONPATH=$(dirname "$(dirname "$(dirname "$0")")") exec {sys.executable} -m tilegate.cli "$@"',
    )
    _tool(tools / "docker", f'exec {sys.executable} {Path(__file__).parent / "fake_docker.py"} "$@"')
    _tool(tools / "sudo", 'test "$1" = apt-get && exec "$@"; test "$1" = rm')  # nothing of this machine is removed
    _tool(tools / "apt-get", 'echo "$@" >> "$FAKE_APT_LOG"')
    # npm ci --prefix .github/site …, from what is installed already
    _tool(tools / "npm", f'test "$1 $2 $4" = "ci --prefix --ignore-scripts" && cp -r {ASSETS} "$3"')
    monkeypatch.setenv("FAKE_DOCKER_LOG", str(tmp_path / "docker.log"))
    monkeypatch.setenv("FAKE_APT_LOG", str(tmp_path / "apt.log"))
    monkeypatch.setenv("FAKE_DOCKER_PYTHONPATH", str(VIRTUAL_TIME))
    return Machine(tmp_path / "machine", repository.path, tools, github.address, dict(ENV))


def _tool(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def propose(repository, pattern, text, *, branch="topic"):
    """Push a change of the toy's kernels as a pull request; return base and head."""
    base = repository.git("rev-parse", "main")
    repository.git("switch", "--quiet", "--create", branch)
    repository.replace(KERNELS, pattern, text)
    head = repository.commit("Change")
    repository.git("update-ref", "refs/pull/7/head", head)
    repository.git("switch", "--quiet", "main")
    return base, head


def run_pull_request(machine, github, base, head, **options):
    """Run bench-pr.yml and then bench-report.yml, as GitHub does; return the first one's jobs."""
    github.add_pull(head, branch=options.get("branch", "topic"))
    github.approvals = [{"state": "approved", "environments": [{"name": "bench-outside"}], "user": {"login": "m"}}]
    report = WORKFLOWS / "bench-report.yml"
    tip = github.git("rev-parse", "main")
    before = machine.run(report, "workflow_run", payloads.workflow_run(head, action="requested"), tip)
    assert before["report"].result == "success", before["report"].log
    assert github.check("tilegate/latency")["status"] == "in_progress"
    shutil.rmtree(machine.root)
    jobs = machine.run(WORKFLOWS / "bench-pr.yml", "pull_request", payloads.pull_request(base, head, **options), head)
    for name, content in machine.artifacts.items():
        github.add_artifact(name, content, head)
    good = all(job.result in ("success", "skipped") for job in jobs.values())
    ended = payloads.workflow_run(
        head, conclusion="success" if good else "failure", branch=options.get("branch", "topic")
    )
    after = machine.run(report, "workflow_run", ended, tip)
    assert after["report"].result == "success", after["report"].log
    return jobs


def test_a_slower_kernel_is_measured_and_stopped(machine, github, repository):
    base, head = propose(repository, "TOTAL_MS = 4.0", "TOTAL_MS = 4.8")
    hostile = "$(touch /tmp/owned)`touch /tmp/owned`'\"; <b>"
    jobs = run_pull_request(machine, github, base, head, title=hostile, branch="a$(touch${IFS}x)")
    assert jobs["measure"].result == "success", jobs["measure"].log
    assert jobs["measure"].environment == "bench-outside"
    assert set(machine.artifacts) == {"plan", "samples"}
    check = github.check("tilegate/latency")
    assert check["conclusion"] == "failure", check["output"]
    assert "sums.Total.latency_total" in check["output"]["summary"]
    (comment,) = github.comments[7]
    assert "REGRESSED" in comment["body"]
    assert hostile not in comment["body"]
    # The container is gone, and so is everything that it and the change left.
    log = [json.loads(line) for line in Path(os.environ["FAKE_DOCKER_LOG"]).read_text().splitlines()]
    (name,) = [words[words.index("--name") + 1] for words in log if words[0] == "run"]
    assert ["rm", "--force", "--volumes", name] in log
    workspace = machine.root / "bench-pr-measure"
    assert [path.name for path in (workspace / "workspace").iterdir()] == ["judge"]
    assert list((workspace / "temp").iterdir()) == []


def test_an_equal_kernel_passes(machine, github, repository):
    base, head = propose(repository, "sum\\(values \\* values\\)", "sum(values * values) again")
    jobs = run_pull_request(machine, github, base, head)
    assert jobs["measure"].result == "success", jobs["measure"].log
    check = github.check("tilegate/latency")
    assert check["conclusion"] == "success", check["output"]


def test_a_kernel_that_patches_the_timer_or_exits_early_is_no_pass(machine, github, repository):
    patch = "time.sleep(self._seconds)\n        import time as t; t.perf_counter_ns = t.monotonic_ns = lambda: 0"
    base, head = propose(repository, r"time\.sleep\(self\._seconds\)", patch)
    repository.git("switch", "--quiet", "topic")
    repository.replace(KERNELS, r"return Kernel\(MEAN_MS\)", "import os; os._exit(0)")
    repository.replace(KERNELS, "TOTAL_MS = 4.0", "TOTAL_MS = 8.0")
    head = repository.commit("Exit early, too")
    repository.git("switch", "--quiet", "main")
    run_pull_request(machine, github, base, head)
    check = github.check("tilegate/latency")
    assert check["conclusion"] == "failure", check["output"]
    assert "broken" in check["output"]["title"].lower()


def test_a_change_of_words_is_done_without_a_gpu(machine, github, repository):
    base = repository.git("rev-parse", "main")
    repository.git("switch", "--quiet", "--create", "topic")
    repository.write("docs/new.md", "words\n")
    head = repository.commit("Write")
    repository.git("switch", "--quiet", "main")
    jobs = run_pull_request(machine, github, base, head)
    assert jobs["measure"].result == "skipped"
    assert github.check("tilegate/latency")["conclusion"] == "success"
    assert not Path(os.environ["FAKE_DOCKER_LOG"]).exists()


def test_without_an_environment_for_forks_they_are_not_measured(machine, github, repository):
    repository.write(".github/bench.toml", f'image = "{IMAGE}"\n')
    repository.commit("Measure no forks")
    base, head = propose(repository, "TOTAL_MS = 4.0", "TOTAL_MS = 4.8")
    jobs = run_pull_request(machine, github, base, head)
    assert jobs["measure"].result == "skipped"
    assert github.check("tilegate/latency")["conclusion"] == "action_required"


def test_a_change_cannot_choose_its_own_environment(machine, github, repository):
    base = repository.git("rev-parse", "main")
    repository.git("switch", "--quiet", "--create", "topic")
    repository.replace(KERNELS, "TOTAL_MS = 4.0", "TOTAL_MS = 4.8")
    repository.write(".github/bench.toml", 'image = "evil@sha256:' + "b" * 64 + '"\noutside_environment = "free"\n')
    repository.write("tilegate/ci/command.py", "raise SystemExit('run from the change')\n")
    head = repository.commit("Change the rules")
    repository.git("switch", "--quiet", "main")
    jobs = run_pull_request(machine, github, base, head)
    assert jobs["measure"].environment == "bench-outside"
    log = Path(os.environ["FAKE_DOCKER_LOG"]).read_text()
    assert IMAGE in log
    assert "evil" not in log
    assert github.check("tilegate/latency")["conclusion"] == "failure"


@pytest.mark.skipif(not ASSETS.is_dir(), reason="the site's libraries are not installed; `make lint` installs them")
def test_every_commit_on_main_is_measured_once_and_shown(machine, github, repository):
    for value in ("4.1", "4.2"):
        repository.replace(KERNELS, r"TOTAL_MS = [\d.]+", f"TOTAL_MS = {value}")
        repository.commit(f"Take {value} ms")
    commits = repository.git("rev-list", "main").splitlines()
    payload = {"ref": "refs/heads/main", "after": commits[0], "repository": payloads._HERE}
    jobs = machine.run(WORKFLOWS / "bench-main.yml", "push", payload, commits[0])
    assert {name: job.result for name, job in jobs.items()} == dict.fromkeys(
        ("admit", "measure", "keep", "site", "deploy"), "success"
    ), "".join(job.log for job in jobs.values())
    assert jobs["measure"].environment == "bench"
    kept = repository.git("ls-tree", "-r", "--name-only", "bench-results").splitlines()
    assert sum(name.startswith("history/records/commit/") for name in kept) == len(commits)
    assert any(name.startswith("history/packs/") for name in kept)
    assert machine.pages["index.html"]
    page = machine.pages["asv/index.html"].decode()
    assert "https://code.jquery.com" not in page
    assert machine.pages["asv/vendor/jquery/dist/jquery.min.js"]
    # A second run finds nothing to do.
    shutil.rmtree(machine.root)
    machine.artifacts.clear()
    jobs = machine.run(WORKFLOWS / "bench-main.yml", "push", payload, commits[0])
    assert jobs["measure"].result == jobs["keep"].result == "success", jobs["keep"].log
    assert machine.artifacts == {}
    assert repository.git("ls-tree", "-r", "--name-only", "bench-results").splitlines() == kept


def test_slower_than_the_last_release_is_an_issue_and_its_end_closes_it(machine, github, repository):
    repository.git("tag", "v1.0")
    repository.replace(KERNELS, "TOTAL_MS = 4.0", "TOTAL_MS = 4.8")
    head = repository.commit("Creep")
    payload = {"schedule": "17 1 * * *", "repository": payloads._HERE}
    jobs = machine.run(WORKFLOWS / "bench-nightly.yml", "schedule", payload, head)
    assert jobs["measure"].result == jobs["triage"].result == "success", jobs["triage"].log
    assert jobs["keep"].result == "success", jobs["keep"].log
    noise = repository.git("show", "bench-results:noise/toy.profile") + "\n"
    assert "sums.Total.latency_total" in noise
    assert github.issues, jobs["measure"].log + jobs["triage"].log
    (issue,) = github.issues
    assert issue["state"] == "open"
    assert "sums.Total.latency_total" in issue["title"]
    assert "v1.0" in issue["body"]
    repository.replace(KERNELS, "TOTAL_MS = 4.8", "TOTAL_MS = 4.0")
    head = repository.commit("Recover")
    shutil.rmtree(machine.root)
    machine.artifacts.clear()
    jobs = machine.run(WORKFLOWS / "bench-nightly.yml", "schedule", payload, head)
    assert jobs["triage"].result == "success", jobs["triage"].log
    assert github.issues[0]["state"] == "closed"
    # The next pull request is measured and judged by the machine's noise of this night.
    noise = repository.git("show", "bench-results:noise/toy.profile") + "\n"
    github.add_night(machine.artifacts["noise-mi300x"], name="noise-toy", packed=True)
    shutil.rmtree(machine.root)
    machine.artifacts.clear()
    run_pull_request(machine, github, *propose(repository, "TOTAL_MS = 4.0", "TOTAL_MS = 4.8"))
    with zipfile.ZipFile(io.BytesIO(machine.artifacts["samples"])) as packed:
        cited = json.loads(packed.read("samples.json"))["noise_profile"]["digest"]
    assert cited == hashlib.sha256(noise.encode()).hexdigest()
    check = github.check("tilegate/latency")
    assert check["conclusion"] == "failure"
    assert f"profile {cited[:8]}" in check["output"]["summary"]


def test_a_maintainers_label_has_the_same_samples_judged_again(machine, github, repository):
    waiver = (
        '[waiver.mine]\ncases = "*"\nceiling = 60.0\nexpires = 2099-01-01\nreason = "r"\nlink = "https://x.invalid"\n'
    )
    base, _ = propose(repository, "TOTAL_MS = 4.0", "TOTAL_MS = 4.8")
    repository.git("switch", "--quiet", "topic")
    repository.write("tilegate-waivers.toml", waiver)
    head = repository.commit("Ask for time")
    repository.git("switch", "--quiet", "main")
    run_pull_request(machine, github, base, head)
    assert github.check("tilegate/latency")["conclusion"] == "failure"
    measured = len(Path(os.environ["FAKE_DOCKER_LOG"]).read_text().splitlines())
    github.runs = [payloads.workflow_run(head)["workflow_run"]]
    github.permissions = {"maintainer": "write"}
    github.label("tilegate: waiver")
    tip = repository.git("rev-parse", "main")
    shutil.rmtree(machine.root)
    again = machine.run(WORKFLOWS / "bench-report.yml", "pull_request_target", payloads.labelled(head), tip)
    assert again["report"].result == "success", again["report"].log
    assert github.check("tilegate/latency")["conclusion"] == "success", github.check("tilegate/latency")["output"]
    assert len(Path(os.environ["FAKE_DOCKER_LOG"]).read_text().splitlines()) == measured
    shutil.rmtree(machine.root)
    other = machine.run(
        WORKFLOWS / "bench-report.yml", "pull_request_target", payloads.labelled(head, name="good first issue"), tip
    )
    assert other["report"].result == "skipped"


def test_a_new_recipe_is_built_and_its_digest_proposed(machine, github, repository):
    head = repository.git("rev-parse", "main")
    payload = {"ref": "refs/heads/main", "after": head, "repository": payloads._HERE}
    jobs = machine.run(WORKFLOWS / "runner-image.yml", "push", payload, head)
    assert {job.result for job in jobs.values()} == {"success"}, "".join(job.log for job in jobs.values())
    proposed = repository.git("show", "tilegate/runner-image:.github/bench.toml")
    assert f'image = "ghcr.io/octo-org/kernels-bench@sha256:{"d" * 64}"' in proposed
    assert 'outside_environment = "bench-outside"' in proposed
    assert repository.git("rev-parse", "main") == head
    (issue,) = github.issues
    assert "compare/main...tilegate/runner-image" in issue["body"]


def test_the_ordinary_checks_run(machine, repository):
    _tool(machine.tools / "tilegate", 'echo "$@" > isa-ran')
    head = repository.git("rev-parse", "main")
    jobs = machine.run(WORKFLOWS / "ci.yml", "pull_request", payloads.pull_request(head, head), head)
    assert {job.result for job in jobs.values()} == {"success"}
    assert (machine.root / "ci-check" / "workspace" / ".ci-ran").exists()
    assert (machine.root / "ci-thorough" / "workspace" / ".thorough-ran").exists()
    assert (machine.root / "ci-isa" / "workspace" / "isa-ran").read_text().startswith("isa --arch gfx942")
