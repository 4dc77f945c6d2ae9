"""The process under a profiler: sets one case up, launches it a few times, and once more where the profiler looks.

    python -P -m tilegate.worker.launch SUITE SUITE_ROOT PACKAGE PACKAGE_ROOT CASE KERNELS_FILE

Writes the names of the case's kernels to KERNELS_FILE, one a line: a profiler that cannot be told when to look records all
launches of the process, and theirs are the last.
"""

from __future__ import annotations

import sys
from pathlib import Path

_WARM_UP = 3
"""Launches before the one that counts: the first loads the code and allocates."""


def main() -> None:
    """Launch the case named on the command line."""
    import torch  # noqa: PLC0415 - the protocol is imported without it

    from tilegate.worker.suite import Side  # noqa: PLC0415

    suite, suite_root, package, package_root, case, names = sys.argv[1:7]
    side = Side(suite, suite_root, package, package_root)
    side.load()
    side.setup(case)
    Path(names).write_text("\n".join(str(made["name"]) for made in side.generated(case)), encoding="utf-8")
    side.launch(_WARM_UP)
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStart()
    side.launch(1)
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStop()
    side.teardown()


if __name__ == "__main__":
    main()
