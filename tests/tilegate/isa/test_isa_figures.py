"""The numbers of one kernel, from real listings whose loops were counted by hand."""

from __future__ import annotations

import dataclasses
import json

import pytest
from isa_fixtures import artifact, listing

from tilegate.isa.assembly import Listing
from tilegate.isa.chips import CHIPS
from tilegate.isa.figures import Figures, figures_of, lds_buffers, threads_of
from tilegate.protocol import Artifact


def figures(arch: str = "gfx942", threads: int = 256, dynamic: int = 0, **metadata: int) -> Figures:
    found = listing(f"loop-{arch}.s")
    changed = {**found.metadata, **{key: str(value) for key, value in metadata.items()}}
    return figures_of(dataclasses.replace(found, metadata=changed), artifact("loop", threads, dynamic), CHIPS[arch])


def test_resources() -> None:
    found = figures(dynamic=1024)
    assert (found.vgprs, found.agprs, found.registers, found.sgprs) == (21, 4, 28, 18)
    assert (found.lds_static, found.lds_dynamic, found.lds) == (4096, 1024, 5120)
    assert found.lds_share == pytest.approx(5120 / 65536, abs=1e-4)
    assert (found.vgpr_spills, found.scratch, found.dynamic_stack) == (0, 0, False)


@pytest.mark.parametrize("arch", ["gfx942", "gfx90a"])
def test_counts_of_the_loop(arch: str) -> None:
    found = figures(arch)
    assert found.loop is not None
    every, steady = found.loop.counts, found.loop.steady
    assert (every.matrix, every.transcendental, every.barriers, every.lds_permutes) == (1, 1, 2, 1)
    assert every.lds_reads == {"8": 1, "2": 4}
    assert every.lds_writes == {"16": 1}
    assert every.global_loads == {"16": 1}
    assert every.global_stores == {}
    assert (every.agpr_copies, steady.agpr_copies) == (16, 9)
    assert every.drains == 1
    assert found.counts.global_stores == {"16": 1}
    assert found.counts.instructions == len(list(listing(f"loop-{arch}.s").instructions))


def test_cycles_of_the_loop_on_gfx942() -> None:
    loop = figures().loop
    assert loop is not None
    # Four waves on four SIMDs: a turn each. Vector: 24 instructions of 4 cycles and one exponential of 16.
    assert loop.cycles["matrix"] == 16
    assert loop.cycles["vector"] == 4 * (loop.steady.vector + loop.steady.agpr_copies) + 16
    assert loop.steady.vector == 11
    # LDS, for each wave: 64 lanes x (16 written, 8 read, 4 x 4 read, 4 permuted) bytes over 128 a cycle.
    assert loop.cycles["lds"] == 4 * 64 * (16 + 8 + 16 + 4) / 128
    assert loop.cycles["memory"] == 4 * 64 * 16 / 64
    assert loop.limiter == "vector"
    assert loop.matrix_share == pytest.approx(16 / loop.cycles["vector"], abs=1e-4)


def test_twice_the_waves_take_twice_the_cycles() -> None:
    one, two = figures(threads=256).loop, figures(threads=512).loop
    assert one is not None
    assert two is not None
    assert two.cycles == {unit: 2 * cycles for unit, cycles in one.cycles.items()}


# LLVM's table for gfx90a and later.
@pytest.mark.parametrize(
    ("registers", "waves"),
    [(64, 8), (65, 7), (72, 7), (80, 6), (96, 5), (97, 4), (128, 4), (168, 3), (169, 2), (256, 2), (257, 1), (512, 1)],
)
def test_waves_by_registers(registers: int, waves: int) -> None:
    assert figures(vgpr_count=registers).waves_by_registers == waves


@pytest.mark.parametrize(
    ("lds", "threads", "waves", "workgroups"),
    [
        (0, 256, 8, 8),  # registers leave room for eight waves, LDS for all
        (32768, 256, 2, 2),
        (32769, 256, 1, 1),
        (34816, 512, 2, 1),  # one workgroup of eight waves
        (65536, 256, 1, 1),
        (65537, 256, 0, 0),
        (20992, 64, 0.75, 3),  # three workgroups of one wave on four SIMDs
    ],
)
def test_waves_by_lds(lds: int, threads: int, waves: float, workgroups: int) -> None:
    found = figures(threads=threads, group_segment_fixed_size=lds)
    assert (found.waves, found.workgroups) == (waves, workgroups)


def test_lds_of_gfx950_is_larger_and_comes_in_larger_pieces() -> None:
    assert figures("gfx950", group_segment_fixed_size=65536).workgroups == 2
    assert figures("gfx950", group_segment_fixed_size=53761).workgroups == 2  # 43 pieces; three would need 129 of 128
    assert figures("gfx950", group_segment_fixed_size=53760).workgroups == 3


def test_a_workgroup_that_registers_leave_no_room_for() -> None:
    found = figures(threads=1024, vgpr_count=256)
    assert (found.waves_by_registers, found.workgroups, found.waves) == (2, 0, 0)


def test_a_kernel_without_a_loop() -> None:
    found = listing("loop-gfx942.s")
    last = found.blocks[-1]
    straight = Listing(found.name, found.metadata, (last,), found.code_bytes, found.vgprs)
    assert figures_of(straight, artifact("loop", 256), CHIPS["gfx942"]).loop is None


@pytest.mark.parametrize("arch", ["gfx942", "gfx90a", "gfx950"])
def test_json_and_back(arch: str) -> None:
    found = figures(arch)
    assert Figures.from_json(json.loads(json.dumps(found.to_json()))) == found


@pytest.mark.parametrize("block", [None, "256", [], [256.0], [True]])
def test_a_launch_without_threads_is_refused(block: object) -> None:
    launch = {} if block is None else {"block": block}
    with pytest.raises(ValueError, match="block"):
        threads_of(Artifact("k", "", launch))  # type: ignore[arg-type]


def test_buffers_are_named_and_shared_ones_counted_once() -> None:
    text = """
  void* q = ((void*)((char*)buf_dyn_shmem + 0));
  void* k = ((void*)((char*)buf_dyn_shmem + 32768));
  void* v = ((void*)((char*)buf_dyn_shmem + 32768));
  void* workspace = ((void*)((char*)buf_dyn_shmem + 49152));
"""
    assert lds_buffers(text, 50176) == (("q", 32768), ("k=v", 16384), ("workspace", 1024))
    assert lds_buffers("no buffers", 100) == ()
