"""What a step tells GitHub: outputs for later steps, and the page of the run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from tilegate.files import UsageError


def set_outputs(values: Mapping[str, str | bool], environment: Mapping[str, str] = os.environ) -> None:
    """Set step outputs; does nothing outside of GitHub.

    Raises:
        UsageError: a value of several lines, which could set other outputs, too.
    """
    lines = []
    for name, value in values.items():
        text = str(value).lower() if isinstance(value, bool) else value
        if "\n" in text or "\r" in text:
            raise UsageError(f"the output {name} would have several lines")
        lines.append(f"{name}={text}\n")
    _append(environment.get("GITHUB_OUTPUT"), "".join(lines))


def show(markdown: str, environment: Mapping[str, str] = os.environ) -> None:
    """Add Markdown to the run's page; does nothing outside of GitHub."""
    _append(environment.get("GITHUB_STEP_SUMMARY"), markdown + "\n")


def _append(path: str | None, text: str) -> None:
    if path:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(text)
