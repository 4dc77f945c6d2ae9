"""Surveys as text: a table for a terminal, and cells that the page of the documentation shares with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilegate.isa.figures import Figures
from tilegate.isa.survey import Kernel, Survey

COLUMNS = (
    "LDS",
    "VGPR+AGPR",
    "spills",
    "waves/SIMD",
    "wg/CU",
    "MFMA",
    "LDS reads",
    "barriers",
    "~cycles",
    "limited by",
    "~matrix",
)
LEGEND = (
    "LDS: bytes and share of the chip's. waves/SIMD: of this kernel, in brackets as limited by registers / by LDS. wg/CU: "
    "workgroups on a compute unit.\nMFMA, LDS reads (count x bytes a lane), barriers: main loop, static. ~: estimates from "
    "peak rates for one round of the main loop; matrix: the share of the\nmatrix units' peak that is left if only the "
    "limiting unit limits."
)


def render(survey: Survey) -> str:
    """Return the survey as a table for each chip, problems under the kernels that have them."""
    parts = []
    for arch, kernels in survey.kernels.items():
        parts.append(f"{arch}   {survey.toolchains[arch]['compiler']}, headers: {survey.toolchains[arch]['headers']}")
        rows = [("kernel", "verdict", *COLUMNS), *(_row(kernel) for kernel in kernels)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        parts.append(lines[0])
        for kernel, line in zip(kernels, lines[1:], strict=True):
            parts.append(line)
            parts += [f"    {problem.severity}: {problem.message}" for problem in kernel.analysis.problems]
        parts.append("")
    return "\n".join([*parts, LEGEND])


def _row(kernel: Kernel) -> tuple[str, ...]:
    figures = kernel.analysis.figures
    return (kernel.id, verdict_of(kernel), *(cells(figures) if figures else [""] * len(COLUMNS)))


def verdict_of(kernel: Kernel) -> str:
    """Return "broken", "warning" or "pass"."""
    if kernel.analysis.broken:
        return "broken"
    return "warning" if kernel.analysis.problems else "pass"


def cells(figures: Figures) -> Sequence[str]:
    """Return the values of `COLUMNS`."""
    loop = figures.loop
    limits = f"({figures.waves_by_registers}/{number(figures.waves_by_lds)})"
    in_loop = (
        [
            str(loop.counts.matrix),
            by_width(loop.counts.lds_reads),
            str(loop.steady.barriers),
            number(loop.cycles[loop.limiter]),
            loop.limiter,
            f"{loop.matrix_share:.0%}",
        ]
        if loop
        else ["no loop", "", "", "", "", ""]
    )
    return [
        f"{figures.lds:,} {figures.lds_share:.0%}",
        f"{figures.vgprs}+{figures.agprs}",
        str(figures.vgpr_spills),
        f"{number(figures.waves)} {limits}",
        str(figures.workgroups),
        *in_loop,
    ]


def by_width(counts: Mapping[str, int]) -> str:
    """Spell {"16": 16, "2": 128} as "16x16 128x2"."""
    return " ".join(f"{count}x{width}" for width, count in counts.items()) or "0"


def number(value: float) -> str:
    """Return a number without a fraction where it has none."""
    return f"{value:,.0f}" if value == int(value) else f"{value:,.2f}".rstrip("0")
