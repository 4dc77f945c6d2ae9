"""Virtual time for the toy's kernels, in worker processes that have this folder on PYTHONPATH.

A kernel that sleeps takes exactly that long, give or take a little noise, however busy the machine is, and no time at
all passes: so verdicts can be asserted, and quickly.
"""

import itertools
import os
import random
import sys
import time

if "tilegate.worker" in sys.orig_argv:
    _now = itertools.count(step=1000)  # a look at the clock takes a microsecond, too
    _slept = [0]
    _noise = random.Random(os.getpid())  # noqa: S311 - not for secrets

    def _sleep(seconds):
        _slept[0] += int(seconds * 1e9 * _noise.gauss(1.0, 0.002))

    time.perf_counter_ns, time.sleep = lambda: next(_now) + _slept[0], _sleep

    from tilegate.protocol import clocks  # takes its functions from `time` now

    clocks._CPU_FLUSH_LIMIT = 4096
