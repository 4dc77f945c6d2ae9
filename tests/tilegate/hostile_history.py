"""A history whose every text is hostile."""

from history_records import commit, event

from tilegate.history.view import version_of

HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
HOSTILE_CASE = f"evil.Case.latency_x('{HOSTILE}', '\u202egnp.exe')"


def kept(case=HOSTILE_CASE):
    """A history of four commits in two environments whose every text is hostile; the code changes at the second and the last."""
    found = [
        {**commit("a"), "subject": HOSTILE, "author": HOSTILE},
        {**commit("b", "a"), "subject": "=cmd|' /C calc'!A0", "author": HOSTILE},
        {**commit("c", "b"), "subject": "", "author": ""},
        {**commit("d", "c"), "subject": HOSTILE, "author": HOSTILE},
        event("release", HOSTILE, to="a" * 8),
    ]
    for sha, identity in zip("abcd", ("x", "y", "y", "z"), strict=True):
        cases = {case: {"identity": identity, "method": "1", "work": {"flops": 1e9, "bytes": 1e6, "shape": HOSTILE}}}
        failed = {f"{case} ": HOSTILE}
        found.append(
            {
                "kind": "versions",
                "commit": sha * 8,
                "target": "cuda",
                "toolchain": HOSTILE,
                "cases": cases,
                "failed": failed,
            }
        )
    numbers = {case: {HOSTILE: 128.0, "vgprs": 64.0}}
    found += [
        {"kind": "figures", "commit": sha * 8, "chip": HOSTILE, "source": "isa", "toolchain": "t", "created": "2026-02-01",
         "cases": {case: {name: value + at for name, value in numbers[case].items()}}}
        for at, sha in enumerate("ab")
    ]  # fmt: skip
    found.append(
        {"kind": "run", "run": HOSTILE, "environment": "e1", "card": HOSTILE, "created": "2026-02-01", "base_commit": None,
         "head_commit": None, "controls": 2, "shift": 0.001, "worst": 0.002, "scatter": 1.5, "bias": 0.001, "pairs": 64,
         "disturbed": 3, "seconds": 60.0}
    )  # fmt: skip
    for environment, base, head, ratio in (("e1", "x", "y", 0.05), ("e2", "y", "z", 0.03)):
        found += [
            {"kind": "environment", "fingerprint": environment, "described": {"device": {"name": environment + HOSTILE}}},
            {
                "kind": "comparison", "case": case, "method": "1", "base": version_of(base, "1"), "head": version_of(head, "1"),
                "base_commit": None, "head_commit": None, "log_ratio": ratio, "error": 0.001, "freedom": 3.0, "replicates": 2,
                "pairs": 32, "base_seconds": 1e-4, "head_seconds": 1.05e-4, "environment": environment, "card": HOSTILE,
                "created": "2026-02-01", "run": HOSTILE, "cause": [HOSTILE],
                "figures": {"base": {HOSTILE: 1.0}, "head": {HOSTILE: 2.0}},
            },
        ]  # fmt: skip
    return found
