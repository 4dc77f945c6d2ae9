"""The table of planted faults, made with few of them."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from tilegate import emulator

ID = "forward bfloat16 d64 causal 64x32 threads=256 q_in=registers"
SCRIPT = str(Path(__file__).parents[2] / "scripts/proof/emulator_mutations.py")
SOURCE = """void kernel() {
  float a[4];
  a[0] = 0.000000e+00f;
  __syncthreads();
  if (i < seqlen_k) {
    x = (((t) & 1) * 32) + 1;
  }
}
"""


def test_each_place_is_broken_once_and_alone():
    made = list(runpy.run_path(SCRIPT)["mutants"](SOURCE))
    assert [(sort, line) for sort, line, _ in made] == [
        ("a barrier dropped", 4),
        ("a bound shifted by one", 5),
        ("a clear removed", 3),
        ("a bit of a swizzle lost", 6),
    ]
    for _, line, text in made:
        pairs = zip(SOURCE.splitlines(), text.splitlines(), strict=True)
        assert [n for n, (old, new) in enumerate(pairs, 1) if old != new] == [line]


@pytest.mark.thorough
def test_a_fault_of_each_sort_is_tried(capsys):
    try:
        emulator.toolchain()
    except emulator.ToolchainMissing as error:
        pytest.skip(str(error))
    runpy.run_path(SCRIPT)["main"](["--only", f"^{ID}$", "--most", "1"])
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in capsys.readouterr().out.splitlines()
        if line.startswith("| a ")
    ]
    assert [row[0] for row in rows] == [
        "a barrier dropped",
        "a bound shifted by one",
        "a clear removed",
        "a bit of a swizzle lost",
    ]
    assert all(int(row[1]) == int(row[2]) + int(row[3]) for row in rows)
    assert sum(int(row[2]) for row in rows) > 0
