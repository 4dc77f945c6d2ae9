"""`tilegate emulate`: every kernel for an AMD chip, executed on any machine on small problems of the suite.

`tilegate.emulator` executes one kernel and knows no suite; this layer generates the kernels of a revision, gives them the
suite's arguments, compares what they compute with the suite's reference, and keeps the results.
"""

from __future__ import annotations

import argparse


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `tilegate emulate` to the command line."""
    from tilegate.emulate import command  # noqa: PLC0415 - `import tilegate.emulate.x` must stay light

    command.add_parser(subparsers)


def run(args: argparse.Namespace) -> int:
    """Carry out `tilegate emulate`; see `tilegate.emulate.command.run`."""
    from tilegate.emulate import command  # noqa: PLC0415

    return command.run(args)
