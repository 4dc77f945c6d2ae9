"""`tilegate doctor`: what this machine can measure, what is missing for the rest, and the command that adds it."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tilegate import __version__, emulator, tools
from tilegate.files import UsageError
from tilegate.measuring import device_lock, environment
from tilegate.progress import Reporter
from tilegate.protocol import JSON, TARGETS

SCHEMA = "tilegate-doctor/1"
RUNNER_SCHEMA = "tilegate-doctor-runner/1"
EXIT_READY, EXIT_NOTHING_CAN_MEASURE = 0, 5

_GATE_PACKAGES = ("asv_runner", "scipy", "jsonschema")
_OTHER_PACKAGES = ("asv", "tilelang", "torch", "triton")
_LOWERING_TIMEOUT = 180.0  # seconds, four chips and a first import from a cold disk
_WHEELS = {
    "cpu": "https://download.pytorch.org/whl/cpu",
    "cuda": "https://download.pytorch.org/whl/cu130",
    "hip": "https://download.pytorch.org/whl/rocm6.4",
}
_TOOLS = {
    "git": "reading the commits that are compared",
    "g++": "target cpu",
    "nvcc": "target cuda",
    "hipcc": "target hip",
    "clang++-19": "compiling HIP text for AMD chips without ROCm",
    "node": "linting the workflows (make lint)",
}


@dataclass(frozen=True)
class Gap:
    """Something that is missing.

    Attributes:
        what: a phrase that says what is missing.
        fix: the command that adds it, or what to do where no command can.
    """

    what: str
    fix: str


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the `doctor` subcommand to `tilegate`."""
    parser = subparsers.add_parser(
        "doctor",
        help="show what this machine can measure, and what is missing",
        description=(
            "Show what this machine can measure, what is missing for the rest, and the command that adds it. "
            "Exit status: 0 if at least one target can be measured here, 5 if none."
        ),
    )
    parser.add_argument("--json", action="store_true", help=f"print JSON ({SCHEMA}) instead of tables")
    parser.add_argument(
        "--runner",
        type=Path,
        nargs="?",
        const=Path(),
        metavar="DIR",
        help="check instead whether this machine is set up as docs/runners.md says; DIR: where the runner is installed "
        "(default: here). Exit status 5 if a point is not as it should be",
    )


def run(args: argparse.Namespace) -> int:
    """Examine this machine, print the findings, and return the exit status."""
    if args.runner is not None:
        return _run_runner(args.runner, as_json=args.json)
    report = examine(Path.cwd())
    if args.json:
        print(json.dumps(report, indent=2))
    else:
        render(report, Console())
    return EXIT_READY if report["ready"] else EXIT_NOTHING_CAN_MEASURE


def _run_runner(folder: Path, *, as_json: bool) -> int:
    from tilegate.ci import runner  # noqa: PLC0415

    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}; --runner names the one that holds the runner's run.sh")
    points = runner.examine(runner.Place(Path("/"), folder.resolve(), Path.cwd(), os.environ))
    if as_json:
        print(json.dumps({"schema": RUNNER_SCHEMA, "points": [asdict(point) for point in points]}, indent=2))
    else:
        console = Console()
        for point in points:
            mark = "[green]good[/]" if point.good else "[red]FIX [/]"
            console.print(
                f"{mark} [bold]{escape(point.name)}[/]: {escape(point.found)}", soft_wrap=True, highlight=False
            )
            if point.fix:
                console.print(f"         [cyan]{escape(point.fix)}[/]", soft_wrap=True, highlight=False)
    return EXIT_READY if all(point.good for point in points) else EXIT_NOTHING_CAN_MEASURE


