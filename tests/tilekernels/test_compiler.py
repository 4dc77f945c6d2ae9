"""Generating source anywhere, compiling here, many at a time."""

import threading
from pathlib import Path

import pytest
import tilelang
import torch
from small_kernels import scale_rows, two_dynamic_tiles

from tilekernels import cache, compiler
from tilekernels.compiler import CompilationError, CompileJob, canonical_scratch, compile_kernel, compile_many, lower


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEKERNELS_CACHE", str(tmp_path / "cache"))


def records(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "cache").glob("*/lowered/*.json"))


def test_targets_are_what_the_chips_need() -> None:
    gfx942 = compiler.target_of("gfx942")
    assert (gfx942.kind.name, gfx942.attrs["mcpu"], gfx942.attrs["thread_warp_size"]) == ("hip", "gfx942", 64)
    assert compiler.target_of("sm_90").attrs["arch"] == "sm_90a"
    assert compiler.target_of("cpu").kind.name == "c"
    with pytest.raises(ValueError, match="'gfx1' is not one of gfx942"):
        compiler.target_of("gfx1")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device")
def test_a_target_without_a_device_is_told() -> None:
    with pytest.raises(ValueError, match="there is no hip device here; name an architecture"):
        compiler.target_of("hip")


def test_lowering_describes_the_launch() -> None:
    for target, word in (("cpu", 'extern "C"'), ("sm_90", "__global__"), ("gfx942", "hip_runtime.h")):
        lowered = lower(scale_rows(), target)
        assert lowered.name == "scale_rows_kernel"
        assert word in lowered.source
        assert lowered.launch["grid"] == ([] if target == "cpu" else ["rows"])
        assert lowered.launch["block"] == ([] if target == "cpu" else [64, 1, 1])
        assert lowered.launch["dynamic_shared_bytes"] == 0
        assert lowered.launch["compile_flags"] == (["-O3"] if target == "cpu" else [])
        assert '"kind"' in lowered.target


def test_a_lowered_kernel_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = lower(scale_rows(), "gfx942")
    assert len(records(tmp_path)) == 1
    monkeypatch.setattr(tilelang, "lower", None)  # calling it would fail
    assert lower(scale_rows(), "gfx942") == first
    with pytest.raises(CompilationError):
        lower(scale_rows(), "gfx90a")
    with pytest.raises(CompilationError):
        lower(scale_rows(factor=3.0), "gfx942")


