"""Which line of the generated source a place in the compiled kernel comes from."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

_KERNEL = "kernel.hip"


@dataclass(frozen=True)
class Place:
    """A line of the generated source, and of the template that it calls, if any.

    Attributes:
        line, text: of the generated source; 0 and "" when unknown.
        template: "reduce.h:80" when the place itself is in a header that the line's call leads to.
    """

    line: int = 0
    text: str = ""
    template: str = ""

    @property
    def name(self) -> str:
        """Spell it for a sentence."""
        line = f"line {self.line}" if self.line else "a place that has no line"
        return f"{line} ({self.template})" if self.template else line


class Places:
    """The places of one library.

    Args:
        library: the built kernel, with debug information.
        symbolizer: llvm-symbolizer.
        source: the generated text.
        sites: what is going to be asked for: return addresses relative to the library.
    """

    def __init__(self, library: Path, symbolizer: str, source: str, sites: Iterable[int]) -> None:
        """Look all of them up at once: starting the symbolizer takes longer than its answers."""
        self._lines = source.splitlines()
        wanted = sorted({site for site in sites if site > 0})
        self._places: Mapping[int, Place] = dict(zip(wanted, self._look_up(library, symbolizer, wanted), strict=True))

    def of(self, site: int) -> Place:
        """Return the place, an unknown one for 0."""
        return self._places.get(site, Place())

    def _look_up(self, library: Path, symbolizer: str, sites: list[int]) -> Iterable[Place]:
        if not sites:
            return []
        # A return address belongs to the instruction after the call.
        addresses = "".join(f"{site - 1:#x}\n" for site in sites)
        command = [symbolizer, f"--obj={library}", "--inlines", "--output-style=JSON"]
        try:
            done = subprocess.run(command, input=addresses, capture_output=True, text=True, timeout=120, check=True)
            answers = [json.loads(line).get("Symbol", []) for line in done.stdout.splitlines() if line.strip()]
        except (OSError, subprocess.SubprocessError, ValueError):
            answers = []
        # Without debug information a finding is still a finding.
        return [self._place(frames) for frames in answers] if len(answers) == len(sites) else [Place()] * len(sites)

    def _place(self, frames: list[dict[str, object]]) -> Place:
        inner, line = "", 0
        for frame in frames:  # from the innermost out
            file, number = Path(str(frame.get("FileName", ""))).name, int(str(frame.get("Line", 0)))
            if file == _KERNEL:
                line = number
            elif not line and file and number and not inner and "emulated" not in str(frame.get("FileName")):
                inner = f"{file}:{number}"
        text = self._lines[line - 1].strip() if 0 < line <= len(self._lines) else ""
        return Place(line, text, inner if line else "")
