"""Heads that only look fast, and honest ones that look suspicious: tests/tilegate/fooling holds both."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path

import pytest
import toy_repository

from tilegate.measuring import environment

FOLDER = Path(__file__).parents[1] / "fooling"
CASE = "attention.Attention.latency_attention(96, True)"
QUICK = (
    "skips what it has seen, by address",
    "works in a thread, and waits where the buffers are new",
    "patches the clock",
    "right at the lengths of the suite alone",
    "ten times as fast, by a library's matrix product",
    "works in two threads, and waits for both",
)


def heads(file: str) -> list:
    listed = tomllib.loads((FOLDER / file).read_text())["head"]
    assert len({head["name"] for head in listed}) == len(listed)
    quick = [[] if head["name"] in QUICK else [pytest.mark.thorough] for head in listed]
    return [pytest.param(head, id=head["name"], marks=marks) for head, marks in zip(listed, quick, strict=True)]


@pytest.fixture
def library(tmp_path, monkeypatch):
    """The library in a repository, measured in real time: what hides from the clock must be seen by a clock."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "run").mkdir()
    monkeypatch.setenv("TILEGATE_LOCKS", str(tmp_path / "run"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # one head keeps a file there
    monkeypatch.setattr(environment, "probe_torch", lambda: toy_repository.NO_TORCH)
    shutil.copytree(FOLDER / "library", tmp_path / "library", ignore=shutil.ignore_patterns("__pycache__"))
    made = toy_repository.ToyRepository(tmp_path / "library")
    made.git("init", "--quiet", "--initial-branch", "main")
    made.commit("Base")
    made.git("tag", "base")
    return made


def gate(library, code: str, *options: str) -> toy_repository.Outcome:
    file = "mykernels/kernels.py"
    library.write(file, f"{(library.path / file).read_text()}\n\n{code}")
    library.commit("Change")
    return library.gate("base", "HEAD", *(options or ("-b", r"96, True")))


@pytest.mark.parametrize("head", heads("fooling.toml"))
def test_a_head_that_only_looks_fast_is_broken(library, head):
    outcome = gate(library, head["code"])
    entry = outcome.case(CASE)
    assert outcome.status == 3, entry
    assert entry["verdict"] == "broken"
    assert entry["failure"]["side"] == "head"
    assert entry["failure"]["kind"] in head["caught"], entry["failure"]


@pytest.mark.parametrize("head", heads("honest.toml"))
def test_an_honest_head_is_never_called_broken(library, head):
    outcome = gate(library, head["code"])
    entry = outcome.case(CASE)
    assert outcome.status != 3, entry
    assert entry["failure"] is None, entry


def test_a_kernel_that_no_case_times_is_wrong_at_lengths_that_no_case_has(library):
    code = """
def launch(self, q, k, v, out):
    if self.causal is None and len(k) % 2:
        k = k[:-1]
        v = v[:-1]
    if len(k):
        attend(q, k, v, out, self.causal)
Kernel.launch = launch
"""
    outcome = gate(library, code, "--budget", "0.01")  # it is found before anything is timed
    entry = outcome.case("attention.Attention.latency_attention(96, None)")
    assert outcome.status == 3, outcome.err
    assert (entry["verdict"], entry["failure"]["kind"]) == ("broken", "wrong-result")
    assert "on a problem that no case has" in entry["failure"]["message"]
    assert [name for name, found in outcome.verdict["cases"].items() if found["verdict"] == "broken"] == [
        "attention.Attention.latency_attention(96, None)"
    ]


def test_there_are_enough_of_both():
    assert len(heads("fooling.toml")) >= 40
    assert len(heads("honest.toml")) >= 20
