"""What to do about a verdict: one sentence, and the command that measures the cases in question again."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tilegate.schemas.samples import Asked, SideName
from tilegate.schemas.verdict import Entry, Judged, Next, Obstacle, RunVerdict

_WORST = 3
_SHORT = 12  # digits of a commit
_LONGEST_PATTERN = 2000  # characters; a command line that nobody would copy helps nobody

_AGAIN = "To see it on your machine:"
_SENTENCES: Mapping[RunVerdict, str] = {
    "pass": "Nothing to do.",
    "regressed": f"Make it faster, or waive it for a while in tilegate-waivers.toml. {_AGAIN}",
    "broken": f"Fix it first: its speed does not matter yet. {_AGAIN}",
    "inconclusive": "",
    "environment-invalid": (
        "No kernel is to blame. See what else runs on the machine (`tilegate doctor`), then measure again:"
    ),
}


# What keeps a case from being decided that no further measuring changes, what it means comes first.
_OBSTACLES: Mapping[Obstacle, str] = {
    "times": (
        "These times cannot be: the launch did not do its work, or the clock was reached. Find out which before you trust a "
        f"number. {_AGAIN}"
    ),
    "samples": "These samples contradict themselves. Do not trust the file; measure again:",
    "base": f"The base fails here, so there is nothing to compare with. Fix it, or name a base that works. {_AGAIN}",
    "check": "Nothing says whether these results are right. Give the suite a check() for them, then measure again:",
}


def worst(cases: Mapping[str, Entry]) -> list[str]:
    """Return the ids of the cases that a reader should see first, at most three: broken, slower, undecided, warned of."""
    order = ("broken", "regressed", "inconclusive", "removed", "warning")
    found = [name for name, entry in cases.items() if entry["verdict"] in order]
    return sorted(found, key=lambda n: (order.index(cases[n]["verdict"]), -(cases[n]["ratio"] or 0.0)))[:_WORST]


def advise(verdict: Judged, asked: Asked | None, *, allow_head_waivers: bool) -> Next:
    """Return what to do.

    Args:
        verdict: the document so far.
        asked: options with which the run was started, if the samples have them.
        allow_head_waivers: one that they have elsewhere.

    Returns:
        ``{"advice": sentence, "command": argument list, or None where there is nothing to do}``. The command holds text
        of the commit (revisions, case ids); the sentence holds none.
    """
    state, cases = verdict["verdict"], verdict["cases"]
    sentence, names = _SENTENCES[state], worst(cases)
    fresh = continues = unlimited = False
    if state == "inconclusive":
        if verdict["finished"] is None:
            sentence, names, continues = "The same command continues where it stopped:", [], True
        elif verdict["waivers"]["expired"]:
            sentence, names = "Renew or remove the expired waivers in tilegate-waivers.toml, then run again:", []
        elif any(cases[name]["verdict"] == "removed" for name in names):
            sentence = "Bring the removed cases back, or name them in allow_removed of the base. To see them:"
        elif obstacle := next((o for o in _OBSTACLES if _held_up(cases, o)), None):
            sentence, names, fresh = _OBSTACLES[obstacle], _held_up(cases, obstacle)[:_WORST], True
        elif verdict["out_of_time"]:
            sentence, names = "The same command with a larger --budget, or with none, continues:", []
            unlimited = continues = True
        elif names:
            sentence, fresh = "Measure these again, on a quieter machine if there is one:", True
        else:
            sentence = "Nothing was measured that counts; see what there is:"
    elif state == "environment-invalid":
        names, fresh = [], True
    if state == "pass":
        return {"advice": sentence, "command": None}
    command = _command(verdict, names) + _options(asked or {"emulate": True}, continues=continues, unlimited=unlimited)
    command += ["--allow-head-waivers"] if allow_head_waivers else []
    return {"advice": sentence, "command": command + (["--fresh"] if fresh else [])}


def _held_up(cases: Mapping[str, Entry], obstacle: Obstacle) -> list[str]:
    return [name for name, entry in cases.items() if entry.get("obstacle") == obstacle]


def _options(asked: Asked, *, continues: bool, unlimited: bool) -> list[str]:
    """Return the options that a run must have to give the same, and to find what it is to continue."""
    options = [] if asked["emulate"] else ["--no-emulate"]
    if (profile := asked.get("noise_profile")) is not None:
        options += ["--noise-profile", profile, "--skip-unfit-noise"]  # whoever reads it may be at another machine
    if "budget" in asked and not unlimited:
        options += ["--budget", f"{asked['budget']:g}"]
    if continues and "out" in asked:
        options += ["--out", asked["out"]]
    return options


def _command(verdict: Judged, names: list[str]) -> list[str]:
    command = ["tilegate", "gate"]
    sides: tuple[SideName, ...] = ("base", "head")
    for side in sides:
        commit = verdict[side]["commit"]
        command += [f"--{side}", commit[:_SHORT] if commit else verdict[side]["rev"]]
    command += ["--target", verdict["target"], "--tier", verdict["tier"]]
    pattern = "|".join(map(_pattern, names))
    if names and len(pattern) <= _LONGEST_PATTERN:
        command += ["-b", pattern]
    elif verdict["filter"] is not None:
        command += ["-b", verdict["filter"]]
    return command


def _pattern(name: str) -> str:
    """Return a regular expression that finds the case called `name`, as short and as easy to quote as can be."""
    literal = re.sub(r"([\\.^$*+?{}\[\]|()])", r"\\\1", name)
    return f"^{literal.replace(chr(39), '.')}$"  # a quote within quotes is five characters in a shell
