"""`tilegate ci triage`: one issue for each kernel that got slower since the last release, closed when it has recovered.

A kernel is a benchmark of the suite; its cases share an issue. Works on the verdict of the nightly gate of main, which is
computed from the samples anew. What the history knows of a kernel, its entries of the inbox, is part of the issue: since which
commit, who looks after it. A kernel whose entries somebody has accepted or called invalid has no issue.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from tilegate.ci.github import Client
from tilegate.history import inbox
from tilegate.history.view import History
from tilegate.schemas.verdict import Entry, Verdict
from tilegate.showing.markup import change, code, duration

LABEL = "tilegate-regression"
_MARKER = "<!-- tilegate regression {} -->"
_BAD = ("regressed", "broken")
_GOOD = ("pass", "improved", "unchanged", "new", "waived")
_TOO_NOISY = "not-gating"  # says nothing for a kernel, and keeps no issue of its other cases open forever
_MOST_ROWS = 50


@dataclass(frozen=True)
class Triage:
    """What was done.

    Attributes:
        opened, updated, closed: numbers of issues.
    """

    opened: tuple[int, ...] = ()
    updated: tuple[int, ...] = ()
    closed: tuple[int, ...] = ()


def publish(
    client: Client,
    verdict: Verdict,
    base_name: str,
    url: str,
    *,
    history: History | None = None,
    today: date | None = None,
) -> Triage:
    """Open, update and close the issues of a verdict.

    Nothing is opened or closed where the machine, not a kernel, is in doubt: on a verdict of "environment-invalid", or
    after an interrupted run. An issue is closed only when every case of its kernel that can be gated is known to be fine.

    Args:
        client: may write issues.
        verdict: of main against the last release (schemas/verdict-1.json).
        base_name: how people call the release.
        url: of the run.
        history: of the branch, if there is one.
        today: for acceptances, which have a last day.
    """
    if verdict["verdict"] == "environment-invalid" or verdict["finished"] is None:
        return Triage()
    known = _known(client)
    entries = inbox.entries(history, today) if history is not None else []
    opened, updated, closed = [], [], []
    for benchmark, cases in _by_benchmark(verdict["cases"]).items():
        marker = _marker(benchmark)
        issue = known.get(marker)
        states = {case["verdict"] for case in cases.values()}
        here = [entry for entry in entries if entry.benchmark == benchmark and not entry.recovered]
        if here and not any(entry.open for entry in here) and _covered(cases, here):  # a person has decided
            if issue is not None:
                text = f"Settled in the inbox: {'; '.join(_in_words(history, entry) for entry in here)}."
                _close(client, issue, text, "not_planned")
                closed.append(issue["number"])
        elif states & set(_BAD):
            title = f"Slower since {base_name}: {benchmark}"[:200]
            body = _body(benchmark, cases, head=str(verdict["head"]["commit"]), base_name=base_name, url=url)
            body += "".join(f"\n- in the history: {_in_words(history, entry)}" for entry in here)
            if issue is None:
                opened.append(client.post("/issues", {"title": title, "body": body, "labels": [LABEL]})["number"])
            else:
                if issue["body"] != body:
                    client.patch(f"/issues/{issue['number']}", {"body": body})
                updated.append(issue["number"])
        elif issue is not None and states & set(_GOOD) and states <= {*_GOOD, _TOO_NOISY}:
            text = f"Recovered: no case of this kernel is slower than {code(base_name)} any more ([run]({url}))."
            _close(client, issue, text, "completed")
            closed.append(issue["number"])
    return Triage(tuple(opened), tuple(updated), tuple(closed))


def _covered(cases: Mapping[str, Entry], entries: Sequence[inbox.Entry]) -> bool:
    """Whether every case that is bad now is one of these entries', and no more slower than it was when that was decided."""
    known = {affected.case: affected.contrast.high for entry in entries for affected in entry.affected}
    return all(
        case["verdict"] == "regressed"
        and name in known
        and math.log(case["ratio"] or math.inf) < known[name] + inbox.SMALLEST
        for name, case in cases.items()
        if case["verdict"] in _BAD
    )


def _close(client: Client, issue: Mapping[str, Any], text: str, reason: str) -> None:
    client.post(f"/issues/{issue['number']}/comments", {"body": text})
    client.patch(f"/issues/{issue['number']}", {"state": "closed", "state_reason": reason})


def _in_words(history: History | None, entry: inbox.Entry) -> str:
    """Say what the inbox holds. Owner and note are what a person wrote, who need not be one of ours."""
    if history is None:
        return entry.id
    commits = f"{history.commits[entry.last_good].sha[:12]}..{history.commits[entry.first_bad].sha[:12]}"
    parts = [f"entry `{entry.id}`", "accepted, but expired" if entry.expired else entry.state]
    parts += [f"{change(math.exp(entry.worst.estimate))} since `{commits}`"]
    parts += [f"until {code(entry.expires)}"] if entry.expires else []
    parts += [f"owner {code(entry.owner)}"] if entry.owner else []
    return ", ".join(parts)


def _known(client: Client) -> dict[str, Any]:
    """Return the open issues that we have made, by their marker."""
    found: dict[str, Any] = {}
    for issue in client.pages("/issues", state="open", labels=LABEL, creator=client.bot):
        marker, _, _ = (issue["body"] or "").partition("\n")
        if "pull_request" not in issue and issue["user"] is not None and issue["user"]["login"] == client.bot:
            found.setdefault(marker.strip(), issue)
    return found


def _by_benchmark(cases: Mapping[str, Entry]) -> dict[str, dict[str, Entry]]:
    found: dict[str, dict[str, Entry]] = {}
    for name, case in cases.items():
        found.setdefault(name.partition("(")[0], {})[name] = case
    return found


def _marker(benchmark: str) -> str:
    # A hash: the name could close the comment that hides it.
    return _MARKER.format(hashlib.sha256(benchmark.encode()).hexdigest()[:16])


def _body(benchmark: str, cases: Mapping[str, Entry], *, head: str, base_name: str, url: str) -> str:
    bad = {name: case for name, case in cases.items() if case["verdict"] in _BAD}
    lines = [
        _marker(benchmark),
        f"{code(benchmark)} is slower on main than at {code(base_name)}: {len(bad)} of {len(cases)} cases.",
        "",
        "| | case | release | main | change | likely cause |",
        "|---|---|--:|--:|--:|---|",
    ]
    for name, case in sorted(bad.items(), key=lambda item: -(item[1]["ratio"] or 0.0))[:_MOST_ROWS]:
        lines.append(f"| {' | '.join(_row(name, case))} |")
    if len(bad) > _MOST_ROWS:
        lines.append(f"\n… and {len(bad) - _MOST_ROWS} more.")
    lines += [
        "",
        f"Measured on main at {code(head)}, [run with the samples]({url}). This issue is kept up "
        "to date every night and closed by the first night on which no case is slower.",
    ]
    return "\n".join(lines) + "\n"


def _row(name: str, case: Entry) -> Sequence[str]:
    causes = "; ".join(code(line, 120) for line in case.get("cause", [])[:2])
    times = (duration(case["base_seconds"]), duration(case["head_seconds"]), change(case["ratio"]))
    return case["verdict"], code(name), *times, causes or "-"
