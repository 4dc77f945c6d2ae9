"""The measuring container: built on a pinned base, pushed without leaking the token, proposed and never entered by itself."""

import json
import os
from pathlib import Path

import fake_github
import pytest

from tilegate import cli
from tilegate.ci import container, image, settings
from tilegate.files import UsageError

ROOT = Path(__file__).parents[3]
RECIPE = ROOT / ".github" / "runner"
BASE = f"rocm/pytorch:x@sha256:{'c' * 64}"
COMMIT = "0123456789ab" + "0" * 28
NAME = "ghcr.io/octo-org/kernels-bench"
PUSHED = f"{NAME}@sha256:{'d' * 64}"
URL = "https://github.com/octo-org/kernels/actions/runs/1"


@pytest.fixture
def recipe(tmp_path):
    folder = tmp_path / "recipe"
    folder.mkdir()
    (folder / "Dockerfile").write_text(f"ARG BASE={BASE}\nFROM ${{BASE}}\n")
    return folder


@pytest.fixture
def docker(tmp_path, monkeypatch):
    """A docker that writes down command, input and environment; what `image inspect` says is in a file."""
    tools, log = tmp_path / "tools", tmp_path / "docker.log"
    tools.mkdir()
    (tmp_path / "digests").write_text(json.dumps([f"elsewhere/x@sha256:{'e' * 64}", PUSHED]))
    (tools / "docker").write_text(
        f'#!/bin/sh\n{{ echo "$@"; echo "<$(cat)>"; env; }} >> {log}\n'
        f'test "$1" != image || cat {tmp_path}/digests\ntest "$1" != "$FAILING"\n'
    )
    (tools / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("GITHUB_REPOSITORY", "Octo-Org/kernels")
    monkeypatch.setenv("GITHUB_SHA", COMMIT)
    monkeypatch.setenv("GITHUB_TOKEN", fake_github.TOKEN)
    return log


def test_the_recipe_of_this_repository_builds_on_a_pinned_base_that_has_rocm():
    assert image.base_of(RECIPE / "Dockerfile").startswith("rocm/pytorch:")
    assert "torch.version.hip" in (RECIPE / "Dockerfile").read_text()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ARG BASE=rocm/pytorch:latest\nFROM ${BASE}\n", "imagetools inspect rocm/pytorch:latest"),
        ("ARG BASE\nFROM ${BASE}\n", "0 lines"),
        (f"ARG BASE={BASE}\nARG BASE={BASE}\n", "2 lines"),
    ],
)
def test_a_base_without_a_digest_is_not_built(recipe, docker, text, words):
    (recipe / "Dockerfile").write_text(text)
    with pytest.raises(UsageError, match=words):
        image.build(recipe)
    assert not docker.exists()


def test_what_was_pushed_is_known_by_its_digest_and_the_token_by_docker_login_alone(
    recipe, docker, tmp_path, monkeypatch
):
    monkeypatch.setenv("GITHUB_OUTPUT", str(tmp_path / "output"))
    assert cli.main(["ci", "image", "--recipe", str(recipe), "--push"]) == 0
    assert (tmp_path / "output").read_text() == f"image={PUSHED}\n"
    said = docker.read_text()
    assert f"build --pull --tag {NAME}:{COMMIT[:12]} " in said  # a registry's names are lower case
    assert "org.opencontainers.image.source=https://github.com/Octo-Org/kernels" in said
    assert said.count(fake_github.TOKEN) == 1
    assert f"--password-stdin\n<{fake_github.TOKEN}>" in said
    assert said.index("\nbuild" if not said.startswith("build") else "build") < said.index(fake_github.TOKEN)
    (folder,) = {line.partition("=")[2] for line in said.splitlines() if line.startswith("DOCKER_CONFIG=")}
    assert not Path(folder).exists()  # in which Docker had written it down


def test_without_push_nothing_is_pushed(recipe, docker):
    assert cli.main(["ci", "image", "--recipe", str(recipe)]) == 0
    assert "login" not in docker.read_text()


