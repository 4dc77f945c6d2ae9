"""Times candidate tiles of one kernel beside the tile that the policy chooses, and prints a table.

All take turns in random order in one run, from a cold cache, by the clock that the gate uses; each result is first held against
the double-precision reference. The policy's tile runs twice: the second, `control`, is the same code, so what sets it apart from
the first is noise. A rate of 1.03 is 3 % more work a second than the policy's tile.

    python scripts/tune.py forward                                # Qwen2.5-7B's heads, causal, 4k and 16k tokens
    python scripts/tune.py backward-keys --lengths 2048 8192 --masks causal full
    python scripts/tune.py backward-queries --tiles 128x64/256/2 128x64/256/2o --json queries.json
    python scripts/tune.py backward-fused --rounds 12             # dQ by atomics, as one kernel

A tile is spelled rows x keys / threads / stages; "r" after it: what a workgroup keeps lies in registers; "o": products overlap
with exponentials (NVIDIA). A tile that does not fit or compile is named and left out. What is worth a place goes into
tilekernels/policy.py or tilekernels/backward_policy.py by hand, with the run that it came from.
"""

from __future__ import annotations

import argparse
import functools
import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path[:0] = [str(Path(__file__).parents[1])]  # `benchmarks` is not installed

import tilekernels  # noqa: E402
from benchmarks.families import backward, forward  # noqa: E402
from benchmarks.families.backward import BackwardWorkload  # noqa: E402
from benchmarks.turns import quartiles, take_turns  # noqa: E402
from tilegate.measuring.environment import describe  # noqa: E402
from tilegate.protocol import WrongResult, selection  # noqa: E402
from tilekernels import BackwardTile, Blocks, TileConfig, backward_policy, policy  # noqa: E402

_CHECKED_SCORES = 1 << 28

CANDIDATES: dict[tuple[str, str], str] = {
    ("forward", "cuda"): "128x128/256/2 192x128/384/2 64x128/128/2 128x176/256/2 192x96/384/2 192x192/384/2",
    ("forward", "hip"): "128x64/512/1r 64x64/256/1r 64x32/256/1r 128x32/512/1r",
    ("forward", "cpu"): "16x16/1/1 32x32/1/1 64x64/1/1",
    ("backward-keys", "cuda"): "64x128/256/2 64x128/256/2o 64x128/256/1o 64x64/128/2 64x64/128/2o 128x128/256/2o",
    ("backward-keys", "hip"): "64x128/512/1r 32x128/512/1r 64x64/256/1r 32x64/256/1r",
    ("backward-keys", "cpu"): "16x16/1/1 32x32/1/1 32x64/1/1",
    ("backward-queries", "cuda"): "128x64/256/2 128x64/256/2o 128x128/256/2 128x128/256/2o 64x64/128/2o 64x128/128/2o",
    ("backward-queries", "hip"): "128x64/512/1r 128x32/512/1r 64x64/256/1r 64x32/256/1r",
    ("backward-queries", "cpu"): "16x16/1/1 32x32/1/1 64x32/1/1",
    ("backward-fused", "cuda"): "64x128/256/2 64x128/256/2o 64x128/256/1o 64x64/128/2o",
    ("backward-fused", "cpu"): "16x16/1/1 32x32/1/1",
}
"""By kernel and kind of chip: what is timed if the command names no tiles."""

Launch = Callable[[], object]


