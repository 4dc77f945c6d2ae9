"""The description of the machine: complete, free of names, and a fingerprint that moves with what decides a time."""

import copy
import getpass
import json
import os
import platform
import stat
import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from tilegate import tools
from tilegate.measuring import environment


@pytest.fixture(scope="module")
def described():
    return environment.describe("cpu")


def test_says_what_the_cpu_target_runs_on(described):
    assert described["target"] == "cpu"
    assert described["device"]["compute_units"] == len(os.sched_getaffinity(0))
    assert described["device"]["name"] == described["machine"]["cpu"] != ""
    assert described["versions"]["python"] == platform.python_version()
    assert described["versions"]["tilegate"] == environment.__version__
    json.dumps(described)


def test_the_cpu_target_reads_of_torch_what_importing_it_would_tell(described, tmp_path, monkeypatch):
    imported = environment.probe_torch.__wrapped__()
    assert environment.torch_build() == {name: imported[name] for name in ("torch", "cuda", "rocm")}
    assert described["versions"]["torch"] == imported["torch"]
    (tmp_path / "torch").mkdir()
    for version in ("", "raise SystemError", "__version__ = 2"):
        (tmp_path / "torch/__init__.py").touch()
        (tmp_path / "torch/version.py").write_text(version)
        with monkeypatch.context() as patch:
            patch.setattr(sys, "path", [str(tmp_path)])
            patch.delitem(sys.modules, "torch", raising=False)
            assert environment.torch_build() == {"torch": None, "cuda": None, "rocm": None}
    monkeypatch.chdir(tmp_path / "torch")
    (tmp_path / "torch/version.py").write_text("__version__ = 'a file that happens to be in the working directory'")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert environment.torch_build()["torch"] is None
    monkeypatch.setattr("importlib.util.find_spec", lambda name: ModuleSpec(name, None))  # a folder without __init__.py
    assert environment.torch_build()["torch"] is None


def test_holds_no_host_or_user_name(described):
    text = json.dumps(described)
    for name in (platform.node(), getpass.getuser(), str(Path.home())):
        if len(name) > 4:  # a host called "a" occurs in any text
            assert name not in text


def test_is_the_same_twice(described):
    assert environment.describe("cpu") == described


@pytest.mark.parametrize(
    "path", ["versions.tilelang", "versions.compiler", "device.name", "device.driver", "machine.kernel", "target"]
)
def test_fingerprint_moves_with(described, path):
    changed = copy.deepcopy(described)
    *parents, last = path.split(".")
    holder = changed
    for key in parents:
        holder = holder[key]
    holder[last] = "something else"
    assert environment.fingerprint(changed) != described["fingerprint"]


def test_fingerprint_ignores_which_of_two_equal_machines(described):
    changed = copy.deepcopy(described)
    changed["machine"]["id"] = "000000000000"
    assert environment.fingerprint(changed) == described["fingerprint"]


def test_fingerprint_of_a_gpu_ignores_the_host_kernel(described):
    gpu = {**copy.deepcopy(described), "target": "hip"}
    before = environment.fingerprint(gpu)
    gpu["machine"]["kernel"] = "something else"
    assert environment.fingerprint(gpu) == before


def test_unknown_target_lists_the_choices():
    with pytest.raises(ValueError, match="cpu, cuda, hip"):
        environment.describe("rocm")


def test_gpu_target_without_a_gpu_says_so(monkeypatch):
    monkeypatch.setattr(
        environment,
        "probe_torch",
        lambda: {"torch": "2.13.0", "cuda": None, "rocm": None, "devices": [], "error": None},
    )
    with pytest.raises(environment.NoDeviceError, match=r"sees no ROCM device.*tilegate doctor"):
        environment.describe("hip")


def test_a_cuda_device_is_not_a_hip_device(monkeypatch):
    h200 = {"name": "NVIDIA H200", "arch": "sm_90", "compute_units": 132, "memory_bytes": 1}
    facts = {"torch": "2.11.0", "cuda": "13.0", "rocm": None, "devices": [h200], "error": None}
    monkeypatch.setattr(environment, "probe_torch", lambda: facts)
    assert environment.describe("cuda")["device"] == {**h200, "driver": environment.driver_version("cuda")}
    with pytest.raises(environment.NoDeviceError):
        environment.describe("hip")


def test_a_broken_torch_is_reported_not_raised(tmp_path, monkeypatch):
    (tmp_path / "torch.py").write_text("raise OSError('libamdhip64.so.6: cannot open shared object file')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    facts = environment.probe_torch.__wrapped__()
    assert facts["torch"] is None
    assert "libamdhip64" in facts["error"]


def test_a_torch_that_kills_the_process_is_reported(tmp_path, monkeypatch):
    (tmp_path / "torch.py").write_text("import os; os.abort()")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert "-6" in environment.probe_torch.__wrapped__()["error"]


def _tool(folder: Path, name: str, prints: str, status: int = 0) -> Path:
    tool = folder / name
    tool.write_text(f"#!/bin/sh\ncat <<'END'\n{prints}\nEND\nexit {status}\n")
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    return tool


@pytest.mark.parametrize(
    ("prints", "version"),
    [
        ("g++ (Debian 12.2.0-14) 12.2.0\nCopyright (C) 2022", "g++ (Debian 12.2.0-14) 12.2.0"),
        (
            "nvcc: NVIDIA (R) Cuda compiler driver\nCopyright (c) 2005-2025 NVIDIA Corporation\n"
            "Built on Wed_Aug_20_01:58:59_PM_PDT_2025\nCuda compilation tools, release 13.0, V13.0.88\n"
            "Build cuda_13.0.r13.0/compiler.36424714_0",
            "Cuda compilation tools, release 13.0, V13.0.88",
        ),
        ("HIP version: 6.2.41133-dd7f95766\nAMD clang version 18.0.0git", "HIP version: 6.2.41133-dd7f95766"),
        ("no number at all", None),
    ],
)
def test_version_line_of_each_compiler(tmp_path, prints, version):
    assert tools.tool_version(str(_tool(tmp_path, "tool", prints))) == version


def test_a_tool_that_fails_has_no_version(tmp_path):
    assert tools.tool_version(str(_tool(tmp_path, "tool", "tool 1.2.3", status=1))) is None
    assert tools.tool_version(str(tmp_path / "absent")) is None


def test_compiler_is_the_one_tilelang_calls(tmp_path, monkeypatch):
    mine = _tool(tmp_path, "my-compiler", "my-compiler 1.0")
    monkeypatch.setenv("CXX", str(mine))
    assert tools.compiler_path("cpu") == str(mine)
    (tmp_path / "bin").mkdir()
    hipcc = _tool(tmp_path / "bin", "hipcc", "HIP version: 6.2.0")
    monkeypatch.setenv("ROCM_PATH", str(tmp_path))
    assert tools.compiler_path("hip") == str(hipcc)


def test_importing_it_imports_no_heavy_package():
    heavy = "{'torch', 'tilelang', 'tvm', 'asv', 'scipy', 'numpy'}"
    code = f"import sys, tilegate.measuring.environment; print(sorted({heavy} & set(sys.modules)))"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert child.stdout.strip() == "[]"
