"""`tilegate doctor`: says truly what can be measured, and names the command for what cannot."""

import argparse
import io
import json
import os
import shutil
import subprocess
import sys

import pytest
from rich.console import Console

from tilegate import emulator, tools
from tilegate.commands import doctor
from tilegate.measuring import device_lock, environment

CPU_TORCH = {"torch": "2.13.0+cpu", "cuda": None, "rocm": None, "devices": [], "error": None}
MI300X = {"name": "AMD Instinct MI300X", "arch": "gfx942", "compute_units": 304, "memory_bytes": 205_822_885_888}
ROCM_TORCH = {"torch": "2.9.0+rocm6.4", "cuda": None, "rocm": "6.4.43484", "devices": [MI300X], "error": None}


@pytest.fixture(autouse=True)
def apart(monkeypatch, tmp_path_factory):
    """Answer for torch and TileLang here, and see no lock of another run."""
    monkeypatch.setenv("TILEGATE_LOCKS", str(tmp_path_factory.mktemp("runtime")))
    monkeypatch.setattr(environment, "probe_torch", lambda: CPU_TORCH)
    monkeypatch.setattr(doctor, "lowering", lambda: {"gfx942": {"lowers": True, "error": None, "compilers": []}})


def doctor_with(*arguments):
    parser = argparse.ArgumentParser()
    doctor.add_parser(parser.add_subparsers())
    return doctor.run(parser.parse_args(["doctor", *arguments]))


def text_of(report, width=200):
    console = Console(file=io.StringIO(), width=width)
    doctor.render(report, console)
    return console.file.getvalue()


def missing(report, target):
    return [gap["what"] for gap in report["targets"][target]["missing"]]


def test_json_is_the_whole_output_and_has_every_documented_part(capsys):
    assert doctor_with("--json") == doctor.EXIT_READY
    output = capsys.readouterr()
    report = json.loads(output.out)
    assert "examine 3/3" in output.err  # seconds must not pass in silence
    assert report["schema"] == "tilegate-doctor/1"
    assert set(report) == {
        *("schema", "tilegate", "ready", "machine", "devices", "torch", "targets", "lowering", "tools", "packages"),
        *("emulation", "repository", "storage"),
    }
    assert report["targets"]["cpu"] == {"measures": True, "missing": [], "busy": None}


