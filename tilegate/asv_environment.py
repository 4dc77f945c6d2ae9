"""asv environments of type "shared": every commit is measured in the one interpreter that asv itself runs in.

asv's own environment types install the project anew for each commit, or torch and TileLang into an environment of
their own: minutes and gigabytes, and not the build of torch that this GPU needs. This type checks the commit out and
puts its package first on PYTHONPATH.

asv.conf.json loads it with ``"plugins": [".tilegate.asv_environment"]`` and ``"environment_type": "shared"``; its
"project" is the import name of the package under test. The suite and tilegate stay today's: only that package comes from
the commit, and the suite proves it with `tilegate.protocol.verify_origin`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from asv import util
from asv.console import log
from asv.environment import Environment, EnvironmentUnavailable

import tilegate
from tilegate.measuring.environment import NoDeviceError, describe, probe_torch
from tilegate.protocol.origin import ROOT_VARIABLE
from tilegate.protocol.selection import LISTING_VARIABLE

_OWN_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"

# Argument 1 is the suite. Succeeds if a process forked after importing it can still use the GPU.
_FORK_PROBE = """
import os, sys
from asv_runner._aux import update_sys_path
from asv_runner.discovery import disc_benchmarks
update_sys_path(sys.argv[1])
list(disc_benchmarks(sys.argv[1], ignore_import_errors=True))
import torch
child = os.fork()
if child == 0:
    torch.zeros(1, device="cuda")
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


class SharedEnvironment(Environment):  # type: ignore[misc]  # asv is untyped
    """The running interpreter, with the package of one commit at a time.

    Its "requirements" are what a time depends on beside the commit: target, device, driver, torch and TileLang. asv
    keeps them with every result, so a new driver starts a new series instead of looking like a change of the code.
    """

    tool_name = "shared"

    def __init__(
        self, conf: Any, python: str, requirements: dict[str, str], tagged_env_vars: dict[tuple[str, str], str]
    ) -> None:
        """Take the interpreter and the machine as they are; asv calls this with its configuration."""
        if not self.matches(python):
            raise EnvironmentUnavailable(
                f'environment type "shared" is the Python {_OWN_PYTHON} that asv runs in, not {python}; '
                'remove "pythons" from asv.conf.json or start asv with that Python'
            )
        self._conf = conf
        self._target = _target()
        self._commit: str | None = None
        # Before the rest: asv's constructor derives names of directories from it.
        self._requirements = {**requirements, **_surroundings(self._target)}
        super().__init__(conf, _OWN_PYTHON, self._requirements, tagged_env_vars)
        self._staged = Path(self._path, "staged")

    @classmethod
    def matches(cls, python: str) -> bool:
        """Whether `python` names the running interpreter."""
        return python in (_OWN_PYTHON, "same", sys.executable)

    @property
    def installed_commit_hash(self) -> str | None:
        """The commit that is checked out, None before the first."""
        return self._commit

    def check_presence(self) -> bool:
        """Whether there is something to install: never."""
        return True

    def create(self) -> None:
        """Lay out the one directory that PYTHONPATH starts with: the commit's package and today's tilegate."""
        self._staged.mkdir(parents=True, exist_ok=True)
        for name, source in (
            (self._project, Path(self._build_root, self._repo_subdir, self._project)),
            ("tilegate", Path(tilegate.__file__).resolve().parent),
        ):
            link = self._staged / name
            link.unlink(missing_ok=True)
            link.symlink_to(source, target_is_directory=True)

    def install_project(self, conf: Any, repo: Any, commit_hash: str) -> None:
        """Check the commit out."""
        if self._commit == commit_hash:
            return
        self._commit = None
        self.checkout_project(repo, commit_hash)
        self._commit = commit_hash
        if conf.launch_method is None:
            conf.launch_method = self._launch_method()

    def run(self, args: list[str], **options: Any) -> Any:
        """Run Python with `args`, as asv's environments do; `options` go to `asv.util.check_output`."""
        environment = dict(options.pop("env", None) or os.environ)
        environment.update(self._global_env_vars)
        path = os.pathsep.join([str(self._staged), *filter(None, [environment.get("PYTHONPATH")])])
        # asv's scripts take every entry of PYTHONPATH off sys.path again, unless ASV_PYTHONPATH names it, too.
        environment["PYTHONPATH"] = environment["ASV_PYTHONPATH"] = path
        environment[ROOT_VARIABLE] = self._build_root
        environment["TILEGATE_TARGET"] = self._target
        # Asks for the number of GPUs without starting CUDA, which no process may do before it forks.
        environment["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
        if "discover" in args:  # asv's own script, told to write down which benchmarks there are
            environment[LISTING_VARIABLE] = "1"
        return util.check_output([sys.executable, *args], env=environment, **options)

    def _launch_method(self) -> str:
        """Choose how asv starts a process for each case.

        Forked from one that has already imported torch, TileLang and the suite, it saves some seconds a case. Not where
        the import alone starts the GPU's runtime: a forked process cannot use it.
        """
        if self._target == "cpu":
            return "forkserver"
        log.info("Trying whether a forked process can use the GPU")
        try:
            self.run(["-c", _FORK_PROBE, os.path.abspath(self._conf.benchmark_dir)], dots=False, display_error=False)
        except util.ProcessError:
            return "spawn"
        return "forkserver"


def _target() -> str:
    asked = os.environ.get("TILEGATE_TARGET") or "auto"
    if asked != "auto":
        return asked
    facts = probe_torch()  # in a child: asv itself never opens the GPU
    if not facts["devices"]:
        return "cpu"
    return "hip" if facts["rocm"] else "cuda"


def _surroundings(target: str) -> dict[str, str]:
    try:
        facts: Any = describe(target)
    except (NoDeviceError, ValueError) as error:
        raise EnvironmentUnavailable(f"TILEGATE_TARGET: {error}") from error
    relevant = {"target": target, "torch": facts["versions"]["torch"], "tilelang": facts["versions"]["tilelang"]}
    if target != "cpu":
        relevant |= {"device": facts["device"]["name"], "driver": facts["device"]["driver"]}
    return {name: value or "unknown" for name, value in relevant.items()}
