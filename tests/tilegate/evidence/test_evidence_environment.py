"""`tilegate environment`: complete, without anything private, and comparable."""

import json
import re
import subprocess
import sys
from importlib import resources

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilegate import cli
from tilegate.evidence import environment, privacy
from tilegate.measuring import environment as measured

SECRETS = {
    "host": "gpu-node-17",
    "user": "jdoe",
    "path": "/home/jdoe/clang/bin/clang",
    "serial": "GPU-8f1d7a40-1234-5678-9abc-0123456789ab",
    "pci": "0000:c1:00.0",
    "ipv4": "10.20.30.40",
    "ipv6": "fe80::1ff:fe23:4567:890a",
    "mac": "0c:42:a1:9b:11:2e",
    "mail": "jdoe@gpu-node-17.example.org",
    "server": "https://git.internal.example.org/llvm",
}


@pytest.fixture
def on_a_private_machine(monkeypatch):
    """Every text that a machine can supply holds a secret."""
    everything = " ".join(SECRETS.values())
    monkeypatch.setattr(privacy.platform, "node", lambda: "gpu-node-17.example.org")
    monkeypatch.setattr(privacy.socket, "gethostname", lambda: "gpu-node-17")
    monkeypatch.setenv("USER", "jdoe")
    monkeypatch.setenv("HOME", "/home/jdoe")
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", f"0 {everything}")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "abcdef")
    monkeypatch.setattr(measured, "cpu_model", lambda: f"EPYC {everything}")
    monkeypatch.setattr(
        measured, "tool_version", lambda path: f"clang version 19.1.7 ({everything}) InstalledDir: /opt/x/bin"
    )
    monkeypatch.setattr(environment, "_distribution", lambda: f"Debian {everything}")
    monkeypatch.setattr(environment, "container", lambda: everything)


@pytest.mark.usefixtures("on_a_private_machine")
def test_nothing_private_is_left():
    text = json.dumps(environment.collect("cpu"))
    for what, secret in SECRETS.items():
        assert secret not in text, what
    assert not re.search(r"jdoe|gpu-node|internal|abcdef|/opt/x", text)
    assert "clang version 19.1.7" in text
    assert "EPYC" in text
    assert privacy.REMOVED in text


def test_what_is_public_stays():
    public = {
        "driver": "580.159.04",
        "compiler": "Cuda compilation tools, release 13.0, V13.0.88",
        "gcc": "g++ (Debian 12.2.0-14+deb12u1) 12.2.0",
        "torch": "2.11.0+rocm6.4",
        "hip": "HIP version: 6.4.43482-0f2d60242",
        "kernel": "linux 6.8.0-45-generic",
        "device": "AMD Instinct MI300X OAM",
        "rate": "TFLOP/s or GB/s, N/A",
        "time": "2026-12-01T04:57:50+00:00, at 04:57:50",
        "setting": "expandable_segments:True,max_split_size_mb:128",
        "devices": "0,1:2",
        "name": "std::string a, SN2700, 12.2.0.14-3",
        "vbios": "96.00.A5.00.1A",
        "count": 304,
    }
    assert privacy.without_private(public, ("root-of-all",)) == public


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("clang -I/home/jdoe/include -L/opt/lib", "jdoe"),
        ("built in /home/john doe/src/x", "doe"),
        (r"cl: C:\Users\John Doe\clang.exe", "Doe"),
        ("cl: C:/Users/jdoe/clang.exe", "Users"),
        (r"\\fileserver\share\tools", "fileserver"),
        ("link fe80::1 up", "fe80"),
        ("on 2001:db8::, port 1", "2001"),
        ("via fe80::1ff:fe23:4567:890a%eth0.", "fe23"),
        ("from ::ffff:10.1.2.3", "10.1"),
        ("at 10.20.30.40.", "10.20"),
        ("at 10.20.30.40:8080", "10.20"),
        ("nic 0c-42-a1-9b-11-2e", "0c-42"),
        ("port 0002:c903:00ef:1234", "c903"),
        ("GPU c1:00.0", "c1:00"),
        ("unique 0x8c5f1d2e3b4a5968", "8c5f"),
        ("Serial Number: 1650222034567", "1650"),
        ("S/N=PCB042", "PCB042"),
        ("machine 0123456789abcdef0123456789abcdef", "89abcdef"),
        ("token ghp_abcdefghijklmnopqrst", "ghp_"),
        ("key AKIAABCDEFGHIJKLMNOP", "AKIA"),
        ("postgres://jdoe:secret@db/x", "secret"),
        ("file:///srv/x", "srv"),
        ("jdoe@gpu17", "gpu17"),
        ("by Ju\u0308rgen", "rgen"),
        ("by JÜRGEN_build", "JÜRGEN"),
        ("joined corp.example.org", "corp"),
    ],
)
def test_an_attack_on_what_is_left_out(text, secret):
    words = ("/home/john doe", "jürgen", "corp.example.org")
    assert secret not in str(privacy.without_private(text, words))


