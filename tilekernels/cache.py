"""The disk cache of lowered and compiled kernels: where it is, what its entries hang on, and safe reading and writing.

Layout, under the directory that `cache_directory` names and the name of the toolchain:

    <tilelang version>/<platform>/   compiled kernels, in TileLang's own cache format
    lowered/<key>.json               generated source and launch configuration

TileLang's cache writes an entry to a staging directory, moves it into place in one rename, verifies its hashes when
reading, and keys it by the kernel's IR, target, flags, pass configuration and its own version. It does not key by the
compiler it calls, hence the toolchain in the path. Nothing is ever evicted; the directory may be deleted at any time.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import logging
import os
import shutil
import tempfile
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ENVIRONMENT_VARIABLE = "TILEKERNELS_CACHE"


def cache_directory() -> Path | None:
    """Where kernels are kept between processes, created if need be; None when the cache is off.

    `TILEKERNELS_CACHE=0` switches it off and `TILEKERNELS_CACHE=DIR` moves it; otherwise it is `tilekernels` in
    `$XDG_CACHE_HOME` or `~/.cache`. A default place that cannot be written is warned about, and the cache is off.

    Raises:
        OSError: `TILEKERNELS_CACHE` names a directory that cannot be created or written.
    """
    setting = os.environ.get(ENVIRONMENT_VARIABLE, "")
    if setting == "0":
        return None
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    directory = Path(setting) if setting else Path(base) / "tilekernels"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if not os.access(directory, os.W_OK | os.X_OK):
            raise PermissionError(f"{directory} is not writable")
    except OSError as error:
        advice = f"set {ENVIRONMENT_VARIABLE} to a writable directory, or to 0 to compile without a cache"
        if setting:
            raise OSError(f"cannot use {ENVIRONMENT_VARIABLE}={setting}: {error}; {advice}") from error
        warnings.warn(f"kernels are not cached: {error}; {advice}", RuntimeWarning, stacklevel=3)
        return None
    return directory.resolve()


def digest(value: Any) -> str:
    """SHA-256 of a JSON value, independent of the order of keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


@functools.cache
def toolchain() -> str:
    """A short name for everything but kernel, target and flags that decides what a compilation gives.

    TileLang's version; its native libraries (a development build changes them without changing the version) and the
    compilers it would call here, by place, size and time of change; the place of its kernel headers.
    """
    import tilelang  # noqa: PLC0415 - takes 2-2.5 s
    from tilelang.contrib import cc, nvcc, rocm  # noqa: PLC0415
    from tilelang.env import TL_LIBS  # noqa: PLC0415

    files = sorted(path for directory in TL_LIBS for path in Path(directory).glob("*.so"))
    for find in (cc.get_cplus_compiler, nvcc.get_nvcc_compiler, rocm.find_hipcc):
        with contextlib.suppress(RuntimeError, OSError):  # raised where there is no such compiler
            compiler = shutil.which(find() or "")
            files += [Path(compiler)] if compiler else []
    stamps = []
    for file in files:
        with contextlib.suppress(OSError):
            status = file.stat()
            stamps.append((str(file.resolve()), status.st_size, status.st_mtime_ns))
    return digest([tilelang.__version__, tilelang.env.TILELANG_TEMPLATE_PATH, stamps])[:16]


_OVERRIDDEN = ("TILELANG_CACHE_DIR", "TILELANG_PRINT_ON_COMPILATION")
_lock = threading.Lock()
_before: dict[str, Any] = {}
_inside = 0


def _no_advice(record: logging.LogRecord) -> bool:
    # To use @tilelang.jit, given whenever a process asks for a kernel twice; a kernel of ours is not asked for in a loop.
    return "in memory cache" not in record.msg


@contextlib.contextmanager
def tilelang_settings(directory: Path | None) -> Iterator[None]:
    """Point TileLang's own cache at `directory`, and keep it from announcing every compilation.

    Both are settings of the process. Several threads may be inside at once; what the user had set for TileLang returns
    when the last one leaves.
    """
    global _inside  # noqa: PLW0603 - the settings are global, and so is the count of their users
    import tilelang  # noqa: PLC0415

    env = tilelang.env
    with _lock:
        if _inside == 0:
            _before.update({name: vars(type(env))[name]._forced_value for name in _OVERRIDDEN})
            logging.getLogger("tilelang.cache.kernel_cache").addFilter(_no_advice)
        _inside += 1
        if directory is not None:
            env.TILELANG_CACHE_DIR = str(directory)
        if "TILELANG_PRINT_ON_COMPILATION" not in os.environ:
            env.TILELANG_PRINT_ON_COMPILATION = "0"
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                logging.getLogger("tilelang.cache.kernel_cache").removeFilter(_no_advice)
                for name, value in _before.items():
                    setattr(env, name, value)


def read_record(path: Path) -> Any | None:
    """The JSON value that `write_record` put at `path`; None when there is none or it is damaged."""
    try:
        record = json.loads(path.read_bytes())
        return record["value"] if record["sha256"] == digest(record["value"]) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_record(path: Path, value: Any) -> None:
    """Write a JSON value so that no reader, however many write at once, ever sees half of it.

    A disk that refuses (full, read-only) is warned about: what was computed is still good.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".writing-")
        try:
            with os.fdopen(handle, "w") as file:
                json.dump({"sha256": digest(value), "value": value}, file)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        warnings.warn(f"not cached: {error}", RuntimeWarning, stacklevel=2)
