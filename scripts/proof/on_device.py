"""Gate known changes on a real device: equal ones, slower ones, a faster one. Does the gate say what is true?

    python scripts/proof/on_device.py --target cuda --out DIR [--minutes 9]
    python scripts/proof/on_device.py --target cuda --out DIR --whole    # the largest tier: how long does it take?
    python scripts/proof/on_device.py --target cpu --out DIR --whole     # a CPU's smoke tier: the same
    python scripts/proof/on_device.py --target cuda --out DIR --calls    # calls: Python code alone changes

In a temporary clone, three commits beside HEAD, each of which changes one line of the attention kernel:

- `equal`: operands of a maximum swapped. Every kernel's text is another one, its work is the same. The gate from HEAD to it
  is an A/A run that cannot take the short cut of identical code.
- `slower`: one kernel (one specialisation in one tile) walks over about 1/36 more key tiles, which the mask then hides. Work
  as a real mistake would add it; every result stays right.
- `much slower`: the same with 1/10. As the base of a gate to HEAD it makes HEAD an improvement.
- `few equal` (with --whole): operands swapped in the kernels of head dimension 64 alone, a few percent of all cases.
- `commented`, `checks twice`, `forgetful`, `waits` (with --calls): the public function with a comment more; checking its
  arguments twice; without its memory of which tile a problem gets; waiting for the device in the end. All kernels stay.

Each gate's samples, verdict and report land in DIR, and DIR/summary.json in the end. A gate that is there already is not
run again, so the same command continues; --minutes bounds how long new ones are started.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import lzma
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

import demo  # noqa: E402

# One text of the generated code each: what the slower commits are about.
SUBJECTS = {
    "cuda": ("vendor-32x8-b1-s8192-causal", "adaptive"),
    "hip": ("vendor-32x8-b1-s8192-causal", "adaptive"),
    "cpu": ("cpu-g7-d128-s96", "adaptive"),
}
CASES = "latency_forward.*adaptive"
TIER = "smoke"
FUNCTION, CHOICE = "tilekernels/functional.py", "tilekernels/forward.py"
COPIED = ("tilekernels", "tilegate", "benchmarks", "pyproject.toml", "asv.conf.json")
IMPORTS = "from typing import TYPE_CHECKING, Any\n"
ANCHOR = "            T.copy(Q[entry, first_row : first_row + block_m, head, :], q)\n"


@dataclass(frozen=True)
class Plan:
    """One gate to run.

    Attributes:
        name: of its folder.
        base, head: names of commits.
        expected: the gate's exit status.
        wanted: the verdict that the subject's case should get.
        tier: which cases, together with
        cases: an expression.
        subject: parameters of the case that is to get it; None: those of `SUBJECTS`.
    """

    name: str
    base: str
    head: str
    expected: int
    wanted: str
    tier: str = TIER
    cases: str = CASES
    subject: tuple[str, ...] | None = None


def whole(target: str) -> list[Plan]:
    """Return the gates over all cases of the largest tier of a GPU, or of the smallest of a CPU, where others cost minutes."""
    tier, cases = ("smoke", ".") if target == "cpu" else ("full", "latency_forward")
    return [
        Plan("whole-few", "HEAD", "few equal", 0, "unchanged", tier, cases),
        Plan("whole-equal", "HEAD", "equal", 0, "pass", tier, cases),
    ]


def plans(rounds: int) -> list[Plan]:
    """Return the gates, the most informative first: what runs out of time is repetition."""
    repeated = [
        plan
        for i in range(1, rounds + 1)
        for plan in (
            Plan(f"slower-{i}", "HEAD", "slower", 1, "regressed"),
            Plan(f"equal-{i}", "HEAD", "equal", 0, "pass"),
        )
    ]
    return [*repeated[:2], Plan("faster-1", "much slower", "HEAD", 0, "improved"), *repeated[2:]]


def more_tiles(target: str, one_in: int) -> demo.Change:
    """Return the change that lets the subject's kernel walk over one in `one_in` key tiles more than it has to."""
    import tilekernels  # noqa: PLC0415 - 2 s that --help need not take
    from benchmarks.problems import problem  # noqa: PLC0415
    from benchmarks.workloads import workload  # noqa: PLC0415

    name, policy = SUBJECTS[target]
    kernel = tilekernels.forward_kernel(
        problem(workload(name)), policy=policy, device="cpu" if target == "cpu" else "cuda"
    )
    only = f"(head_dim, dtype, spec.causal) == {kernel.problem_key!r} and dataclasses.asdict(tile) == {dataclasses.asdict(kernel.tile)!r}"
    extra = f"            visible = visible + (visible + {one_in // 2}) // {one_in} if {only} else visible\n"
    return demo.Change(
        name=f"one in {one_in}",
        message=f"Walk over one key tile in {one_in} more than needed",
        why="The mask hides the additional tiles, so that every result stays right.",
        before=ANCHOR,
        after=extra + ANCHOR,
        expected=demo.REGRESSED,
    )