def test_the_domain_of_a_host_is_private(monkeypatch):
    monkeypatch.setattr(privacy.platform, "node", lambda: "gpu17.cluster.example")
    monkeypatch.setattr(privacy.socket, "gethostname", lambda: "gpu17")
    assert {"gpu17.cluster.example", "gpu17", "cluster.example"} <= set(privacy.private_words())


@given(st.text(max_size=60))
def test_cleaning_twice_changes_nothing_more(text):
    once = privacy.without_private(text, ("jdoe",))
    assert privacy.without_private(once, ("jdoe",)) == once


@given(st.text(alphabet="ab", min_size=3, max_size=8), st.text(max_size=20), st.text(max_size=20))
def test_a_private_word_never_stands_alone(word, before, after):
    cleaned = privacy.without_private(f"{before} {word} {after}", (word,))
    assert word not in str(cleaned).split()


def test_the_document_fits_its_schema(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    document = environment.collect("cpu")
    schema = json.loads(resources.files("tilegate").joinpath("schemas/environment-1.json").read_text())
    jsonschema.validate(document, schema)
    assert document["settings"]["OMP_NUM_THREADS"] == "1"
    assert document["versions"]["torch"]
    assert "id" not in document["machine"]


def test_the_limits_of_an_amd_gpu(tmp_path):
    """On imitated files of the amdgpu driver: none of this was seen on an AMD GPU."""
    folder = tmp_path / "0000:c1:00.0"
    (folder / "hwmon" / "hwmon3").mkdir(parents=True)
    (folder / "pp_dpm_sclk").write_text("0: 132Mhz *\n1: 2100Mhz\n")
    (folder / "pp_dpm_mclk").write_text("0: 900Mhz\n1: 1300Mhz *\n")
    (folder / "hwmon" / "hwmon3" / "power1_cap").write_text("750000000\n")
    (folder / "current_compute_partition").write_text("SPX\n")
    found, unreadable = environment.amd_limits("0000:c1:00.0", tmp_path)
    assert found == {"sm_clock_max_mhz": 2100, "memory_clock_max_mhz": 1300, "power_cap_w": 750.0, "partition": "SPX"}
    assert "device.power_cap_max_w" in unreadable


def test_containers_are_told_apart(tmp_path, monkeypatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert environment.container(tmp_path) is None
    (tmp_path / "proc/1").mkdir(parents=True)
    (tmp_path / "proc/1/environ").write_bytes(b"PATH=/bin\0container=lxc\0")
    assert environment.container(tmp_path) == "lxc"
    (tmp_path / "proc/1/environ").write_bytes(b"container=gpu-node-17\0")
    assert environment.container(tmp_path) == "another kind"
    (tmp_path / "run").mkdir()
    (tmp_path / "run/.containerenv").touch()
    assert environment.container(tmp_path) == "podman"
    (tmp_path / ".dockerenv").touch()
    assert environment.container(tmp_path) == "docker"


def test_diff(tmp_path, capsys):
    here = environment.collect("cpu")
    other = {**here, "created": "2020-01-01", "versions": {**here["versions"], "torch": "2.1.0"}}
    (tmp_path / "a.json").write_text(json.dumps(here))
    (tmp_path / "b.json").write_text(json.dumps({"environment": other}))  # as samples.json and verdict.json hold it
    assert cli.main(["environment", "diff", str(tmp_path / "a.json"), str(tmp_path / "a.json")]) == 0
    assert cli.main(["environment", "diff", str(tmp_path / "a.json"), str(tmp_path / "b.json"), "--json"]) == 1
    shown = capsys.readouterr().out.partition("\n")[2]
    assert json.loads(shown) == [{"what": "versions.torch", "before": here["versions"]["torch"], "after": "2.1.0"}]


def test_two_files_of_one_name_are_told_apart(tmp_path, capsys):
    here = environment.collect("cpu")
    for name, torch in (("a", "2.1.0"), ("b", "2.2.0")):
        (tmp_path / name).mkdir()
        changed = {**here, "versions": {**here["versions"], "torch": torch}}
        (tmp_path / name / "environment.json").write_text(json.dumps(changed))
    paths = [str(tmp_path / name / "environment.json") for name in "ab"]
    assert cli.main(["environment", "diff", *paths, "--markdown"]) == 1
    assert all(path in capsys.readouterr().out.replace("\\", "") for path in paths[:1])


def test_a_file_that_is_not_there(tmp_path, capsys):
    assert cli.main(["environment", "diff", str(tmp_path / "none.json")]) == 2
    assert "cannot read" in capsys.readouterr().err
    assert cli.main(["environment", "diff"]) == 2
    assert "one or two files" in capsys.readouterr().err
    assert cli.main(["environment", "--out", "/dev/null/x.json"]) == 2
    assert "cannot write" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"device": 3}', '{"environment": []}'])
def test_a_file_that_is_no_environment(tmp_path, capsys, content):
    (tmp_path / "a.json").write_text(content)
    assert cli.main(["environment", "diff", str(tmp_path / "a.json")]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_markdown_is_a_table():
    shown = subprocess.run(
        [sys.executable, "-m", "tilegate", "environment", "--target", "cpu", "--markdown"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert shown[0] == "| what | value |"
    assert len({line.count("|") for line in shown}) == 1
