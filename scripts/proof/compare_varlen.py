"""Times attention over packed sequences beside the dense kernel on the same sequences, and prints TFLOP/s.

The sequences are of equal length, so both do the same work: the difference is the price of packing. They take turns in random
order in one run, from a cold cache; the packed one is first held against the double-precision reference.

    python scripts/proof/compare_varlen.py                           # 16 x 1024, 4 x 4096 and 1 x 16384, heads 28/4
    python scripts/proof/compare_varlen.py --shapes 64x256 --full --json varlen.json
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[2])]  # `benchmarks` is not installed

from benchmarks.families import forward, varlen  # noqa: E402
from benchmarks.turns import quartiles, take_turns  # noqa: E402
from benchmarks.workloads import Workload  # noqa: E402
from tilegate.measuring.environment import describe  # noqa: E402
from tilegate.protocol import selection  # noqa: E402

_CHECKED_SCORES = 1 << 30


def main() -> int:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", type=_shape, nargs="+", metavar="SEQUENCESxLENGTH", help="default: 16k tokens")
    parser.add_argument("--heads", type=int, default=28)
    parser.add_argument("--kv-heads", type=int, default=4)
    parser.add_argument("--head-dim", type=int, default=128)
    parser.add_argument("--full", action="store_true", help="without the causal mask")
    parser.add_argument("--rounds", type=int, default=12, help="turns of each (default: 12)")
    parser.add_argument("--seed", type=int, default=0, help="of the order of turns (default: 0)")
    parser.add_argument("--json", type=Path, help="also write times and environment to this file")
    args = parser.parse_args()
    if args.rounds < 3:
        parser.error("--rounds must be at least 3: a median of fewer says nothing")
    target = selection().target
    order = random.Random(args.seed)  # noqa: S311 - an order of turns, not a secret
    shapes = args.shapes or ([(3, 32), (2, 48)] if target == "cpu" else [(16, 1024), (4, 4096), (1, 16384)])
    rows = []
    for sequences, length in shapes:
        print(f"measuring {sequences} x {length} …", file=sys.stderr, flush=True)
        rows.append(_measure(args, sequences, length, target, order))
    where = describe(target)["device"].get("name", "CPU")
    print(f"\n{where}: {'full' if args.full else 'causal'}, heads {args.heads}/{args.kv_heads}, ", end="")
    print(f"head dimension {args.head_dim}; TFLOP/s, median (quartiles)\n")
    print("| sequences | dense | packed | packed / dense | tiles |\n|---:|---:|---:|---:|---|")
    for row in rows:
        dense, packed = row["seconds"]["dense"], row["seconds"]["packed"]
        ratio = statistics.median(dense) / statistics.median(packed)
        cells = [_cell(times, row["flops"]) for times in (dense, packed)]
        print(f"| {row['sequences']} x {row['length']} | {cells[0]} | {cells[1]} | {ratio:.3f} | {row['tiles']} |")
    if args.json:
        document = {"environment": describe(target), "arguments": vars(args), "rows": rows}
        args.json.write_text(json.dumps(document, indent=1, default=str) + "\n", encoding="utf-8")
    return 0


def _shape(text: str) -> tuple[int, int]:
    try:
        sequences, length = map(int, text.split("x"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no shape; write it like 16x1024") from None
    if sequences < 1 or length < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: at least one sequence of at least one row")
    return sequences, length


def _measure(
    args: argparse.Namespace, sequences: int, length: int, target: str, order: random.Random
) -> dict[str, Any]:
    device, dtype = ("cpu", "float32") if target == "cpu" else ("cuda", "bfloat16")
    heads, options = (args.heads, args.kv_heads, args.head_dim), (dtype, not args.full, (target,), "full", "")
    dense = Workload("peers", sequences, *heads[:2], length, length, heads[2], *options)
    packed = varlen.VarlenWorkload("peers", *heads, (length,) * sequences, (length,) * sequences, *options)
    launches, tiles = {}, []
    for name, family, work in (("dense", forward.FAMILY, dense), ("packed", varlen.FAMILY, packed)):
        kernel = family.kernel(work, "adaptive", device)
        inputs, outputs = family.inputs(work, device, 0), family.outputs(work, kernel, device)
        given = (*inputs.values(), *outputs.values(), *family.numbers(work, kernel).values())
        launches[name] = lambda kernel=kernel, given=given: kernel.launch(*given)
        launches[name]()
        family.check(work, inputs, outputs, _CHECKED_SCORES)
        tiles.append(str(kernel.tile))
    seconds = take_turns(launches, target, rounds=args.rounds, order=order)
    return {
        "sequences": sequences,
        "length": length,
        "flops": dense.flops,
        "seconds": seconds,
        "tiles": " and ".join(dict.fromkeys(tiles)),
    }


def _cell(seconds: list[float], flops: int) -> str:
    low, middle, high = quartiles(seconds, flops / 1e12)
    return f"{middle:.3g} ({low:.3g}-{high:.3g})"


if __name__ == "__main__":
    sys.exit(main())
