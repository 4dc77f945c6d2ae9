"""Runs a workflow file here: its jobs in the order of their needs, its `run:` steps as they stand, GitHub's actions in miniature.

What it does not know (an expression, an action, an input) is an error, so a workflow cannot come to rely on something that
these tests pass over.
"""

from __future__ import annotations

import fnmatch
import io
import json
import os
import re
import subprocess
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

import fake_github
import yaml

_STATUS = ("always", "cancelled", "success", "failure")


@dataclass
class Job:
    """What became of a job."""

    result: str
    outputs: dict[str, str] = field(default_factory=dict)
    environment: str | None = None
    log: str = ""


@dataclass
class Machine:
    """Where workflows run.

    Attributes:
        root: for workspaces.
        origin: the repository on "GitHub".
        tools: a folder of commands that goes first on PATH.
        api: address of the API.
        env: replaces values of a workflow's own `env`.
        artifacts: by name, the zip of each.
        pages: what was deployed, name to content.
    """

    root: Path
    origin: Path
    tools: Path
    api: str
    env: dict[str, str]
    artifacts: dict[str, bytes] = field(default_factory=dict)
    pages: dict[str, bytes] = field(default_factory=dict)

    def run(self, workflow: Path, event: str, payload: dict, sha: str) -> dict[str, Job]:
        """Run a workflow for an event; return its jobs."""
        document = yaml.safe_load(workflow.read_text())
        triggers = document.pop(True)  # YAML 1.1 reads the key `on` as a boolean
        assert event in triggers, f"{workflow.name} does not react to {event}"
        github = {
            "event": payload,
            "event_name": event,
            "sha": sha,
            "repository": fake_github.REPOSITORY,
            "ref": "refs/heads/main" if event in ("push", "workflow_dispatch", "schedule") else "refs/pull/7/merge",
            "token": fake_github.TOKEN,
        }
        jobs: dict[str, Job] = {}
        waiting = dict(document["jobs"])
        while waiting:
            name = next(n for n, job in waiting.items() if set(_list(job.get("needs"))) <= set(jobs))
            jobs[name] = _Run(
                self, document, waiting.pop(name), github=github, done=jobs, name=f"{workflow.stem}-{name}"
            ).job()
        return jobs


