"""How warpgroups share the registers of a Hopper multiprocessor on which several workgroups are to run at a time."""

PRODUCER_REGISTERS = 24
"""What a warpgroup keeps that only loads: TileLang's own number, and the least that setmaxnreg takes."""

_REGISTERS = 1 << 16  # of a multiprocessor
_WARPGROUP = 128


def consumer_registers(threads: int, resident: int) -> int:
    """Registers of a lane that computes, beside one warpgroup that loads, with `resident` workgroups a multiprocessor.

    A workgroup starts with the same number for every lane, a multiple of 8 (CUDA C++ Programming Guide, compute capability
    9.0), and may deal out among its warpgroups no more than that: setmaxnreg waits for ever for what the pool has not.

    Args:
        threads: that compute.
        resident: workgroups.
    """
    all_threads = threads + _WARPGROUP
    pool = _REGISTERS // resident // all_threads // 8 * 8 * all_threads
    return min(240, (pool - PRODUCER_REGISTERS * _WARPGROUP) // threads // 8 * 8)
