"""Build a real history of this repository on a device: its own last commits, and planted slowdowns after them.

    python scripts/proof/real_history.py --target cuda --out DIR [--minutes 4.5] [--commits 24]
    python scripts/proof/real_history.py --target cpu --out DIR --minutes 15 -b "latency_forward.'cpu-g(6|7-d128)"

In a clone inside DIR, the release v0 is the oldest of the last commits. After HEAD come commits that this script makes: prose, the same work
in other code, 1/36 more key tiles, prose, that taken back, 1/10 more key tiles, prose. Every result stays right. `tilegate history
update` measures what tells most; then its tables are printed, `tilegate bisect` looks for the last slowdown in the history as it
is, and DIR/summary.json says what was planted, what was found, and how long each step took. The same command continues.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

import demo  # noqa: E402

from tilegate.history import inbox, update  # noqa: E402
from tilegate.history.store import Store  # noqa: E402

BEFORE = demo.SLOWER.before
CASES = {
    "cuda": r"latency_forward.'(prefill-7b-b4-s4096|vendor-32x8-b1-s8192-causal)', 'adaptive'",
    "hip": r"latency_forward.'(prefill-7b-b4-s4096|vendor-32x8-b1-s8192-causal)', 'adaptive'",
    "cpu": r"latency_forward.'(cpu-g6-d64-s127|cpu-g7-d128-s96)', 'adaptive'",
}
ALARM = 0.01


def more(one_in: int) -> tuple[str, str]:
    """Return a message and what stands for `BEFORE` in code that walks over one key tile in `one_in` more, hidden by the mask."""
    _, _, tiles = BEFORE.partition(" = ")
    return (
        f"Walk over one key tile in {one_in} more than needed",
        f"visible = {tiles} + ({tiles} + {one_in // 2}) // {one_in}",
    )


def grow(clone: Path, *, strong: int, weak: int) -> dict[str, str]:
    """Commit the planted changes; return the hashes of the slowdowns by name."""
    planted = {}
    kernel = clone / demo.KERNEL
    original = kernel.read_text(encoding="utf-8")
    for text in (BEFORE, demo.EQUAL.before):
        if original.count(text) != 1:
            raise demo.DemoError(f"{demo.KERNEL} does not hold {text!r} exactly once; adapt the script to the file")
    equal = original.replace(demo.EQUAL.before, demo.EQUAL.after)
    for name, message, content in (
        ("", "Edit the README", original),
        ("", demo.EQUAL.message, equal),
        ("weak", more(weak)[0], equal.replace(BEFORE, more(weak)[1])),
        ("", "Edit the README", None),
        ("", "Take that back", equal),
        ("strong", more(strong)[0], equal.replace(BEFORE, more(strong)[1])),
        ("", "Edit the README", None),
    ):
        if content is not None:
            kernel.write_text(content, encoding="utf-8")
        if message.startswith("Edit"):
            (clone / "README.md").write_text((clone / "README.md").read_text(encoding="utf-8") + "\n", encoding="utf-8")
        demo.git(clone, "commit", "--quiet", "--all", "--message", message)
        if name:
            planted[name] = demo.git(clone, "rev-parse", "HEAD")
    return planted


def prepared(out: Path, commits: int, *, strong: int, weak: int) -> tuple[Path, dict[str, str]]:
    """Return the clone and the planted commits; made before, they are taken as they are."""
    clone, plan = out / "clone", out / "planted.json"
    if plan.is_file():
        return clone, json.loads(plan.read_text(encoding="utf-8"))
    out.mkdir(parents=True, exist_ok=True)
    demo.git(ROOT, "clone", "--quiet", "--no-tags", str(ROOT), str(clone))
    demo.git(clone, "checkout", "--quiet", "-B", "grown")
    line = demo.git(clone, "log", "--first-parent", f"--max-count={commits}", "--format=%H").split()
    demo.git(clone, "tag", "v0", line[-1])
    planted = grow(clone, strong=strong, weak=weak)
    plan.write_text(json.dumps(planted) + "\n", encoding="utf-8")
    return clone, planted


def tilegate(*arguments: str, shown: bool = True) -> tuple[int, str, float]:
    """Run a command of tilegate; return its exit status, what it printed, and how many seconds it took."""
    since = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "tilegate", *arguments], cwd=ROOT, env=demo.own_environment(), stdout=subprocess.PIPE, text=True, check=False
    )  # fmt: skip
    if shown:
        print(f"$ tilegate {' '.join(arguments[:2])} …\n{done.stdout}", flush=True)
    return done.returncode, done.stdout, round(time.monotonic() - since, 1)


def judged(store: Path, planted: dict[str, str]) -> dict[str, Any]:
    """Hold the history's entries against what was planted."""
    history = update.load(Store(store))
    entries = inbox.entries(history)
    found: dict[str, Any] = {"commits": len(history.commits), "cases": len(history.cases)}
    found["comparisons"] = sum(len(segment.edges) for case in history.cases.values() for segment in case.segments)
    found["versions"] = {id: len({v for v in case.versions if v is not None}) for id, case in history.cases.items()}
    found["entries"] = [
        {
            "kind": entry.kind,
            "first_bad": history.commits[entry.first_bad].subject,
            "last_good": history.commits[entry.last_good].subject,
            "open": entry.open,
            "recovered": entry.recovered,
            "worst": math.exp(entry.worst.estimate),
        }
        for entry in entries
    ]
    steps = {history.commits[entry.first_bad].sha for entry in entries if entry.kind == "step"}
    found["planted_found"] = {name: sha in steps for name, sha in planted.items()}
    return found


