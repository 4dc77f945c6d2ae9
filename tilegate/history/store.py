"""The store: a folder of records, one a file, named by their content; and packs of those of past months.

    records/<kind>/<2 digits>/<30 digits>.json     written once, never changed
    packs/<month>-<digest>.jsonl.xz                the same records, many in a file

Two machines that write at once write other files, or the same ones: a merge of their folders is both together. So the folder
can live in a git branch, and a race is settled by fetching and pushing again.
"""

from __future__ import annotations

import contextlib
import hashlib
import lzma
import os
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tilegate.files import UsageError, write_text
from tilegate.history import read_cache
from tilegate.history.records import BrokenRecordError, Record, name_of, parse, text_of

_MOST_BYTES = 64 << 20  # of one record, or one unpacked pack


@dataclass(frozen=True)
class Broken:
    """A file that holds no record, and why. It is skipped, and named."""

    path: str
    reason: str


@dataclass(frozen=True)
class Store:
    """A history's records.

    Attributes:
        folder: where they are.
    """

    folder: Path

    def add(self, record: Record) -> bool:
        """Keep a record; return whether it is new.

        Raises:
            UsageError: it cannot be written.
            BrokenRecordError: it would not be read again.
        """
        text = text_of(record)
        parse(text)
        path = self._path(record["kind"], name_of(text))
        if path.exists():
            return False
        write_text(path, text + "\n")
        return True

    def read(self, cache: Path | None = None) -> tuple[list[Record], list[Broken]]:
        """Return all records, each once, in the order of their names, and the files that hold none.

        A record whose content is not what its name says was changed or cut off, and is broken.

        Args:
            cache: a file that keeps what was read (read_cache.py): then only files with new names are opened. None: all are.

        Raises:
            UsageError: there is no such folder.
        """
        if not self.folder.is_dir():
            raise UsageError(f"there is no history in {self.folder}; `tilegate history update` or `import` begins one")
        broken: list[Broken] = []
        pool = read_cache.Pool()
        known, packs = read_cache.load(cache, pool) if cache is not None else ({}, {})
        found: dict[str, Record] = {}
        in_packs: dict[str, list[str]] = {}
        for place, name, pack, text in self._texts(broken, known, packs):
            if pack is not None:
                in_packs.setdefault(pack, []).append(name)
            if name in found:
                continue
            if text is None:
                found[name] = known[name]
                continue
            try:
                if name_of(text) != name:
                    raise BrokenRecordError("its content is not what its name says: it was changed, or cut off")
                found[name] = pool.share(parse(text))
            except BrokenRecordError as error:
                broken.append(Broken(place, str(error)))
        if cache is not None and (found.keys() != known.keys() or in_packs != packs):
            whole = {pack: names for pack, names in in_packs.items() if found.keys() >= set(names)}
            read_cache.save(cache, found, whole)
        return [found[name] for name in sorted(found)], broken

    def pack(self, month: str, label: str = "") -> int:
        """Move loose records that were created up to a month into one pack; return how many.

        Comparisons and observations say when they were created; code versions are of their commit's month. The rest, of which
        there is little, stays loose. A broken file is never packed.

        Args:
            month: "2026-10"; records of that month and before.
            label: how the pack's name begins, if not with that month.
        """
        texts: dict[str, Path] = {}
        dates = self._commit_dates()
        for kind in ("comparison", "observation", "versions", "run", "figures"):
            for path in sorted((self.folder / "records" / kind).glob("*/*.json")):
                try:
                    text = path.read_text(encoding="utf-8").rstrip("\n")
                    record = parse(text)
                except (OSError, UnicodeDecodeError, BrokenRecordError):
                    continue  # stays where it is, and is named by `read`
                if name_of(text) == path.parent.name + path.stem and _month_of(record, dates) <= month:
                    texts[text] = path
        if not texts:
            return 0
        for content in _parts(sorted(texts)):
            digest = hashlib.sha256(content.encode()).hexdigest()[:16]
            target = self.folder / "packs" / f"{label or month}-{digest}.jsonl.xz"
            target.parent.mkdir(parents=True, exist_ok=True)
            temporary = target.with_suffix(".tmp")
            temporary.write_bytes(lzma.compress(content.encode(), preset=6))
            os.replace(temporary, target)
        for path in texts.values():  # after the pack is whole: whenever this is interrupted nothing is lost
            path.unlink(missing_ok=True)
        return len(texts)

    def _commit_dates(self) -> dict[str, str]:
        """Return the dates of the commits by their hashes; commits are never packed."""
        dates = {}
        for path in (self.folder / "records" / "commit").glob("*/*.json"):
            with contextlib.suppress(OSError, UnicodeDecodeError, BrokenRecordError):
                record = parse(path.read_text(encoding="utf-8"))
                if record["kind"] == "commit":
                    dates[record["sha"]] = record["date"]
        return dates

    def bytes(self) -> int:
        """Return the size of all files."""
        return sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())

    def _path(self, kind: str, name: str) -> Path:
        return self.folder / "records" / kind / name[:2] / f"{name[2:]}.json"

    def _texts(
        self, broken: list[Broken], known: Container[str], packs: Mapping[str, Sequence[str]]
    ) -> Iterator[tuple[str, str, str | None, str | None]]:
        """Yield (place, name, its pack's file, text) of every record; no text for one that is known."""
        for path in _loose(self.folder / "records"):
            name = path.parent.name + path.stem
            place = path.relative_to(self.folder).as_posix
            if name in known:
                yield "", name, None, None
                continue
            try:
                if path.stat().st_size > _MOST_BYTES:
                    raise OSError("too large")
                text = path.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                broken.append(Broken(place(), f"cannot be read: {error}"))
            else:
                yield place(), name, None, text.rstrip("\n")
        for path in _files(self.folder / "packs", "*.jsonl.xz"):
            if names := packs.get(path.name):
                yield from (("", name, path.name, None) for name in names)
                continue
            place_ = path.relative_to(self.folder).as_posix()
            try:
                with lzma.open(path) as file:
                    content = file.read(_MOST_BYTES + 1)
                if len(content) > _MOST_BYTES:
                    raise OSError("too large")
                lines = content.decode().splitlines()
            except (OSError, lzma.LZMAError, EOFError, UnicodeDecodeError) as error:
                broken.append(Broken(place_, f"cannot be read: {error}"))
            else:
                for number, line in enumerate(lines, 1):
                    yield f"{place_}:{number}", name_of(line), path.name, line


