"""What a launch reads and writes, as a suite shows it: so that what is timed can be looked at (docs/protocol.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Buffers:
    """One set of buffers that launches use.

    Attributes:
        inputs: numpy arrays or torch tensors that a launch reads, by the names, shapes and dtypes of what the suite's
            `inputs` draws. One that is among the outputs as well is computed in place.
        outputs: those that it writes, by name; of a `call_*` case what the call made last has returned, nothing before the
            first call and in sets that it did not use.
    """

    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]
