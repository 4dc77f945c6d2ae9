"""What a worker may answer. The code under test shares the worker's process and its pipe, so nothing is taken on trust."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from tilegate.files import MAX_SECONDS, MIN_SECONDS
from tilegate.protocol import verified_work

LONGEST = 64 * 2**20  # bytes of a reply; the catalogue of a hundred thousand cases is a third of that

MOST_RECORDED = 10_000  # launches of one sample; the samples schema allows no more

_KINDS = frozenset(
    (
        *("compile", "import", "setup", "wrong-result", "crash", "hang", "out-of-memory", "leak", "error"),
        *("off-clock", "side-effect", "tampered"),
        *("missing", "skipped"),  # no failures; see WorkerError
    )
)


class NoReplyError(Exception):
    """A line that no worker writes."""


def decode(operation: str, ticket: str, line: bytes) -> tuple[Any, tuple[str, str] | None]:
    """Take a reply to `operation` apart.

    Args:
        operation: what was asked.
        ticket: the request's, which its reply repeats. Nobody can know it beforehand, so a reply that was written in
            advance, or that belongs to an earlier request, is none.
        line: what came.

    Returns:
        The answer and None, or None and the failure's kind and message.

    Raises:
        NoReplyError: it is not JSON, not such an answer, or not to this request.
    """
    try:
        reply = json.loads(line, parse_constant=_refuse)
    except (ValueError, RecursionError):
        reply = None
    if not isinstance(reply, dict) or reply.get("ticket") != ticket:
        raise NoReplyError
    match reply:
        case {"failure": {"kind": str(kind), "message": str(message)}} if kind in _KINDS:
            return None, (kind, message)
        case {"ok": answer} if _EXPECTED.get(operation, _anything)(answer):
            return answer, None
    raise NoReplyError


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")


def _anything(answer: object) -> bool:
    return True


def _is_catalogue(answer: object) -> bool:
    match answer:
        case {"cases": list(cases), "broken": dict(broken)}:
            return all(map(_is_case, cases)) and all(map(_is_failure, broken.values()))
    return False


def _is_case(case: object) -> bool:
    match case:
        case {"id": str(), "benchmark": str(), "params": list(params), "version": str(), **rest}:
            if not all(isinstance(shown, str) for shown in params):
                return False
            return not rest or (set(rest) == {"work"} and _is_work(rest["work"]))
    return False


def _is_work(work: object) -> bool:
    try:
        return verified_work(work) == work
    except ValueError:
        return False


def _is_failure(failure: object) -> bool:
    match failure:
        case {"kind": str(kind), "message": str(), **rest}:
            return not rest and kind in _KINDS
    return False


def _is_identity(answer: object) -> bool:
    match answer:
        case {"identity": str(identity), "resources": None | dict(), **rest}:
            return not rest and re.fullmatch("[0-9a-f]{64}", identity) is not None
        case {"identity": None, "resources": None | dict(), **rest}:
            return not rest
    return False


def _are_times(answer: object) -> bool:
    return isinstance(answer, list) and all(map(_is_time, answer))


def _is_time(seconds: object) -> bool:
    return isinstance(seconds, float) and math.isfinite(seconds) and MIN_SECONDS <= seconds <= MAX_SECONDS


def _are_texts(answer: object) -> bool:
    return isinstance(answer, list) and all(isinstance(text, str) for text in answer)


def _is_delivery(answer: object) -> bool:
    match answer:
        case {"launch": int(launch), "set": int(which), "sets": int(sets), "light": list(light), **rest}:
            return not rest and launch >= 0 and 0 <= which < sets and all(isinstance(name, str) for name in light)
    return False


_EXPECTED: Mapping[str, Callable[[object], bool]] = {
    "load": _is_catalogue,
    "artifacts": _is_identity,
    "setup": lambda answer: isinstance(answer, bool),
    "check": lambda answer: isinstance(answer, bool),
    "deliver": _is_delivery,
    "observe": lambda answer: answer is None or _are_texts(answer),
    "probe": lambda answer: isinstance(answer, bool),
    "unlisted": _are_texts,
    "record": lambda answer: type(answer) is int and 1 <= answer <= MOST_RECORDED,
    "measure": _are_times,
    "state": lambda answer: isinstance(answer, dict),
}
