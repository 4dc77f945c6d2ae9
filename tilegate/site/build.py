"""From a history to a folder of static pages."""

from __future__ import annotations

import datetime
import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from tilegate.history import inbox
from tilegate.history.inbox import Entry
from tilegate.history.network import Contrast
from tilegate.history.view import History
from tilegate.site import cases, feed, machine, overview
from tilegate.site.output import Output, compact, number, short
from tilegate.site.overview import Standing

_A_SHARD = 16
"""Cases in one script, about: a page on a case loads one, a page that compares two commits all."""


@dataclass(frozen=True)
class Built:
    """What a build did.

    Attributes:
        index: the page to open.
        commits, cases, entries: how many the site shows.
        written: files that were not there before, or not the same.
    """

    index: Path
    commits: int
    cases: int
    entries: int
    written: int


def build(
    history: History,
    out: Path,
    *,
    title: str = "tilegate",
    url: str = "",
    repository: str = "",
    today: datetime.date | None = None,
) -> Built:
    """Write a site.

    Args:
        history: worked out from a store.
        out: the folder: new, empty, or one that an earlier build wrote; then only what changed is written.
        title: of the pages.
        url: where the site will be published, for the feed's links.
        repository: address of the repository on the web; commits then link to it.
        today: for acceptances that expire; None: none has.

    Raises:
        UsageError: the folder holds something else, or cannot be written.
    """  # fmt: skip
    output = Output(out)
    environments = _numbered(history)
    base = overview.base_of(history)
    standings = [overview.standing(history, case, base) for case in history.cases.values()] if history.commits else []
    entries = inbox.entries(history, today) if history.commits else []
    _static(output)
    for name, block in overview.commit_blocks(history):
        output.script(name, block)
    shards, keys = _shards(output, history, environments)
    noise = machine.figures([each.case for each in standings], history.runs, environments)
    output.script("machine", machine.packed(noise))
    content = overview.content(history, standings, entries, environments, base)
    content |= {"title": title, "shards": shards, "repository": repository if repository.startswith("https://") else ""}
    content["stamp"] = hashlib.sha256(repr(sorted(output.digests.items())).encode()).hexdigest()[:12]
    output.script("overview", content)
    output.text("feed.xml", feed.atom(history, entries, title=title, url=url))
    _documents(output, history, standings, entries, base)
    for each, key in zip(standings, keys, strict=True):
        name = f"cases/{short(each.case.id)}"
        if not output.unchanged(f"json/{name}.json", key):
            output.json(name, _case(history, each))
    output.json("machine", _noise(history, noise, list(environments)))
    output.finish()
    return Built(out / "index.html", len(history.commits), len(standings), len(entries), output.written)


def _numbered(history: History) -> dict[str, int]:
    """Number the environments; the order is that of their names, so that a new one shifts few."""
    used = {segment.environment for case in history.cases.values() for segment in case.segments}
    used |= {
        each["environment"] for case in history.cases.values() for found in case.observations.values() for each in found
    }
    return {name: at for at, name in enumerate(sorted(used))}


def _static(output: Output) -> None:
    def walk(folder: Traversable, prefix: str) -> None:
        for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
            if entry.is_dir():
                walk(entry, f"{prefix}{entry.name}/")
            elif prefix == "static/" and entry.name == "index.html":
                output.content("index.html", entry.read_bytes())
            else:
                output.content(f"{prefix}{entry.name}", entry.read_bytes())

    walk(resources.files("tilegate.site").joinpath("static"), "static/")


