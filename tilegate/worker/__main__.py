"""The worker's loop: see the package's docstring."""

from __future__ import annotations

import contextlib
import faulthandler
import json
import math
import os
import queue
import signal
import sys
import threading
import traceback
from typing import IO, Any

_STAGES = {"start": "import", "load": "import", "warm_up": "warm-up"}


def main() -> None:
    """Serve requests until the pipe closes."""
    descriptors = [int(argument) for argument in sys.argv[1:3]]
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)  # a compiler started here must not keep the pipes open
    faulthandler.enable()  # a crash leaves the Python stack in the log
    requests: queue.SimpleQueue[str] = queue.SimpleQueue()
    source = os.fdopen(descriptors[0], encoding="utf-8")
    threading.Thread(target=_listen, args=(source, requests), daemon=True).start()
    with os.fdopen(descriptors[1], "w", encoding="utf-8") as replies:
        _serve(requests, replies)


def _listen(source: IO[str], requests: queue.SimpleQueue[str]) -> None:
    """Pass requests on. When the pipe closes, whoever started this worker is gone, however it ended: end too.

    The whole process group ends, compilers included. (PR_SET_PDEATHSIG would end this process alone, and first.)
    """
    try:
        for line in source:
            requests.put(line)
    except (OSError, ValueError):  # the code under test has closed the pipe: nobody could be heard any more
        traceback.print_exc()
        os._exit(1)
    os.killpg(0, signal.SIGKILL)


def _serve(requests: queue.SimpleQueue[str], replies: IO[str]) -> None:
    from tilegate.worker.suite import Side  # noqa: PLC0415 - after faulthandler is on

    side: Side | None = None
    while True:
        request = json.loads(requests.get())
        operation, timeout, ticket = request.pop("op"), request.pop("timeout"), request.pop("ticket")
        # A watchdog in C: it ends this process, with a traceback in the log, even if the code under test holds the
        # interpreter's lock.
        limit = math.inf if side is None else side.time_limit(operation, request.get("case"))
        faulthandler.dump_traceback_later(min(timeout, limit), exit=True)
        try:
            if operation == "start":
                side = Side(**request)
                reply: dict[str, Any] = {"ok": None}
            else:
                reply = {"ok": getattr(side, operation)(**request)}
        except BaseException as error:
            # BaseException: sys.exit in a suite must not look like a crash.
            traceback.print_exc()
            stage = _STAGES.get(operation, operation)
            reply = {"failure": side.explain(error, stage) if side else {"kind": "error", "message": str(error)}}
        finally:
            faulthandler.cancel_dump_traceback_later()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # the suite may have closed or replaced them
                stream.flush()
        replies.write(_encode({"ticket": ticket, **reply}) + "\n")
        replies.flush()


def _encode(reply: dict[str, Any]) -> str:
    try:
        return json.dumps(reply, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:  # resources that hold a numpy number, say, or NaN
        message = f"the suite's answer is not JSON: {error}"
        return json.dumps({"ticket": reply["ticket"], "failure": {"kind": "error", "message": message}})


if __name__ == "__main__":
    main()
