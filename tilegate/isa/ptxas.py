"""CUDA kernels: registers, shared memory, spills and the main loop's instructions, where nvcc is installed."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import re
import shlex
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tilegate.isa import sass
from tilegate.isa.figures import dynamic_lds_of
from tilegate.isa.toolchain import ToolchainError
from tilegate.lowering.store import Store, key_of
from tilegate.protocol.artifacts import Artifact
from tilegate.tools import captured, compiler_path, tool_version

_TIMEOUT = 600.0
_USED = re.compile(r"Used (\d+) registers")
_STATIC = re.compile(r"(\d+) bytes smem")
_SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_FUNCTION = re.compile(r"Compiling entry function '(\S+)'")


@dataclass(frozen=True)
class Report:
    """What ptxas says of one kernel; bytes but for registers, which are a thread's.

    `loop` counts the instructions of the main loop by class (`sass.CLASSES`); None without nvdisasm.
    """

    registers: int
    shared_static: int
    stack: int
    spill_stores: int
    spill_loads: int
    loop: Mapping[str, int] | None = None


def parse(text: str) -> dict[str, Report]:
    """Read the output of `ptxas --verbose`: kernels by their symbol."""
    parts = _FUNCTION.split(text)
    found = {}
    for name, body in zip(parts[1::2], parts[2::2], strict=True):
        used, static, spills = _USED.search(body), _STATIC.search(body), _SPILLS.search(body)
        if used:
            stack, stores, loads = (int(value) for value in spills.groups()) if spills else (0, 0, 0)
            found[name] = Report(int(used[1]), int(static[1]) if static else 0, stack, stores, loads)
    return found


def report(artifact: Artifact, arch: str, store: Store) -> Report:
    """Compile a generated CUDA kernel and return ptxas's report of it.

    Raises:
        ToolchainError: there is no nvcc.
        ValueError: it does not compile.
    """
    nvcc = compiler_path("cuda")
    if nvcc is None:
        raise ToolchainError("there is no nvcc here; install the CUDA toolkit, or set CUDA_HOME to where it is")
    flags = flags_of(artifact)
    key = key_of("ptxas", artifact.source, arch, flags, tool_version(nvcc), _disassembler_version())
    known = store.get(key)
    if known is None:
        text, listing = _compile(artifact.source, arch, nvcc, flags)
        loop = None if listing is None else sass.counts(sass.main_loop(sass.parse(listing, artifact.name)))
        known = json.dumps({"text": text, "loop": loop})
        store.put(key, known)
    kept = json.loads(known)
    reports = parse(kept["text"])
    if not reports:
        raise ValueError(f"{artifact.name}: ptxas reported no kernel")
    return replace(reports.get(artifact.name) or next(iter(reports.values())), loop=kept["loop"])


def flags_of(artifact: Artifact) -> list[str]:
    """Return nvcc's flags as TileLang passes them for this artifact: they decide what is compiled."""
    settings = artifact.launch.get("pass_configs")
    settings = settings if isinstance(settings, Mapping) else {}
    flags = ["--use_fast_math"] if settings.get("tl.enable_fast_math") else []
    for given in (artifact.launch.get("compile_flags"), settings.get("tl.device_compile_flags")):
        for flag in [given] if isinstance(given, str) else given if isinstance(given, list | tuple) else []:
            flags += shlex.split(str(flag))
    return flags


def _disassembler_version() -> str | None:
    try:
        return tool_version(sass.disassembler())
    except ToolchainError:
        return None


def changes(base_artifact: Artifact, head_artifact: Artifact, arch: str, store: Store) -> list[tuple[bool, str]]:
    """Return what changed, likeliest causes first, each with whether it got better: less of everything is. Raises as `report`."""
    base, head = (report(artifact, arch, store) for artifact in (base_artifact, head_artifact))
    shared = dynamic_lds_of(base_artifact), dynamic_lds_of(head_artifact)
    # Counts of loops that do other work do not compare, so that none of them got better.
    before_loop, after_loop = (base.loop, head.loop) if base.loop and head.loop else ({}, {})
    comparable = before_loop.get("matrix") == after_loop.get("matrix")
    compared: tuple[tuple[str, int, int], ...] = (
        ("bytes spilled (stores)", base.spill_stores, head.spill_stores),
        ("bytes spilled (loads)", base.spill_loads, head.spill_loads),
        ("registers a thread", base.registers, head.registers),
        ("dynamic shared memory, bytes", *shared),
        ("static shared memory, bytes", base.shared_static, head.shared_static),
        ("stack, bytes", base.stack, head.stack),
    )
    counted = (
        (f"instructions in the main loop, {name}:", before_loop.get(name, 0), after_loop.get(name, 0))
        for name in dict.fromkeys([*after_loop, *before_loop])
    )
    directed = [*((True, *change) for change in compared), *((comparable, *change) for change in counted)]
    return [
        (less_is_better and after < before, f"{name} {before:,} -> {after:,}")
        for less_is_better, name, before, after in directed
        if before != after
    ]


def _compile(source: str, arch: str, nvcc: str, flags: Sequence[str]) -> tuple[str, str | None]:
    # TileLang compiles Hopper kernels for the "a" variant: only it has the warpgroup matrix instructions.
    suffix = "a" if int(re.sub(r"\D", "", arch)) >= 90 and not arch.endswith("a") else ""
    found = importlib.util.find_spec("tilelang")
    root = Path(next(iter(found.submodule_search_locations))) if found and found.submodule_search_locations else None
    includes = ["-I", str(root / "src"), "-I", str(root / "3rdparty" / "cutlass" / "include")] if root else []
    with tempfile.TemporaryDirectory(prefix="tilegate-isa-") as folder:
        path = Path(folder, "kernel.cu")
        path.write_text(source, encoding="utf-8")
        command = [
            nvcc,
            "-std=c++17",
            "-O3",
            "-w",
            "-cubin",
            f"-arch={arch}{suffix}",
            "-Xptxas",
            "-v",
            *includes,
            *flags,
        ]
        cubin = Path(folder, "kernel.cubin")
        try:
            done = captured([*command, "-o", str(cubin), str(path)], _TIMEOUT)
        except subprocess.TimeoutExpired:
            raise ValueError(f"nvcc took longer than {_TIMEOUT:.0f} s") from None
        listing = None
        if done.returncode == 0:
            with contextlib.suppress(ToolchainError):
                listing = sass.disassemble(cubin)
    if done.returncode != 0:
        errors = [line.replace(f"{folder}/", "") for line in done.stderr.splitlines() if "error" in line]
        raise ValueError("nvcc rejects the kernel: " + "\n".join(errors[:3]))
    return done.stderr + done.stdout, listing
