"""Counters: small kernels whose counts are known, and the library's kernels against the compiled code's static counts."""

from __future__ import annotations

from pathlib import Path

import attention_kernel
import pytest
from small_hip_kernels import line_of, out, run

from benchmarks import emulated, kernels
from tilegate import emulator
from tilegate.isa.analysis import analyse
from tilegate.isa.toolchain import ToolchainError, find_toolchain
from tilegate.lowering.store import Store


def counts(body: str, **keywords: object) -> emulator.Counters:
    result = run(body, {"out": out(4096)}, **keywords)  # type: ignore[arg-type]
    assert result.findings == ()
    assert result.counters is not None
    return result.counters


@pytest.mark.parametrize(
    ("stride", "ideal", "modelled", "worst"),
    [(1, 2, 2, 1), (2, 2, 4, 2), (32, 2, 64, 32), (33, 2, 2, 1), (0, 2, 2, 1)],
)
def test_bank_conflicts_of_4_bytes(stride: int, ideal: int, modelled: int, worst: int) -> None:
    body = f"  lds[t * {stride}] = 1;  // store\n  out[t] = 1;"
    found = counts(body, shared=16384)
    assert (found.total.lds_writes, found.total.lds_bytes) == (1, 256)
    assert (found.total.lds_cycles_ideal, found.total.lds_cycles_modelled, found.total.lds_worst) == (
        ideal,
        modelled,
        worst,
    )
    (line,) = [x for x in found.lines if x.counts.lds_writes]
    assert line.line == line_of(body, "// store")


@pytest.mark.parametrize(("type", "bytes_", "ideal"), [("int", 4, 2), ("uint2", 8, 4), ("uint4", 16, 8)])
def test_lds_cycles_of_contiguous_rows(type: str, bytes_: int, ideal: int) -> None:
    value = {"int": "1", "uint2": "make_uint2(1, 2)", "uint4": "make_uint4(1, 2, 3, 4)"}[type]
    found = counts(f"  (({type}*)lds)[t] = {value};\n  out[t] = 1;", shared=2048)
    assert found.widths["lds write", bytes_] == 1
    assert found.total.lds_cycles_ideal == found.total.lds_cycles_modelled == ideal


# Row t % 16, chunk t / 16 of an operand of a matrix instruction; cycles by AMD's groups and, for gfx950, by HipKittens'.
@pytest.mark.parametrize(
    ("type", "chunk", "gfx942", "gfx950"),
    [
        ("uint4", "t", 8, 4),
        ("uint4", "t % 16 * 8 + t / 16", 32, 16),
        ("uint4", "t % 16 * 8 + (t / 16 ^ t % 16 & 7)", 8, 4),
        ("uint4", "t % 16 * 4 + (t / 16 ^ t % 16 / 2 & 3)", 8, 4),
        ("uint4", "t % 16 * 4 + (t / 16 ^ t % 16 & 3)", 8, 8),
        ("uint4", "t % 16 * 5 + t / 16", 16, 8),
        ("uint2", "t", 4, 2),
        ("uint2", "t % 16 * 8 + t / 16", 32, 8),
        ("uint2", "t % 16 * 9 + t / 16", 4, 4),
    ],
)
def test_groups_of_lanes_of_wide_lds_reads(type: str, chunk: str, gfx942: int, gfx950: int) -> None:
    fill = "for (int i = t; i < 1024; i += 64) lds[i] = i;\n  __syncthreads();"
    body = f"  {fill}\n  {type} v = (({type}*)lds)[{chunk}];  // read\n  out[t] = v.x;"
    for arch, cycles in (("gfx942", gfx942), ("gfx950", gfx950)):
        found = counts(body, shared=4096, arch=arch)
        (line,) = [x for x in found.lines if x.counts.lds_reads]
        assert (line.counts.lds_reads, line.counts.lds_cycles_modelled) == (1, cycles)


@pytest.mark.parametrize(("index", "lines"), [("t", 2), ("t * 2", 4), ("t * 32", 64), ("0", 1)])
def test_lines_of_global_memory(index: str, lines: int) -> None:
    found = counts(f"  out[64 * 32 + t] = (out[{index}] & 1) + 5;").total
    assert (found.global_loads, found.global_stores, found.global_bytes) == (1, 1, 512)
    assert (found.lines_requested, found.lines_least) == (lines + 2, 4)


def test_bytes_per_xcd() -> None:
    found = counts("  out[blockIdx.x * 64 + t] = out[2048 + t % 32 + 32 * (blockIdx.x / 8)] + 1;", grid=(10,))
    assert found.workgroups == 10
    assert found.requested_bytes_per_xcd == (256, 256, 128, 128, 128, 128, 128, 128)
    assert found.unique_bytes_per_xcd == (256, 256, 128, 128, 128, 128, 128, 128)
    again = counts("  out[blockIdx.x * 64 + t] = out[2048 + t % 32] + 1;", grid=(10,))
    assert again.requested_bytes_per_xcd[:3] == (256, 256, 128)
    assert again.unique_bytes_per_xcd == (128,) * 8


