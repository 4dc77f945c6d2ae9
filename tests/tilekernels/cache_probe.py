"""One kernel compiled in a process of its own, which says how much work that was.

The processes are forked from a server that has imported torch and TileLang once: that takes longer than all else that
they do, and nothing of the cache has been looked at by then.
"""

from __future__ import annotations

import multiprocessing
import os
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["torch", "tilelang"])
SECONDS = 120


@dataclass(frozen=True)
class Probe:
    """A process under way, and where it answers."""

    process: BaseProcess
    answers: Connection

    def told(self) -> dict | str:
        """Wait for the counts, or the text of the error that it ended with."""
        assert self.answers.poll(SECONDS), "no answer"
        answer = self.answers.recv()
        self.process.join(SECONDS)
        assert self.process.exitcode == 0
        return answer


def start(directory: Path, **variables: str) -> Probe:
    """Compile with the cache in `directory` and these environment variables."""
    receiver, sender = SERVER.Pipe(duplex=False)
    process = SERVER.Process(target=_answer, args=(sender, {"TILEKERNELS_CACHE": str(directory), **variables}))
    process.start()
    sender.close()
    return Probe(process, receiver)


def _answer(sender: Connection, variables: dict[str, str]) -> None:
    os.environ.update(variables)
    from tilekernels.compiler import CompilationError

    try:
        sender.send(compile_and_count())
    except CompilationError as error:
        sender.send(str(error))


def compile_and_count() -> dict[str, int | bool]:
    """Compile one kernel; say how often TileLang lowered and a compiler was started, and whether its result is right."""
    import subprocess

    import torch
    from small_kernels import scale_rows
    from tilelang.jit import kernel as jit

    from tilekernels.compiler import compile_kernel

    counts = {"lowered": 0, "compiled": 0}

    def counted(name, function):
        def call(*args, **kwargs):
            counts[name] += 1
            return function(*args, **kwargs)

        return call

    jit.JITKernel._compile_artifact = counted("lowered", jit.JITKernel._compile_artifact)
    subprocess.run = counted("compiled", subprocess.run)
    kernel = compile_kernel(scale_rows(), "cpu")
    given, got = torch.ones(5, 16), torch.zeros(5, 16)
    kernel(given, got)
    return {**counts, "right": torch.equal(got, 2 * given)}
