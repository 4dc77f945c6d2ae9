"""docs/field-case.md, word by word, on a CPU."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "field-case.md"
COMMANDS = re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """The tracked files as they are, committed: a command that reads a revision finds them."""
    folder = tmp_path_factory.mktemp("field")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    identity = ["-c", "user.name=n", "-c", "user.email=n@example.org"]
    for command in (["init", "-q"], ["add", "-A"], [*identity, "commit", "-qm", "As it is"]):
        subprocess.run(["git", *command], cwd=folder, check=True)
    return folder


def run(command, clone):
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(clone),
    }
    done = subprocess.run(
        ["bash", "-ec", command], cwd=clone, env=environment, capture_output=True, text=True, timeout=1500, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


@pytest.mark.thorough
@pytest.mark.timeout(3600)
def test_the_page_word_by_word(clone):
    repro, environment, isa, broken, report = COMMANDS
    seen = run(repro, clone)
    assert len(re.findall(r"^length .* head/base \d\.\d+ \(", seen, re.MULTILINE)) == 3
    assert "| target | `cpu` |" in run(environment, clone)
    assert re.search(r"128x64 threads=512 q_in=registers +pass", run(isa, clone))
    said = run(broken, clone)
    assert "66,560 bytes of LDS, a workgroup has 65,536" in said
    assert "exit code 3" in said
    changed = subprocess.run(
        ["git", "status", "--porcelain", "tilekernels"], cwd=clone, capture_output=True, text=True, check=True
    )
    assert changed.stdout == ""
    run(report, clone)
    text = (clone / "field" / "issue" / "report.md").read_text()
    assert "| 256 |" in text
    assert "**Missing**: counters." in text


def test_the_numbers_are_those_of_the_stored_results():
    folder = ROOT / "docs" / "examples" / "h200-field"
    rows = json.loads((folder / "repro" / "results.json").read_text())["rows"]
    page = PAGE.read_text()
    for length in (1024, 4096, 16384, 32768):
        row = next(r for r in rows if int(r["length"]) == length)
        ratio, low, high = row["ratio"]
        shown = f"| {length:,} | {row['base_TFLOP/s']:.0f} | {row['head_TFLOP/s']:.0f} | {ratio:.3f} ({low:.3f} to {high:.3f}) |"
        assert shown in page
    for name, column in (("fixed", 0), ("adaptive", 1)):
        profile = json.loads((folder / f"profile-b4-s4096-{name}" / "profile.json").read_text())
        terms = profile["head"]["kernels"][0]["terms"]
        for label, term, form in (
            ("time", "time", "{:.1f} us"),
            ("matrix units busy", "matrix units", "{:.0f} %"),
            ("occupancy", "occupancy", "{:.0f} %"),
        ):
            cells = re.search(rf"^\| {label} \| (.*) \| (.*) \|$", page, re.MULTILINE)
            assert cells
            assert cells[column + 1] == form.format(terms[term]["value"])