class _Run:
    """One job."""

    def __init__(self, machine, document, job, *, github, done, name):
        self.machine, self.document, self.spec, self.name = machine, document, job, name
        self.needs = {need: done[need] for need in _list(job.get("needs"))}
        self.contexts = {
            "github": github,
            "needs": {n: {"result": j.result, "outputs": j.outputs} for n, j in self.needs.items()},
            "steps": {},
            "matrix": {key: values[0] for key, values in job.get("strategy", {}).get("matrix", {}).items()},
            "runner": {"temp": str(machine.root / name / "temp")},
        }
        self.failed = False
        self.log = ""

    def job(self) -> Job:
        good = all(job.result == "success" for job in self.needs.values())
        if not self._holds(self.spec.get("if"), good):
            return Job("skipped")
        environment = self.spec.get("environment")
        environment = environment["name"] if isinstance(environment, dict) else environment
        self.workspace = self.machine.root / self.name / "workspace"
        for folder in (self.workspace, Path(self.contexts["runner"]["temp"])):
            folder.mkdir(parents=True)
        for number, step in enumerate(self.spec["steps"]):
            if self._holds(step.get("if"), not self.failed):
                outputs = self._run(step, number) if "run" in step else self._use(step)
                if "id" in step:
                    self.contexts["steps"][step["id"]] = {"outputs": outputs or {}}
        outputs = {key: self._text(value) for key, value in self.spec.get("outputs", {}).items()}
        where = None if environment is None else self._text(environment)
        return Job("failure" if self.failed else "success", outputs, where, self.log)

    def _run(self, step, number) -> dict[str, str]:
        output = self.machine.root / self.name / f"output-{number}"
        event = self.machine.root / self.name / "event.json"
        event.write_text(json.dumps(self.contexts["github"]["event"]))
        output.touch()
        own = {**self.document.get("env", {}), **self.machine.env}
        env = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("GITHUB_", "RUNNER_", "PYTHON"))},
            "PATH": f"{self.machine.tools}{os.pathsep}{os.environ['PATH']}",
            "GITHUB_EVENT_PATH": str(event),
            "GITHUB_EVENT_NAME": self.contexts["github"]["event_name"],
            "GITHUB_OUTPUT": str(output),
            "GITHUB_STEP_SUMMARY": str(self.machine.root / self.name / f"summary-{number}.md"),
            "GITHUB_REPOSITORY": fake_github.REPOSITORY,
            "GITHUB_ACTOR": "maintainer",
            "GITHUB_SERVER_URL": "https://github.com",
            "GITHUB_API_URL": self.machine.api,
            "GITHUB_RUN_ID": "30433642",
            "GITHUB_SHA": self.contexts["github"]["sha"],
            "RUNNER_TEMP": self.contexts["runner"]["temp"],
            "RUNNER_NAME": "mi300x-0",
            **{k: self._text(v) for k, v in {**own, **self.spec.get("env", {}), **step.get("env", {})}.items()},
        }
        assert "${{" not in step["run"]
        folder = self.workspace / step.get("working-directory", ".")

        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            cwd=folder, env=env, capture_output=True, text=True, timeout=700, check=False,
        )  # fmt: skip
        self.log += f"--- {step['name']}: status {done.returncode}\n{done.stdout}{done.stderr}\n"

        self.failed |= done.returncode != 0
        return dict(line.split("=", 1) for line in output.read_text().splitlines())

    def _use(self, step) -> None:
        action = step["uses"].partition("@")[0]
        given = {key: self._text(value) for key, value in step.get("with", {}).items()}
        act = {
            "actions/checkout": self._checkout,
            "actions/setup-python": lambda given: given.pop("python-version"),
            "actions/upload-artifact": self._upload,
            "actions/download-artifact": self._download,
            "actions/upload-pages-artifact": self._upload_pages,
            "actions/deploy-pages": lambda given: None,
        }[action]
        try:
            act(given)
        except (subprocess.CalledProcessError, FileNotFoundError) as error:
            self.log += f"--- {step['name']}: {error}\n"
            self.failed = True
        assert not given, f"{action} is given {given}, which these tests do not know"

    def _checkout(self, given):
        assert given.pop("persist-credentials") == "false"
        folder = self.workspace / given.pop("path", ".")
        ref, depth = given.pop("ref", self.contexts["github"]["sha"]), given.pop("fetch-depth", "1")
        folder.mkdir(parents=True, exist_ok=True)

        def git(*arguments):
            subprocess.run(["git", *arguments], cwd=folder, capture_output=True, check=True)

        git("init", "--quiet")
        git("remote", "add", "origin", self.machine.origin.as_uri())
        if depth == "0":
            git("fetch", "--quiet", "--tags", "origin", "+refs/heads/*:refs/remotes/origin/*")
        git("fetch", "--quiet", *([] if depth == "0" else ["--depth", depth]), "origin", ref)
        # A branch is checked out as one, anything else as a commit.
        is_commit = re.fullmatch(r"[0-9a-f]{40}", ref)
        git("checkout", "--quiet", *(["--detach"] if is_commit else ["-B", ref]), "FETCH_HEAD")

    def _upload(self, given):
        name, missing = given.pop("name"), given.pop("if-no-files-found")
        given.pop("retention-days")
        path = self.workspace / given.pop("path")
        found = [f for f in sorted(path.rglob("*")) if f.is_file()] if path.is_dir() else [path] * path.is_file()
        root = path if path.is_dir() else path.parent
        if not found:
            assert missing in ("error", "ignore")
            self.failed |= missing == "error"
            return
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for file in found:
                archive.write(file, file.relative_to(root))
        self.machine.artifacts[name] = packed.getvalue()

    def _download(self, given):
        assert given.pop("merge-multiple") == "true"
        pattern, folder = given.pop("pattern"), self.workspace / given.pop("path")
        folder.mkdir(parents=True, exist_ok=True)
        for name, packed in self.machine.artifacts.items():
            if fnmatch.fnmatchcase(name, pattern):
                zipfile.ZipFile(io.BytesIO(packed)).extractall(folder)

    def _upload_pages(self, given):
        folder = self.workspace / given.pop("path")
        self.machine.pages = {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}

    def _text(self, value) -> str:
        if isinstance(value, bool):
            return str(value).lower()
        return re.sub(r"\$\{\{(.*?)\}\}", lambda found: _shown(self._value(found[1])), str(value))

    def _holds(self, condition, good: bool) -> bool:
        self.good = good
        if condition is None:
            return good
        text = str(condition).strip().removeprefix("${{").removesuffix("}}")
        value = bool(self._value(text))
        return value if any(f"{name}()" in text for name in _STATUS) else value and good

    def _value(self, text):
        tokens = re.findall(r"'[^']*'|[\w.-]+(?:\(\))?|==|!=|&&|\|\||[!(),]", text)
        value = self._either(tokens)
        assert not tokens, f"cannot read the expression {text!r}"
        return value

    def _either(self, tokens):
        value = self._both(tokens)
        while tokens[:1] == ["||"]:
            tokens.pop(0)
            other = self._both(tokens)
            value = value or other
        return value

    def _both(self, tokens):
        value = self._equal(tokens)
        while tokens[:1] == ["&&"]:
            tokens.pop(0)
            other = self._equal(tokens)
            value = value and other
        return value

    def _equal(self, tokens):
        value = self._one(tokens)
        while tokens[:1] in (["=="], ["!="]):
            same = tokens.pop(0) == "=="
            value = (value == self._one(tokens)) == same
        return value

    def _one(self, words):  # noqa: PLR0911
        word = words.pop(0)
        if word == "!":
            return not self._one(words)
        if word == "(":
            value = self._either(words)
            assert words.pop(0) == ")"
            return value
        if word.startswith("'"):
            return word[1:-1]
        if word == "startsWith":
            assert words.pop(0) == "("
            value = self._either(words)
            assert words.pop(0) == ","
            start = self._either(words)
            assert words.pop(0) == ")"
            return value.startswith(start)
        if word.endswith("()"):
            return {"always": True, "cancelled": False, "success": self.good, "failure": not self.good}[word[:-2]]
        value = self.contexts
        for part in word.split("."):
            if part not in value and (
                "outputs" in word or word.startswith("github.event.")
            ):  # what is not there is empty
                return ""
            value = value[part]
        return value


def _list(value) -> list[str]:
    return [] if value is None else [value] if isinstance(value, str) else list(value)


def _shown(value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
