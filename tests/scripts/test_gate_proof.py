"""The proof of docs/gate-proof.md: what was measured still gives the verdicts that it tells of, and its scripts fit the code."""

import importlib.util
import json
import lzma
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from tilegate import files
from tilegate.judging import judge

ROOT = Path(__file__).parents[2]
GATES = ROOT / "tests" / "data" / "h200_gates"
PROOF = ROOT / "docs" / "gate-proof"
KERNEL = "tilekernels/kernels/attention_forward.py"
SUBJECT = "attention.Forward.latency_forward('vendor-32x8-b1-s8192-causal', 'adaptive')"

sys.path[:0] = [str(ROOT / "scripts" / "proof")]


def script(name):
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / "proof" / f"{name}.py")
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


def gate(name):
    with lzma.open(GATES / f"{name}.json.xz", "rt", encoding="utf-8") as file:
        samples = json.load(file)
    files.check_samples(samples)
    return samples


# --- on the H200 ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", range(1, 6))
def test_three_percent_more_work_was_red_on_that_kernel_only(number):
    verdict = judge.judge(gate(f"slower-{number}"))
    assert verdict["verdict"] == "regressed"
    assert 1.025 < verdict["cases"][SUBJECT]["ratio"] < 1.035
    for case in verdict["cases"].values():
        assert case["verdict"] == ("regressed" if case["role"] == "gated" else "unchanged")
    assert verdict["counts"]["regressed"] == 3
    assert verdict["controls"]["count"] == 3
    assert verdict["controls"]["moved"] == []


@pytest.mark.parametrize("number", range(1, 6))
def test_equal_work_under_another_text_passed(number):
    verdict = judge.judge(gate(f"equal-{number}"))
    assert verdict["verdict"] == "pass"
    assert {case["verdict"] for case in verdict["cases"].values()} == {"pass"}
    assert len(verdict["cases"]) == 6
    assert all(abs(case["ratio"] - 1) < 0.007 for case in verdict["cases"].values())


def test_less_work_was_an_improvement():
    verdict = judge.judge(gate("faster-1"))
    assert verdict["verdict"] == "pass"
    assert {case["verdict"] for case in verdict["cases"].values()} == {"improved", "unchanged"}
    assert 0.88 < verdict["cases"][SUBJECT]["ratio"] < 0.91


def test_a_suite_of_which_all_cases_changed_passed():
    verdict = judge.judge(gate("whole-equal"))
    assert verdict["verdict"] == "pass"
    assert verdict["counts"]["pass"] == len(verdict["cases"]) == 210
    assert all(abs(case["ratio"] - 1) < 0.0075 for case in verdict["cases"].values())


def test_a_suite_of_which_few_cases_changed_passed():
    verdict = judge.judge(gate("whole-few"))
    assert verdict["verdict"] == "pass"
    assert (verdict["counts"]["pass"], verdict["counts"]["unchanged"]) == (14, 196)
    assert (verdict["controls"]["count"], verdict["controls"]["moved"]) == (4, [])


@pytest.mark.parametrize("name", ["calls-commented", "calls-commented-2"])
def test_calls_passed_whose_code_has_a_comment_more(name):
    verdict = judge.judge(gate(name))
    assert verdict["verdict"] == "pass"
    assert verdict["counts"]["pass"] == len(verdict["cases"]) == 4


@pytest.mark.parametrize(
    ("name", "slower"), [("calls-checks-twice", ""), ("calls-forgetful", "'same'"), ("calls-waits", "")]
)
def test_calls_that_became_slower_in_python_alone_were_red(name, slower):
    verdict = judge.judge(gate(name))
    assert verdict["verdict"] == "regressed"
    for case, judged in verdict["cases"].items():
        assert judged["verdict"] == ("regressed" if slower in case else "pass")
        assert judged["role"] == "gated"


def test_with_its_sides_exchanged_a_slower_gate_is_an_improvement():
    samples = gate("slower-1")
    for case in samples["cases"].values():
        case["base"], case["head"] = case["head"], case["base"]
        for replicate in case["replicates"]:
            for pair in replicate["pairs"]:
                pair["order"] = 1 - pair["order"]
                pair["base"], pair["head"] = pair["head"], pair["base"]
    assert judge.judge(samples)["counts"]["improved"] == 3


# --- its scripts ------------------------------------------------------------------------------------------------------


def test_the_additional_tiles_fit_the_kernel_of_today():
    on_device = script("on_device")
    change = on_device.more_tiles("cpu", 4)
    source = (ROOT / KERNEL).read_text()
    assert source.count(change.before) == 1
    assert source.count(on_device.IMPORTS) == 1
    compile(source.replace(change.before, change.after), KERNEL, "exec")


