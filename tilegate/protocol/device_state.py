"""What a GPU's sensors say: clock, temperature, power, and why it throttles.

Read through NVML (pynvml) or nvidia-smi on NVIDIA, amdsmi or the amdgpu driver's files on AMD, whichever answers first.
Units: MHz, degrees Celsius, watts. What cannot be read is named under "unreadable", never guessed. Beside the obvious:

    thermal_throttle_counter   grows while heat or the board holds the clock down; its unit is the vendor's
    busy_processes             numbers of the processes whose kernels ran in the last second, ours included (NVML)
    occupying_processes        numbers of the processes that have waves on the device right now (AMD)
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tilegate.protocol.artifacts import JSON

# nvml.h, nvmlClocksEventReason*. "gpu_idle" and the two clock settings are no throttling, but are reported as they are.
_NVML_REASONS = {
    0x001: "gpu_idle",
    0x002: "applications_clocks_setting",
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal_slowdown",
    0x040: "hw_thermal_slowdown",
    0x080: "hw_power_brake",
    0x100: "display_clock_setting",
}
_NVIDIA_SMI_FIELDS = {
    "sm_clock_mhz": "clocks.sm",
    "sm_clock_max_mhz": "clocks.max.sm",
    "temperature_c": "temperature.gpu",
    "power_w": "power.draw",
    "throttle_reasons": "clocks_throttle_reasons.active",
}
FAST_SOURCES = ("nvml", "amdsmi", "amdgpu")
"""Sources that answer in a millisecond or a few: fit to be read after every turn. nvidia-smi takes a tenth of a second."""

# amdsmi's accumulators of the time under a limit that is not the power limit.
_THERMAL_ACCUMULATORS = (
    "prochot_residency_acc",
    "socket_thm_residency_acc",
    "vr_thm_residency_acc",
    "hbm_thm_residency_acc",
)

_TOOL_TIMEOUT = 20.0  # seconds; nvidia-smi takes several where no process keeps the driver loaded


class _UnavailableError(Exception):
    """This source of readings cannot be used here; the message says why."""


def read_state(target: str, properties: Any) -> dict[str, JSON]:
    """Read the sensors of one device.

    Args:
        target: "cuda" or "hip".
        properties: torch's properties of the device; its PCI address says which one it is.

    Returns:
        The readings, with "source" (None when nothing answered) and "unreadable" ({what: why}).
    """
    unreadable: dict[str, JSON] = {}
    address = _pci_address(properties)
    if address is None:
        return {"source": None, "unreadable": {"device": "torch does not give its PCI address"}}
    for source, reader in _SOURCES[target].items():
        try:
            readings, missing = reader(address)
        except _UnavailableError as reason:
            unreadable[source] = str(reason)
        else:
            return {"source": source, **readings, "unreadable": {**unreadable, **missing}}
    return {"source": None, "unreadable": unreadable}


def _pci_address(properties: Any) -> str | None:
    bus, device = getattr(properties, "pci_bus_id", None), getattr(properties, "pci_device_id", None)
    if not isinstance(bus, int) or not isinstance(device, int):
        return None
    return f"{getattr(properties, 'pci_domain_id', 0):04x}:{bus:02x}:{device:02x}.0"


_Readings = tuple[dict[str, JSON], dict[str, JSON]]


def _try_each(readers: Mapping[str, Callable[[], JSON]]) -> _Readings:
    readings: dict[str, JSON] = {}
    missing: dict[str, JSON] = {}
    for name, reader in readers.items():
        try:
            readings[name] = reader()
        except Exception as error:  # every binding has its own kind of exception, and one bad sensor hides no other
            missing[name] = f"{type(error).__name__}: {error}"
    return readings, missing


def _read_nvml(address: str) -> _Readings:
    try:
        import pynvml  # type: ignore[import-not-found,import-untyped,unused-ignore]  # noqa: PLC0415 - optional
    except ImportError as error:
        raise _UnavailableError("pynvml is not installed") from error
    try:
        pynvml.nvmlInit()  # counted: as cheap as a read once it has been called
        handle = pynvml.nvmlDeviceGetHandleByPciBusId(address.encode())
    except pynvml.NVMLError as error:
        raise _UnavailableError(str(error)) from error
    reasons = getattr(pynvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
    reasons = reasons or pynvml.nvmlDeviceGetCurrentClocksThrottleReasons
    return _try_each(
        {
            "sm_clock_mhz": lambda: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM),
            "sm_clock_max_mhz": lambda: pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_SM),
            "temperature_c": lambda: pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU),
            "power_w": lambda: pynvml.nvmlDeviceGetPowerUsage(handle) / 1000,
            "throttle_reasons": lambda: _reasons(reasons(handle)),
            "thermal_throttle_counter": lambda: int(
                pynvml.nvmlDeviceGetViolationStatus(handle, pynvml.NVML_PERF_POLICY_THERMAL).violationTime
            ),
            "busy_processes": lambda: _busy_processes(pynvml, handle),
        }
    )


def _busy_processes(pynvml: Any, handle: Any) -> list[int]:
    try:
        samples = pynvml.nvmlDeviceGetProcessUtilization(handle, int((time.time() - 1) * 1e6))
    except pynvml.NVMLError as error:
        if error.value == pynvml.NVML_ERROR_NOT_FOUND:  # nobody did anything
            return []
        raise
    return sorted({int(sample.pid) for sample in samples if sample.smUtil > 0})


def _read_nvidia_smi(address: str) -> _Readings:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        raise _UnavailableError("nvidia-smi is not on PATH")
    query = f"--query-gpu={','.join(_NVIDIA_SMI_FIELDS.values())}"
    try:
        shown = subprocess.run(
            [tool, f"--id={address}", query, "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=_TOOL_TIMEOUT,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _UnavailableError(f"{type(error).__name__}: {error}") from error
    values = [value.strip() for value in shown.stdout.strip().split(",")]
    if shown.returncode != 0 or len(values) != len(_NVIDIA_SMI_FIELDS):
        raise _UnavailableError((shown.stdout + shown.stderr).strip() or f"exit status {shown.returncode}")
    text = dict(zip(_NVIDIA_SMI_FIELDS, values, strict=True))
    readers: dict[str, Callable[[], JSON]] = {
        name: lambda value=value: float(value)  # type: ignore[misc]
        for name, value in text.items()
        if name != "throttle_reasons"
    }
    return _try_each({**readers, "throttle_reasons": lambda: _reasons(int(text["throttle_reasons"], 16))})


def _reasons(mask: int) -> list[str]:
    known = [name for bit, name in _NVML_REASONS.items() if mask & bit]
    unknown = mask & ~sum(_NVML_REASONS)
    return [*known, f"unknown_{unknown:#x}"] if unknown else known


def _read_amdsmi(address: str) -> _Readings:
    try:
        import amdsmi  # type: ignore[import-not-found,import-untyped,unused-ignore]  # noqa: PLC0415 - optional
    except Exception as error:  # it loads librocm's shared objects: whatever goes wrong there, there is a second source
        raise _UnavailableError(f"amdsmi cannot be imported: {error}") from error
    try:
        amdsmi.amdsmi_init()
        handles = amdsmi.amdsmi_get_processor_handles()
        handle = next(each for each in handles if amdsmi.amdsmi_get_gpu_device_bdf(each).lower() == address)
    except StopIteration:
        raise _UnavailableError(f"amdsmi lists no device at {address}") from None
    except Exception as error:
        raise _UnavailableError(f"{type(error).__name__}: {error}") from error
    clock = amdsmi.AmdSmiClkType.GFX
    hottest, now = amdsmi.AmdSmiTemperatureType.HOTSPOT, amdsmi.AmdSmiTemperatureMetric.CURRENT
    return _try_each(
        {
            "sm_clock_mhz": lambda: int(amdsmi.amdsmi_get_clock_info(handle, clock)["clk"]),
            "sm_clock_max_mhz": lambda: int(amdsmi.amdsmi_get_clock_info(handle, clock)["max_clk"]),
            "temperature_c": lambda: int(amdsmi.amdsmi_get_temp_metric(handle, hottest, now)),
            "power_w": lambda: int(amdsmi.amdsmi_get_power_info(handle)["current_socket_power"]),
            "throttle_status": lambda: int(amdsmi.amdsmi_get_gpu_metrics_info(handle)["throttle_status"]),
            "thermal_throttle_counter": lambda: _thermal_counter(amdsmi.amdsmi_get_gpu_metrics_info(handle)),
            "occupying_processes": lambda: _occupying_processes(address),
        }
    )


def _thermal_counter(metrics: Mapping[str, Any]) -> int:
    counts = [metrics.get(name) for name in _THERMAL_ACCUMULATORS]
    known = [count for count in counts if isinstance(count, int)]  # "N/A" where the firmware does not count
    if not known:
        raise KeyError("no accumulator among the GPU's metrics")
    return sum(known)


def _occupying_processes(address: str, kfd: Path = Path("/sys/class/kfd/kfd")) -> list[int]:
    """Read the compute driver's files: /proc/PID/stats_GPU/cu_occupancy counts the compute units with waves of a process."""
    domain, bus, rest = address.split(":")
    slot, function = rest.split(".")
    location = int(bus, 16) << 8 | int(slot, 16) << 3 | int(function)
    for node in sorted((kfd / "topology" / "nodes").iterdir()):
        lines = [line.split() for line in (node / "properties").read_text(encoding="ascii").splitlines()]
        facts = {line[0]: int(line[1]) for line in lines if len(line) == 2}
        if (facts.get("location_id"), facts.get("domain", 0)) == (location, int(domain, 16)):
            gpu = (node / "gpu_id").read_text(encoding="ascii").strip()
            counts = (kfd / "proc").glob(f"*/stats_{gpu}/cu_occupancy")
            return sorted(int(file.parts[-3]) for file in counts if int(file.read_text(encoding="ascii")) > 0)
    raise FileNotFoundError(f"no node at {address} under {kfd / 'topology' / 'nodes'}")


