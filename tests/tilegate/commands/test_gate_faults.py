"""Planted faults: each ends in the right verdict or in a clear refusal, and never in a pass."""

from __future__ import annotations

import errno
import os
import signal
import time

import pytest

from tilegate import files
from tilegate.measuring import rounds

pytestmark = pytest.mark.usefixtures("toy_surroundings")

KERNELS = "toykernels/kernels.py"
TOTAL = "sums.Total.latency_total(1000)"
ONE_TOTAL = ("-b", r"latency_total\(1000\)")


def _append(toy, text: str) -> None:
    toy.write(KERNELS, (toy.path / KERNELS).read_text() + text)


def _slower(toy) -> None:
    toy.replace(KERNELS, "TOTAL_MS = 4.0", "TOTAL_MS = 4.4")


FAULTS = {
    "a clock that runs backwards": (
        "import itertools\nfrom tilegate.protocol import clocks\n"
        "clocks.perf_counter_ns = lambda ticks=itertools.count(): (n := next(ticks)) * 20_000_000 - n % 3 * 25_000_000\n",
        "clocks.perf_counter_ns has been replaced",
    ),
    "samples that are no numbers": (
        "from tilegate.protocol import clocks\n"
        "from tilegate.worker.seals import Seals\nSeals.broken = lambda self: None\n"
        "clocks.CpuClock.measure = lambda self, launch, launches: [float('nan')] * launches\n",
        "the suite's answer is not JSON",
    ),
    "a forged reply": (
        "import os, sys\n_launch = Kernel.launch\n\n\ndef launch(self, values, out):\n"
        "    _launch(self, values, out)\n"
        '    os.write(int(sys.argv[2]), b\'{"ticket": "0123456789abcdef", "ok": [1e-3, 1e-3, 1e-3]}\\n\')\n\n\n'
        "Kernel.launch = launch\n",
        "no answer to",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_head_that_forges_its_times_is_broken_and_a_base_is_no_yardstick(toy, fault):
    code, message = FAULTS[fault]
    _slower(toy)
    _append(toy, f"\n\n{code}")
    toy.git("tag", "bad", toy.commit("Forge"))
    outcome = toy.gate("base", "bad", *ONE_TOTAL)
    assert outcome.status == 3, outcome
    assert outcome.case(TOTAL)["failure"]["side"] == "head"
    assert message in outcome.case(TOTAL)["failure"]["message"]
    turned = toy.gate("bad", "base", *ONE_TOTAL)
    assert turned.status == 4, turned
    assert turned.case(TOTAL)["failure"]["side"] == "base"


def test_exchanged_sides_are_refused(toy, monkeypatch):
    _slower(toy)
    toy.commit("Slower")
    timing = rounds.Timing

    def exchanged(record, config, target, stages, *others):
        return timing(record, config, target, {"base": stages["head"], "head": stages["base"]}, *others)

    monkeypatch.setattr(rounds, "Timing", exchanged)
    refused = toy.gate("base", "HEAD", *ONE_TOTAL)
    assert refused.status == 2
    assert "base and head are exchanged" in refused.err
    assert toy.samples()["finished"] is None
    assert toy.samples()["cases"][TOTAL]["replicates"] == []


def test_a_disk_that_fills_keeps_what_was_measured(toy, monkeypatch):
    _slower(toy)
    toy.commit("Slower")
    fsync, written = os.fsync, []

    def fills(descriptor):
        written.append(descriptor)
        if len(written) > 12:
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(descriptor)

    monkeypatch.setattr(files.os, "fsync", fills)
    full = toy.gate("base", "HEAD", *ONE_TOTAL)
    assert full.status == 2
    assert "No space left on device; the previous file, if any, is kept" in full.err
    kept = toy.samples()
    assert kept["finished"] is None
    assert not list(toy.path.glob(".tilegate/*/verdict.json"))
    monkeypatch.setattr(files.os, "fsync", fsync)
    again = toy.gate("base", "HEAD", *ONE_TOTAL)
    assert "continuing" in again.err
    assert again.status == 1, again
    replicates = toy.samples()["cases"][TOTAL]["replicates"]
    assert replicates[: len(kept["cases"][TOTAL]["replicates"])] == kept["cases"][TOTAL]["replicates"]


# Where in a run the head's code kills the gate: by the name of the worker's log, and by the function that it is in.
STAGES = {
    "import": ("inspect", "import"),
    "compile": ("inspect", "total"),
    "check": ("inspect", "launch"),
    "screen": ("screen", "launch"),
    "confirm": ("confirm", "launch"),
    "explain": ("explain", "total"),
}
KILLER = """


def _kill_the_gate_once(log, place):
    import os, pathlib, signal
    mark = pathlib.Path({mark!r})
    if place == {place!r} and {log!r} in os.readlink("/proc/self/fd/1") and not mark.exists():
        mark.touch()
        os.kill(os.getppid(), signal.SIGKILL)
        signal.pause()


_kill_the_gate_once("", "import")
_total, _launch = total, Kernel.launch


def total():
    _kill_the_gate_once("", "total")
    return _total()


def launch(self, values, out):
    _kill_the_gate_once("", "launch")
    _launch(self, values, out)


Kernel.launch = launch
"""


@pytest.mark.parametrize("stage", STAGES)
def test_a_kill_at_any_point_is_resumed_to_the_right_verdict(toy, tmp_path, stage):
    log, place = STAGES[stage]
    _slower(toy)
    _append(toy, KILLER.format(mark=str(tmp_path / "mark"), place=place, log=f"/{log}-"))
    toy.commit("Slower, and kills the gate once")
    first = toy.start("base", "HEAD", *ONE_TOTAL)
    _, said = first.communicate(timeout=120)
    assert first.returncode == -signal.SIGKILL, said
    assert (tmp_path / "mark").exists()
    assert not list(toy.path.glob(".tilegate/*/verdict.json"))
    kept = toy.samples()
    assert kept["finished"] is None

    outcome = toy.gate("base", "HEAD", *ONE_TOTAL)
    assert "continuing" in outcome.err
    assert outcome.status == 1, outcome
    assert outcome.case(TOTAL)["verdict"] == "regressed"
    for name, case in kept["cases"].items():  # the very same samples
        assert toy.samples()["cases"][name]["replicates"][: len(case["replicates"])] == case["replicates"]


def test_a_run_that_another_commit_left_is_not_continued(toy, tmp_path):
    _slower(toy)
    toy.git("tag", "slower", toy.commit("Slower"))
    out = ("--out", str(tmp_path / "out"))
    assert toy.gate("base", "slower", *ONE_TOTAL, *out).status == 1
    refused = toy.gate("base", "base", *ONE_TOTAL, *out)
    assert refused.status == 2
    assert "different head" in refused.err
    assert "--fresh to discard" in refused.err
    assert toy.gate("base", "base", *ONE_TOTAL, *out, "--fresh").status == 0


def test_a_budget_that_is_used_up_says_what_it_left_and_can_be_continued(toy):
    _slower(toy)
    toy.commit("Slower")
    outcome = toy.gate("base", "HEAD", *ONE_TOTAL, "--budget", "0.0001")
    assert outcome.status == 4, outcome
    assert "the time budget is used up; left undecided: 1" in outcome.err
    left = outcome.case(TOTAL)
    assert left["verdict"] == "inconclusive"
    assert "the time budget ran out" in left["reason"]
    assert toy.samples()["cases"][TOTAL]["stopped"] == "budget"
    assert toy.samples()["cases"][TOTAL]["head"]["checked"]  # never cut short

    again = toy.gate("base", "HEAD", *ONE_TOTAL)
    assert again.status == 1, again
    assert "stopped" not in toy.samples()["cases"][TOTAL]


@pytest.mark.parametrize("minutes", ["0", "-1", "nan", "soon", "inf"])
def test_a_budget_is_a_number_of_minutes(toy, capsys, minutes):
    with pytest.raises(SystemExit) as caught:
        toy.gate("base", "HEAD", "--budget", minutes)
    assert caught.value.code == 2


def test_a_case_that_only_the_head_has_is_timed_and_not_gated(toy):
    toy.write(
        "toybench/more.py",
        "from toybench.sums import Mean as _Mean\n\n\nclass More(_Mean):\n    pass\n",
    )
    toy.commit("Add a benchmark")
    outcome = toy.gate("base", "HEAD", "-b", r"mean\(1000\)")
    name = "more.More.latency_mean(1000)"
    assert outcome.status == 0, outcome
    assert outcome.case(name)["verdict"] == "new"
    turns = toy.samples()["cases"][name]["alone"]["turns"]
    assert len(turns) == 8
    assert all(0.0029 < seconds < 0.0031 for turn in turns for seconds in turn)
    assert outcome.case(name)["head_seconds"] == pytest.approx(0.003, rel=0.01)
    assert toy.samples()["cases"][name]["replicates"] == []


def test_the_run_says_where_its_time_went(toy):
    _slower(toy)
    toy.commit("Slower")
    started = time.monotonic()
    outcome = toy.gate("base", "HEAD", *ONE_TOTAL)
    seconds = time.monotonic() - started
    stages = outcome.verdict["stages"]
    assert {"plan", "import", "compile", "check", "start", "screen", "confirm", "explain"} <= set(stages)
    assert 0.5 * seconds < sum(stages.values()) <= seconds
