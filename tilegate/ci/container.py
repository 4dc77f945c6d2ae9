"""The container in which code of others runs on a machine of ours: no network, no rights, nothing to write but one folder.

The container is started by this command and not by the `container:` key of a job. The runner gives a job's container the
socket of the Docker daemon (ContainerInfo.cs of actions/runner), and who has that socket is root on the host; steps that
upload results would, besides, need a network in it.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tilegate.files import UsageError

DEVICE_VARIABLE = "TILEGATE_RENDER_NODE"
RUNNER_LABEL = "tilegate.runner"
_IMAGE = re.compile(r"[a-z0-9][a-z0-9._/:-]{0,200}@sha256:[0-9a-f]{64}")
_RENDER_NODE = re.compile(r"/dev/dri/renderD\d{1,3}")
_KFD = Path("/dev/kfd")
_TEMPORARY = "/tmp"  # noqa: S108 - in the container, of memory and its own
_LONGEST_STOP = 60.0  # seconds that the engine gets to end a container


@dataclass(frozen=True)
class Box:
    """What a container may use.

    Attributes:
        image: with its digest, so that it is the one that was reviewed.
        name: of the container.
        read_only: folders it sees, host to container.
        writable: the one folder it may write to, host to container.
        environment: all variables that it gets.
        render_node: the GPU it may use, None for none.
        engine: the command, docker or podman.
    """

    image: str
    name: str
    read_only: Sequence[tuple[Path, str]]
    writable: tuple[Path, str]
    environment: Mapping[str, str]
    render_node: str | None = None
    engine: str = "docker"


def checked_image(image: str | None) -> str:
    """Return the name of an image if it is pinned by digest. Raises UsageError."""
    if not image or not _IMAGE.fullmatch(image):
        raise UsageError(
            f"the container's image is {image or 'not set'}; it must be named with its digest, "
            "registry/name@sha256:…64 hex digits, in .github/bench.toml (docs/runners.md says how to make one)"
        )
    return image


def checked_render_node(node: str | None) -> str:
    """Return the render node that this runner may use. Raises UsageError."""
    if not node or not _RENDER_NODE.fullmatch(node):
        raise UsageError(
            f"{DEVICE_VARIABLE} is {node or 'not set'}; it must name this runner's GPU, /dev/dri/renderD128 for example "
            "(docs/runners.md: put it into the runner's .env file)"
        )
    return node


def runner_name(environment: Mapping[str, str] = os.environ) -> str:
    """Return the name by which this runner's containers are known."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", environment.get("RUNNER_NAME") or "local")[:60]


def command_line(box: Box, command: Sequence[str], folder: str) -> list[str]:
    """Return the engine's command line that runs `command` in `folder` of the container."""
    words = [
        *(box.engine, "run", "--rm", "--name", box.name, "--label", f"{RUNNER_LABEL}={runner_name()}"),
        *("--network", "none", "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
        *(
            "--pids-limit",
            "4096",
            "--ipc",
            "private",
            "--shm-size",
            "8g",
            "--tmpfs",
            f"{_TEMPORARY}:exec,mode=1777,size=16g",
        ),
        *("--pull", "missing", "--user", f"{os.getuid()}:{os.getgid()}", "--workdir", folder),
    ]
    if box.render_node is not None:
        words += ["--device", str(_KFD), "--device", box.render_node]
        for group in sorted({_group_of(Path(device)) for device in (str(_KFD), box.render_node)}):
            words += ["--group-add", str(group)]
        words += _near(box.render_node)
    for host, inside in box.read_only:
        words += ["--mount", f"type=bind,source={_plain(host)},target={inside},readonly"]
    words += ["--mount", f"type=bind,source={_plain(box.writable[0])},target={box.writable[1]}"]
    for name, value in box.environment.items():
        words += ["--env", f"{name}={value}"]
    return [*words, box.image, *command]


def run(box: Box, command: Sequence[str], folder: str, *, seconds: float) -> int:
    """Run a command in a container and return its exit status; however this ends, the container ends, too.

    Raises:
        UsageError: there is no engine, or it took longer than `seconds`.
    """
    words = command_line(box, command, folder)
    try:
        return subprocess.run(words, stdin=subprocess.DEVNULL, timeout=seconds, check=False).returncode
    except FileNotFoundError:
        raise UsageError(
            f"{box.engine} is not installed or not on PATH; docs/runners.md says how to install it"
        ) from None
    except subprocess.TimeoutExpired:
        raise UsageError(f"the container was stopped after {seconds / 60:.0f} minutes, its limit") from None
    finally:
        # Killing the client leaves the container running.
        remove(box.engine, [box.name])


def remove(engine: str, containers: Sequence[str]) -> None:
    """End and remove containers; those that are gone already do not matter."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):  # `left_over` finds out
        subprocess.run(
            [engine, "rm", "--force", "--volumes", *containers],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_LONGEST_STOP,
            check=False,
        )


def left_over(engine: str) -> list[str]:
    """Return the containers of this runner that still exist. Raises UsageError if the engine does not answer."""
    listing = [engine, "ps", "--all", "--quiet", "--filter", f"label={RUNNER_LABEL}={runner_name()}"]
    try:
        done = subprocess.run(listing, capture_output=True, text=True, timeout=_LONGEST_STOP, check=False)
    except (FileNotFoundError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"{engine} does not answer: {error}") from None
    if done.returncode != 0:
        raise UsageError(f"{engine} ps failed: {done.stderr.strip()[-300:]}")
    return done.stdout.split()


def _group_of(device: Path) -> int:
    try:
        return device.stat().st_gid
    except OSError as error:
        raise UsageError(f"{device} cannot be used: {error.strerror}; `tilegate doctor --runner` says more") from None


def _near(render_node: str) -> list[str]:
    """Keep the container on the CPUs and the memory beside its GPU, where the system says which those are."""
    device = Path("/sys/class/drm", Path(render_node).name, "device")
    try:
        cpus = (device / "local_cpulist").read_text().strip()
        node = int((device / "numa_node").read_text())
    except (OSError, ValueError):
        return []
    return ["--cpuset-cpus", cpus, *(["--cpuset-mems", str(node)] if node >= 0 else [])] if cpus else []


def _plain(path: Path) -> str:
    text = str(path.resolve())
    if "," in text or "\n" in text:  # a mount's description is a list with commas
        raise UsageError(f"the folder {text!r} has a comma or a line end in its name; use another")
    return text
