"""`tilegate ci scrub`: leaves a runner as it was found, and says so if it cannot.

An ephemeral runner, which docs/runners.md asks for, is thrown away after the job; this is for what is not thrown away with
it: containers, processes on the GPU, its memory, files in the runner's folders.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from tilegate.ci import container
from tilegate.files import UsageError

_KFD_PROCESSES = Path("/sys/class/kfd/kfd/proc")
_RENDER_NODES = Path("/sys/class/drm")
# The driver itself keeps some memory of an idle GPU. More than this is somebody's.
_IDLE_BYTES = 2 * 2**30
_OURS = "tilegate-ci-*"


def scrub(folders: Sequence[Path], engine: str) -> list[str]:
    """Remove this runner's containers, its scratch files and `folders`.

    Returns:
        What is still there that should not be, in words.
    """
    trouble = []
    try:
        if found := container.left_over(engine):
            container.remove(engine, found)
            if still := container.left_over(engine):
                trouble.append(f"containers that cannot be removed: {', '.join(still)}")
    except UsageError as error:
        trouble.append(str(error))
    temporary = os.environ.get("RUNNER_TEMP")
    left = [*folders, *(Path(temporary).glob(_OURS) if temporary else ())]
    for folder in left:
        shutil.rmtree(folder, ignore_errors=True)
        if folder.exists():
            trouble.append(f"{folder} cannot be removed")
    return [*trouble, *busy(os.environ.get(container.DEVICE_VARIABLE))]


def busy(render_node: str | None) -> list[str]:
    """Return who still uses the GPU: processes of ours that the driver knows, and memory of the device."""
    found = []
    if _KFD_PROCESSES.is_dir():
        for process in sorted(_KFD_PROCESSES.iterdir()):
            if process.name.isdigit() and _is_mine(int(process.name)):
                found.append(f"process {process.name} still uses a GPU")
    if render_node is not None:
        used = _RENDER_NODES / Path(render_node).name / "device" / "mem_info_vram_used"
        try:
            held = int(used.read_text())
        except (OSError, ValueError):
            return [*found, f"{used} cannot be read, so nobody knows whether the GPU is free"]
        if held > _IDLE_BYTES:
            found.append(f"{held / 2**30:.1f} GiB of the GPU's memory are still in use")
    return found


def _is_mine(process: int) -> bool:
    try:
        return Path("/proc", str(process)).stat().st_uid == os.getuid()
    except OSError:
        return False
