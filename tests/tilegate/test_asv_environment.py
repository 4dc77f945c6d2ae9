"""asv over real commits of a small repository: each commit measures its own package, in this interpreter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest
from asv import util
from asv.environment import EnvironmentUnavailable

from tilegate import asv_environment

REPOSITORY = Path(__file__).parents[2]

CONFIGURATION = {
    "version": 1,
    "project": "library",
    "repo": ".",
    "branches": ["main"],
    "environment_type": "shared",
    "plugins": [".tilegate.asv_environment"],
    "env_dir": ".asv/env",
    "results_dir": ".asv/results",
    "html_dir": ".asv/html",
}

SUITE = """
import os, sys
import library
from tilegate.protocol import listing, register, verify_origin
register()
verify_origin(library)
MAIN = os.getpid()


class Facts:
    version = "1"
    params = ["number", "interpreter", "forked", "listing"]
    param_names = ["fact, as listed" if listing() else "fact, as run"]

    def track_fact(self, fact):
        if fact == "number":
            return library.NUMBER
        if fact == "interpreter":
            return float(sys.executable == os.environ["EXPECTED_INTERPRETER"])
        if fact == "listing":
            return float(listing())
        return float(os.getpid() != MAIN)


class Launches:
    version = "1"
    warmup_time = 0.0
    min_samples = max_samples = 4

    def latency_launch(self):
        pass
