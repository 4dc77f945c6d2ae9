"""The scripts behind docs/history-proof.md, small: they run, and what they print is what the page has columns for."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("script", "arguments", "said"),
    [
        ("history_network.py", ["--histories", "4"], "| intervals of 95 % that hold the truth |"),
        ("change_points.py", ["--series", "2"], "| rank CUSUM (`detect.py`) |"),
        ("history_size.py", ["size", "--days", "3", "--cases", "8", "--changed", "2", "--nightly", "4"], "git branch"),
        ("history_size.py", ["speed", "--commits", "400", "--cases", "4"], "4 cases"),
    ],
)
def test_a_script_prints_its_figures(script, arguments, said):
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "proof" / script, *arguments],
        capture_output=True, text=True, check=False, timeout=250, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert said in done.stdout
