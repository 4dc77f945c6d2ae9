"""`make setup`: fast when nothing changed, keeps the torch that is there, says what is missing."""

import importlib.util
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "setup_venv.py"
SPEC = importlib.util.spec_from_file_location("setup_venv", SCRIPT)
setup_venv = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(setup_venv)


@pytest.fixture
def commands(monkeypatch):
    """Every command that would have installed or created something; none of them is run."""
    issued = []

    def record(command, **options):
        issued.append([str(part) for part in command])
        return subprocess.CompletedProcess(command, 0, stdout="2.13.0+cpu\n", stderr="")

    monkeypatch.setattr(setup_venv.subprocess, "run", record)
    return issued


@pytest.fixture
def no_torch_yet(monkeypatch):
    answers = iter([None, "2.13.0+cpu"])
    real = setup_venv.output
    monkeypatch.setattr(
        setup_venv, "output", lambda command: next(answers) if setup_venv.ASK_TORCH in command else real(command)
    )


def test_an_old_python_is_refused_with_one_that_is_there(monkeypatch):
    monkeypatch.setattr(setup_venv.shutil, "which", lambda name: "/usr/bin/x" if name == "python3.12" else None)
    with pytest.raises(setup_venv.SetupError, match=r"3\.10\.13; run `make setup PYTHON=python3\.12`"):
        setup_venv.check_python((3, 10, 13))
    setup_venv.check_python((3, 11, 0))
    setup_venv.check_python((3, 14, 0))


def test_a_python_without_venv_is_refused_with_the_package(monkeypatch):
    monkeypatch.setattr(setup_venv.importlib.util, "find_spec", lambda name: None if name == "ensurepip" else object())
    with pytest.raises(setup_venv.SetupError, match=r"lacks ensurepip; .*apt-get install python3\.\d+-venv"):
        setup_venv.check_modules()


