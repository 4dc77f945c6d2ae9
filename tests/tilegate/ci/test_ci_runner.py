"""`tilegate doctor --runner`: a machine as docs/runners.md describes it is good, and each fault is named with its cure."""

import argparse
import json
from pathlib import Path

import pytest

from tilegate.ci import runner, scrub
from tilegate.ci.runner import Place
from tilegate.commands import doctor

IMAGE = f"registry.example.org/kernels@sha256:{'a' * 64}"
DEVICE = "sys/class/drm/renderD128/device"


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A machine on which everything is as it should be."""
    root = tmp_path / "root"
    for path, text in {
        "sys/module/amdgpu/version": "6.12.12",
        "dev/kfd": "",
        "dev/dri/renderD128": "",
        "sys/class/kfd/kfd/topology/nodes/0/properties": "cpu_cores_count 96\ndrm_render_minor 0",
        "sys/class/kfd/kfd/topology/nodes/1/properties": "gfx_target_version 90402\ndrm_render_minor 128",
        f"{DEVICE}/current_compute_partition": "SPX",
        f"{DEVICE}/current_memory_partition": "NPS1",
        f"{DEVICE}/power_dpm_force_performance_level": "perf_determinism",
        f"{DEVICE}/mem_info_vram_used": "300000000",
        "proc/sys/kernel/numa_balancing": "0",
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance",
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text + "\n")
    engine = tmp_path / "engine"
    engine.write_text("#!/bin/sh\nexit 0\n")
    engine.chmod(0o755)
    folder = tmp_path / "runner"
    folder.mkdir()
    (folder / ".env").write_text(f"TILEGATE_RENDER_NODE=/dev/dri/renderD128\nTILEGATE_CONTAINER_ENGINE={engine}\n")
    (folder / ".runner").write_text('\ufeff{"agentName": "mi300x-0", "ephemeral": true}')
    checkout = tmp_path / "checkout"
    (checkout / ".github").mkdir(parents=True)
    (checkout / ".github" / "bench.toml").write_text(f'image = "{IMAGE}"\n')
    monkeypatch.setattr(scrub, "_RENDER_NODES", root / "sys/class/drm")
    monkeypatch.setattr(scrub, "_KFD_PROCESSES", root / "none")
    monkeypatch.setattr(runner, "_is_root", lambda: False)
    monkeypatch.setattr(runner.shutil, "which", lambda name: None if name == "sudo" else f"/usr/bin/{name}")
    monkeypatch.setattr(runner.shutil, "disk_usage", lambda path: argparse.Namespace(free=500 * 2**30))
    return Place(root, folder, checkout, {})


def faults(place):
    return {point.name: point for point in runner.examine(place) if not point.good}


def test_a_machine_as_described_is_good(place):
    points = runner.examine(place)
    assert [point for point in points if not point.good] == []
    assert all(point.fix == "" for point in points)
    assert len({point.name for point in points}) == len(points) == 14


@pytest.mark.parametrize(
    ("path", "text", "name", "fix"),
    [
        ("sys/module/amdgpu", None, "driver", "amdgpu-dkms"),
        ("dev/kfd", None, "one GPU", "usermod -aG render,video"),
        (
            "sys/class/kfd/kfd/topology/nodes/1/properties",
            "gfx_target_version 90010\ndrm_render_minor 128",
            "one GPU",
            "MI300X",
        ),
        (f"{DEVICE}/current_compute_partition", "CPX", "partitions", "--compute-partition SPX"),
        (f"{DEVICE}/current_memory_partition", "NPS4", "partitions", "--memory-partition NPS1"),
        (f"{DEVICE}/power_dpm_force_performance_level", "auto", "clocks", "--perf-determinism 1900"),
        (f"{DEVICE}/power_dpm_force_performance_level", None, "clocks", "--perf-determinism 1900"),
        (f"{DEVICE}/mem_info_vram_used", str(9 * 2**30), "idle GPU", "scrub"),
        ("proc/sys/kernel/numa_balancing", "1", "NUMA balancing", "kernel.numa_balancing=0"),
        ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "schedutil", "CPU governor", "performance"),
    ],
)
def test_a_fault_of_the_system_is_named_with_its_cure(place, path, text, name, fix):
    target = place.root / path
    if text is None:
        runner.shutil.rmtree(target) if target.is_dir() else target.unlink()
    else:
        target.write_text(text)
    found = faults(place)
    assert set(found) == {name}
    assert fix in found[name].fix


@pytest.mark.parametrize(
    ("file", "text", "names"),
    [
        (".env", "", {"one GPU", "partitions", "clocks"}),
        (".env", "TILEGATE_RENDER_NODE=/dev/sda", {"one GPU", "partitions", "clocks", "idle GPU"}),
        (".runner", '{"ephemeral": false}', {"ephemeral"}),
        (".runner", '{"agentName": "x"}', {"ephemeral"}),
        (".runner", "no JSON", {"ephemeral"}),
    ],
)
def test_a_fault_of_the_runner_is_named(place, file, text, names):
    engine = (place.runner / ".env").read_text().splitlines()[1]
    (place.runner / file).write_text(f"{text}\n{engine}\n" if file == ".env" else text)
    assert set(faults(place)) == names


def test_an_image_that_is_not_named_or_not_here_is_a_fault(place):
    (place.repository / ".github" / "bench.toml").write_text('image = ""\n')
    assert "docs/runners.md" in faults(place)["image"].fix
    (place.repository / ".github" / "bench.toml").write_text(f'image = "{IMAGE}"\n')
    engine = Path((place.runner / ".env").read_text().split("=")[-1].strip())
    engine.write_text('#!/bin/sh\ntest "$1" = ps\n')
    assert faults(place)["image"].fix.endswith(f"pull {IMAGE}")
    engine.write_text("#!/bin/sh\necho no daemon >&2; exit 1\n")
    assert "no daemon" in faults(place)["container engine"].found


def test_root_a_busy_lock_and_a_full_disk_are_faults(place, monkeypatch):
    monkeypatch.setattr(runner.shutil, "disk_usage", lambda path: argparse.Namespace(free=2**30))
    with runner.device_lock.hold("hip", wait=False, who="another", say=print):
        found = faults(place)
    assert set(found) == {"lock", "disk"}
    assert "another" in found["lock"].found
    monkeypatch.setattr(runner, "_is_root", lambda: True)
    assert "user" in faults(place)


def test_doctor_shows_every_point_and_fails_for_a_fault(place, monkeypatch, capsys):
    parser = argparse.ArgumentParser()
    doctor.add_parser(parser.add_subparsers())
    monkeypatch.chdir(place.repository)
    args = parser.parse_args(["doctor", "--runner", str(place.runner), "--json"])
    assert doctor.run(args) == doctor.EXIT_NOTHING_CAN_MEASURE  # the real machine below / is none
    points = json.loads(capsys.readouterr().out)["points"]
    assert len(points) == 14
    assert doctor.run(parser.parse_args(["doctor", "--runner", str(place.runner)])) == doctor.EXIT_NOTHING_CAN_MEASURE
    shown = capsys.readouterr().out
    for point in points:
        assert point["name"] in shown
        assert point["good"] or point["fix"] in shown
    monkeypatch.setattr(runner, "examine", lambda of: [runner.Point("x", True, "y", "")])
    assert doctor.run(args) == doctor.EXIT_READY


def test_the_guide_describes_every_point():
    text = (Path(__file__).parents[3] / "docs" / "runners.md").read_text()
    for name in ("driver", "one GPU", "partitions", "clocks", "NUMA balancing", "CPU governor", "Python and git"):
        assert f"| {name} |" in text
    for name in ("container engine", "image", "user", "ephemeral", "lock", "idle GPU", "disk"):
        assert f"| {name} |" in text
