"""A kernel's HIP text, built for this machine: a shared library, and the runtime that loads it."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import os
import platform
import re
import secrets
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tilegate.emulator.source import Parameter, dynamic_lds_names, mark_static_lds, parameters_of
from tilegate.emulator.toolchain import INSTALL, EmulatorError, Toolchain, ToolchainMissing, toolchain
from tilegate.protocol.selection import EMULATED
from tilegate.tools import captured, package_version

_HERE = Path(__file__).parent
_HEADERS = (_HERE / "include", _HERE.parent / "isa" / "include")
_RUNTIME = _HERE / "runtime"
_PAGE = 65536  # the largest page of the hosts there are
_TIMEOUT = 300.0  # seconds, for a build; the slowest seen takes three
_KEPT_SECONDS = 30 * 86_400  # what has not been used for a month is deleted

_COMMON = ("-std=c++17", "-fPIC", "-g1", "-fdeclspec", "-fno-threadsafe-statics")
_SMALL_FRAMES = ("-Wframe-larger-than=16384", "-Werror=frame-larger-than")  # half of a lane's stack (runtime/machine.h)
# -ffp-contract=fast is what hipcc does; each half-precision operation rounds, as on the chip.
_KERNEL = (
    *(
        "-O2",
        "-fno-strict-aliasing",
        "-ffp-contract=fast",
        "-Xclang",
        "-ffloat16-excess-precision=none",
        "-fno-strict-float-cast-overflow",  # conversions to integers saturate, as v_cvt_i32_f32 does
        "-Wno-everything",
    ),
    *("-ferror-limit=3", "-shared", "-fno-exceptions", "-ftemplate-depth=512"),
    "-fno-optimize-sibling-calls",  # the place of a call is where it returns to
    *("-mllvm", "-disable-block-placement"),  # and the order of places that of the source
    "-ftrivial-auto-var-init=pattern",  # what nothing has written is a NaN, or far from 0
    *_SMALL_FRAMES,
)
# The calls that clang's thread sanitizer makes before every access; the runtime is ours. One access stays one: nothing
# is vectorised.
_TRACED = (
    *("-fsanitize=thread", "-fno-vectorize", "-fno-slp-vectorize", "-mllvm", "-disable-vector-combine"),
    *("-mllvm", "-tsan-instrument-read-before-write=1"),
    *("-mllvm", "-tsan-instrument-func-entry-exit=0"),
    *("-mllvm", "-tsan-handle-cxx-exceptions=0"),
)
# Every variable and LDS begin as not initialised, and what depends on them is found (runtime/poison.h). The compiler adds
# its checks before it optimises: it would drop a variable that is only read, and the finding and its name with it. The
# addresses of the shadow are those of runtime/poison.cpp.
_SHADOWED = (
    *("-O0", "-Xclang", "-disable-O0-optnone", "-fno-math-errno", "-emit-llvm", "-c"),
    *("-fsanitize=memory", "-fsanitize-recover=memory", "-fsanitize-memory-track-origins=2"),
    # Integers that wrap, shifts, conversions and private arrays (runtime/arithmetic.cpp).
    "-fsanitize=signed-integer-overflow,shift,float-cast-overflow,local-bounds",
    "-fsanitize-recover=signed-integer-overflow,shift,float-cast-overflow",
    *("-fno-sanitize-memory-param-retval", "-mllvm", "-msan-xor-mask=0x500000000000"),
    *("-mllvm", "-msan-origin-base=0x100000000000"),
)
_NOT_SHADOWED = ("-O2", "-shared", "-ftrivial-auto-var-init=pattern")
_SHADOWED_CODE = (
    *("-mllvm", "-enable-tail-merge=false"),
    "-x",
    "ir",
    "-O1",
    "-fPIC",
    "-g1",
    "-shared",
    "-march=native",
    "-fno-optimize-sibling-calls",
    "-w",
)


class UnsupportedKernel(EmulatorError):  # noqa: N818 - the kernel may be right; it is beyond the emulator
    """The kernel uses something that the emulator does not know; the message names it."""


@dataclass(frozen=True)
class Program:
    """A kernel that can be run here.

    Attributes:
        name, source, arch: the kernel and the chip whose instructions it may use.
        shared_bytes: its dynamic LDS.
        traced: whether it is built with all checks and counters.
        parameters: in the kernel's order.
        library, runner, symbolizer: files.
        atomics: whether it may execute any.
    """

    name: str
    source: str
    arch: str
    shared_bytes: int
    traced: bool
    parameters: tuple[Parameter, ...]
    library: Path
    runner: Path
    symbolizer: str
    atomics: bool


def compile_kernel(source: str, name: str, *, arch: str, shared_bytes: int, traced: bool = True) -> Program:
    """Build a kernel, or find it in the cache. May be called from several threads and processes at once.

    Args:
        source: the generated HIP text.
        name: of the kernel in it.
        arch: the chip, one of `EMULATED`.
        shared_bytes: dynamic shared memory of the launch.
        traced: with all checks and counters (7 to 10 times slower to run), or for values alone.

    Raises:
        ToolchainMissing: there is no clang, or see `prepare`.
        UnsupportedKernel: it uses something that the emulator does not know.
        ValueError: an architecture that is not supported, or a size below 0.
    """
    if arch not in EMULATED:
        raise ValueError(f"unknown architecture {arch!r}; the emulator has {', '.join(EMULATED)}")
    if shared_bytes < 0:
        raise ValueError(f"shared_bytes must be at least 0, got {shared_bytes}")
    tools = toolchain()
    parameters = parameters_of(source, name)
    options = _options(arch, traced)
    folder = cache_folder()
    runner = _runner(tools)
    key = _key(tools, source, name, str(shared_bytes), *options, _headers_digest(), str(package_version("tilelang")))
    library = _cached(
        folder,
        f"{key}.so",
        lambda to: _build_kernel(tools, source, name, to, shared_bytes=shared_bytes, options=options),
    )
    atomics = b"tg_atomic_load" in library.read_bytes()  # what it calls of the runtime is named in it
    return Program(name, source, arch, shared_bytes, traced, parameters, library, runner, tools.symbolizer, atomics)


def shadowed_library(program: Program) -> Path:
    """Build the same kernel to follow every value: what is initialised, what wraps, which index leaves its array.

    Raises:
        ToolchainMissing, UnsupportedKernel: as `compile_kernel`.
    """
    tools = toolchain()
    key = _key(tools, program.library.name, *_SHADOWED, *_SHADOWED_CODE)
    return _cached(cache_folder(), f"{key}.so", lambda to: _build_shadowed(tools, program, to))


def prepare(tools: Toolchain) -> None:
    """See that everything is here that kernels are built with, before the first is: whatever is missing is not its fault.

    Raises:
        ToolchainMissing: there is no TileLang, no place for what is built, or not what the compiler itself needs.
    """
    _templates()
    _runner(tools)


def _runner(tools: Toolchain) -> Path:
    return _cached(cache_folder(), _key(tools, "runner", _runtime_digest()), lambda to: build_runner(tools, to))


def cache_folder() -> Path:
    """Return where built kernels are kept: $XDG_CACHE_HOME/tilegate/emulator, by default under ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "tilegate", "emulator")


