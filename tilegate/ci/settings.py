"""The few things about this repository's measuring machines that a workflow has to know: .github/bench.toml.

A file and not repository variables: GitHub does not pass those to workflows of pull requests from forks. It is always read
from the base, by a job that has not run anything of the change.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

from tilegate.ci import container
from tilegate.files import UsageError

FILE = ".github/bench.toml"
INSIDE = "bench"
"""The environment of pull requests from branches of the repository, and of main."""

_IMAGE_LINE = re.compile(r"^image = .*$", re.MULTILINE)
_ENVIRONMENT = re.compile(r"[a-z0-9][a-z0-9-]{0,60}")


@dataclass(frozen=True)
class Settings:
    """What .github/bench.toml says.

    Attributes:
        image: the container's image with its digest; None: there is no machine to measure on.
        outside_environment: the environment, with required reviewers, of pull requests from forks; None: these are not
            measured.
    """

    image: str | None
    outside_environment: str | None

    def environment(self, *, outside: bool) -> str:
        """Return the environment of a measuring job, empty if there must not be such a job."""
        if self.image is None:
            return ""
        return (self.outside_environment or "") if outside else INSIDE


def load(path: Path) -> Settings:
    """Read the file. Raises UsageError."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}") from None
    unknown = set(table) - {"image", "outside_environment"}
    values = {key: table.get(key, "") for key in ("image", "outside_environment")}
    if unknown or not all(isinstance(value, str) for value in values.values()):
        raise UsageError(f"{path} holds the texts `image` and `outside_environment` and nothing else")
    outside = values["outside_environment"]
    if outside == INSIDE or (outside and not _ENVIRONMENT.fullmatch(outside)):
        raise UsageError(
            f"{path}: outside_environment is {outside!r}; it must be the name of another environment than {INSIDE!r}, one "
            "with required reviewers: lower-case letters, digits and -"
        )
    image = container.checked_image(values["image"]) if values["image"] else None
    return Settings(image, outside or None)


def with_image(text: str, image: str) -> str:
    """Return the text of the file with another image entered and everything else as it was.

    Raises:
        UsageError: the file does not have one line for the image.
    """
    entered, count = _IMAGE_LINE.subn(lambda _: f'image = "{image}"', text)
    if count != 1 or tomllib.loads(entered).get("image") != image:
        raise UsageError(f"{FILE} must have one line `image = …`")
    return entered
