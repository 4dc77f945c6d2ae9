"""Reading the gate's parameters: defaults, bad values, round trips."""

import dataclasses
import json

import pytest
from sample_builder import CONFIG

from tilegate import config
from tilegate.files import UsageError

NAMES = 'package = "mykernels"\nsuite = "benchmarks"\n'


def load(extra=""):
    return config.load_config(f"[tool.tilegate]\n{NAMES}{extra}")


def test_deep_nesting_is_a_usage_error():
    with pytest.raises(UsageError, match="nested too deeply"):
        config.load_config(f"x = {'[' * 5000}{']' * 5000}")


def test_two_names_are_enough():
    assert load() == CONFIG


def test_values_replace_defaults():
    loaded = load(
        "promise = 0.05\nscreen_pairs = 12\nallow_removed = ['old.*']\nbias.cpu = {seconds = 0, relative = 0.02}\n"
    )
    assert (loaded.promise, loaded.screen_pairs, loaded.allow_removed) == (0.05, 12, ("old.*",))
    assert loaded.bias["cpu"] == config.Bias(0.0, 0.02)
    assert loaded.bias["cuda"] == CONFIG.bias["cuda"]


def test_a_configuration_survives_the_samples_file():
    loaded = load("alpha = 0.01\nallow_removed = ['a', 'b']\n")
    assert config.from_dict(config.to_dict(loaded)) == loaded
    assert set(config.to_dict(loaded)) == {f.name for f in dataclasses.fields(loaded)}
    hash(loaded)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[tool", "not valid TOML"),
        ("", r"no \[tool.tilegate\] table"),
        ("tool = 3", r"no \[tool.tilegate\] table"),
        ("[tool]\ntilegate = 3", r"no \[tool.tilegate\] table"),
        ('[tool.tilegate]\nsuite = "s"', "'package' is missing"),
        ('[tool.tilegate]\npackage = "../evil"\nsuite = "s"', "package must be an import name"),
        (f"[tool.tilegate]\n{NAMES}treshold = 1", '"treshold"'),
        (f"[tool.tilegate]\n{NAMES}screen_pair = 9", "did you mean 'screen_pairs'"),
        (f"[tool.tilegate]\n{NAMES}nonsense = 9", "known keys: package, suite, promise"),
        (f"[tool.tilegate]\n{NAMES}promise = 3", "a fraction: 3 % is 0.03"),
        (f"[tool.tilegate]\n{NAMES}promise = nan", "promise must be a number"),
        (f"[tool.tilegate]\n{NAMES}promise = true", "promise must be a number"),
        (f"[tool.tilegate]\n{NAMES}controls = true", "controls must be a whole number"),
        (f"[tool.tilegate]\n{NAMES}screen_pairs = 7", "screen_pairs must be a whole number from 8"),
        (f"[tool.tilegate]\n{NAMES}screen_pairs = 8.5", "whole number"),
        (f"[tool.tilegate]\n{NAMES}replicates = 1", "replicates must be a whole number from 2"),
        (f"[tool.tilegate]\n{NAMES}alpha = 0", "alpha must be"),
        (f"[tool.tilegate]\n{NAMES}regression = 0.04", "regression < promise must hold"),
        (f"[tool.tilegate]\n{NAMES}screen = 0.02", "must be below regression"),
        (f"[tool.tilegate]\n{NAMES}replicates = 9", "must be at least replicates"),
        (f"[tool.tilegate]\n{NAMES}min_launches = 40", "must be at least min_launches"),
        (f"[tool.tilegate]\n{NAMES}noisy_pairs = 8", "must be at least confirm_pairs"),
        (f"[tool.tilegate]\n{NAMES}miss = 0.002", "cannot support miss"),
        (f"[tool.tilegate]\n{NAMES}allow_removed = 'a'", "list of globs"),
        (f"[tool.tilegate]\n{NAMES}overrides = 1", "overrides must be tables"),
        (f"[tool.tilegate]\n{NAMES}overrides = [1]", "overrides must be tables"),
        (f"[tool.tilegate]\n{NAMES}overrides = [{{promise = 0.05}}]", "overrides 1: cases must be a glob"),
        (f"[tool.tilegate]\n{NAMES}overrides = [{{cases = 'a*'}}]", "sets nothing"),
        (f"[tool.tilegate]\n{NAMES}overrides = [{{cases = 'a*', promis = 0.05}}]", "did you mean 'promise'"),
        (f"[tool.tilegate]\n{NAMES}overrides = [{{cases = 'a*', alpha = 0.05}}]", "alpha.* cannot be set for some"),
        (f"[tool.tilegate]\n{NAMES}overrides = [{{cases = 'a*', promise = 5.0}}]", "1: promise must .*3 % is 0.03"),
        (
            f"[tool.tilegate]\n{NAMES}overrides = [{{cases = 'a*', promise = 0.05, screen = 0.04}}]",
            "overrides 1: .*must be below",
        ),
        (f"[tool.tilegate]\n{NAMES}bias = 1", "table of targets"),
        (
            f"[tool.tilegate]\n{NAMES}bias.tpu = {{seconds = 0, relative = 0}}",
            "targets: cpu, cuda, hip, recorded, call",
        ),
        (f"[tool.tilegate]\n{NAMES}bias.cpu = {{relative = 0}}", "bias.cpu must be"),
        (f"[tool.tilegate]\n{NAMES}bias.cpu = {{seconds = 0, relative = -1}}", "bias.cpu.relative must be"),
    ],
)
def test_what_is_wrong_is_named(text, message):
    with pytest.raises(UsageError, match=message):
        config.load_config(text)


