"""The environment of a measurement as an issue needs it: complete enough to reproduce, and nothing private in it."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from tilegate import tools
from tilegate.evidence.privacy import without_private
from tilegate.measuring import environment
from tilegate.protocol import JSON

SCHEMA = "tilegate-environment/1"

SETTINGS = (
    *("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_MAX_HW_QUEUES", "HSA_XNACK"),
    *("HSA_NO_SCRATCH_RECLAIM", "HSA_ENABLE_SDMA", "AMD_SERIALIZE_KERNEL", "CUDA_LAUNCH_BLOCKING"),
    *("CUDA_DEVICE_MAX_CONNECTIONS", "PYTORCH_TUNABLEOP_ENABLED", "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"),
    *("TORCH_BLAS_PREFER_HIPBLASLT", "OMP_NUM_THREADS"),
)
"""Variables that change how fast a kernel runs or is launched. No other is looked at: the rest may hold secrets."""

_CONTAINERS = ("docker", "podman", "oci", "lxc", "lxc-libvirt", "systemd-nspawn", "rkt", "wsl", "proot", "pouch")
"""What systemd's `container` variable is set to (systemd.io/CONTAINER_INTERFACE, systemd-detect-virt)."""

_PROBE_TIMEOUT = 180.0  # seconds; a first import of torch from a cold disk
_TOOL_TIMEOUT = 30.0

# The PCI address says which device torch uses. It is asked for in a child, so that this process has no context of its own.
_ADDRESS = """
import torch
p = torch.cuda.get_device_properties(0)
print(f"\\n{getattr(p, 'pci_domain_id', 0):04x}:{p.pci_bus_id:02x}:{p.pci_device_id:02x}.0")
"""

# What nvidia-smi calls it, by our names. https://docs.nvidia.com/deploy/nvidia-smi
_NVIDIA_SMI = {
    "sm_clock_max_mhz": "clocks.max.sm",
    "memory_clock_max_mhz": "clocks.max.memory",
    "power_cap_w": "power.limit",
    "power_cap_default_w": "power.default_limit",
    "power_cap_max_w": "power.max_limit",
    "persistence": "persistence_mode",
    "ecc": "ecc.mode.current",
    "partition": "mig.mode.current",
    "compute_mode": "compute_mode",
    "vbios": "vbios_version",
}


def collect(target: str) -> dict[str, JSON]:
    """Describe this machine as the place where `target` is measured, without anything private.

    Args:
        target: "cpu", "cuda" or "hip".

    Returns:
        schemas/environment-1.json. What cannot be read is None, and "unreadable" says why.

    Raises:
        NoDeviceError: a GPU target without a GPU of that kind that torch can use.
    """
    known = environment.describe(target)
    limits, unreadable = _limits(target)
    machine, device = known["machine"], known["device"]
    assert isinstance(machine, Mapping)  # noqa: S101 - for mypy
    assert isinstance(device, Mapping)  # noqa: S101
    document: dict[str, JSON] = {
        "schema": SCHEMA,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "target": target,
        "device": {**device, **limits},
        "machine": {key: value for key, value in machine.items() if key != "id"},
        "system": {"name": _distribution(), "container": container()},
        "versions": {**_mapping(known["versions"]), "triton": tools.package_version("triton")},
        "settings": {name: os.environ[name] for name in SETTINGS if name in os.environ},
        "unreadable": unreadable,
    }
    cleaned = without_private(document)
    assert isinstance(cleaned, dict)  # noqa: S101
    return {**cleaned, "fingerprint": known["fingerprint"]}


