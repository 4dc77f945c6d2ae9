"""Static checks of compiled AMD kernels, on machines without an AMD GPU.

Generated HIP text is compiled to instructions by hipcc or by a plain clang, and what decides speed and launchability is
read from the result: registers, LDS, occupancy, spills, instruction counts, an estimate of the main loop's time by unit.
docs/isa.md explains every number and rule.
"""

from __future__ import annotations

import argparse


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `tilegate isa` to the command line."""
    from tilegate.isa import command  # noqa: PLC0415 - `import tilegate.isa.x` must stay light

    command.add_parser(subparsers)


def run(args: argparse.Namespace) -> int:
    """Carry out `tilegate isa`; see `tilegate.isa.command.run`."""
    from tilegate.isa import command  # noqa: PLC0415

    return command.run(args)
