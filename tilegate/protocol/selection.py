"""Which part of a suite runs: a target (where) and a tier (how much), from the environment."""

from __future__ import annotations

import os
from dataclasses import dataclass

TARGETS = ("cpu", "cuda", "hip")
TIERS = ("smoke", "pr", "full")
EMULATED = ("gfx90a", "gfx942", "gfx950")
"""The chips whose code the emulator executes."""
LISTING_VARIABLE = "TILEGATE_LISTING"


@dataclass(frozen=True)
class Selection:
    """A target and a tier.

    Attributes:
        target: "cpu", "cuda" or "hip".
        tier: "smoke" (seconds), "pr" (minutes) or "full".

    Raises:
        ValueError: a target or tier other than these.
    """

    target: str
    tier: str

    def __post_init__(self) -> None:
        """Refuse what no suite knows."""
        _one_of("target", self.target, TARGETS)
        _one_of("tier", self.tier, TIERS)


def selection() -> Selection:
    """Read the selection from the environment.

    `TILEGATE_TARGET` is auto (the default), cpu, cuda or hip; auto asks torch which device there is, and is cpu without
    torch or a device. `TILEGATE_TIER` is smoke, pr or full; by default smoke on the CPU and pr on a GPU.

    Raises:
        ValueError: either variable holds something else.
    """
    target = os.environ.get("TILEGATE_TARGET") or "auto"
    _one_of("TILEGATE_TARGET", target, ("auto", *TARGETS))
    if target == "auto":
        target = _target_of_this_machine()
    tier = os.environ.get("TILEGATE_TIER") or ("smoke" if target == "cpu" else "pr")
    _one_of("TILEGATE_TIER", tier, TIERS)
    return Selection(target, tier)


def listing() -> bool:
    """Return whether the suite is imported only for the names of its cases (`asv` does that in a process of its own).

    What is slow to import, and imported early only so that processes forked for each case need not, can wait then.
    """
    return LISTING_VARIABLE in os.environ


def _target_of_this_machine() -> str:
    try:
        import torch  # noqa: PLC0415 - the protocol is imported without it
    except ImportError:
        return "cpu"
    if not torch.cuda.is_available():
        return "cpu"
    return "hip" if torch.version.hip else "cuda"


def _one_of(what: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{what} is {value!r}; choose one of {', '.join(choices)}")
