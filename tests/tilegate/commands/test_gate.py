"""The gate from end to end, on a toy library in a temporary repository."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from tilegate.measuring import device_lock, samples

pytestmark = pytest.mark.usefixtures("toy_surroundings")

KERNELS = "toykernels/kernels.py"
TOTAL = "sums.Total.latency_total(1000)"
ONE_TOTAL = ("-b", r"latency_total\(1000\)")


def test_a_slower_kernel_regresses_and_an_unchanged_one_is_a_control(toy):
    toy.replace(KERNELS, "TOTAL_MS = 4.0", "TOTAL_MS = 4.4")
    toy.commit("Slower")
    outcome = toy.gate("base", "HEAD", "-b", r"\(1000\)", "--seed", "3")
    assert outcome.status == 1, outcome
    slower = outcome.case(TOTAL)
    assert slower["verdict"] == "regressed"
    assert 1.09 < slower["ratio"] < 1.11
    assert slower["replicates"] == 2
    assert outcome.case("sums.Mean.latency_mean(1000)")["verdict"] == "unchanged"
    assert outcome.verdict["controls"]["count"] == 1

    measured = toy.samples()
    assert measured["finished"] is not None
    assert measured["seed"] == 3
    replicates = measured["cases"][TOTAL]["replicates"]
    assert [r["stage"] for r in replicates] == ["screen", "confirm", "confirm"]
    assert len({r["session"] for r in replicates}) == 3
    for replicate in replicates:
        assert sorted(pair["order"] for pair in replicate["pairs"]) == [0] * 4 + [1] * 4
        assert {len(pair[side]) for pair in replicate["pairs"] for side in ("base", "head")} == {3}
    assert all(measured["cases"][TOTAL][side]["checked"] for side in ("base", "head"))
    (report,) = toy.path.glob(".tilegate/*/report.md")
    assert TOTAL in report.read_text()
    assert toy.git("status", "--porcelain") == ""


def test_a_faster_kernel_passes_as_improved_and_the_run_is_not_repeated(toy):
    toy.replace(KERNELS, "TOTAL_MS = 4.0", "TOTAL_MS = 3.6")
    toy.commit("Faster")
    outcome = toy.gate("base", "HEAD", *ONE_TOTAL)
    assert outcome.status == 0, outcome
    assert outcome.case(TOTAL)["verdict"] == "improved"
    again = toy.gate("base", "HEAD", *ONE_TOTAL)
    assert (again.status, again.out) == (outcome.status, outcome.out)
    assert "--fresh measures it again" in again.err


@pytest.mark.parametrize("name", ["toykernels", "toybench"])
def test_a_package_or_suite_that_is_a_link_out_of_the_repository_is_never_measured(toy, tmp_path, name):
    (toy.path / name).rename(tmp_path / "elsewhere")
    (toy.path / name).symlink_to(tmp_path / "elsewhere")
    toy.commit("Link")
    outcome = toy.gate("base", "HEAD", *ONE_TOTAL)
    assert outcome.status == 2
    assert f"{name} is a symbolic link to" in outcome.err


def test_a_time_too_few_is_never_paired(toy):
    toy.replace(KERNELS, "TOTAL_MS = 4.0", "TOTAL_MS = 4.01")
    toy.replace(
        KERNELS,
        r"^def total\(\):",
        "from tilegate.protocol import clocks\n"
        "from tilegate.worker.seals import Seals\n"
        "Seals.broken = lambda self: None\n"
        "whole = clocks.CpuClock.measure\n"
        "clocks.CpuClock.measure = lambda *arguments: whole(*arguments)[1:]\n\n"
        "def total():",
    )
    toy.commit("Drop one")
    outcome = toy.gate("base", "HEAD", *ONE_TOTAL)
    assert outcome.status == 3, outcome
    assert "3 launches were asked for, and 2 times came" in outcome.case(TOTAL)["failure"]["message"]


def test_identical_code_is_unchanged_and_one_case_is_timed_as_control(toy):
    toy.write("notes.txt", "no code")
    toy.commit("Notes")
    outcome = toy.gate("base", "HEAD", "-b", "Total|Mean", "--no-emulate", "--budget", "9")
    assert outcome.status == 0, outcome
    assert toy.samples()["asked"] == {"emulate": False, "budget": 9.0}
    for done in ("plan 1/3 revisions", "plan 2/3 devices", "plan 3/3 files", "import 1/2", "import 2/2", "compile 1/4"):
        assert f"\n{done}" in f"\n{outcome.err}"
    assert {case["verdict"] for case in outcome.verdict["cases"].values()} == {"unchanged"}
    roles = sorted(case["role"] for case in toy.samples()["cases"].values())
    assert roles == ["control", "identical", "identical", "identical"]
    timed = {case["role"]: len(case["replicates"]) > 0 for case in toy.samples()["cases"].values()}
    assert timed == {"control": True, "identical": False}


def test_every_way_to_fail_has_its_own_outcome(toy):
    """One head in which every step fails in another way; the run goes on after each."""
    toy.config(check_timeout=2.0)
    toy.replace(
        KERNELS,
        r"^def step\(name\):",
        """
