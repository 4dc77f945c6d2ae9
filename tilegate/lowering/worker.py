"""The process that generates kernels of one revision, and executes them: loads the suite's modules, answers requests.

    python -P -m tilegate.lowering.worker REQUESTS_FD REPLIES_FD SUITE PACKAGE PACKAGE_ROOT

A request is {"op": "configurations", "arch"}, {"op": "lower", "arch", "id"}, or one that names as "by" the module whose
`answer(suite, request)` knows it: one JSON line. A reply is {"ok": result} or {"failure": {"kind", "message"}}. Whatever
the code under test prints goes to stdout and stderr, not into the replies.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import sys
import threading
import traceback
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import IO, Any

from tilegate.failures import explain
from tilegate.protocol import Artifact, verify_origin
from tilegate.protocol.origin import ROOT_VARIABLE

MODULE = "kernels"
"""The module of a suite that says which kernels there are (`configurations`) and generates them (`lower`)."""


def main() -> None:
    """Serve requests until the pipe closes."""
    source, target = (int(argument) for argument in sys.argv[1:3])
    suite, package, root = sys.argv[3:6]
    for descriptor in (source, target):
        os.set_inheritable(descriptor, False)
    os.environ[ROOT_VARIABLE] = root
    threading.Thread(target=_end_with_caller, args=(source,), daemon=True).start()
    with os.fdopen(source, encoding="utf-8") as requests, os.fdopen(target, "w", encoding="utf-8") as replies:
        _serve(requests, replies, suite, package, Path(root))


def _end_with_caller(source: int) -> None:
    """When nobody can send requests any more, end this process and what it started, whatever they are busy with."""
    gone = select.poll()
    gone.register(source, 0)  # for the hang-up alone, which needs not be asked for
    gone.poll()
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _serve(requests: IO[str], replies: IO[str], suite: str, package: str, root: Path) -> None:
    kernels: ModuleType | None = None
    for line in requests:
        request = json.loads(line)
        try:
            kernels = kernels or _load(suite, package)
            reply: dict[str, Any] = {"ok": _answer(kernels, suite, request)}
        except BaseException as error:  # SystemExit of the code under test, too
            traceback.print_exc()
            operation = "check" if request["op"] == "emulate" else "artifacts"
            reply = {"failure": explain(error, operation, package, root)}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


def _load(suite: str, package: str) -> ModuleType:
    kernels = importlib.import_module(f"{suite}.{MODULE}")
    verify_origin(importlib.import_module(package))
    return kernels


def _answer(kernels: ModuleType, suite: str, request: dict[str, Any]) -> Any:
    if request["op"] == "configurations":
        return {str(id): [str(case) for case in cases] for id, cases in kernels.configurations(request["arch"]).items()}
    if request["op"] != "lower":
        # What else is done with a kernel is for whoever asks to know: a worker that only generates needs no emulator.
        return importlib.import_module(request["by"]).answer(suite, request)
    made: list[Artifact] = kernels.lower(request["id"], request["arch"])
    return [asdict(artifact) for artifact in made]


if __name__ == "__main__":
    main()
