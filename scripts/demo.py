"""Show the gate at work: one commit that makes the attention kernel slower, one that changes it and does not.

`make demo` runs it. Both commits are made in a temporary clone of this repository at HEAD and gated on the CPU target;
the clone is removed afterwards, the reports stay. Exit status: 0 if the gate stopped the first and passed the second.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.panel import Panel

ROOT = Path(__file__).resolve().parents[1]
KERNEL = "tilekernels/kernels/attention_forward.py"
PASSED, REGRESSED = 0, 1
# Enough to see both outcomes in minutes: prompts under the causal mask, and one case that neither has a mask nor is
# touched by the slower commit.
CASES = r"-(s96|s127|s128|s64-full)', 'adaptive'"
FAULTS = (2, 3)  # of the call or the kernel; no noise leads to these


class DemoError(Exception):
    """The demonstration cannot be given; the message says why and what to do."""


@dataclass(frozen=True)
class Change:
    """A commit to gate.

    Attributes:
        name: of the folder with its report.
        message: of the commit.
        why: a sentence for the audience.
        before: text that is replaced; occurs exactly once.
        after: its replacement.
        expected: the gate's exit status.
        path: of the file that has the text.
    """

    name: str
    message: str
    why: str
    before: str
    after: str
    expected: int
    path: str = KERNEL


SLOWER = Change(
    name="slower",
    message="Walk over all key tiles",
    why="Under the causal mask it also computes the tiles that the mask then hides. Every result stays right.",
    before="visible = T.ceildiv(T.max(1, T.min(seqlen_k, reach + block_m)), block_n)",
    after="visible = T.ceildiv(seqlen_k, block_n)",
    expected=REGRESSED,
)
EQUAL = Change(
    name="equal",
    message="Swap the cases of a row that sees nothing and one that does",
    why="The generated code is another one, so every case has to be measured; the work is the same.",
    before="out[m, d] = T.if_then_else(row_sum[m] == 0, 0.0, out[m, d] / row_sum[m])",
    after="out[m, d] = T.if_then_else(row_sum[m] != 0, out[m, d] / row_sum[m], 0.0)",
    expected=PASSED,
)


def main(arguments: list[str] | None = None) -> int:
    """Give the demonstration; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=ROOT / ".tilegate" / "demo", help="where the reports go")
    out = parser.parse_args(arguments).out.resolve()
    console = Console()
    started = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="tilegate-demo-") as folder:
            clone = clone_head(ROOT, Path(folder, "tilekernels"), console)
            kept = [give(change, clone, out / change.name, console) for change in (SLOWER, EQUAL)]
    except DemoError as error:
        console.print(f"[bold red]The demo stopped:[/] {escape(str(error))}")
        return 1
    except KeyboardInterrupt:
        console.print("interrupted; the temporary clone is removed")
        return 130
    console.print(f"\nBoth took {time.monotonic() - started:.0f} s.", highlight=False)
    return 0 if all(kept) else 1


def clone_head(repository: Path, clone: Path, console: Console) -> Path:
    """Clone the last commit of `repository`, shallow or not, into `clone`; say so if there is newer, uncommitted work.

    Raises:
        DemoError: there is no git or no commit.
    """
    head = git(repository, "rev-parse", "--short", "HEAD")
    console.print(f"Cloning this repository at HEAD ({head})")
    if git(repository, "status", "--porcelain", "--untracked-files=no"):
        console.print("[yellow]There are uncommitted changes: the demo shows HEAD without them.[/]")
    git(repository, "clone", "--quiet", "--depth", "1", repository.as_uri(), str(clone))
    return clone


def commit(change: Change, clone: Path) -> str:
    """Commit `change` on top of the clone's first commit and return the new commit; the branch itself stays.

    Raises:
        DemoError: the text that the change replaces is not in the file (any more), or not once.
    """
    file = clone / change.path
    source = file.read_text(encoding="utf-8") if file.is_file() else ""
    if source.count(change.before) != 1:
        raise DemoError(f"{change.path} does not hold {change.before!r} exactly once; adapt the script to the file")
    git(clone, "checkout", "--quiet", "--detach")
    file.write_text(source.replace(change.before, change.after), encoding="utf-8")
    git(clone, "commit", "--quiet", "--message", change.message, "--", change.path)
    made = git(clone, "rev-parse", "HEAD")
    git(clone, "checkout", "--quiet", "HEAD^")
    return made


def give(change: Change, clone: Path, out: Path, console: Console) -> bool:
    """Make and gate one commit, show what the gate said, and tell whether it is what it should say."""
    base, head = git(clone, "rev-parse", "HEAD"), commit(change, clone)
    console.rule(f"[bold]{escape(change.message)}")
    console.print(escape(change.why))
    console.print(f"[red]- {escape(change.before)}[/]\n[green]+ {escape(change.after)}[/]\n", highlight=False)
    tilegate = Path(sys.executable).with_name("tilegate")
    command = [str(tilegate), "gate", "--base", base, "--head", head, "--target", "cpu", "--tier", "smoke", "-b", CASES]
    command.append("--no-emulate")  # both commits change every kernel of the MI300X as well, and here it is about time
    if not tilegate.is_file():
        raise DemoError(f"{tilegate} is not there; run `make setup`")
    status = subprocess.run(
        [*command, "--fresh", "--out", str(out)], cwd=clone, env=own_environment(), check=False
    ).returncode
    kept = status == change.expected
    colour, said = {PASSED: ("green", "PASSED"), REGRESSED: ("red", "STOPPED")}.get(
        status, ("yellow", "DID NOT DECIDE")
    )
    lines = [f"The gate [bold {colour}]{said}[/] this commit (exit status {status}).", *reason(out)]
    if not kept:
        lines.append(
            "[bold yellow]It should have " + ("stopped" if change.expected == REGRESSED else "passed") + " it.[/]"
        )
        if status not in FAULTS:
            lines.append("[yellow]A busy machine measures badly: close what else is running and try again.[/]")
    if (out / "report.md").is_file():
        lines.append(f"Report: {escape(str(out / 'report.md'))}")
    console.print(Panel("\n".join(lines), border_style=colour))
    return kept


def reason(out: Path) -> list[str]:
    """Return the sentence in which the verdict says why, if the gate came that far."""
    try:
        return [escape(json.loads((out / "verdict.json").read_text(encoding="utf-8"))["reason"])]
    except (OSError, ValueError, KeyError):
        return []


def git(folder: Path, *arguments: str) -> str:
    """Run git in `folder`, as nobody in particular and without hooks, and return what it prints.

    Raises:
        DemoError: git is missing or fails.
    """
    identity = ["-c", "user.name=demo", "-c", "user.email=demo@localhost"]
    plain = ["-c", "core.hooksPath=/dev/null", "-c", "commit.gpgSign=false"]
    command = ["git", "-C", str(folder), *identity, *plain, *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=own_environment())
    except FileNotFoundError:
        raise DemoError("git is not on PATH") from None
    except subprocess.CalledProcessError as error:
        raise DemoError(f"git {arguments[0]} failed: {error.stderr.strip()}") from None
    return done.stdout.strip()


def own_environment() -> dict[str, str]:
    """Return the environment without git's variables: those of a hook that this runs in name another repository."""
    return {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}


if __name__ == "__main__":
    sys.exit(main())
