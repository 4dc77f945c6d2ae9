"""The pages for people: links lead somewhere, and the commands that they name exist."""

import importlib
import re
import subprocess
from pathlib import Path

import pytest

from tilegate import cli

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


@every_page
def test_links_within_the_repository_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


@every_page
def test_make_targets_exist(page):
    shown = subprocess.run(["make", "-C", str(ROOT), "help"], capture_output=True, text=True, check=True).stdout
    known = set(re.findall(r"^ *make (\w+)", shown, re.MULTILINE))
    code = "\n".join(re.findall(r"```.*?```|`[^`\n]+`", page.read_text(), re.DOTALL))
    named = {word for call in re.findall(r"\bmake ((?:[a-z]+ ?)+)", code) for word in call.split()}
    assert named <= known


@every_page
def test_tilegate_commands_exist(page):
    code = "\n".join(re.findall(r"```.*?```|`[^`\n]+`", page.read_text(), re.DOTALL))
    assert set(re.findall(r"(?:^|bin/|[` ])tilegate (?!import )([a-z]+)", code, re.MULTILINE)) <= set(cli._COMMANDS)


def test_every_name_of_the_glossary_exists():
    rows = re.findall(r"^\|.*\| `([\w.]+)` \|$", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)
    assert len(rows) > 30
    for name in rows:
        module, _, attribute = f"tilegate.{name}".rpartition(".")
        assert hasattr(importlib.import_module(module), attribute), name