@pytest.mark.parametrize(
    "damage", [lambda b: b[: len(b) // 2], lambda b: b.replace(b"blockIdx", b"blockIdy"), lambda _: b""]
)
def test_a_damaged_record_is_made_again(tmp_path: Path, damage: object) -> None:
    first = lower(scale_rows(), "sm_90")
    (record,) = records(tmp_path)
    intact = record.read_bytes()
    record.write_bytes(damage(intact))
    assert record.read_bytes() != intact
    assert lower(scale_rows(), "sm_90") == first
    assert record.read_bytes() == intact


def test_without_a_cache_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEKERNELS_CACHE", "0")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    lower(scale_rows(), "cpu")
    kernel = compile_kernel(scale_rows(), "cpu")
    given, got = torch.ones(3, 16), torch.zeros(3, 16)
    kernel(given, got)
    assert torch.equal(got, 2 * given)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_compiled_kernels_take_any_length(dtype: str) -> None:
    kernel = compile_kernel(scale_rows(dtype), "cpu")
    for rows in (1, 7, 100):
        given = torch.randn(rows, 16).to(getattr(torch, dtype))
        got = torch.empty_like(given)
        kernel(given, got)
        assert torch.equal(got, 2 * given)


def test_compiling_leaves_no_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    for setting in (str(tmp_path / "cache"), "0"):
        monkeypatch.setenv("TILEKERNELS_CACHE", setting)
        kernel = compile_kernel(scale_rows(factor=5.0), "cpu")
        given, got = torch.ones(2, 16), torch.zeros(2, 16)
        kernel(given, got)
        assert torch.equal(got, 5 * given)
        assert list((tmp_path / "temporary").iterdir()) == []


def test_compiling_is_silent_and_leaves_tilelang_as_it_was(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    before = (tilelang.env.TILELANG_CACHE_DIR, tilelang.env.TILELANG_PRINT_ON_COMPILATION)
    compile_kernel(scale_rows(factor=7.0), "cpu")
    assert capfd.readouterr() == ("", "")
    after = (tilelang.env.TILELANG_CACHE_DIR, tilelang.env.TILELANG_PRINT_ON_COMPILATION)
    assert after == before
    assert list((tmp_path / "cache").glob("*/*/*/kernels/*/kernel_lib.so"))


def test_what_the_user_set_for_tilelang_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tilelang.env, "TILELANG_CACHE_DIR", str(tmp_path / "mine"))
    with cache.tilelang_settings(tmp_path / "ours"), cache.tilelang_settings(tmp_path / "ours"):
        assert str(tmp_path / "ours") == tilelang.env.TILELANG_CACHE_DIR
    assert str(tmp_path / "mine") == tilelang.env.TILELANG_CACHE_DIR


def test_many_kernels_come_back_in_order(capfd: pytest.CaptureFixture[str]) -> None:
    factors = (2.0, 3.0, 4.0, 2.0)  # one of them twice
    jobs = [CompileJob(lambda f=f: scale_rows(factor=f), "cpu", f"times {f}") for f in factors]
    kernels = compile_many(jobs, workers=2)
    given = torch.ones(1, 16)
    for kernel, factor in zip(kernels, factors, strict=True):
        got = torch.zeros(1, 16)
        kernel(given, got)
        assert torch.equal(got, factor * given)
    shown = capfd.readouterr()
    assert shown.out == ""
    assert "4/4" in shown.err
    assert all(job.label in shown.err for job in jobs)


def test_many_kernels_compile_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    together = threading.Barrier(3, timeout=20)  # passes only if all three are inside
    monkeypatch.setattr(compiler, "compile_kernel", lambda prim_func, target: together.wait())
    assert sorted(compile_many([CompileJob(lambda: None, "cpu", "")] * 3, workers=3, progress=False)) == [0, 1, 2]


def test_one_that_fails_is_named_and_the_others_compile(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    good = CompileJob(lambda: scale_rows(factor=8.0), "cpu", "good")
    bad = CompileJob(two_dynamic_tiles, "cpu", "bad")
    with pytest.raises(
        CompilationError, match="1 of 3 kernels did not compile:\nbad: two_dynamic_tiles for cpu: "
    ) as failure:
        compile_many([bad, good, CompileJob(lambda: scale_rows(factor=9.0), "cpu", "also good")], progress=False)
    assert "good" not in str(failure.value)
    assert len(list((tmp_path / "cache").glob("*/*/*/kernels/*/kernel_lib.so"))) == 2
    assert capfd.readouterr().out == ""


def test_nothing_to_compile_shows_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    assert compile_many([]) == []
    assert capfd.readouterr() == ("", "")


HIP = """kernel() {{
  void* k = ((void*)((char*)buf_dyn_shmem + 0));
  void* workspace = ((void*)((char*)buf_dyn_shmem + 8192));
  void* workspace_1 = ((void*)((char*)buf_dyn_shmem + {second}));
  a = Max(&(((float*){0})[0]));
  b = Sum(&(((float*){1})[0]));
  c = Sum(&(((float*){1})[4]));
}}"""


def test_scratch_is_numbered_by_use() -> None:
    one = HIP.format("workspace", "workspace_1", second=9216)
    other = HIP.format("workspace_1", "workspace", second=9216)
    assert canonical_scratch(one, 10240) == one
    assert canonical_scratch(other, 10240) == one


def test_scratch_in_one_place_is_numbered_by_use() -> None:
    one = HIP.format("workspace", "workspace_1", second=8192)
    other = HIP.format("workspace_1", "workspace", second=8192)
    assert one != other
    assert canonical_scratch(one, 16384) == canonical_scratch(other, 16384) == one


def test_scratch_that_is_not_interchangeable_stays() -> None:
    for source, shared in (
        (HIP.format("workspace_1", "workspace", second=9216), 12000),  # of different sizes
        (HIP.format("workspace_1", "workspace_1", second=9216), 10240),  # one of them unused
        ("kernel() {}", 0),
    ):
        assert canonical_scratch(source, shared) == source


def test_a_clash_of_two_parsers_is_tried_again() -> None:
    clash = SystemError("AST constructor recursion depth mismatch (before=129, after=104)")
    wrapped = RuntimeError("cannot parse the kernel")
    wrapped.__cause__ = clash
    failures = [clash, wrapped]

    def parse() -> str:
        if failures:
            raise failures.pop()
        return "parsed"

    assert compiler.despite_parser_clashes(parse) == "parsed"


def test_other_failures_are_not_tried_again() -> None:
    calls = []

    def parse() -> None:
        calls.append(1)
        raise SyntaxError("invalid syntax")

    with pytest.raises(SyntaxError):
        compiler.despite_parser_clashes(parse)
    assert len(calls) == 1
