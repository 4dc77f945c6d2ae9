"""Sensors: every source, and the truth where there is none."""

from __future__ import annotations

import functools
import sys
import types

import pytest

from tilegate.protocol import device_state
from tilegate.protocol.device_state import read_state

DEVICE = types.SimpleNamespace(pci_domain_id=0, pci_bus_id=0x1B, pci_device_id=0)


@pytest.fixture(autouse=True)
def no_bindings(monkeypatch):
    for name in ("pynvml", "amdsmi"):
        monkeypatch.setitem(sys.modules, name, None)


@pytest.fixture
def nvidia_smi(monkeypatch, tmp_path):
    def install(script: str) -> None:
        tool = tmp_path / "nvidia-smi"
        tool.write_text(f"#!/bin/sh\n{script}\n")
        tool.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))

    return install


def test_nvidia_smi_is_asked_for_the_device_that_torch_uses(nvidia_smi):
    nvidia_smi('case "$1" in --id=0000:1b:00.0) echo "1755, 1980, 54, 412.50, 0x0000000000000044";; *) exit 9;; esac')
    state = read_state("cuda", DEVICE)
    assert state.pop("unreadable") == {"nvml": "pynvml is not installed"}
    assert state == {
        "source": "nvidia-smi",
        "sm_clock_mhz": 1755,
        "sm_clock_max_mhz": 1980,
        "temperature_c": 54,
        "power_w": 412.5,
        "throttle_reasons": ["sw_power_cap", "hw_thermal_slowdown"],
    }


def test_a_sensor_that_nvidia_smi_cannot_read_is_named(nvidia_smi):
    nvidia_smi('echo "1755, 1980, 54, [N/A], [N/A]"')
    state = read_state("cuda", DEVICE)
    assert {"power_w", "throttle_reasons"} <= set(state["unreadable"])
    assert not {"power_w", "throttle_reasons"} & set(state)
    assert state["sm_clock_mhz"] == 1755


@pytest.mark.parametrize(("script", "why"), [("echo no such device; exit 6", "no such device"), ("exit 9", "status 9")])
def test_a_failing_nvidia_smi_gives_no_readings(nvidia_smi, script, why):
    nvidia_smi(script)
    state = read_state("cuda", DEVICE)
    assert state["source"] is None
    assert why in state["unreadable"]["nvidia-smi"]
    assert set(state) == {"source", "unreadable"}