def main() -> int:
    """Build it; return 0 if the strong slowdown was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", choices=tuple(CASES), required=True)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--minutes", type=float, default=4.5, help="for all of it (default: 4.5)")
    parser.add_argument("--commits", type=int, default=24, metavar="N", help="of this repository's own (default: 24)")
    parser.add_argument("-b", "--bench", metavar="REGEX", help="other cases than two of the forward kernel")
    args = parser.parse_args()
    out, pattern = args.out.resolve(), args.bench or CASES[args.target]
    # A CPU's problems have two key tiles or three, so that fewer than every second more is none.
    strong, weak = (1, 2) if args.target == "cpu" else (10, 36)
    clone, planted = prepared(out, args.commits, strong=strong, weak=weak)
    store = out / "history"
    where = ["--repo", str(clone), "--store", str(store), "--target", args.target, "--tier", "smoke"]
    until = time.monotonic() + 60 * args.minutes
    seconds = {}
    limit = str(args.commits + 7)
    _, _, seconds["update"] = tilegate(
        "history", "update", *where, "--no-asv", "--limit", limit, "--minutes", f"{0.85 * args.minutes:.2f}", "-b", pattern
    )  # fmt: skip
    case = next(iter(update.load(Store(store)).cases), "")
    left = max(0.2, (until - time.monotonic()) / 60)
    tilegate("history", "show", case, "--store", str(store))
    tilegate("history", "regressions", "--store", str(store))
    tilegate("history", "compare", "v0", planted["strong"][:12], "--store", str(store))
    status, printed, seconds["bisect"] = tilegate(
        "bisect", *where, "--good", f"{planted['weak']}^", "--bad", "grown", "-b", case, "--minutes", f"{left:.2f}", "--json"
    )  # fmt: skip
    summary = {**judged(store, planted), "seconds": seconds, "target": args.target, "bench": pattern}
    if status == 0:
        found = json.loads(printed)
        summary["bisected"] = {
            "state": found["state"],
            "right": found["suspects"] == [planted["strong"]],
            "measured": found["measured"],
        }
    (out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(summary, indent=1))
    return 0 if summary["planted_found"].get("strong") else 1


if __name__ == "__main__":
    sys.exit(main())