def changed_kernels(change, monkeypatch, tmp_path):
    """All kernels of the CPU's workloads by head dimension and tile, and of those the ones whose text a change changes."""
    import tilekernels
    from benchmarks.problems import problem
    from benchmarks.workloads import WORKLOADS
    from tilekernels.dialect import dialect_for

    source = (ROOT / KERNEL).read_text().replace("from typing", "import dataclasses\nfrom typing", 1)
    assert source.count(change.before) == 1

    def generated(text, kernel, folder):
        folder.mkdir(exist_ok=True)
        path = folder / "attention_forward.py"
        path.write_text(text)
        spec = importlib.util.spec_from_file_location("kernel_of_proof", path)
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "kernel_of_proof", module)
        spec.loader.exec_module(module)
        built = module.build(kernel.spec, kernel.tile, dialect_for("cpu"))
        return built.script()

    kernels = {}
    for work in WORKLOADS:
        if "cpu" in work.targets and work.tier in ("smoke", "full"):
            kernel = tilekernels.forward_kernel(problem(work), policy="adaptive", device="cpu")
            kernels[kernel.problem_key, kernel.tile] = kernel
    changed = source.replace(change.before, change.after)
    return set(kernels), {
        key
        for key, kernel in kernels.items()
        if generated(source, kernel, tmp_path / "before") != generated(changed, kernel, tmp_path / "after")
    }


def test_additional_tiles_change_the_text_of_one_kernel_only(monkeypatch, tmp_path):
    on_device = script("on_device")
    import tilekernels
    from benchmarks.problems import problem
    from benchmarks.workloads import workload

    kernels, changed = changed_kernels(on_device.more_tiles("cpu", 4), monkeypatch, tmp_path)
    wanted = tilekernels.forward_kernel(
        problem(workload(on_device.SUBJECTS["cpu"][0])), policy="adaptive", device="cpu"
    )
    assert len(kernels) > 2
    assert changed == {(wanted.problem_key, wanted.tile)}


def test_a_few_equal_kernels_are_those_of_one_head_dimension(monkeypatch, tmp_path):
    kernels, changed = changed_kernels(script("on_device").few_equal(), monkeypatch, tmp_path)
    assert changed == {key for key in kernels if key[0][0] == 64}
    assert changed < kernels


def test_changes_of_the_public_function_fit_the_one_of_today():
    on_device = script("on_device")
    changes = on_device.calls_changed()
    assert {change.name for change in changes} == {plan.head for plan in on_device.calls()}
    for change in changes:
        source = (ROOT / change.path).read_text()
        assert source.count(change.before) == 1
        compile(source.replace(change.before, change.after), change.path, "exec")


def test_what_was_run_first_tells_most():
    names = [plan.name for plan in script("on_device").plans(5)]
    assert names[:3] == ["slower-1", "equal-1", "faster-1"]
    assert len(names) == len(set(names)) == 11


@pytest.mark.parametrize(
    ("change", "right"),
    [
        ({}, True),
        ({"status": 0}, False),
        ({"control": "regressed"}, False),  # something else was called, too
        ({"subject": "inconclusive"}, False),
    ],
)
def test_a_gate_counts_as_right_only_if_it_called_that_kernel_and_no_other(tmp_path, change, right):
    on_device = script("on_device")
    subject, control = "a.latency_forward('w', 'adaptive')", "a.latency_forward('x', 'adaptive')"
    case = {"ratio": 1.03, "interval": [1.02, 1.04], "replicates": 2}
    cases = {
        subject: {**case, "verdict": change.get("subject", "regressed"), "role": "gated"},
        control: {**case, "verdict": change.get("control", "unchanged"), "role": "control"},
    }
    verdict = {
        "verdict": "regressed",
        "reason": "",
        "cases": cases,
        "controls": {"count": 1},
        "stages": {"screen": 2.0, "confirm": 3.5},
    }
    (tmp_path / "verdict.json").write_text(json.dumps(verdict))
    (tmp_path / "samples.json").write_text("{}")
    plan = on_device.Plan("slower-1", "HEAD", "slower", 1, "regressed")
    found = on_device.summarise(plan, change.get("status", 1), 1.0, tmp_path, ("w", "adaptive"))
    assert found["right"] == right
    assert found["own_seconds"] == 5.5
    assert (tmp_path / "samples.json.xz").is_file()
    assert not on_device.summarise(plan, 3, 1.0, tmp_path / "nothing", ("w", "adaptive"))["right"]