def examine(folder: Path) -> dict[str, JSON]:
    """Examine this machine and the repository that `folder` lies in; what is looked at is shown on stderr.

    Returns:
        The document that `--json` prints: `schema`, `tilegate`, `ready`, `machine`, `devices`, `torch`, `targets`
        ({target: {measures, missing: [{what, fix}], busy: who holds the device or None}}), `lowering` ({chip: {lowers, error, compilers}}),
        `emulation` ({executes, missing}), `tools`,
        `packages`, `repository`, `storage`. Sizes are in bytes; what is absent is None.
    """
    with ThreadPoolExecutor() as pool, Reporter().phase("examine", 3) as phase:
        # Each of the two waits for a child that imports for seconds.
        torch_answer = pool.submit(environment.probe_torch)
        lowering_answer = pool.submit(lowering)
        phase.doing("tools and the emulator")
        found: dict[str, JSON] = {name: _tool(name, used_for) for name, used_for in _TOOLS.items()}
        executes = emulation()
        phase.done("tools and the emulator")
        phase.doing("torch and its devices")
        torch = torch_answer.result()
        phase.done("torch and its devices")
        phase.doing("code generation for four chips")
        lowered = lowering_answer.result()
        phase.done("code generation for four chips")
    gaps = {target: _gaps(target, torch) for target in TARGETS}
    return {
        "schema": SCHEMA,
        "tilegate": __version__,
        "ready": any(not missing for missing in gaps.values()),
        "machine": environment.machine(),
        "devices": torch.get("devices"),
        "torch": {key: torch.get(key) for key in ("torch", "cuda", "rocm", "error")},
        "targets": {
            target: {
                "measures": not missing,
                "missing": [asdict(gap) for gap in missing],
                "busy": None if missing else busy(target),
            }
            for target, missing in gaps.items()
        },
        "lowering": lowered,
        "emulation": executes,
        "tools": found,
        "packages": {name: tools.package_version(name) for name in (*_OTHER_PACKAGES, *_GATE_PACKAGES)},
        "repository": repository(folder),
        "storage": storage(),
    }


def busy(target: str) -> str | None:
    """Tell who is measuring on the device of `target` right now, None if nobody is."""
    try:
        with device_lock.hold(target, wait=False, who="tilegate doctor", say=lambda message: None):
            return None
    except UsageError as held:
        return str(held).partition(";")[0]


def lowering() -> dict[str, JSON]:
    """Tell for which chips TileLang generates code here, by doing it in a child process.

    Returns:
        ``{chip: {"lowers": bool, "error": text or None, "compilers": [names]}}``; `compilers` can compile the text.
    """
    probe = Path(__file__).with_name("lowering_probe.py")
    compilers = {
        "gfx": [name for name in ("hipcc", "clang++-19") if _path_of(name)],
        "sm_": [name for name in ("nvcc",) if _path_of(name)],
    }
    chips = ("gfx942", "gfx90a", "gfx950", "sm_90")
    answers, died = _ask_per_chip([sys.executable, "-P", str(probe), *chips])
    return {
        chip: {
            **answers.get(chip, {"lowers": False, "error": died}),
            "compilers": compilers[chip[:3]],
        }
        for chip in chips
    }


def _ask_per_chip(command: Sequence[str]) -> tuple[dict[str, dict[str, JSON]], str]:
    """Return the answers by chip, and why a chip without one has none."""
    try:
        child = tools.captured(command, _LOWERING_TIMEOUT)
        printed, status, complaint = child.stdout, child.returncode, child.stderr.strip().splitlines()[-1:]
    except subprocess.TimeoutExpired as late:
        printed = late.stdout.decode(errors="replace") if isinstance(late.stdout, bytes) else late.stdout or ""
        status, complaint = -1, [f"no answer within {_LOWERING_TIMEOUT:.0f} s"]
    answers = {}
    for line in printed.splitlines():
        if line.startswith('{"arch"'):
            answer = json.loads(line)
            answers[answer.pop("arch")] = answer
    return answers, f"the compiler ended with status {status}: {' '.join(complaint)}"


def emulation() -> dict[str, JSON]:
    """Tell whether `tilegate emulate` can execute HIP kernels here: `executes`, and what is `missing` otherwise."""
    try:
        emulator.toolchain()
    except (emulator.EmulatorError, UsageError) as error:
        return {"executes": False, "missing": str(error)}
    return {"executes": True, "missing": None}


