"""The gate's parameters: one frozen dataclass, read from `[tool.tilegate]` of the base commit's pyproject.toml.

Sizes of effects are fractions (0.03 is 3 %), times are seconds. docs/gate-statistics.md says where each default comes from.
"""

from __future__ import annotations

import dataclasses
import difflib
import fnmatch
import math
import tomllib
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from tilegate.files import UsageError, shown
from tilegate.protocol.selection import EMULATED, TARGETS

BIASED = (*TARGETS, "recorded", "call")

_LONGEST = 86_400.0  # seconds; a timeout beyond a day is a typing error


@dataclass(frozen=True)
class Bias:
    """What a fresh pair of processes adds to a ratio and cannot average away: one standard deviation.

    Attributes:
        seconds: the part that is a constant time (placement of buffers, launch path); rules short kernels.
        relative: the part that is a share of the kernel's time, as a fraction.
    """

    seconds: float
    relative: float

    def at(self, duration: float) -> float:
        """Return the standard deviation, in log ratio, of the bias of a kernel that takes `duration` seconds."""
        return math.hypot(self.seconds / duration, self.relative)


@dataclass(frozen=True)
class Override:
    """Other values for some cases.

    Attributes:
        cases: glob over case ids (fnmatch).
        values: keys of `GateConfig` and what they are for these cases.
    """

    cases: str
    values: Mapping[str, float] = field(hash=False)

    def applied_to(self, config: GateConfig) -> GateConfig:
        """Return `config` with these values in place of its own."""
        values: dict[str, Any] = dict(self.values)
        return dataclasses.replace(config, **values)


def _default_bias() -> Mapping[str, Bias]:
    return {
        # Of two processes with one kernel of 5 ms, eight pairs scatter by 0.9 %, of which a pair's 1.3 % explain 0.46 %
        # (docs/gate-statistics.md, "On a CPU").
        "cpu": Bias(seconds=0.0, relative=0.008),
        "cuda": Bias(seconds=0.18e-6, relative=0.001),
        "hip": Bias(seconds=0.18e-6, relative=0.001),
        # At most 0.21 % at any of eight shapes from 5 to 50 us on an H200 (docs/short-kernels.md).
        "recorded": Bias(seconds=0.0, relative=0.002),
        # 2.1 % of calls of 47 us on the H200's host, before they were held against a yardstick (same page).
        "call": Bias(seconds=0.0, relative=0.02),
    }


