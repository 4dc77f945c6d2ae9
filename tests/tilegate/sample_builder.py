"""Builds small samples documents for tests."""

import json

import numpy as np

from tilegate import config

CONFIG = config.GateConfig(package="mykernels", suite="benchmarks")
HEX = "0123456789abcdef"


def side(digest="a", *, status="ok", failure=None, checked=True):
    if status == "failed" and failure is None:
        failure = {"kind": "crash", "message": "it died", "log": None}
    return {
        "status": status,
        "failure": failure,
        "identity": None if digest is None else digest * 64,
        "resources": None,
        "checked": checked,
        "host_state": [],
    }


def pairs(count, effect, rng, *, seconds=1e-4, noise=0.003, launches=3):
    """`count` pairs in alternating order whose head takes 1 + effect times as long."""
    ratios = rng.normal(np.log1p(effect), noise, count)
    return [
        {"order": i % 2, "base": [seconds] * launches, "head": [seconds * float(np.exp(r))] * launches}
        for i, r in enumerate(ratios)
    ]


def case(
    effect=0.0, *, confirm=0, role="gated", base=None, head=None, seed=0, screen=True, screen_effect=None, **options
):
    rng = np.random.default_rng(seed)
    stages = [("screen", CONFIG.screen_pairs)] * screen + [("confirm", CONFIG.confirm_pairs)] * confirm
    return {
        "benchmark": "attention.Forward.latency_forward",  # until `document` names it
        "params": [],
        "version": "1",
        "base": base or side("a"),
        "head": head or side("b" if role == "gated" else "a"),
        "role": role,
        "replicates": [
            {
                "replicate": i,
                "stage": stage,
                "session": f"{stage}-{i}",
                "pairs": pairs(
                    count,
                    screen_effect if stage == "screen" and screen_effect is not None else effect,
                    rng,
                    **options,
                ),
            }
            for i, (stage, count) in enumerate(stages)
        ],
    }


def _named(name):
    benchmark, bracket, rest = name.partition("(")
    return {"benchmark": benchmark, "params": [rest[:-1]] if bracket else []}


def document(cases, *, finished="2026-01-01T00:05:00Z", target="cuda", configuration=CONFIG, **optional):
    revision = {"rev": "main", "commit": "0" * 40, "tree": "1" * 40}
    built = {
        "schema": "tilegate-samples/1",
        "tilegate": "0.1.0",
        "created": "2026-01-01T00:00:00Z",
        "finished": finished,
        "base": revision,
        "head": {**revision, "rev": "topic"},
        "target": target,
        "tier": "pr",
        "filter": None,
        "seed": 1,
        "config": config.to_dict(configuration),
        "environment": {"machine": {"cpu": "a CPU"}, "fingerprint": "f" * 64},
        "cases": {name: {**built, **_named(name)} for name, built in cases.items()},
        **optional,
    }
    return json.loads(json.dumps(built))  # no list shared between two places
