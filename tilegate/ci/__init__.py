"""What GitHub's workflows do, as commands that can be run and tested anywhere; the workflow files only call them.

`plan` and `run` see code of strangers and hold no rights. `report`, `publish` and `triage` hold rights and run no code of
strangers: what they get from the others is read as if an enemy had written it. docs/security.md has the whole argument.
"""

from __future__ import annotations

import argparse


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `tilegate ci` to the command line."""
    from tilegate.ci import command  # noqa: PLC0415 - `import tilegate.ci.x` must stay light

    command.add_parser(subparsers)


def run(args: argparse.Namespace) -> int:
    """Carry out `tilegate ci`; see `tilegate.ci.command.run`."""
    from tilegate.ci import command  # noqa: PLC0415

    return command.run(args)
