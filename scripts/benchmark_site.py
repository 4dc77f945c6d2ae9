"""How long the dashboard of a large history takes, beside `asv publish` of the same size: docs/site.md has the figures.

A made-up history (tilegate.history.synthetic): 3,000 commits and 300 cases of 20 code versions, one of 300. Each command runs in a
process of its own; its CPU time is stated beside the wall time, since a machine that others use stretches the second.

    python scripts/benchmark_site.py                 all of it, in a temporary folder
    python scripts/benchmark_site.py --no-asv        without asv
    python scripts/benchmark_site.py --commits 300 --cases 30
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tilegate.history import synthetic
from tilegate.history.records import Commit, Record, name_of, text_of
from tilegate.history.store import Store

BIN = Path(sys.executable).parent


@dataclass(frozen=True)
class Took:
    """What a command took: wall seconds, CPU seconds, bytes of memory at most."""

    wall: float
    cpu: float
    memory: int


def main(arguments: list[str] | None = None) -> int:
    """Measure; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--commits", type=int, default=3000)
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--no-asv", action="store_true", help="leave out `asv publish`")
    args = parser.parse_args(arguments)
    table = Table("what", "wall s", "CPU s", "memory MB", box=None, pad_edge=False)

    def row(what: str, took: Took) -> None:
        table.add_row(what, f"{took.wall:.2f}", f"{took.cpu:.2f}", f"{took.memory / 1e6:.0f}")

    with tempfile.TemporaryDirectory(prefix="tilegate-benchmark-") as name:
        folder = Path(name)
        os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
        busy = min(300, args.commits)
        size = synthetic.Size(commits=args.commits, cases=args.cases, versions=20, busy_versions=busy, steps=20)
        tip = fill(folder / "store", size)
        command = [
            str(BIN / "tilegate"),
            "site",
            "build",
            "--store",
            str(folder / "store"),
            "--out",
            str(folder / "site"),
        ]
        row("site, whole", timed(command))
        add_commit(Store(folder / "store"), tip)
        row("site, one commit more", timed(command))
        row("site, nothing new", timed(command))
        overview = (folder / "site" / "data" / "overview.js").stat().st_size
        whole = sum(path.stat().st_size for path in (folder / "site").rglob("*") if path.is_file())
        if not args.no_asv:
            row("asv publish, whole", publish(folder / "asv", size))
    Console().print(table)
    print(f"overview {overview / 1e3:.0f} kB, site {whole / 1e6:.1f} MB, {args.commits} commits x {args.cases} cases")
    return 0


def timed(command: Sequence[str], cwd: Path | None = None) -> Took:
    """Run a command and say what it took; raises CalledProcessError if it fails."""
    begun = time.monotonic()
    process = subprocess.Popen(command, cwd=cwd, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, list(command))
    return Took(time.monotonic() - begun, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


def fill(folder: Path, size: synthetic.Size) -> list[Record]:
    """Write a store's files, without waiting for the disk after each; return the tip and its code versions."""
    tip: dict[str, Record] = {}
    for record in synthetic.records(size):
        write(folder, record)
        if record["kind"] == "commit":
            tip["commit"] = record
        elif record["kind"] == "versions":
            tip["versions"] = record
    return list(tip.values())


def write(folder: Path, record: Record) -> None:
    """Write one record where a store has it."""
    text = text_of(record)
    name = name_of(text)
    path = folder / "records" / record["kind"] / name[:2] / f"{name[2:]}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n", encoding="utf-8")


def add_commit(store: Store, tip: Sequence[Record]) -> None:
    """Add a commit on top whose code is that of the one before."""
    commit, versions = tip
    if commit["kind"] != "commit":
        raise TypeError("the first of the two is the commit")
    sha = "f" * 40
    store.add(Commit(**{**commit, "sha": sha, "parents": [commit["sha"]]}))  # type: ignore[typeddict-item]
    store.add({**versions, "commit": sha})  # type: ignore[typeddict-unknown-key,typeddict-item,misc]


def publish(folder: Path, size: synthetic.Size) -> Took:
    """Run `asv publish` on results of as many commits and cases."""
    repository = folder / "repository"
    repository.mkdir(parents=True)
    git(repository, "init", "--quiet", "--initial-branch", "main")
    stream = []
    for number in range(size.commits):
        when = 1735689600 + 14400 * number
        stream.append(f"commit refs/heads/main\ncommitter A <a@example.invalid> {when} +0000\ndata 1\nx\n\n")
    subprocess.run(["git", "fast-import", "--quiet"], cwd=repository, input="".join(stream), text=True, check=True)
    shas = git(repository, "rev-list", "--reverse", "main").split()
    names = [f"suite.Case{case:03d}.time_case" for case in range(size.cases)]
    columns = ["result", "params", "version", "started_at", "duration", "stats_ci_99_a", "stats_ci_99_b"]
    results = folder / "results"
    machine = {"arch": "x", "cpu": "x", "machine": "m", "num_cpu": "2", "os": "x", "ram": "1", "version": 1}
    dump(results / "m" / "machine.json", machine)
    dump(results / "benchmarks.json", {"version": 2, **{name: described(name) for name in names}})
    for number, sha in enumerate(shas):
        level = 1e-4 * (1 + 0.02 * (number > size.commits // 2))
        found = {name: [[level], [], "1", 1735689600000, 0.1, [level * 0.99], [level * 1.01]] for name in names}
        when = 1000 * (1735689600 + 14400 * number)
        dump(
            results / "m" / f"{sha[:8]}-env.json",
            {"commit_hash": sha, "env_name": "env", "date": when, "params": machine, "python": "3", "requirements": {},
             "env_vars": {}, "result_columns": columns, "results": found, "durations": {}, "version": 2},
        )  # fmt: skip
    conf = {"version": 1, "project": "p", "project_url": "", "repo": str(repository), "branches": ["main"], "environment_type": "virtualenv",
            "results_dir": str(results), "html_dir": str(folder / "html"), "env_dir": str(folder / "env"), "benchmark_dir": str(folder)}  # fmt: skip
    dump(folder / "asv.conf.json", conf)
    return timed([str(BIN / "asv"), "publish", "--no-pull"], cwd=folder)


def described(name: str) -> dict[str, Any]:
    """What asv's benchmarks.json says of a benchmark."""
    return {"name": name, "code": "", "type": "time", "unit": "seconds", "version": "1", "params": [], "param_names": [],
            "timeout": 60, "number": 0, "repeat": 0, "rounds": 2, "warmup_time": -1, "sample_time": 0.01, "min_run_count": 2}  # fmt: skip


def dump(path: Path, value: object) -> None:
    """Write JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")


def git(folder: Path, *arguments: str) -> str:
    """Run git there and return what it prints."""
    return subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    sys.exit(main())
