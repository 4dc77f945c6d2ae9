"""Every script starts where and as the documentation calls it: `benchmarks`, for one, is not installed."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
IMPORT_EACH = """
import os, runpy, sys
for script in sys.argv[1:]:
    found_by = [*sys.path]
    sys.path.insert(0, os.path.dirname(script))  # as when it is called
    runpy.run_path(script)
    sys.path[:] = found_by
    for name in [name for name in sys.modules if name.partition(".")[0] in ("benchmarks", "demo")]:
        del sys.modules[name]
"""


def test_every_script_finds_what_it_imports(tmp_path: Path) -> None:
    scripts = [*map(str, sorted((ROOT / "scripts").rglob("*.py")))]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_EACH, *scripts],
        check=False,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
