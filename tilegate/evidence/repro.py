"""A folder that shows a case's speed and error with torch and tilelang alone: for those who have to believe and mend it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from tilegate import files
from tilegate.evidence import environment
from tilegate.protocol import JSON

RESULTS = "results.json"
_FLUSH = {"cpu": 16 << 20, "cuda": 256 << 20, "hip": 512 << 20}
"""Bytes written before each launch: past the H200's L2 of 60 MB; past the MI300X's Infinity Cache of 256 MB."""


def write(
    folder: Path,
    case: str,
    sides: Mapping[str, Mapping[str, Any]],
    *,
    target: str,
    revisions: Mapping[str, str],
    labels: Mapping[str, str],
    rounds: int,
    command: str,
) -> None:
    """Write everything but what was seen.

    Args:
        folder: made here.
        case: id of the case.
        sides: what the suite says of the case at "head", and at "base" if there is one (docs/protocol.md, `reproduction`).
        target: "cpu", "cuda" or "hip".
        revisions: of each side, twelve digits of the commit.
        labels: what each side is, for people.
        rounds: launches of each kernel, by default.
        command: the line that makes this folder again.

    Raises:
        UsageError: the folder cannot be written.
    """
    head = sides["head"]
    settings: dict[str, JSON] = {
        "case": case,
        "command": command,
        "revisions": dict(revisions),
        "labels": dict(labels),
        "device": head["device"],
        "dialect": head["dialect_name"],
        "lengths": [str(length) for length in head["lengths"]],
        "rounds": rounds,
        "flush_bytes": _FLUSH[target],
        "shape": head["shape"],
        "sides": {
            role: {key: side[key] for key in ("spec", "tiles", "target", "pass_configs", "compile_flags")}
            for role, side in sides.items()
        },
    }
    template = resources.files("tilegate").joinpath("evidence/templates/repro.py.txt").read_text(encoding="utf-8")
    title = f"Reproduces {case}: " + " and ".join(f"{role} {labels[role]}" for role in sides)
    for role, side in sides.items():
        files.write_text(folder / role / "kernel.py", side["kernel"])
        files.write_text(folder / role / "dialect.py", side["dialect"])
    files.write_text(folder / "problem.py", head["problem"])
    files.write_text(folder / "repro.py", template.replace("@TITLE@", title.replace('"', "'").replace("\\", "/")))
    files.write_json(folder / "environment.json", environment.collect(target))
    files.write_json(folder / "settings.json", settings)


def readme(
    case: str, labels: Mapping[str, str], described: Mapping[str, Any], results: Mapping[str, Any] | None
) -> str:
    """Return README.md: the command, and what was seen where this folder was made.

    Args:
        case, labels: as `write`.
        described: environment.json.
        results: of repro.py; None if it was not run here.
    """
    versions = described["versions"]
    place = f"{described['device']['name']}, torch {versions['torch']}, TileLang {versions['tilelang']}"
    lines = [
        f"# {case}",
        "",
        "```",
        "pip install torch tilelang    # as for your GPU",
        "python repro.py",
        "```",
        "",
        *(f"- `{role}/kernel.py`: the kernel at {revision}" for role, revision in labels.items()),
        "- `problem.py`: inputs, the float64 reference, and the tolerance",
        f"- `environment.json`: where this was seen: {place}",
        "",
    ]
    if results is None:
        return "\n".join([*lines, "It has not been run on this machine: `--no-run` was given.", ""])
    return "\n".join([*lines, "## Seen here", "", *table(results), ""])


def table(results: Mapping[str, Any]) -> list[str]:
    """Return the results of repro.py as the rows of a Markdown table."""
    rows = results["rows"]
    sides = [side for side in ("base", "head") if f"{side}_us" in rows[0]]
    unit = next(key.partition("_")[2] for key in rows[0] if key.startswith("head_") and key.endswith(("OP/s", "B/s")))
    columns = [part for side in sides for part in (f"{side}, us", f"{side}, {unit}", f"{side}, error")]
    columns += ["head/base (95 %)"] * (len(sides) == 2)
    lines = ["| length | " + " | ".join(columns) + " |", "|--:|" + "--:|" * len(columns)]
    for row in rows:
        cells = [
            part
            for side in sides
            for part in (f"{row[f'{side}_us']:.1f}", f"{row[f'{side}_{unit}']:.3g}", f"{row[f'{side}_error']:.2f} of 1")
        ]
        cells += ["{:.3f} ({:.3f} to {:.3f})".format(*row["ratio"])] if "ratio" in row else []
        lines.append(f"| {row['length']} | " + " | ".join(cells) + " |")
    return [*lines, "", "**A result is wrong.**"] if results["wrong"] else lines


def load_results(folder: Path) -> Any:
    """Return what repro.py left in a folder. Raises UsageError."""
    return json.loads((folder / RESULTS).read_text(encoding="utf-8")) if (folder / RESULTS).is_file() else None
