"""How large a history is after a year, and how long it takes to work it out: the figures of docs/history-proof.md, part 3.

    python scripts/proof/history_size.py size [--days 365] [--commits 10] [--cases 200] [--changed 20] [--nightly 200]
    python scripts/proof/history_size.py speed [--commits 3000] [--cases 300]

`size` writes a made-up year day by day, as the workflows do: every commit, the code versions of all cases where some changed, a
comparison for each case that changed, and every night those against the release whose code is another. Each day is packed and committed.
It prints the size of the folder and of the git branch with it. `speed` times reading and working out a large history, and adding a commit to it.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

from tilegate.history import records, synthetic  # noqa: E402
from tilegate.history import store as store_module  # noqa: E402
from tilegate.history.records import Record  # noqa: E402
from tilegate.history.store import Store  # noqa: E402
from tilegate.history.view import version_of, view  # noqa: E402

START = datetime(2026, 1, 1, tzinfo=UTC)


def _write_unsynchronised(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def main() -> None:
    """Carry out one of the two."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    size = commands.add_parser("size")
    size.add_argument("--days", type=int, default=365)
    size.add_argument("--commits", type=int, default=10, help="a day")
    size.add_argument("--cases", type=int, default=200)
    size.add_argument("--changed", type=int, default=20, help="cases whose code a day changes, one commit all of them")
    size.add_argument("--nightly", type=int, default=200, help="cases that are compared with the release every night")
    speed = commands.add_parser("speed")
    speed.add_argument("--commits", type=int, default=3000)
    speed.add_argument("--cases", type=int, default=300)
    reading = commands.add_parser("read", help="a store that is there; what `speed` measures, in a process of its own")
    reading.add_argument("store", type=Path)
    args = parser.parse_args()
    store_module.write_text = _write_unsynchronised  # a made-up year may be lost
    {"size": _size, "speed": _speed, "read": _read}[args.command](args)


def _size(args: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="tilegate-size-") as scratch:
        store = Store(Path(scratch, "branch"))
        store.folder.mkdir()
        _git(store.folder, "init", "--quiet")
        count = 0
        for day, found in _year(args):
            count += sum(store.add(record) for record in found)
            store.pack("9999-12", label=f"{day:%Y-%m}")
            _git(store.folder, "add", "--all")
            _git(store.folder, "commit", "--quiet", "--message", "Add a day")
        folder = sum(p.stat().st_size for p in store.folder.rglob("*") if p.is_file() and ".git" not in p.parts)
        _git(store.folder, "gc", "--quiet", "--prune=now")
        branch = sum(p.stat().st_size for p in (store.folder / ".git" / "objects" / "pack").glob("*.pack"))
        print(
            f"{args.days} days, {args.commits} commits a day, {args.cases} cases, {args.changed} changed a day, {args.nightly} compared a "
            f"night: {count} records; folder {folder / 1e6:.1f} MB, git branch {branch / 1e6:.1f} MB"
        )


def _year(args: argparse.Namespace) -> Iterator[tuple[datetime, list[Record]]]:
    rng = random.Random(0)  # noqa: S311 - not for secrets
    names = [synthetic._case_name(case) for case in range(args.cases)]
    code = [_hash("code", case) for case in range(args.cases)]
    release, before = list(code), ""
    for day in range(args.days):
        when = START + timedelta(days=day)
        found: list[Record] = []
        whole = ""
        changing = rng.randrange(args.commits)
        for number in range(args.commits):
            sha = _hash("commit", day, number)[:40]
            date = (when + timedelta(minutes=number)).isoformat()
            found.append(
                records.Commit(
                    kind="commit", sha=sha, parents=[before] if before else [], author=rng.choice(("Ada", "Grace")), subject=f"Change {day} {number} of what was", date=date
                )
            )  # fmt: skip
            old = list(code)
            changed = rng.sample(range(args.cases), args.changed) if number == changing else []
            for case in changed:
                code[case] = _hash("code", case, day)
            made = records.Versions(
                kind="versions", commit=sha, target="hip", toolchain="tilelang 0.1.15", cases={}, failed={}
            )
            if changed or not whole:
                made["cases"] = {
                    name: {
                        "identity": code[case],
                        "method": "1",
                        "work": {"flops": 1e9, "bytes": 1e7, "shape": "s4096"},
                    }
                    for case, name in enumerate(names)
                }
                whole = sha
            else:
                made["same"] = whole
            found.append(made)
            found += [_comparison(rng, names[case], (old[case], code[case]), (before, sha), date) for case in changed]
            before = sha
        night = when.isoformat()
        found += [
            _comparison(rng, names[case], (release[case], code[case]), ("r" * 40, before), night)
            for case in rng.sample(range(args.cases), args.nightly)
            if release[case] != code[case]
        ]
        if day % 30 == 29:
            release = list(code)
        yield when, found


def _comparison(
    rng: random.Random, case: str, identities: tuple[str, str], commits: tuple[str, str], created: str
) -> records.Comparison:
    seconds = 1e-4 * rng.uniform(0.5, 50)
    ratio = rng.gauss(0, 0.002)
    return records.Comparison(
        kind="comparison", case=case, method="1", base=version_of(identities[0], "1"), head=version_of(identities[1], "1"), base_commit=commits[0] or None,
        head_commit=commits[1], log_ratio=ratio, error=rng.uniform(0.0005, 0.002), freedom=rng.uniform(10, 1000), replicates=2, pairs=32,
        base_seconds=seconds, head_seconds=seconds * (1 + ratio), environment=_hash("environment"), card="8f1d7a40c691", created=created,
        run=_hash(created)[:16], bias=rng.uniform(0.0005, 0.002),
    )  # fmt: skip


def _hash(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _git(folder: Path, *arguments: str) -> None:
    author = ("-c", "user.name=A", "-c", "user.email=a@example.invalid", "-c", "gc.auto=0")
    subprocess.run(["git", *author, *arguments], cwd=folder, check=True, capture_output=True)


def _speed(args: argparse.Namespace) -> None:
    size = synthetic.Size(commits=args.commits, cases=args.cases, versions=20, busy=1, busy_versions=300)
    with tempfile.TemporaryDirectory(prefix="tilegate-speed-") as scratch:
        store = Store(Path(scratch))
        before: dict[
            str, str
        ] = {}  # as `history update` does: a commit that changes nothing names one that says the same
        for record in synthetic.records(size):
            if record["kind"] == "versions":
                said = records.text_of({**record, "commit": ""})
                if (same := before.setdefault(said, record["commit"])) != record["commit"]:
                    record.update(cases={}, same=same)
            store.add(record)
        store.pack("9999-12", label="2026-01")
        subprocess.run([sys.executable, __file__, "read", scratch], check=True)


def _read(args: argparse.Namespace) -> None:
    since = time.perf_counter()
    found, broken = Store(args.store).read()
    read = time.perf_counter() - since
    since, cpu = time.perf_counter(), time.process_time()
    history = view(found, broken)
    worked, cpu = time.perf_counter() - since, time.process_time() - cpu
    edges = sum(len(segment.edges) for case in history.cases.values() for segment in case.segments)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{len(history.commits)} commits, {len(history.cases)} cases, {edges} comparisons: {read:.1f} s to read a packed store, {worked:.1f} s "
        f"to work it out ({cpu:.1f} s of a core), {memory:.0f} MB at most"
    )


if __name__ == "__main__":
    main()
