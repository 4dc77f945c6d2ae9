"""What every suite class that times launches of a kernel family has in common."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Sequence
from typing import Any, ClassVar

import torch

import tilekernels
from benchmarks import reproduction
from benchmarks.family import Family, Tensors
from benchmarks.workloads import select
from tilegate.protocol import Artifact, Buffers, cold_sets, listing, selection, verify_origin

if not listing():
    import tilelang  # noqa: F401 - asv forks a process for each case: what is imported here takes its 2 s only once

verify_origin(tilekernels)

SELECTION = selection()
DEVICE = "cpu" if SELECTION.target == "cpu" else "cuda"  # torch calls AMD's GPUs cuda, too

if DEVICE == "cpu":
    # The kernels use one thread, and the reference's tensors are small: on a shared machine, where a thread may wait
    # for a core, OpenMP makes an operation on them take milliseconds instead of a fraction of one.
    torch.set_num_threads(1)


class Launches:
    """Launches of one family's kernels, on inputs and into outputs that are there already.

    A subclass has a `version`, and one method, the one that its family's `case` names:

        class Forward(Launches, family=forward.FAMILY):
            def latency_forward(self, workload_id, policy):
                self.kernel.launch(*next(self.next_set))
    """

    family: ClassVar[Family]
    param_names = ("workload", "policy")
    timeout = 600.0
    warmup_time = 0.05 if SELECTION.target == "cpu" else 0.3
    sample_time = 0.2 if SELECTION.target == "cpu" else 0.5
    checked_scores = 1 << 31
    """What `check` compares: 28 heads of 8k rows and keys in full. In double precision four times as much takes an H200 a
    second, longer than the timing of the case; the tests do it."""
    looked_at_scores = 1 << 27
    """What is compared of each timed launch that is looked at, six and more in a run: other rows every time."""
    drawn_scores = 1 << 16 if DEVICE == "cpu" else 1 << 23
    """The most that a problem has on which a kernel is probed: milliseconds."""

    def __init_subclass__(cls, family: Family) -> None:
        """Time the workloads of the selected tier under the family's policies."""
        cls.family = family
        cls.params = ([work.id for work in select(SELECTION, family.workloads)], list(family.policies))

    def setup(self, workload_id: str, policy: str) -> None:
        """Compile the kernel and draw the inputs, in as many copies as leave none of them in a cache."""
        self.workload = self.family.workload(workload_id)
        self.kernel = self.family.kernel(self.workload, policy, DEVICE)
        self.kernel.compile()
        inputs = self.family.inputs(self.workload, DEVICE, 0)
        self.outputs = self.family.outputs(self.workload, self.kernel, DEVICE)
        numbers = tuple(self.family.numbers(self.workload, self.kernel).values())
        copies = cold_sets(self.workload.bytes) - 1
        first = Buffers(inputs, self.outputs)
        self._sets = [first, *(Buffers(_clones(inputs), _clones(self.outputs)) for _ in range(copies))]
        self.next_set = itertools.cycle(
            [(*each.inputs.values(), *each.outputs.values(), *numbers) for each in self._sets]
        )

    @classmethod
    def precompile(cls, params: list[tuple[str, str]]) -> None:
        """Compile all that these (workload, policy) need, in parallel, with a progress bar on stderr."""
        tilekernels.compile_kernels(cls.family.kernel(cls.family.workload(id), policy, DEVICE) for id, policy in params)

    def check(self, workload_id: str, policy: str) -> None:
        """Compare the results with the reference, on inputs that no launch has seen; raises WrongResult."""
        work, family = self.workload, self.family
        inputs, outputs = family.inputs(work, DEVICE, 1), family.outputs(work, self.kernel, DEVICE)
        self.kernel.launch(*inputs.values(), *outputs.values(), *family.numbers(work, self.kernel).values())
        family.check(work, inputs, outputs, self.checked_scores)

    def inputs(self, workload_id: str, policy: str) -> Tensors:
        """Draw the inputs of a launch; the same in every process. Needs no `setup`."""
        return self.family.inputs(self.family.workload(workload_id), DEVICE, 0)

    def varied(self, workload_id: str, policy: str) -> Sequence[str]:
        """Return which inputs can take other values by themselves; needs no `setup`."""
        return self.family.varied

    def buffers(self, workload_id: str, policy: str) -> list[Buffers]:
        """Return what the launches read and write, in turn."""
        return self._sets

    def verify(self, inputs: Tensors, outputs: Tensors, workload_id: str, policy: str) -> None:
        """Compare what a launch made of such inputs with the reference; needs no `setup`. Raises WrongResult."""
        self.family.check(self.family.workload(workload_id), inputs, outputs, self.looked_at_scores)

    def probe(self, seed: int, workload_id: str, policy: str) -> Tensors:
        """Launch the kernels of a case on a problem that `seed` draws, and return what they wrote; needs no `setup`.

        Seeds that are the same but for their last 8 bits have the same lengths and kind of values, and other numbers.
        """
        work, inputs = self._drawn(seed, workload_id)
        kernel = self.family.kernel(self.family.workload(workload_id), policy, DEVICE)
        outputs = self.family.outputs(work, kernel, DEVICE)
        kernel.launch(*inputs.values(), *outputs.values(), *self.family.numbers(work, kernel).values())
        return outputs

    def verify_probe(self, seed: int, outputs: Tensors, workload_id: str, policy: str) -> None:
        """Compare that with the reference. Raises WrongResult."""
        work, inputs = self._drawn(seed, workload_id)
        self.family.check(work, inputs, outputs, self.drawn_scores)

    @classmethod
    def probed(cls) -> list[tuple[str, str]]:
        """Return cases of any tier that together have every kernel of this device's workloads."""
        works = [work for work in cls.family.workloads if SELECTION.target in work.targets and cls.family.drawn]
        cases = [(work, policy) for work in works for policy in cls.family.policies]
        kernels = {cls.family.kernel(work, policy, DEVICE): (work.id, policy) for work, policy in reversed(cases)}
        return list(kernels.values())

    def _drawn(self, seed: int, workload_id: str) -> tuple[Any, Tensors]:
        chance = random.Random(seed >> 8)  # noqa: S311 - whoever gives the seed keeps it to himself
        if self.family.drawn is None:
            raise NotImplementedError(f"no problems are drawn for {self.family.name} kernels")
        work = self.family.drawn(self.family.workload(workload_id), chance, self.drawn_scores)
        values = self.family.drawn_values[(seed >> 8) % len(self.family.drawn_values)]
        return work, self.family.inputs(work, DEVICE, seed, values)

    def work(self, workload_id: str, policy: str) -> dict[str, int | str]:
        """Return what one launch computes and moves, and for which shape; needs no `setup`."""
        work = self.family.workload(workload_id)
        return {"flops": work.flops, "bytes": work.bytes, "shape": work.shape}

    def reproduction(self, workload_id: str, policy: str, lengths: Sequence[int]) -> dict[str, Any]:
        """Return what a script needs to run this case with torch and tilelang alone; see `reproduction.describe`."""
        return reproduction.describe(self.family, self.family.workload(workload_id), policy, DEVICE, lengths)

    def artifacts(self, workload_id: str, policy: str) -> list[Artifact]:
        """Return what the compiler makes of the kernels of a launch, without launching it; needs no `setup`."""
        kernel = self.family.kernel(self.family.workload(workload_id), policy, DEVICE)
        tile: dict[str, Any] = dataclasses.asdict(kernel.tile)  # so that a gate can name a changed tile
        return [
            Artifact(made.name, made.source, made.launch, {**made.resources, "tile": tile})
            for made in kernel.artifacts()
        ]


def _clones(tensors: Tensors) -> Tensors:
    return {name: tensor.clone() for name, tensor in tensors.items()}
