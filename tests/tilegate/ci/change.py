"""A small library with a suite, and one change of it: commits, samples and compiled kernels as an honest run makes them."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import sample_builder
from toy_repository import ToyRepository

from tilegate.ci.checks import Expected

PACKAGE, SUITE, WORKFLOW = "mykernels/kernel.py", "benchmarks/scale.py", ".github/workflows/bench-pr.yml"
SPEED = "SPEED = 2\n"
CASE = "scale.Scale.latency_scale('a')"
EXPECTED = Expected("hip", "pr", "gfx942", "mi300x", datetime.date(2026, 1, 10), lambda: (CASE,))
_PYPROJECT = '[tool.tilegate]\npackage = "mykernels"\nsuite = "benchmarks"\n'
ENVIRONMENT = {
    "target": "hip",
    "machine": {"cpu": "a CPU"},
    "device": {"name": "AMD Instinct MI300X", "arch": "gfx942"},
    "versions": {"torch": "2.10"},
    "fingerprint": "f" * 64,
}
_TOOLCHAIN = {
    "arch": "gfx942",
    "compiler": "clang 19",
    "options": [],
    "headers": "0" * 64,
    "tilelang": "0.1.15",
    "device_libraries": None,
    "fingerprint": "f" * 64,
}


@dataclass(frozen=True)
class Project(ToyRepository):
    """The repository; `main` is checked out in it."""

    def change(
        self, path: str = PACKAGE, text: str = SPEED, *, also: Mapping[str, str] | None = None, branch: str = "topic"
    ) -> str:
        """Commit a change of a file, and of others, on a branch off main; return its hash. main stays checked out."""
        self.git("switch", "--quiet", "--create", branch, "main")
        for changed, content in {path: text, **(also or {})}.items():
            self.write(changed, content)
        head = self.commit("Change")
        self.git("switch", "--quiet", "main")
        return head

    def revision(self, rev: str) -> dict:
        return {
            "rev": rev,
            "commit": self.git("rev-parse", rev),
            "tree": self.git("rev-parse", f"{rev}^{{tree}}"),
        }

    def samples(self, head: str, *, base: str = "main", cases: dict | None = None, target: str = "hip", **more) -> dict:
        """Return the samples of `head` against `base`."""
        document = sample_builder.document(cases or {CASE: sample_builder.case(0.0)}, target=target)
        document["environment"] = ENVIRONMENT
        return document | {"base": self.revision(base), "head": self.revision(head), **more}

    def survey(self, rev: str, identity: str = "a", *, problems: list | None = None) -> dict:
        """Return what `tilegate isa` says of a revision with one kernel."""
        kernel = {"cases": [CASE], "arch": "gfx942", "figures": None, "problems": problems or [], "identity": identity}
        return {
            "schema": "tilegate-isa/1",
            "tilegate": "0.1.0",
            "created": "2026-01-10T14:50:00Z",
            "revision": self.revision(rev),
            "toolchains": {"gfx942": _TOOLCHAIN},
            "kernels": {"gfx942": {"scale 128x64": kernel}},
        }

    def plan(self, head: str, *, base: str = "main", measure: bool = True, identities=("a", "b"), **more) -> dict:
        """Return the plan of `head` against `base`."""
        sides = {"base": base, "head": head}
        commits = {side: {k: v for k, v in self.revision(rev).items() if k != "rev"} for side, rev in sides.items()}
        surveys = {side: self.survey(rev, i) for (side, rev), i in zip(sides.items(), identities, strict=True)}
        plan = {"schema": "tilegate-plan/1", "tilegate": "0.1.0", **commits, "measure": measure, "reason": "…"}
        return {**plan, "changed": [CASE], "isa": surveys, "isa_missing": None, **more}


def packed(document: object) -> bytes:
    return json.dumps(document).encode()


def make(path: Path) -> Project:
    path.mkdir()
    project = Project(path)
    project.git("init", "--quiet", "--initial-branch", "main")
    project.write("pyproject.toml", _PYPROJECT)
    project.write("mykernels/__init__.py", "")
    project.write(PACKAGE, "SPEED = 1\n")
    project.write("benchmarks/__init__.py", "")
    project.write("benchmarks/kernels.py", "")
    project.write(SUITE, "class Scale:\n    params = ['a']\n\n    def latency_scale(self, name):\n        pass\n")
    project.write(WORKFLOW, "name: bench-pr\non: pull_request\n")
    project.commit("Base")
    return project
