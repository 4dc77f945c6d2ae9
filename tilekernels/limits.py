"""What a chip asks of any kernel, whatever it computes: shared memory, threads, registers."""

from __future__ import annotations

from tilekernels.chips import Chip


def broken_limits(chip: Chip, *, threads: int, shared_bytes: int, registers: int = 0) -> tuple[str, ...]:
    """The limits of a chip that a workgroup would break, each a sentence; empty when it fits.

    Args:
        chip: where it is to run.
        threads: of the workgroup.
        shared_bytes: of shared memory (LDS); on the CPU, of arrays on the stack.
        registers: 32-bit registers a lane, if there is an estimate.
    """
    broken = []
    if shared_bytes > chip.lds_bytes:
        broken.append(f"needs {shared_bytes} bytes of shared memory, a workgroup has {chip.lds_bytes}")
    if threads > chip.max_threads:
        broken.append(f"{threads} threads, a workgroup has at most {chip.max_threads}")
    if threads % chip.wavefront:
        broken.append(f"{threads} threads are not whole wavefronts of {chip.wavefront}")
    if registers > chip.registers_per_lane:
        broken.append(f"needs about {registers} registers a lane, there are {chip.registers_per_lane}")
    if chip.kind != "cpu" and threads < 64:
        broken.append(f"{threads} threads: TileLang's gemm needs 64 (it ends the process otherwise)")
    return tuple(broken)
