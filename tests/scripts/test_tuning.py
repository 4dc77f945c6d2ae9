"""The scripts that time backward kernels and candidate tiles: on the CPU, where they say nothing about speed, they run."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SMALL = ["--heads", "2", "--kv-heads", "1", "--head-dim", "64", "--lengths", "32", "--rounds", "3"]


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / script), *arguments]
    environment = {**os.environ, "TILEGATE_TARGET": "cpu"}
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=280, env=environment)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["forward", "backward-keys", "backward-queries", "backward-fused"])
def test_candidates_are_timed_beside_the_policys_tile_and_a_control(kernel: str, tmp_path: Path) -> None:
    written = tmp_path / "tune.json"
    done = run("tune.py", kernel, *SMALL, "--tiles", "32x32/1/1", "512x512/1/1", "--json", str(written))
    assert done.returncode == 0, done.stderr
    assert "| control |" in done.stdout
    assert "512x512/1/1: left out" in done.stdout
    (table,) = json.loads(written.read_text())["tables"]
    assert set(table["seconds"]) == {"policy", "control", "32x32/1/1"}
    assert all(len(times) == 6 for times in table["seconds"].values())


def test_what_is_no_tile_is_refused() -> None:
    done = run("tune.py", "forward", "--tiles", "128")
    assert done.returncode == 2
    assert "'128' is no tile; one is spelled" in done.stderr


@pytest.mark.slow
def test_the_backward_pass_is_compared_with_torchs(tmp_path: Path) -> None:
    written = tmp_path / "peers.json"
    tile = "16x16/1/1:32x32/1/1"
    done = run("proof/compare_backward.py", *SMALL, "--tiles", tile, "--fused", "32x32/1/1", "--json", str(written))
    assert done.returncode == 0, done.stderr
    causal, full = json.loads(written.read_text())["tables"]
    for table in (causal, full):
        (row,) = table["rows"]
        assert {"tilekernels, adaptive", "tilekernels, fixed", tile, "atomics 32x32/1/1", "torch, flash"} == set(
            row["seconds"]
        )
        assert "torch, cuDNN" in row["missing"]
