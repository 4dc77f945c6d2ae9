"""A temporary git repository that holds the toy library and its suite, for tests of the gate."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import tilegate
from tilegate import cli, files

TOY = Path(__file__).parent / "toy"
KERNELS = "toykernels/kernels.py"
VIRTUAL_TIME = Path(__file__).parent / "virtual_time"

# The command with what the tests replace in their own process, so that both describe the same environment.
_COMMAND = """
import sys
from tilegate import cli
from tilegate.measuring import environment
environment.probe_torch = lambda: {facts!r}
sys.exit(cli.main(sys.argv[1:]))
"""
NO_TORCH = {"torch": None, "cuda": None, "rocm": None, "devices": [], "error": None}


@dataclass(frozen=True)
class Outcome:
    """What a run of the gate gave."""

    status: int
    out: str
    err: str

    @property
    def verdict(self) -> dict:
        return json.loads(self.out)

    def case(self, name: str) -> dict:
        return self.verdict["cases"][name]


@dataclass(frozen=True)
class ToyRepository:
    """The repository; the toy as it is in the sources is committed as `base`."""

    path: Path

    def git(self, *arguments: str) -> str:
        identity = ("-c", "user.name=Toy", "-c", "user.email=toy@example.invalid")
        done = subprocess.run(
            ["git", *identity, *arguments], cwd=self.path, capture_output=True, text=True, check=True, timeout=30
        )
        return done.stdout.strip()

    def write(self, path: str, text: str) -> None:
        (self.path / path).parent.mkdir(parents=True, exist_ok=True)
        (self.path / path).write_text(text)

    def replace(self, path: str, pattern: str, text: str) -> None:
        """Replace what `pattern` matches, which must occur."""
        before = (self.path / path).read_text()
        after, count = re.subn(pattern, lambda _: text, before, flags=re.MULTILINE)
        assert count, f"{pattern} is not in {path}"
        (self.path / path).write_text(after)

    def commit(self, message: str) -> str:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")

    def config(self, **values: object) -> None:
        """Set values in [tool.tilegate] and make that the base."""
        for key, value in values.items():
            text = (self.path / "pyproject.toml").read_text()
            kept = [line for line in text.splitlines() if not line.startswith(f"{key} = ")]
            self.write("pyproject.toml", "\n".join([*kept, f"{key} = {json.dumps(value)}", ""]))
        self.commit("Configure")
        self.git("tag", "--force", "base")

    def arguments(self, *arguments: str) -> list[str]:
        return ["gate", "--repo", str(self.path), "--target", "cpu", "--json", *arguments]

    def gate(self, base: str, head: str, *arguments: str) -> Outcome:
        """Run the gate in this process."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = cli.main(self.arguments("--base", base, "--head", head, *arguments))
        return Outcome(status, out.getvalue(), err.getvalue())

    def start(self, base: str, head: str, *arguments: str) -> subprocess.Popen:
        """Start the gate in a process of its own."""
        return subprocess.Popen(
            [
                *(sys.executable, "-c", _COMMAND.format(facts=NO_TORCH)),
                *self.arguments("--base", base, "--head", head, *arguments),
            ],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(VIRTUAL_TIME), str(Path(tilegate.__file__).parents[1])]),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def samples(self) -> dict:
        """Return the samples of the only run so far, checked against their schema."""
        (file,) = self.path.glob(".tilegate/*/samples.json")
        return files.load_samples(file)


def make(path: Path) -> ToyRepository:
    shutil.copytree(TOY, path, ignore=shutil.ignore_patterns("__pycache__"))
    repository = ToyRepository(path)
    repository.git("init", "--quiet", "--initial-branch", "main")
    repository.commit("Base")
    repository.git("tag", "base")
    return repository
