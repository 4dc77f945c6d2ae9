"""Records from what others wrote: samples of a gate, results of asv, JSON of pytest-benchmark."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from tilegate import files
from tilegate.config import GateConfig, from_dict
from tilegate.files import UsageError
from tilegate.history.records import Comparison, Environment, Figures, Observation, Record, Run
from tilegate.history.view import version_of
from tilegate.judging import rules
from tilegate.judging.decision import Evidence
from tilegate.judging.measured import Measured, UnsoundError, measured
from tilegate.schemas.samples import Samples

PROCESS_ERROR = 0.015
"""Standard error, in log ratio, of an absolute time: fresh processes of one code on an H200 differ by 0.6 to 2.5 % (one standard
deviation; docs/history.md). What one process says of its own scatter knows nothing of that."""

SIDES: tuple[Literal["base", "head"], ...] = ("base", "head")
_MOST_NUMBERS = 16  # of a side, that a comparison keeps
_ISA_FIGURES = (
    *(
        "lds",
        "vgprs",
        "agprs",
        "registers",
        "sgprs",
        "vgpr_spills",
        "sgpr_spills",
        "scratch",
        "waves",
        "workgroups",
        "code_bytes",
    ),
)


def from_samples(samples: Samples) -> Iterator[Record]:
    """Yield an environment, a comparison for each case of a gate that was timed on both sides, and how fit the machine was.

    Cases whose code is the same (controls) are a comparison of a version with itself, which says nothing of levels: left out.
    So are calls, whose identity is the whole package: every commit would be a version of its own, and the network one chain.

    Args:
        samples: that fit their schema.
    """
    environment = samples["environment"]
    config = from_dict(samples["config"], "config in the samples")
    terms = rules.rules_of(samples, config, rules.profile_of(samples)).terms
    fingerprint = str(environment["fingerprint"])
    yield Environment(kind="environment", fingerprint=fingerprint, described=dict(environment))
    card = str(environment.get("machine", {}).get("id") or "unknown")
    run = hashlib.sha256(
        f"{samples['created']}{samples['seed']}{samples['base']['tree']}{samples['head']['tree']}".encode()
    ).hexdigest()[:16]
    health = _Health()
    for name, case in samples["cases"].items():
        before, after = case["base"]["identity"], case["head"]["identity"]
        if case["role"] not in ("gated", "control") or before is None or after is None:
            continue
        own = terms[name].config
        try:
            m = measured(case, own, samples["target"])
        except UnsoundError:
            continue
        if not m.screen or m.base_seconds is None or m.head_seconds is None:
            continue
        evidence = m.weigh(own)
        if not (math.isfinite(evidence.interval.estimate) and 0 < evidence.error < math.inf):
            continue
        health.add(m, evidence, control=before == after)
        if case["role"] != "gated" or before == after:
            continue
        record = Comparison(
            kind="comparison",
            case=name,
            method=case["version"],
            base=version_of(before, case["version"]),
            head=version_of(after, case["version"]),
            base_commit=samples["base"]["commit"],
            head_commit=samples["head"]["commit"],
            log_ratio=evidence.interval.estimate,
            error=evidence.error,
            freedom=evidence.freedom if math.isfinite(evidence.freedom) and evidence.freedom > 0 else None,
            replicates=len(m.counting(own)),
            pairs=evidence.pairs,
            base_seconds=m.base_seconds,
            head_seconds=m.head_seconds,
            environment=fingerprint,
            card=card,
            created=samples["created"],
            run=run,
        )
        if math.isfinite(evidence.bias):
            record["bias"] = evidence.bias
        if own.tolerated != GateConfig.tolerated:
            record["tolerated"] = own.tolerated
        if disturbed := sum(m.disturbed.values()):
            record["disturbed"] = disturbed
        numbers = [_numbers(case[side]["resources"]) for side in SIDES]
        if numbers[0] != numbers[1]:
            record["figures"] = dict(zip(SIDES, numbers, strict=True))
        if case.get("cause"):
            record["cause"] = [str(line) for line in case["cause"]][:8]
        yield record
    if health.pairs:
        yield health.record(samples, run, fingerprint, card)


class _Health:
    """Gathers over the cases of a run how fit the machine was."""

    def __init__(self) -> None:
        self.pairs = self._disturbed = 0
        self._controls: list[tuple[float, float]] = []
        self._biases: list[float] = []

    def add(self, m: Measured, evidence: Evidence, *, control: bool) -> None:
        self.pairs += m.pairs
        self._disturbed += sum(m.disturbed.values())
        if math.isfinite(evidence.bias):
            self._biases.append(evidence.bias)
        if control:
            self._controls.append((evidence.interval.estimate, evidence.error))

    def record(self, samples: Samples, run: str, fingerprint: str, card: str) -> Run:
        weights = [error**-2 for _, error in self._controls]
        shift = scatter = worst = None
        if self._controls:
            weighted = zip(weights, self._controls, strict=True)
            shift = sum(weight * estimate for weight, (estimate, _) in weighted) / sum(weights)
            scatter = math.sqrt(statistics.fmean((estimate / error) ** 2 for estimate, error in self._controls))
            worst = max((estimate for estimate, _ in self._controls), key=abs)
        return Run(
            kind="run",
            run=run,
            environment=fingerprint,
            card=card,
            created=samples["created"],
            base_commit=samples["base"]["commit"],
            head_commit=samples["head"]["commit"],
            controls=len(self._controls),
            shift=shift,
            worst=worst,
            scatter=min(scatter, 49.0) if scatter is not None else None,
            bias=statistics.median(self._biases) if self._biases else None,
            pairs=self.pairs,
            disturbed=self._disturbed,
            seconds=float(sum(samples.get("stages", {}).values())),
        )


def _numbers(resources: Mapping[str, Any] | None) -> dict[str, float]:
    """The numbers that a suite states of a case's kernels; a name for each kernel only where there are several."""
    found: dict[str, float] = {}
    for kernel, stated in (resources or {}).items():
        for key, value in stated.items() if isinstance(stated, dict) else ():
            if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and key:
                found[(f"{kernel} {key}" if len(resources or {}) > 1 else key)[:200]] = value
    return dict(sorted(found.items())[:_MOST_NUMBERS])


