"""The `tilegate` command. Imports a subcommand's module only when that one is used."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import os
import shlex
import sys
import traceback
from collections.abc import Sequence
from types import ModuleType

from tilegate import __version__
from tilegate.files import UsageError

EXIT_USAGE, EXIT_INTERRUPTED = 2, 130
EXIT_FAILED = 70  # tilegate itself failed. Python's own 1 for that would read as "regressed".

_COMMANDS = {
    "gate": "measure one revision against another, and judge",
    "judge": "recompute the verdict from a samples file",
    "calibrate": "measure how noisy this machine is, on identical code",
    "doctor": "show what this machine can measure, and what is missing",
    "environment": "show this machine as an issue needs it, without anything private",
    "repro": "write a folder that reproduces a case with torch and tilelang alone",
    "history": "when did it get slower, by how much, and is it still so?",
    "bisect": "which commit made a case slower?",
    "site": "the history as a dashboard of static pages",
    "profile": "read hardware counters of one case, by ncu or rocprofv3",
    "report": "write the report that an upstream project asks for",
    "ci": "what GitHub's workflows do: plan, run, report, publish, triage",
    "isa": "show what the compiler made of every kernel, for chips that need not be here",
    "emulate": "execute kernels for chips that are not here, and check what they compute",
}
_ROOMS = ("ci", "isa", "emulate")  # commands of many modules, each a package of its own
_DESCRIPTION = "Decides whether a change made a kernel slower: by measuring both revisions in turns on one device."
_EPILOG = """\
start here:
  tilegate doctor                             what can be measured on this machine?
  tilegate gate --base main --head HEAD       is this branch slower than main?
  tilegate gate --base HEAD --head WORKTREE   are my uncommitted changes slower?
  tilegate judge .tilegate/RUN/samples.json   the same verdict again, from the samples alone
  tilegate isa                                registers, LDS and occupancy of every kernel on the MI300X
  tilegate emulate                            its HIP code executed on this CPU: races, wrong values
  tilegate calibrate                          how small a slowdown can this machine show?

`tilegate COMMAND --help` has the options and more examples.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's); return the exit code, `EXIT_FAILED` on any exception."""
    try:
        return _main(argv)
    except KeyboardInterrupt:
        print("tilegate: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED


def _main(argv: Sequence[str] | None) -> int:
    _open_standard_streams()
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(
        prog="tilegate",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"tilegate {__version__}")
    subparsers = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND", required=True)
    wanted = next((argument for argument in arguments if not argument.startswith("-")), None)
    for name, summary in _COMMANDS.items():
        if name == wanted:
            _module(name).add_parser(subparsers)
        else:
            subparsers.add_parser(name, help=summary)
    args = parser.parse_args(arguments)
    args.resume = shlex.join(["tilegate", *arguments])
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a verdict is shown on an ASCII terminal as well
    try:
        status = int(_module(args.command).run(args))
        sys.stdout.flush()
    except UsageError as error:
        print(f"tilegate: {error}", file=sys.stderr)
        return EXIT_USAGE
    except OSError as error:
        print(f"tilegate: stopped without a verdict: {error}", file=sys.stderr)
        _drop_output()
        return EXIT_FAILED
    except Exception:
        traceback.print_exc()
        print("tilegate: stopped without a verdict, by a defect of tilegate; please report it", file=sys.stderr)
        return EXIT_FAILED
    return status


def _module(command: str) -> ModuleType:
    room = command if command in _ROOMS else f"commands.{command}"
    return importlib.import_module(f"tilegate.{room}")


def _open_standard_streams() -> None:
    """Open what the caller has closed (`>&-`): the next file that is opened would take its place, and get the output."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)  # the lowest that is free
            if descriptor != number:
                os.dup2(descriptor, number)
            setattr(sys, name, open(number, "r" if number == 0 else "w", encoding="utf-8", closefd=False))  # noqa: SIM115
            if number == 1:
                print("tilegate: standard output is closed, so nothing is shown; >/dev/null says so", file=sys.stderr)


def _drop_output() -> None:
    """Let go of output that cannot be written, which Python would try again at its end, and exit with 120."""
    with contextlib.suppress(OSError, ValueError):  # ValueError: it has no descriptor
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