def test_a_machine_without_a_compiler_is_refused(monkeypatch):
    for variable in ("CXX", "CC"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(setup_venv.shutil, "which", lambda name: None)
    with pytest.raises(setup_venv.SetupError, match=r"no C\+\+ compiler .*apt-get install g\+\+"):
        setup_venv.check_compiler()
    monkeypatch.setenv("CXX", "my-cxx")
    with pytest.raises(setup_venv.SetupError, match="my-cxx"):
        setup_venv.check_compiler()


@pytest.mark.usefixtures("no_torch_yet")
def test_the_cpu_build_is_installed_where_there_is_neither_torch_nor_gpu(monkeypatch, tmp_path, commands):
    monkeypatch.setattr(setup_venv, "gpu_kind", lambda: None)
    assert setup_venv.main(["--venv", str(tmp_path)]) == 0
    installs = [command for command in commands if "install" in command and "--dry-run" not in command]
    assert installs[0][-1].startswith("torch==2.13.0")
    assert installs[-1][-2:] == ["--editable", f"{ROOT}[dev]"]
    assert (tmp_path / "keep-torch.txt").read_text() == "torch==2.13.0+cpu\n"


@pytest.mark.parametrize("gpu", ["ROCm", "CUDA"])
@pytest.mark.usefixtures("no_torch_yet")
def test_a_gpu_without_torch_gets_no_cpu_build(monkeypatch, tmp_path, commands, capsys, gpu):
    monkeypatch.setattr(setup_venv, "gpu_kind", lambda: gpu)
    monkeypatch.delenv("TORCH", raising=False)
    assert setup_venv.main(["--venv", str(tmp_path)]) == 1
    assert not any("install" in command for command in commands)
    complaint = capsys.readouterr().err
    assert f"a {gpu} GPU is here but no torch" in complaint
    assert "make setup TORCH=cpu" in complaint


def test_a_torch_that_is_there_is_pinned_and_not_installed(monkeypatch, tmp_path, commands):
    real = setup_venv.output
    monkeypatch.setattr(
        setup_venv, "output", lambda command: "2.9.0+rocm6.4" if setup_venv.ASK_TORCH in command else real(command)
    )
    assert setup_venv.main(["--venv", str(tmp_path)]) == 0
    (install,) = [command for command in commands if "install" in command]
    assert install[-4:] == ["--constraint", str(tmp_path / "keep-torch.txt"), "--editable", f"{ROOT}[dev]"]
    assert (tmp_path / "keep-torch.txt").read_text() == "torch==2.9.0+rocm6.4\n"


def test_the_second_run_does_nothing_until_pyproject_changes(monkeypatch, tmp_path, commands):
    assert setup_venv.main(["--venv", str(tmp_path)]) == 0
    commands.clear()
    assert setup_venv.main(["--venv", str(tmp_path)]) == 0
    assert not any("install" in command for command in commands)
    monkeypatch.setattr(setup_venv, "wanted_stamp", lambda extras: "pyproject.toml has changed")
    assert setup_venv.main(["--venv", str(tmp_path)]) == 0
    assert any("install" in command for command in commands)


def test_a_run_that_failed_is_not_taken_for_done(monkeypatch, tmp_path, capsys):
    def fail_to_install(command, **options):
        if "install" in command:
            raise subprocess.CalledProcessError(1, command)
        return subprocess.CompletedProcess(command, 0, stdout="2.13.0+cpu\n", stderr="")

    monkeypatch.setattr(setup_venv.subprocess, "run", fail_to_install)
    (tmp_path / setup_venv.STAMP).write_text("of an earlier pyproject.toml")
    assert setup_venv.main(["--venv", str(tmp_path)]) == 1
    assert "its own message is above" in capsys.readouterr().err
    assert not (tmp_path / setup_venv.STAMP).exists()


def test_an_environment_whose_python_is_gone_is_made_again(monkeypatch, tmp_path, capsys):
    (tmp_path / setup_venv.STAMP).write_text(setup_venv.wanted_stamp("dev"))

    def create(venv):
        raise setup_venv.SetupError(f"asked for {venv}")

    monkeypatch.setattr(setup_venv, "create", create)
    assert setup_venv.main(["--venv", str(tmp_path)]) == 1
    assert f"asked for {tmp_path}" in capsys.readouterr().err


def test_a_folder_that_is_no_environment_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("ten years of work")
    with pytest.raises(setup_venv.SetupError, match="no virtual environment; move it away"):
        setup_venv.create(str(tmp_path))
    assert (tmp_path / "thesis.tex").exists()


def test_the_torch_of_an_environment_that_it_runs_in_stays_visible(tmp_path):
    """ROCm images keep torch in an environment of their own, which --system-site-packages alone does not reach."""
    parent, child = tmp_path / "parent", tmp_path / "child"
    venv.create(parent, with_pip=False, symlinks=True)
    packages = next(parent.glob("lib/python*/site-packages"))
    (packages / "torch.py").write_text("")
    (packages / "torch-2.9.0+rocm6.4.dist-info").mkdir()
    (packages / "torch-2.9.0+rocm6.4.dist-info" / "METADATA").write_text("Name: torch\nVersion: 2.9.0+rocm6.4\n")
    call = (
        f"import sys; sys.path.insert(0, {str(SCRIPT.parent)!r}); import setup_venv; setup_venv.create({str(child)!r})"
    )
    subprocess.run([parent / "bin" / "python", "-c", call], check=True, cwd=tmp_path)
    seen = subprocess.run(
        [child / "bin" / "python", "-c", setup_venv.ASK_TORCH], check=True, capture_output=True, text=True
    )
    assert seen.stdout.strip() == "2.9.0+rocm6.4"


def test_help_names_every_target():
    shown = subprocess.run(["make", "-C", str(ROOT), "help"], capture_output=True, text=True, check=True).stdout
    for target in ("setup", "test", "demo", "lint", "bench", "doctor"):
        assert f"make {target} " in shown


def test_the_script_itself_can_be_read_by_an_old_python():
    """The message about the version is of no use if the file does not parse."""
    import ast

    ast.parse(SCRIPT.read_text(), feature_version=(3, 7))
    assert sys.version_info >= (3, 11)