def _loose(folder: Path) -> Iterator[Path]:
    """Yield <kind>/<2 digits>/<30 digits>.json in order. A large store has ten thousands of them: no pattern, no question twice."""
    for kind in _entries(folder):
        for digits in _entries(kind.path):
            for file in _entries(digits.path):
                if file.name.endswith(".json") and file.is_file():
                    yield Path(file.path)


def _entries(folder: str | Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return sorted(found, key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _parts(lines: Sequence[str]) -> Iterator[str]:
    """Yield lines in texts that a reader takes: a year at once is more than one pack may hold."""
    part: list[str] = []
    size = 0
    for line in lines:
        if part and size + len(line) >= _MOST_BYTES // 2:
            yield "\n".join(part) + "\n"
            part, size = [], 0
        part.append(line)
        size += len(line) + 1
    if part:
        yield "\n".join(part) + "\n"


def _files(folder: Path, pattern: str) -> Iterable[Path]:
    return sorted(path for path in folder.glob(pattern) if path.is_file()) if folder.is_dir() else []


def _month_of(record: Record, dates: Mapping[str, str]) -> str:
    """Return the month of a record; one that sorts after all others where nothing says."""
    if record["kind"] == "versions":
        return dates.get(record["commit"], "9999-99")[:7]
    return str(record.get("created", "9999-99"))[:7]
