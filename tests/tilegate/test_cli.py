"""The command line: teaches, starts fast, and turns errors into exit codes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from sample_builder import case, document

import tilegate
from tilegate import cli, files
from tilegate.files import UsageError


def test_version_and_help(capsys):
    for arguments, shown in ((["--version"], tilegate.__version__), (["--help"], "tilegate gate --base main")):
        with pytest.raises(SystemExit) as ended:
            cli.main(arguments)
        assert ended.value.code == 0
        assert shown in capsys.readouterr().out


@pytest.mark.parametrize("command", ["gate", "judge", "doctor", "isa", "emulate"])
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

    # Anything unforeseen must not end as Python's 1, which means "regressed".
    for error, status in ((UsageError("no"), 2), (KeyboardInterrupt(), 130), (OSError("full"), 70), (KeyError(), 70)):
        monkeypatch.setattr("tilegate.commands.gate.run", raising(error))
        assert cli.main(arguments) == status
    said = capsys.readouterr().err
    assert "interrupted" in said
    assert "stopped without a verdict: full" in said


@pytest.mark.parametrize("as_json", [False, True])
def test_a_verdict_that_cannot_be_written_is_no_verdict(tmp_path, as_json):
    files.write_json(tmp_path / "samples.json", document({"a": case()}))
    with Path("/dev/full").open("w") as full:
        judged = _judge(tmp_path / "samples.json", *["--json"] * as_json, stdout=full)
    assert (judged.returncode, "No space left" in judged.stderr) == (70, True)


def test_a_terminal_that_knows_ascii_only_gets_the_verdict(tmp_path):
    samples = document({"a": case()})
    samples["head"]["rev"] = "müsli"
    files.write_json(tmp_path / "samples.json", samples)
    judged = _judge(tmp_path / "samples.json", stdout=subprocess.PIPE, PYTHONIOENCODING="ascii")
    assert judged.returncode == 0, judged.stderr
    assert "PASS" in judged.stdout


def _judge(*arguments, stdout, **variables):
    environment = {**os.environ, "PYTHONPATH": str(Path(tilegate.__file__).parents[1]), **variables}
    command = [sys.executable, "-m", "tilegate.cli", "judge", *map(str, arguments)]
    return subprocess.run(
        command, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False, timeout=60, env=environment
    )


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


def test_the_package_is_a_command_too():
    done = subprocess.run(
        [sys.executable, "-m", "tilegate", "--version"],
        capture_output=True,
        text=True,
        check=True,
        cwd="/",
        env=os.environ | {"PYTHONPATH": str(Path(tilegate.__file__).parents[1])},
    )
    assert tilegate.__version__ in done.stdout