def test_operations_and_divergent_accesses() -> None:
    body = "  int x = __shfl_xor(t, 1);\n  if (t & 1) { lds[t] = x; } else { ((char*)lds)[1024 + t] = 1; }\n  __syncthreads();\n  AtomicAdd(&out[0], (int)__ballot(x == 3));"
    found = counts(body, threads=128, shared=2048).total
    assert (found.exchanges, found.barriers, found.atomics, found.mfma) == (4, 1, 128, 0)
    assert found.lds_writes == 4  # two waves, two sides of a branch


def test_untraced_runs_have_no_counters() -> None:
    assert run("  out[t] = 1;", {"out": out()}, traced=False).counters is None


def test_counters_as_json() -> None:
    import json

    found = counts("  lds[t] = 1;\n  out[t] = 1;").to_json()
    assert json.loads(json.dumps(found)) == found
    assert found["total"]["lds_writes"] == 1
    assert found["lines"][0]["text"]


SHIPPED = [
    (arch, id)
    for arch in ("gfx942", "gfx90a", "gfx950")
    for id in kernels.configurations(arch)
    if id.startswith("forward ")
]
QUICK = ("forward bfloat16 d128 full 64x32", "forward float16 d128 causal 128x64")  # compiling all takes minutes


# A loop's body of the compiled code holds what one wave executes for one tile of keys; the emulator counts all waves and
# tiles. Two things differ and are accounted for, exactly. The compiler makes one 16-byte read of two of 8 bytes
# (ds_read2st64_b64). And it keeps the path of a reduction that waves of 32 lanes would take, through LDS (a store and a load
# of 4 bytes and two barriers a step, as many steps as there are exchanges): on these chips it is never executed.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("arch", "id"),
    [
        pytest.param(arch, id, marks=[] if id.startswith(QUICK) else pytest.mark.thorough, id=f"{arch} {id}")
        for arch, id in SHIPPED
    ],
)
def test_dynamic_counts_are_the_static_ones_times_waves_and_tiles(arch: str, id: str, tmp_path: Path) -> None:
    try:
        toolchain = find_toolchain(arch)
    except ToolchainError as missing:
        pytest.skip(str(missing))
    (artifact,) = kernels.lower(id, arch)
    figures = analyse(artifact, toolchain, Store(tmp_path)).figures
    assert figures is not None
    assert figures.loop is not None
    launch: dict[str, list[int]] = dict(artifact.launch)  # type: ignore[arg-type]
    program = emulator.compile_kernel(
        artifact.source, artifact.name, arch=arch, shared_bytes=int(str(artifact.launch["dynamic_shared_bytes"]))
    )
    arguments = emulated.arguments(id, arch, "b1 h2/2 q65 k65")
    grid = emulator.grid_of(launch["grid"], {k: v for k, v in arguments.items() if isinstance(v, int)})
    done = emulator.run(program, arguments, grid, launch["block"])
    assert done.counters is not None
    static = figures.loop.counts
    total, widths = done.counters.total, done.counters.widths
    waves_and_tiles, rest = divmod(total.mfma, static.matrix)
    assert rest == 0
    assert waves_and_tiles > 0
    steps = static.lds_permutes
    assert total.exchanges == steps * waves_and_tiles
    reads, writes = ({int(w): n for w, n in found.items()} for found in (static.lds_reads, static.lds_writes))
    # Newer compilers know the size of a wave and drop the path. There is no other access of 4 bytes.
    unused = reads.pop(4, 0)
    assert unused in ((0, steps) if arch == "gfx950" else (steps,))
    assert writes.pop(4, 0) == unused
    read, written = (
        {width: count for (of, width), count in widths.items() if of == kind} for kind in ("lds read", "lds write")
    )
    if arch == "gfx950":  # which has 16-byte reads, writes and barriers outside the loop, too
        assert 8 * read[8] == _bytes(reads) * waves_and_tiles
        return
    assert _bytes(read) == _bytes(reads) * waves_and_tiles
    assert written == {width: count * waves_and_tiles for width, count in writes.items()}
    assert total.barriers * (launch["block"][0] // 64) == (static.barriers - 2 * unused) * waves_and_tiles


def _bytes(counts: dict[int, int]) -> int:
    return sum(width * count for width, count in counts.items())


def test_counts_do_not_depend_on_the_schedule() -> None:
    runs = [attention_kernel.execute(attention_kernel.text(), schedule=schedule).run for schedule in emulator.SCHEDULES]
    totals = {run.counters.total for run in runs if run.counters is not None}
    assert len(totals) == 1