def prune() -> None:
    """Delete built kernels that nothing has used for a month."""
    folder, now = cache_folder(), time.time()
    for path in folder.iterdir() if folder.is_dir() else ():
        try:
            if now - path.stat().st_mtime > _KEPT_SECONDS:
                path.unlink()
        except OSError:  # another process was first
            continue


def _options(arch: str, traced: bool) -> tuple[str, ...]:
    includes = [option for folder in (*_HEADERS, _templates()) for option in ("-I", str(folder))]
    return (*_COMMON, *_KERNEL, *(_TRACED if traced else ()), "-march=native", f"-D__{arch}__=1", *includes)


def _templates() -> Path:
    """TileLang's kernel templates, which its generated text includes; found without importing it."""
    found = importlib.util.find_spec("tilelang")
    if found is None or not found.submodule_search_locations:
        raise ToolchainMissing(
            "generated kernels include headers of TileLang, which is not installed: pip install tilelang"
        )
    return Path(found.submodule_search_locations[0], "src")


_being_built: dict[Path, threading.Lock] = {}


def _cached(folder: Path, name: str, build: Callable[[Path], None]) -> Path:
    path = folder / name
    with _being_built.setdefault(path, threading.Lock()):  # threads that need the same wait for one to build it
        if path.exists():
            os.utime(path)
            return path
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ToolchainMissing(
                f"cannot keep built kernels in {folder}: {error.strerror}; set XDG_CACHE_HOME"
            ) from error
        unfinished = folder / f".{secrets.token_hex(8)}"
        try:
            build(unfinished)
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
        return path


