"""Create or update .venv for this repository; `make setup` calls it.

Keeps the torch that is already there, whatever its build: which one is right (ROCm, CUDA, CPU) only the machine knows.
Standard library only, and written so that a Python too old for the project can still say so.
"""

import argparse
import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import sysconfig

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OLDEST_PYTHON = (3, 11)
TORCH_CPU = "2.13.0"
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
STAMP = ".setup-stamp"
ASK_TORCH = "import importlib.metadata as m; print(m.version('torch'))"


class SetupError(Exception):
    """The environment cannot be made; the message says what the user does next."""


def main(arguments=None):
    """Run the set-up; return the exit status: 0 done or nothing to do, 1 with a message on stderr."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--venv", default=os.path.join(ROOT, ".venv"), help="where the environment is (default: .venv)")
    parser.add_argument("--extras", default="dev", help="extras of pyproject.toml to install (default: dev)")
    options = parser.parse_args(arguments)
    try:
        set_up(os.path.abspath(options.venv), options.extras)
    except SetupError as error:
        print(f"set-up stopped: {error}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        print("set-up stopped: this failed, its own message is above: " + " ".join(error.cmd), file=sys.stderr)
        return 1
    return 0


def check_python(version):
    """Refuse a Python older than the project supports, naming newer ones that are installed."""
    if tuple(version[:2]) >= OLDEST_PYTHON:
        return
    newer = [name for name in ("python3.13", "python3.12", "python3.11") if shutil.which(name)]
    hint = f"run `make setup PYTHON={newer[0] if newer else '/path/to/python3.11'}`"
    found = ".".join(str(part) for part in version[:3])
    raise SetupError(f"Python 3.11 or newer is needed, {sys.executable} is {found}; {hint}")


def check_modules():
    """Refuse a Python that cannot make virtual environments (Debian splits them off)."""
    missing = [name for name in ("venv", "ensurepip") if importlib.util.find_spec(name) is None]
    if missing:
        package = f"python{sys.version_info[0]}.{sys.version_info[1]}-venv"
        raise SetupError(f"this Python lacks {' and '.join(missing)}; on Debian and Ubuntu: apt-get install {package}")


def check_compiler():
    """Refuse a machine without a C++ compiler: TileLang's CPU target and its host stubs need one."""
    named = os.environ.get("CXX") or os.environ.get("CC")
    if not any(shutil.which(name) for name in ([named] if named else ["g++", "clang++", "c++"])):
        what = f"the compiler named by CXX or CC, {named}, is not there" if named else "no C++ compiler is on PATH"
        raise SetupError(f"{what}; on Debian and Ubuntu: apt-get install g++")


def set_up(venv, extras):
    """Make `venv` hold this repository, editable, with `extras` and a torch. Does nothing when nothing changed."""
    python = os.path.join(venv, "bin", "python")
    stamp = os.path.join(venv, STAMP)
    wanted = wanted_stamp(extras)
    usable = succeeds([python, "-c", f"import sys; sys.exit(sys.version_info < {OLDEST_PYTHON})"])
    if usable and read(stamp) == wanted:
        print(f"{os.path.relpath(venv)} is up to date")
        return
    check_compiler()
    if not usable:
        check_python(sys.version_info)
        check_modules()
        create(venv)
    if os.path.exists(stamp):
        os.remove(stamp)  # an interrupted update must not look finished
    pip = [python, "-m", "pip", "--disable-pip-version-check", "install"]
    torch = output([python, "-c", ASK_TORCH])
    if torch is None:
        install_cpu_torch(pip, python)
        torch = output([python, "-c", ASK_TORCH])
    constraints = os.path.join(venv, "keep-torch.txt")
    with open(constraints, "w", encoding="utf-8") as file:
        file.write(f"torch=={torch}\n")
    subprocess.run([*pip, "--constraint", constraints, "--editable", f"{ROOT}[{extras}]"], check=True)
    with open(stamp, "w", encoding="utf-8") as file:
        file.write(wanted)
    print(f"{os.path.relpath(venv)} is ready, with torch {torch}; what this machine can do: .venv/bin/tilegate doctor")


def create(venv):
    """Create the environment; a torch of the creating Python stays visible in it."""
    if os.path.isdir(venv) and os.listdir(venv) and not os.path.exists(os.path.join(venv, "pyvenv.cfg")):
        raise SetupError(f"{venv} exists and is no virtual environment; move it away")
    inherit = importlib.util.find_spec("torch") is not None
    print(f"creating {os.path.relpath(venv)} with Python {platform.python_version()}", flush=True)
    options = ["--system-site-packages"] if inherit else []
    subprocess.run([sys.executable, "-m", "venv", "--clear", *options, venv], check=True)
    if inherit and sys.prefix != sys.base_prefix:
        # "System" means the base interpreter: the packages of the environment that we run in need a path file.
        purelib = output(
            [os.path.join(venv, "bin", "python"), "-c", "import sysconfig as s; print(s.get_path('purelib'))"]
        )
        folders = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
        with open(os.path.join(purelib, "parent-environment.pth"), "w", encoding="utf-8") as file:
            file.writelines(f"{folder}\n" for folder in sorted(folders))


def install_cpu_torch(pip, python):
    """Install the CPU build of torch; refuse on a machine with a GPU, where it would be the wrong one."""
    gpu = gpu_kind()
    if gpu and os.environ.get("TORCH") != "cpu":
        build = "rocm6.4" if gpu == "ROCm" else "cu130"
        raise SetupError(
            f"a {gpu} GPU is here but no torch. Install the build that fits your driver, for example\n"
            f"  {os.path.relpath(python)} -m pip install torch --index-url https://download.pytorch.org/whl/{build}\n"
            "and run `make setup` again; or take the CPU build with `make setup TORCH=cpu`"
        )
    if sys.platform == "linux" and platform.machine() == "x86_64":
        # There the package index's own wheel is the CUDA build, some 2 GB larger.
        wanted, index = f"torch=={TORCH_CPU}+cpu", ["--extra-index-url", TORCH_CPU_INDEX]
        if succeeds([*pip, "--dry-run", "--quiet", "--no-deps", wanted]):
            index = []
    else:
        wanted, index = f"torch=={TORCH_CPU}", []
    subprocess.run([*pip, *index, wanted], check=True)


def gpu_kind():
    """Return "ROCm" or "CUDA" for a GPU whose device node is there, else None."""
    if os.path.exists("/dev/kfd"):
        return "ROCm"
    return "CUDA" if os.path.exists("/dev/nvidiactl") else None


def wanted_stamp(extras):
    """Return a digest of everything that decides what is installed."""
    digest = hashlib.sha256(f"{extras}\n{ROOT}\n".encode())
    for name in ("pyproject.toml", os.path.join("scripts", "setup_venv.py")):
        with open(os.path.join(ROOT, name), "rb") as file:
            digest.update(file.read())
    return digest.hexdigest()


def read(path):
    """Return the text of a file, or None where it cannot be read."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return None


def output(command):
    """Return what a command prints, stripped, or None if it fails."""
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def succeeds(command):
    """Tell whether a command can be run and returns 0."""
    return output(command) is not None


if __name__ == "__main__":
    sys.exit(main())
