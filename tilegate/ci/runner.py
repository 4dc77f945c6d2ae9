"""`tilegate doctor --runner`: is this machine set up as docs/runners.md says? Each point with what was found and how to fix it.

Reads files of the system, and asks git and the container engine; changes nothing.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tilegate.ci import container, scrub, settings
from tilegate.files import UsageError
from tilegate.measuring import device_lock

# Chosen: a ROCm image with torch unpacks to tens of GB, and two of them lie side by side when it is replaced.
_LEAST_FREE = 100 * 2**30
_GFX942 = "90402"  # gfx_target_version of the KFD's topology: major * 10000 + minor * 100 + stepping
_DETERMINISM = "https://rocm.docs.amd.com/projects/amdsmi/en/latest/conceptual/perf-determinism.html"
_VALIDATION = "https://rocm.docs.amd.com/en/latest/how-to/rocm-for-ai/system-setup/prerequisite-system-validation.html"


@dataclass(frozen=True)
class Point:
    """One point of the set-up.

    Attributes:
        name: what it is about.
        good: it is as it should be.
        found: what was found.
        fix: what to do; empty where it is good.
    """

    name: str
    good: bool
    found: str
    fix: str


@dataclass(frozen=True)
class Place:
    """Where to look.

    Attributes:
        root: of the system's files.
        runner: the folder in which the runner is installed.
        repository: a checkout with .github/bench.toml.
        environment: of the runner's jobs.
    """

    root: Path
    runner: Path
    repository: Path
    environment: Mapping[str, str]

    def read(self, path: str) -> str | None:
        """Return the text of a file of the system, None where there is none."""
        try:
            return (self.root / path).read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return None

    def jobs_environment(self) -> Mapping[str, str]:
        """Return the variables that a job of this runner gets: the runner's .env file counts."""
        try:
            lines = (self.runner / ".env").read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError):
            lines = []
        return {**self.environment, **dict(line.split("=", 1) for line in lines if "=" in line)}

    def engine(self) -> str:
        """Return the container engine's command."""
        return self.jobs_environment().get("TILEGATE_CONTAINER_ENGINE") or "docker"

    def device(self) -> str | None:
        """Return the folder of this runner's GPU below the root, None if the runner has none."""
        node = self.jobs_environment().get(container.DEVICE_VARIABLE)
        return f"sys/class/drm/{Path(node).name}/device" if node else None


def examine(place: Place) -> list[Point]:
    """Check every point, in the order in which docs/runners.md sets them up."""
    return [check(place) for check in CHECKS]


def _driver(place: Place) -> Point:
    there = (place.root / "sys/module/amdgpu").is_dir()
    version = place.read("sys/module/amdgpu/version") or "the one that comes with Linux"
    return Point(
        "driver",
        there,
        f"amdgpu, {version}" if there else "no amdgpu module is loaded",
        "" if there else "install amdgpu-dkms, then reboot (docs/runners.md, 1)",
    )


def _node(place: Place) -> Point:
    name = "one GPU"
    try:
        node = container.checked_render_node(place.jobs_environment().get(container.DEVICE_VARIABLE))
    except UsageError as error:
        return Point(
            name, False, str(error).partition(";")[0], f"echo {container.DEVICE_VARIABLE}=/dev/dri/renderD128 >> .env"
        )
    for device in ("dev/kfd", node.lstrip("/")):
        path = place.root / device
        if not os.access(path, os.R_OK | os.W_OK):
            return Point(
                name, False, f"/{device} cannot be used", "sudo usermod -aG render,video $USER, then log in again"
            )
    minor = node.removeprefix("/dev/dri/renderD")
    for properties in sorted((place.root / "sys/class/kfd/kfd/topology/nodes").glob("*/properties")):
        values = dict(line.split(" ", 1) for line in properties.read_text().splitlines() if " " in line)
        if values.get("drm_render_minor") == minor:
            version = values.get("gfx_target_version")
            good = version == _GFX942
            found = f"{node}, {'gfx942' if good else f'gfx_target_version {version}'}"
            return Point(name, good, found, "" if good else "the label mi300x is for gfx942; name an MI300X")
    return Point(name, False, f"{node} is not in the KFD's topology", "rocminfo lists the GPUs; name one of them")


def _partition(place: Place) -> Point:
    device = place.device()
    found = [place.read(f"{device}/current_{kind}_partition") if device else None for kind in ("compute", "memory")]
    good = found == ["SPX", "NPS1"]
    shown = " and ".join(value or "unknown" for value in found)
    fix = "sudo amd-smi set --compute-partition SPX; sudo amd-smi set --memory-partition NPS1"
    return Point("partitions", good, shown, "" if good else fix)