@dataclass(frozen=True)
class GateConfig:
    """Everything that decides a verdict, and how much is measured for it.

    What is measured:
        package: import name of the library under test; imported from the commit under test.
        suite: import name of the asv suite; imported from the base commit.

    Sizes of effects (fractions):
        promise: a slowdown of this much never passes; a case whose interval reaches it is not a pass. In statistics, a
            non-inferiority margin.
        tolerated: a slowdown up to this much is no regression; it is the null hypothesis that is tested.
        regression: the smallest estimate that is called a regression (and, mirrored, an improvement).
        replicate_regression: the smallest estimate of one replicate that counts as agreeing with a regression.
        screen: an estimate further than this from no change, after the screen, is confirmed in fresh processes.

    Error rates (probabilities):
        alpha: of calling any case of a run a regression when none is slower than `tolerated`; also the share of false ones
            among the improvements that a run lists.
        miss: of passing a case whose slowdown is `promise`; spent once by the screen, once by the confirmation.
        power: with which the smallest detectable effect that is reported would be called a regression.

    How much is measured:
        screen_pairs: pairs of one case in the screen.
        confirm_pairs: pairs of one case in each replicate of the confirmation.
        noisy_pairs: the same for further replicates of a case that the noise of its pairs keeps undecided.
        replicates: fresh replicates of a first confirmation.
        max_replicates: replicates after which an undecided case is called inconclusive; they double until then.
        controls: how many cases with identical code are timed all the same, as negative controls.
        min_launches, max_launches, turn_seconds: one turn of one side is as many launches as fit in `turn_seconds`, but
            at least `min_launches` and at most `max_launches`; both sides of a case get the same number. Where several
            launches make one time (recordings, short calls), these are numbers of times.
        warm_up_seconds: launches before the first turn of a case in a fresh process.

    Patience (seconds; beyond it the worker is killed and the case is broken):
        import_timeout: start of a worker, with the imports of package and suite.
        compile_timeout: compiling and setting up one case.
        check_timeout: the correctness check of one case.
        measure_timeout: one turn of one case.

    Other:
        allow_removed: globs of case ids (fnmatch) that the head may drop without making the run inconclusive.
        bias: the bias of a fresh pair of processes, until this machine has been calibrated: per target, of launches timed
            one by one; "recorded", of launches timed in recordings; "call", of calls, which the host's clock times.
        emulate: chips that are not here and whose changed kernels are executed before anything is timed, if the suite has
            problems for them and there is a clang (docs/emulator.md); empty: none.
        emulate_seconds: about how long that may take in all; kernels that there is no time for are named.
        noise_profile: file in the repository, as `tilegate calibrate` writes it, with the noise of the machine that gates;
            None: the built-in `bias` and numbers of pairs.
        most_disturbed: a run of whose pairs a larger share was disturbed (throttling, another process) says nothing.
        overrides: other values for some cases; of those whose glob fits a case the first applies, alone. The report
            names every case that is judged by other thresholds.
    """

    package: str
    suite: str

    promise: float = 0.03
    tolerated: float = 0.01
    regression: float = 0.018
    replicate_regression: float = 0.0125
    screen: float = 0.007

    alpha: float = 0.005
    miss: float = 0.01
    power: float = 0.95

    screen_pairs: int = 8
    confirm_pairs: int = 16
    noisy_pairs: int = 64
    replicates: int = 2
    max_replicates: int = 8
    controls: int = 4
    min_launches: int = 3
    max_launches: int = 30
    turn_seconds: float = 0.003
    warm_up_seconds: float = 0.2

    import_timeout: float = 300.0
    compile_timeout: float = 600.0
    check_timeout: float = 300.0
    measure_timeout: float = 120.0

    allow_removed: tuple[str, ...] = ()
    emulate: tuple[str, ...] = ("gfx942",)
    emulate_seconds: float = 300.0
    bias: Mapping[str, Bias] = field(default_factory=_default_bias, hash=False)
    noise_profile: str | None = None
    most_disturbed: float = 0.25
    overrides: tuple[Override, ...] = ()

    def override_of(self, case: str) -> Override | None:
        """Return the override that applies to a case, if any does."""
        return next((o for o in self.overrides if fnmatch.fnmatchcase(case, o.cases)), None)

    def promising(self, promise: float) -> GateConfig:
        """Return the configuration with another promise, all sizes of effects in proportion, and the same numbers of pairs."""
        sizes: dict[str, Any] = {key: promise * share for key, share in _PROPORTIONS.items()}
        return dataclasses.replace(self, promise=promise, **sizes)

    def for_case(self, case: str) -> GateConfig:
        """Return the configuration by which a case is measured and judged."""
        override = self.override_of(case)
        return self if override is None else override.applied_to(self)

    def with_bias_scaled(self, factor: float) -> GateConfig:
        """Return the configuration with every expected bias multiplied by `factor`."""
        scaled = {of: Bias(bias.seconds * factor, bias.relative * factor) for of, bias in self.bias.items()}
        return dataclasses.replace(self, bias=scaled)

    def looks(self) -> int:
        """Return how often a case may be decided during its confirmation."""
        return len(self.looked_at())

    def looked_at(self) -> tuple[int, ...]:
        """Return after how many replicates of its confirmation a case is looked at: they double up to max_replicates."""
        found = [self.replicates]
        while found[-1] < self.max_replicates:
            found.append(min(2 * found[-1], self.max_replicates))
        return tuple(found)


# Lowest and highest value of every number. At least 8 screen pairs: with 7, an exact one-sided interval at the default
# 1 % would be the two extremes. At least 2 replicates: one fresh replicate alone repeats its own bias 1.7 % of the time.
_RANGES: Mapping[str, tuple[float, float]] = {
    "promise": (0.001, 0.5),
    "tolerated": (0.0, 0.5),
    "regression": (0.001, 0.5),
    "replicate_regression": (0.0, 0.5),
    "screen": (0.0, 0.5),
    "alpha": (1e-6, 0.1),
    "miss": (0.001, 0.1),
    "power": (0.5, 0.999),
    "screen_pairs": (8, 1000),
    "confirm_pairs": (8, 1000),
    "noisy_pairs": (8, 1000),
    "replicates": (2, 64),
    "max_replicates": (2, 64),
    "controls": (0, 1000),
    "min_launches": (1, 10_000),
    "max_launches": (1, 10_000),
    "turn_seconds": (0.0, 60.0),
    "warm_up_seconds": (0.0, 600.0),
    "import_timeout": (1.0, _LONGEST),
    "compile_timeout": (1.0, _LONGEST),
    "check_timeout": (1.0, _LONGEST),
    "measure_timeout": (1.0, _LONGEST),
    "most_disturbed": (0.0, 1.0),
    "emulate_seconds": (1.0, _LONGEST),
}
THRESHOLDS = ("promise", "tolerated", "regression", "replicate_regression", "screen")
"""The sizes of effects that decide a case's verdict."""

