"""What an override says of a case holds for everything that is asked of it: timeouts and warm-up, not thresholds alone."""

import contextlib
from types import SimpleNamespace

import pytest

from tilegate.commands import calibrate
from tilegate.config import GateConfig, Override
from tilegate.measuring import duet, inspection, rounds
from tilegate.measuring.budget import Budget
from tilegate.measuring.pool import WorkerPool
from tilegate.measuring.samples import new_side

OWN = {"compile_timeout": 900.0, "check_timeout": 450.0, "warm_up_seconds": 2.0}
CONFIG = GateConfig(
    package="k", suite="s", compile_timeout=100.0, check_timeout=50.0, overrides=(Override("slow*", OWN),)
)


class Pool(WorkerPool):
    """Notes what is asked, with which timeout, and answers what is given."""

    def __init__(self, *_, **__):
        super().__init__({side: SimpleNamespace(target="cpu") for side in duet.SIDES}, None, CONFIG, label="test")
        self.asked = {}

    def start(self):
        pass

    def worker(self, name):
        return SimpleNamespace(
            catalogue=lambda: {"cases": [{"id": f"{kind}{i}"} for kind in ("case", "slow") for i in range(40)]}
        )

    def busy_seconds(self, side):
        return None

    def request_all(self, operation, timeout, arguments):
        self.asked.setdefault(operation, []).append((timeout, arguments))
        answer = {"identity": "a", "resources": None} if operation == "artifacts" else True
        return {name: lambda: answer for name in arguments}


def record(*names):
    cases = {
        name: {"base": new_side(), "head": new_side(), "role": "gated", "replicates": [], "benchmark": name}
        for name in names
    }
    return SimpleNamespace(
        cases=cases,
        document={"seed": 1, "cases": cases, "config": {"controls": 0}},
        save=lambda: None,
        timed=lambda part: contextlib.nullcontext(),
    )


def timing(*names):
    return rounds.Timing(record(*names), CONFIG, "cpu", {}, None, Reporter(), Budget())


class Reporter:
    @contextlib.contextmanager
    def phase(self, *_):
        yield SimpleNamespace(doing=lambda what: None, done=lambda what: None)

    def note(self, text):
        pass


@pytest.mark.parametrize("names", [["case0"], [f"case{i}" for i in range(40)], ["case0", "slow0"]])
def test_compiling_all_at_once_may_take_as_long_wherever_it_is_asked_for(names, monkeypatch):
    longest = 900.0 if "slow0" in names else 100.0
    expected = longest * (1 + len(names) / 8)
    pools = [Pool(), Pool()]
    rounds._start(timing(*names), pools[0], names)
    inspection._identify(pools[1], record(*names).cases, Reporter())
    monkeypatch.setattr(calibrate, "WorkerPool", lambda *_, **__: pools.append(Pool()) or pools[-1])
    calibrate._start(SimpleNamespace(workspaces={}, logs=None, config=CONFIG, budget=Budget()), names, alike=False)
    for pool in pools:
        assert pool.asked["precompile"] == [(expected, {side: {"cases": names} for side in duet.SIDES})]


def test_every_request_about_a_case_has_its_own_timeout():
    pool, known = Pool(), record("case0", "slow0")
    inspection._identify(pool, known.cases, Reporter())
    inspection.check(pool, known, CONFIG, Reporter())
    for operation, own in (("artifacts", (100.0, 900.0)), ("setup", (100.0, 900.0)), ("check", (50.0, 450.0))):
        assert tuple(timeout for timeout, _ in pool.asked[operation]) == own, operation


def test_every_case_is_warmed_up_as_its_override_says(monkeypatch):
    monkeypatch.setattr(rounds, "WorkerPool", Pool)
    monkeypatch.setattr(Pool, "close", lambda self: None)
    warm = {}
    rounds._each_case(
        timing("slow0", "case0", "slow1"), "screen", {}, ["slow0", "case0", "slow1"], lambda pool, name, seconds: warm.update({name: seconds})
    )  # fmt: skip
    assert warm == pytest.approx({"slow0": 2.0, "case0": 0.02, "slow1": 0.2})
