"""Every kernel that the policies can choose is generated for every chip, here, where none of the chips need be."""

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.workloads import WORKLOADS
from tilekernels.chips import CHIPS
from tilekernels.compiler import LoweredKernel
from tilekernels.forward import ForwardKernel, forward_kernel
from tilekernels.policy import DTYPES_OF, POLICIES, shared_bytes
from tilekernels.problem import AttentionProblem

GPUS = [chip for chip in CHIPS.values() if chip.kind != "cpu"]
FIELDS = ("batch", "heads", "kv_heads", "seqlen_q", "seqlen_k", "head_dim", "dtype", "causal")


def reachable(arch: str) -> list[ForwardKernel]:
    """What the workload table asks of a chip, under both policies."""
    chip = CHIPS[arch]
    found = {}
    for work in WORKLOADS:
        problem = AttentionProblem(**{name: getattr(work, name) for name in FIELDS})
        if problem.dtype in DTYPES_OF[chip.kind]:
            found |= {forward_kernel(problem, policy, arch): None for policy in POLICIES}
    return list(found)


def check(kernel: ForwardKernel, made: LoweredKernel) -> None:
    head_dim, dtype, _ = kernel.problem_key
    chip, tile = kernel.chip, kernel.tile
    assert "__global__" in made.source
    assert ("hip/hip_runtime.h" in made.source) == (chip.kind == "hip")
    assert made.launch["dynamic_shared_bytes"] == shared_bytes(tile, head_dim, dtype, chip)
    assert made.launch["dynamic_shared_bytes"] <= chip.lds_bytes
    threads, *rest = made.launch["block"]
    assert rest == [1, 1]
    # On Hopper TileLang adds a warpgroup that only loads.
    assert threads in ((tile.threads, tile.threads + 128) if chip.kind == "cuda" else (tile.threads,))
    assert threads <= chip.max_threads
    heads, blocks, batch = made.launch["grid"]
    assert (heads, batch) == ("heads", "batch")
    assert f"// {tile.block_m}" in blocks
    if chip.arch != "gfx950":  # where scratch is in two places, of which a reduction gets either
        assert scratch_used(made.source) == scratch_placed(made.source)  # TileLang's order changes from time to time


SCRATCH = r"\bworkspace(?:_\d+)?\b"


def scratch_placed(source: str) -> list[str]:
    """The scratch buffers of reductions by their place in LDS."""
    placed = re.findall(rf"void\* ({SCRATCH}) = \(\(void\*\)\(\(char\*\)\w+ \+ (\d+)\)\);", source)
    return [name for name, _ in sorted(placed, key=lambda buffer: int(buffer[1]))]


def scratch_used(source: str) -> list[str]:
    """The same by their first use."""
    uses = re.findall(rf"{SCRATCH}(?! = )", source)
    return list(dict.fromkeys(uses))


@pytest.mark.parametrize("arch", [chip.arch for chip in GPUS])  # the whole table takes minutes
def test_a_kernel_lowers(arch: str) -> None:
    kernel = forward_kernel(AttentionProblem(1, 28, 4, 512, 512, 64, "bfloat16", True), device=arch)
    check(kernel, *kernel.artifacts())


@pytest.mark.thorough
@pytest.mark.parametrize("kernel", [kernel for chip in GPUS for kernel in reachable(chip.arch)], ids=repr)
def test_the_whole_workload_table_lowers(kernel: ForwardKernel) -> None:
    check(kernel, *kernel.artifacts())


@pytest.mark.thorough
def test_the_text_of_a_kernel_is_the_same_in_every_process() -> None:
    script = (
        "import sys, hashlib\n"
        "from tilekernels import AttentionProblem, forward_kernel\n"
        "kernel = forward_kernel(AttentionProblem(1, 4, 4, 8, 64, 64, 'float16', False), 'fixed', 'gfx942')\n"
        "(made,) = kernel.artifacts()\n"
        "assert made.source.count('workspace') >= 4\n"
        "print(hashlib.sha256(made.source.encode()).hexdigest())"
    )
    environment = {**os.environ, "TILEKERNELS_CACHE": "0", "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", script]
    # Without numbering the scratch buffers one process in four differs.
    texts = set()
    for _ in range(2):
        started = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)]
        texts |= {process.communicate(timeout=200)[0] for process in started}
    assert len(texts) == 1
    assert len(texts.pop().strip()) == len(hashlib.sha256().hexdigest())


def forward_of(arch: str) -> LoweredKernel:
    (made,) = forward_kernel(AttentionProblem(1, 28, 4, 512, 512, 64, "bfloat16", True), device=arch).artifacts()
    return made


def test_exponentials_are_one_instruction_on_amd() -> None:
    called = re.findall(r"\w*exp\w*(?=\()", forward_of("gfx942").source)
    assert set(called) == {"__builtin_amdgcn_exp2f"}
    assert "amdgcn" not in forward_of("sm_90").source


@pytest.mark.parametrize("arch", ["gfx942", "cpu"])
def test_loads_are_not_guarded_against_heads_that_are_none(arch: str) -> None:
    dtype = "float32" if arch == "cpu" else "float16"
    (made,) = forward_kernel(AttentionProblem(1, 28, 4, 512, 512, 64, dtype, True), device=arch).artifacts()
    assert "kv_heads" in made.source
    assert "< kv_heads" not in made.source


def test_amd_reads_v_from_lds_in_wide_rows() -> None:
    read = re.findall(r"= \*\((\w+)\*\)\(\(\(bfloat16_t\*\)v\) \+", forward_of("gfx942").source)
    assert read == ["uint2"]


@pytest.mark.parametrize(("arch", "together"), [("gfx942", True), ("gfx90a", True), ("gfx950", False)])
def test_k_and_v_share_lds_where_they_are_not_in_use_together(arch: str, together: bool) -> None:
    placed = dict(
        re.findall(r"void\* ([kv]) = \(\(void\*\)\(\(char\*\)buf_dyn_shmem \+ (\d+)\)\);", forward_of(arch).source)
    )
    assert set(placed) == {"k", "v"}
    assert (placed["k"] == placed["v"]) == together