def _read_amdgpu_files(address: str, devices: Path = Path("/sys/bus/pci/devices")) -> _Readings:
    """Read the amdgpu driver's hwmon files (docs.kernel.org/gpu/amdgpu/thermal.html); it has none on throttling."""
    monitors = sorted((devices / address / "hwmon").glob("hwmon*"))
    if not monitors:
        raise _UnavailableError(f"no hwmon files for {address} under {devices}")
    monitor = monitors[0]

    def number(*names: str) -> float:
        found = next((monitor / name for name in names if (monitor / name).is_file()), monitor / names[0])
        return float(found.read_text(encoding="ascii").strip())

    readings, missing = _try_each(
        {
            "sm_clock_mhz": lambda: number("freq1_input") / 1e6,
            "temperature_c": lambda: number("temp2_input", "temp1_input") / 1e3,  # 2 is the junction, 1 the edge
            "power_w": lambda: number("power1_average", "power1_input") / 1e6,
            "occupying_processes": lambda: _occupying_processes(address),
        }
    )
    return readings, {**missing, "throttle_reasons": "the amdgpu driver has no file for them; install amdsmi"}


_SOURCES: dict[str, dict[str, Callable[[str], _Readings]]] = {
    "cuda": {"nvml": _read_nvml, "nvidia-smi": _read_nvidia_smi},
    "hip": {"amdsmi": _read_amdsmi, "amdgpu": _read_amdgpu_files},
}