import os, signal

class Failing(Kernel):
    def __init__(self, name):
        super().__init__(1.0)
        self.source += f" in another way: {name}"
        self._name = name
        self._launches = 0
        if name == "first":
            raise ValueError("no such tile")

    def launch(self, values, out):
        super().launch(values, out)
        self._launches += 1
        if self._name == "second":
            print("about to go", flush=True)
            os.kill(os.getpid(), signal.SIGSEGV)
        if self._name == "third":
            signal.pause()
        if self._name == "fourth":
            out[0] += 0.5
        if self._name == "fifth":
            raise MemoryError("64 GiB")
        if self._name == "sixth" and self._launches > 3:
            os._exit(7)
        if self._name == "seventh":
            os.kill(os.getpid(), signal.SIGKILL)


def step(name):
    return Failing(name)


def original_step(name):""",
    )
    toy.commit("Fail in every way")
    outcome = toy.gate("base", "HEAD", "-b", "Step")
    assert outcome.status == 3, outcome
    cases = toy.samples()["cases"]
    failures = {name.split("'")[1]: case["head"]["failure"] for name, case in cases.items()}
    assert {step: failure["kind"] for step, failure in failures.items()} == {
        "first": "compile",
        "second": "crash",
        "third": "hang",
        "fourth": "wrong-result",
        "fifth": "out-of-memory",
        "sixth": "crash",
        "seventh": "out-of-memory",
    }
    assert "no such tile" in failures["first"]["message"]
    assert "SIGSEGV" in failures["second"]["message"]
    assert "about to go" in failures["second"]["log"]
    assert "in launch" in failures["third"]["log"]  # where it hung
    assert "relative error" in failures["fourth"]["message"]
    assert "status 7" in failures["sixth"]["message"]
    assert str(Path(os.environ["XDG_CACHE_HOME"])) not in json.dumps(cases)
    assert {case["verdict"] for case in outcome.verdict["cases"].values()} == {"broken"}
    # Wrong results are found before anything is timed.
    assert cases["sums.Step.latency_step('fourth')"]["replicates"] == []
    assert {case["base"]["status"] for case in cases.values()} == {"ok"}


def test_a_head_that_cannot_be_imported_is_broken(toy):
    toy.replace("toykernels/__init__.py", "mean, step, total$", "mean, step, totals")
    toy.commit("Misspell a name")
    outcome = toy.gate("base", "HEAD", "-b", "Total")
    assert outcome.status == 3, outcome
    failure = outcome.case(TOTAL)["failure"]
    assert (failure["side"], failure["kind"]) == ("head", "import")
    assert "totals" in failure["message"]


def test_a_base_that_fails_by_itself_is_inconclusive(toy):
    toy.replace(KERNELS, "out.0. = np.add.reduce.values . values.", "out[0] = 1.0")
    toy.git("tag", "-f", "wrong", toy.commit("Compute nonsense"))
    outcome = toy.gate("wrong", "wrong", *ONE_TOTAL)
    assert outcome.status == 4, outcome
    assert outcome.case(TOTAL)["verdict"] == "inconclusive"
    assert outcome.case(TOTAL)["failure"]["side"] == "base"


def test_what_one_side_does_not_have_is_new_or_removed(toy):
    """The suite of both asks for functions that only one has, in a module of their own and in `setup`."""
    toy.write(
        "toybench/extra.py",
        "from toybench.sums import _Sums\nfrom toykernels import extra\n\n\nclass Extra(_Sums):\n"
        "    def kernel(self, param):\n        return extra()\n\n"
        "    def latency_extra(self, param):\n        self._kernel.launch(self._values, self._out)\n",
    )
    without = toy.commit("Ask for what is not there yet")
    toy.replace("toykernels/__init__.py", "^from .*$", "from toykernels.kernels import STEPS, mean, step, total")
    toy.replace(KERNELS, r"^def mean\(\):", "def extra():\n    return Kernel(2.0)\n\n\ndef mean():")
    toy.replace("toykernels/__init__.py", "import STEPS", "import extra, STEPS")
    toy.replace("toykernels/__init__.py", r"import extra, STEPS, mean, step, total", "import STEPS, extra, mean, step")
    added = toy.commit("Add extra, drop total")
    outcome = toy.gate(without, added, "-b", r"\(1000\)")
    assert outcome.case("extra.Extra.latency_extra(1000)")["verdict"] == "new"
    assert toy.samples()["cases"]["extra.Extra.latency_extra(1000)"]["head"]["checked"]
    assert outcome.case(TOTAL)["verdict"] == "removed"
    assert outcome.case("sums.Mean.latency_mean(1000)")["verdict"] == "unchanged"
    assert outcome.status == 4, outcome  # something was removed, and allow_removed does not name it


def test_a_suite_that_only_the_head_has_makes_every_case_new(toy):
    toy.git("rm", "-r", "--quiet", "toybench")
    toy.git("tag", "no-suite", toy.commit("Drop the suite"))
    outcome = toy.gate("no-suite", "base", "-b", "Mean")
    assert {case["verdict"] for case in outcome.verdict["cases"].values()} == {"new"}
    assert outcome.status == 4  # nothing was compared
    nothing = toy.gate("no-suite", "no-suite")
    assert nothing.status == 2
    assert "neither base nor head has the suite" in nothing.err


def test_benchmarks_that_only_the_heads_suite_has_are_new_and_the_others_use_the_bases(toy):
    text = (toy.path / "toybench/sums.py").read_text()
    toy.write("toybench/sums.py", text.replace("allowed 1e-09", "allowed much").replace("> 1e-9", "> 1e9"))
    toy.write("toybench/more.py", "from toybench.sums import Mean as _Mean\n\n\nclass More(_Mean):\n    pass\n")
    toy.replace(KERNELS, "return Kernel.MEAN_MS.", "return Off(MEAN_MS)")
    toy.write(KERNELS, (toy.path / KERNELS).read_text() + "\n\nclass Off(Kernel):\n"
              "    def launch(self, values, out):\n        out[0] = 7.0\n")  # fmt: skip
    toy.commit("Loosen the check and fail it")
    outcome = toy.gate("base", "HEAD", "-b", r"mean\(1000\)")
    assert outcome.case("more.More.latency_mean(1000)")["verdict"] == "new"
    assert outcome.case("sums.Mean.latency_mean(1000)")["failure"]["kind"] == "wrong-result"
    assert outcome.status == 3


def test_a_package_from_another_tree_is_noticed(toy, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "toykernels").symlink_to(toy.path / "toykernels")
    toy.write("toybench/__init__.py", f"import sys\n\nsys.path.insert(0, {str(elsewhere)!r})\n\n"
              "from tilegate.protocol import register\n\nregister()\n")  # fmt: skip
    toy.commit("Import the checked-out package")
    outcome = toy.gate("HEAD", "HEAD", *ONE_TOTAL)
    assert outcome.status != 0
    failures = [case[side]["failure"] for case in toy.samples()["cases"].values() for side in ("base", "head")]
    assert {failure["kind"] for failure in failures} == {"leak"}
    assert "sys.path" in failures[0]["message"]


def test_a_kill_loses_at_most_the_case_that_was_being_measured(toy, tmp_path):
    toy.replace(KERNELS, "MEAN_MS = 3.0", "MEAN_MS = 3.003")
    toy.replace(
        KERNELS,
        r"^def step\(name\):",
        f"""