def repository(folder: Path) -> dict[str, JSON]:
    """Describe the git repository around `folder`: `commit` (None outside one or without commits), `shallow`, `dirty`."""
    if _git(folder, "rev-parse", "--is-inside-work-tree") != "true":
        return {"commit": None, "shallow": None, "dirty": None}
    return {
        "commit": _git(folder, "rev-parse", "--verify", "--quiet", "HEAD"),
        "shallow": _git(folder, "rev-parse", "--is-shallow-repository") == "true",
        "dirty": bool(_git(folder, "status", "--porcelain")),
    }


def storage() -> dict[str, JSON]:
    """Tell how much room is left where exported commits and compiled kernels are cached, and for temporary files."""
    places = {
        "cache": Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"),
        "temporary": Path(tempfile.gettempdir()),
    }
    return {name: _room(place) for name, place in places.items()}


def _room(place: Path) -> dict[str, JSON]:
    existing = next(folder for folder in (place, *place.absolute().parents) if folder.is_dir())
    return {
        "path": str(place),
        "writable": os.access(existing, os.W_OK),
        "free_bytes": shutil.disk_usage(existing).free,
    }


def _gaps(target: str, torch: Mapping[str, JSON]) -> list[Gap]:
    """Return what keeps this machine from measuring `target`."""
    pip = f"{shlex.quote(sys.executable)} -m pip install"
    gaps = []
    if shutil.which("git") is None:
        gaps.append(Gap("git", "apt-get install git"))
    absent = [name for name in (*_GATE_PACKAGES, "tilelang") if tools.package_version(name) is None]
    if absent:
        gaps.append(Gap(f"the Python packages {', '.join(absent)}", f"{pip} {' '.join(absent)}"))
    gaps += _torch_gaps(target, torch, pip)
    if tools.compiler_path(target) is None:
        gaps.append(_compiler_gap(target))
    return gaps


def _torch_gaps(target: str, torch: Mapping[str, JSON], pip: str) -> list[Gap]:
    install = f"{pip} torch --index-url {_WHEELS[target]}"
    if torch.get("torch") is None:
        if tools.package_version("torch") is None:
            return [Gap("torch", install)]
        return [Gap(f"a torch that can be imported ({torch.get('error')})", f"{install} --force-reinstall")]
    if target == "cpu":
        return []
    build, node, driver = (
        ("ROCm", "/dev/kfd", "install AMD's amdgpu driver; rocminfo then lists the GPU")
        if target == "hip"
        else ("CUDA", "/dev/nvidiactl", "install NVIDIA's driver; nvidia-smi then lists the GPU")
    )
    gaps = []
    if not torch.get(build.lower()):
        gaps.append(Gap(f"a {build} build of torch (here: {torch['torch']})", f"{install} --force-reinstall"))
    if not Path(node).exists():
        gaps.append(Gap(f"a {build} GPU ({node} is not there)", driver))
    elif not os.access(node, os.R_OK | os.W_OK):
        gaps.append(Gap(f"the right to use {node}", "usermod -aG render,video $USER, then log in again"))
    elif torch.get(build.lower()) and not torch.get("devices"):
        gaps.append(Gap(f"a {build} GPU that torch sees ({torch.get('error') or 'it lists none'})", driver))
    return gaps


def _compiler_gap(target: str) -> Gap:
    return {
        "cpu": Gap("a C++ compiler (TileLang compiles its CPU kernels with it)", "apt-get install g++"),
        "cuda": Gap("nvcc", "install the CUDA toolkit that fits torch's CUDA version, or set CUDA_HOME to it"),
        "hip": Gap("hipcc", "apt-get install hipcc (from AMD's ROCm repository), or set ROCM_PATH to ROCm"),
    }[target]


def _tool(name: str, used_for: str) -> dict[str, JSON]:
    path = _path_of(name)
    return {"path": path, "version": tools.tool_version(path), "used_for": used_for}


def _path_of(tool: str) -> str | None:
    """Return the path of a tool; the GPU compilers also where their toolkits keep them."""
    target = {"nvcc": "cuda", "hipcc": "hip"}.get(tool)
    return tools.compiler_path(target) if target else shutil.which(tool)


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        answer = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except OSError:
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None


