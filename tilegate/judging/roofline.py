"""The shortest time that a chip can take for a known amount of work. What is measured below it was not measured.

For devices whose peaks are known and work that the suite states (tilegate.protocol.work). The bounds are generous on
purpose: the fastest dense number format at the highest clock, whatever format the kernel uses, and memory that serves
only what does not fit into the last cache, since output may still lie there when the kernel ends. They catch a kernel that
did not run and a clock that lies, not an optimistic count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilegate.schemas.samples import Environment, Work

_MIB = 2**20


@dataclass(frozen=True)
class Peak:
    """What a device cannot exceed.

    Attributes:
        device: what its name, as torch gives it, begins with.
        flops: operations a second.
        bandwidth: bytes a second between memory and chip.
        cache: bytes that its last cache holds.
    """

    device: str
    flops: float
    bandwidth: float
    cache: float


PEAKS = (
    # 132 multiprocessors of 8,192 FP8 operations a cycle, which is the data sheet's 1,979 TFLOP/s (dense) at 1.83 GHz, at
    # the 1.98 GHz that the driver names as maximum; 4.8 TB/s: NVIDIA H200 data sheet. The whole GH100 has 60 MB of L2:
    # NVIDIA H100 Tensor Core GPU Architecture.
    Peak("NVIDIA H200", flops=132 * 8192 * 1.98e9, bandwidth=4.8e12, cache=60 * _MIB),
    # AMD CDNA 3 white paper of 2025, endnotes MI300-13 and MI325-019, for both: 304 compute units of 4,096 FP8 operations a
    # cycle at 2.1 GHz (2,614.9 TFLOP/s); 5.325 TB/s. 256 MB Infinity Cache and 4 MB of L2 in each of 8 XCDs: ROCm's table of
    # GPU hardware specifications. Names of AMD's devices: libdrm's amdgpu.ids, which ROCm reads.
    Peak("AMD Instinct MI300X", flops=304 * 4096 * 2.1e9, bandwidth=5.325e12, cache=(256 + 8 * 4) * _MIB),
    # The same chip; 6 TB/s: endnote MI325-001A.
    Peak("AMD Instinct MI325X", flops=304 * 4096 * 2.1e9, bandwidth=6.0e12, cache=(256 + 8 * 4) * _MIB),
    # Each of the two dies is a device: 110 of the 220 compute units, of 1,024 FP16, BF16 or INT8 operations a cycle at 1.7
    # GHz (383 TFLOP/s for both), half of 3.277 TB/s: endnotes MI300-14 and MI325-019; 8 MB of L2: ROCm's table. The system
    # also calls it "AMD Instinct MI250X / MI250", of which an MI250 has fewer compute units.
    Peak("AMD Instinct MI250X", flops=110 * 1024 * 1.7e9, bandwidth=3.277e12 / 2, cache=8 * _MIB),
)

_OTHER_CLOCK = " HF"  # ends the name of variants whose figures no document gives: "AMD Instinct MI300X HF"


def peak_of(environment: Environment) -> Peak | None:
    """Return the peaks of a run's device (`environment` as in `floor`), None if no document gives them."""
    device = environment.get("device")
    name = device.get("name") if isinstance(device, Mapping) else None
    known = isinstance(name, str) and not name.endswith(_OTHER_CLOCK)
    return next((p for p in PEAKS if known and str(name).startswith(p.device)), None)


def floor(work: Work | None, environment: Environment) -> float:
    """Return the seconds below which no launch can be; 0 if its work or its device is not known.

    Args:
        work: flops and bytes of one launch, either or both.
        environment: of the run (tilegate.measuring.environment.describe).
    """
    peak = peak_of(environment)
    if peak is None or not work:
        return 0.0
    through_memory = max(0.0, work.get("bytes", 0.0) - peak.cache)
    return max(work.get("flops", 0.0) / peak.flops, through_memory / peak.bandwidth)


def striking(work: Work | None, environment: Environment) -> float:
    """Return the seconds below which a launch is hardly ever; 0 if its work or its device is not known. Arguments as `floor`.

    Twice the floor of its operations: the fastest number format has twice the rate of 16-bit numbers, of which most kernels
    are.
    """
    peak = peak_of(environment)
    return 0.0 if peak is None or not work else 2 * work.get("flops", 0.0) / peak.flops
