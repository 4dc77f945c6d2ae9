"""docs/protocol.md shows a suite: it must be one."""

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tilegate.config import load_config

DOCUMENT = (Path(__file__).parents[3] / "docs" / "protocol.md").read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", DOCUMENT, re.DOTALL)

LIBRARY = """
import numpy

def scale_kernel(length):
    return lambda values, out: numpy.multiply(values, FACTOR, out=out)

def scale_source(length):
    return f"out = {FACTOR} * values"
"""


@pytest.fixture
def project(tmp_path):
    """The document's suite on disk, for a library whose kernel multiplies by 2."""
    named = [(re.match(r"# (\S+\.py)\n", text), text) for language, text in BLOCKS if language == "python"]
    files = {match.group(1): text for match, text in named if match}
    assert set(files) == {"benchmarks/__init__.py", "benchmarks/scale.py"}
    for name, text in {**files, "mykernels.py": f"FACTOR = 2\n{LIBRARY}"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def run(project, code):
    root = Path(__file__).parents[3]
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=project,
        env={"PYTHONPATH": f"{project}:{root}", "TILEGATE_TARGET": "cpu", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_settings_are_valid():
    (settings,) = [text for language, text in BLOCKS if language == "toml"]
    config = load_config(settings)
    assert (config.package, config.suite) == ("mykernels", "benchmarks")


def test_asv_discovers_its_case_under_the_id_that_the_document_gives(project):
    done = run(
        project,
        """
        from asv_runner.discovery import disc_benchmarks
        for benchmark in disc_benchmarks("benchmarks"):
            print(f"{benchmark.name}({', '.join(benchmark.params[0])})", benchmark.type, benchmark.version)
        """,
    )
    assert done.stdout.split("\n")[:-1] == ["scale.Scale.latency_scale(10000) latency 1"], done.stderr
    assert "`scale.Scale.latency_scale(10000)`" in DOCUMENT


def test_the_case_checks_measures_and_describes_itself(project):
    (last,) = [text for language, text in BLOCKS if language == "python" and "clock_for" in text]
    code = (
        f"from benchmarks.scale import Scale\n{last}\ncase.check(10_000)\nprint(len(samples), case.artifacts(10_000))"
    )
    done = run(project, code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("20 [Artifact(name='scale', source='out = 2 * values'")


def test_its_check_fails_on_a_wrong_kernel(project):
    (project / "mykernels.py").write_text(f"FACTOR = 2.1\n{LIBRARY}")
    done = run(project, "from benchmarks.scale import Scale\ncase = Scale(); case.setup(10); case.check(10)")
    assert done.returncode != 0
    assert "WrongResult: out: largest error" in done.stderr
