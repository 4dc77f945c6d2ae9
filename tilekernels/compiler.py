"""From a TileLang kernel to source for a target (on any machine) or to something that can be called (where it runs)."""

from __future__ import annotations

import functools
import json
import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from tilekernels import cache
from tilekernels.chips import CHIPS, chip_by_name, chip_of
from tilekernels.progress import progress_bar

CompiledKernel = Callable[..., Any]

tracing = threading.RLock()
"""For who builds a PrimFunc: tracing is Python from end to end, so taking turns costs nothing, and it parses source."""
_Result = TypeVar("_Result")


class CompilationError(RuntimeError):
    """A kernel could not be generated or compiled; says which, for what, and what the compiler said first."""


@dataclass(frozen=True)
class LoweredKernel:
    """What a compiler would be given, and how it would be launched.

    Attributes:
        name: of the function in the source.
        source: HIP, CUDA or C++ text; the same for the same kernel, in every process.
        target: the TileLang target, as JSON text.
        launch: grid (extents of x, y, z; an expression in the kernel's symbols where they are dynamic), block,
            dynamic_shared_bytes, compile_flags, pass_configs. Grid and block are empty on the CPU.
        resources: what is known about the compiled kernel without running it; empty before it is compiled.
    """

    name: str
    source: str
    target: str
    launch: dict[str, Any]
    resources: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class CompileJob:
    """A kernel for `compile_many`: `build()` gives the PrimFunc, `label` is for people."""

    build: Callable[[], Any]
    target: str
    label: str


def target_of(name: str) -> Any:
    """The TileLang target of an architecture.

    Args:
        name: a key of `chips.CHIPS` ("gfx942", "sm_90", …, "cpu"), or "cuda" or "hip" for the current device's.

    Raises:
        ValueError: an unknown name, or no such device here.
    """
    from tilelang import tvm  # noqa: PLC0415 - takes 2-2.5 s

    if name in ("cuda", "hip"):
        chip = chip_of()
        if chip.kind != name:
            raise ValueError(f"there is no {name} device here; name an architecture to compile for: {', '.join(CHIPS)}")
        return target_of(chip.arch)
    chip = chip_by_name(name)
    if chip.kind == "cpu":
        return tvm.target.Target("c")
    if chip.kind == "cuda":
        # The "a" variant has Hopper's warpgroup matrix instructions; TileLang picks it on the device too.
        suffix = "a" if int(chip.arch.removeprefix("sm_")) >= 90 else ""
        return tvm.target.Target({"kind": "cuda", "arch": chip.arch + suffix})
    return tvm.target.Target(
        {
            "kind": "hip",
            "mcpu": chip.arch,
            "mtriple": "amdgcn-amd-amdhsa-hcc",
            "thread_warp_size": chip.wavefront,
        }
    )


def lower(prim_func: Any, target: str) -> LoweredKernel:
    """Generate a kernel's source; needs neither a device nor the target's compiler.

    Args:
        prim_func: a TileLang kernel.
        target: as in `target_of`.

    Raises:
        CompilationError: TileLang cannot generate code for this kernel and target.
        ValueError: as `target_of`.
    """
    import tilelang  # noqa: PLC0415

    tvm_target, options = target_of(target), _Options.of(prim_func, target)
    path = _record_path(prim_func, tvm_target, options)
    record = cache.read_record(path) if path else None
    if record is not None:
        return LoweredKernel(**record)

    def generate() -> Any:
        with tvm_target, tilelang.tvm.transform.PassContext(opt_level=3, config=options.pass_configs):
            return tilelang.lower(prim_func, target=tvm_target, enable_device_compile=False)

    try:
        artifact = despite_parser_clashes(generate)
    except Exception as error:
        raise _failure(str(prim_func.attrs["global_symbol"]), target, error) from error
    lowered = _describe(artifact, tvm_target, options)
    if path:
        cache.write_record(path, asdict(lowered))
    return lowered


