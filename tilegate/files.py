"""Reading and writing the files that pass between the parts: atomically, bounded in size, checked against a schema.

A samples file may come from a pull request, so it is treated as hostile: everything about it is checked before a number
in it is used, and what is wrong is reported with the place in the file.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import secrets
import stat
from importlib import resources
from pathlib import Path
from typing import Any, NoReturn, cast

from tilegate.schemas.samples import Samples
from tilegate.schemas.verdict import Verdict

SAMPLES_SCHEMA = "samples-1.json"
VERDICT_SCHEMA = "verdict-1.json"

MAX_BYTES = 256 * 2**20  # 200 cases of 128 pairs of 2 x 30 launches, written with 17 digits, are about 35 MB
MAX_SECONDS = 3600.0  # no single launch of a kernel under test takes an hour
MIN_SECONDS = 1e-9  # below one cycle of any device: a patched clock, not a fast kernel
_QUOTED = 80  # characters of an offending value that an error message shows


class UsageError(Exception):
    """The request cannot be carried out as asked; the message says why and what to do. Exit code 2."""


def cache_folder(name: str) -> Path:
    """Return where tilegate keeps what it can make again: $XDG_CACHE_HOME/tilegate/NAME, by default under ~/.cache.

    Raises:
        UsageError: XDG_CACHE_HOME is a relative path, which would be another folder for each process.
    """
    home = os.environ.get("XDG_CACHE_HOME")
    if home and not Path(home).is_absolute():
        raise UsageError(f"XDG_CACHE_HOME is {shown(home)}, a relative path; make it absolute, or unset it")
    return Path(home or Path.home() / ".cache", "tilegate", name)


def write_text(path: Path, text: str) -> None:
    """Replace the file at `path` by `text` (UTF-8) in one step: a reader sees the old file or the new one, whole.

    The folder is made if it is missing. On any failure, a full disk included, the old file stays as it was.

    Raises:
        UsageError: the file cannot be written, with the system's reason.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            # Not tempfile.mkstemp: that makes files that only their owner can read.
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
            _sync_folder(path.parent)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise UsageError(
            f"cannot write {path}: {error.strerror or error}; the previous file, if any, is kept"
        ) from error


def write_json(path: Path, value: object) -> None:
    """Write `value` as JSON to `path`, atomically (see `write_text`).

    Raises:
        UsageError: the file cannot be written.
        ValueError: `value` holds NaN or infinity, which are not JSON.
    """
    write_text(path, json.dumps(value, indent=1, ensure_ascii=True, allow_nan=False) + "\n")


def load_json(path: Path, *, max_bytes: int = MAX_BYTES) -> Any:
    """Read strict JSON from `path`: no NaN or infinity, no duplicate keys, at most `max_bytes` bytes.

    Raises:
        UsageError: the file is missing, too large, or not such JSON.
    """
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise UsageError(f"cannot read {path}: it is not a regular file")
            content = file.read(max_bytes + 1)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    if len(content) > max_bytes:
        raise UsageError(f"{path} is larger than {max_bytes} bytes and was not read")
    try:
        return parse_json(content)
    except UsageError as error:
        raise UsageError(f"{path} {error}") from None


def parse_json(content: bytes) -> Any:
    """Read strict JSON, as `load_json` does, from bytes. Raises UsageError; the message is to follow a name."""

    def refuse(constant: str) -> NoReturn:
        raise ValueError(f"{constant} is not a JSON number")

    try:
        return json.loads(content, parse_constant=refuse, object_pairs_hook=_unique)
    except RecursionError:
        raise UsageError("is nested too deeply and was not read") from None
    except ValueError as error:
        raise UsageError(f"is not valid JSON: {error}") from None


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # a named pipe that nobody writes to would wait forever


def load_samples(path: Path, *, max_bytes: int = MAX_BYTES) -> Samples:
    """Read a samples file and check it against its schema.

    Returns:
        The samples (see schemas/samples-1.json). Every time in them is a finite number of seconds in
        [MIN_SECONDS, MAX_SECONDS].

    Raises:
        UsageError: naming the file, the place in it, what was found and what was expected.
    """
    samples = load_json(path, max_bytes=max_bytes)
    try:
        check_samples(samples)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    return cast(Samples, samples)  # the schema is held against the type by a test