def container(root: Path = Path("/")) -> str | None:
    """Return the kind of container this runs in ("docker", "podman", "kubernetes", …), None outside one."""
    if (root / ".dockerenv").exists():
        return "docker"
    if (root / "run/.containerenv").exists():
        return "podman"
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        return "kubernetes"
    try:
        first = (root / "proc/1/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    named = [entry.partition(b"=")[2].decode(errors="replace") for entry in first if entry.startswith(b"container=")]
    if not named:
        return None
    return named[0] if named[0] in _CONTAINERS else "another kind"  # whoever starts it may have put a name there


def differences(before: Mapping[str, JSON], after: Mapping[str, JSON]) -> list[tuple[str, JSON, JSON]]:
    """Return (place, value before, value after) of everything that differs, in the documents' order.

    Left out: the date, which always differs, and hashes, which say nothing that the rest does not.
    """
    flat = [dict(leaves(document)) for document in (before, after)]
    places = dict.fromkeys([*flat[0], *flat[1]])
    ignored = ("schema", "created", "fingerprint", "machine.id")
    return [
        (place, flat[0].get(place), flat[1].get(place))
        for place in places
        if place not in ignored and flat[0].get(place) != flat[1].get(place)
    ]


def leaves(document: Mapping[str, JSON], prefix: str = "") -> list[tuple[str, JSON]]:
    """Return every value that is no mapping with its place, such as "device.name"."""
    found: list[tuple[str, JSON]] = []
    for key, value in document.items():
        if isinstance(value, Mapping):
            found += leaves(value, f"{prefix}{key}.")
        else:
            found.append((f"{prefix}{key}", value))
    return found


def _limits(target: str) -> tuple[dict[str, JSON], dict[str, JSON]]:
    """Return clocks, power cap and partition of the device, and why what is missing could not be read."""
    if target == "cpu":
        return _cpu_limits()
    try:
        child = tools.captured([sys.executable, "-P", "-c", _ADDRESS], _PROBE_TIMEOUT)
        address = child.stdout.strip().splitlines()[-1]
    except (OSError, subprocess.TimeoutExpired, IndexError):
        return {}, {"clocks and power": "torch does not give the device's PCI address"}
    return _nvidia_limits(address) if target == "cuda" else amd_limits(address)


def _nvidia_limits(address: str) -> tuple[dict[str, JSON], dict[str, JSON]]:
    query = f"--query-gpu={','.join(_NVIDIA_SMI.values())}"
    try:
        shown = tools.captured(["nvidia-smi", f"--id={address}", query, "--format=csv,noheader,nounits"], _TOOL_TIMEOUT)
    except (OSError, subprocess.TimeoutExpired) as error:
        return {}, {"clocks and power": f"nvidia-smi: {error}"}
    values = [value.strip() for value in shown.stdout.strip().split(",")]
    if shown.returncode != 0 or len(values) != len(_NVIDIA_SMI):
        return {}, {"clocks and power": f"nvidia-smi: {(shown.stdout + shown.stderr).strip()[:200]}"}
    found: dict[str, JSON] = {}
    unreadable: dict[str, JSON] = {}
    for name, value in zip(_NVIDIA_SMI, values, strict=True):
        if value.startswith("["):  # [N/A], [Not Supported]
            unreadable[f"device.{name}"] = value
        else:
            found[name] = _number(value)
    return found, unreadable


def amd_limits(address: str, devices: Path = Path("/sys/bus/pci/devices")) -> tuple[dict[str, JSON], dict[str, JSON]]:
    """Read an AMD GPU's limits from the amdgpu driver's files (docs.kernel.org/gpu/amdgpu).

    Args:
        address: of the device on the PCI bus.
        devices: where the kernel shows them.
    """
    folder = devices / address
    monitor = next(iter(sorted((folder / "hwmon").glob("hwmon*"))), folder / "hwmon")

    def last_level(name: str) -> JSON:  # "0: 132Mhz *\n1: 2100Mhz"
        text = (folder / name).read_text(encoding="ascii").split("\n")
        levels = [int(line.split(":")[1].lower().split("mhz")[0]) for line in text if "mhz" in line.lower()]
        return max(levels)

    readers: dict[str, Callable[[], JSON]] = {
        "sm_clock_max_mhz": lambda: last_level("pp_dpm_sclk"),
        "memory_clock_max_mhz": lambda: last_level("pp_dpm_mclk"),
        "power_cap_w": lambda: int((monitor / "power1_cap").read_text(encoding="ascii")) / 1e6,
        "power_cap_default_w": lambda: int((monitor / "power1_cap_default").read_text(encoding="ascii")) / 1e6,
        "power_cap_max_w": lambda: int((monitor / "power1_cap_max").read_text(encoding="ascii")) / 1e6,
        "partition": lambda: (folder / "current_compute_partition").read_text(encoding="ascii").strip(),
        "memory_partition": lambda: (folder / "current_memory_partition").read_text(encoding="ascii").strip(),
        "vbios": lambda: (folder / "vbios_version").read_text(encoding="ascii").strip(),
    }
    found: dict[str, JSON] = {}
    unreadable: dict[str, JSON] = {}
    for name, reader in readers.items():
        try:
            found[name] = reader()
        except (OSError, ValueError, IndexError) as error:
            reason = error.strerror if isinstance(error, OSError) else None
            unreadable[f"device.{name}"] = f"the amdgpu driver's file: {reason or type(error).__name__}"
    return found, unreadable


def _cpu_limits(folder: Path = Path("/sys/devices/system/cpu/cpu0/cpufreq")) -> tuple[dict[str, JSON], dict[str, JSON]]:
    try:
        governor = (folder / "scaling_governor").read_text(encoding="ascii").strip()
        highest = int((folder / "cpuinfo_max_freq").read_text(encoding="ascii")) / 1000
    except (OSError, ValueError):
        return {}, {"clocks": "the kernel shows no cpufreq; a virtual machine has none"}
    return {"clock_max_mhz": highest, "governor": governor}, {}


def _distribution() -> str | None:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME")
    except OSError:
        return None


def _number(text: str) -> JSON:
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, int | float) else text


def _mapping(value: JSON) -> Mapping[str, JSON]:
    return value if isinstance(value, Mapping) else {}
