"""Which changes need a GPU: everything that might matter, and nothing that certainly does not."""

import json
import types

import change
import payloads
import pytest

from tilegate import cli, files
from tilegate.ci import plan
from tilegate.files import UsageError
from tilegate.isa.survey import Survey
from tilegate.isa.toolchain import ToolchainError


def surveys(project, *identities):
    return tuple(Survey.from_json(project.survey("main", identity)) for identity in identities)


def needs(
    project, identities=("a", "b"), *, package_same=False, suite_same=True, calls=False, compiled=True, outside=False
):
    found = surveys(project, *identities) if compiled else None
    return plan.decide(package_same=package_same, suite_same=suite_same, calls=calls, surveys=found, outside=outside)


def test_a_kernel_that_differs_is_measured_and_named(project):
    found = needs(project)
    assert found.measure
    assert found.changed == (change.CASE,)


def test_equal_kernels_are_not_measured(project):
    assert not needs(project, ("a", "a")).measure


@pytest.mark.parametrize("options", [{"suite_same": False}, {"calls": True}, {"compiled": False}, {"outside": True}])
def test_equal_kernels_are_measured_where_they_are_not_all_that_counts(project, options):
    assert needs(project, ("a", "a"), **options).measure


def test_nothing_to_compare_is_measured(project):
    nothing = project.survey("main")
    nothing["kernels"]["gfx942"] = {}
    found = Survey.from_json(nothing)
    assert plan.decide(package_same=False, suite_same=True, calls=False, surveys=(found, found), outside=False).measure


def test_neither_package_nor_suite_differs(project):
    assert not needs(project, package_same=True, compiled=False).measure


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("class A:\n    def call_attention(self):\n        pass\n", True),
        ("class A:\n    def latency_x(self):\n        self.call_it()\n", False),
        ("def call_home():\n    pass\n", False),  # no benchmark: those are methods
    ],
)
def test_calls_are_found_in_a_suite(tmp_path, text, expected):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "x.py").write_text(text)
    assert plan.times_calls(tmp_path) == expected


def run_plan(project, base, head, tmp_path, monkeypatch):
    (tmp_path / "event.json").write_text(json.dumps(payloads.pull_request(base, head)))
    monkeypatch.setenv("GITHUB_EVENT_PATH", str(tmp_path / "event.json"))
    monkeypatch.setenv("GITHUB_OUTPUT", str(tmp_path / "output"))
    status = cli.main(["ci", "plan", "--repo", str(project.path), "--out", str(tmp_path / "plan")])
    made = files.load_json(tmp_path / "plan" / "plan.json")
    files.check(made, plan.SCHEMA_FILE)
    assert status == 0
    return made, (tmp_path / "output").read_text()


def test_a_change_of_words_needs_neither_gpu_nor_compiler(project, tmp_path, monkeypatch):
    monkeypatch.setattr(plan, "find_toolchain", None)
    base, head = project.git("rev-parse", "main"), project.change("docs/x.md", "words")
    made, output = run_plan(project, base, head, tmp_path, monkeypatch)
    assert output == "measure=false\n"
    assert made["base"]["commit"] == base
    assert made["head"]["commit"] == head


def test_without_a_compiler_everything_is_measured_and_the_reason_kept(project, tmp_path, monkeypatch):
    def none(arch):
        raise ToolchainError("apt-get install clang-19")

    monkeypatch.setattr(plan, "find_toolchain", none)
    made, output = run_plan(project, project.git("rev-parse", "main"), project.change(), tmp_path, monkeypatch)
    assert output == "measure=true\n"
    assert made["isa"] is None
    assert "clang-19" in made["isa_missing"]


def test_a_machine_that_lacks_what_kernels_are_compiled_with_calls_none_broken(project, tmp_path, monkeypatch):
    def missing(*_):
        raise ToolchainError("apt-get install -y rocm-device-libs")

    monkeypatch.setattr(plan, "find_toolchain", lambda arch: types.SimpleNamespace(arch=arch))
    monkeypatch.setattr(plan, "run_survey", missing)
    made, output = run_plan(project, project.git("rev-parse", "main"), project.change(), tmp_path, monkeypatch)
    assert output == "measure=true\n"
    assert (made["isa"], made["isa_missing"]) == (None, "apt-get install -y rocm-device-libs")


def test_a_suite_that_cannot_be_lowered_is_measured(project, tmp_path, monkeypatch):
    project.git("rm", "--quiet", "benchmarks/kernels.py")
    project.commit("List nothing")
    monkeypatch.setattr(plan, "find_toolchain", lambda arch: types.SimpleNamespace(arch=arch))
    made, output = run_plan(project, project.git("rev-parse", "main"), project.change(), tmp_path, monkeypatch)
    assert output == "measure=true\n"
    assert "has no module kernels" in made["isa_missing"] or "no kernels to list" in made["isa_missing"]


def test_the_base_is_where_the_branch_left_main(project, tmp_path, monkeypatch):
    fork = project.git("rev-parse", "main")
    head = project.change("docs/x.md", "words")
    project.write("README.md", "news")
    tip = project.commit("Move on")
    made, _ = run_plan(project, tip, head, tmp_path, monkeypatch)
    assert made["base"]["commit"] == fork


def test_a_shallow_clone_is_an_error_that_says_so(project, tmp_path):
    with pytest.raises(UsageError, match="fetch-depth: 0"):
        plan.repository.fork_point(project.path, project.git("rev-parse", "main"), "e" * 40)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda p: p["pull_request"]["head"].update(sha="$(touch x)"),
        lambda p: p["pull_request"]["head"].update(sha="main"),
        lambda p: p["pull_request"].update(number=True),
        lambda p: p["pull_request"].pop("base"),
        lambda p: p.pop("pull_request"),
    ],
)
def test_an_event_that_is_not_what_it_should_be_is_refused(spoil, tmp_path, monkeypatch, capsys):
    payload = payloads.pull_request("a" * 40, "b" * 40)
    spoil(payload)
    (tmp_path / "event.json").write_text(json.dumps(payload))
    monkeypatch.setenv("GITHUB_EVENT_PATH", str(tmp_path / "event.json"))
    assert cli.main(["ci", "plan", "--out", str(tmp_path / "plan")]) == 2
    assert "the event" in capsys.readouterr().err


def test_an_output_cannot_set_another_output(tmp_path):
    from tilegate.ci import outputs

    with pytest.raises(UsageError, match="several lines"):
        outputs.set_outputs({"reason": "x\nmeasure=false"}, {"GITHUB_OUTPUT": str(tmp_path / "o")})
    assert not (tmp_path / "o").exists()
