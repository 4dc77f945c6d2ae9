"""Words that reasons, reports and remarks share."""

from __future__ import annotations

import math

from tilegate.schemas.verdict import Disturbances


def cases_in_words(count: int) -> str:
    """Return "1 case", "2 cases"."""
    return "1 case" if count == 1 else f"{count} cases"


def percent(log_ratio: float) -> str:
    """Return a log ratio as a change in percent, signed."""
    return f"{100 * math.expm1(log_ratio):+.1f} %" if abs(log_ratio) < 10 else "any amount"


def disturbances_in_words(disturbed: Disturbances) -> str:
    """Return how many pairs were disturbed, and why, as a phrase."""
    why = ", ".join(f"{reason} {count}" for reason, count in disturbed["reasons"].items())
    return f"{disturbed['pairs']} of {disturbed['of']} pairs were disturbed ({why})"


def sentence(text: str) -> str:
    """Return a phrase as a sentence."""
    return f"{text[0].upper()}{text[1:]}."
