"""Which compiler turns generated HIP text into AMD instructions here, how it is called, and its identity.

Where ROCm is installed, its own hipcc, with the headers it ships: what would run on the chip. Elsewhere a clang that
knows the chip, with the lean headers of this package (`include/`). The numbers depend on both, so they are part of every
report's fingerprint, and two commits are only ever compared under one toolchain.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tilegate.files import UsageError
from tilegate.protocol.artifacts import JSON
from tilegate.tools import captured, compiler_path, package_version, tool_version

COMPILER_VARIABLE = "TILEGATE_HIP_COMPILER"

HEADERS = Path(__file__).parent / "include"

# In this order, the first that knows the chip. clang 19 is the one with which the numbers in docs/isa.md were made;
# gfx950 is known from clang 20 on.
_CLANGS = ("clang++-19", "clang++-20", "clang++-21", "clang++-22", "clang++-23", "clang++")
_ADVICE = {
    "gfx950": "apt-get install -y clang-22 rocm-device-libs",
    "": "apt-get install -y clang-19 rocm-device-libs",
}
_INSTALL_LIBRARY = "apt-get install -y rocm-device-libs"
_HEADER = re.compile(r"'([\w./-]+)' file not found")
_PART_OF_ROCM = re.compile(r"cannot find (?:ROCm|HIP)[^;\n]*")
# Of the device library of ROCm 5.2, which has no gfx942: as gfx90a, whose instructions gfx942 has, too.
_DEVICE_LIBRARIES = (
    "ocml",
    "ockl",
    "oclc_isa_version_90a",
    "oclc_wavefrontsize64_on",
    "oclc_finite_only_off",
    "oclc_unsafe_math_off",
    "oclc_daz_opt_off",
    "oclc_correctly_rounded_sqrt_on",
    "oclc_abi_version_500",
)
_DEVICE_LIBRARY_FOLDERS = ("/usr/lib/x86_64-linux-gnu/amdgcn/bitcode", "/usr/lib/aarch64-linux-gnu/amdgcn/bitcode")
# What decides the code, beside the chip: TileLang's own options for hipcc, less its debug information.
_OPTIONS = ("-std=c++17", "-O3")
_LIBRARY_CALL = re.compile(r"\b(__oc[km]l_\w+)@")
_TIMEOUT = 600.0  # seconds; a kernel that spills by the hundred takes a minute


class ToolchainError(Exception):
    """What compiles for the chip is not all here; the message is one line and says what to install. Exit code 5.

    A state of the machine, which is never held against a kernel.
    """


class CompileError(Exception):
    """The compiler rejects a kernel; the message holds its first errors."""


@dataclass(frozen=True)
class Toolchain:
    """A compiler for one chip.

    Attributes:
        arch: the chip.
        command: the compiler with all its options, without input and output.
        hipcc: whether it is ROCm's own, with ROCm's headers.
        version: the compiler's version line.
    """

    arch: str
    command: tuple[str, ...]
    hipcc: bool
    version: str

    def identity(self) -> dict[str, JSON]:
        """Describe all that decides the instructions of a given source; the fingerprint is the hash of the rest."""
        described: dict[str, JSON] = {
            "arch": self.arch,
            "compiler": self.version,
            "headers": "ROCm" if self.hipcc else f"tilegate {_hash_of_headers()[:12]}",
            "device_libraries": "ROCm" if self.hipcc else _device_library_version(),
            "tilelang": package_version("tilelang"),
            "options": list(_OPTIONS),
        }
        return {**described, "fingerprint": hashlib.sha256(repr(sorted(described.items())).encode()).hexdigest()}

    def compile(self, source: str) -> str:
        """Compile a generated kernel to assembler text.

        Raises:
            CompileError: the compiler rejects it, takes longer than ten minutes, or calls a library function that there is
                not.
            ToolchainError: something is missing here that it needs: AMD's device library, C++ headers, the compiler.
        """
        with tempfile.TemporaryDirectory(prefix="tilegate-isa-") as folder:
            text, listing = Path(folder, "kernel.hip"), Path(folder, "kernel.s")
            text.write_text(source, encoding="utf-8")
            try:
                done = captured([*self.command, "-S", "-o", str(listing), str(text)], _TIMEOUT)
            except subprocess.TimeoutExpired:
                raise CompileError(f"the compiler took longer than {_TIMEOUT:.0f} s") from None
            except OSError as error:
                raise ToolchainError(
                    f"{self.command[0]} cannot be started: {error.strerror}; {_advice(self.arch)}"
                ) from None
            if done.returncode != 0 and (lacking := _lacking(done.stderr)) is not None:
                raise ToolchainError(f"{lacking[0]}: {_advice(self.arch) if lacking[1] is None else lacking[1]}")
            if done.returncode != 0 or not listing.is_file():
                raise CompileError(_first_errors(done.stderr, folder) or f"exit status {done.returncode}")
            assembler = listing.read_text(encoding="utf-8", errors="replace")
        missing = sorted(set(_LIBRARY_CALL.findall(assembler)))
        if missing:
            names = ", ".join(missing[:3])
            if not self.hipcc and _device_library_folder() is None:
                raise ToolchainError(
                    f"kernels call AMD's device library ({names}), which is not here: {_INSTALL_LIBRARY}"
                )
            raise CompileError(
                f"calls {names}, which AMD's device library here does not have; if it is too old: {_INSTALL_LIBRARY}"
            )
        return assembler


def find_toolchain(arch: str, named: str | None = None) -> Toolchain:
    """Find the compiler for a chip.

    Args:
        arch: e.g. "gfx942".
        named: the compiler to use (a name or a path); by default `TILEGATE_HIP_COMPILER`, then ROCm's hipcc, then the
            first clang that knows the chip.

    Raises:
        ToolchainError: there is none, with the line that installs one.
        UsageError: the one that is named does not exist or does not know the chip.
    """
    named = named or os.environ.get(COMPILER_VARIABLE)
    if named:
        path = shutil.which(named)
        if path is None:
            raise UsageError(f"the compiler {named!r} is not there; --compiler or {COMPILER_VARIABLE} must name one")
        if not _knows(path, arch):
            raise UsageError(f"{named} ({tool_version(path)}) does not know {arch}")
        return _toolchain(arch, path)
    candidates = filter(None, [compiler_path("hip"), *map(shutil.which, _CLANGS)])
    path = next((candidate for candidate in candidates if _knows(candidate, arch)), None)
    if path is None:
        raise ToolchainError(
            f"no compiler here knows {arch}: {_advice(arch)}   (or install ROCm, or name one with --compiler)"
        )
    return _toolchain(arch, path)


def _lacking(errors: str) -> tuple[str, str | None] | None:
    """Return what the compiler did not find that no kernel brings, and the line that installs it (None: as for itself)."""
    if (part := _PART_OF_ROCM.search(errors)) is not None:
        return f"the compiler {part[0]}", None
    header = _HEADER.search(errors)
    if header is None:
        return None
    if header[1].isidentifier():  # <cstdint>: of C++ itself, whose headers have neither folder nor ending
        return f"the compiler does not find C++'s own header <{header[1]}>", "apt-get install -y g++"
    if header[1].startswith("tl_templates/") and not _template_options():
        return "generated kernels include headers of TileLang, which is not installed", "pip install tilelang"
    return None


def _advice(arch: str) -> str:
    return _ADVICE.get(arch, _ADVICE[""])


def _toolchain(arch: str, path: str) -> Toolchain:
    hipcc = Path(path).name.startswith("hipcc")
    options = [f"--offload-arch={arch}", "--cuda-device-only", *_OPTIONS, "-w"]
    if not hipcc:
        options = ["-x", "hip", *options, "-nogpuinc", "-nogpulib"]
        options += ["-include", str(HEADERS / "prologue.h"), "-I", str(HEADERS), *_link_device_libraries()]
    return Toolchain(arch, (path, *options, *_template_options()), hipcc, tool_version(path) or "unknown")


def _template_options() -> Sequence[str]:
    """TileLang's kernel templates, which its generated text includes; found without importing it."""
    found = importlib.util.find_spec("tilelang")
    folders = found.submodule_search_locations if found else None
    return ("-I", str(Path(folders[0], "src"))) if folders else ()


