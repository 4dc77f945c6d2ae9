"""Heads of this repository that only look fast, gated on a device: none may pass or improve, and no honest one be broken.

    python scripts/proof/fooling.py --target cuda [--case REGEX] [--only TEXT] [--out DIR]

fooling.toml beside this file has the heads. Prints a line for each as it is done; ends with 1 if one is judged wrongly.
tests/tilegate/fooling has the larger corpus, of a library on the CPU.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import textwrap
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILE = "tilekernels/forward.py"
LAUNCH = "        (self._compiled or self.compile())[0](q, k, v, out, lse, softmax_scale)\n"
CASES = {"cpu": r"s127', 'adaptive'", "cuda": r"b1-s1024', 'adaptive'", "hip": r"b1-s1024', 'adaptive'"}


def main() -> int:
    """Gate every head; return 1 if one is judged wrongly."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", choices=tuple(CASES), default="cpu")
    parser.add_argument("--case", metavar="REGEX", help="which case (default: one short prompt, adaptive tiles)")
    parser.add_argument("--only", metavar="TEXT", default="", help="only heads that have this in their name")
    parser.add_argument("--out", type=Path, metavar="DIR", help="keep the gates' output here")
    arguments = parser.parse_args()
    heads = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))["head"]
    chosen = [h for h in heads if arguments.only in h["name"] and (arguments.target != "cpu" or not h.get("gpu"))]
    wrong = 0
    with tempfile.TemporaryDirectory() as scratch:
        clone = Path(scratch) / "clone"
        subprocess.run(["git", "clone", "--quiet", ROOT.as_uri(), str(clone)], check=True)
        base = _git(clone, "rev-parse", "HEAD")
        for number, head in enumerate(chosen):
            started = time.monotonic()
            _git(clone, "checkout", "--quiet", "--detach", base)
            text = (clone / FILE).read_text(encoding="utf-8")
            if text.count(LAUNCH) != 1:
                sys.exit(f"{FILE} does not start its kernel as this script expects; adapt LAUNCH")
            body = textwrap.indent(head["code"].replace("RUN", LAUNCH.strip()), " " * 8)
            (clone / FILE).write_text(text.replace(LAUNCH, body), encoding="utf-8")
            _git(clone, "commit", "--quiet", "--all", "--message", head["name"])
            out = (arguments.out or Path(scratch)).resolve() / f"head-{number}"
            said, why = _gate(clone, base, arguments, out)
            right = said in head["may"]
            wrong += not right
            mark = "ok   " if right else "WRONG"
            print(f"{mark} {said:12} {time.monotonic() - started:5.1f} s  {head['name']}: {why}", flush=True)
    print(f"{len(chosen) - wrong} of {len(chosen)} judged rightly", flush=True)
    return int(wrong > 0)


def _gate(clone: Path, base: str, arguments: argparse.Namespace, out: Path) -> tuple[str, str]:
    """Return the verdict on the clone's head, and the first line of why."""
    command = [sys.executable, "-m", "tilegate", "gate", "--repo", str(clone), "--base", base, "--head", "HEAD"]
    command += ["--target", arguments.target, "--tier", "smoke", "-b", arguments.case or CASES[arguments.target]]
    command += ["--no-emulate", "--fresh", "--json", "--out", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if not done.stdout:
        return "no verdict", done.stderr.strip().splitlines()[-1][:200]
    verdict = json.loads(done.stdout)
    (entry,) = list(verdict["cases"].values())[:1]
    failure = entry["failure"]
    return verdict["verdict"], (failure["message"] if failure else entry["reason"]).splitlines()[0][:160]


def _git(clone: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=proof", "-c", "user.email=proof@example.invalid")
    done = subprocess.run(["git", *identity, *arguments], cwd=clone, capture_output=True, text=True, check=True)
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
