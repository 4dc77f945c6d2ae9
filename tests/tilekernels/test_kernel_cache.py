"""The disk cache between processes: it saves the work, and never gives a wrong kernel."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tilekernels import cache

# Compiles one kernel and says how often TileLang lowered and how often a compiler was started.
PROBE = """
import json, subprocess
import tilelang, torch
from tilelang.jit import kernel as jit
from small_kernels import scale_rows
from tilekernels.compiler import compile_kernel

counts = {"lowered": 0, "compiled": 0}
def counted(name, function):
    def call(*args, **kwargs):
        counts[name] += 1
        return function(*args, **kwargs)
    return call
jit.JITKernel._compile_artifact = counted("lowered", jit.JITKernel._compile_artifact)
subprocess.run = counted("compiled", subprocess.run)
kernel = compile_kernel(scale_rows(), "cpu")
given, got = torch.ones(5, 16), torch.zeros(5, 16)
kernel(given, got)
print(json.dumps({**counts, "right": torch.equal(got, 2 * given)}))
"""
FRESH, CACHED = {"lowered": 1, "compiled": 1, "right": True}, {"lowered": 0, "compiled": 0, "right": True}


def start(directory: Path, **variables: str) -> subprocess.Popen[str]:
    paths = [str(Path(cache.__file__).parents[1]), str(Path(__file__).parent)]
    environment = {**os.environ, "TILEKERNELS_CACHE": str(directory), "PYTHONPATH": os.pathsep.join(paths), **variables}
    return subprocess.Popen(
        [sys.executable, "-c", PROBE], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def told(process: subprocess.Popen[str]) -> dict:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return json.loads(out.splitlines()[-1])


def entries(directory: Path) -> list[Path]:
    return sorted(path.parent for path in directory.glob("*/*/*/kernels/*/manifest.json"))


@pytest.mark.slow
def test_processes_share_kernels_and_survive_damage(tmp_path: Path) -> None:
    together = [start(tmp_path) for _ in range(3)]
    results = [told(process) for process in together]
    assert all(result["right"] for result in results)
    assert FRESH in results
    (entry,) = entries(tmp_path)
    assert not list(entry.parents[1].joinpath(".staging").iterdir())

    assert told(start(tmp_path)) == CACHED

    library = entry / "kernel_lib.so"
    library.write_bytes(library.read_bytes()[:1000])
    assert told(start(tmp_path)) == FRESH
    assert told(start(tmp_path)) == CACHED
    (entry / "manifest.json").write_text("{")
    assert told(start(tmp_path)) == FRESH


@pytest.mark.slow
def test_another_compiler_compiles_anew(tmp_path: Path) -> None:
    compiler = tmp_path / "my-c++"
    compiler.write_text('#!/bin/sh\nexec g++ "$@"\n')
    compiler.chmod(0o755)
    directory = tmp_path / "cache"
    assert told(start(directory)) == FRESH
    assert told(start(directory, CXX=str(compiler))) == FRESH
    assert len(entries(directory)) == 2
    assert told(start(directory)) == CACHED


@pytest.mark.slow
def test_a_missing_compiler_is_told(tmp_path: Path) -> None:
    process = start(tmp_path, CXX="/nowhere/c++")
    _, err = process.communicate(timeout=120)
    assert process.returncode != 0
    assert "scale_rows for cpu: there is no compiler; install a C++ compiler (Debian, Ubuntu: apt install g++)" in err


@pytest.mark.slow
def test_switched_off_every_process_compiles(tmp_path: Path) -> None:
    for _ in range(2):
        process = start(tmp_path, TILEKERNELS_CACHE="0", HOME=str(tmp_path), TILELANG_CACHE_DIR=str(tmp_path / "tl"))
        assert told(process) == FRESH
    assert not list(tmp_path.rglob("*.so"))


def test_flags_passes_and_versions_are_part_of_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tilelang
    from small_kernels import scale_rows

    from tilekernels import compiler

    monkeypatch.setenv("TILEKERNELS_CACHE", str(tmp_path))
    options = compiler._Options("cython", ("-O1",), {})

    def compile_with(changed: compiler._Options) -> int:
        monkeypatch.setattr(compiler._Options, "of", staticmethod(lambda *_: changed))
        compiler.compile_kernel(scale_rows(), "cpu")
        compiler.lower(scale_rows(), "cpu")
        assert len(list(tmp_path.glob("*/lowered/*.json"))) == len(entries(tmp_path))
        return len(entries(tmp_path))

    assert compile_with(options) == 1
    assert compile_with(options) == 1
    assert compile_with(compiler._Options("cython", ("-O2",), {})) == 2
    assert compile_with(compiler._Options("cython", ("-O1",), {"tirx.disable_vectorize": True})) == 3
    name = cache.toolchain()
    monkeypatch.setattr(tilelang, "__version__", "0.1.99")
    cache.toolchain.cache_clear()
    try:
        assert cache.toolchain() != name
    finally:
        cache.toolchain.cache_clear()


def test_where_the_cache_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    for variables, expected in (
        ({}, ".cache/tilekernels"),
        ({"XDG_CACHE_HOME": str(tmp_path / "xdg")}, "xdg/tilekernels"),
        ({"TILEKERNELS_CACHE": str(tmp_path / "here")}, "here"),
    ):
        monkeypatch.delenv("TILEKERNELS_CACHE", raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        assert cache.cache_directory() == tmp_path / expected
        assert (tmp_path / expected).is_dir()
    monkeypatch.setenv("TILEKERNELS_CACHE", "0")
    assert cache.cache_directory() is None


def test_a_place_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TILEKERNELS_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(OSError, match=r"cannot use TILEKERNELS_CACHE=.*set TILEKERNELS_CACHE to a writable directory"):
        cache.cache_directory()
    monkeypatch.delenv("TILEKERNELS_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.warns(RuntimeWarning, match="kernels are not cached: .*set TILEKERNELS_CACHE"):
        assert cache.cache_directory() is None


def test_records_are_whole_or_absent(tmp_path: Path) -> None:
    path = tmp_path / "a" / "record.json"
    assert cache.read_record(path) is None
    cache.write_record(path, {"x": [1, "ü"]})
    assert cache.read_record(path) == {"x": [1, "ü"]}
    path.write_text(path.read_text().replace("1", "2"))
    assert cache.read_record(path) is None
    assert [entry.name for entry in path.parent.iterdir()] == ["record.json"]


def test_a_full_disk_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.warns(RuntimeWarning, match="not cached: .*No space left"):
        cache.write_record(tmp_path / "record.json", 1)
    assert list(tmp_path.iterdir()) == []


def test_digests_do_not_hang_on_order() -> None:
    assert cache.digest({"a": 1, "b": 2}) == cache.digest({"b": 2, "a": 1})
    assert cache.digest({"a": 1}) != cache.digest({"a": 2})
