"""A machine without clang: said so with the line that installs it, with an exit code of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tilegate.emulator import program

ROOT = Path(__file__).parents[3]


def test_no_clang_is_an_exit_code_of_its_own_with_the_line_that_installs_it(toy):
    done = subprocess.run(
        [sys.executable, "-m", "tilegate.cli", "emulate", "--repo", str(toy.path)],
        env={**os.environ, "PATH": "/nowhere", "PYTHONPATH": str(ROOT), "TILEGATE_HOST_COMPILER": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 5
    assert "apt-get install -y clang" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("breaks", "said"),
    [
        ("build", "apt-get install -y clang-19 llvm-19 g++"),
        ("templates", "pip install tilelang"),
        ("cache", "set XDG_CACHE_HOME"),
    ],
)
def test_what_else_is_missing_is_the_environment_too(emulate, clang, *, tmp_path, monkeypatch, breaks, said):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    if breaks == "build":  # a clang without C++ headers or a linker
        failed = subprocess.CompletedProcess([], 1, "", "machine.cpp:1:10: fatal error: 'cstdint' file not found")
        monkeypatch.setattr(program, "_call", lambda command: failed)
    elif breaks == "templates":
        monkeypatch.setattr(program.importlib.util, "find_spec", lambda name: None)
    else:
        (tmp_path / "cache").write_text("a file where the folder should be")
    status, out, err = emulate()
    assert (status, out) == (5, "")
    assert said in err
