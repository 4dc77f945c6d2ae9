"""What is said of why a case got slower: from the gate's end, with toy compilers, and when something is in the way."""

from __future__ import annotations

import dataclasses
import sys
import time
from pathlib import Path

import pytest
import toy_repository
from sample_builder import CONFIG, case, document, side

from tilegate.measuring import causes, comparison, environment, samples
from tilegate.measuring.session import WorkerError
from tilegate.progress import Reporter
from tilegate.protocol import Artifact, digest

LISTING = Path(__file__).parents[2] / "data" / "isa" / "loop-gfx942.s"
TOTAL = "sums.Total.latency_total(1000)"

# Compilers for both kinds of chips. The word SPILL in a kernel makes it spill, others make them misbehave.
CLANG = f"""#!{sys.executable}
import os, signal, sys, time
if "--version" in sys.argv:
    print("toy compiler version 1.0")
elif "-" not in sys.argv:
    source = open(sys.argv[-1]).read()
    with open(LOG, "a") as log:
        log.write(f"{{os.getpid()}}\\n")
    if "HANG" in source:
        time.sleep(600)
    if "KILL" in source:
        os.kill(os.getppid(), signal.SIGKILL)
    text = open({str(LISTING)!r}).read()
    if "SPILL" in source:
        text = text.replace(".vgpr_spill_count: 0", ".vgpr_spill_count: 25")
    open(sys.argv[sys.argv.index("-o") + 1], "w").write(text)
"""
NVCC = f"""#!{sys.executable}
import sys
if "--version" in sys.argv:
    print("Cuda compilation tools, release 12.8, V12.8.1")
else:
    spills = 16 if "SPILL" in open(sys.argv[-1]).read() else 0
    print("ptxas info    : Compiling entry function 'sum' for 'sm_90a'", file=sys.stderr)
    print(f"    0 bytes stack frame, {{spills}} bytes spill stores, 0 bytes spill loads", file=sys.stderr)
    print("ptxas info    : Used 168 registers, used 0 barriers", file=sys.stderr)
"""
SPILLS = {
    "gfx942": "spilled vector registers 0 -> 25 (scratch 0 -> 0 bytes a lane)",
    "sm_90": "bytes spilled (stores) 0 -> 16",
}


