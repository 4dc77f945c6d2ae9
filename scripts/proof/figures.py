"""Plots (SVG, no library needed) and Markdown tables of what simulate.py counted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scipy.stats import beta

from tilegate import files

# Distinguishable in the common kinds of colour blindness (Okabe & Ito 2008), on light and on dark pages.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
GREY = "#888888"
WIDTH, HEIGHT = 640, 360
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 16, 44


@dataclass(frozen=True)
class Curve:
    """One line: points (slowdown in percent, share in percent); dashed lines are about warnings."""

    name: str
    points: tuple[tuple[float, float], ...]
    colour: str
    dashed: bool = False


def upper_bound(events: int, trials: int, level: float = 0.95) -> float:
    """Return the one-sided Clopper-Pearson upper confidence bound of a probability."""
    return 1.0 if events == trials else float(beta.ppf(level, events + 1, trials - events))


def lower_bound(events: int, trials: int, level: float = 0.95) -> float:
    """Return the one-sided Clopper-Pearson lower confidence bound of a probability."""
    return 1.0 - upper_bound(trials - events, trials, level)


def draw(result: dict[str, Any], folder: Path) -> None:
    """Write the plots into `folder`."""
    files.write_text(folder / "power.svg", plot(_beside_rivals(result), "pull requests stopped, %"))
    files.write_text(folder / "short.svg", plot(_short(result), "called regressed, %", furthest=10.0))


def plot(curves: Sequence[Curve], what: str, furthest: float = 5.0) -> str:
    """Return a plot of `curves` over the slowdown of one kernel, as SVG."""

    def x(percent: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * percent / furthest

    def y(percent: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * percent / 100

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT + 18 * len(curves)}" '
        f'font-family="sans-serif" font-size="12" fill="{GREY}">'
    ]
    for share in range(0, 101, 20):
        parts.append(f'<path d="M{LEFT} {y(share):.1f}H{WIDTH - RIGHT}" stroke="{GREY}" stroke-opacity="0.3"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y(share) + 4:.1f}" text-anchor="end">{share}</text>')
    for percent in range(int(furthest) + 1):
        parts.append(f'<text x="{x(percent):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{percent}</text>')
    parts.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 8}" text-anchor="middle">slowdown of one kernel, %</text>')
    middle = HEIGHT / 2
    parts.append(f'<text x="14" y="{middle}" transform="rotate(-90 14 {middle})" text-anchor="middle">{what}</text>')
    for row, curve in enumerate(curves):
        line = " ".join(f"{x(px):.1f},{y(py):.1f}" for px, py in curve.points if px <= furthest)
        dash = ' stroke-dasharray="5 4"' if curve.dashed else ""
        parts.append(f'<polyline points="{line}" fill="none" stroke="{curve.colour}" stroke-width="2"{dash}/>')
        height = HEIGHT + 18 * row + 8
        parts.append(
            f'<path d="M{LEFT} {height - 4}h24" stroke="{curve.colour}" stroke-width="2"{dash}/>'
            f'<text x="{LEFT + 32}" y="{height}">{curve.name}</text>'
        )
    return "\n".join([*parts, "</svg>\n"])


def tables(result: dict[str, Any]) -> str:
    """Return the tables of docs/gate-proof.md as Markdown."""
    return "\n\n".join(
        [
            *(_goals(result, pool) for pool in ("long", "recorded")),
            *(_effects(result, pool) for pool in ("long", "recorded")),
            *(_kernels(result, pool) for pool in ("long", "recorded")),
            _rivals(result),
            _bias(result),
            _shorts(result),
        ]
    )


def _experiments(result: dict[str, Any], pool: str, bias: float = 1.0) -> list[dict[str, Any]]:
    found = [e for e in result["experiments"] if e["pool"] == pool and e["bias"] == bias]
    return sorted(found, key=lambda e: float(e["effect"]))


def _planted(experiment: dict[str, Any], verdicts: Iterable[str]) -> int:
    return sum(counts.get(v, 0) for counts in experiment["planted"].values() for v in verdicts)


def _stopped(experiment: dict[str, Any]) -> float:
    """Return the share of red runs. A run whose planted case is red and another one too counts once, at most twice."""
    return min(1.0, (_planted(experiment, ["regressed"]) + experiment["red"]) / experiment["requests"])


def _beside_rivals(result: dict[str, Any]) -> list[Curve]:
    ours = _experiments(result, "common")
    curves = [
        Curve("tilegate gate", tuple((100 * e["effect"], 100 * _stopped(e)) for e in ours), COLOURS[0]),
        Curve(
            "tilegate gate, the kernel at least in a warning",
            tuple((100 * e["effect"], 100 * _planted(e, ["regressed", "warning"]) / e["requests"]) for e in ours),
            COLOURS[0],
            dashed=True,
        ),
    ]
    for colour, (name, rival) in zip(COLOURS[1:], result["rivals"].items(), strict=False):
        points = [(0.0, 100 * rival["red_clean"])]
        points += [(100 * float(effect), 100 * share) for effect, share in rival["red_planted"].items()]
        curves.append(Curve(name, tuple(sorted(points)), colour))
    return curves


def _short(result: dict[str, Any]) -> list[Curve]:
    recorded = _experiments(result, "recorded")
    points = [(100 * e["effect"], 100 * _planted(e, ["regressed"]) / e["requests"]) for e in recorded]
    curves = [Curve("7 kernels of 5 to 24 µs, recorded", tuple(points), COLOURS[0])]
    for colour, name in zip(COLOURS[1:], _short_names(result), strict=False):
        points = [
            (100 * e["effect"], 100 * _planted(e, ["regressed"]) / e["requests"]) for e in _experiments(result, name)
        ]
        curves.append(Curve(f"{name}, launch by launch", tuple(points), colour))
    return curves


def _short_names(result: dict[str, Any]) -> list[str]:
    return list(
        dict.fromkeys(e["pool"] for e in result["experiments"] if e["pool"] not in ("long", "common", "recorded"))
    )


def _goals(result: dict[str, Any], pool: str) -> str:
    by_effect = {e["effect"]: e for e in _experiments(result, pool)}
    clean, three, two = by_effect[0.0], by_effect[0.03], by_effect[0.02]
    red = clean["red"] + _planted(clean, ["regressed"])
    called = _planted(three, ["regressed"])
    warned = _planted(two, ["regressed", "warning"])
    rows = [
        f"| a clean pull request is red | < 0.5 in 100 | {red} of {clean['requests']} "
        f"| at most {100 * upper_bound(red, clean['requests']):.3f} in 100 |",
        f"| +3 % is called regressed | >= 99 in 100 | {called} of {three['requests']} "
        f"| at least {100 * lower_bound(called, three['requests']):.2f} in 100 |",
        f"| +2 % is at least a warning | >= 95 in 100 | {warned} of {two['requests']} "
        f"| at least {100 * lower_bound(warned, two['requests']):.2f} in 100 |",
    ]
    return "\n".join(["| what | goal | counted | 95 % confidence |", "|---|---|---|---|", *rows])


def _effects(result: dict[str, Any], pool: str) -> str:
    verdicts = ("regressed", "warning", "inconclusive", "pass", "improved")
    lines = [
        f"| slowdown of one kernel | {' | '.join(verdicts)} | suspects | pairs a case | rounds |",
        f"|--:|{'--:|' * (len(verdicts) + 3)}",
    ]
    for e in _experiments(result, pool):
        shares = " | ".join(f"{100 * _planted(e, [v]) / e['requests']:.1f}" for v in verdicts)
        lines.append(
            f"| {100 * e['effect']:g} % | {shares} | {e['mean_suspects']:.1f} | {e['mean_pairs'] / e['cases']:.1f} "
            f"| {e['mean_rounds']:.1f} |"
        )
    return "\n".join(lines)


def _kernels(result: dict[str, Any], pool: str) -> str:
    by_effect = {e["effect"]: e["planted"] for e in _experiments(result, pool)}
    lines = ["| kernel | +2 %: regressed or warning | +3 %: regressed |", "|---|--:|--:|"]
    for name in by_effect[0.03]:
        two, three = by_effect[0.02].get(name, {}), by_effect[0.03][name]
        noticed = two.get("regressed", 0) + two.get("warning", 0)
        lines.append(
            f"| {name} | {noticed} of {sum(two.values())} | {three.get('regressed', 0)} of {sum(three.values())} |"
        )
    return "\n".join(lines)


def _rivals(result: dict[str, Any]) -> str:
    ours = {e["effect"]: e for e in _experiments(result, "common")}
    lines = [
        "| rule | clean requests that are red, in 100 | +2 % stopped | +3 % | +5 % | +10 % |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    shares = " | ".join(f"{100 * _stopped(ours[effect]):.1f}" for effect in (0.0, 0.02, 0.03, 0.05, 0.1))
    lines.append(f"| tilegate gate | {shares} |")
    for name, rival in result["rivals"].items():
        planted = " | ".join(f"{100 * rival['red_planted'][effect]:.1f}" for effect in ("0.02", "0.03", "0.05", "0.1"))
        lines.append(f"| {name} | {100 * rival['red_clean']:.1f} | {planted} |")
    return "\n".join(lines)


def _bias(result: dict[str, Any]) -> str:
    factors = sorted({e["bias"] for e in result["experiments"]})
    lines = ["| bias | clean requests | red | undecided | suspects |", "|--:|--:|--:|--:|--:|"]
    for factor in factors:
        (e,) = (e for e in _experiments(result, "long", factor) if not e["effect"])
        lines.append(f"| x {factor:g} | {e['requests']} | {e['red']} | {e['undecided']} | {e['mean_suspects']:.1f} |")
    return "\n".join(lines)


def _shorts(result: dict[str, Any]) -> str:
    verdicts = ("regressed", "warning", "inconclusive", "pass")
    lines = [f"| kernel | slowdown | {' | '.join(verdicts)} | pairs |", f"|---|--:|{'--:|' * (len(verdicts) + 1)}"]
    for name in _short_names(result):
        for e in _experiments(result, name):
            shares = " | ".join(f"{100 * _planted(e, [v]) / e['requests']:.1f}" for v in verdicts)
            lines.append(f"| {name} | {100 * e['effect']:g} % | {shares} | {e['mean_pairs'] / e['cases']:.0f} |")
    return "\n".join(lines)
