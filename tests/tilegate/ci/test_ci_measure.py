"""The measuring side: what a container may do, what is taken from it, and what is left behind."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tilegate.ci import container, measure, scrub, settings
from tilegate.ci.container import Box
from tilegate.files import UsageError

IMAGE = f"registry.example.org/kernels@sha256:{'a' * 64}"


@pytest.fixture
def engine(tmp_path, monkeypatch):
    """A container engine that only writes down what it is told; `answers` in a file are its containers."""
    log, containers = tmp_path / "engine.log", tmp_path / "containers"
    script = tmp_path / "engine"
    script.write_text(f'#!/bin/sh\necho "$@" >> {log}\ntest "$1" = ps && cat {containers} || true\n')
    script.chmod(0o755)
    containers.write_text("")
    monkeypatch.setenv("TILEGATE_CONTAINER_ENGINE", str(script))
    return script


def box(tmp_path, **changes):
    values = {
        "image": IMAGE,
        "name": "tilegate-x",
        "read_only": [(tmp_path, "/judge")],
        "writable": (tmp_path, "/out"),
        "environment": {"TILEGATE_TIER": "pr"},
    }
    return Box(**{**values, **changes})


def test_a_container_has_no_network_no_rights_and_one_folder_to_write_to(tmp_path):
    words = container.command_line(box(tmp_path), ["true"], "/out")
    line = " ".join(words)
    for wanted in (
        "--network none",
        "--read-only",
        "--cap-drop ALL",
        "--security-opt no-new-privileges",
        f"--user {os.getuid()}:{os.getgid()}",
        "--rm",
    ):
        assert f" {wanted} " in line
    mounts = [word for word in words if word.startswith("type=bind")]
    assert [mount.endswith(",readonly") for mount in mounts] == [True, False]
    assert "docker.sock" not in line
    assert "--device" not in words
    assert words[-2:] == [IMAGE, "true"]


def test_a_gpu_is_one_render_node_with_the_groups_that_own_it(tmp_path, monkeypatch):
    monkeypatch.setattr(container, "_group_of", lambda path: {"kfd": 110, "renderD129": 109}[path.name])
    words = container.command_line(box(tmp_path, render_node="/dev/dri/renderD129"), ["true"], "/out")
    devices = [words[i + 1] for i, word in enumerate(words) if word == "--device"]
    assert devices == ["/dev/kfd", "/dev/dri/renderD129"]
    assert [words[i + 1] for i, word in enumerate(words) if word == "--group-add"] == ["109", "110"]


@pytest.mark.parametrize(
    "image",
    [None, "", "rocm/pytorch:latest", f"Rocm@sha256:{'a' * 64}", "x@sha256:abc", f"x@sha256:{'a' * 64} --privileged"],
)
def test_an_image_without_a_digest_is_refused(image):
    with pytest.raises(UsageError, match="with its digest"):
        container.checked_image(image)
    assert container.checked_image(IMAGE) == IMAGE


@pytest.mark.parametrize("node", [None, "renderD128", "/dev/dri", "/dev/sda", "/dev/dri/renderD128:rwm"])
def test_a_device_that_is_no_gpu_is_refused(node):
    with pytest.raises(UsageError, match=r"runner's \.env"):
        container.checked_render_node(node)


def test_a_folder_that_could_change_the_mount_is_refused(tmp_path):
    odd = tmp_path / "a,target=etc"
    odd.mkdir()
    with pytest.raises(UsageError, match="comma"):
        container.command_line(box(tmp_path, writable=(odd, "/out")), ["true"], "/out")


def test_a_container_that_takes_too_long_is_removed(tmp_path, engine):
    engine.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/engine.log\ntest "$1" != run || exec sleep 60\n')
    with pytest.raises(UsageError, match="its limit"):
        container.run(box(tmp_path, engine=str(engine)), ["true"], "/out", seconds=0.2)
    assert "rm --force --volumes tilegate-x" in (tmp_path / "engine.log").read_text()


def test_without_an_engine_the_message_says_what_to_install(tmp_path):
    with pytest.raises(UsageError, match=r"docs/runners\.md"):
        container.run(box(tmp_path, engine="no-such-engine"), ["true"], "/out", seconds=1)


# --- what is taken from it


def test_ordinary_json_is_taken(tmp_path):
    (tmp_path / "samples.json").write_text('{"a": 1}')
    assert measure.take(tmp_path, "samples.json", 100) == '{"a": 1}'
    assert measure.take(tmp_path, "missing.json", 100) is None


def test_a_link_to_a_file_of_the_host_is_not_followed(tmp_path):
    (tmp_path / "secret").write_text('{"secret": 1}')
    (tmp_path / "samples.json").symlink_to(tmp_path / "secret")
    with pytest.raises(UsageError, match="cannot be read"):
        measure.take(tmp_path, "samples.json", 100)


def test_a_link_to_a_folder_of_the_host_is_not_followed_either(tmp_path):
    (tmp_path / "host").mkdir()
    (tmp_path / "host" / "config.json").write_text('{"auth": 1}')
    (tmp_path / "work" / "clone").mkdir(parents=True)
    (tmp_path / "work" / "clone" / "mi300x").symlink_to(tmp_path / "host")
    for name in ("clone/mi300x/config.json", "clone/mi300x/missing.json"):
        with pytest.raises(UsageError, match="cannot be read"):
            measure.take(tmp_path / "work", name, 100)


def _leaving(tmp_path, command):
    """An engine whose container runs `command`, a line of shell, in its writable folder."""
    return (
        f'#!/bin/sh\necho "$@" >> {tmp_path}/engine.log\n'
        f'out=$(echo "$@" | grep -o "source=[^,]*,target=/out" | sed "s/source=//;s/,.*//")\n'
        f'test "$1" != run || (cd "$out" && {command})\n'
    )


def test_records_behind_a_link_that_the_container_left_stay_on_the_host(tmp_path, project, engine):
    name = f"2026-01-{'0' * 16}.jsonl.xz"
    (tmp_path / "host").mkdir()
    (tmp_path / "host" / name).write_text("secret")
    engine.write_text(
        _leaving(tmp_path, f"mkdir -p history/packs && ln -sf {tmp_path}/host/{name} history/packs/{name}")
    )
    place = measure.Place(project.path, "cpu", "smoke", tmp_path / "out", IMAGE, 1)
    with pytest.raises(UsageError, match="cannot be read"):
        measure.update_history(place, tmp_path / "nothing", limit=1)
    assert list((tmp_path / "out").rglob("*.xz")) == []


def test_only_new_records_are_handed_over(tmp_path, project, engine):
    old, new = (f"history/packs/2026-01-{digit * 16}.jsonl.xz" for digit in "01")
    (tmp_path / "store" / "packs").mkdir(parents=True)
    (tmp_path / "store" / Path(old).relative_to("history")).write_text("old")
    engine.write_text(
        _leaving(tmp_path, f"mkdir -p history/runs && echo x > {new} && echo x > history/runs/samples.json")
    )
    place = measure.Place(project.path, "cpu", "smoke", tmp_path / "out", IMAGE, 1)
    assert measure.update_history(place, tmp_path / "store", limit=1) == 0
    assert [
        path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*") if path.is_file()
    ] == [new]
    asked = (tmp_path / "engine.log").read_text()
    assert "history update HEAD" in asked
    assert "history pack --all" in asked


def test_a_noise_profile_that_is_a_link_brings_no_file_of_the_host_into_the_container(tmp_path, project, engine):
    """Whoever may push to the branch of results could put one there; the change's code would read what it leads to."""
    (tmp_path / "credentials").write_text('{"token": "secret"}')
    profile = tmp_path / "mi300x.profile"
    profile.symlink_to(tmp_path / "credentials")
    place = measure.Place(project.path, "cpu", "smoke", tmp_path / "out", IMAGE, 1, profile)
    main = project.git("rev-parse", "main")
    with pytest.raises(UsageError, match="cannot be read"):
        measure.gate(place, main, main)
    assert not (tmp_path / "engine.log").exists()


