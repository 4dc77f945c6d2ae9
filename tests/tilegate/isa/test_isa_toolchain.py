"""Finding the compiler, and what is said when there is none. With made-up compilers, so it runs anywhere."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import pytest

from tilegate import isa, tools
from tilegate.files import UsageError
from tilegate.isa import toolchain
from tilegate.isa.toolchain import ToolchainError, find_toolchain


@pytest.fixture(autouse=True)
def _nothing_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A PATH with nothing but the tests' own programs on it."""
    caches = (toolchain._knows, tools.tool_version)
    for cached in caches:
        cached.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    for variable in ("ROCM_PATH", "ROCM_HOME", toolchain.COMPILER_VARIABLE):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(toolchain, "compiler_path", lambda target: toolchain.shutil.which("hipcc"))
    yield
    for cached in caches:
        cached.cache_clear()


def install(tmp_path: Path, name: str, *chips: str, version: str = "clang version 1.2.3") -> Path:
    """A compiler that knows some chips."""
    path = tmp_path / "bin" / name
    path.parent.mkdir(exist_ok=True)
    cases = "".join(f"*--offload-arch={chip}*) exit 0;;\n" for chip in chips)
    path.write_text(f'#!/bin/sh\ncase "$*" in\n--version) echo "{version}";;\n{cases}*) exit 1;;\nesac\n')
    path.chmod(0o755)
    return path


def test_no_compiler_gives_the_line_that_installs_one() -> None:
    with pytest.raises(ToolchainError) as raised:
        find_toolchain("gfx942")
    assert "apt-get install -y clang-19 rocm-device-libs" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_gfx950_asks_for_a_clang_that_knows_it(tmp_path: Path) -> None:
    install(tmp_path, "clang++-19", "gfx942")
    with pytest.raises(ToolchainError, match="apt-get install -y clang-22 rocm-device-libs"):
        find_toolchain("gfx950")


def test_the_command_ends_with_5(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    isa.add_parser(parser.add_subparsers())
    args = parser.parse_args(["isa", "--arch", "gfx942"])
    assert isa.run(args) == 5
    error = capsys.readouterr().err
    assert "apt-get install -y clang-19 rocm-device-libs" in error
    assert len(error.strip().splitlines()) == 1


def test_the_first_clang_that_knows_the_chip_is_taken(tmp_path: Path) -> None:
    install(tmp_path, "clang++-19", "gfx942")
    newer = install(tmp_path, "clang++-22", "gfx942", "gfx950")
    assert find_toolchain("gfx942").command[0].endswith("clang++-19")
    assert find_toolchain("gfx950").command[0] == str(newer)


def test_hipcc_comes_first_and_brings_its_own_headers(tmp_path: Path) -> None:
    install(tmp_path, "clang++-19", "gfx942")
    install(tmp_path, "hipcc", "gfx942", version="HIP version: 6.4.0")
    found = find_toolchain("gfx942")
    assert found.hipcc
    assert found.version == "HIP version: 6.4.0"
    assert not any(str(toolchain.HEADERS) in option for option in found.command)
    assert found.identity()["headers"] == "ROCm"


def test_a_named_compiler_is_taken_or_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "clang++-19", "gfx942")
    other = install(tmp_path, "my-clang", "gfx90a")
    assert find_toolchain("gfx90a", str(other)).command[0] == str(other)
    monkeypatch.setenv(toolchain.COMPILER_VARIABLE, "my-clang")
    with pytest.raises(UsageError, match="does not know gfx942"):
        find_toolchain("gfx942")
    with pytest.raises(UsageError, match="is not there"):
        find_toolchain("gfx942", "nowhere")


def test_the_fingerprint_follows_the_version_and_the_headers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "clang++-19", "gfx942", "gfx90a")
    first = find_toolchain("gfx942").identity()["fingerprint"]
    assert find_toolchain("gfx942").identity()["fingerprint"] == first
    assert find_toolchain("gfx90a").identity()["fingerprint"] != first
    monkeypatch.setattr(toolchain, "_hash_of_headers", lambda: "0" * 64)
    assert find_toolchain("gfx942").identity()["fingerprint"] != first
    monkeypatch.undo()


def test_the_fingerprint_holds_no_path(tmp_path: Path) -> None:
    install(tmp_path, "clang++-19", "gfx942")
    assert str(tmp_path) not in str(find_toolchain("gfx942").identity())


def test_another_compiler_in_the_environment_is_noticed_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "clang++-19", "gfx942")
    other = install(tmp_path, "my-clang", "gfx942")
    assert find_toolchain("gfx942").command[0].endswith("clang++-19")
    monkeypatch.setenv(toolchain.COMPILER_VARIABLE, "my-clang")
    assert find_toolchain("gfx942").command[0] == str(other)
