"""Small records of a history, for its tests and those of the dashboard: shas are a letter, repeated."""

import math

from tilegate.history.view import version_of

CASE = "attention.Forward.latency_forward('a', 'fixed')"


def commit(sha, *parents, date="2026-01-01T00:00:00+00:00"):
    return {
        "kind": "commit",
        "sha": sha * 8,
        "parents": [p * 8 for p in parents],
        "author": "A",
        "subject": sha,
        "date": date,
    }


def code(sha, identity, case=CASE, method="1", failed=None):
    cases = {} if identity is None else {case: {"identity": identity, "method": method}}
    failures = {case: failed} if failed else {}
    return {
        "kind": "versions",
        "commit": sha * 8,
        "target": "cuda",
        "toolchain": "t",
        "cases": cases,
        "failed": failures,
    }


def comparison(
    base, head, log_ratio, *, error=0.001, case=CASE, method="1", environment="e1", created="2026-01-02", card="c"
):
    return {
        "kind": "comparison", "case": case, "method": method, "base": version_of(base, method), "head": version_of(head, method),
        "base_commit": None, "head_commit": None, "log_ratio": log_ratio, "error": error, "freedom": None, "replicates": 2,
        "pairs": 32, "base_seconds": 1e-4, "head_seconds": 1e-4 * math.exp(log_ratio), "environment": environment, "card": card,
        "created": created, "run": "r",
    }  # fmt: skip


def event(what, about, **more):
    return {"kind": "event", "what": what, "about": about, "created": "2026-01-03", "author": "A", **more}
