"""What a measurement was made on: machine, device and toolchain, and one fingerprint over what decides a time.

Light: importing this module imports neither torch nor tilelang. Device facts come from a child process, so that the
caller never creates a CUDA or HIP context of its own.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import runpy
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilegate import __version__
from tilegate.files import UsageError
from tilegate.protocol import JSON, TARGETS
from tilegate.tools import available_cores, captured, compiler_path, package_version, tool_version

# Equal fingerprints: two sample sets may be compared. Left out on purpose: which of several equal machines it was
# (`machine.id`), its main memory and, on a GPU, the host's CPU and kernel, whose influence the device clock excludes.
_COMPARED_EVERYWHERE = (
    "target",
    "device.name",
    "device.arch",
    "device.compute_units",
    "device.driver",
    "versions.python",
    "versions.torch",
    "versions.tilelang",
    "versions.triton",
    "versions.tilegate",
    "versions.compiler",
    "versions.cuda",
    "versions.rocm",
)
_COMPARED_ON_THE_CPU = ("machine.architecture", "machine.kernel")

_PROBE_TIMEOUT = 180.0  # seconds; the first import of torch from a cold network disk takes a minute and more

# Runs in a child: argument 1 is where to write, since importing torch may print.
_PROBE = """
import json, sys
facts = {"torch": None, "cuda": None, "rocm": None, "devices": [], "error": None}
try:
    import torch
    facts["torch"] = torch.__version__
    facts["cuda"], facts["rocm"] = torch.version.cuda, torch.version.hip
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            p = torch.cuda.get_device_properties(index)
            arch = p.gcnArchName.split(":")[0] if torch.version.hip else f"sm_{p.major}{p.minor}"
            facts["devices"].append({"name": p.name, "arch": arch, "compute_units": p.multi_processor_count,
                                     "memory_bytes": p.total_memory})
except Exception as error:
    facts["error"] = f"{type(error).__name__}: {error}"