def few_equal() -> demo.Change:
    """Return the change of `demo.EQUAL` in kernels of head dimension 64 alone."""
    return dataclasses.replace(
        demo.EQUAL,
        name="few equal",
        message=f"{demo.EQUAL.message}, for head dimension 64",
        after=f"{demo.EQUAL.after} if head_dim == 64 else {demo.EQUAL.before.partition(' = ')[2]}",
    )


def calls_changed() -> list[demo.Change]:
    """Return the changes of the public function that leave every kernel alone."""
    problem = "    problem = problem_of(q, k, v, causal)\n"
    end = "    return (out, lse) if return_lse else out\n"
    memory = "@functools.lru_cache(maxsize=4096)  # choosing a tile takes longer than everything else before a launch\n"
    return [
        demo.Change(name, name.capitalize(), "Python alone changes.", before, after, expected, path)
        for name, before, after, expected, path in (
            ("commented", problem, f"    # A comment.\n{problem}", demo.PASSED, FUNCTION),
            ("checks twice", problem, problem * 2, demo.REGRESSED, FUNCTION),
            ("forgetful", memory, "", demo.REGRESSED, CHOICE),
            ("waits", end, f"    if q.is_cuda:\n        torch.cuda.synchronize()\n{end}", demo.REGRESSED, FUNCTION),
        )
    ]


def calls() -> list[Plan]:
    """Return a gate for each of `calls_changed`; the subject is what calls with lengths that the library remembers."""
    return [
        Plan(
            f"calls-{change.name.replace(' ', '-')}",
            "HEAD",
            change.name,
            change.expected,
            "pass" if change.expected == demo.PASSED else "regressed",
            cases="call_attention",
            subject=("same",),
        )
        for change in calls_changed()
    ]


