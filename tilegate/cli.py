"""The `tilegate` command. Imports a subcommand's module only when that one is used."""

from __future__ import annotations

import argparse
import importlib
import shlex
import sys
from collections.abc import Sequence

from tilegate import __version__
from tilegate.files import UsageError

EXIT_USAGE, EXIT_INTERRUPTED = 2, 130

_COMMANDS = {
    "gate": "measure one revision against another, and judge",
    "judge": "recompute the verdict from a samples file",
    "doctor": "show what this machine can measure, and what is missing",
    "isa": "show what the compiler made of every kernel, for chips that need not be here",
}
_DESCRIPTION = "Decides whether a change made a kernel slower: by measuring both revisions in turns on one device."
_EPILOG = """\
start here:
  tilegate doctor                             what can be measured on this machine?
  tilegate gate --base main --head HEAD       is this branch slower than main?
  tilegate gate --base HEAD --head WORKTREE   are my uncommitted changes slower?
  tilegate judge .tilegate/RUN/samples.json   the same verdict again, from the samples alone
  tilegate isa                                registers, LDS and occupancy of every kernel on the MI300X

`tilegate COMMAND --help` has the options and more examples.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's); return the exit code."""
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
            importlib.import_module(f"tilegate.{name}").add_parser(subparsers)
        else:
            subparsers.add_parser(name, help=summary)
    args = parser.parse_args(arguments)
    args.resume = shlex.join(["tilegate", *arguments])
    try:
        return int(importlib.import_module(f"tilegate.{args.command}").run(args))
    except UsageError as error:
        print(f"tilegate: {error}", file=sys.stderr)
        return EXIT_USAGE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