# Of the promise: the proportions of the defaults.
_PROPORTIONS: Mapping[str, float] = {
    "tolerated": 1 / 3,
    "regression": 0.6,
    "replicate_regression": 5 / 12,
    "screen": 7 / 30,
}
_FINE = 0.02
# Chosen by simulation (docs/gate-proof.md, "One percent").
_FINER: Mapping[str, int] = {"screen_pairs": 16, "confirm_pairs": 24, "max_replicates": 16}

# What may differ from case to case. Error rates are shared by all cases of a run, and so are controls and imports.
_OVERRIDABLE = (
    *THRESHOLDS,
    *("screen_pairs", "confirm_pairs", "noisy_pairs", "replicates", "max_replicates"),
    *("min_launches", "max_launches", "turn_seconds", "warm_up_seconds"),
    *("compile_timeout", "check_timeout", "measure_timeout"),
)


def load_config(pyproject: str, name: str = "pyproject.toml") -> GateConfig:
    """Read the configuration from the text of a pyproject.toml, which messages call `name`.

    Raises:
        UsageError: no TOML, no `[tool.tilegate]`, an unknown key or a bad value; the message lists what is allowed.
    """
    try:
        document = tomllib.loads(pyproject.removeprefix("\ufeff"))  # a byte order mark, as editors on Windows write it
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{name} is not valid TOML: {error}") from None
    except RecursionError:
        raise UsageError(f"{name} is nested too deeply and was not read") from None
    tool = document.get("tool", {})
    table = tool.get("tilegate") if isinstance(tool, dict) else None
    if not isinstance(table, dict):
        raise UsageError(
            f"{name} has no [tool.tilegate] table; add one with the two import names, for example\n"
            '[tool.tilegate]\npackage = "mykernels"\nsuite = "benchmarks"'
        )
    return from_dict(table, f"{name}: [tool.tilegate]")


def from_dict(table: Mapping[str, Any], where: str = "config") -> GateConfig:
    """Build the configuration from plain values, as in TOML or in a samples file.

    Args:
        table: the keys that are set; `package` and `suite` must be there, the rest has defaults.
        where: named in error messages.

    Raises:
        UsageError: an unknown or missing key, a bad value, or values that contradict each other.
    """
    known = [f.name for f in dataclasses.fields(GateConfig)]
    for key in table:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f", did you mean {near[0]!r}?" if near else ""
            raise UsageError(f"{where}: unknown key {shown(key)}{hint}; known keys: {', '.join(known)}")
    values: dict[str, Any] = {key: _value(key, value, where) for key, value in table.items()}
    values = _following(values) | values
    for key in ("package", "suite"):
        if key not in values:
            raise UsageError(f"{where}: the key {key!r} is missing; it is the import name of the {key}")
    config = GateConfig(**values)
    _check_together(config, where)
    for number, override in enumerate(config.overrides, 1):
        _check_together(override.applied_to(config), f"{where}: overrides {number}")
    return config


def to_dict(config: GateConfig) -> dict[str, Any]:
    """Return the configuration as plain JSON values; `from_dict` reads them back to an equal configuration."""
    values: dict[str, Any] = {f.name: getattr(config, f.name) for f in dataclasses.fields(config)}
    values["allow_removed"] = list(config.allow_removed)
    values["emulate"] = list(config.emulate)
    values["overrides"] = [{"cases": override.cases, **override.values} for override in config.overrides]
    values["bias"] = {target: dataclasses.asdict(bias) for target, bias in config.bias.items()}
    return values


def _value(key: str, value: object, where: str) -> object:
    if key in ("package", "suite"):
        if not isinstance(value, str) or not all(part.isidentifier() for part in value.split(".")):
            raise UsageError(f"{where}: {key} must be an import name such as 'mykernels', not {shown(value)}")
        return value
    if key == "allow_removed":
        if not isinstance(value, list | tuple) or not all(isinstance(glob, str) and glob for glob in value):
            raise UsageError(f"{where}: {key} must be a list of globs such as ['attention.*'], not {shown(value)}")
        return tuple(value)
    if key == "emulate":
        if not isinstance(value, list | tuple) or not all(arch in EMULATED for arch in value):
            raise UsageError(f"{where}: {key} must be a list of {', '.join(EMULATED)}, not {shown(value)}")
        return tuple(dict.fromkeys(value))
    readers = {"noise_profile": _path, "bias": _bias, "overrides": _overrides}
    if key in readers:
        return readers[key](value, where)
    return _number(key, value, where, *_RANGES[key])