def make_commits(clone: Path, target: str, one_in: int) -> dict[str, str]:
    """Make the commits in the clone; return them by name."""
    # The change names the tile by all its fields.
    kernel = clone / demo.KERNEL
    text = kernel.read_text(encoding="utf-8")
    kernel.write_text(text.replace(IMPORTS, f"import dataclasses\n{IMPORTS}", 1), encoding="utf-8")
    demo.git(clone, "commit", "--quiet", "--all", "--message", "Import dataclasses")
    return {
        "HEAD": demo.git(clone, "rev-parse", "HEAD"),
        "equal": demo.commit(demo.EQUAL, clone),
        "few equal": demo.commit(few_equal(), clone),
        **{change.name: demo.commit(change, clone) for change in calls_changed()},
        "slower": demo.commit(more_tiles(target, one_in), clone),
        "much slower": demo.commit(more_tiles(target, max(1, one_in * 3 // 10)), clone),
    }


def clone_or_copy(clone: Path, console: Console) -> None:
    """Clone HEAD; where there is no repository (a copy of the files on a rented machine), make one of the files."""
    if (ROOT / ".git").exists():
        demo.clone_head(ROOT, clone, console)
        return
    clone.mkdir()
    for name in COPIED:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, clone / name)
    demo.git(clone, "init", "--quiet")
    demo.git(clone, "add", "--all")
    demo.git(clone, "commit", "--quiet", "--message", "The files as they are")


def gate(plan: Plan, commits: dict[str, str], clone: Path, out: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Run one gate; return what it said, beside what is true."""
    command = [sys.executable, "-m", "tilegate.cli", "gate", "--base", commits[plan.base], "--head", commits[plan.head]]
    command += [
        "--target",
        args.target,
        "--tier",
        plan.tier,
        "-b",
        args.bench or plan.cases,
    ]
    command += ["--no-emulate"]  # nothing but time is in question here
    environment = demo.own_environment() | {
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    }
    started = time.monotonic()
    done = subprocess.run(
        [*command, "--out", str(out)], cwd=clone, env=environment, check=False, capture_output=True, text=True
    )
    seconds = time.monotonic() - started
    out.mkdir(parents=True, exist_ok=True)
    (out / "log.txt").write_text(done.stdout + done.stderr, encoding="utf-8")
    shutil.rmtree(out / "logs", ignore_errors=True)
    shutil.rmtree(out / "work", ignore_errors=True)
    found = summarise(plan, done.returncode, seconds, out, plan.subject or SUBJECTS[args.target])
    (out / "summary.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return found


def summarise(plan: Plan, status: int, seconds: float, out: Path, subject: tuple[str, ...]) -> dict[str, Any]:
    """Compare a gate's verdict with what is true, and pack its samples."""
    found: dict[str, Any] = {**dataclasses.asdict(plan), "status": status, "seconds": round(seconds, 1), "right": False}
    try:
        verdict = json.loads((out / "verdict.json").read_text(encoding="utf-8"))
    except OSError:
        return found
    cases = verdict["cases"]
    named = [name for name in cases if all(repr(part) in name for part in subject)]
    called = sorted(name for name, case in cases.items() if case["verdict"] in ("regressed", "improved"))
    changed = sorted(name for name, case in cases.items() if case["role"] == "gated")
    subjects = {name: {k: cases[name][k] for k in ("verdict", "ratio", "interval", "replicates")} for name in named}
    # What the changed kernel is used for may be called; nothing else may. Equal code: nothing at all.
    only_there = not called if plan.expected == 0 and plan.wanted != "improved" else set(called) <= set(changed)
    found |= {
        "verdict": verdict["verdict"],
        "reason": verdict["reason"],
        "subject": subjects,
        "called": {name: cases[name]["ratio"] for name in called},
        "changed": len(changed),
        "controls": verdict["controls"]["count"],
        "cases": len(cases),
        "stages": verdict["stages"],
        "own_seconds": round(sum(verdict["stages"].values()), 1),  # without waiting for other runs on the device
        "right": status == plan.expected
        and only_there
        and {case["verdict"] for case in subjects.values()} == {plan.wanted},
    }
    samples = out / "samples.json"
    with lzma.open(out / "samples.json.xz", "wt", encoding="utf-8", preset=9) as file:
        file.write(json.dumps(json.loads(samples.read_text(encoding="utf-8")), separators=(",", ":")))
    samples.unlink()
    return found


def table(found: list[dict[str, Any]]) -> Table:
    """Return what was found, one gate a row."""
    rows = Table(
        "gate", "verdict", "subject", "ratio", "interval", "also called", "changed", "controls", "seconds", "right"
    )
    for f in found:
        subject = next(iter(f.get("subject", {}).values()), None)
        low, high = subject["interval"] if subject and subject["interval"] else (None, None)
        rows.add_row(
            f["name"],
            f"{f.get('verdict', '?')} ({f['status']})",
            subject["verdict"] if subject else "?",
            f"{100 * (subject['ratio'] - 1):+.2f} %" if subject and subject["ratio"] else "",
            f"{100 * (low - 1):+.2f} … {100 * (high - 1):+.2f} %" if low and high else "",
            str(len(set(f.get("called", {})) - set(f.get("subject", {})))),
            str(f.get("changed", "")),
            str(f.get("controls", "")),
            f"{f['seconds']:.0f}",
            "yes" if f["right"] else "NO",
        )
    return rows


def main() -> int:
    """Run the gates that are not there yet; return 0 if all were right."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", choices=tuple(SUBJECTS), required=True)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--rounds", type=int, default=5, help="gates of each kind (default: 5)")
    parser.add_argument("--minutes", type=float, default=60.0, help="start no further gate after this long")
    parser.add_argument("--one-in", type=int, default=36, metavar="N", help="additional key tiles (default: 1 in 36)")
    parser.add_argument("-b", "--bench", metavar="REGEX", help="other cases than the subject's and some beside it")
    parser.add_argument(
        "--whole", action="store_true", help="two gates over the largest tier (on a CPU: smoke) between equal commits"
    )
    parser.add_argument("--calls", action="store_true", help="gates of what calls cost their caller")
    parser.add_argument("--toy", action="store_true", help="for a noisy CPU: one more key tile in 4")
    args = parser.parse_args()
    out = args.out.resolve()
    console = Console(width=150)
    started = time.monotonic()
    found: list[dict[str, Any]] = []
    try:
        with tempfile.TemporaryDirectory(prefix="tilegate-proof-") as folder:
            clone = Path(folder, "tilekernels")
            clone_or_copy(clone, console)
            commits = make_commits(clone, args.target, 4 if args.toy else args.one_in)
            for plan in whole(args.target) if args.whole else calls() if args.calls else plans(args.rounds):
                finished = out / plan.name / "summary.json"
                if finished.is_file():
                    found.append(json.loads(finished.read_text(encoding="utf-8")))
                    continue
                if time.monotonic() - started > 60 * args.minutes:
                    console.print(
                        f"{plan.name}: not started, {args.minutes:g} minutes are over; the same command continues"
                    )
                    continue
                found.append(gate(plan, commits, clone, out / plan.name, args))
                console.print(f"{plan.name}: {found[-1].get('verdict', 'none')}, {found[-1]['seconds']} s")
    except demo.DemoError as error:
        console.print(f"stopped: {error}", style="red", markup=False)
        return 2
    out.mkdir(parents=True, exist_ok=True)
    (out / "summary.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    console.print(table(found))
    return 0 if found and all(f["right"] for f in found) else 1


if __name__ == "__main__":
    sys.exit(main())