def from_file(path: Path) -> Iterator[Record]:
    """Yield the records of one file: samples.json, JSON of `isa`, `emulate` or `profile`, an asv result, or pytest-benchmark's JSON.

    Raises:
        UsageError: it is none of these.
    """
    document = files.load_json(path)
    if isinstance(document, dict) and str(document.get("schema", "")).startswith("tilegate-samples/"):
        yield from from_samples(files.load_samples(path))
    elif isinstance(document, dict) and str(document.get("schema", "")).startswith(
        ("tilegate-isa/", "tilegate-emulate/")
    ):
        yield from from_survey(document)
    elif isinstance(document, dict) and str(document.get("schema", "")).startswith("tilegate-profile/"):
        files.check(document, "profile-1.json")
        yield from from_profile(document)
    elif isinstance(document, dict) and {"commit_hash", "result_columns", "results"} <= document.keys():
        yield from from_asv(document)
    elif isinstance(document, dict) and {"benchmarks", "machine_info"} <= document.keys():
        yield from from_pytest_benchmark(document)
    else:
        raise UsageError(
            f"{path} is neither samples of a gate, nor JSON of `tilegate isa`, `emulate` or `profile`, nor a result of asv, nor JSON of pytest-benchmark"
        )


def from_survey(document: Mapping[str, Any]) -> Iterator[Record]:
    """Yield what `tilegate isa --json` or `tilegate emulate --counters --json` found out of a commit, a record for each chip.

    Raises:
        UsageError: it is of files that are in no commit, or is not whole.
    """
    source: Literal["isa", "emulator"] = "isa" if str(document["schema"]).startswith("tilegate-isa/") else "emulator"
    try:
        commit = document["revision"]["commit"]
        if commit is None:
            raise UsageError(f"these figures are of the files as they were, not of a commit; {source} --rev names one")
        for chip, kernels in document["kernels"].items():
            cases: dict[str, dict[str, float]] = {}
            for kernel in kernels.values():
                numbers = _isa_numbers(kernel) if source == "isa" else _emulated_numbers(kernel)
                for case in kernel["cases"] if numbers else ():
                    cases[case] = numbers
            if cases:
                yield Figures(
                    kind="figures",
                    commit=commit,
                    chip=chip,
                    source=source,
                    toolchain=_toolchain(document, chip),
                    created=str(document.get("created") or "unknown"),
                    cases=cases,
                )
    except (KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"this JSON of `tilegate {source}` is not whole: {error!r}") from None


def from_profile(document: Mapping[str, Any]) -> Iterator[Record]:
    """Yield what `tilegate profile` read of a case's counters at each revision, and what the emulator counted beside them.

    Raises:
        UsageError: it is of files that are in no commit.
    """
    case, chip = document["case"], document["environment"]["device"]["arch"]
    sides = [document[role] for role in SIDES if role in document]
    if not sides or any(side["revision"]["commit"] is None for side in sides):
        raise UsageError(
            "these counters are of the files as they were, not of a commit; tilegate profile --rev names one"
        )
    for side in sides:
        several = len(side["kernels"]) > 1
        counters = {
            (f"{kernel['kernel']}: {name}" if several else name)[:200]: float(term["value"])
            for kernel in side["kernels"]
            for name, term in kernel["terms"].items()
            if term["value"] is not None
        }
        counted = side.get("emulated")
        found: tuple[tuple[Literal["counters", "emulator"], dict[str, float], str], ...] = (
            ("counters", counters, str(side["tool"])[:500]),
            (
                "emulator",
                dict(counted["total"]) if isinstance(counted, dict) else {},
                "as tilegate profile found it",
            ),
        )
        for source, numbers, toolchain in found:
            if numbers:
                yield Figures(
                    kind="figures",
                    commit=side["revision"]["commit"],
                    chip=chip,
                    source=source,
                    toolchain=toolchain,
                    created=str(document.get("created") or "unknown"),
                    cases={case: numbers},
                )