def _link_device_libraries() -> Sequence[str]:
    folder = _device_library_folder()
    if folder is None:  # many kernels call no library function; for one that does, `Toolchain.compile` says so
        return ()
    return [
        part
        for name in _DEVICE_LIBRARIES
        for part in ("-Xclang", "-mlink-builtin-bitcode", "-Xclang", str(folder / f"{name}.bc"))
    ]


def _device_library_folder() -> Path | None:
    return next(
        (f for f in map(Path, _DEVICE_LIBRARY_FOLDERS) if all((f / f"{n}.bc").is_file() for n in _DEVICE_LIBRARIES)),
        None,
    )


@functools.cache
def _device_library_version() -> str | None:
    folder = _device_library_folder()
    if folder is None:
        return None
    digest = hashlib.sha256()
    for name in _DEVICE_LIBRARIES:
        digest.update((folder / f"{name}.bc").read_bytes())
    return digest.hexdigest()[:12]


@functools.cache
def _hash_of_headers() -> str:
    digest = hashlib.sha256()
    for path in sorted(HEADERS.rglob("*.h*")):
        digest.update(f"{path.relative_to(HEADERS)}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


@functools.cache
def _knows(path: str, arch: str) -> bool:
    """Whether the compiler can generate code for the chip: asked with an empty kernel."""
    probe = [
        "-x",
        "hip",
        f"--offload-arch={arch}",
        "--cuda-device-only",
        "-nogpuinc",
        "-nogpulib",
        "-S",
        "-o",
        os.devnull,
        "-",
    ]
    try:
        done = subprocess.run([path, *probe], input="", capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _first_errors(output: str, folder: str) -> str:
    errors = [
        line.replace(f"{folder}/", "")
        for line in output.splitlines()
        if " error: " in line or line.startswith("error:")
    ]
    return "\n".join(errors[:3])