@pytest.fixture(autouse=True)
def compilations(tmp_path_factory, monkeypatch):
    """Put the toy compilers where real ones are looked for; return the file that notes each run of clang."""
    folder = tmp_path_factory.mktemp("user")
    (folder / "run").mkdir()
    (folder / "cuda" / "bin").mkdir(parents=True)
    log = folder / "log"
    for path, text in ((folder / "clang", CLANG.replace("LOG", repr(str(log)))), (folder / "cuda/bin/nvcc", NVCC)):
        path.write_text(text)
        path.chmod(0o755)
    monkeypatch.setenv("TILEGATE_HIP_COMPILER", str(folder / "clang"))
    monkeypatch.setenv("CUDA_HOME", str(folder / "cuda"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    monkeypatch.setenv("TILEGATE_LOCKS", str(folder / "run"))
    return log


# --- the gate ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """The toy, whose kernels now have a number of threads."""
    monkeypatch.setenv("PYTHONPATH", str(toy_repository.VIRTUAL_TIME))
    monkeypatch.setattr(environment, "probe_torch", lambda: toy_repository.NO_TORCH)
    made = toy_repository.make(tmp_path / "toy")
    launch = '{"param": param, "block": [self.kernel(param).threads, 1, 1], "dynamic_shared_bytes": 0}'
    made.replace("toybench/sums.py", r'\{"param": param\}', launch)
    made.replace("toykernels/kernels.py", "^STEPS = ", "THREADS = 256\nSTEPS = ")
    made.replace("toykernels/kernels.py", r"^    def launch", "    threads = THREADS\n\n    def launch")
    made.commit("Count threads")
    made.git("tag", "--force", "base")
    return made


def test_a_regressed_case_names_the_launch_configuration_that_changed(toy):
    toy.replace("toykernels/kernels.py", "TOTAL_MS = 4.0", "TOTAL_MS = 4.4")
    toy.replace("toykernels/kernels.py", "THREADS = 256", "THREADS = 512")
    toy.commit("Slower, with more threads")
    outcome = toy.gate("base", "HEAD", "-b", r"\(1000\)")
    assert outcome.status == 1, outcome
    assert (
        outcome.case(TOTAL)["cause"] == toy.samples()["cases"][TOTAL]["cause"] == ["block [256, 1, 1] -> [512, 1, 1]"]
    )
    assert "cause" not in outcome.case("sums.Mean.latency_mean(1000)")  # changed, too, but no slower
    (report,) = toy.path.glob(".tilegate/*/report.md")
    assert f"- `{TOTAL}`: `block [256, 1, 1] -> [512, 1, 1]`" in report.read_text()


@pytest.mark.parametrize("arch", SPILLS)
def test_a_regressed_case_names_what_changed_in_the_compiled_code(toy, monkeypatch, arch):
    monkeypatch.setattr(comparison.Comparison, "arch", arch)
    toy.replace("toykernels/kernels.py", "wait {milliseconds}", "SPILL {milliseconds}")
    toy.replace("toykernels/kernels.py", "TOTAL_MS = 4.0", "TOTAL_MS = 4.4")
    toy.commit("Slower, with spills")
    outcome = toy.gate("base", "HEAD", "-b", r"latency_total\(1000\)")
    assert outcome.status == 1, outcome
    assert outcome.case(TOTAL)["cause"] == [SPILLS[arch]]


def test_a_broken_case_is_explained_and_one_that_cannot_be_generated_is_not(toy):
    toy.replace("toykernels/kernels.py", "THREADS = 256", "THREADS = 512")
    toy.replace("toykernels/kernels.py", "out.0. = np.add.reduce.values . values.", "out[0] = 1.0")
    toy.replace("toykernels/kernels.py", "return Kernel.MEAN_MS.", "raise ValueError('no such tile')")
    toy.commit("Wrong")
    outcome = toy.gate("base", "HEAD", "-b", r"\(1000\)")
    assert outcome.status == 3, outcome
    assert outcome.case(TOTAL)["cause"] == ["block [256, 1, 1] -> [512, 1, 1]"]
    assert "cause" not in outcome.case("sums.Mean.latency_mean(1000)")


def test_the_architecture_is_the_device_s(tmp_path):
    def arch(target, device):
        made = comparison.Comparison(
            None, None, tmp_path, tmp_path, CONFIG, target, "pr", None, {"device": device}, tmp_path, True, True
        )
        return made.arch

    assert arch("cuda", {"arch": "sm_90"}) == "sm_90"
    assert arch("hip", {"arch": "gfx942"}) == "gfx942"
    assert arch("hip", {"arch": None}) is None
    assert arch("cpu", {"arch": "x86_64"}) is None


# --- which cases ------------------------------------------------------------------------------------------------------


def record_of(cases):
    return samples.Record(Path("unused"), document(cases))


def test_what_is_explained_worst_first():
    failed = side("b", status="failed", checked=False)
    cases = {
        "fine": case(),
        "unclear": case(0.05),
        "slow": case(0.04, confirm=2),
        "slower": case(0.09, confirm=2),
        "faster": case(-0.09, confirm=2),
        "perhaps faster": case(-0.05),
        "control": case(role="control", seed=9),
        "broken": case(head=failed),
        "not generated": case(head={**failed, "identity": None}),
        "new": case(base=side(None, status="missing")),
        "explained": {**case(0.04, confirm=2), "cause": ["known"]},
    }
    assert causes.unexplained(record_of(cases)) == ["slower", "unclear", "slow", "broken"]


# --- settings ---------------------------------------------------------------------------------------------------------

KERNEL = Artifact("sum", "text", {"block": [256, 1, 1], "dynamic_shared_bytes": 0}, {"tile": {"rows": 64, "q": "lds"}})


@pytest.mark.parametrize(
    ("base", "head", "lines"),
    [
        ((KERNEL,), (dataclasses.replace(KERNEL, source="other", name="total"),), []),
        (
            (KERNEL,),
            (dataclasses.replace(KERNEL, launch={"block": [64], "dynamic_shared_bytes": 65536, "flags": None}),),
            ["block [256, 1, 1] -> [64]", "dynamic_shared_bytes 0 -> 65,536"],
        ),
        ((KERNEL,), (dataclasses.replace(KERNEL, launch={"block": [256, 1, 1]}),), ["dynamic_shared_bytes 0 -> none"]),
        (
            (KERNEL,),
            (dataclasses.replace(KERNEL, resources={"tile": {"rows": 128, "q": "registers"}}),),
            ["tile.rows 64 -> 128", "tile.q lds -> registers"],
        ),
        (
            (KERNEL,),
            (KERNEL, dataclasses.replace(KERNEL, name="combine")),
            ["kernels of a launch 1 -> 2"],
        ),
        (
            (KERNEL, dataclasses.replace(KERNEL, name="combine")),
            (dataclasses.replace(KERNEL, name="combine", launch={**KERNEL.launch, "block": [1]}), KERNEL),
            ["combine: block [256, 1, 1] -> [1]"],
        ),
        (
            (dataclasses.replace(KERNEL, launch={"flags": ["-x" * 50, "-a"]}),),
            (dataclasses.replace(KERNEL, launch={"flags": ["-x" * 50, "-b"]}),),
            ["flags changed"],
        ),
    ],
)
def test_changed_settings(base, head, lines):
    assert causes.settings_changed(base, head, slower=False) == lines


# --- what may be in the way -------------------------------------------------------------------------------------------


class FakePool:
    """Two workers that answer with what they are given: kernels by side, or an error."""

    config = CONFIG

    def __init__(self, **answers):
        self.answers = answers

    def request_all(self, operation, timeout, arguments):
        assert operation == "generated"
        assert timeout > 0
        return {name: lambda name=name: self.answer(self.answers[name]) for name in arguments}

    def answer(self, given):
        if isinstance(given, Exception):
            raise given
        return [dataclasses.asdict(kernel) if isinstance(kernel, Artifact) else kernel for kernel in given]

    def close(self):
        pass


def explained(base, head, /, *, arch="gfx942", names=("a",), failure=None, **answers):
    """Return the lines on cases whose kernels are `base` and `head`; the workers may answer otherwise."""
    sides = {"base": base, "head": head}
    built = case(0.05, confirm=2)
    for name, kernels in sides.items():
        built[name]["identity"] = digest(kernels)
    built["head"]["failure"] = failure
    record = record_of(dict.fromkeys(names, built))
    causes.attach(FakePool(**{**sides, **answers}), record, list(names), arch, Reporter())
    samples.files.check_samples(record.document)
    return [record.cases[name].get("cause") for name in names]


def head(text, **launch):
    return (dataclasses.replace(KERNEL, source=text, launch={**KERNEL.launch, **launch}),)


def test_the_same_two_kernels_are_compiled_once_and_kept(compilations):
    first = explained((KERNEL,), head("SPILL", block=[512, 1, 1]), names=("a", "b", "c"))
    assert first[0] == first[1] == first[2]
    assert first[0][:2] == ["block [256, 1, 1] -> [512, 1, 1]", SPILLS["gfx942"]]
    assert explained((KERNEL,), head("SPILL", block=[512, 1, 1])) == first[:1]
    assert len(compilations.read_text().splitlines()) == 2


def test_several_kernels_are_told_apart():
    second = dataclasses.replace(KERNEL, name="combine")
    (lines,) = explained((KERNEL, second), (*head("SPILL"), second))
    assert lines == [f"sum: {SPILLS['gfx942']}"]


def test_code_that_differs_in_nothing_that_counts_is_said_to():
    assert explained((KERNEL,), head("other")) == [
        ["the compiled code differs in none of the numbers that are compared"]
    ]
    assert explained((KERNEL,), head("other"), arch=None) == [None]


def test_a_compiler_that_hangs_is_ended_with_all_that_it_started(monkeypatch, compilations):
    monkeypatch.setattr(causes, "CASE_SECONDS", 3.0)
    started = time.monotonic()
    (lines,) = explained((KERNEL,), head("HANG", dynamic_shared_bytes=64))
    assert time.monotonic() - started < 60
    assert lines == ["dynamic_shared_bytes 0 -> 64", "the compiled code was not compared within 3 s"]
    (process,) = {int(line) for line in compilations.read_text().splitlines()[-1:]}
    deadline = time.monotonic() + 10
    while _runs(process):
        assert time.monotonic() < deadline, "the compiler outlived its time"
        time.sleep(0.02)


def test_a_process_that_dies_is_a_sentence():
    assert explained((KERNEL,), head("KILL")) == [["the compiled code was not compared: that ended with status -9"]]


def test_an_unknown_chip_is_a_sentence():
    ((line,),) = explained((KERNEL,), head("other"), arch="gfx1")
    assert line.startswith("the compiled code was not compared: ")
    assert "gfx1" in line


def test_when_the_time_is_up_that_is_said(monkeypatch):
    monkeypatch.setattr(causes, "RUN_SECONDS", 0.0)
    (lines,) = explained((KERNEL,), head("other"))
    assert lines == ["the compiled code was not compared: no time was left of 300 s for all cases"]


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        (WorkerError("crash", "secret\n`text`", None), "the head's code could not be generated again: crash"),
        (head("third"), "the head generates other code when asked again, so its code was not compared"),
        ([], "the head's code could not be generated again: its worker's answer makes no sense"),
        ([{"name": "sum"}], "the head's code could not be generated again: its worker's answer makes no sense"),
        (["sum"], "the head's code could not be generated again: its worker's answer makes no sense"),
        (
            [Artifact("sum", "", [1])],
            "the head's code could not be generated again: its worker's answer makes no sense",
        ),
        ([Artifact("sum", 3)], "the head's code could not be generated again: its worker's answer makes no sense"),
    ],
)
def test_a_worker_that_cannot_answer_is_a_sentence(answer, line):
    assert explained((KERNEL,), head("other"), head=answer) == [[line]]