def render(report: Mapping[str, JSON], console: Console) -> None:
    """Print a report for people."""
    targets = _mapping(report["targets"])
    able = [name for name, facts in targets.items() if _mapping(facts)["measures"]]
    machine = _mapping(report["machine"])
    if able:
        console.print(f"[bold green]This machine can measure: {', '.join(able)}[/]")
    else:
        console.print("[bold red]This machine can measure nothing yet[/]")
    console.print(escape(f"{machine['cpu']}, {machine['cores']} cores, Linux {machine['kernel']}"))
    for device in _sequence(report["devices"]):
        gpu = _mapping(device)
        console.print(escape(f"{gpu['name']}, {gpu['arch']}, {gpu['compute_units']} compute units"))
    for facts in targets.values():
        if holder := _mapping(facts)["busy"]:
            console.print(f"[yellow]{escape(str(holder))}[/]")
    for name, facts in targets.items():
        missing = [_mapping(gap) for gap in _sequence(_mapping(facts)["missing"])]
        if not missing:
            continue
        console.print(f"\n[bold]To measure {name}[/], this is missing:")
        for gap in missing:
            console.print(f"  [red]{escape(str(gap['what']))}[/]")
            console.print(f"      [cyan]{escape(str(gap['fix']))}[/]", soft_wrap=True, highlight=False)
    console.print()
    console.print(_chip_table(_mapping(report["lowering"])))
    console.print(_tool_table(report))
    for line in _remarks(report):
        console.print(escape(line), soft_wrap=True)


def _chip_table(lowered: Mapping[str, JSON]) -> Table:
    table = Table(title="Chips that TileLang generates code for here", title_justify="left", box=SIMPLE_HEAD)
    table.add_column("chip")
    table.add_column("generates")
    table.add_column("compiled further with")
    for chip, facts in lowered.items():
        answer = _mapping(facts)
        generates = "[green]yes[/]" if answer["lowers"] else f"[red]no[/]: {escape(str(answer['error']))}"
        table.add_row(
            chip, generates, ", ".join(map(str, _sequence(answer["compilers"]))) or "[dim]no compiler here[/]"
        )
    return table


def _tool_table(report: Mapping[str, JSON]) -> Table:
    table = Table(title="Tools and packages", title_justify="left", box=SIMPLE_HEAD)
    table.add_column("name")
    table.add_column("version")
    table.add_column("used for")
    for name, facts in _mapping(report["tools"]).items():
        tool = _mapping(facts)
        version = tool["version"] or ("there, but prints no version" if tool["path"] else None)
        table.add_row(name, _version(version), str(tool["used_for"]))
    for name, installed in _mapping(report["packages"]).items():
        table.add_row(name, _version(installed), "Python package")
    return table


def _version(version: JSON) -> str:
    return escape(str(version)) if version else "[dim]not here[/]"


def _remarks(report: Mapping[str, JSON]) -> list[str]:
    repository_facts = _mapping(report["repository"])
    if repository_facts["commit"] is None:
        lines = ["This folder is not in a git repository with commits: there is nothing to compare yet."]
    elif repository_facts["shallow"]:
        lines = ["This clone is shallow, so older commits cannot be compared; git fetch --unshallow completes it."]
    else:
        lines = []
    emulated = _mapping(report["emulation"])
    lines.append(
        "tilegate emulate can execute HIP kernels on this machine's CPU."
        if emulated["executes"]
        else f"tilegate emulate cannot execute HIP kernels here: {emulated['missing']}"
    )
    for name, facts in _mapping(report["storage"]).items():
        place = _mapping(facts)
        room = f"{float(str(place['free_bytes'])) / 2**30:.1f} GiB free"
        lines.append(f"{name.replace('_', ' ')}: {place['path']}, {room if place['writable'] else 'NOT WRITABLE'}")
    return lines


def _mapping(value: JSON) -> Mapping[str, JSON]:
    return value if isinstance(value, Mapping) else {}


def _sequence(value: JSON) -> Sequence[JSON]:
    return value if isinstance(value, Sequence) and not isinstance(value, str) else ()