def _following(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return what follows from a promise for the keys that are not set beside it.

    Sizes of effects keep their proportion to the promise. A finer promise than the usual one needs more pairs, since the same
    noise is a larger part of it, and more replicates, since so is the same bias.
    """
    promise = values.get("promise")
    if promise is None:
        return {}
    finer = _FINER if promise < _FINE else {}
    return {**{key: promise * share for key, share in _PROPORTIONS.items()}, **finer}


def _path(value: object, where: str) -> str | None:
    if value is None:  # as `to_dict` writes it
        return None
    if not isinstance(value, str) or not value or PurePosixPath(value).is_absolute() or ".." in value.split("/"):
        raise UsageError(
            f"{where}: noise_profile must be the path of a file in the repository, such as 'noise.json', not {shown(value)}"
        )
    return value


def _number(key: str, value: object, where: str, low: float, high: float) -> float:
    whole = key in _RANGES and typing.get_type_hints(GateConfig)[key] is int
    kind = "a whole number" if whole else "a number"
    fitting = isinstance(value, int) if whole else isinstance(value, int | float)
    if isinstance(value, bool) or not fitting or not low <= typing.cast(float, value) <= high:
        note = " (a fraction: 3 % is 0.03)" if key in THRESHOLDS else ""
        raise UsageError(f"{where}: {key} must be {kind} from {low:g} to {high:g}{note}, not {shown(value)}")
    return typing.cast(float, value) if whole else float(typing.cast(float, value))


def _bias(value: object, where: str) -> Mapping[str, Bias]:
    if not isinstance(value, Mapping):
        raise UsageError(f"{where}: bias must be a table of targets, not {shown(value)}")
    biases = dict(_default_bias())
    for target, entry in value.items():
        if target not in BIASED:
            raise UsageError(f"{where}: bias of unknown target {shown(target)}; targets: {', '.join(BIASED)}")
        if not isinstance(entry, Mapping) or set(entry) != {"seconds", "relative"}:
            raise UsageError(f"{where}: bias.{target} must be {{seconds = …, relative = …}}, not {shown(entry)}")
        biases[target] = Bias(
            seconds=_number(f"bias.{target}.seconds", entry["seconds"], where, 0.0, 0.01),
            relative=_number(f"bias.{target}.relative", entry["relative"], where, 0.0, 0.5),
        )
    return biases


def _overrides(value: object, where: str) -> tuple[Override, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(table, Mapping) for table in value):
        raise UsageError(f"{where}: overrides must be tables [[tool.tilegate.overrides]], not {shown(value)}")
    found = []
    for number, table in enumerate(value, 1):
        at = f"{where}: overrides {number}"
        glob = table.get("cases")
        if not isinstance(glob, str) or not glob:
            raise UsageError(f"{at}: cases must be a glob over case ids such as '*decode*', not {shown(glob)}")
        for key in table:
            if key != "cases" and key not in _OVERRIDABLE:
                near = difflib.get_close_matches(key, _OVERRIDABLE, n=1)
                hint = f", did you mean {near[0]!r}?" if near else ""
                raise UsageError(
                    f"{at}: {shown(key)} cannot be set for some cases{hint}; {', '.join(_OVERRIDABLE)} can"
                )
        values = {key: _number(key, table[key], at, *_RANGES[key]) for key in table if key != "cases"}
        values = _following(values) | values
        if not values:
            raise UsageError(f"{at} ({shown(glob)}) sets nothing; it can set {', '.join(_OVERRIDABLE)}")
        found.append(Override(glob, values))
    return tuple(found)


def _check_together(config: GateConfig, where: str) -> None:
    if not config.tolerated <= config.replicate_regression <= config.regression < config.promise:
        raise UsageError(
            f"{where}: tolerated <= replicate_regression <= regression < promise must hold, not "
            f"{config.tolerated:g}, {config.replicate_regression:g}, {config.regression:g}, {config.promise:g}"
        )
    if config.screen >= config.regression:
        raise UsageError(f"{where}: screen ({config.screen:g}) must be below regression ({config.regression:g})")
    if config.max_replicates < config.replicates:
        raise UsageError(
            f"{where}: max_replicates ({config.max_replicates}) must be at least replicates ({config.replicates})"
        )
    if config.noisy_pairs < config.confirm_pairs:
        raise UsageError(
            f"{where}: noisy_pairs ({config.noisy_pairs}) must be at least confirm_pairs ({config.confirm_pairs})"
        )
    if config.max_launches < config.min_launches:
        raise UsageError(
            f"{where}: max_launches ({config.max_launches}) must be at least min_launches ({config.min_launches})"
        )
    if 2.0**-config.screen_pairs > config.miss:
        raise UsageError(f"{where}: {config.screen_pairs} screen_pairs cannot support miss = {config.miss:g}")