def main() -> int:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernel", choices=("forward", "backward-keys", "backward-queries", "backward-fused"))
    parser.add_argument(
        "--tiles", type=_blocks, nargs="+", metavar="TILE", help="candidates (default: a list for the chip)"
    )
    parser.add_argument("--lengths", type=int, nargs="+", help="sequence lengths (default: 4096 and 16384; CPU: 128)")
    parser.add_argument("--masks", choices=("causal", "full"), nargs="+", default=["causal"])
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--heads", type=int, default=28)
    parser.add_argument("--kv-heads", type=int, default=4)
    parser.add_argument("--head-dim", type=int, default=128)
    parser.add_argument("--dtype", help="default: bfloat16 on a GPU, float32 on the CPU")
    parser.add_argument("--rounds", type=int, default=8, help="turns of each tile (default: 8)")
    parser.add_argument("--seed", type=int, default=0, help="of the order of turns (default: 0)")
    parser.add_argument("--json", type=Path, help="also write times and environment to this file")
    args = parser.parse_args()
    if args.rounds < 3:
        parser.error("--rounds must be at least 3: a median of fewer says nothing")
    target = selection().target
    if args.tiles is None and (args.kernel, target) not in CANDIDATES:
        parser.error(f"{args.kernel} is not for {target}: it is built for sm_90, and for the CPU to be tested")
    tiles = args.tiles or [Blocks.parse(text) for text in CANDIDATES[args.kernel, target].split()]
    dtype = args.dtype or ("float32" if target == "cpu" else "bfloat16")
    order = random.Random(args.seed)  # noqa: S311 - an order of turns, not a secret
    found = []
    for mask in args.masks:
        for length in args.lengths or ((128,) if target == "cpu" else (4096, 16384)):
            shape = (args.batch, args.heads, args.kv_heads, length, length, args.head_dim, dtype, mask == "causal")
            work = BackwardWorkload(f"tune-{length}-{mask}", *shape, (target,), "full", "")
            print(f"measuring {work.shape} …", file=sys.stderr, flush=True)
            found.append(_measure(args.kernel, work, target, tiles, rounds=args.rounds, order=order))
            _print_table(args.kernel, work, found[-1])
    if args.json:
        document = {"environment": describe(target), "arguments": vars(args), "tables": found}
        args.json.write_text(json.dumps(document, indent=1, default=str) + "\n", encoding="utf-8")
    return 0


def _blocks(text: str) -> Blocks:
    try:
        return Blocks.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _measure(
    kernel: str, work: BackwardWorkload, target: str, tiles: list[Blocks], *, rounds: int, order: random.Random
) -> dict[str, Any]:
    device = "cpu" if target == "cpu" else "cuda"
    prepare = _PREPARE[kernel]
    chosen = _chosen(kernel, work, device)
    left_out: dict[str, str] = {}
    launches: dict[str, Launch] = {}
    for name, blocks in {
        "policy": chosen,
        "control": chosen,
        **{str(tile): tile for tile in tiles if tile != chosen},
    }.items():
        limits = _limits(kernel, work, blocks, device)
        try:
            if limits:
                raise ValueError("; ".join(limits))
            launches[name] = prepare(work, blocks, device)
        except (tilekernels.CompilationError, ValueError, WrongResult) as error:
            if name == "policy":
                raise SystemExit(f"the policy's own tile {blocks}: {error}") from None
            left_out[name] = str(error).splitlines()[0]
    seconds = take_turns(launches, target, rounds=rounds, order=order)
    return {"shape": work.shape, "tile": str(chosen), "seconds": seconds, "left_out": left_out}


def _chosen(kernel: str, work: BackwardWorkload, device: str) -> Blocks:
    if kernel == "forward":
        tile = forward.FAMILY.kernel(work, "adaptive", device).tile
        return Blocks(tile.block_m, tile.block_n, tile.threads, tile.num_stages, tile.q_in, tile.overlap)
    tile = backward.FAMILY.kernel(work, "adaptive", device).tile
    # The pass with atomics has no policy yet: its kernel of keys is the nearest thing.
    return tile.queries if kernel == "backward-queries" else tile.keys


def _limits(kernel: str, work: BackwardWorkload, blocks: Blocks, device: str) -> tuple[str, ...]:
    chip = tilekernels.chip_of(device)
    if kernel == "forward":
        return policy.fits(_forward_tile(blocks, work, device), backward.problem(work), chip)
    tile = _backward_tile(kernel, work, blocks, device)
    return backward_policy.fits(tile, work.head_dim, work.dtype, chip)


def _forward_tile(blocks: Blocks, work: BackwardWorkload, device: str) -> TileConfig:
    k_pack = forward.FAMILY.kernel(work, "adaptive", device).tile.k_pack
    return TileConfig(
        *(blocks.block_m, blocks.block_n, blocks.threads, blocks.num_stages),
        q_in=blocks.held,
        k_pack=k_pack,
        overlap=blocks.overlap,
    )


