"""One case of a suite at one or two revisions: which one an expression names, and what its suite says of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilegate.files import UsageError
from tilegate.measuring import git, trees
from tilegate.measuring.pool import WorkerPool
from tilegate.measuring.session import ListedCase, Worker, WorkerError
from tilegate.measuring.workspace import workspace_of
from tilegate.protocol import is_call
from tilegate.schemas.samples import Target

_MOST_NAMES = 10


@dataclass(frozen=True)
class Side:
    """A case at one revision.

    Attributes:
        revision: which.
        case: its id.
        answer: what the suite's `reproduction` returned.
    """

    revision: trees.Revision
    case: str
    answer: Mapping[str, Any]


def one_case(worker: Worker, pattern: str) -> ListedCase:
    """Return the catalogue's entry of the kernel case whose id is `pattern`, or holds it as it is, or as an expression.

    Or the one whose shape, as reports show it ("b4 h28/4 s4096 d128 causal"), has all words of `pattern` but those that its id
    holds ("adaptive").

    Raises:
        UsageError: none or several are; names some.
        WorkerError: the suite cannot be loaded.
    """
    every = {case["id"]: case for case in worker.catalogue()["cases"]}
    known = {name: case for name, case in every.items() if not is_call(case["benchmark"])}
    names = _matching(pattern, known) or [name for name, case in known.items() if _is_of_shape(pattern, name, case)]
    if len(names) == 1:
        return known[names[0]]
    if not names and (calls := _matching(pattern, every)):
        raise UsageError(
            f"{calls[0]} times what a call costs its caller on the host; that has no kernel to show by itself. Name a case of "
            "a latency_ method"
        )
    some = names[:_MOST_NAMES] or list(known)[:_MOST_NAMES]
    what = f"{len(names)} cases match" if names else "no case matches; some that there are"
    rest = len(names or known) - len(some)
    raise UsageError("\n  ".join([f"{pattern!r}: {what}:", *some, *([f"and {rest} more"] if rest else [])]))


def _is_of_shape(pattern: str, name: str, case: ListedCase) -> bool:
    shape = str(case.get("work", {}).get("shape", "")).split()
    words = pattern.split()
    return any(word in shape for word in words) and all(word in shape or word in name for word in words)


def _matching(pattern: str, names: Iterable[str]) -> list[str]:
    # An id is full of characters that mean something in an expression: what is pasted from a table is taken as it is.
    listed = list(names)
    try:
        return (
            [name for name in listed if pattern == name]
            or [name for name in listed if pattern in name]
            or [name for name in listed if re.search(pattern, name)]
        )
    except re.error as error:
        raise UsageError(f"{pattern!r} is not a regular expression: {error}") from None


def asked(
    repository: git.Repository,
    wanted: Mapping[str, tuple[str, str]],
    scratch: Path,
    *,
    target: Target,
    lengths: Sequence[int],
) -> dict[str, Side]:
    """Ask the suite of the first revision for its `reproduction` of cases, each with the package of its revision.

    Args:
        repository: has the revisions.
        wanted: (revision, pattern of `one_case`) by role, "base" first if there is one.
        scratch: an existing folder.
        target: "cpu", "cuda" or "hip".
        lengths: see docs/protocol.md, `reproduction`; without any, the base is asked for those of the head.

    Raises:
        UsageError: there is no such case, its suite has no reproduction, or the two cases have other shapes.
    """
    revisions = {role: trees.resolve(repository, rev, scratch / f"objects-{role}") for role, (rev, _) in wanted.items()}
    suite = next(iter(revisions.values()))
    sides: dict[str, Side] = {}
    for role in reversed(tuple(wanted)):  # the head first: its lengths are the base's
        workspace, config = workspace_of(
            repository, revisions[role], suite, scratch / role / "workspace", target=target, tier="full"
        )
        with WorkerPool({workspace.name: workspace}, scratch / role / "logs", config, label="repro") as pool:
            try:
                worker = pool.worker(workspace.name)
                case = str(one_case(worker, wanted[role][1])["id"])
                asked_for = list(lengths) or (list(sides["head"].answer["lengths"]) if sides else [])
                answer = worker.request("reproduction", config.compile_timeout, case=case, lengths=asked_for)
            except WorkerError as error:
                what = f"{wanted[role][0]}: {wanted[role][1]!r}"
                raise UsageError(
                    f"{what} cannot be reproduced: {error.message.removeprefix('NotImplementedError: ')}"
                ) from None
        if sides and answer["shape"] != sides["head"].answer["shape"]:
            raise UsageError(f"{case} is another problem than {sides['head'].case}: their times cannot be compared")
        sides[role] = Side(revisions[role], case, answer)
    return {role: sides[role] for role in wanted}