def build_runner(tools: Toolchain, to: Path, extra: Sequence[str] = ()) -> None:
    """Build the program that loads a kernel and runs it.

    Args:
        tools: the compiler.
        to: the file to make.
        extra: more options, such as those of a sanitizer.

    Raises:
        ToolchainMissing: it does not build.
    """
    frames = () if extra else _SMALL_FRAMES  # the runtime runs on a lane's stack; sanitizers need more of it
    options = (*_COMMON, *frames, "-O3", "-march=native", "-I", str(_HEADERS[0]), *extra)
    with tempfile.TemporaryDirectory(prefix="tilegate-emulator-") as folder, ThreadPoolExecutor() as pool:
        built = Path(folder, "runner")
        parts = {source: Path(folder, f"{source.stem}.o") for source in sorted(_RUNTIME.glob("*.cpp"))}
        compile_one = [[tools.compiler, *options, "-c", "-o", str(part), str(source)] for source, part in parts.items()]
        link = [tools.compiler, *extra, "-rdynamic", "-o", str(built), *map(str, parts.values()), "-ldl"]
        for done in [*pool.map(_call, compile_one), _call(link)]:
            if done.returncode != 0:
                raise ToolchainMissing(  # no kernel has a part in it
                    f"the emulator's runtime does not build here ({tools.version}): {INSTALL} g++\n{_errors(done.stderr)}"
                )
        shutil.move(built, to)


_WRAPPER = """\
#include <hip/hip_runtime.h>
#include "kernel.hip"
extern "C" {{
__attribute__((weak)) extern char __start_tg_static_lds[], __stop_tg_static_lds[];
char *const tg_static_lds_begin = __start_tg_static_lds, *const tg_static_lds_end = __stop_tg_static_lds;
extern const size_t tg_lds_pool_bytes = {pool}, tg_lds_bytes = {bytes};
}}
asm(".pushsection .bss.tg_lds_pool,\\"aw\\",@nobits\\n.balign {page}\\n.globl tg_lds_pool\\ntg_lds_pool: .zero {pool}\\n"
    ".globl tg_lds\\n.set tg_lds, tg_lds_pool+{begin}\\n{names}.popsection");
template <typename... Arguments, size_t... index>
__attribute__((no_sanitize("thread", "memory"))) static void tg_call(void (*kernel)(Arguments...), void **arguments, std::index_sequence<index...>) {{
  kernel(*static_cast<std::remove_cv_t<Arguments> *>(arguments[index])...);
}}
template <typename... Arguments>
__attribute__((no_sanitize("thread", "memory"))) static void tg_unpack(void (*kernel)(Arguments...), void **arguments) {{
  tg_call(kernel, arguments, std::index_sequence_for<Arguments...>{{}});
}}
extern "C" __attribute__((no_sanitize("thread", "memory"))) void tg_kernel(void **arguments) {{ tg_unpack(&{name}, arguments); }}
"""


def _build_kernel(
    tools: Toolchain, source: str, name: str, to: Path, *, shared_bytes: int, options: Sequence[str]
) -> None:
    with _written(source, name, shared_bytes) as wrapper:
        built = wrapper.with_name("kernel.so")
        done = _call([tools.compiler, *options, "-o", str(built), str(wrapper)])
        if done.returncode != 0:
            raise UnsupportedKernel(_explain(done.stderr, source))
        shutil.move(built, to)