def test_a_pipe_does_not_keep_the_job_waiting(tmp_path):
    os.mkfifo(tmp_path / "samples.json")
    with pytest.raises(UsageError, match="not a regular file"):
        measure.take(tmp_path, "samples.json", 100)


@pytest.mark.parametrize(
    ("content", "words"), [(b"x" * 101, "more than 100"), (b"no", "not JSON"), (b"\xff", "not JSON")]
)
def test_what_is_no_json_is_not_taken(tmp_path, content, words):
    (tmp_path / "samples.json").write_bytes(content)
    with pytest.raises(UsageError, match=words):
        measure.take(tmp_path, "samples.json", 100)


def test_old_files_are_not_taken_for_results_of_this_run(tmp_path, project):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "samples.json").write_text("{}")
    place = measure.Place(project.path, "cpu", "smoke", tmp_path / "out", None, 1)
    with pytest.raises(UsageError, match="not empty"):
        measure.gate(place, project.git("rev-parse", "main"), project.git("rev-parse", "main"))


@pytest.mark.parametrize("there", [True, False])
def test_a_noise_profile_goes_into_the_container_if_there_is_one(tmp_path, project, engine, there):
    profile = tmp_path / "earlier" / "mi300x.profile"
    profile.parent.mkdir()
    if there:
        profile.write_text('{"schema": "tilegate-noise/1"}')
    engine.write_text(_leaving(tmp_path, f"cp noise.json {tmp_path}/seen 2> /dev/null || true"))
    place = measure.Place(project.path, "cpu", "smoke", tmp_path / "out", IMAGE, 1, profile)
    main = project.git("rev-parse", "main")
    assert measure.gate(place, main, main) == measure.EXIT_NOT_MEASURED  # this engine measures nothing
    ran = (tmp_path / "engine.log").read_text()
    assert (" --noise-profile /out/noise.json --skip-unfit-noise" in ran) is there
    assert (tmp_path / "seen").exists() is there


