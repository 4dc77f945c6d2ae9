"""Figures of a report, as SVG and PNG: latency and rate over length, and the roofline. Drawn by matplotlib, an extra."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tilegate.evidence.upstream import lengths_and_times
from tilegate.judging.roofline import Peak, peak_of

INSTALL = "pip install 'tilekernels[report]'"
_COLOURS = {"base": "#0072B2", "head": "#D55E00"}  # Okabe and Ito: told apart without colour vision, and by their marks
_MARKS = {"base": "o", "head": "s"}


def available() -> bool:
    """Return whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def lengths(results: Mapping[str, Any], stem: Path) -> list[Path]:
    """Draw latency and rate over length; return the files written: `stem`.svg and .png.

    Args:
        results: of repro.py.
        stem: the files' path without ending.
    """
    rows = lengths_and_times(results)
    unit = next(key.partition("_")[2] for key in results["rows"][0] if key.startswith("head_") and "/s" in key)
    figure, (latency, rate) = _subplots(2)
    for side in rows[0][1]:
        style = {"color": _COLOURS[side], "marker": _MARKS[side], "label": side}
        latency.plot([length for length, _ in rows], [times[side] for _, times in rows], **style)
        rate.plot(
            [row["length"] for row in results["rows"]], [row[f"{side}_{unit}"] for row in results["rows"]], **style
        )
    for axis, title in ((latency, "latency, us"), (rate, unit)):
        axis.set_xscale("log", base=2)
        axis.set_xlabel("length")
        axis.set_title(title)
        axis.set_xticks([length for length, _ in rows], [f"{length:,}" for length, _ in rows], rotation=45)
        axis.grid(alpha=0.3)
        axis.legend()
    latency.set_yscale("log")
    return _save(figure, stem)


def roofline(document: Mapping[str, Any], stem: Path) -> list[Path]:
    """Draw each timed case under its device's roofline; nothing if the chip's peaks or the work are not known.

    Args:
        document: a gate's verdict, of which the head is drawn, or a profile, of which each side is.
        stem: the files' path without ending.
    """
    peak = peak_of(document["environment"])
    points = list(_of_cases(document["cases"]) if "cases" in document else _of_sides(document))
    if peak is None or not points:
        return []
    figure, (axis,) = _subplots(1)
    axis.plot(*_bounds(peak, [x for _, x, _ in points]), color="0.4")
    for role in dict.fromkeys(role for role, _, _ in points):
        xs, ys = zip(*((x, y) for each, x, y in points if each == role), strict=True)
        axis.scatter(xs, ys, color=_COLOURS[role], marker=_MARKS[role], s=18, label=role)
    axis.legend()
    axis.set(xlabel="operations a byte", ylabel="TFLOP/s", title=_title(peak))
    axis.set_xscale("log", base=2)
    axis.set_yscale("log", base=2)
    for scale in (axis.xaxis, axis.yaxis):
        scale.set_major_formatter("{x:,.6g}")
    axis.grid(alpha=0.3)
    return _save(figure, stem)


def _bounds(peak: Peak, intensities: Sequence[float]) -> tuple[list[float], list[float]]:
    """Return the roofline: operations a byte from below to above all points and the ridge, and TFLOP/s at each."""
    ridge = peak.flops / peak.bandwidth
    places = [min(*intensities, ridge) / 2, ridge, 2 * max(*intensities, ridge)]
    return places, [min(place * peak.bandwidth, peak.flops) / 1e12 for place in places]


def _title(peak: Peak) -> str:
    return f"{peak.device}: bounds of the fastest\nnumber format and of memory"


def _of_cases(cases: Mapping[str, Any]) -> Iterator[tuple[str, float, float]]:
    """Yield (side, operations a byte, TFLOP/s) of each case whose work is known."""
    for case in cases.values():
        yield from _point("head", case["head_seconds"], case.get("work") or {})


def _of_sides(profile: Mapping[str, Any]) -> Iterator[tuple[str, float, float]]:
    for role in ("base", "head"):
        if role in profile:
            times = [kernel["terms"]["time"]["value"] for kernel in profile[role]["kernels"]]
            yield from _point(role, 0 if None in times else sum(times) / 1e6, profile[role]["work"])


def _point(role: str, seconds: float | None, work: Mapping[str, Any]) -> Iterator[tuple[str, float, float]]:
    if seconds and "flops" in work and "bytes" in work:
        yield role, work["flops"] / work["bytes"], work["flops"] / seconds / 1e12


def _subplots(count: int) -> Any:
    import matplotlib as mpl  # noqa: PLC0415 - an extra

    mpl.use("svg")  # no display is needed
    mpl.rcParams["svg.hashsalt"] = "tilegate"  # the same results give the same file
    import matplotlib.pyplot as plt  # noqa: PLC0415

    figure, axes = plt.subplots(1, count, figsize=(5.2 * count, 4.0), squeeze=False, layout="constrained")
    return figure, axes[0]


def _save(figure: Any, stem: Path) -> list[Path]:
    import matplotlib.pyplot as plt  # noqa: PLC0415

    stem.parent.mkdir(parents=True, exist_ok=True)
    files = [stem.with_name(f"{stem.name}.{ending}") for ending in ("svg", "png")]
    for file in files:
        figure.savefig(file, dpi=130, metadata={"Date": None} if file.suffix == ".svg" else None)
    plt.close(figure)
    return files