def _build_shadowed(tools: Toolchain, program: Program, to: Path) -> None:
    options = tuple(option for option in _options(program.arch, False) if option not in _NOT_SHADOWED)
    with _written(program.source, program.name, program.shared_bytes) as wrapper:
        checked, built = wrapper.with_name("kernel.bc"), wrapper.with_name("kernel.so")
        for command in (
            [*options, *_SHADOWED, "-o", str(checked), str(wrapper)],
            [*_SHADOWED_CODE, "-o", str(built), str(checked)],
        ):
            done = _call([tools.compiler, *command])
            if done.returncode != 0:
                raise UnsupportedKernel(_explain(done.stderr, program.source))
        shutil.move(built, to)


@contextlib.contextmanager
def _written(source: str, name: str, shared_bytes: int) -> Iterator[Path]:
    """Give the file to compile, in a folder with the kernel that it includes."""
    # The dynamic LDS ends at a page's end, or as close to it as its alignment of 1024 bytes allows.
    size = -(-shared_bytes // 1024) * 1024
    end = _PAGE + -(-size // _PAGE) * _PAGE
    begin = end - size
    names = "".join(f".globl {lds}\\n.set {lds}, tg_lds_pool+{begin}\\n" for lds in dynamic_lds_names(source))
    wrapper = _WRAPPER.format(pool=end + 2 * _PAGE, page=_PAGE, bytes=shared_bytes, begin=begin, names=names, name=name)
    with tempfile.TemporaryDirectory(prefix="tilegate-emulator-") as folder:
        Path(folder, "kernel.hip").write_text(mark_static_lds(source), encoding="utf-8")
        path = Path(folder, "wrapper.cpp")
        path.write_text(wrapper, encoding="utf-8")
        yield path


def _call(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    try:
        return captured(command, _TIMEOUT)
    except subprocess.TimeoutExpired:
        raise UnsupportedKernel(f"the compiler took longer than {_TIMEOUT:.0f} s") from None


def _explain(output: str, source: str) -> str:
    """Name the construct that the compiler stumbled over, with the kernel's line."""
    unknown = re.search(
        r"(?:undeclared identifier|unknown builtin|no member named|no matching function for call to|call to) '([^'<(]+)",
        output,
    )
    mnemonic = re.search(
        r"(?:invalid instruction mnemonic|invalid operand for inline asm|unrecognized instruction)[^\n]*", output
    )
    what = f"`{unknown[1]}`" if unknown else "inline assembly" if mnemonic else "a construct"
    at = re.findall(r"kernel\.hip:(\d+):", output)
    lines = source.splitlines()
    where = f"\n  line {at[0]}: {lines[int(at[0]) - 1].strip()[:200]}" if at and int(at[0]) <= len(lines) else ""
    return f"the kernel uses {what} that the emulator does not know{where}\n{_errors(output)}"


def _errors(output: str) -> str:
    errors = [re.sub(r"^\S*/(?=[\w.]+:\d)", "", line) for line in output.splitlines() if "error:" in line]
    return "\n".join(f"  {line[:300]}" for line in errors[:3])


def _key(tools: Toolchain, *parts: str) -> str:
    digest = hashlib.sha256()
    for part in (tools.version, _processor(), *parts):
        digest.update(f"{len(part)}:{part}".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


@functools.cache
def _processor() -> str:
    """What -march=native follows from: a cache may be shared by different machines."""
    try:
        information = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        information = ""
    features = re.search(r"^(flags|Features)\s*:.*$", information, re.MULTILINE)
    return f"{platform.machine()} {features[0] if features else ''}"


@functools.cache
def _headers_digest() -> str:
    return _digest(path for folder in _HEADERS for path in folder.rglob("*.h*"))


@functools.cache
def _runtime_digest() -> str:
    return _digest([*_RUNTIME.iterdir(), *_HEADERS[0].rglob("*.h")])


def _digest(paths: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(f"{path.relative_to(_HERE.parent)}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()