def _shards(output: Output, history: History, environments: Mapping[str, int]) -> tuple[list[int], list[str]]:
    """Write the cases, some to a script, chosen by their names' hashes: a new case changes one script.

    Returns:
        Of each case its script's number, and a hash over all that is known of it.
    """
    count = 1
    while count * _A_SHARD < len(history.cases):
        count *= 2
    chosen = [int(short(id), 16) % count for id in history.cases]
    content: list[dict[str, Any]] = [{} for _ in range(count)]
    keys = []
    for shard, case in zip(chosen, history.cases.values(), strict=True):
        columns = cases.columns(case, environments)
        content[shard][columns["id"]] = columns
        at = [history.commits[place].sha for place in columns["start"]]
        keys.append(hashlib.sha256(compact([columns, at, list(environments)]).encode()).hexdigest()[:16])
    for shard, found in enumerate(content):
        output.script(f"cases/{shard}", found)
    return chosen, keys


def _documents(
    output: Output, history: History, standings: Sequence[Standing], entries: Sequence[Entry], base: int
) -> None:
    """The same for programs: json/today.json, inbox.json, commits.json, machine.json and a file for each case."""
    commits = history.commits
    output.json(
        "today",
        {
            "base": commits[base].sha if commits else None,
            "head": commits[-1].sha if commits else None,
            "cases": [_standing(history, each) for each in standings],
        },
    )
    output.json(
        "inbox",
        [
            {
                "id": entry.id, "kind": entry.kind, "state": entry.state, "open": entry.open, "recovered": entry.recovered,
                "expired": entry.expired, "owner": entry.owner, "note": entry.note, "expires": entry.expires,
                "benchmark": entry.benchmark, "last_good": commits[entry.last_good].sha, "first_bad": commits[entry.first_bad].sha,
                "cases": [{"case": each.case, **_ratio(each.contrast)} for each in entry.affected],
            }
            for entry in entries
        ],
    )  # fmt: skip
    names = list(history.cases)
    changed = [at for _, block in overview.commit_blocks(history) for at in block["changed"]]
    output.json(
        "commits",
        [
            {
                "sha": commit.sha, "author": commit.author, "subject": commit.subject, "date": commit.date,
                "releases": list(commit.releases), "changed": [names[case] for case in at],
            }
            for commit, at in zip(commits, changed, strict=True)
        ],
    )  # fmt: skip


def _noise(history: History, noise: Mapping[str, Any], environments: Sequence[str]) -> dict[str, Any]:
    columns = noise["cases"]
    return {
        "cases": [
            {"case": id, **{key: values[at] for key, values in columns.items()}} for at, id in enumerate(history.cases)
        ],
        "weeks": {
            environments[int(number)] if int(number) >= 0 else "unknown": week
            for number, week in noise["weeks"].items()
        },
    }


def _standing(history: History, each: Standing) -> dict[str, Any]:
    return {
        "case": each.case.id,
        "file": f"cases/{short(each.case.id)}.json",
        "state": each.state,
        "commit": history.commits[each.place].sha if each.place >= 0 else None,
        "seconds": number(each.seconds),
        **_ratio(each.contrast),
    }


def _ratio(contrast: Contrast | None) -> dict[str, float | None]:
    """Ratio with its interval."""
    if contrast is None:
        return {"ratio": None, "low": None, "high": None}
    return {key: number(math.exp(getattr(contrast, name))) for key, name in _RATIO.items()}


_RATIO = {"ratio": "estimate", "low": "low", "high": "high"}


def _case(history: History, each: Standing) -> dict[str, Any]:
    """Of each run of commits with the same code: from where, which code, how much slower than the reference of its segment."""
    case, runs = each.case, []
    before: tuple[str | None] | None = None
    for place, version in enumerate(case.versions):
        if (version,) == before:
            continue
        before = (version,)
        segment = next((s for s in case.segments if version in s.levels), None)
        contrast = segment.network.contrast(segment.reference, version) if segment is not None and version else None
        runs.append(
            {
                "from": history.commits[place].sha,
                "version": version,
                "environment": segment.environment if segment is not None else None,
                "seconds": number(overview.seconds_at(case, place)),
                **_ratio(contrast),
            }
        )
    return {"case": case.id, "method": case.method, "versions": runs}
