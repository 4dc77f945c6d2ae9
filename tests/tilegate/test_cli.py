"""The command line: teaches, starts fast, and turns errors into exit codes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tilegate
from tilegate import cli
from tilegate.files import UsageError


def test_version_and_help(capsys):
    for arguments, shown in ((["--version"], tilegate.__version__), (["--help"], "tilegate gate --base main")):
        with pytest.raises(SystemExit) as ended:
            cli.main(arguments)
        assert ended.value.code == 0
        assert shown in capsys.readouterr().out


@pytest.mark.parametrize("command", ["gate", "judge", "doctor", "isa"])
def test_every_command_has_help_and_is_listed(command, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main([command, "--help"])
    assert ended.value.code == 0
    assert f"usage: tilegate {command}" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    assert f"\n    {command} " in capsys.readouterr().out


def test_the_gates_help_has_examples_and_exit_codes(capsys):
    with pytest.raises(SystemExit):
        cli.main(["gate", "--help"])
    shown = capsys.readouterr().out
    assert "tilegate gate --base HEAD --head WORKTREE" in shown
    assert "0 pass, 1 regressed, 2 usage error, 3 broken, 4 inconclusive, 5 environment invalid" in shown


@pytest.mark.parametrize("arguments", [[], ["gat"], ["gate"], ["gate", "--base", "a"], ["gate", "--target", "tpu"]])
def test_bad_arguments_are_usage_errors(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2
    assert "usage: tilegate" in capsys.readouterr().err


def test_errors_become_exit_codes(monkeypatch, tmp_path, capsys):
    arguments = ["gate", "--base", "a", "--head", "b", "--repo", str(tmp_path)]
    assert cli.main(arguments) == 2
    assert capsys.readouterr().err.startswith("tilegate: ")

    def raising(error):
        def run(args):
            raise error

        return run

    for error, status in ((UsageError("no"), 2), (KeyboardInterrupt(), 130)):
        monkeypatch.setattr("tilegate.gate.run", raising(error))
        assert cli.main(arguments) == status


def test_starting_imports_nothing_heavy():
    code = (
        "import contextlib, sys\nfrom tilegate import cli\n"
        "with contextlib.suppress(SystemExit): cli.main(['--help'])\n"
        "heavy = {'torch', 'tilelang', 'numpy', 'scipy', 'rich', 'jsonschema', 'asv_runner'}\n"
        "print(sorted(heavy & {name.partition('.')[0] for name in sys.modules}))"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(tilegate.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60, env=environment
    )
    assert done.stdout.splitlines()[-1] == "[]"