def _clocks(place: Place) -> Point:
    device = place.device()
    level = place.read(f"{device}/power_dpm_force_performance_level") if device else None
    good = level == "perf_determinism"
    fix = f"sudo amd-smi set --gpu ID --perf-determinism 1900, after every boot; {_DETERMINISM}, {_VALIDATION}"
    return Point("clocks", good, f"performance level {level or 'unknown'}", "" if good else fix)


def _numa(place: Place) -> Point:
    value = place.read("proc/sys/kernel/numa_balancing")
    good = value == "0"
    fix = (
        f"echo kernel.numa_balancing=0 | sudo tee /etc/sysctl.d/90-tilegate.conf && sudo sysctl --system; {_VALIDATION}"
    )
    return Point("NUMA balancing", good, f"kernel.numa_balancing = {value or 'unknown'}", "" if good else fix)


def _governor(place: Place) -> Point:
    folders = sorted((place.root / "sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_governor"))
    governors = {path.read_text().strip() for path in folders}
    good = governors <= {"performance"}
    found = ", ".join(sorted(governors)) or "the CPU's clock is not Linux's to choose"
    return Point("CPU governor", good, found, "" if good else "sudo cpupower frequency-set --governor performance")


def _tools(place: Place) -> Point:
    have = f"Python {sys.version_info.major}.{sys.version_info.minor}"
    if shutil.which("git") is None:
        return Point("Python and git", False, f"{have}, no git", "sudo apt-get install git")
    return Point("Python and git", True, f"{have}, git", "")


def _engine(place: Place) -> Point:
    engine = place.engine()
    try:
        container.left_over(engine)
    except UsageError as error:
        fix = "install Docker Engine and let this user use it: sudo usermod -aG docker $USER (docs/runners.md, 3)"
        return Point("container engine", False, str(error), fix)
    return Point("container engine", True, f"{engine} answers", "")


def _image(place: Place) -> Point:
    try:
        image = settings.load(place.repository / settings.FILE).image
    except UsageError as error:
        return Point("image", False, str(error), "run this in a checkout of the repository")
    if image is None:
        return Point(
            "image",
            False,
            f"{settings.FILE} names none",
            "let the workflow runner-image build and propose one (docs/runners.md, 3)",
        )
    if shutil.which(place.engine()) is None:
        return Point("image", False, f"{image} cannot be looked for", "install the container engine first")
    asked = [place.engine(), "image", "inspect", image]
    here = subprocess.run(asked, stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode == 0
    return Point(
        "image", here, image if here else f"{image} is not here", "" if here else f"{place.engine()} pull {image}"
    )


def _user(place: Place) -> Point:
    if _is_root():
        return Point("user", False, "this is root", "create a user for the runner (docs/runners.md, 4)")
    if (
        shutil.which("sudo")
        and subprocess.run(["sudo", "-n", "true"], capture_output=True, check=False).returncode == 0
    ):
        return Point("user", False, "this user may become root without a password", "take it out of the sudoers")
    return Point("user", True, "an ordinary user", "")


def _is_root() -> bool:
    return os.getuid() == 0


def _ephemeral(place: Place) -> Point:
    fix = "start runners by just-in-time configuration, one for each job (docs/runners.md, 4)"
    try:
        said = json.loads((place.runner / ".runner").read_text(encoding="utf-8-sig"))
        values = {key.lower(): value for key, value in said.items()}
    except (OSError, ValueError, AttributeError):
        return Point("ephemeral", False, f"{place.runner}/.runner cannot be read; is the runner installed there?", fix)
    good = values.get("ephemeral") in (True, "True", "true")
    return Point(
        "ephemeral", good, "one job, then gone" if good else "the same runner takes job after job", "" if good else fix
    )


def _lock(place: Place) -> Point:
    try:
        with device_lock.hold("hip", wait=False, who="tilegate doctor --runner", say=lambda text: None):
            return Point("lock", True, "free", "")
    except (UsageError, OSError) as error:
        return Point(
            "lock", False, str(error), "wait for the other run, or set TILEGATE_LOCKS to a folder of this user's"
        )


def _idle(place: Place) -> Point:
    busy = scrub.busy(place.jobs_environment().get(container.DEVICE_VARIABLE))
    return Point("idle GPU", not busy, "; ".join(busy) or "nobody uses it", "tilegate ci scrub" if busy else "")


def _disk(place: Place) -> Point:
    free = shutil.disk_usage(place.runner).free
    good = free >= _LEAST_FREE
    fix = f"free some, or move the runner: {_LEAST_FREE / 2**30:.0f} GiB are needed for images, caches and results"
    return Point("disk", good, f"{free / 2**30:.0f} GiB free", "" if good else fix)


CHECKS: tuple[Callable[[Place], Point], ...] = (
    *(_driver, _node, _partition, _clocks, _numa, _governor),
    *(_tools, _engine, _image, _user, _ephemeral, _lock, _idle, _disk),
)
