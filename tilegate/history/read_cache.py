"""What a store said last time, in one small file, so that a large one is not parsed again for each new commit.

Records never change and are named by their content, so a name that is still there says the same as before. The file is derived:
deleted or damaged, it is made again. A code version is kept once, however many commits have it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from tilegate import __version__
from tilegate.files import UsageError, write_text
from tilegate.history.records import CodeVersion, Record, Versions

_FORMAT = f"tilegate-read/2 {__version__}"


@dataclass
class Pool:
    """Code versions, each kept once: a year of commits repeats few of them."""

    _known: dict[tuple[str, str, str], CodeVersion] = field(default_factory=dict)

    def share(self, record: Record) -> Record:
        """Return the record with its code versions replaced by equal ones that are kept already."""
        if record["kind"] != "versions":
            return record
        cases = {}
        for case, entry in record["cases"].items():
            known = self.add(case, entry)
            cases[sys.intern(case)] = known if known == entry else entry
        return {**record, "cases": cases}

    def add(self, case: str, entry: CodeVersion) -> CodeVersion:
        """Keep an entry unless there is one of the same code; return the one that is kept."""
        return self._known.setdefault((case, entry["identity"], entry["method"]), entry)


def load(path: Path, pool: Pool) -> tuple[dict[str, Record], dict[str, list[str]]]:
    """Return the records by name, and each pack's names, and fill the pool; nothing if there is no such file, or it is another version's."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["format"] != _FORMAT:
            return {}, {}
        table = [(sys.intern(case), entry) for case, entry in document["table"]]
        for case, entry in table:
            pool.add(case, entry)
        found: dict[str, Record] = dict(document["others"])
        packs = {str(pack): list(names) for pack, names in document["packs"].items()}
        for name, rest, places in document["versions"]:
            found[name] = cast("Versions", {**rest, "cases": dict(table[place] for place in places)})
        if not all(name in found for names in packs.values() for name in names):
            return {}, {}
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError):
        return {}, {}
    return found, packs


def save(path: Path, found: Mapping[str, Record], packs: Mapping[str, Sequence[str]]) -> None:
    """Keep the records for the next time; a cache that cannot be written is none."""
    table: list[tuple[str, CodeVersion]] = []
    place: dict[tuple[str, int], int] = {}
    versions: list[Any] = []
    others: dict[str, Record] = {}
    for name, record in found.items():
        if record["kind"] != "versions":
            others[name] = record
            continue
        places = []
        for case, entry in record["cases"].items():
            at = place.setdefault((case, id(entry)), len(table))
            if at == len(table):
                table.append((case, entry))
            places.append(at)
        versions.append([name, {key: value for key, value in record.items() if key != "cases"}, places])
    document = {"format": _FORMAT, "table": table, "versions": versions, "others": others, "packs": packs}
    try:
        write_text(path, json.dumps(document, separators=(",", ":")))
    except UsageError:
        path.unlink(missing_ok=True)
