"""The `latency_` benchmark type, discovered and run by asv's own runner."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import pytest

SUITE = """
from tilegate.protocol import register
register()
register()
"""

KERNELS = """
class Counted:
    params = ([1, 2], ["a"])
    param_names = ["n", "policy"]
    version = "7"
    warmup_time = 0.0
    min_samples = 3
    max_samples = 5
    sample_time = 60.0
    launches = 0
    setups = 0

    def setup(self, n, policy):
        self.setups += 1

    def latency_launch(self, n, policy):
        Counted.launches += 1
        assert self.setups == 1, "setup ran again"

    def helper(self, n, policy):
        raise AssertionError("not a benchmark")


def latency_alone():
    pass


def call_alone():
    pass


latency_alone.warmup_time = 0.0
latency_alone.max_samples = 10
"""

PROGRAM = """
import json, sys
from asv_runner._aux import update_sys_path
from asv_runner.discovery import disc_benchmarks, get_benchmark_from_name
root, name, extra = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
update_sys_path(root)
found = [[b.name, b.type, b.unit, b.version, b.params, b.rounds] for b in disc_benchmarks(root)]
benchmark = get_benchmark_from_name(root, name, extra_params=extra)
benchmark.do_setup()
result = benchmark.do_run()
from asv_runner.benchmarks import benchmark_types
from suite.kernels import Counted
types = [each.__name__ for each in benchmark_types]
print(json.dumps({"types": types, "found": found, "result": result, "launches": Counted.launches}))
"""


@pytest.fixture
def run(tmp_path):
    suite = tmp_path / "suite"
    suite.mkdir()
    (suite / "__init__.py").write_text(SUITE)
    (suite / "kernels.py").write_text(textwrap.dedent(KERNELS))

    def execute(name: str, **extra: float) -> dict:
        process = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(suite), name, json.dumps(extra)],
            capture_output=True,
            text=True,
            env={"PYTHONPATH": ":".join(sys.path), "TILEGATE_TARGET": "cpu"},
            check=False,
        )
        assert process.returncode == 0, process.stderr
        return json.loads(process.stdout)

    return execute


def test_asv_finds_latency_benchmarks_once(run):
    outcome = run("kernels.latency_alone")
    assert outcome["types"].count("LatencyBenchmark") == outcome["types"].count("CallBenchmark") == 1
    found = {entry[0]: entry for entry in outcome["found"]}
    assert sorted(found) == ["kernels.Counted.latency_launch", "kernels.call_alone", "kernels.latency_alone"]
    assert found["kernels.call_alone"][1] == "call"
    assert found["kernels.Counted.latency_launch"][1:] == ["latency", "seconds", "7", [["1", "2"], ["'a'"]], 1]


def test_samples_are_single_launches_between_the_bounds(run):
    outcome = run("kernels.Counted.latency_launch-1")
    assert outcome["result"]["number"] == 1
    assert len(outcome["result"]["samples"]) == 5  # sample_time is not reached: the maximum is
    assert all(isinstance(sample, float) and sample > 0 for sample in outcome["result"]["samples"])
    assert outcome["launches"] == 5 + 3 + 1  # a trial decides how; warm-up launches at least once


def test_sampling_stops_when_its_time_is_up(run):
    outcome = run("kernels.Counted.latency_launch-0", sample_time=0)
    assert len(outcome["result"]["samples"]) == 3


def test_a_function_may_carry_the_attributes(run):
    assert len(run("kernels.latency_alone")["result"]["samples"]) == 10


def test_a_call_is_sampled_as_the_mean_of_many(run):
    samples = run("kernels.call_alone")["result"]["samples"]
    assert 10 <= len(samples) <= 200
    assert all(isinstance(sample, float) and sample > 0 for sample in samples)


def test_quick_is_one_launch(run):
    outcome = run("kernels.Counted.latency_launch-0", number=1, repeat=1, warmup_time=0)
    assert len(outcome["result"]["samples"]) == 1
    assert outcome["launches"] == 1
