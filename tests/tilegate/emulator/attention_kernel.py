"""The library's forward kernel as it was generated once (tests/data/emulator), to be edited; and how to run and check it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from benchmarks import reference
from tilegate import emulator
from tilegate.emulator import Finding, Limits, Run
from tilegate.protocol import WrongResult

DATA = Path(__file__).parents[2] / "data" / "emulator"
NAME = "attention_forward_kernel"
HEAD_DIM = 128
GRID = ["heads", "(seqlen_q + 63) // 64", "batch"]
LDS = {"gfx942": 16384, "gfx90a": 16384, "gfx950": 34816}
LIMITS = Limits(seconds=120)
SHAPE = (1, 2, 1, 67, 193)  # batch, heads, kv heads, rows, keys: a last tile of three rows, one of one key


@dataclass(frozen=True)
class Outcome:
    """What came of a kernel: the run, and what the comparison with the reference says (None: right)."""

    run: Run
    wrong: str | None

    @property
    def kinds(self) -> set[str]:
        """Kinds of findings, with "wrong-result" for a result out of tolerance."""
        found = {finding.kind for finding in self.run.findings}
        return found | {"wrong-result"} if self.wrong else found

    def of(self, kind: str) -> Finding:
        return next(finding for finding in self.run.findings if finding.kind == kind)


def text(arch: str = "gfx942") -> str:
    """fp16, head dimension 128, causal, 64 x 64 tiles, 256 work-items."""
    return (DATA / f"forward-{arch}.hip").read_text(encoding="utf-8")


def problem(shape: tuple[int, int, int, int, int] = SHAPE) -> tuple[torch.Tensor, ...]:
    """Q, K, V of a shape, and O and LSE full of NaN."""
    batch, heads, kv_heads, rows, keys = shape
    random = torch.Generator().manual_seed(rows * 1000 + keys)
    q, k, v = (
        torch.randn(batch, length, count, HEAD_DIM, generator=random).half()
        for length, count in ((rows, heads), (keys, kv_heads), (keys, kv_heads))
    )
    return q, k, v, torch.full_like(q, math.nan), torch.full((batch, heads, rows), math.nan)


def arguments(shape: tuple[int, int, int, int, int], tensors: tuple[torch.Tensor, ...] | None = None) -> dict[str, Any]:
    """What the kernel is called with; arrays share the tensors' memory."""
    return {
        **{name: x.numpy() for name, x in zip(("Q", "K", "V", "O", "LSE"), tensors or problem(shape), strict=True)},
        **dict(zip(("batch", "heads", "kv_heads", "seqlen_q", "seqlen_k"), shape, strict=True)),
        "softmax_scale": HEAD_DIM**-0.5,
    }


def execute(
    source: str,
    *,
    arch: str = "gfx942",
    shape: tuple[int, int, int, int, int] = SHAPE,
    traced: bool = True,
    shared_bytes: int | None = None,
    schedule: emulator.Schedule = emulator.SCHEDULES[0],
    limits: Limits = LIMITS,
    runner: Path | None = None,
) -> Outcome:
    q, k, v, out, lse = tensors = problem(shape)
    values = arguments(shape, tensors)
    size = LDS[arch] if shared_bytes is None else shared_bytes
    program = emulator.compile_kernel(source, NAME, arch=arch, shared_bytes=size, traced=traced)
    if runner is not None:
        program = replace(program, runner=runner)
    grid = emulator.grid_of(GRID, {name: value for name, value in values.items() if isinstance(value, int)})
    run = emulator.run(program, values, grid, [256], schedule=schedule, limits=limits)
    wrong = None
    if run.completed:
        try:
            reference.check(q, k, v, out, lse, causal=True, softmax_scale=HEAD_DIM**-0.5)
        except WrongResult as error:
            wrong = str(error)
    return Outcome(run, wrong)


def barriers(source: str) -> list[int]:
    """Lines (from 1) of the barriers that the kernel's own text holds."""
    return [number for number, line in enumerate(source.splitlines(), 1) if line.strip() == "__syncthreads();"]


def change_line(source: str, number: int, change: Callable[[str], str]) -> str:
    lines = source.splitlines()
    changed = change(lines[number - 1])
    assert changed != lines[number - 1], lines[number - 1]
    return "\n".join([*lines[: number - 1], changed, *lines[number:], ""])


def substitute(source: str, old: str, new: str, count: int = 1) -> str:
    assert source.count(old) >= count, old
    return source.replace(old, new, count)


def line_of(source: str, part: str) -> int:
    return next(number for number, line in enumerate(source.splitlines(), 1) if part in line)


def in_line(source: str, part: str, old: str, new: str) -> str:
    """Replace within the first line that has `part` in it."""
    return change_line(source, line_of(source, part), lambda line: line.replace(old, new, 1))


def behind_next_loop(source: str, number: int) -> str:
    """Move the barrier of a line behind the statement that follows it."""
    lines = source.splitlines()
    end, depth, begun = number, 0, False
    while not begun or depth:
        code = re.sub(r"#.*", "", lines[end])
        depth += code.count("{") - code.count("}")
        begun = begun or "{" in code
        end += 1
    return "\n".join([*lines[: number - 1], ";", *lines[number:end], lines[number - 1], *lines[end:], ""])
