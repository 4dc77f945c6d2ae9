"""`python -m tilegate`, and the command itself: an interrupt while its modules are imported ends it as any other does."""

import sys


def main() -> int:
    """Run the command line; return the exit code."""
    try:
        from tilegate.cli import main as run  # noqa: PLC0415 - takes a moment, in which Ctrl-C may come

        return run()
    except KeyboardInterrupt:
        sys.stderr.write("tilegate: interrupted\n")
        return 130


if __name__ == "__main__":
    sys.exit(main())
