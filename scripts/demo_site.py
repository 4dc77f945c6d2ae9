"""Show the dashboard: a small history, really measured on the CPU, with a release, a slower kernel and its repair.

`make site` runs it. The commits are made in a temporary clone of this repository at HEAD. `tilegate history update
--plan` finds which of them have other code; a gate measures each of those, and `tilegate history import` keeps what it found. The
clone is removed afterwards, history and pages stay. Exit status: 0 if the pages were written.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from demo import CASES, EQUAL, FAULTS, ROOT, SLOWER, DemoError, clone_head, git, own_environment
from rich.console import Console
from rich.markup import escape

PROSE = "README.md"


def main(arguments: list[str] | None = None) -> int:
    """Make the history and its pages; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=ROOT / ".tilegate" / "demo-site", help="where history and pages go")
    parser.add_argument("--no-open", action="store_true", help="only write the pages")
    args = parser.parse_args(arguments)
    out = args.out.resolve()
    console = Console(highlight=False)
    started = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="tilegate-site-") as folder:
            clone = clone_head(ROOT, Path(folder, "tilekernels"), console)
            changed = grow(clone, console)
            store = str(out / "history")
            place = ("--repo", str(clone), "--store", store)
            tilegate("history", "update", *place, "--target", "cpu", "--minutes", "60", "--plan")
            for sha in changed:
                samples = measure(clone, sha, out / sha[:12])
                tilegate("history", "import", *place, str(samples))
            tilegate("history", "regressions", *place, expected=(0, 1))
        what = "build" if args.no_open else "open"
        tilegate("site", what, "--store", store, "--out", str(out / "site"), "--title", "tilekernels on a CPU")
    except DemoError as error:
        console.print(f"[bold red]It stopped:[/] {escape(str(error))}")
        return 1
    except KeyboardInterrupt:
        console.print("interrupted; the temporary clone is removed, what was measured is kept")
        return 130
    console.print(f"It took {time.monotonic() - started:.0f} s. Pages: {escape(str(out / 'site' / 'index.html'))}")
    return 0


def grow(clone: Path, console: Console) -> list[str]:
    """Commit on the clone's branch after a release: prose, an equal kernel, prose, a slower kernel, prose.

    Returns:
        The commits that change the kernel.

    Raises:
        DemoError: a file does not hold what a change replaces.
    """
    git(clone, "tag", "v1")
    changed = []
    for change in (None, EQUAL, None, SLOWER, None):
        path = PROSE if change is None else change.path
        file = clone / path
        source = file.read_text(encoding="utf-8")
        if change is not None and source.count(change.before) != 1:
            raise DemoError(f"{path} does not hold {change.before!r} exactly once; adapt the script to the file")
        file.write_text(
            f"{source}\n" if change is None else source.replace(change.before, change.after), encoding="utf-8"
        )
        message = "Edit the README" if change is None else change.message
        git(clone, "commit", "--quiet", "--message", message, "--", path)
        console.print(f"{git(clone, 'rev-parse', '--short', 'HEAD')} {escape(message)}")
        if change is not None:
            changed.append(git(clone, "rev-parse", "HEAD"))
    return changed


def measure(clone: Path, sha: str, out: Path) -> Path:
    """Gate a commit against its parent; return what was measured."""
    tilegate(
        *("gate", "--repo", str(clone), "--base", f"{sha}^", "--base-exact", "--head", sha, "--target", "cpu", "--tier", "smoke"),
        *("-b", CASES, "--no-emulate", "--budget", "6", "--out", str(out)),
        expected=tuple(status for status in range(6) if status not in FAULTS),
    )  # fmt: skip
    return out / "samples.json"


def tilegate(*arguments: str, expected: tuple[int, ...] = (0,)) -> None:
    """Run a command of tilegate.

    Raises:
        DemoError: it failed.
    """
    program = Path(sys.executable).with_name("tilegate")
    if not program.is_file():
        raise DemoError(f"{program} is not there; run `make setup`")
    done = subprocess.run([str(program), *arguments], env=own_environment(), check=False)
    if done.returncode == 130:
        raise KeyboardInterrupt
    if done.returncode not in expected:
        raise DemoError(f"tilegate {' '.join(arguments[:2])} ended with exit status {done.returncode}")


if __name__ == "__main__":
    sys.exit(main())
