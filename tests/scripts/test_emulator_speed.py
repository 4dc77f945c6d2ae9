"""The tables of what the emulator costs, measured on little."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from benchmarks import kernels
from tilegate import emulator

ID = "forward bfloat16 d64 causal 64x32 threads=256 q_in=registers"


@pytest.mark.thorough
def test_every_line_of_the_tables_is_measured(monkeypatch, capsys):
    try:
        emulator.toolchain()
    except emulator.ToolchainMissing as error:
        pytest.skip(str(error))
    script = runpy.run_path(str(Path(__file__).parents[2] / "scripts/proof/emulator_speed.py"))
    monkeypatch.setattr(kernels, "configurations", lambda arch: {ID: []})
    monkeypatch.setitem(script["main"].__globals__, "HEADS", ("bfloat16 d64 causal 64x32",))
    monkeypatch.setitem(script["main"].__globals__, "ROWS", (65,))
    monkeypatch.setenv("XDG_CACHE_HOME", "")  # to be put back: the script sets it
    script["main"]()
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    assert rows[0].startswith("| 2 shipped kernels for gfx942 and gfx90a")
    numbers = [float(cell) for row in (*rows[1:5], rows[6]) for cell in row.split("|")[2:-1] if cell.strip() != "65"]
    assert len(numbers) == 4 + 3
    assert all(number > 0 for number in numbers)