def test_without_clang_it_names_what_executes_kernels(monkeypatch, tmp_path):
    (tmp_path / "git").symlink_to(shutil.which("git"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("TILEGATE_HOST_COMPILER", raising=False)
    report = doctor.examine(tmp_path)
    assert report["emulation"]["executes"] is False
    assert emulator.INSTALL in text_of(report, width=500)


def test_without_a_compiler_nothing_can_be_measured(monkeypatch, capsys):
    monkeypatch.setattr(tools, "compiler_path", lambda target: None)
    assert doctor_with() == doctor.EXIT_NOTHING_CAN_MEASURE
    shown = capsys.readouterr().out
    assert "can measure nothing yet" in shown
    assert "apt-get install g++" in shown


@pytest.mark.parametrize("package", ["asv_runner", "scipy", "jsonschema", "tilelang"])
def test_a_missing_package_is_named_with_the_command_that_adds_it(monkeypatch, tmp_path, package):
    there = tools.package_version
    monkeypatch.setattr(tools, "package_version", lambda name: None if name == package else there(name))
    report = doctor.examine(tmp_path)
    assert not report["ready"]
    (gap,) = report["targets"]["cpu"]["missing"]
    assert package in gap["what"]
    assert gap["fix"].endswith(f"-m pip install {package}")


def test_no_torch_and_a_broken_torch_are_told_apart(monkeypatch, tmp_path):
    broken = {**CPU_TORCH, "torch": None, "error": "ImportError: libamdhip64.so.6: cannot open"}
    monkeypatch.setattr(environment, "probe_torch", lambda: broken)
    assert any("libamdhip64" in what for what in missing(doctor.examine(tmp_path), "cpu"))
    there = tools.package_version
    monkeypatch.setattr(tools, "package_version", lambda name: None if name == "torch" else there(name))
    assert missing(doctor.examine(tmp_path), "cpu") == ["torch"]


def test_a_cpu_build_of_torch_measures_no_gpu(tmp_path):
    report = doctor.examine(tmp_path)
    assert any(what.startswith("a ROCm build of torch") for what in missing(report, "hip"))
    assert any(what.startswith("a CUDA build of torch") for what in missing(report, "cuda"))


def test_an_mi300x_with_everything_is_ready_for_hip_and_not_for_cuda(monkeypatch, tmp_path):
    monkeypatch.setattr(environment, "probe_torch", lambda: ROCM_TORCH)
    monkeypatch.setattr(tools, "compiler_path", lambda target: f"/opt/rocm/bin/{target}")
    monkeypatch.setattr(doctor.Path, "exists", lambda path: str(path) == "/dev/kfd")
    monkeypatch.setattr(doctor.os, "access", lambda path, mode: True)
    report = doctor.examine(tmp_path)
    assert report["targets"]["hip"] == {"measures": True, "missing": [], "busy": None}
    assert not report["targets"]["cuda"]["measures"]
    shown = text_of(report)
    assert "can measure: cpu, hip" in shown
    assert "AMD Instinct MI300X, gfx942, 304 compute units" in shown


def test_a_device_node_without_permission_names_the_groups(monkeypatch, tmp_path):
    monkeypatch.setattr(environment, "probe_torch", lambda: {**ROCM_TORCH, "devices": []})
    monkeypatch.setattr(doctor.Path, "exists", lambda path: str(path) == "/dev/kfd")
    monkeypatch.setattr(doctor.os, "access", lambda path, mode: str(path) != "/dev/kfd")
    gaps = doctor.examine(tmp_path)["targets"]["hip"]["missing"]
    assert any("render,video" in gap["fix"] for gap in gaps)


def test_a_command_is_never_broken_over_lines_or_swallowed_as_markup(monkeypatch, tmp_path):
    monkeypatch.setattr(doctor.sys, "executable", "/somewhere/with a [bold] name/python")
    report = doctor.examine(tmp_path)
    fixes = [gap["fix"] for target in report["targets"].values() for gap in target["missing"]]
    shown = text_of(report, width=40)
    assert any("[bold]" in fix for fix in fixes)
    for fix in fixes:
        assert fix in shown


def _repository(folder):
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", "-C", str(folder)]
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    for message in ("one", "two"):
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", message], check=True)
    return folder


def test_a_shallow_clone_is_named(tmp_path):
    origin = _repository(tmp_path / "origin")
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", "--depth", "1", origin.as_uri(), str(clone)], check=True)
    assert doctor.repository(origin) | {"commit": None} == {"commit": None, "shallow": False, "dirty": False}
    assert doctor.repository(clone)["shallow"] is True
    assert "git fetch --unshallow" in text_of(doctor.examine(clone))


def test_outside_a_repository_and_before_the_first_commit(tmp_path):
    assert doctor.repository(tmp_path)["commit"] is None
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    assert doctor.repository(tmp_path) == {"commit": None, "shallow": False, "dirty": False}


def test_storage_of_a_folder_that_does_not_exist_yet(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a" / "b"))
    place = doctor.storage()["cache"]
    assert place["path"] == str(tmp_path / "a" / "b")
    assert place["writable"]
    assert place["free_bytes"] > 0


def test_a_device_that_is_being_measured_on_is_named(tmp_path):
    assert doctor.busy("cpu") is None
    with device_lock.hold("cpu", wait=False, say=print):
        report = doctor.examine(tmp_path)
    holder = report["targets"]["cpu"]["busy"]
    assert holder.startswith(f"process {os.getpid()} ")
    assert holder.endswith(" is measuring on cpu")
    assert holder in text_of(report)
    assert doctor.busy("cpu") is None


def test_a_compiler_that_dies_takes_only_the_later_chips_along():
    code = 'print(\'{"arch": "gfx942", "lowers": true, "error": null}\', flush=True); import os; os.abort()'
    answers, died = doctor._ask_per_chip([sys.executable, "-c", code])
    assert answers == {"gfx942": {"lowers": True, "error": None}}
    assert "-6" in died


def test_a_chip_that_does_not_lower_says_why(tmp_path):
    report = doctor.examine(tmp_path)
    report["lowering"]["gfx950"] = {"lowers": False, "error": "Downcast from tirx.Sub failed", "compilers": []}
    assert "Downcast from tirx.Sub failed" in text_of(report)
