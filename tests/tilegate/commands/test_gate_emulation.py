"""The gate executes what changed for chips that are not here, before it times anything."""

from __future__ import annotations

import json
import time
from types import SimpleNamespace

import hip_toy
import jsonschema
import pytest
import toy_repository

from tilegate import emulator, files
from tilegate.emulate import gating
from tilegate.judging import judge
from tilegate.lowering.store import Store
from tilegate.measuring import environment
from tilegate.showing import report

HIP = "toykernels/hip.py"
TOTAL = "sums.Total.latency_total(1000)"
ONE_TOTAL = ("-b", r"latency_total\(1000\)", "--seed", "1")
KERNELS = hip_toy.KERNELS.replace(
    "import hiptoy\n", "import toykernels\nfrom toykernels import hip as hiptoy\n"
).replace("verify_origin(hiptoy)", "verify_origin(toykernels)")
# "double" is run by a case of the toy's suite, "triple" by one that only another chip has.
KERNELS = KERNELS.replace(
    "toy.Run.latency_run('{name}')", "sums.{'Total.latency_total' if name == 'double' else 'Other.latency_other'}(1000)"
)


@pytest.fixture(autouse=True)
def _own_surroundings(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("user")
    monkeypatch.setenv("TILEGATE_LOCKS", str(folder))
    monkeypatch.setenv("PYTHONPATH", str(toy_repository.VIRTUAL_TIME))
    monkeypatch.setattr(environment, "probe_torch", lambda: toy_repository.NO_TORCH)
    monkeypatch.setattr(gating, "default_store", lambda: Store(folder / "store"))


@pytest.fixture
def toy(tmp_path):
    """The toy library with two HIP kernels beside its own; that is the base."""
    toy = toy_repository.make(tmp_path / "toy")
    toy.write(HIP, hip_toy.LIBRARY)
    toy.write("toybench/kernels.py", KERNELS)
    toy.write("toybench/emulated.py", hip_toy.EMULATED)
    toy.commit("Add kernels for a chip that is not here")
    toy.git("tag", "-f", "base")
    return toy


@pytest.fixture
def clang():
    try:
        emulator.toolchain()
    except emulator.ToolchainMissing as error:
        pytest.skip(str(error))


def _drop_barrier(toy, of):
    toy.replace(HIP, r"^    return KERNEL", f'    if name in {of!r}:\n        return KERNEL.replace("  __syncthreads();\\n", "").replace("FACTOR", str(FACTORS[name]))\n    return KERNEL')  # fmt: skip
    toy.commit("Drop a barrier")


@pytest.mark.usefixtures("clang")
def test_a_race_in_the_kernel_of_a_case_breaks_the_case_before_it_is_timed(toy):
    _drop_barrier(toy, ["double"])
    outcome = toy.gate("base", "HEAD", *ONE_TOTAL)
    assert outcome.status == 3, outcome
    case = outcome.case(TOTAL)
    assert (case["verdict"], case["failure"]["kind"], case["failure"]["side"]) == ("broken", "emulation", "head")
    assert case["failure"]["message"].startswith("double on gfx942, emulated:\n")
    assert "\nrace: line " in case["failure"]["message"]
    assert "line 5: tile[t] = t < n" in case["failure"]["message"]
    assert toy.samples()["cases"][TOTAL]["replicates"] == []
    (path,) = toy.path.glob(".tilegate/*/report.md")
    assert "race: line " in path.read_text()
    found = toy.samples()["emulation"]["gfx942"]
    assert (found["unchanged"], found["unselected"], list(found["kernels"])) == (0, 1, ["double"])


@pytest.mark.usefixtures("clang")
def test_a_wrong_kernel_that_no_case_of_the_run_uses_breaks_the_run_and_judge_says_so_again(toy, tmp_path):
    toy.replace(HIP, r"FACTOR \* tile", "FACTOR * 1.01f * tile")
    toy.commit("Compute something else")
    outcome = toy.gate("base", "HEAD", "-b", "mean|other", "--seed", "1")
    assert outcome.status == 3, outcome
    assert "1 kernel broken on gfx942, emulated: see the messages." in outcome.verdict["reason"]
    assert {case["verdict"] for case in outcome.verdict["cases"].values()} == {"unchanged"}
    kernel = outcome.verdict["emulation"]["gfx942"]["kernels"]["triple"]
    assert "wrong-result: B: largest error" in kernel["message"]
    assert (
        "\nlines of the generated source that differ from the base's:\n  - 8: B[row * n + t] = 3.0f *"
        in kernel["message"]
    )
    assert "\n  + 8: B[row * n + t] = 3.0f * 1.01f * tile[n - 1 - t];\n  at one row" in kernel["message"]
    again = judge.judge(toy.samples())
    assert (again["verdict"], again["emulation"]) == ("broken", outcome.verdict["emulation"])
    assert "wrong-result: B: largest error" in report.render(again)
    jsonschema.validate(again, files.load_schema("verdict-1.json"))


@pytest.mark.usefixtures("clang")
def test_a_change_that_is_right_is_executed_once_and_said_so(toy, monkeypatch):
    toy.replace(HIP, r"  int row", "  // another comment\\n  int row")
    toy.commit("Comment")
    outcome = toy.gate("base", "HEAD", *ONE_TOTAL)
    assert outcome.status == 0, outcome
    assert {k["verdict"] for k in outcome.verdict["emulation"]["gfx942"]["kernels"].values()} == {"pass"}
    assert "about 300 s at most (emulate_seconds); --no-emulate leaves it out" in outcome.err
    (path,) = toy.path.glob(".tilegate/*/report.md")
    assert "nothing wrong was found: 1 of 1 changed kernels" in path.read_text()
    assert "Not looked at for gfx942: 1 kernel that no case of this run's filter uses." in path.read_text()
    monkeypatch.setattr(gating, "enter", None)  # a run that is there already would call it
    assert toy.gate("base", "HEAD", *ONE_TOTAL).status == 0


@pytest.mark.usefixtures("clang")
def test_kernels_of_cases_that_were_not_asked_for_are_neither_generated_nor_executed(toy, monkeypatch):
    asked = []
    whole = gating.Lowering.ask
    monkeypatch.setattr(
        gating.Lowering, "ask", lambda self, request, timeout: asked.append(request) or whole(self, request, timeout)
    )
    _drop_barrier(toy, ["double", "triple"])
    assert toy.gate("base", "HEAD", "-b", "mean", "--seed", "1").status == 0
    assert {request["op"] for request in asked} == {"configurations"}
    assert toy.samples()["emulation"]["gfx942"]["unselected"] == 2
    toy.gate("base", "HEAD", "-b", "mean|other", "--seed", "1")
    assert {request["id"] for request in asked if request["op"] == "emulate"} == {"triple"}
    outcome = toy.gate("base", "HEAD", "--seed", "1")
    assert set(outcome.verdict["emulation"]["gfx942"]["kernels"]) == {"double", "triple"}


@pytest.mark.usefixtures("clang")
def test_what_the_base_does_wrong_too_is_not_the_heads_fault(toy):
    _drop_barrier(toy, ["double", "triple"])
    toy.git("tag", "-f", "base")
    toy.replace(HIP, r"  int row", "  // another comment\\n  int row")
    toy.commit("Comment")
    outcome = toy.gate("base", "HEAD", *ONE_TOTAL)
    assert outcome.status == 0, outcome
    kernel = outcome.verdict["emulation"]["gfx942"]["kernels"]["double"]
    assert kernel["verdict"] == "inconclusive"
    assert "the base has findings, too" in kernel["message"]


def test_a_change_elsewhere_executes_nothing(toy, monkeypatch):
    monkeypatch.setattr(gating, "Lowering", _untouchable(gating.Lowering))
    toy.write("notes.txt", "no code")
    toy.commit("Notes")
    outcome = toy.gate("base", "HEAD", *ONE_TOTAL)
    assert outcome.status == 0, outcome
    assert outcome.verdict["emulation"]["gfx942"]["kernels"] == {}


def _untouchable(lowering):
    class Untouchable(lowering):
        def ask(self, request, timeout):
            raise AssertionError(f"asked for {request}")

    return Untouchable


def test_without_clang_the_report_says_so_and_the_run_goes_on(toy, monkeypatch):
    def missing():
        raise emulator.ToolchainMissing("kernels are emulated with clang, which is not here: apt-get install clang")

    monkeypatch.setattr(emulator, "toolchain", missing)
    _drop_barrier(toy, ["double"])
    outcome = toy.gate("base", "HEAD", *ONE_TOTAL)
    assert outcome.status == 0, outcome
    (path,) = toy.path.glob(".tilegate/*/report.md")
    assert "Changed kernels for gfx942 were not executed" in path.read_text()
    assert "apt-get install clang" in path.read_text()


@pytest.mark.parametrize("how", ["option", "setting", "suite"])
def test_it_can_be_left_out(toy, how):
    if how == "setting":
        toy.config(emulate=[])
    if how == "suite":
        toy.git("rm", "-q", "toybench/emulated.py")
        toy.git("tag", "-f", "base", toy.commit("Drop the problems"))
    _drop_barrier(toy, ["double"])
    outcome = toy.gate("base", "HEAD", *ONE_TOTAL, *(["--no-emulate"] if how == "option" else []))
    assert outcome.status == 0, outcome
    assert "emulation" not in toy.samples()
    assert outcome.verdict["emulation"] == {}


@pytest.mark.usefixtures("clang")
def test_a_kernel_that_is_no_longer_generated_is_broken(toy):
    toy.replace(
        HIP,
        r"^    return KERNEL",
        '    if name == "double":\n        raise ValueError("no such tile")\n    return KERNEL',
    )
    toy.commit("Generate nothing")
    outcome = toy.gate("base", "HEAD", *ONE_TOTAL)
    assert outcome.status == 3, outcome
    assert "not executed (compile): ValueError: no such tile" in outcome.case(TOTAL)["failure"]["message"]


@pytest.mark.usefixtures("clang")
def test_there_is_an_end_to_it(toy, monkeypatch):
    toy.config(emulate_seconds=1.0)
    _drop_barrier(toy, ["double"])
    monkeypatch.setattr(gating, "time", SimpleNamespace(monotonic=_leaps(time.monotonic)))  # the clock of gating alone
    outcome = toy.gate("base", "HEAD", *ONE_TOTAL)
    assert outcome.status == 0, outcome
    messages = [k["message"] for k in outcome.verdict["emulation"]["gfx942"]["kernels"].values()]
    assert messages
    assert all("emulate_seconds" in message for message in messages)


def _leaps(clock):
    """A clock that leaps ahead by an hour once it has been looked at."""
    looks = []

    def leap():
        looks.append(clock())
        return looks[-1] + (3600.0 if len(looks) > 1 else 0.0)

    return leap


@pytest.mark.usefixtures("clang")
def test_samples_survive_a_round_trip_and_refuse_what_they_do_not_know(toy):
    _drop_barrier(toy, ["double"])
    toy.gate("base", "HEAD", *ONE_TOTAL)
    (path,) = toy.path.glob(".tilegate/*/samples.json")
    document = json.loads(path.read_text())
    document["emulation"]["gfx942"]["kernels"]["double"]["head"]["verdict"] = "pass"
    path.write_text(json.dumps(document))
    with pytest.raises(files.UsageError, match="verdict"):
        files.load_samples(path)