def load_verdict(path: Path, *, max_bytes: int = MAX_BYTES) -> Verdict:
    """Read a verdict file and check it against its schema. Raises UsageError as `load_samples` does."""
    verdict = load_json(path, max_bytes=max_bytes)
    try:
        check(verdict, VERDICT_SCHEMA)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    return cast(Verdict, verdict)


def check_samples(samples: object) -> None:
    """Check `samples` against its schema.

    Raises:
        UsageError: with the JSON pointer of the first thing that is wrong.
    """
    # A run holds a million times, and jsonschema needs seconds for a hundred thousand numbers. So the times are checked
    # here, and the schema sees the rest with each list of times cut to its first entry.
    check(_with_short_times(samples), SAMPLES_SCHEMA)


def check(document: object, schema: str) -> None:
    """Check `document` against the packaged schema named `schema`. Raises UsageError at the first difference."""
    import jsonschema  # noqa: PLC0415  (a third of a second that commands which read no file need not pay)

    wanted = load_schema(schema)["properties"]["schema"]["const"]
    # Else the reader of another kind of file is told of a key that such files lack.
    if isinstance(document, dict) and document.get("schema", wanted) != wanted:
        raise _error(["schema"], f"{shown(document['schema'])}, expected {shown(wanted)}")
    error = jsonschema.exceptions.best_match(_validator(schema).iter_errors(document))
    if error is not None:
        raise _error([*error.absolute_path], error.message)


@functools.cache
def _validator(schema: str) -> Any:
    import jsonschema  # noqa: PLC0415

    return jsonschema.Draft202012Validator(load_schema(schema))


def load_schema(schema: str) -> dict[str, Any]:
    """Return the JSON Schema packaged under `schema` ("samples-1.json" or "verdict-1.json")."""
    text = resources.files("tilegate").joinpath("schemas", schema).read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def _with_short_times(value: object, place: tuple[str | int, ...] = ()) -> object:
    """Copy `value` with each pair's lists of times checked and cut to one entry; anything unexpected is left as is."""
    depth = len(place)
    if depth == 7 and place[0] == "cases" and place[2] == "replicates" and place[4] == "pairs":  # noqa: SIM102
        if place[6] in ("base", "head") and isinstance(value, list):
            for index, seconds in enumerate(value):
                _check_time(seconds, [*place, index])
            return value[:1]
    if depth >= 7:
        return value
    if isinstance(value, dict):
        return {key: _with_short_times(item, (*place, key)) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_short_times(item, (*place, index)) for index, item in enumerate(value)]
    return value


def _check_time(seconds: object, place: list[str | int]) -> None:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise _error(place, f"{_quote(seconds)} is not a number of seconds")
    if not MIN_SECONDS <= seconds <= MAX_SECONDS:  # false for NaN, too
        raise _error(place, f"{_quote(seconds)} is not a time between {MIN_SECONDS:g} and {MAX_SECONDS:g} seconds")


def _error(place: list[str | int], message: str) -> UsageError:
    # Messages of jsonschema quote the offending value whole.
    shown = message if len(message) <= 4 * _QUOTED else message[: 2 * _QUOTED] + " … " + message[-2 * _QUOTED :]
    pointer = "/" + "/".join(str(part).replace("~", "~0").replace("/", "~1") for part in place)
    return UsageError(f"at {_quote(pointer, 4 * _QUOTED)}: {shown}")


def _quote(value: object, limit: int = _QUOTED) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= limit else text[:limit] + "…"


def shown(value: object) -> str:
    """Return a value for an error message: as JSON where it can be, cut to size."""
    try:
        text = json.dumps(value)
    except (TypeError, ValueError):
        text = str(value)
    return _quote(text)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # Two readers of {"a": 1, "a": 2} may disagree on what was judged.
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("an object holds the same key twice")
    return result


def _sync_folder(folder: Path) -> None:
    # Not every file system lets a folder be opened and synchronised; the file itself is complete by now.
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