def test_no_tool_at_all_is_said(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert read_state("cuda", DEVICE) == {
        "source": None,
        "unreadable": {"nvml": "pynvml is not installed", "nvidia-smi": "nvidia-smi is not on PATH"},
    }


def test_nvml_comes_first(monkeypatch):
    class NVMLError(Exception):
        value = 3

    class NotFoundError(NVMLError):
        value = 6

    def fails(handle: object) -> None:
        raise NVMLError("Not Supported")

    def utilization(handle: object, since: int) -> list[types.SimpleNamespace]:
        if not samples:
            raise NotFoundError
        return [types.SimpleNamespace(pid=pid, smUtil=used) for pid, used in samples]

    samples = [(77, 3), (78, 0), (77, 1), (12, 90)]

    pynvml = types.SimpleNamespace(
        NVMLError=NVMLError,
        NVML_ERROR_NOT_FOUND=6,
        NVML_PERF_POLICY_THERMAL=1,
        NVML_CLOCK_SM=1,
        NVML_TEMPERATURE_GPU=0,
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByPciBusId=lambda address: address,
        nvmlDeviceGetClockInfo=lambda handle, kind: 1980 if (handle, kind) == (b"0000:1b:00.0", 1) else 0,
        nvmlDeviceGetMaxClockInfo=lambda handle, kind: 2100,
        nvmlDeviceGetTemperature=lambda handle, kind: 41,
        nvmlDeviceGetPowerUsage=fails,
        nvmlDeviceGetCurrentClocksThrottleReasons=lambda handle: 0x1004,
        nvmlDeviceGetViolationStatus=lambda handle, policy: types.SimpleNamespace(violationTime=5_000 * policy),
        nvmlDeviceGetProcessUtilization=utilization,
    )
    monkeypatch.setitem(sys.modules, "pynvml", pynvml)
    assert read_state("cuda", DEVICE) == {
        "source": "nvml",
        "sm_clock_mhz": 1980,
        "sm_clock_max_mhz": 2100,
        "temperature_c": 41,
        "throttle_reasons": ["sw_power_cap", "unknown_0x1000"],
        "thermal_throttle_counter": 5_000,
        "busy_processes": [12, 77],
        "unreadable": {"power_w": "NVMLError: Not Supported"},
    }
    samples.clear()
    assert read_state("cuda", DEVICE)["busy_processes"] == []


@pytest.fixture
def amdgpu_files(monkeypatch, tmp_path):
    reader = functools.partial(device_state._read_amdgpu_files, devices=tmp_path)
    monkeypatch.setitem(device_state._SOURCES["hip"], "amdgpu", reader)
    monitor = tmp_path / "0000:1b:00.0" / "hwmon" / "hwmon3"
    monitor.mkdir(parents=True)
    return monitor


def test_the_amdgpu_drivers_files_are_read(amdgpu_files):
    for name, text in {
        "freq1_input": "2100000000",
        "temp1_input": "39000",
        "temp2_input": "52000",
        "power1_input": "550000000",
    }.items():
        (amdgpu_files / name).write_text(text + "\n")
    state = read_state("hip", DEVICE)
    assert (state["source"], state["sm_clock_mhz"], state["temperature_c"], state["power_w"]) == (
        "amdgpu",
        2100,
        52,
        550,
    )
    assert "throttle_reasons" in state["unreadable"]
    assert "amdsmi" in state["unreadable"]


def test_a_missing_file_of_the_amdgpu_driver_is_named(amdgpu_files):
    (amdgpu_files / "temp1_input").write_text("39000\n")
    state = read_state("hip", DEVICE)
    assert state["temperature_c"] == 39
    assert {"sm_clock_mhz", "power_w"} <= set(state["unreadable"])


def test_amdsmi_comes_first(monkeypatch):
    amdsmi = types.SimpleNamespace(
        amdsmi_init=lambda: None,
        amdsmi_get_processor_handles=lambda: ["other", "this"],
        amdsmi_get_gpu_device_bdf=lambda handle: {"other": "0000:05:00.0", "this": "0000:1B:00.0"}[handle],
        AmdSmiClkType=types.SimpleNamespace(GFX="gfx"),
        AmdSmiTemperatureType=types.SimpleNamespace(HOTSPOT="hotspot"),
        AmdSmiTemperatureMetric=types.SimpleNamespace(CURRENT="now"),
        amdsmi_get_clock_info=lambda handle, kind: {"clk": 2099, "max_clk": 2100} if handle == "this" else {},
        amdsmi_get_temp_metric=lambda handle, kind, metric: 60,
        amdsmi_get_power_info=lambda handle: {"current_socket_power": "N/A"},
        amdsmi_get_gpu_metrics_info=lambda handle: metrics,
    )
    metrics = {
        "throttle_status": 0,
        "ppt_residency_acc": 9,
        "socket_thm_residency_acc": 4,
        "vr_thm_residency_acc": "N/A",
    }
    monkeypatch.setitem(sys.modules, "amdsmi", amdsmi)
    state = read_state("hip", DEVICE)
    assert set(state.pop("unreadable")) == {"power_w", "occupying_processes"}
    assert state.pop("thermal_throttle_counter") == 4
    assert state == {
        "source": "amdsmi",
        "sm_clock_mhz": 2099,
        "sm_clock_max_mhz": 2100,
        "temperature_c": 60,
        "throttle_status": 0,
    }


def test_the_compute_driver_says_who_occupies_the_device(tmp_path):
    for node, location in (("0", 0), ("1", 0x0500), ("2", 0x1B00)):
        folder = tmp_path / "topology" / "nodes" / node
        folder.mkdir(parents=True)
        (folder / "properties").write_text(f"cpu_cores_count 0\nlocation_id {location}\ndomain 0\nsimd_count 1216\n")
        (folder / "gpu_id").write_text(f"{1000 + int(node)}\n")
    for process, gpu, count in ((41, 1002, 0), (42, 1002, 304), (43, 1001, 304)):
        folder = tmp_path / "proc" / str(process) / f"stats_{gpu}"
        folder.mkdir(parents=True)
        (folder / "cu_occupancy").write_text(f"{count}\n")
    assert device_state._occupying_processes("0000:1b:00.0", tmp_path) == [42]
    with pytest.raises(FileNotFoundError):
        device_state._occupying_processes("0001:1b:00.0", tmp_path)


def test_a_device_without_an_address_is_not_guessed():
    state = read_state("cuda", types.SimpleNamespace())
    assert state["source"] is None
    assert "device" in state["unreadable"]