def compile_kernel(prim_func: Any, target: str) -> CompiledKernel:
    """Compile a kernel for a device of this machine, or load it from the disk cache.

    On the CPU the host's C++ compiler is called with -O3, on a GPU nvcc or hipcc with TileLang's own flags.

    Args:
        prim_func: a TileLang kernel.
        target: as in `target_of`.

    Returns:
        A function of the kernel's arguments: contiguous tensors on the target's device, and numbers.

    Raises:
        CompilationError: there is no compiler, or it or TileLang rejects the kernel.
        ValueError: as `target_of`.
    """
    from tilelang.cache import cached  # noqa: PLC0415
    from tilelang.jit.kernel import JITKernel  # noqa: PLC0415

    tvm_target, options = target_of(target), _Options.of(prim_func, target)
    arguments = {
        "out_idx": None,
        "target": tvm_target,
        "execution_backend": options.backend,
        "pass_configs": options.pass_configs or None,
        "compile_flags": list(options.compile_flags) or None,
        "verbose": False,
    }
    directory = _toolchain_directory()
    kernel: CompiledKernel
    with cache.tilelang_settings(directory):
        try:
            make = JITKernel if directory is None else cached
            kernel = despite_parser_clashes(lambda: make(prim_func, **arguments))
        except Exception as error:
            raise _failure(str(prim_func.attrs["global_symbol"]), target, error) from error
    _remove_temporary_files(kernel, directory)
    return kernel


def compile_many(
    jobs: Sequence[CompileJob], *, workers: int | None = None, progress: bool = True
) -> list[CompiledKernel]:
    """Compile kernels in parallel; those in the cache are only loaded.

    Threads are enough: TileLang's passes run outside the interpreter lock, and the compilers are processes.

    Args:
        jobs: what to compile.
        workers: compilations at a time; as many as this process may use CPUs when None.
        progress: show a progress bar on stderr (plain lines where stderr is no terminal).

    Returns:
        The kernels, in the order of the jobs.

    Raises:
        CompilationError: some could not be compiled; all others were, and are cached. Names each that was not.
    """
    if workers is None:
        workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

    def compile_one(job: CompileJob) -> CompiledKernel:
        with tracing:
            prim_func = job.build()
        return compile_kernel(prim_func, job.target)

    kernels: list[CompiledKernel] = []
    failed: list[str] = []
    with (
        progress_bar("Compiling kernels", len(jobs), enabled=progress) as advance,
        ThreadPoolExecutor(max(1, min(workers, len(jobs)))) as pool,
    ):
        futures = []
        for job in jobs:
            future = pool.submit(compile_one, job)
            future.add_done_callback(functools.partial(_report, advance, job.label))
            futures.append(future)
        try:
            for job, future in zip(jobs, futures, strict=True):
                try:
                    kernels.append(future.result())
                except CompilationError as error:
                    failed.append(f"{job.label}: {error}")
        except BaseException:  # Ctrl-C: what has not begun shall not begin
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    if failed:
        raise CompilationError(f"{len(failed)} of {len(jobs)} kernels did not compile:\n" + "\n".join(failed))
    return kernels


def despite_parser_clashes(call: Callable[[], _Result], attempts: int = 5) -> _Result:
    """Call a function that parses Python source, again if only another thread's parsing made it fail.

    TileLang parses source while it traces and lowers a kernel. CPython 3.11 counts the parser's depth for all threads
    together, so two that parse at once can fail, rarely, with "AST constructor recursion depth mismatch".
    """
    for _ in range(attempts - 1):
        try:
            return call()
        except Exception as error:
            if not any("AST constructor recursion depth mismatch" in str(one) for one in _with_causes(error)):
                raise
    return call()


def _with_causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _report(advance: Callable[[str], None], label: str, _: object) -> None:
    advance(label)


@dataclass(frozen=True)
class _Options:
    """How TileLang is asked to compile for a target."""

    backend: str
    compile_flags: tuple[str, ...]
    pass_configs: dict[str, Any]

    @staticmethod
    def of(prim_func: Any, target: str) -> _Options:
        tvm_target = target_of(target)
        kind = tvm_target.kind.name
        configs: dict[str, Any] = {}
        if prim_func.attrs and "tilekernels.within_bounds" in prim_func.attrs:
            # The kernel guards its accesses itself.
            configs["tl.disable_safe_memory_legalize"] = True
        if kind == "cuda":
            # --use_fast_math: an exponential is one instruction instead of three. It treats NaN and infinity as before.
            return _Options("auto", (), {**configs, "tl.enable_fast_math": True})
        if kind == "hip":
            # Tiles that are never in use at the same time share LDS: K, V and the scratch of reductions. Not where copies
            # into LDS are under way in the meantime.
            if not chip_by_name(str(tvm_target.attrs["mcpu"])).copies_into_lds:
                configs["tl.enable_aggressive_shared_memory_merge"] = True
            return _Options("auto", (), configs)
        # The C code generator writes vectors of half that its own header does not define.
        if any(str(buffer.dtype) == "float16" for buffer in prim_func.buffer_map.values()):
            configs["tirx.disable_vectorize"] = True
        # The cython backend is the one that compiles target "c", and passes no optimisation flag of its own.
        return _Options("cython", ("-O3",), configs)


