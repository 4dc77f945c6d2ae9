"""A machine without clang: said so with the line that installs it, with an exit code of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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
