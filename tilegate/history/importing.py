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
from typing import Any

from tilegate import files
from tilegate.config import from_dict
from tilegate.files import UsageError
from tilegate.history.records import Comparison, Environment, Observation, Record
from tilegate.history.view import version_of
from tilegate.judging import rules
from tilegate.judging.measured import UnsoundError, measured
from tilegate.schemas.samples import Samples

PROCESS_ERROR = 0.015
"""Standard error, in log ratio, of an absolute time: fresh processes of one code on an H200 differ by 0.6 to 2.5 % (one standard
deviation; docs/history.md). What one process says of its own scatter knows nothing of that."""


def from_samples(samples: Samples) -> Iterator[Record]:
    """Yield an environment and a comparison for each case of a gate that was timed on both sides.

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
    )
    for name, case in samples["cases"].items():
        before, after = case["base"]["identity"], case["head"]["identity"]
        if case["role"] != "gated" or before is None or after is None or before == after:
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
            run=run.hexdigest()[:16],
        )
        if case.get("cause"):
            record["cause"] = [str(line) for line in case["cause"]][:8]
        yield record


def from_file(path: Path) -> Iterator[Record]:
    """Yield the records of one file: samples.json, an asv result, or pytest-benchmark's JSON.

    Raises:
        UsageError: it is none of these.
    """
    document = files.load_json(path)
    if isinstance(document, dict) and str(document.get("schema", "")).startswith("tilegate-samples/"):
        yield from from_samples(files.load_samples(path))
    elif isinstance(document, dict) and {"commit_hash", "result_columns", "results"} <= document.keys():
        yield from from_asv(document)
    elif isinstance(document, dict) and {"benchmarks", "machine_info"} <= document.keys():
        yield from from_pytest_benchmark(document)
    else:
        raise UsageError(f"{path} is neither samples of a gate, nor a result of asv, nor JSON of pytest-benchmark")


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