def _toolchain_directory() -> Path | None:
    directory = cache.cache_directory()
    return None if directory is None else directory / cache.toolchain()


def _record_path(prim_func: Any, tvm_target: Any, options: _Options) -> Path | None:
    directory = _toolchain_directory()
    if directory is None:
        return None
    key = cache.digest([_own_text(), prim_func.script(show_meta=True), str(tvm_target), asdict(options)])
    return directory / "lowered" / f"{key}.json"


@functools.cache
def _own_text() -> str:
    """This file, part of the key: else who edits `_describe` gets the old text, and a gate finds both sides the same."""
    return Path(__file__).read_text(encoding="utf-8")


def _describe(artifact: Any, tvm_target: Any, options: _Options) -> LoweredKernel:
    (function,) = artifact.device_mod.functions.values()
    attributes = function.attrs
    extents = dict(attributes["thread_extent"]) if "thread_extent" in attributes else {}
    shared = int(attributes["dyn_shared_memory_buf"]) if "dyn_shared_memory_buf" in attributes else 0
    launch = {
        "grid": [_extent(extents[f"blockIdx.{axis}"]) for axis in "xyz" if f"blockIdx.{axis}" in extents],
        "block": [_extent(extents[f"threadIdx.{axis}"]) for axis in "xyz" if f"threadIdx.{axis}" in extents],
        "dynamic_shared_bytes": shared,
        "compile_flags": list(options.compile_flags),
        "pass_configs": options.pass_configs,
    }
    return LoweredKernel(
        name=_plain(attributes["global_symbol"]),
        source=canonical_scratch(_plain(artifact.kernel_source), shared),
        target=json.dumps(json.loads(str(tvm_target)), sort_keys=True),
        launch=launch,
    )


def _extent(value: Any) -> int | str:
    try:
        return int(value)
    except TypeError:
        return _plain(str(value))


def _plain(text: str) -> str:
    """A str that is nothing more: TVM's are a subclass that refers to memory of the native library."""
    return str.__str__(text)


_SCRATCH = re.compile(r"void\* (workspace(?:_\d+)?) = \(\(void\*\)\(\(char\*\)\w+ \+ (\d+)\)\);")


def canonical_scratch(source: str, shared_bytes: int) -> str:
    """Number the scratch buffers of reductions in the order of their use.

    TileLang 0.1.15 gives each reduction of a HIP kernel a scratch buffer in LDS, all of one size or all in one place, and
    deals them out in an order that changes from process to process. The kernels are the same; their text should be, too.

    Args:
        source: generated text.
        shared_bytes: the kernel's dynamic shared memory, where the last buffer ends.
    """
    declared = {name: int(offset) for name, offset in _SCRATCH.findall(source)}
    bounds = [*sorted(declared.values()), shared_bytes]
    one_place = len(set(declared.values())) == 1  # several names of the same bytes
    if not one_place and len({end - start for start, end in pairwise(bounds)}) != 1:
        return source  # none, or of different sizes: not interchangeable
    body = max(match.end() for match in _SCRATCH.finditer(source))
    used = list(dict.fromkeys(re.findall(r"\bworkspace(?:_\d+)?\b", source[body:])))
    if set(used) != set(declared):
        return source
    names = dict(zip(used, sorted(declared, key=declared.__getitem__), strict=True))
    return source[:body] + re.sub(r"\bworkspace(?:_\d+)?\b", lambda match: names[match.group()], source[body:])


def _failure(name: str, target: str, error: Exception) -> CompilationError:
    advice = {
        "cpu": "install a C++ compiler (Debian, Ubuntu: apt install g++) or name one in CXX",
        "cuda": "install the CUDA toolkit, or set CUDA_HOME to where it is",
        "hip": "install ROCm, or set ROCM_PATH to where it is",
    }[CHIPS[target].kind if target in CHIPS else target]
    text = str(error).strip()
    missing = re.search(r"requires a C\+\+ compiler|[Cc]an ?not find (hipcc|cuda|ROCm)|No such file or directory", text)
    reason = f"there is no compiler; {advice}" if missing else (text.splitlines() or [type(error).__name__])[0]
    return CompilationError(f"{name} for {target}: {reason}")


def _remove_temporary_files(kernel: Any, directory: Path | None) -> None:
    """Delete the source and library that TileLang leaves behind: one is loaded already, the other nobody reads."""
    generator = getattr(kernel.adapter, "lib_generator", None)
    for name in ("srcpath", "libpath"):
        path = getattr(generator, name, None)
        if path and (directory is None or not Path(path).is_relative_to(directory)):
            Path(path).unlink(missing_ok=True)
