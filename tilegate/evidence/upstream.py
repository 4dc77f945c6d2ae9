"""The Markdown that a maintainer asks for, from stored results alone. A part that is missing is named as missing.

Pure: documents in, text out. Each part is a heading and what is known; `missing` says how to get the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilegate.evidence import environment, profile_table, repro
from tilegate.protocol import JSON
from tilegate.schemas.samples import SideName
from tilegate.schemas.verdict import Verdict
from tilegate.showing.markup import block, change, code, duration, prose, quoted

KINDS = ("pr", "issue", "release")
_MOST_CASES = 40
_MOST_LINES = 8
_DECIDED = ("pass", "improved", "regressed", "warning", "waived")


@dataclass(frozen=True)
class Material:
    """What a report is made of; None for what is not there.

    Attributes:
        repro: settings, environment and results of a folder of `tilegate repro`.
        verdict: of a gate.
        profile: of `tilegate profile`.
        isa: documents of `tilegate isa diff`.
        log: subjects of the commits between base and head, newest first.
        behind: the head is the older of the two, and lacks these commits.
        named: the commits that `log` lies between, by side.
        figures: names of files that the report shows, by what they show.
    """

    repro: Mapping[str, Any] | None = None
    verdict: Verdict | None = None
    profile: Mapping[str, Any] | None = None
    isa: tuple[Mapping[str, Any], ...] = ()
    log: tuple[str, ...] = ()
    behind: bool = False
    named: Mapping[str, str] | None = None
    figures: Mapping[str, str] | None = None


def render(kind: str, title: str, material: Material) -> str:
    """Return the report.

    Args:
        kind: "pr" (a change and what it gains), "issue" (what is slow) or "release" (all cases between two versions).
        title: its first line.
        material: what it is made of.
    """
    parts = {
        "issue": (_problem, _lengths, _counters, _cause, _correctness, _where, _how),
        "pr": (_problem, _cause, _change, _lengths, _counters, _others, _correctness, _where, _how),
        "release": (_change, _cases, _cause, _others, _correctness, _where, _how),
    }[kind]
    text = "\n\n".join(line for part in parts for line in part(material))
    return f"# {prose(title)}\n\n{text}\n"


def disagreement(material: Material) -> str | None:
    """Return why the parts cannot stand in one report: other machines, or other revisions; None if they can."""
    parts = {"repro": material.repro, "gate": material.verdict, "profile": material.profile}
    devices = {name: part["environment"]["device"]["name"] for name, part in parts.items() if part is not None}
    if len(set(devices.values())) > 1:
        return "they were measured on different devices: " + ", ".join(
            f"{name} on {on}" for name, on in devices.items()
        )
    sides: tuple[SideName, ...] = ("base", "head")
    for role in sides:
        commits = {
            "repro": (material.repro or {"settings": {"revisions": {}}})["settings"]["revisions"].get(role),
            "gate": None if material.verdict is None else material.verdict[role]["commit"],
            "profile": (material.profile or {}).get(role, {}).get("revision", {}).get("commit"),
            f"--{role}": (material.named or {}).get(role),
            **{
                f"isa {number}": document.get(role, {}).get("commit")
                for number, document in enumerate(material.isa, 1)
                if isinstance(document.get(role), Mapping)
            },
        }
        known = {name: commit[:12] for name, commit in commits.items() if commit and not commit.startswith("worktree")}
        if len(set(known.values())) > 1:
            return f"they have another {role}: " + ", ".join(f"{name} {commit}" for name, commit in known.items())
    return None


def _problem(material: Material) -> Iterator[str]:
    yield "## What is slow"
    if material.repro is None or not material.repro["results"]:
        yield _missing("a measurement over lengths", "tilegate repro CASE [--base REV]")
        return
    settings, longest = material.repro["settings"], material.repro["results"]["rows"][-1]
    device = material.repro["environment"]["device"]["name"]
    text = f"{code(settings['case'])} on {prose(device)}"
    if "ratio" in longest:
        middle, low, high = longest["ratio"]
        between = f"95 %: {low - 1:+.1%} to {high - 1:+.1%}"
        found = f"{abs(middle - 1):.1%} {'slower' if middle > 1 else 'faster'} ({between})"
        if low <= 1 <= high:
            found = f"no difference is shown ({middle - 1:+.1%}; {between})"
        text += (
            f": at length {longest['length']:,} the head takes {duration(longest['head_us'] / 1e6)}, the base "
            f"{duration(longest['base_us'] / 1e6)}: {found}."
        )
    else:
        text += f": {duration(longest['head_us'] / 1e6)} at length {longest['length']:,}, {_rate(longest)}."
    yield text
    labels = settings.get("labels") or settings["revisions"]
    yield "\n".join(f"- {role}: {code(labels[role])}, {code(_tile(settings, role))}" for role in settings["sides"])


def _tile(settings: Mapping[str, Any], role: str) -> str:
    """Return the tile of the longest length, in words."""
    length, tile = settings["lengths"][-1], settings["sides"][role]["tiles"]
    return ", ".join(f"{name} {value}" for name, value in _flat(tile[length]).items())


def _flat(tile: Mapping[str, Any]) -> dict[str, Any]:
    return dict(environment.leaves(tile))


def _lengths(material: Material) -> Iterator[str]:
    yield "## Latency and throughput by length"
    if material.repro is None or not material.repro["results"]:
        yield _missing("the table", "tilegate repro CASE [--base REV]")
        return
    yield "\n".join(repro.table(material.repro["results"]))
    yield from _figures(material, "latency and throughput over length")


def _figures(material: Material, what: str) -> Iterator[str]:
    file = (material.figures or {}).get(what)
    if file is not None:
        yield f"![{what}]({file})"


def _counters(material: Material) -> Iterator[str]:
    yield "## Hardware counters"
    yield from _figures(material, "roofline")
    if material.profile is None:
        yield _missing("counters", "tilegate profile CASE [--base REV]")
        return
    cases = {role: material.profile[role].get("case", material.profile["case"]) for role in _roles(material.profile)}
    named = [f"{role} {code(case)}" for role, case in cases.items()]
    if len(set(cases.values())) == 1:
        named = [code(cases["head"])]
    yield f"{code(material.profile['head']['tool'])}, {' and '.join(named)}:"
    yield "\n".join(_profile_table(material.profile))
    yield from map(prose, profile_table.notes(material.profile))


def _profile_table(profile: Mapping[str, Any]) -> list[str]:
    roles = _roles(profile)
    columns = ["what", *roles, *(["change"] if len(roles) == 2 else []), "counter"]
    lines = ["| " + " | ".join(columns) + " |", "|---|" + "--:|" * (len(columns) - 2) + "---|"]
    return lines + [
        "| " + " | ".join((prose(row[0]), *row[1:-1], code(row[-1]))) + " |" for row in profile_table.rows(profile)
    ]


def _roles(profile: Mapping[str, Any]) -> list[str]:
    return [role for role in ("base", "head") if role in profile]


def _cause(material: Material) -> Iterator[str]:
    yield "## Cause"
    about = None if material.repro is None else material.repro["settings"]["case"]
    causes = [
        (name, line)
        for name, case in ({} if material.verdict is None else material.verdict["cases"]).items()
        if about in (None, name)
        for line in case.get("cause", [])[:_MOST_LINES]
    ]
    limits = [] if material.profile is None else profile_table.limits(material.profile)
    if not causes and not limits:
        how = "tilegate gate names what differs in the compiled code; tilegate profile, the limiting unit"
        yield _missing("a cause that was measured", how)
        return
    if causes:
        yield "What differs in the compiled code:"
        yield "\n".join(f"- {code(name)}: {code(line)}" for name, line in causes[:_MOST_CASES])
    yield from map(prose, limits)


def _change(material: Material) -> Iterator[str]:
    yield "## Change"
    tiles = _tiles_changed(material.repro)
    if tiles:
        yield "\n".join(["The tiles:", "", *tiles])
    if not material.log:
        if not tiles or len(set(material.repro["settings"]["revisions"].values())) > 1:  # type: ignore[index]
            yield _missing("the commits", "--base and --head name the revisions")
        return
    if material.behind:
        yield "The head is older than the base. It lacks:"
    shown = material.log[:_MOST_CASES]
    yield "\n".join(f"- {prose(line)}" for line in shown)
    if len(material.log) > len(shown):
        yield f"and {len(material.log) - len(shown)} more"


def _tiles_changed(repro: Mapping[str, Any] | None) -> list[str]:
    """Return a line a run of lengths whose tile is another one in the head."""
    if repro is None or "base" not in repro["settings"]["sides"]:
        return []
    lengths: dict[str, list[str]] = {}
    for length in repro["settings"]["lengths"]:
        base, head = (_flat(repro["settings"]["sides"][role]["tiles"][length]) for role in ("base", "head"))
        changed = [f"{name} {base.get(name)} -> {value}" for name, value in head.items() if base.get(name) != value]
        if changed:
            lengths.setdefault(", ".join(changed), []).append(length)
    return [f"- at length {', '.join(f'{int(each):,}' for each in at)}: {code(text)}" for text, at in lengths.items()]


def _cases(material: Material) -> Iterator[str]:
    yield "## All cases"
    if material.verdict is None:
        yield _missing("the comparison of all cases", "tilegate gate --base OLD --head NEW --tier full")
        return
    verdict = material.verdict
    counts = ", ".join(f"{count} {name}" for name, count in verdict["counts"].items() if count)
    yield f"{prose(verdict['reason'])} ({counts})"
    timed = {
        name: case for name, case in verdict["cases"].items() if case["ratio"] is not None and case["role"] == "gated"
    }
    worst = sorted(timed.items(), key=lambda item: -(item[1]["ratio"] or 0.0))
    if worst:
        lines = ["| case | verdict | before | after | change | 95 % or wider |", "|---|---|--:|--:|--:|---|"]
        for name, case in worst[:_MOST_CASES]:
            low, high = case["interval"] or (None, None)
            between = "-" if low is None else f"{change(low)} … {change(high)}"
            lines.append(
                f"| {code(name)} | {case['verdict']} | {duration(case['base_seconds'])} | {duration(case['head_seconds'])} "
                f"| {change(case['ratio'])} | {between} |"
            )
        yield "\n".join(lines)
        if len(worst) > _MOST_CASES:
            yield f"and {len(worst) - _MOST_CASES} more, in verdict.json"
    yield from _figures(material, "roofline")


def _others(material: Material) -> Iterator[str]:
    yield "## Other architectures"
    if not material.isa:
        yield _missing(
            "what it does to other chips",
            "tilegate isa diff --base REV --head REV --arch gfx942,gfx90a,gfx950 --out DIR",
        )
        return
    yield "From compiled code alone; none of it was run on these chips."
    for document in material.isa:
        by_arch: dict[str, list[Mapping[str, Any]]] = {}
        for pair in document["pairs"]:
            by_arch.setdefault(pair["arch"], []).append(pair["difference"])
        for arch, differences in by_arch.items():
            verdicts = [difference["verdict"] for difference in differences]
            counts = ", ".join(f"{verdicts.count(name)} {name}" for name in dict.fromkeys(verdicts))
            yield f"- {code(arch)}: {counts}"
            changes = [
                item["message"] for each in differences for item in each["changes"] if item["severity"] != "info"
            ]
            if changes:
                yield "\n".join(f"  - {prose(line)}" for line in list(dict.fromkeys(changes))[:_MOST_LINES])


def _correctness(material: Material) -> Iterator[str]:
    yield "## Correctness"
    reproduced = material.repro is not None and material.repro["results"]
    if not reproduced and material.verdict is None:
        yield _missing("a comparison with a reference", "tilegate repro CASE")
    if material.repro is not None and reproduced:
        results = material.repro["results"]
        errors = [row["head_error"] for row in results["rows"]]
        verdict = "**WRONG**: an error exceeds its tolerance" if results["wrong"] else "right"
        yield (
            f"{verdict}: the largest error against float64 is {max(errors):.2f} of the derived tolerance "
            f"over {len(errors)} lengths (`problem.py` has the rule)."
        )
    if material.verdict is not None:
        cases = material.verdict["cases"]
        # Without such a comparison a timed case is undecided, whatever its times (judging.untimed).
        compared = sum(case["role"] == "gated" and case["verdict"] in _DECIDED for case in cases.values())
        broken = [name for name, case in cases.items() if case["verdict"] == "broken"]
        yield (
            f"The gate compared the head's results of {compared} cases with the suite's reference before it timed them; "
            + (
                f"**{len(broken)} broken**: {', '.join(map(code, broken[:_MOST_LINES]))}."
                if broken
                else "none is broken."
            )
        )


def _where(material: Material) -> Iterator[str]:
    yield "## Environment"
    known = _environment(material)
    if known is None:
        yield _missing("the environment", "tilegate environment --out environment.json")
        return
    rows = [(place, value) for place, value in environment.leaves(known) if value is not None]
    lines = [
        f"| {prose(place)} | {code(str(value))} |" for place, value in rows if place not in ("schema", "fingerprint")
    ]
    yield "\n".join(["| | |", "|---|---|", *lines])


def _environment(material: Material) -> Mapping[str, JSON] | None:
    for document in (material.repro, material.profile):
        if document is not None:
            found: Mapping[str, JSON] = document["environment"]
            return found
    if material.verdict is None:
        return None
    of_gate: Mapping[str, JSON] = {
        key: value for key, value in material.verdict["environment"].items() if key in ("target", "device", "versions")
    }
    return of_gate


def _how(material: Material) -> Iterator[str]:
    yield "## How to reproduce"
    if material.repro is not None:
        lengths = ",".join(material.repro["settings"]["lengths"])
        made = material.repro["settings"].get("command")
        if made:
            yield "This makes a folder that needs torch and tilelang alone:"
            yield block(made, "sh")
            yield "In it:"
        else:
            yield "With the folder beside this report; it needs torch and tilelang alone:"
        yield block(f"python repro.py --lengths {lengths}", "sh")
    elif material.verdict is not None:
        base, head = (side["commit"] or side["rev"] for side in (material.verdict["base"], material.verdict["head"]))
        words = [
            "--base",
            base,
            "--head",
            head,
            "--target",
            material.verdict["target"],
            "--tier",
            material.verdict["tier"],
        ]
        words += ["-b", material.verdict["filter"]] if material.verdict["filter"] else []
        yield block(" ".join(["tilegate gate", *map(quoted, words)]), "sh")
    else:
        yield _missing("a command", "tilegate repro CASE, or tilegate gate")


def _missing(what: str, how: str) -> str:
    return f"**Missing**: {what}. {code(how)}"


def _rate(row: Mapping[str, Any]) -> str:
    return next(
        (
            f"{value:.3g} {key.partition('_')[2]}"
            for key, value in row.items()
            if key.startswith("head_") and "/s" in key
        ),
        "",
    )


def lengths_and_times(results: Mapping[str, Any]) -> Sequence[tuple[int, dict[str, float]]]:
    """Return (length, microseconds by side) of each row, for a figure."""
    return [
        (row["length"], {side: row[f"{side}_us"] for side in ("base", "head") if f"{side}_us" in row})
        for row in results["rows"]
    ]