"""


@pytest.fixture
def asv(tmp_path):
    """A repository whose main holds three commits: without the library, with NUMBER 1, with NUMBER 2."""
    project = tmp_path / "project"
    (project / "benchmarks").mkdir(parents=True)
    (project / "benchmarks" / "__init__.py").write_text("")
    (project / "benchmarks" / "facts.py").write_text(SUITE)
    (project / "asv.conf.json").write_text(json.dumps(CONFIGURATION))
    (project / "tilegate").symlink_to(REPOSITORY / "tilegate")
    (project / ".gitignore").write_text(".asv/\ntilegate\n")
    # An installed copy: what every commit would measure if its own did not come first.
    installed = tmp_path / "installed" / "library"
    installed.mkdir(parents=True)
    (installed / "__init__.py").write_text("NUMBER = 99\n")
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "TILEGATE_", "ASV"))},
        "HOME": str(tmp_path),
        "PYTHONPATH": str(installed.parent),
        "TILEGATE_TARGET": "cpu",
        "EXPECTED_INTERPRETER": sys.executable,
        "GIT_CONFIG_GLOBAL": os.devnull,
    }

    def run(*command: str, fails: bool = False) -> str:
        process = subprocess.run(
            command, cwd=project, env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert (process.returncode != 0) == fails, process.stdout + process.stderr
        return process.stdout

    def git(*command: str) -> str:
        return run("git", "-c", "user.name=n", "-c", "user.email=e@example.org", *command)

    git("init", "-q", "-b", "main")
    git("add", "-A")
    git("commit", "-q", "-m", "without the library")
    for number in (1, 2):
        package = project / "library"
        package.mkdir(exist_ok=True)
        (package / "__init__.py").write_text(f"NUMBER = {number}\n")
        git("add", "-A")
        git("commit", "-q", "-m", str(number))
    # Uncommitted: no commit may measure it.
    (project / "library" / "__init__.py").write_text("NUMBER = 77\n")

    def start(*arguments: str, fails: bool = False) -> str:
        return run(sys.executable, "-m", "asv", *arguments, fails=fails)

    start("machine", "--yes", "--machine", "here")
    start.project = project
    start.commit = lambda revision: git("rev-parse", "--short=8", revision).strip()
    return start


def _results(asv) -> dict[str, dict]:
    """Return the results files by commit."""
    found = {}
    for file in sorted((asv.project / ".asv" / "results" / "here").glob("*-shared-*.json")):
        stored = json.loads(file.read_text())
        found[stored["commit_hash"][:8]] = stored
    return found


def _facts(stored: dict) -> list[float]:
    return stored["results"]["facts.Facts.track_fact"][0]


def test_every_commit_measures_its_own_package_in_this_interpreter(asv):
    asv("run", "main~2..main", "--record-samples")
    results = _results(asv)
    assert _facts(results[asv.commit("main~1")]) == [1, 1, 1, 0]
    assert _facts(results[asv.commit("main")]) == [2, 1, 1, 0]
    listed = json.loads((asv.project / ".asv" / "results" / "benchmarks.json").read_text())
    assert listed["facts.Facts.track_fact"]["param_names"] == ["fact, as listed"]

    launch = dict(
        zip(
            results[asv.commit("main")]["result_columns"],
            results[asv.commit("main")]["results"]["facts.Launches.latency_launch"],
            strict=False,
        )
    )
    assert len(launch["samples"][0]) == 4

    # What a time depends on beside the commit is part of the result: a new toolchain starts a new series.
    parameters = results[asv.commit("main")]["params"]
    assert parameters["target"] == "cpu"
    assert {"torch", "tilelang"} <= set(parameters)

    asv("publish")
    index = json.loads((asv.project / ".asv" / "html" / "index.json").read_text())
    assert index["benchmarks"]["facts.Launches.latency_launch"]["unit"] == "seconds"
    graph = asv.project / ".asv" / "html" / "graphs" / "summary" / "facts.Launches.latency_launch.json"
    assert len(json.loads(graph.read_text())) == 2
    assert "facts.Launches.latency_launch" in asv("show", "main")


def test_a_commit_without_the_package_does_not_measure_an_installed_one(asv):
    output = asv("run", "main~2^!", "--show-stderr", fails=True)
    assert "WrongTreeError: library was imported from" in output
    stored = _results(asv)[asv.commit("main~2")]["results"]
    assert {name: row[0] for name, row in stored.items()} == {
        "facts.Facts.track_fact": None,
        "facts.Launches.latency_launch": None,
    }


def test_another_python_is_refused(asv):
    configuration = asv.project / "asv.conf.json"
    configuration.write_text(json.dumps({**CONFIGURATION, "pythons": ["2.7"]}))
    output = asv("run", "main^!", fails=True)
    assert 'environment type "shared" is the Python' in output
    assert "not 2.7" in output


@pytest.mark.parametrize(
    ("target", "facts", "message"),
    [
        ("hip", {"torch": "2.x", "cuda": "12", "rocm": None, "devices": [{}], "error": None}, "sees no ROCM device"),
        ("rocm", {}, "cpu, cuda, hip"),
    ],
)
def test_a_target_that_is_not_here_is_refused(monkeypatch, target, facts, message):
    monkeypatch.setattr("tilegate.measuring.environment.probe_torch", lambda: facts)
    with pytest.raises(EnvironmentUnavailable, match=message):
        asv_environment._surroundings(target)


@pytest.mark.parametrize(
    ("variable", "facts", "target"),
    [
        ("hip", None, "hip"),
        ("auto", {"devices": [], "rocm": None}, "cpu"),
        ("", {"devices": [{}], "rocm": "6.2"}, "hip"),
        ("auto", {"devices": [{}], "rocm": None}, "cuda"),
    ],
)
def test_the_target_is_found_without_opening_the_gpu(monkeypatch, variable, facts, target):
    monkeypatch.setenv("TILEGATE_TARGET", variable)
    monkeypatch.setattr(asv_environment, "probe_torch", lambda: facts)
    assert asv_environment._target() == target


@pytest.mark.parametrize(("poisons", "status"), [(False, 0), (True, 1)])
def test_the_probe_tells_whether_a_forked_process_can_use_the_gpu(tmp_path, poisons, status):
    suite = tmp_path / "benchmarks"
    suite.mkdir()
    (suite / "__init__.py").write_text("")
    (suite / "kernels.py").write_text("import torch\n" + ("torch.start()\n" if poisons else ""))
    (tmp_path / "torch.py").write_text(
        "import os\nstarted = None\n"
        "def start():\n    global started\n    started = os.getpid()\n"
        "def zeros(n, device):\n    if started not in (None, os.getpid()): raise SystemExit(1)\n    os._exit(0)\n"
    )
    process = subprocess.run(
        [sys.executable, "-c", asv_environment._FORK_PROBE, str(suite)],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        check=False,
    )
    assert process.returncode == status, process.stderr


@pytest.mark.parametrize(("fails", "method"), [(False, "forkserver"), (True, "spawn")])
def test_a_gpu_that_does_not_survive_a_fork_gets_a_process_a_case(monkeypatch, fails, method):
    def run(self: object, arguments: list[str], **options: object) -> None:
        if fails:
            raise util.ProcessError(arguments, 1, "", "")

    monkeypatch.setattr(asv_environment.SharedEnvironment, "run", run)
    environment = object.__new__(asv_environment.SharedEnvironment)
    environment._target = "cuda"
    environment._conf = types.SimpleNamespace(benchmark_dir="benchmarks")
    assert environment._launch_method() == method


def test_the_configured_project_is_the_package_that_the_gate_measures():
    tomllib = pytest.importorskip("tomllib")
    gate = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["tilegate"]
    lines = (REPOSITORY / "asv.conf.json").read_text().splitlines()
    asv_conf = json.loads("\n".join(line for line in lines if not line.lstrip().startswith("//")))
    assert asv_conf["project"] == gate["package"]
    assert asv_conf["benchmark_dir"] == gate["suite"]
    assert asv_conf["environment_type"] == "shared"