def test_every_field_is_documented():
    documented = config.GateConfig.__doc__
    for field in dataclasses.fields(config.GateConfig):
        assert f"{field.name}:" in documented or f"{field.name}," in documented, field.name


@pytest.mark.parametrize(("replicates", "most", "looks"), [(2, 2, 1), (2, 3, 2), (2, 4, 2), (2, 8, 3), (3, 8, 3)])
def test_looks_counts_every_doubling(replicates, most, looks):
    configuration = dataclasses.replace(CONFIG, replicates=replicates, max_replicates=most)
    have, seen = replicates, 1
    while have < most:
        have, seen = min(2 * have, most), seen + 1
    assert configuration.looks() == seen == looks


def test_the_repositorys_own_configuration_is_valid(request):
    config.load_config((request.config.rootpath / "pyproject.toml").read_text(encoding="utf-8"))


OVERRIDES = """
[[tool.tilegate.overrides]]
cases = "*decode*"
promise = 0.05
max_replicates = 16
[[tool.tilegate.overrides]]
cases = "*"
min_launches = 5
"""


def test_the_first_override_that_fits_applies_alone():
    loaded = load(OVERRIDES)
    decode, other = loaded.for_case("attention.decode(1)"), loaded.for_case("attention.prefill(1)")
    assert (decode.promise, decode.max_replicates, decode.min_launches) == (0.05, 16, CONFIG.min_launches)
    assert (other.promise, other.min_launches) == (CONFIG.promise, 5)
    assert loaded.override_of("attention.decode(1)").cases == "*decode*"
    assert CONFIG.for_case("attention.decode(1)") is CONFIG
    assert loaded.promise == CONFIG.promise


def test_overrides_survive_the_samples_file():
    loaded = load(OVERRIDES)
    assert config.from_dict(json.loads(json.dumps(config.to_dict(loaded)))) == loaded
    hash(loaded)


def test_sizes_follow_a_promise_unless_they_are_set():
    finer = config.from_dict({"package": "a", "suite": "b", "promise": 0.01})
    assert (finer.regression, finer.screen_pairs, finer.max_replicates) == (pytest.approx(0.006), 16, 16)
    assert config.from_dict({"package": "a", "suite": "b", "promise": 0.01, "regression": 0.005}).regression == 0.005
    usual = config.from_dict({"package": "a", "suite": "b", "promise": 0.03})
    assert all(
        getattr(usual, key) == pytest.approx(getattr(config.GateConfig("a", "b"), key))
        for key in ("tolerated", "regression", "replicate_regression", "screen", "screen_pairs", "max_replicates")
    )
    own = config.from_dict({"package": "a", "suite": "b", "overrides": [{"cases": "x*", "promise": 0.01}]})
    assert own.for_case("xy").regression == pytest.approx(0.006)
    assert own.for_case("y").regression == 0.018
    assert config.from_dict(config.to_dict(own)) == own
