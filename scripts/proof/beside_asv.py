"""Give `asv continuous --interleave-rounds` and `tilegate gate` the same commits, cases and machine: time and decisions.

    python scripts/proof/beside_asv.py --target cpu --toy --out DIR

The commits are those of on_device.py: equal code under another text, and more work in one kernel. asv measures with two
rounds, without which it has nothing to interleave; its decision is shown with its own factor of 1.1 and with a smaller one,
from the same results.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console

sys.path[:0] = [str(Path(__file__).parent)]

import on_device  # noqa: E402
from on_device import SUBJECTS, TIER, demo  # noqa: E402

ROUNDS = 2
_ROW = re.compile(r"^\|\s*(?P<mark>[-+!x*~]?)\s*\|(?P<cells>.*)\|\s*$")


def asv(clone: Path, home: Path, target: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run asv in the clone, with a home of its own so that it neither reads nor changes the user's settings."""
    environment = demo.own_environment() | {
        "HOME": str(home),
        "TILEGATE_TARGET": target,
        "TILEGATE_TIER": TIER,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(clone), os.environ.get("PYTHONPATH")])),
    }
    command = [sys.executable, "-m", "asv", *arguments]
    return subprocess.run(command, cwd=clone, env=environment, capture_output=True, text=True, check=False)


def rows(text: str) -> list[tuple[str, str, str]]:
    """Return (mark, ratio, benchmark) of each row of a table of asv's."""
    found = []
    for line in text.splitlines():
        match = _ROW.match(line)
        if match and not line.startswith(("| Change", "|-")):
            *_, ratio, benchmark = (cell.strip() for cell in match["cells"].split("|"))
            found.append((match["mark"], ratio, benchmark))
    return found


def ask_asv(clone: Path, home: Path, args: argparse.Namespace, base: str, head: str) -> dict[str, Any]:
    """Let asv compare two commits; return its time, exit status and what it called."""
    started = time.monotonic()
    cases = args.bench or on_device.CASES
    done = asv(
        clone,
        home,
        args.target,
        *("continuous", "--interleave-rounds", "-a", f"rounds={ROUNDS}", "-b", cases, base, head),
    )
    seconds = time.monotonic() - started
    answers = {"1.1": done}
    for factor in args.factors:
        answers[f"{factor:g}"] = asv(clone, home, args.target, "compare", "--factor", f"{factor:g}", base, head)
    if done.returncode not in (0, 1):
        raise demo.DemoError(f"asv failed ({done.returncode}): {(done.stdout + done.stderr)[-2000:]}")
    called = {
        factor: {
            "slower": [(name, ratio) for mark, ratio, name in rows(answer.stdout) if mark == "+"],
            "faster": [(name, ratio) for mark, ratio, name in rows(answer.stdout) if mark == "-"],
        }
        for factor, answer in answers.items()
    }
    return {"seconds": round(seconds, 1), "status": done.returncode, "called": called, "log": done.stdout[-6000:]}


def describe(name: str, subject: tuple[str, str], asked: dict[str, Any], gated: dict[str, Any]) -> list[str]:
    """Return the lines of the table for one pair of commits."""

    def says(called: dict[str, Any]) -> str:
        shown = []
        for way in ("slower", "faster"):
            on_subject = [ratio for case, ratio in called[way] if all(repr(part) in case for part in subject)]
            others = len(called[way]) - len(on_subject)
            shown += [f"subject {way} ({', '.join(on_subject)})"] * bool(on_subject)
            shown += [f"{others} other {way}"] * bool(others)
        return ", ".join(shown) or "nothing changed"

    lines = [
        f"| {name} | asv continuous, factor {factor} | {asked['seconds']:.0f} s | {says(called)} |"
        for factor, called in asked["called"].items()
    ]
    ratio = {key: f"{case['ratio']:.2f}" for key, case in gated["subject"].items() if case["ratio"]}
    verdicts = ", ".join(f"subject {case['verdict']} ({ratio.get(key, '')})" for key, case in gated["subject"].items())
    others = len(set(gated["called"]) - set(gated["subject"]))
    lines.append(
        f"| {name} | tilegate gate: {gated['verdict']} | {gated['own_seconds']:.0f} s | {verdicts}, {others} other called |"
    )
    return lines


def main() -> int:
    """Ask both about both pairs of commits; print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", choices=tuple(SUBJECTS), required=True)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--one-in", type=int, default=36, metavar="N", help="additional key tiles (default: 1 in 36)")
    parser.add_argument("--factors", type=float, nargs="*", default=[1.02], help="of asv, beside 1.1 (default: 1.02)")
    parser.add_argument("-b", "--bench", metavar="REGEX", help="other cases")
    parser.add_argument("--toy", action="store_true", help="for a noisy CPU: one more key tile in 4")
    args = parser.parse_args()
    out, console = args.out.resolve(), Console(stderr=True)
    found, lines = [], ["| commits | who | time | says |", "|---|---|--:|---|"]
    try:
        with tempfile.TemporaryDirectory(prefix="tilegate-asv-") as folder:
            clone, home = Path(folder, "tilekernels"), Path(folder, "home")
            home.mkdir()
            on_device.clone_or_copy(clone, console)
            commits = on_device.make_commits(clone, args.target, 4 if args.toy else args.one_in)
            # asv looks commits up on branches, and measures the suite that is checked out.
            for name, commit in commits.items():
                demo.git(clone, "branch", name.replace(" ", "-") + "-proof", commit)
            asv(clone, home, args.target, "machine", "--yes")
            for head, expected, wanted in (("slower", 1, "regressed"), ("equal", 0, "pass")):
                plan = on_device.Plan(head, "HEAD", head, expected, wanted)
                asked = ask_asv(clone, home, args, commits["HEAD"], commits[head])
                console.print(f"asv: {asked['seconds']} s, exit status {asked['status']}")
                gated = on_device.gate(plan, commits, clone, out / head, args)
                if "verdict" not in gated:
                    raise demo.DemoError(f"the gate ended with {gated['status']}; see {out / head / 'log.txt'}")
                console.print(f"tilegate: {gated['own_seconds']} s, {gated['verdict']}")
                found.append({"commits": head, "asv": asked, "tilegate": gated})
                lines += describe(f"HEAD → {head}", SUBJECTS[args.target], asked, gated)
    except demo.DemoError as error:
        console.print(f"stopped: {error}", style="red", markup=False)
        return 2
    (out / "beside_asv.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
