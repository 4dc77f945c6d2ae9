"""`python -m tilegate` is `tilegate`."""

import sys

from tilegate.cli import main

if __name__ == "__main__":
    sys.exit(main())