def _backward_tile(kernel: str, work: BackwardWorkload, blocks: Blocks, device: str) -> BackwardTile:
    tile = backward.FAMILY.kernel(work, "adaptive", device).tile
    return BackwardTile(tile.keys, blocks) if kernel == "backward-queries" else BackwardTile(blocks, tile.queries)


def _forward(work: BackwardWorkload, blocks: Blocks, device: str) -> Launch:
    usual = forward.FAMILY.kernel(work, "adaptive", device)
    kernel = tilekernels.ForwardKernel(usual.chip, usual.spec, _forward_tile(blocks, work, device))
    inputs, outputs = forward.FAMILY.inputs(work, device, 0), forward.FAMILY.outputs(work, kernel, device)
    numbers = forward.FAMILY.numbers(work, kernel).values()

    def launch() -> None:
        kernel.launch(*inputs.values(), *outputs.values(), *numbers)

    launch()
    forward.FAMILY.check(work, inputs, outputs, _CHECKED_SCORES)
    return launch


def _step(which: str, work: BackwardWorkload, blocks: Blocks, device: str) -> Launch:
    """Launch a whole backward pass once, check it, and return the launch of the one kernel that differs."""
    usual = backward.FAMILY.kernel(work, "adaptive", device)
    kernel = tilekernels.BackwardKernel(usual.chip, usual.spec, _backward_tile(which, work, blocks, device))
    inputs, outputs = backward.FAMILY.inputs(work, device, 0), backward.FAMILY.outputs(work, kernel, device)
    scale = work.head_dim**-0.5
    kernel.launch(*inputs.values(), *outputs.values(), scale)
    backward.FAMILY.check(work, inputs, outputs, _CHECKED_SCORES)
    _, keys, queries = kernel.compile()
    given = [inputs[name] for name in ("Q", "K", "V", "dO")]
    if which == "backward-keys":
        return lambda: keys(*given, outputs["Stats"], outputs["dK"], outputs["dV"], scale)
    return lambda: queries(*given, outputs["Stats"], outputs["dQ"], scale)


def _fused(work: BackwardWorkload, blocks: Blocks, device: str) -> Launch:
    usual = backward.FAMILY.kernel(work, "adaptive", device)
    kernel = tilekernels.FusedBackwardKernel(usual.chip, usual.spec, blocks)
    inputs, outputs = backward.FAMILY.inputs(work, device, 0), backward.FAMILY.outputs(work, usual, device)
    stats, *gradients = outputs.values()
    sums = torch.empty_like(outputs["dQ"], dtype=torch.float32)

    def launch() -> None:
        kernel.launch(*inputs.values(), stats, sums, *gradients, work.head_dim**-0.5)

    launch()
    backward.FAMILY.check(work, inputs, outputs, _CHECKED_SCORES)
    return launch


_PREPARE: dict[str, Callable[[BackwardWorkload, Blocks, str], Launch]] = {
    "forward": _forward,
    "backward-keys": functools.partial(_step, "backward-keys"),
    "backward-queries": functools.partial(_step, "backward-queries"),
    "backward-fused": _fused,
}


def _print_table(kernel: str, work: BackwardWorkload, found: dict[str, Any]) -> None:
    _, policy_time, _ = quartiles_of_time(found["seconds"]["policy"])
    print(f"\n{kernel}, {work.shape}, {work.dtype}; policy: {found['tile']}; ms, median (quartiles)\n")
    print("| tile | ms | rate |\n|---|---:|---:|")
    for name, times in sorted(found["seconds"].items(), key=lambda item: quartiles_of_time(item[1])[1]):
        low, middle, high = quartiles_of_time(times)
        print(f"| {name} | {middle * 1e3:.4g} ({low * 1e3:.4g}-{high * 1e3:.4g}) | {policy_time / middle:.3f} |")
    for name, reason in found["left_out"].items():
        print(f"\n{name}: left out ({reason})")


def quartiles_of_time(seconds: list[float]) -> tuple[float, float, float]:
    """Lower quartile, median and upper quartile."""
    low, middle, high = (1 / rate for rate in reversed(quartiles(seconds)))
    return low, middle, high


if __name__ == "__main__":
    sys.exit(main())