print("\\n" + json.dumps(facts))
"""


class NoDeviceError(UsageError):
    """The target asked for has no device here that can run it."""


def describe(target: str) -> dict[str, JSON]:
    """Describe this machine as the place where `target` is measured.

    Args:
        target: "cpu", "cuda" or "hip".

    Returns:
        ``{"target", "machine": {...}, "device": {...}, "versions": {...}, "fingerprint": sha256}``; what cannot be read
        is None. Holds no user, host or path name. Sizes are in bytes.

    Raises:
        ValueError: an unknown target.
        NoDeviceError: a GPU target without a GPU of that kind that torch can use.
    """
    if target not in TARGETS:
        raise ValueError(f"target {target!r} is unknown; choose one of {', '.join(TARGETS)}")
    torch = torch_build() if target == "cpu" else probe_torch()
    environment: dict[str, JSON] = {
        "target": target,
        "machine": machine(),
        "device": _device(target, torch),
        "versions": {
            "python": platform.python_version(),
            "torch": _text(torch.get("torch")),
            "tilelang": package_version("tilelang"),
            "triton": package_version("triton"),
            "tilegate": __version__,
            "compiler": tool_version(compiler_path(target)),
            "cuda": _text(torch.get("cuda")),
            "rocm": _text(torch.get("rocm")),
        },
    }
    return {**environment, "fingerprint": fingerprint(environment)}


def fingerprint(environment: Mapping[str, JSON]) -> str:
    """Return the sha256 (hex) over what must be equal for two sample sets to be comparable."""
    paths = _COMPARED_EVERYWHERE + (_COMPARED_ON_THE_CPU if environment.get("target") == "cpu" else ())
    compared = {path: _at(environment, path) for path in paths}
    return hashlib.sha256(json.dumps(compared, sort_keys=True).encode()).hexdigest()


def torch_build() -> dict[str, JSON]:
    """Return the version of torch and what it was built for, read from its files: importing it takes seconds.

    Returns:
        ``{"torch", "cuda", "rocm": version or None}``; None where there is no torch, or its files say nothing.
    """
    said: Mapping[str, Any] = {}
    with contextlib.suppress(Exception):
        spec = importlib.util.find_spec("torch")
        if spec is not None and spec.origin is not None:
            said = runpy.run_path(str(Path(spec.origin).with_name("version.py")))
    return {name: _text(said.get(key)) for name, key in (("torch", "__version__"), ("cuda", "cuda"), ("rocm", "hip"))}


@functools.cache
def probe_torch() -> Mapping[str, JSON]:
    """Ask torch, in a child process, for its build and its devices.

    Returns:
        ``{"torch", "cuda", "rocm": version or None, "devices": [{"name", "arch", "compute_units", "memory_bytes"}],
        "error": text or None}``. Never raises: a torch that cannot be imported is an `error`.
    """
    failure: dict[str, JSON] = {"torch": None, "cuda": None, "rocm": None, "devices": []}
    try:
        child = captured([sys.executable, "-P", "-c", _PROBE], _PROBE_TIMEOUT)
    except subprocess.TimeoutExpired:
        return {**failure, "error": f"importing torch took longer than {_PROBE_TIMEOUT:.0f} s"}
    lines = child.stdout.strip().splitlines()
    if child.returncode != 0 or not lines:
        tail = child.stderr.strip().splitlines()[-1:] or [f"exit status {child.returncode}"]
        return {**failure, "error": f"importing torch failed: {tail[0]}"}
    facts: dict[str, JSON] = json.loads(lines[-1])
    return facts


def machine() -> dict[str, JSON]:
    """Describe the host: a hashed identity, CPU, cores this process may use, memory, kernel."""
    return {
        "id": _machine_id(),
        "system": platform.system(),
        "architecture": platform.machine(),
        "kernel": platform.release(),
        "cpu": cpu_model(),
        "cores": available_cores(),
        "memory_bytes": _memory_bytes(),
    }


def cpu_model() -> str:
    """Return the CPU's marketing name, or its architecture where the system does not say."""
    cpuinfo = _read("/proc/cpuinfo") or ""
    found = re.search(r"^model name\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    return found.group(1).strip() if found else platform.processor() or platform.machine()


def _device(target: str, torch: Mapping[str, JSON]) -> dict[str, JSON]:
    if target == "cpu":
        host = machine()
        return {
            "name": host["cpu"],
            "arch": host["architecture"],
            "compute_units": host["cores"],
            "memory_bytes": host["memory_bytes"],
            "driver": None,
        }
    devices = torch.get("devices")
    build = "rocm" if target == "hip" else "cuda"
    if not torch.get(build) or not isinstance(devices, list) or not devices or not isinstance(devices[0], dict):
        reason = torch.get("error") or f"torch {torch.get('torch')} sees no {build.upper()} device"
        raise NoDeviceError(f"target {target!r} cannot run here: {reason}. `tilegate doctor` shows what is missing.")
    return {**devices[0], "driver": driver_version(target)}


def driver_version(target: str) -> str | None:
    """Return the version of the GPU's kernel driver, or None where it cannot be read."""
    if target == "cuda":
        loaded = re.search(r"Kernel Module.*?\s(\d+\.\d+(?:\.\d+)?)\s", _read("/proc/driver/nvidia/version") or "")
        return loaded.group(1) if loaded else None
    # The module that ships with Linux has no version of its own: there the kernel's version is the driver's.
    packaged = _read("/sys/module/amdgpu/version")
    if packaged:
        return packaged.strip()
    return f"linux {platform.release()}" if Path("/sys/module/amdgpu").is_dir() else None


def _machine_id() -> str:
    """Return 12 hex digits that tell machines apart and do not give away the name of one."""
    identity = (_read("/etc/machine-id") or "").strip() or platform.node()
    return hashlib.sha256(f"tilegate machine {identity}".encode()).hexdigest()[:12]


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _at(tree: Mapping[str, JSON], path: str) -> JSON:
    value: JSON = tree
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value