def test_rows_of_asv_are_read():
    text = """
All benchmarks:

| Change   | Before [b36a346e]    | After [319b19af]    | Ratio   | Benchmark (Parameter)                |
|----------|----------------------|---------------------|---------|--------------------------------------|
| +        | 1.03±0.01ms          | 1.44±0.02ms         | 1.40    | attention.Forward.latency_forward(a) |
|          | 1.03±0.01ms          | 1.04±0.02ms         | ~1.01   | attention.Forward.latency_forward(b) |
"""
    assert script("beside_asv").rows(text) == [
        ("+", "1.40", "attention.Forward.latency_forward(a)"),
        ("", "~1.01", "attention.Forward.latency_forward(b)"),
    ]


def test_the_rules_of_others_are_theirs():
    rivals = script("rivals")
    rng = np.random.default_rng(0)
    base = list(1e-4 * rng.normal(1, 0.01, 100))
    by_name = {rule.name: rule for rule in rivals.RULES}
    one_run, asv = by_name["one run, threshold 5 %"], by_name["asv continuous (factor 1.1)"]
    for rule, called, spared in ((one_run, 1.07, 1.03), (asv, 1.15, 1.07)):
        assert rivals.slower(rule, base, [t * called for t in base])
        assert not rivals.slower(rule, base, [t * spared for t in base])
        assert not rivals.slower(rule, [t * called for t in base], base)
    # Twice the time, but few and noisy samples: for asv that is not significant.
    few = [1e-4, 1.6e-4, 2.2e-4, 1.1e-4, 1.9e-4, 1.3e-4]
    assert not rivals.slower(asv, few, [2 * t for t in few])
    assert rivals.chance_of_red(one_run, 0.01, None, 200) == pytest.approx(1 - 0.99**200)
    assert rivals.chance_of_red(one_run, 0.0, 0.7, 200) == pytest.approx(0.7)
    bot = by_name["TileLang's bot"]
    assert rivals.chance_of_red(bot, 0.0, 1.0, 200) == 0  # one slow benchmark is not enough
    assert rivals.chance_of_red(bot, 0.01, None, 200) == pytest.approx(1 - 0.99**200 - 200 * 0.01 * 0.99**199)


# --- the figures ------------------------------------------------------------------------------------------------------


def test_the_recorded_counts_meet_the_goals_and_are_those_of_the_page():
    figures = script("figures")
    result = json.loads((PROOF / "simulation.json").read_text())
    page = (ROOT / "docs" / "gate-proof.md").read_text()
    for table in figures.tables(result).split("\n\n"):
        assert table in page
    experiments = {(e["pool"], e["effect"], e["bias"]): e for e in result["experiments"]}
    for pool, least in (("long", 10_000), ("recorded", 2_000)):
        clean = experiments[pool, 0.0, 1.0]
        assert clean["requests"] >= least
        assert figures.upper_bound(clean["red"], clean["requests"]) < 0.005
        for effect, verdicts, goal in ((0.03, ["regressed"], 0.99), (0.02, ["regressed", "warning"], 0.95)):
            found = experiments[pool, effect, 1.0]
            assert figures._planted(found, verdicts) >= goal * found["requests"]


def test_bounds_are_clopper_pearsons():
    figures = script("figures")
    assert figures.upper_bound(0, 10_000) == pytest.approx(1 - 0.05 ** (1 / 10_000))
    assert figures.lower_bound(100, 100) == pytest.approx(0.05**0.01)
    assert figures.upper_bound(5, 5) == 1.0


def test_a_simulation_continues_where_it_was_and_forgets_what_other_rules_gave(tmp_path, monkeypatch):
    simulate = script("simulate")
    plan = [simulate.Experiment("recorded", 0.03, 60, cases=5)]
    monkeypatch.setattr(simulate, "BLOCK", 20)
    console = Console(quiet=True)
    partial = tmp_path / "partial"
    whole = simulate.simulate(plan, partial, 1, console)
    lines = partial.read_text().splitlines()
    assert len(lines) == 3
    partial.write_text("\n".join([lines[0], lines[1][:20]]))  # killed while it wrote
    assert simulate.simulate(plan, partial, 1, console) == whole
    partial.write_text(lines[0].replace(simulate._inputs(), "another") + "\n")
    assert simulate.simulate(plan, partial, 1, console) == whole
    assert whole[plan[0].key]["planted"]


def test_the_scripts_explain_themselves():
    for name in ("simulate", "on_device", "beside_asv"):
        path = ROOT / "scripts" / "proof" / f"{name}.py"
        shown = subprocess.run([sys.executable, str(path), "--help"], capture_output=True, text=True, check=True)
        assert "python scripts/proof/" in shown.stdout


def test_the_simulation_ran_with_the_rules_of_today():
    """Other thresholds need other figures: run scripts/proof/simulate.py again."""
    simulate = script("simulate")
    recorded = json.loads((PROOF / "simulation.json").read_text())["config"]
    assert recorded == json.loads(json.dumps(simulate.deciding()))
