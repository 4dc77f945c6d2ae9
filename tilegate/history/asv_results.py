"""The history as result files of asv (version 2), so that `asv publish` and `asv show` show the same commits.

A time is the level of the commit's code version on its segment's scale: equal code has equal times, and ratios are those of the
history. The interval is that of the level. Only what comparisons connect is written; asv's own results are in files of their own.
"""

from __future__ import annotations

import ast
import itertools
import json
import math
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from tilegate.files import UsageError, write_text
from tilegate.history import exporting
from tilegate.history.view import Case, History, Segment

CONFIG = "asv.conf.json"
_COLUMNS = (
    *(
        "result",
        "params",
        "version",
        "started_at",
        "duration",
        "stats_ci_99_a",
        "stats_ci_99_b",
        "stats_q_25",
        "stats_q_75",
    ),
    *("stats_number", "stats_repeat"),
)
# By the normal distribution, how much wider than the interval of 95 % are that of 99 % and that between the quartiles.
_99, _50 = 2.5758 / 1.9600, 0.6745 / 1.9600


def results_folder(repository: Path) -> Path | None:
    """Return where asv keeps its results, as asv.conf.json says; None if asv is not used there.

    Raises:
        UsageError: the file cannot be read, or names a folder outside of the repository.
    """
    path = repository / CONFIG
    if not path.is_file():
        return None
    try:
        settings = json.loads(re.sub(r"^\s*//.*$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE))
        folder = (repository / str(settings.get("results_dir", "results"))).resolve()
    except (OSError, ValueError, AttributeError) as error:
        raise UsageError(f"cannot read {path}: {error}") from None
    if not folder.is_relative_to(repository.resolve()):
        raise UsageError(f"{path} has results_dir outside of the repository; --no-asv writes no results of asv")
    return folder


def write(history: History, folder: Path) -> int:
    """Write what changed; return how many files that is.

    Args:
        history: of a store.
        folder: asv's results.

    Raises:
        UsageError: a file cannot be written, or the folder's benchmarks.json cannot be read.
    """
    wanted: dict[Path, Any] = {}
    described: dict[str, Any] = {}
    for environment in history.environments:
        cases = [
            (case, segment)
            for case in history.cases.values()
            for segment in case.segments
            if segment.environment == environment and "[method " not in case.id
        ]
        if cases:
            wanted |= _of_environment(history, environment, cases, described)
    if wanted:
        wanted[Path("benchmarks.json")] = _with_ours(folder / "benchmarks.json", described)
    changed = 0
    for path, document in wanted.items():
        text = json.dumps(document, allow_nan=False, sort_keys=True) + "\n"
        target = folder / path
        if not (target.is_file() and target.read_text(encoding="utf-8") == text):
            write_text(target, text)
            changed += 1
    return changed


def _of_environment(
    history: History, environment: str, cases: Sequence[tuple[Case, Segment]], described: dict[str, Any]
) -> dict[Path, Any]:
    facts = history.environments[environment]
    machine = _machine(facts)
    # Other drivers and compilers are another series; what asv does not know about it does not show.
    name = f"tilegate-{re.sub(r'[^A-Za-z0-9_.+-]', '', environment)[:12] or 'unknown'}"
    params = {**machine, "tilegate": environment[:12]}
    grouped: dict[str, list[tuple[Case, Segment, tuple[str, ...]]]] = {}
    for case, segment in cases:
        benchmark, values = split(case.id)
        grouped.setdefault(benchmark, []).append((case, segment, values))
    axes = {benchmark: _axes([values for _, _, values in found]) for benchmark, found in grouped.items()}
    for benchmark, found in grouped.items():
        described.setdefault(benchmark, _described(benchmark, axes[benchmark], found[0][0].method))
    made: dict[Path, Any] = {Path(machine["machine"], "machine.json"): {**machine, "version": 1}}
    for place, commit in enumerate(history.commits):
        results = {}
        for benchmark, found in grouped.items():
            row = _row(place, found, axes[benchmark])
            if row is not None:
                results[benchmark] = row
        if results:
            made[Path(machine["machine"], f"{commit.sha[:8]}-{name}.json")] = {
                "commit_hash": commit.sha,
                "env_name": name,
                "date": int(datetime.fromisoformat(commit.date).timestamp() * 1000),
                "params": params,
                "python": str(facts.get("versions", {}).get("python", "")),
                "requirements": {},
                "env_vars": {},
                "result_columns": list(_COLUMNS),
                "results": results,
                "durations": {},
                "version": 2,
            }
    return made


def _machine(facts: Mapping[str, Any]) -> dict[str, str]:
    """What asv has to know of a machine: the model of the device, for ratios travel between cards of a model."""
    device, host = facts.get("device") or {}, facts.get("machine") or {}
    label = str(device.get("name") or host.get("cpu") or "unknown")
    return {
        "machine": re.sub(r"[^A-Za-z0-9_.-]+", "-", label).strip("-.")[:60] or "unknown",
        "arch": str(device.get("arch") or host.get("architecture") or ""),
        "cpu": str(host.get("cpu") or ""),
        "num_cpu": str(host.get("cores") or ""),
        "os": str(host.get("system") or ""),
        "ram": "",
    }


def split(case: str) -> tuple[str, tuple[str, ...]]:
    """Return the benchmark of a case and its parameters as they are written: `a.b('x', 1)` is `a.b`, ("'x'", "1")."""
    benchmark, bracket, rest = case.partition("(")
    if not bracket:
        return case, ()
    try:
        call = ast.parse(f"f({rest}", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        call = None
    if not isinstance(call, ast.Call) or call.keywords:
        return benchmark, (rest.removesuffix(")"),)  # no Python: as one parameter
    source = f"f({rest}"
    return benchmark, tuple(ast.get_source_segment(source, argument) or "" for argument in call.args)


def _axes(found: Sequence[tuple[str, ...]]) -> list[list[str]]:
    """The values of every parameter, in order of appearance; asv's cases are all combinations of them."""
    width = max(map(len, found))
    return [list(dict.fromkeys(values[axis] for values in found if axis < len(values))) for axis in range(width)]


def _described(benchmark: str, axes: Sequence[Sequence[str]], method: str) -> dict[str, Any]:
    return {
        "code": "",
        "min_run_count": 2,
        "name": benchmark,
        "number": 0,
        "param_names": [f"param{axis + 1}" for axis in range(len(axes))],
        "params": [list(values) for values in axes],
        "timeout": 60.0,
        "type": "time",
        "unit": "seconds",
        "version": method,
    }


def _row(
    place: int, found: Sequence[tuple[Case, Segment, tuple[str, ...]]], axes: Sequence[Sequence[str]]
) -> list[Any] | None:
    values: dict[tuple[str, ...], tuple[float, ...]] = {}
    for case, segment, given in found:
        version = case.versions[place]
        if version is None or version not in segment.levels:
            continue
        middle, contrast = exporting.seconds(segment, version), segment.network.contrast(segment.reference, version)
        if middle is not None and contrast is not None:
            reach = contrast.high - contrast.estimate
            comparisons = sum(version in (edge.record["base"], edge.record["head"]) for edge in segment.edges)
            quantiles = (middle * math.exp(sign * share * reach) for share in (_99, _50) for sign in (-1, 1))
            values[given] = middle, *quantiles, 1, comparisons
    if not values:
        return None
    combinations = list(itertools.product(*axes))
    result, *columns = ([values[each][part] if each in values else None for each in combinations] for part in range(7))
    return [result, [list(axis) for axis in axes], found[0][0].method, None, None, *columns]


def _with_ours(path: Path, ours: Mapping[str, Any]) -> dict[str, Any]:
    """What asv says of the suite stands; benchmarks that it does not know are added."""
    try:
        theirs = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        known = {name: entry for name, entry in theirs.items() if name != "version"}
    except (OSError, ValueError, AttributeError) as error:
        raise UsageError(f"cannot read {path}: {error}; `asv run --bench just-discover` writes it anew") from None
    merged = dict(known)
    for name, entry in ours.items():
        before = merged.get(name)
        if before is None or before.get("code") == "":  # ours of an earlier time
            merged[name] = entry
    return {**merged, "version": 2}