def test_a_disk_that_is_full_loses_the_causes_and_nothing_else(monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(causes.tempfile, "TemporaryDirectory", full)
    assert explained((KERNEL,), head("other")) == [None]


def test_settings_nested_without_end_lose_the_causes_and_nothing_else(capsys):
    nested = {}
    for _ in range(900):
        nested = {"a": nested}
    made = [{"name": "sum", "source": "other", "launch": dict(KERNEL.launch), "resources": nested}]
    assert explained((KERNEL,), head("other"), head=made) == [None]
    assert "could not be looked for" in capsys.readouterr().err


def settings(before, after, *, slower=True):
    sides = [tuple(Artifact(f"k{i}", "", dict(launch)) for i, launch in enumerate(side)) for side in (before, after)]
    return causes.settings_changed(*sides, slower=slower)


@pytest.mark.parametrize(
    ("worse", "better"),
    [
        ({"dynamic_shared_bytes": 64}, {}),
        ({"spills": 12}, {"spills": 0}),
        ({"registers": 168}, {"registers": 128}),
        ({"occupancy": 0.25}, {"occupancy": 0.5}),
    ],
)
def test_a_setting_that_got_better_is_no_cause_of_slower(worse, better):
    assert settings([better], [worse])
    assert settings([worse], [better]) == []
    assert settings([worse], [better], slower=False)  # but may be one of wrong


def test_settings_without_a_direction_and_numbers_of_kernels():
    for one, other in (({"block": [64]}, {"block": [128]}), ({"tile": 64}, {"tile": 32}), ({"flags": "-O3"}, {})):
        assert len(settings([one], [other])) == len(settings([other], [one])) == 1
    assert settings([{}], [{}, {}]) == ["kernels of a launch 1 -> 2"]
    assert settings([{}, {}], [{}]) == []


def test_a_slower_case_is_not_told_what_got_better_and_a_broken_one_is():
    spilling, fine = (dataclasses.replace(KERNEL, source=text) for text in ("SPILL", "fine"))
    assert explained((spilling,), (fine,)) == [["none of the numbers of the compiled code that are compared got worse"]]
    assert explained((spilling,), (fine,), failure={"kind": "crash", "message": "x", "log": None}) == [
        ["spilled vector registers 25 -> 0 (scratch 0 -> 0 bytes a lane)"]
    ]


def test_many_long_lines_are_cut_to_what_the_schema_allows():
    launch = {f"{'k' * 400}{index}": "v" * 400 for index in range(50)}
    (lines,) = explained((KERNEL,), head("other", **launch), arch=None)
    assert len(lines) == causes.MOST_LINES
    assert max(map(len, lines)) <= causes.LONGEST_LINE


def _runs(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
