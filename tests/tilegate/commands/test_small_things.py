"""Surroundings that are not as they should be: each ends in one sentence that names the fix."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import toy_repository

import tilegate
from tilegate.files import UsageError
from tilegate.measuring import device_lock, trees

pytestmark = pytest.mark.usefixtures("toy_surroundings")

TOTAL = ("-b", r"total\(1000\)")
SUITE, KERNELS = "toybench/sums.py", toy_repository.KERNELS
HERE = {**os.environ, "PYTHONPATH": str(Path(tilegate.__file__).parents[1])}


def _change(toy):
    toy.replace(KERNELS, "TOTAL_MS = 4.0", "TOTAL_MS = 4.01")
    toy.commit("Change")


def _base(toy):
    toy.commit("Base")
    toy.git("tag", "--force", "base")


def test_two_users_cannot_measure_at_once(monkeypatch, tmp_path):
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    with device_lock.hold("hip", wait=False, who="mine", say=print):
        (lock,) = Path(os.environ["TILEGATE_LOCKS"]).glob("tilegate-hip-0.lock")
        assert stat.S_IMODE(lock.stat().st_mode) == 0o666
        # Of another user, as of this one with other folders: what is theirs alone does not decide.
        for variable in ("XDG_RUNTIME_DIR", "TMPDIR", "HOME"):
            monkeypatch.setenv(variable, str(tmp_path))
        with (
            pytest.raises(UsageError, match=r"mine.* is measuring on hip-0"),
            device_lock.hold("hip", wait=False, say=print),
        ):
            pass


def test_a_lock_that_may_only_be_read_still_locks(monkeypatch, tmp_path):
    lock = Path(os.environ["TILEGATE_LOCKS"], "tilegate-cpu.lock")
    lock.write_text("process 1 (theirs), since 10:00:00,")
    real = os.open

    def refuses_to_write(path, flags, *mode):
        if Path(path) == lock and flags & os.O_ACCMODE != os.O_RDONLY:
            raise PermissionError(13, "Permission denied")
        return real(path, flags, *mode)

    monkeypatch.setattr(os, "open", refuses_to_write)
    with device_lock.hold("cpu", wait=False, say=print):
        assert "theirs" in lock.read_text()
        with pytest.raises(UsageError, match="theirs"), device_lock.hold("cpu", wait=False, say=print):
            pass


def test_a_lock_is_never_opened_through_a_link(tmp_path):
    (tmp_path / "precious").write_text("text")
    Path(os.environ["TILEGATE_LOCKS"], "tilegate-cpu.lock").symlink_to(tmp_path / "precious")
    with pytest.raises(UsageError, match="TILEGATE_LOCKS"), device_lock.hold("cpu", wait=False, say=print):
        pass
    assert (tmp_path / "precious").read_text() == "text"


def test_a_repository_of_another_user(toy, monkeypatch):
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    outcome = toy.gate("base", "HEAD")
    assert outcome.status == 2
    assert f"git config --global --add safe.directory {toy.path}" in outcome.err


def test_a_file_that_git_lfs_should_have_replaced(toy):
    toy.write(".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n")
    toy.write("toykernels/table.bin", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n")
    _base(toy)
    _change(toy)
    outcome = toy.gate("base", "HEAD", *TOTAL)
    assert outcome.status == 2
    assert "toykernels/table.bin of base is kept in git-lfs" in outcome.err
    assert "git lfs install" in outcome.err
    # A filter that is set up, and whose program is not there.
    toy.git("config", "filter.lfs.smudge", "git-lfs smudge -- %f")
    toy.git("config", "filter.lfs.required", "true")
    outcome = toy.gate("base", "HEAD", *TOTAL)
    assert outcome.status == 2
    assert "git lfs install" in outcome.err


def test_a_relative_cache(toy, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    outcome = toy.gate("base", "HEAD")
    assert (outcome.status, 'XDG_CACHE_HOME is "cache", a relative path; make it absolute' in outcome.err) == (2, True)
    assert not (toy.path / "cache").exists()


def test_a_byte_order_mark_before_the_settings(toy):
    text = (toy.path / "pyproject.toml").read_text()
    (toy.path / "pyproject.toml").write_text("\ufeff" + text)
    _base(toy)
    _change(toy)
    assert toy.gate("base", "HEAD", *TOTAL).status == 0


@pytest.mark.parametrize("closed", [">&-", "<&-", ">&- 2>&- <&-"])
def test_a_closed_stream_changes_nothing_but_what_is_shown(closed):
    line = f"{sys.executable} -m tilegate gate --base nothing --head nothing --repo /nonexistent {closed}"
    done = subprocess.run(["sh", "-c", line], env=HERE, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2, done
    assert "Traceback" not in done.stderr
    assert ("standard output is closed" in done.stderr) == (closed == ">&-")


@pytest.mark.parametrize("after", [0.05, 0.1, 0.2])
def test_an_interrupt_at_the_very_beginning_leaves_no_trace(after):
    # The interpreter's own start cannot be told apart from here, so wait for the first line of ours.
    program = (
        "import sys, threading, os, signal, time\n"
        f"threading.Thread(target=lambda: (time.sleep({after}), os.kill(os.getpid(), signal.SIGINT)), daemon=True).start()\n"
        "from tilegate.__main__ import main\n"
        "sys.argv = ['tilegate', 'doctor']\n"
        "sys.exit(main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=HERE, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 130, done
    assert "Traceback" not in done.stderr
    assert done.stderr.endswith("tilegate: interrupted\n")


def test_a_file_that_git_ignores_is_named(toy):
    toy.write(".gitignore", "_version.py\n__pycache__/\n.tilegate/\n")
    toy.replace(
        "toykernels/__init__.py", "^from toykernels.kernels", "from toykernels import _version\nfrom toykernels.kernels"
    )
    toy.commit("Generate a module")
    toy.write("toykernels/_version.py", "VERSION = 1\n")
    outcome = toy.gate("base", "WORKTREE", *TOTAL)
    assert 'git ignores "toykernels/_version.py", so neither side has it' in outcome.err
    assert "git add --force" in outcome.err


def test_a_suite_that_skips_everything_here_says_so(toy):
    toy.replace(
        SUITE, r"    def setup\(self, param\):", "    def setup(self, param):\n        raise NotImplementedError"
    )
    _base(toy)
    _change(toy)
    outcome = toy.gate("base", "HEAD", *TOTAL)
    assert outcome.status == 2, outcome
    assert "the suite skips sums.Total.latency_total(1000) here (NotImplementedError in setup" in outcome.err
    assert "another --target or --tier" in outcome.err


def test_what_setup_cache_made_comes_before_the_parameters_as_in_asv(toy):
    toy.replace(
        SUITE,
        r"    def setup\(self, param\):",
        "    def setup_cache(self):\n        return {'made': 1}\n\n    def setup(self, cache, param):\n        assert cache == {'made': 1}\n        cache['made'] = 2",
    )
    toy.replace(SUITE, r"def (check|latency_\w+)\(self, param\)", "def \\1(self, cache, param)".replace("\\1", "check"))
    text = (toy.path / SUITE).read_text()
    for name in ("total", "mean", "step"):  # the timed methods have lost their names above
        text = text.replace(
            "    def check(self, cache, param):\n        self._kernel.launch(self._values, self._out)",
            f"    def latency_{name}(self, cache, param):\n        self._kernel.launch(self._values, self._out)",
            1,
        )
    toy.write(SUITE, text)
    _base(toy)
    _change(toy)
    outcome = toy.gate("base", "HEAD", *TOTAL)
    assert outcome.status == 0, outcome


def test_a_benchmarks_own_timeout_ends_it(toy):
    toy.replace(SUITE, 'version = "1"', 'version = "1"\n    timeout = 2')
    _base(toy)
    toy.replace(KERNELS, r"def total\(\):", "def total():\n    import signal; signal.pause()")
    toy.replace(SUITE, r"return \[Artifact", "return None if True else [Artifact")
    toy.commit("Hang")
    outcome = toy.gate("base", "HEAD", *TOTAL)
    failure = outcome.case("sums.Total.latency_total(1000)")["failure"]
    assert failure["kind"] == "hang", failure


def test_ignored_files_are_none_in_a_bare_repository(toy, tmp_path):
    subprocess.run(["git", "clone", "--quiet", "--bare", str(toy.path), str(tmp_path / "bare")], check=True)
    assert trees.ignored_files(trees.open_repository(tmp_path / "bare"), ["toykernels"]) == []
