"""The disk cache between processes: it saves the work, and never gives a wrong kernel."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cache_probe import start

from tilekernels import cache

FRESH, CACHED = {"lowered": 1, "compiled": 1, "right": True}, {"lowered": 0, "compiled": 0, "right": True}


def entries(directory: Path) -> list[Path]:
    return sorted(path.parent for path in directory.glob("*/*/*/kernels/*/manifest.json"))


@pytest.mark.slow
def test_processes_share_kernels_and_survive_damage(tmp_path: Path) -> None:
    together = [start(tmp_path) for _ in range(3)]
    results = [probe.told() for probe in together]
    assert all(result["right"] for result in results)
    assert FRESH in results
    (entry,) = entries(tmp_path)
    assert not list(entry.parents[1].joinpath(".staging").iterdir())

    assert start(tmp_path).told() == CACHED

    library = entry / "kernel_lib.so"
    library.write_bytes(library.read_bytes()[:1000])
    assert start(tmp_path).told() == FRESH
    assert start(tmp_path).told() == CACHED
    (entry / "manifest.json").write_text("{")
    assert start(tmp_path).told() == FRESH


@pytest.mark.slow
def test_another_compiler_compiles_anew(tmp_path: Path) -> None:
    compiler = tmp_path / "my-c++"
    compiler.write_text('#!/bin/sh\nexec g++ "$@"\n')
    compiler.chmod(0o755)
    directory = tmp_path / "cache"
    assert start(directory).told() == FRESH
    assert start(directory, CXX=str(compiler)).told() == FRESH
    assert len(entries(directory)) == 2
    assert start(directory).told() == CACHED


@pytest.mark.slow
def test_a_missing_compiler_is_told(tmp_path: Path) -> None:
    told = start(tmp_path, CXX="/nowhere/c++").told()
    assert "scale_rows for cpu: there is no compiler; install a C++ compiler (Debian, Ubuntu: apt install g++)" in told


@pytest.mark.slow
def test_switched_off_every_process_compiles(tmp_path: Path) -> None:
    """Processes from the start: TileLang looks at HOME when it is imported."""
    places = {"TILEKERNELS_CACHE": "0", "HOME": str(tmp_path), "TILELANG_CACHE_DIR": str(tmp_path / "tl")}
    paths = [str(Path(cache.__file__).parents[1]), str(Path(__file__).parent)]
    environment = {**os.environ, **places, "PYTHONPATH": os.pathsep.join(paths)}
    probe = "import json, cache_probe; print(json.dumps(cache_probe.compile_and_count()))"
    for _ in range(2):
        command = [sys.executable, "-c", probe]
        out = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120).stdout
        assert json.loads(out.splitlines()[-1]) == FRESH
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


def test_an_edit_of_what_describes_a_kernel_is_not_answered_from_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from small_kernels import scale_rows

    from tilekernels import compiler

    monkeypatch.setenv("TILEKERNELS_CACHE", str(tmp_path))
    before = compiler.lower(scale_rows(), "cpu").source
    edited = tmp_path / "edited_compiler.py"
    text = Path(compiler.__file__).read_text()
    edited.write_text(text.replace("source=canonical", 'source="// edited" + canonical'))
    spec = importlib.util.spec_from_file_location("edited_compiler", edited)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)  # where its dataclasses look for it
    spec.loader.exec_module(module)
    assert module.lower(scale_rows(), "cpu").source == "// edited" + before
    assert compiler.lower(scale_rows(), "cpu").source == before


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
