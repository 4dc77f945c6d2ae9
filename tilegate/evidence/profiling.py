"""Runs one case of a prepared revision under the vendor's profiler."""

from __future__ import annotations

import csv
import io
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tilegate import tools
from tilegate.evidence import counters
from tilegate.evidence.counters import Launch
from tilegate.files import UsageError
from tilegate.measuring.workspace import Workspace, environment_of

TIMEOUT = 600.0
"""Seconds of one run under a profiler: imports, compiling, and up to some dozen replays of a kernel."""

_TOOLS = {"cuda": "ncu", "hip": "rocprofv3"}
_INSTALL = {
    "cuda": "ncu comes with the CUDA toolkit (Nsight Compute)",
    "hip": "rocprofv3 comes with ROCm 6.2 and newer (apt-get install rocprofiler-sdk)",
}
_RIGHTS = (
    "the driver lets only administrators read counters. As root: run it with sudo; for all users: put "
    "'options nvidia NVreg_RestrictProfilingToAdminUsers=0' into a file in /etc/modprobe.d and reboot; in a container: "
    "start it with --cap-add=SYS_ADMIN (https://developer.nvidia.com/ERR_NVGPUCTRPERM)"
)
_PRIVATE_COLUMNS = ("Host Name", "Process ID", "Process Name")


class NoProfilerError(UsageError):
    """There is no profiler here, or it may not read counters."""


@dataclass(frozen=True)
class Profile:
    """What a profiler saw of one launch of a case.

    Attributes:
        tool: its name and version.
        launches: of the kernels, in order.
        raw: its files by name, without what names the machine.
    """

    tool: str
    launches: tuple[Launch, ...]
    raw: dict[str, str]


def profiler(target: str) -> str:
    """Return the path of the profiler for "cuda" or "hip". Raises NoProfilerError."""
    if target not in _TOOLS:
        raise NoProfilerError("a CPU has no counters that tilegate reads; profile on a machine with a GPU")
    found = shutil.which(_TOOLS[target])
    if found is None and target == "hip":
        found = shutil.which("/opt/rocm/bin/rocprofv3")
    if found is None:
        raise NoProfilerError(f"there is no {_TOOLS[target]} on PATH; {_INSTALL[target]}")
    return found


def profile(workspace: Workspace, case: str, folder: Path) -> Profile:
    """Launch a case once under the profiler.

    Args:
        workspace: the revision, prepared for a GPU target.
        case: id of the case.
        folder: an existing folder for the profiler's files.

    Raises:
        NoProfilerError: there is none, or it has no right to read counters.
        UsageError: it failed; with the end of what it printed.
    """
    tool = profiler(workspace.target)
    names = folder / "kernels.txt"
    program = [
        *(
            sys.executable,
            "-P",
            "-m",
            "tilegate.worker.launch",
            workspace.suite,
            str(workspace.suite_root),
            workspace.package,
        ),
        *(str(workspace.package_root), case, str(names)),
    ]
    version = tools.tool_version(tool) or Path(tool).name
    if workspace.target == "cuda":
        text = _ncu(tool, program, workspace, folder)
        launches, raw = counters.read_ncu(text), {"ncu.csv": _without_columns(text)}
        chosen: Sequence[Launch] = launches
    else:
        texts = _rocprof(tool, program, workspace, folder)
        launches = counters.read_rocprof(list(texts.values()))
        raw = texts
        chosen = last_of_each(launches, names.read_text(encoding="utf-8").split())
    if not chosen:
        raise UsageError(f"{Path(tool).name} recorded no launch of {case}; its output is in {folder}")
    return Profile(f"{Path(tool).name}: {version}", tuple(chosen), raw)


def last_of_each(launches: Sequence[Launch], names: Sequence[str]) -> list[Launch]:
    """Return the last launch of each kernel of the case; of all kernels, the very last if none has such a name."""
    last = {launch.kernel: launch for launch in launches if any(name in launch.kernel for name in names)}
    return list(last.values()) or list(launches[-1:])


def _ncu(tool: str, program: Sequence[str], workspace: Workspace, folder: Path) -> str:
    log = folder / "ncu.log"
    command = [
        *(tool, "--csv", "--page", "raw", "--log-file", str(log), "--target-processes", "all"),
        # Clocks stay as they are: other work on the machine must not be slowed by a profiler.
        *("--clock-control", "none", "--profile-from-start", "off", "--metrics", ",".join(_available(tool))),
    ]
    shown = _run([*command, *program], workspace)
    text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    said = text + shown
    if "ERR_NVGPUCTRPERM" in said:
        raise NoProfilerError(_RIGHTS)
    if '"ID"' not in text:
        raise UsageError(f"ncu gave no table: {_tail(said)}")
    return text


def _available(tool: str) -> list[str]:
    """Return those of our metrics that this ncu knows for this chip: one that it does not know ends the whole run."""
    try:
        listed = tools.captured([tool, "--query-metrics"], TIMEOUT).stdout
    except (OSError, subprocess.TimeoutExpired):
        return list(counters.NCU_METRICS)
    known = {line.split()[0] for line in listed.splitlines() if "__" in line.partition(" ")[0]}
    wanted = [name for name in counters.NCU_METRICS if name.partition(".")[0] in known or name.startswith("launch__")]
    return wanted if known else list(counters.NCU_METRICS)


def _rocprof(tool: str, program: Sequence[str], workspace: Workspace, folder: Path) -> dict[str, str]:
    texts = {}
    for number, names in enumerate(counters.ROCPROF_PASSES, 1):
        place = folder / f"pass-{number}"
        command = [tool, "--pmc", *names, "--output-format", "csv", "-d", str(place), "-o", "pass", "--"]
        shown = _run([*command, *program], workspace)
        # A list with an unknown counter writes no file and still exits with 0.
        for file in sorted(place.rglob("*counter_collection.csv")):
            texts[f"rocprofv3-{number}.csv"] = file.read_text(encoding="utf-8", errors="replace")
        if not texts:
            raise UsageError(f"rocprofv3 wrote no counter_collection.csv for {' '.join(names)}: {_tail(shown)}")
    return texts


def _run(command: Sequence[str], workspace: Workspace) -> str:
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT,
            stdin=subprocess.DEVNULL,
            env=environment_of(workspace),
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise UsageError(f"{Path(command[0]).name} took longer than {TIMEOUT:.0f} s") from None
    return done.stdout + done.stderr


def _without_columns(text: str) -> str:
    """Return ncu's table of our metrics, without what names the machine and its processes."""
    rows = list(csv.reader(line for line in text.splitlines() if line.startswith('"')))
    start = next(index for index, row in enumerate(rows) if row[0] == "ID")
    # ncu adds every attribute of the device, its place on the bus among them.
    kept = [index for index, name in enumerate(rows[start]) if name in counters.NCU_METRICS or "__" not in name]
    kept = [index for index in kept if rows[start][index] not in _PRIVATE_COLUMNS]
    output = io.StringIO()
    csv.writer(output, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(
        [row[index] for index in kept if index < len(row)] for row in rows[start:]
    )
    return output.getvalue()


def _tail(text: str) -> str:
    return " / ".join(line.strip() for line in text.strip().splitlines()[-3:])[:500]