def test_a_cancelled_job_ends_its_container(tmp_path, project, engine):
    """The runner ends a step with SIGTERM; the container is not the step's child and has to be ended, too."""
    engine.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/engine.log\ntest "$1" != run || exec sleep 60\n')
    bench = tmp_path / "bench.toml"
    bench.write_text(f'image = "{IMAGE}"\n')
    project.change()
    (tmp_path / "event.json").write_text(json.dumps({"pull_request": _pull(project), "repository": {"id": 1}}))
    command = [sys.executable, "-m", "tilegate.cli", "ci", "run", "--settings", bench, "--repo", project.path]
    started = subprocess.Popen(
        [*command, "--target", "cpu", "--tier", "smoke", "--out", tmp_path / "out"],
        env={**os.environ, "GITHUB_EVENT_PATH": str(tmp_path / "event.json"), "RUNNER_TEMP": str(tmp_path)},
        cwd=Path(measure.__file__).parents[2],
        stderr=subprocess.PIPE,
    )
    log = tmp_path / "engine.log"
    for _ in range(600):
        if log.exists() and log.read_text().startswith("run "):
            break
        assert started.poll() is None, started.stderr.read()
        os.sched_yield()
        subprocess.run(["sleep", "0.05"], check=True)
    started.terminate()
    assert started.wait(30) != 0
    assert "rm --force --volumes tilegate-" in log.read_text()
    assert not list(tmp_path.glob("tilegate-ci-*"))


def _pull(project):
    head = {"sha": project.git("rev-parse", "topic"), "repo": {"id": 1}}
    return {"number": 7, "base": {"sha": project.git("rev-parse", "main")}, "head": head}


# --- what is left behind


def test_scrubbing_removes_what_is_ours_and_says_what_it_cannot(tmp_path, engine, monkeypatch):
    monkeypatch.setenv("RUNNER_TEMP", str(tmp_path))
    monkeypatch.setenv("RUNNER_NAME", "gpu 0; rm -rf")
    (tmp_path / "tilegate-ci-abc" / "x").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    assert scrub.scrub([tmp_path / "change"], str(engine)) == []
    assert not (tmp_path / "tilegate-ci-abc").exists()
    assert (tmp_path / "other").exists()
    assert "label=tilegate.runner=gpu-0--rm--rf" in (tmp_path / "engine.log").read_text()
    (tmp_path / "containers").write_text("4fd1\n")
    trouble = scrub.scrub([], str(engine))
    assert "rm --force --volumes 4fd1" in (tmp_path / "engine.log").read_text()
    assert trouble == ["containers that cannot be removed: 4fd1"]
    assert "does not answer" in scrub.scrub([], "no-such-engine")[0]


def test_a_gpu_that_is_still_in_use_is_named(tmp_path, monkeypatch):
    processes, nodes = tmp_path / "proc", tmp_path / "drm"
    (processes / str(os.getpid())).mkdir(parents=True)
    (processes / "1").mkdir()
    device = nodes / "renderD128" / "device"
    device.mkdir(parents=True)
    (device / "mem_info_vram_used").write_text(str(5 * 2**30))
    monkeypatch.setattr(scrub, "_KFD_PROCESSES", processes)
    monkeypatch.setattr(scrub, "_RENDER_NODES", nodes)
    monkeypatch.setattr(scrub, "_is_mine", lambda process: process == os.getpid())
    found = scrub.busy("/dev/dri/renderD128")
    assert found == [f"process {os.getpid()} still uses a GPU", "5.0 GiB of the GPU's memory are still in use"]
    (device / "mem_info_vram_used").write_text(str(300 * 2**20))
    (processes / str(os.getpid())).rmdir()
    assert scrub.busy("/dev/dri/renderD128") == []
    assert "nobody knows" in scrub.busy("/dev/dri/renderD129")[0]


# --- settings


def test_settings_decide_who_is_measured_where(tmp_path):
    path = tmp_path / "bench.toml"
    path.write_text(f'image = "{IMAGE}"\noutside_environment = "bench-outside"\n')
    found = settings.load(path)
    assert (found.environment(outside=False), found.environment(outside=True)) == ("bench", "bench-outside")
    path.write_text(f'image = "{IMAGE}"\n')
    assert settings.load(path).environment(outside=True) == ""
    path.write_text('image = ""\noutside_environment = "bench-outside"\n')
    assert settings.load(path).environment(outside=True) == ""


@pytest.mark.parametrize(
    "text",
    [
        'image = "rocm/pytorch:latest"',
        f'image = "{IMAGE}"\noutside_environment = "bench"',  # the one without reviewers
        f'image = "{IMAGE}"\noutside_environment = "a\\nb"',
        f'image = "{IMAGE}"\nimages = "x"',
        "image = 3",
        "image = ",
    ],
)
def test_settings_that_could_open_a_door_are_refused(tmp_path, text):
    (tmp_path / "bench.toml").write_text(text)
    with pytest.raises(UsageError):
        settings.load(tmp_path / "bench.toml")
