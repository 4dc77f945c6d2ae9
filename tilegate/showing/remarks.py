"""What a reader of a verdict must know besides it: each remark one sentence, with the names that it is about."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tilegate.judging.words import cases_in_words, disturbances_in_words
from tilegate.schemas.samples import Waiver
from tilegate.schemas.verdict import Entry, Modes, Verdict

_WORTH_SAYING = 1.2  # of the factor by which replicates scatter more than expected


class Remark(NamedTuple):
    """One remark.

    Attributes:
        text: a sentence that holds nothing of a commit but names of waivers.
        details: one line for each thing that it is about, as pairs of a name or text, which may come from a commit, and a
            phrase about it, which does not.
    """

    text: str
    details: tuple[tuple[str, str], ...]


def remarks(verdict: Verdict) -> list[Remark]:
    """Return the remarks on a verdict document, what may let a slowdown pass first."""
    parts = (_striking, _unseen, _waivers, _thresholds, _not_gating, _emulated, _scatter, _apart, _disturbed, _modes)
    return [remark for part in parts for remark in part(verdict)]


def _striking(verdict: Verdict) -> Iterator[Remark]:
    found = [(name, entry) for name, entry in verdict["cases"].items() if "striking" in entry]
    if found:
        text = f"Please look before you believe it: {cases_in_words(len(found))} got faster by more than changes usually do."
        yield Remark(text, tuple((name, _how_striking(entry)) for name, entry in found))


def _how_striking(entry: Entry) -> str:
    if entry.get("striking") == "roofline":
        return (
            "faster than this chip computes with 16-bit numbers; does it compute everything, and in the right format?"
        )
    return f"{1 / (entry['ratio'] or 1.0):.1f} times as fast; does it do all of the work, each time it is launched?"


def _unseen(verdict: Verdict) -> Iterator[Remark]:
    found = [name for name, entry in verdict["cases"].items() if entry.get("unseen")]
    if found:
        text = (
            f"{cases_in_words(len(found))} got faster, and nobody looked at what the timed launches wrote: the suite has no "
            "inputs(), buffers() and verify() there."
        )
        yield Remark(text, tuple((name, "not looked at") for name in found))


def _waivers(verdict: Verdict) -> Iterator[Remark]:
    found = verdict["waivers"]
    waived = [(name, entry) for name, entry in verdict["cases"].items() if "waiver" in entry]
    if waived:
        text = f"{cases_in_words(len(waived))} would have failed and is waived." if len(waived) == 1 else ""
        text = text or f"{cases_in_words(len(waived))} would have failed and are waived."
        yield Remark(text, tuple((name, entry["reason"]) for name, entry in waived))
    if found["expired"]:
        text = "Expired waivers fail the run until they are renewed or removed."
        yield Remark(text, _named(found["expired"]))
    if found["refused"]:
        text = "Waivers that this change adds or alters do not count without --allow-head-waivers."
        yield Remark(text, _named(found["refused"]))


def _named(waivers: Sequence[Waiver]) -> tuple[tuple[str, str], ...]:
    return tuple(
        (f"{w['cases']}: {w['reason']} {w['link']}", f"{w['name']}, at most {w['ceiling']:g} %, until {w['expires']}")
        for w in waivers
    )


def _thresholds(verdict: Verdict) -> Iterator[Remark]:
    config, alike = verdict["config"], defaultdict[str, list[str]](list)
    for name, entry in verdict["cases"].items():
        if own := entry.get("thresholds"):
            alike[", ".join(f"{key} {100 * own[key]:.3g} % (not {100 * config[key]:.3g} %)" for key in own)].append(
                name
            )
    if alike:
        count = sum(map(len, alike.values()))
        details = tuple(
            (names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more", phrase)
            for phrase, names in alike.items()
        )
        yield Remark(f"{cases_in_words(count)} judged by other thresholds than the run's.", details)


def _not_gating(verdict: Verdict) -> Iterator[Remark]:
    blind = {name: entry for name, entry in verdict["cases"].items() if entry["verdict"] == "not-gating"}
    if blind:
        own = {entry.get("thresholds", {}).get("promise", verdict["config"]["promise"]) for entry in blind.values()}
        promise = " or ".join(f"{100 * promise:g} %" for promise in sorted(own))
        text = (
            f"{cases_in_words(len(blind))} not gating: the noise of this machine cannot support a promise of {promise}."
        )
        yield Remark(text, tuple((name, entry["reason"]) for name, entry in blind.items()))


def _scatter(verdict: Verdict) -> Iterator[Remark]:
    if verdict["bias_scale"] >= _WORTH_SAYING:
        factor = f"{verdict['bias_scale']:.1f} times"
        text = f"Fresh processes scatter {factor} as much as expected, and all intervals are that much more careful."
        yield Remark(f"{text} `tilegate calibrate` tells what this machine's noise is.", ())


def _emulated(verdict: Verdict) -> Iterator[Remark]:
    for arch, found in verdict["emulation"].items():
        if found["note"] is not None:
            yield Remark(f"Changed kernels for {arch} were not executed.", ((found["note"], arch),))
        if left_out := found.get("unselected", 0):
            kernels = f"{left_out} kernel{'s' * (left_out != 1)}"
            yield Remark(f"Not looked at for {arch}: {kernels} that no case of this run's filter uses.", ())
        unclear = [
            kernel["message"] or "" for kernel in found["kernels"].values() if kernel["verdict"] == "inconclusive"
        ]
        if unclear:
            text = f"Executed for {arch}, and not judged: {len(unclear)} of {len(found['kernels'])} changed kernels."
            yield Remark(text, tuple((message, arch) for message in unclear))
        if count := sum(kernel["verdict"] == "pass" for kernel in found["kernels"].values()):
            yield Remark(
                f"Executed for {arch}, and nothing wrong was found: {count} of {len(found['kernels'])} changed kernels.",
                (),
            )


def _apart(verdict: Verdict) -> Iterator[Remark]:
    found = [(name, entry) for name, entry in verdict["cases"].items() if entry.get("apart")]
    if found:
        needs = "needs" if len(found) == 1 else "need"
        text = (
            f"{cases_in_words(len(found))} {needs} the device alone: base and head do not work beside each other, and were "
            "measured one after the other. That is noisier."
        )
        yield Remark(text, tuple((name, _detects(entry)) for name, entry in found))


def _detects(entry: Entry) -> str:
    effect = entry["smallest_detectable_effect"]
    return "" if effect is None else f"a slowdown of {100 * effect:.1f} % is detected"


def _disturbed(verdict: Verdict) -> Iterator[Remark]:
    if verdict["disturbed"]["pairs"]:
        hit = [(name, entry["disturbed"]) for name, entry in verdict["cases"].items() if "disturbed" in entry]
        text = f"{disturbances_in_words(verdict['disturbed'])} and do not count."
        yield Remark(text, tuple((name, f"{count} pairs") for name, count in hit))


def _modes(verdict: Verdict) -> Iterator[Remark]:
    advice = {
        "turns": "from turn to turn: more launches a turn (min_launches) average over both",
        "processes": "from process to process: each draws its mode anew; raise max_replicates, or look for what differs "
        "between processes (placement of buffers, order of workgroups)",
    }
    found = []
    for name, entry in verdict["cases"].items():
        modes: Modes = entry.get("modes", {})
        gaps = (("turns", modes.get("turns")), ("processes", modes.get("processes")))
        found += [(name, f"{100 * gap:.1f} % apart {advice[kind]}") for kind, gap in gaps if gap is not None]
    if found:
        count = len({name for name, _ in found})
        verb = "alternates" if count == 1 else "alternate"
        yield Remark(f"{cases_in_words(count)} {verb} between a fast and a slow mode.", tuple(found))
