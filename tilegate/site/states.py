"""What a change is called on every page. static/network.js has the same rule; a test holds the two against each other."""

from __future__ import annotations

from typing import Literal

from tilegate.history.inbox import SMALLEST
from tilegate.history.network import Contrast

State = Literal["slower", "faster", "same", "identical", "undecided", "unmeasured"]


def state_of(contrast: Contrast | None) -> State:
    """Return the state of a contrast.

    slower, faster: by `SMALLEST` or more, and the interval excludes no change. same: the whole interval lies within
    `SMALLEST` of no change. undecided: neither. identical: the same code. unmeasured: nothing connects the two.
    """
    if contrast is None:
        return "unmeasured"
    if contrast.error == 0:
        return "identical"
    if contrast.low > 0 and contrast.estimate >= SMALLEST:
        return "slower"
    if contrast.high < 0 and contrast.estimate <= -SMALLEST:
        return "faster"
    return "same" if contrast.low >= -SMALLEST and contrast.high <= SMALLEST else "undecided"