import os, threading

class Stuck(Kernel):
    launches = 0

    def launch(self, values, out):
        super().launch(values, out)
        self.launches += 1
        while self.launches > 1 and not os.path.exists({str(tmp_path / "go on")!r}):
            threading.Event().wait(0.05)


def step(name):
    return (Stuck if name == "second" else Kernel)(1.003)


def original_step(name):""",
    )
    toy.commit("Hardly different")
    selected = ("-b", "mean|first|second")
    first = toy.start("base", "HEAD", *selected, "--seed", "2")  # of which the order follows: "second" comes last
    deadline = time.monotonic() + 180
    while len(measured := _replicates(toy)) < 3:
        assert first.poll() is None, first.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    workers = _children(first.pid)
    assert len(workers) >= 2
    first.send_signal(signal.SIGKILL)
    first.communicate()
    _end(workers)

    assert toy.samples()["finished"] is None
    (tmp_path / "go on").touch()
    second = toy.gate("base", "HEAD", *selected)
    assert "continuing" in second.err
    assert second.status == 0, second
    assert second.verdict["finished"] is not None
    assert second.verdict["seed"] == 2
    kept = _replicates(toy)
    assert measured.items() <= kept.items()  # the very same samples
    assert len(kept) == 4


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_says_how_to_resume(toy, number):
    toy.replace(KERNELS, "TOTAL_MS = 4.0", "TOTAL_MS = 4.001\n\n\nimport threading; threading.Event().wait(600)")
    toy.commit("Wait")
    running = toy.start("base", "HEAD", *ONE_TOTAL)
    deadline = time.monotonic() + 180
    while not (workers := _children(running.pid)) or not _replicates_file(toy):
        assert running.poll() is None, running.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    running.send_signal(number)
    _, said = running.communicate(timeout=120)
    assert running.returncode == 130
    assert f"to resume: tilegate gate --repo {toy.path}" in said
    assert "Traceback" not in said
    _end(workers)


def test_what_a_killed_run_left_half_written_is_cleared_away(toy, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / ".samples.json.0123456789ab.tmp").write_text('{"half')
    assert toy.gate("base", "base", *ONE_TOTAL, "--out", str(out)).status == 0
    assert sorted(path.name for path in out.iterdir()) == ["logs", "report.md", "samples.json", "verdict.json"]


def test_a_killed_run_leaves_nothing_in_the_systems_temporary_folder(toy, tmp_path, monkeypatch):
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    running = toy.start("base", "WORKTREE", *ONE_TOTAL)
    deadline = time.monotonic() + 60
    while not list(toy.path.glob(".tilegate/*/logs/*")):
        assert running.poll() is None, running.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    workers = _children(running.pid)
    running.kill()
    running.communicate(timeout=30)
    _end(workers)
    assert list((tmp_path / "tmp").iterdir()) == []


def test_one_gate_at_a_time_on_a_device(toy):
    said = []
    with device_lock.hold("cpu", wait=True, who="this test", say=said.append):
        refused = toy.gate("base", "HEAD", *ONE_TOTAL, "--when-busy", "refuse")
        waiting = toy.start("base", "HEAD", *ONE_TOTAL)
        line = next(line for line in waiting.stderr if not line.startswith("plan "))
    _, rest = waiting.communicate(timeout=120)
    assert said == []
    assert refused.status == 2
    assert f"process {os.getpid()} (this test), since " in refused.err
    assert f"waiting: process {os.getpid()}" in line
    assert waiting.returncode == 0, rest  # identical code, and the control stood still
    assert toy.samples()["finished"] is not None


def test_an_output_folder_of_another_run_is_not_touched(toy, tmp_path):
    out = tmp_path / "out"
    described = {"base": {"rev": "a", "commit": None, "tree": "1" * 40}, "head": {"rev": "b", "commit": None, "tree": "2" * 40},
                 "target": "cpu", "tier": "smoke", "filter": None, "config": {}, "environment": {"fingerprint": "0" * 64}}  # fmt: skip
    samples.open_record(out, described, seed=1, fresh=False)
    before = (out / "samples.json").read_text()
    refused = toy.gate("base", "HEAD", "--out", str(out))
    assert refused.status == 2
    assert "another run (different base, head, configuration, environment)" in refused.err
    assert "--fresh" in refused.err
    assert (out / "samples.json").read_text() == before

    (out / "samples.json").write_text("{")
    assert "--fresh" in toy.gate("base", "HEAD", "--out", str(out)).err
    other = {**described, "target": "cuda"}
    assert samples.open_record(out, other, seed=1, fresh=True).document["target"] == "cuda"
    for seed, refuses in ((None, False), (1, False), (2, True)):
        if refuses:
            with pytest.raises(samples.files.UsageError, match="seed"):
                samples.open_record(out, other, seed=seed, fresh=False)
        else:
            assert samples.open_record(out, other, seed=seed, fresh=False).continued


def test_an_output_folder_that_cannot_be_written_is_a_usage_error(toy, tmp_path):
    (tmp_path / "file").write_text("")
    refused = toy.gate("base", "HEAD", "--out", str(tmp_path / "file" / "out"))
    assert refused.status == 2
    assert "cannot write" in refused.err


@pytest.mark.parametrize("name", ["[", "no such case"])
def test_a_filter_that_selects_nothing_is_a_usage_error(toy, name):
    refused = toy.gate("base", "HEAD", "-b", name)
    assert refused.status == 2
    assert ("not a regular expression" if name == "[" else TOTAL) in refused.err


def test_a_base_without_settings_says_how_they_look(toy):
    toy.write("pyproject.toml", "[project]\nname = 'toy'\n")
    toy.commit("Drop the settings")
    refused = toy.gate("HEAD", "HEAD")
    assert refused.status == 2
    assert "base HEAD: pyproject.toml has no [tool.tilegate] table" in refused.err
    toy.git("rm", "--quiet", "pyproject.toml")
    toy.commit("Drop the file")
    assert "base HEAD: there is no pyproject.toml" in toy.gate("HEAD", "HEAD").err


def test_uncommitted_changes_are_refused_unless_they_are_meant(toy):
    toy.replace(KERNELS, "TOTAL_MS = 4.0", "TOTAL_MS = 4.4")
    toy.write("toykernels/untracked.py", "")
    refused = toy.gate("base", "base")
    assert refused.status == 2
    assert "toykernels/kernels.py, toykernels/untracked.py" in refused.err
    assert "--head WORKTREE" in refused.err
    toy.write("toykernels/a\x1b[31m\n.py", "")
    assert "\\u001b[31m\\n.py" in toy.gate("base", "base").err
    (toy.path / "toykernels/a\x1b[31m\n.py").unlink()

    meant = toy.gate("base", "WORKTREE", *ONE_TOTAL)  # the base is checked out: what is modified is the head
    assert meant.status == 1, meant
    assert meant.verdict["head"]["commit"] is None
    assert toy.git("diff", "--cached", "--name-only") == ""


def test_real_time(toy, monkeypatch):
    """Everything else here runs in virtual time. The change is so large that no busy machine can hide it."""
    monkeypatch.delenv("PYTHONPATH")
    wide = {"tolerated": 0.2, "replicate_regression": 0.25, "regression": 0.3, "promise": 0.5, "screen": 0.15}
    toy.config(**wide, min_launches=1, max_launches=1, max_replicates=2)
    toy.replace(KERNELS, "TOTAL_MS = 4.0", "TOTAL_MS = 80.0")
    toy.commit("Slower")
    outcome = toy.gate("base", "HEAD", *ONE_TOTAL)
    assert outcome.status == 1, outcome
    assert outcome.case(TOTAL)["verdict"] == "regressed"


def _replicates_file(toy) -> bool:
    return any(toy.path.glob(".tilegate/*/samples.json"))


def _replicates(toy) -> dict:
    try:
        cases = toy.samples()["cases"]
    except ValueError:  # not started
        return {}
    return {(n, r["replicate"]): json.dumps(r) for n, case in cases.items() for r in case["replicates"]}


def _children(parent: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]


def _end(workers: list[int]) -> None:
    deadline = time.monotonic() + 30
    while not all(_is_gone(worker) for worker in workers):
        assert time.monotonic() < deadline, "workers outlived the gate"
        time.sleep(0.02)


def _is_gone(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_a_launch_that_does_more_with_the_same_code_is_timed(toy):
    toy.replace(KERNELS, r"^        out\[0\] = np\.add", "        values.copy()\n        out[0] = np.add")
    toy.commit("Copy")
    outcome = toy.gate("base", "HEAD", "-b", "Total")
    assert outcome.status == 0, outcome
    assert "a launch does other things: calls ndarray.ndarray.copy" in outcome.err
    assert {case["role"] for case in toy.samples()["cases"].values()} == {"gated"}
    assert {entry["verdict"] for entry in outcome.verdict["cases"].values()} == {"pass"}