@pytest.mark.parametrize("failing", ["build", "login", "push"])
def test_what_docker_cannot_do_ends_the_job(recipe, docker, monkeypatch, failing, capfd):
    monkeypatch.setenv("FAILING", failing)
    assert cli.main(["ci", "image", "--recipe", str(recipe), "--push"]) == 2
    assert f"docker {failing} ended with status 1" in capfd.readouterr().err


@pytest.mark.parametrize("digests", [[], None, [f"elsewhere/x@sha256:{'e' * 64}"], [f"{NAME}@sha256:abc"]])
def test_a_digest_that_is_not_known_is_not_made_up(recipe, docker, tmp_path, digests):
    (tmp_path / "digests").write_text(json.dumps(digests))
    with pytest.raises(UsageError, match="digest"):
        image.push(image.build(recipe))


# --- the change


@pytest.fixture
def bench(project):
    project.write(settings.FILE, (ROOT / settings.FILE).read_text())
    return project.commit("Have no machine")


def test_the_change_waits_on_a_branch_and_an_issue_leads_to_it(github, project, bench):
    number = image.propose(github.client(), PUSHED, BASE, URL)
    assert project.git("rev-parse", "main") == bench  # not entered
    assert project.git("diff", "--name-only", "main", image.BRANCH) == settings.FILE
    assert project.git("diff", "--numstat", "main", image.BRANCH).split()[:2] == ["1", "1"]
    entered = project.path / "entered"
    entered.write_text(project.git("show", f"{image.BRANCH}:{settings.FILE}"))
    assert settings.load(entered).image == PUSHED
    assert f"Closes #{number}" in project.git("log", "-1", "--format=%B", image.BRANCH)
    (issue,) = github.issues
    assert issue["number"] == number
    for text in (PUSHED, BASE, URL, "to the last digit", f"compare/main...{image.BRANCH}?expand=1"):
        assert text in issue["body"]


def test_a_newer_image_takes_the_older_ones_place(github, project, bench):
    first = image.propose(github.client(), PUSHED, BASE, URL)
    project.write("README.md", "news")
    project.commit("Move on")
    newer = PUSHED.replace("d" * 64, "f" * 64)
    assert image.propose(github.client(), newer, BASE, URL) == first
    assert len(github.issues) == 1
    assert newer in github.issues[0]["body"]
    assert project.git("diff", "--name-only", "main", image.BRANCH) == settings.FILE
    assert newer in project.git("show", f"{image.BRANCH}:{settings.FILE}")


def test_somebody_elses_issue_is_not_taken_for_ours(github, project, bench):
    theirs = {"number": 3, "state": "open", "user": {"login": "stranger"}, "labels": [{"name": image.LABEL}]}
    github.issues.append({**theirs, "title": "x", "body": "<!-- tilegate runner image -->"})
    assert image.propose(github.client(), PUSHED, BASE, URL) != 3
    assert github.issues[0]["title"] == "x"


def test_an_image_that_is_entered_needs_no_change(github, project, bench):
    project.write(settings.FILE, settings.with_image((ROOT / settings.FILE).read_text(), PUSHED))
    project.commit("Enter it")
    assert image.propose(github.client(), PUSHED, BASE, URL) is None
    assert github.issues == []


def test_only_an_image_with_a_digest_is_proposed(github, project, bench):
    with pytest.raises(UsageError, match="with its digest"):
        image.propose(github.client(), f"{NAME}:latest", BASE, URL)
    assert not any(method != "GET" for method, _ in github.requests)


@pytest.mark.parametrize("text", ["", "outside_environment = ''\n", 'image = ""\nimage = ""\n'])
def test_a_file_without_one_line_for_the_image_is_left_alone(text):
    with pytest.raises(UsageError, match="one line"):
        settings.with_image(text, PUSHED)


def test_an_image_is_entered_and_the_rest_stays():
    text = (ROOT / settings.FILE).read_text()
    entered = settings.with_image(text, PUSHED)
    assert entered.replace(f'image = "{PUSHED}"', 'image = ""') == text
    assert container.checked_image(PUSHED) in entered