def _isa_numbers(kernel: Mapping[str, Any]) -> dict[str, float]:
    figures = kernel["figures"] or {}
    return {key: figures[key] for key in _ISA_FIGURES if isinstance(figures.get(key), int | float)}


def _emulated_numbers(kernel: Mapping[str, Any]) -> dict[str, float]:
    """Counts of the first problem that ran with counters; how many findings there are over all problems."""
    numbers: dict[str, float] = {"findings": sum(len(trial["findings"]) for trial in kernel["problems"].values())}
    for trial in kernel["problems"].values():
        for counted in (trial.get("counters") or {}).values():
            for key, value in counted["total"].items():
                numbers[key] = numbers.get(key, 0) + value
        if trial.get("counters"):
            break
    return numbers


def _toolchain(document: Mapping[str, Any], chip: str) -> str:
    stated = (document.get("toolchains") or {}).get(chip) or document.get("toolchain") or "unknown"
    text = stated if isinstance(stated, str) else json.dumps(stated, sort_keys=True)
    return text[:500]


def from_asv(result: Mapping[str, Any]) -> Iterator[Record]:
    """Yield an observation for each timed case of an asv result file (version 2).

    Args:
        result: ``{"commit_hash", "date" (ms), "env_name", "params", "result_columns", "results": {benchmark: row}}``; rows of
            tracked numbers, whose values are no seconds, are left out.
    """
    columns: Sequence[str] = result["result_columns"]
    described = {"env_name": result.get("env_name", ""), **dict(result.get("params") or {})}
    # Of the machine only what times depend on and what an update of its kernel or a restart leaves alone.
    described = {key: str(value) for key, value in described.items() if key not in ("machine", "ram")}
    if "os" in described:
        described["os"] = described["os"].partition(" ")[0]
    fingerprint = hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()
    yield Environment(kind="environment", fingerprint=fingerprint, described={"source": "asv", **described})
    created = datetime.fromtimestamp(float(result["date"]) / 1000, UTC).isoformat(timespec="seconds")
    for benchmark, values in result["results"].items():
        row = dict(zip(columns, values, strict=False))
        if not benchmark.rpartition(".")[2].startswith(("time_", "latency_", "call_")):
            continue
        combinations = list(itertools.product(*(row.get("params") or [])))
        for position, seconds in enumerate(row.get("result") or []):
            if isinstance(seconds, int | float) and math.isfinite(seconds) and seconds > 0:
                shown = combinations[position] if position < len(combinations) else ()
                yield Observation(
                    kind="observation",
                    case=f"{benchmark}({', '.join(shown)})" if shown else benchmark,
                    method=str(row.get("version") or "unknown"),
                    commit=str(result["commit_hash"]),
                    seconds=float(seconds),
                    error=PROCESS_ERROR,
                    environment=fingerprint,
                    created=created,
                    source="asv",
                )


def from_pytest_benchmark(document: Mapping[str, Any]) -> Iterator[Record]:
    """Yield an observation for each benchmark of pytest-benchmark's JSON: the median of its rounds.

    Raises:
        UsageError: it does not say which commit it is of (`--benchmark-json` inside a git repository does).
    """
    commit = (document.get("commit_info") or {}).get("id")
    if not commit:
        raise UsageError("this JSON of pytest-benchmark does not say of which commit it is (commit_info.id)")
    machine = document["machine_info"]
    described = {
        "source": "pytest-benchmark",
        "cpu": str((machine.get("cpu") or {}).get("brand_raw", "")),
        "python": str(machine.get("python_version", "")),
        "system": str(machine.get("system", "")),
    }
    fingerprint = hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()
    yield Environment(kind="environment", fingerprint=fingerprint, described=described)
    for benchmark in document["benchmarks"]:
        stats = benchmark["stats"]
        seconds = float(stats.get("median") or statistics.median(stats.get("data") or [0.0]))
        if math.isfinite(seconds) and seconds > 0:
            yield Observation(
                kind="observation",
                case=str(benchmark["fullname"]),
                method="1",
                commit=str(commit),
                seconds=seconds,
                error=PROCESS_ERROR,
                environment=fingerprint,
                created=str(document.get("datetime", ""))[:32] or "unknown",
                source="pytest-benchmark",
            )
