"""The noise profile as a file, and what samples keep of it; one of another machine, or too old, is refused."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tilegate import files
from tilegate.files import UsageError
from tilegate.judging.noise import CaseNoise, Needs, NoiseProfile, layout_share
from tilegate.schemas import samples
from tilegate.schemas.samples import Environment

SCHEMA = "tilegate-noise/1"
SCHEMA_FILE = "noise-1.json"
MOST_DAYS = 90
"""Drivers and firmware are in the fingerprint; age, dust and neighbours are not."""


def to_document(
    created: str,
    environment: Environment,
    cases: Mapping[str, CaseNoise],
    wanted: Mapping[str, Needs | None],
    alike: Mapping[str, CaseNoise],
) -> dict[str, Any]:
    """Return a profile as schemas/noise-1.json describes it.

    `wanted` and `alike` (see `layout_share`) are for readers: gates compute the first anew and do not need the second.
    """
    return {
        "schema": SCHEMA,
        "created": created,
        "environment": dict(environment),
        "layout_share": layout_share(cases, alike),
        "cases": {
            name: {
                **noise.to_json(),
                "needs": _plain(wanted[name]),
                "bias_same_layout": alike[name].bias if name in alike else None,
            }
            for name, noise in cases.items()
        },
    }


def load(path: Path, environment: Environment, today: datetime.date) -> NoiseProfile:
    """Read the profile of this machine. See `parse`; also raises UsageError if the file cannot be read."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot read the noise profile {path}: {reason}; `tilegate calibrate` writes one") from None
    return parse(text, str(path), environment, today)


def parse(text: str, name: str, environment: Environment, today: datetime.date) -> NoiseProfile:
    """Read a profile from the text of its file, and refuse one that says nothing about this machine today.

    Args:
        text: of the file.
        name: how messages call it.
        environment: of this run (`tilegate.measuring.environment.describe`).
        today: the day of this run.

    Raises:
        UsageError: corrupt, of another machine, or too old; the message says what to do.
    """
    try:
        document = files.parse_json(text.encode())
        files.check(document, SCHEMA_FILE)
        profile = _profile(document, hashlib.sha256(text.encode()).hexdigest())
        age = (today - datetime.date.fromisoformat(profile.created[:10])).days
    except (UsageError, ValueError) as error:
        raise UsageError(
            f"the noise profile {name} cannot be used: {error}; write it again with `tilegate calibrate`"
        ) from None
    if different := _differences(profile.environment, environment):
        raise UsageError(
            f"the noise profile {name} is of another machine: {'; '.join(different)}. Write one here with "
            "`tilegate calibrate`, or gate without a profile"
        )
    if not -1 <= age <= MOST_DAYS:  # a day ahead: another time zone
        when = f"is {age} days old, more than {MOST_DAYS}" if age > 0 else f"has the date {profile.created[:10]}"
        raise UsageError(f"the noise profile {name} {when}; write it again with `tilegate calibrate`")
    return profile


def to_samples(profile: NoiseProfile, cases: Sequence[str]) -> samples.NoiseProfile:
    """Return what samples.json keeps of a profile: enough to judge these cases by it again."""
    return {
        "created": profile.created,
        "digest": profile.digest,
        "device": profile.environment["device"]["name"],
        "cases": {name: profile.cases[name].to_json() for name in cases if name in profile.cases},
    }


def from_samples(kept: samples.NoiseProfile) -> NoiseProfile:
    """Return the profile that `to_samples` kept, checked against the schema of samples."""
    environment = {"device": {"name": kept["device"]}}
    return NoiseProfile(kept["created"], environment, kept["digest"], _cases(kept["cases"]))


def _profile(document: Mapping[str, Any], digest: str) -> NoiseProfile:
    return NoiseProfile(document["created"], document["environment"], digest, _cases(document["cases"]))


def _cases(found: Mapping[str, samples.Noise]) -> dict[str, CaseNoise]:
    return {name: CaseNoise.from_json(values) for name, values in found.items()}


def _differences(theirs: Environment, ours: Environment) -> list[str]:
    """Say what keeps two environments from being compared."""
    if theirs.get("target") != ours["target"]:
        return [f"target {theirs.get('target')} there, {ours['target']} here"]
    if ours["target"] == "cpu" and theirs["machine"].get("id") != ours["machine"]["id"]:
        return ["another computer, and a CPU's noise is its neighbours'"]
    if theirs.get("fingerprint") == ours["fingerprint"]:
        return []
    said = [
        f"{part} {key} {_short(theirs[part].get(key))} there, {_short(ours[part].get(key))} here"
        for part in ("device", "versions", "machine")
        for key in ours[part]
        if (part != "machine" or key in ("architecture", "kernel")) and theirs[part].get(key) != ours[part].get(key)
    ]
    return said or ["its fingerprint is another one"]


def _short(value: object) -> str:
    return json.dumps(value)[:60]


def _plain(needed: Needs | None) -> dict[str, int] | None:
    return None if needed is None else dataclasses.asdict(needed)
