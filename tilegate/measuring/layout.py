"""What does not belong to a change, drawn anew for each process: where things lie, and in which order they come.

A kernel's time depends on where its code and its buffers lie, by several percent on a CPU, and that depends on the size of
the environment, the length of paths, the order of imports: on anything but the kernel (Mytkowicz et al., Producing Wrong
Data Without Doing Anything Obviously Wrong!, ASPLOS 2009). Were it the same in every replicate, all of them would share
one layout's luck and confirm it. So each process draws its own, base and head apart and from the same distribution: luck
then differs from replicate to replicate, is part of the bias that is seen between them, and averages out (Curtsinger &
Berger, Stabilizer, ASPLOS 2013).

This is the part that the parent decides; `tilegate.worker.placement` does the rest inside the process.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from tilegate.schemas import samples

_ENVIRONMENT_BYTES = 4096  # a page: by more, the stack does not lie otherwise
_HASH_SEEDS = 2**32
_SEED_BITS = 48  # JSON's numbers hold 53 exactly


@dataclass(frozen=True)
class Layout:
    """How one process is laid out.

    Attributes:
        seed: of what is drawn inside the process: order of imports and of compilation, places in its memory and on the device.
        hash_seed: its PYTHONHASHSEED.
        environment_bytes: by how much its environment is larger than it need be.
    """

    seed: int
    hash_seed: int
    environment_bytes: int

    def variables(self) -> dict[str, str]:
        """Return the environment variables that make a process so."""
        return {"PYTHONHASHSEED": str(self.hash_seed), "TILEGATE_PADDING": "x" * self.environment_bytes}

    def to_json(self) -> samples.Layout:
        """Return it as samples.json holds it."""
        return {"seed": self.seed, "hash_seed": self.hash_seed, "environment_bytes": self.environment_bytes}


@dataclass
class Layouts:
    """Draws layouts.

    Attributes:
        hash_seeds: whether they differ in the hash seed. They must not where the generated code would differ with it, for
            what is timed is to be what was checked.
    """

    hash_seeds: bool = True

    def draw(self, seed: int, session: str, side: str) -> Layout:
        """Draw the layout of one side's process; the same arguments give the same one.

        Args:
            seed: of the run.
            session: the label of that pair of processes.
            side: "base" or "head".
        """
        source = _source(seed, session, side)
        inside, environment = source.getrandbits(_SEED_BITS), source.randrange(_ENVIRONMENT_BYTES)
        return Layout(inside, source.randrange(_HASH_SEEDS) if self.hash_seeds else 0, environment)


def order(seed: int, session: str, cases: Sequence[str]) -> list[str]:
    """Return the order in which a pair of processes takes its cases, the same on both sides, since they take turns."""
    return _source(seed, session, "order").sample(list(cases), len(cases))


def _source(seed: int, session: str, what: str) -> random.Random:
    return random.Random(f"{seed}/{session}/{what}")  # noqa: S311 - not for secrets
