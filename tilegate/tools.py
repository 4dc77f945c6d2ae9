"""What is installed on this machine: compilers, versions, cores. Imports neither torch nor tilelang."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

_TOOL_TIMEOUT = 30.0  # seconds


def available_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def compiler_path(target: str) -> str | None:
    """Return the compiler that TileLang calls for `target`, found as TileLang finds it; None where there is none."""
    if target == "cpu":
        named = os.environ.get("CXX") or os.environ.get("CC")
        return shutil.which(named) if named else _first_on_path("g++", "clang++", "c++")
    if target == "cuda":
        roots, name, usual = ("CUDA_HOME", "CUDA_PATH"), "nvcc", "/usr/local/cuda"
    else:
        roots, name, usual = ("ROCM_PATH", "ROCM_HOME"), "hipcc", "/opt/rocm"
    for root in (*(os.environ[key] for key in roots if os.environ.get(key)), None, usual):
        found = shutil.which(name) if root is None else shutil.which(str(Path(root, "bin", name)))
        if found:
            return found
    return None


def captured(command: Sequence[str], timeout: float) -> subprocess.CompletedProcess[str]:
    """Run a command that reads nothing, and return what it printed, whatever its exit status.

    Raises:
        OSError: it cannot be started.
        TimeoutExpired: it took longer than `timeout` seconds, and was killed.
    """
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout,
        stdin=subprocess.DEVNULL,
        check=False,
    )


@functools.cache
def tool_version(path: str | None) -> str | None:
    """Return the line of ``path --version`` that holds the version; None if the tool is absent or fails."""
    if path is None:
        return None
    try:
        shown = captured([path, "--version"], _TOOL_TIMEOUT)
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = [line.strip() for line in shown.stdout.splitlines() if re.search(r"\d+\.\d+", line)]
    if shown.returncode != 0 or not lines:
        return None
    # nvcc puts the release on its fourth line, under a copyright line that has no dotted number.
    return next((line for line in lines if "release" in line), lines[0])


def package_version(distribution: str) -> str | None:
    """Return the version of an installed distribution, without importing it; None if it is not installed."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _first_on_path(*names: str) -> str | None:
    return next((found for found in map(shutil.which, names) if found), None)
