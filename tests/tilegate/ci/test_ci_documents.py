"""docs/security.md names a test for each attack: they must be there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_every_test_that_the_page_names_exists():
    defined = set()
    for path in (ROOT / "tests" / "tilegate").rglob("test_*.py"):
        defined.update(re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE))
    named = re.findall(r"`(test_\w+…?)`", (ROOT / "docs" / "security.md").read_text())
    assert len(named) > 15
    for name in named:
        beginning = name.removesuffix("…")
        assert any(test.startswith(beginning) if name.endswith("…") else test == name for test in defined), name


def test_every_command_that_a_page_names_exists(capsys):
    import pytest

    from tilegate import cli

    for page in ("security.md", "runners.md", "setup.md"):
        for name in set(re.findall(r"tilegate ci (\w+)", (ROOT / "docs" / page).read_text())):
            with pytest.raises(SystemExit) as ended:
                cli.main(["ci", name, "--help"])
            assert ended.value.code == 0
            assert capsys.readouterr().out.startswith(f"usage: tilegate ci {name}")


def test_every_example_of_a_help_text_is_a_call_that_is_understood():
    import argparse
    import shlex

    from tilegate.ci import command

    parser = argparse.ArgumentParser()
    command.add_parser(parser.add_subparsers())
    texts = [command.DESCRIPTION.split("examples:")[1], *("\n".join(e) for _, _, e in command._HELP.values())]
    calls = []
    for line in "\n".join(texts).splitlines():
        call, _, _ = line.strip().replace("$(git rev-parse HEAD)", "abc").partition("    ")
        words = [word for word in shlex.split(call) if "=" not in word] if "tilegate" in call else []
        if words[:2] == ["tilegate", "ci"] and len(words) > 3 and "--help" not in words:
            parser.parse_args(words[1:])
            calls.append(words[2])
    assert set(calls) >= set(command._HELP) - {"scrub"}


def test_the_templates_ask_for_what_repeats_a_measurement():
    import yaml

    form = yaml.safe_load((ROOT / ".github" / "ISSUE_TEMPLATE" / "performance.yml").read_text())
    asked = {part["id"]: part for part in form["body"] if "id" in part}
    assert {"case", "base", "head", "environment", "verdict", "samples"} <= set(asked)
    for name in ("case", "base", "head", "environment", "verdict", "samples"):
        assert asked[name]["validations"]["required"] is True
    assert "tilegate doctor --json" in asked["environment"]["attributes"]["description"]
    assert "samples.json" in (ROOT / ".github" / "PULL_REQUEST_TEMPLATE.md").read_text()
