"""Times the backward pass of attention beside torch's own backends, all contenders in one run, and prints TFLOP/s.

Every contender differentiates the same problem, is held against the double-precision reference first, and takes turns in random
order with the others (device events, cold cache). Both masks are measured, causal and full. TFLOP/s count five products, as
FlashAttention's benchmarks do, whatever a kernel executes.

    python scripts/proof/compare_backward.py                         # 2k to 32k, heads 28/4, head dimension 128, bfloat16
    python scripts/proof/compare_backward.py --heads 64 --kv-heads 8 --lengths 4096 8192 --json backward.json
    python scripts/proof/compare_backward.py --masks causal --tiles 64x128/256/2o:128x64/256/2o   # keys:queries
    python scripts/proof/compare_backward.py --fused 64x128/256/2 64x128/256/2o                   # dQ by atomics
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

sys.path[:0] = [str(Path(__file__).parents[2])]  # `benchmarks` is not installed

import tilekernels  # noqa: E402
from benchmarks.families.backward import FAMILY, BackwardWorkload  # noqa: E402
from benchmarks.turns import quartiles, take_turns  # noqa: E402
from tilegate.measuring.environment import describe  # noqa: E402
from tilegate.protocol import WrongResult, selection  # noqa: E402

_GPU_LENGTHS = (2048, 4096, 8192, 16384, 32768)
_CPU_LENGTHS = (96, 128)
_PEERS = {"torch, flash": SDPBackend.FLASH_ATTENTION, "torch, cuDNN": SDPBackend.CUDNN_ATTENTION}
_CHECKED_SCORES = 1 << 30

Tensors = dict[str, torch.Tensor]


def main() -> int:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", help="sequence lengths (default: 2k to 32k)")
    parser.add_argument("--masks", choices=("causal", "full"), nargs="+", default=["causal", "full"])
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--heads", type=int, default=28)
    parser.add_argument("--kv-heads", type=int, default=4)
    parser.add_argument("--head-dim", type=int, default=128)
    parser.add_argument("--dtype", help="default: bfloat16 on a GPU, float32 on the CPU")
    parser.add_argument("--rounds", type=int, default=8, help="turns of each contender (default: 8)")
    parser.add_argument("--tiles", type=_tile, nargs="+", default=[], metavar="KEYS:QUERIES", help="also time these")
    parser.add_argument(
        "--fused", type=_blocks, nargs="+", default=[], metavar="BLOCKS", help="also time dQ by atomics"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the order of turns (default: 0)")
    parser.add_argument("--json", type=Path, help="also write times and environment to this file")
    args = parser.parse_args()
    if args.rounds < 3:
        parser.error("--rounds must be at least 3: a median of fewer says nothing")
    target = selection().target
    dtype = args.dtype or ("float32" if target == "cpu" else "bfloat16")
    order = random.Random(args.seed)  # noqa: S311 - an order of turns, not a secret
    found = []
    for mask in args.masks:
        rows = []
        for length in args.lengths or (_CPU_LENGTHS if target == "cpu" else _GPU_LENGTHS):
            print(f"measuring {mask}, length {length} …", file=sys.stderr, flush=True)
            shape = (args.batch, args.heads, args.kv_heads, length, length, args.head_dim, dtype, mask == "causal")
            work = BackwardWorkload(f"peers-{length}-{mask}", *shape, (target,), "full", "")
            rows.append(_measure(work, target, args.tiles, args.fused, rounds=args.rounds, order=order))
        _print_table(rows, mask, args, dtype, target)
        found.append({"mask": mask, "rows": rows})
    if args.json:
        document = {"environment": describe(target), "arguments": vars(args), "dtype": dtype, "tables": found}
        args.json.write_text(json.dumps(document, indent=1, default=str) + "\n", encoding="utf-8")
    return 0


def _blocks(text: str) -> tilekernels.Blocks:
    try:
        return tilekernels.Blocks.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _tile(text: str) -> tilekernels.BackwardTile:
    try:
        keys, queries = map(tilekernels.Blocks.parse, text.split(":"))
    except ValueError as error:
        message = f"{text!r} is no tile: write it like 64x128/256/2o:128x64/256/2 ({error})"
        raise argparse.ArgumentTypeError(message) from None
    return tilekernels.BackwardTile(keys, queries)


def _measure(
    work: BackwardWorkload,
    target: str,
    tiles: list[tilekernels.BackwardTile],
    fused: list[tilekernels.Blocks],
    *,
    rounds: int,
    order: random.Random,
) -> dict[str, Any]:
    device = "cpu" if target == "cpu" else "cuda"
    inputs = FAMILY.inputs(work, device, 0)
    kernels: dict[str, tilekernels.Kernel] = {
        f"tilekernels, {policy}": FAMILY.kernel(work, policy, device) for policy in FAMILY.policies
    }
    chosen = kernels["tilekernels, adaptive"]
    for tile in tiles:
        kernels[f"{tile.keys}:{tile.queries}"] = tilekernels.BackwardKernel(chosen.chip, chosen.spec, tile)
    for blocks in fused:
        kernels[f"atomics {blocks}"] = tilekernels.FusedBackwardKernel(chosen.chip, chosen.spec, blocks)
    launches, missing = {}, {}
    with suppress(tilekernels.CompilationError):  # the others are compiled then; that of each is met again below
        tilekernels.compile_kernels(kernels.values())
    for name, kernel in kernels.items():
        try:
            kernel.compile()
        except tilekernels.CompilationError as error:
            missing[name] = str(error).splitlines()[0]
            continue
        outputs = FAMILY.outputs(work, kernel, device)
        if isinstance(kernel, tilekernels.FusedBackwardKernel):
            stats = outputs.pop("Stats")
            outputs = {"Stats": stats, "Sums": torch.empty_like(outputs["dQ"], dtype=torch.float32), **outputs}
        launches[name] = _ours(kernel, work, inputs, outputs)
        launches[name]()
        try:
            _check(name, work, inputs, outputs)
        except WrongResult as error:
            if name.startswith("tilekernels, "):
                raise SystemExit(f"{name} at length {work.seqlen_q} is wrong: {error}") from None
            del launches[name]
            missing[name] = f"wrong: {error}".splitlines()[0]
        del outputs
    for name, backend in _PEERS.items():
        try:
            launches[name], gradients = _torch(backend, work, inputs)
            _check(name, work, inputs, dict(zip(("dQ", "dK", "dV"), gradients, strict=True)))
        except RuntimeError as error:  # torch has no such backend for this problem
            launches.pop(name, None)
            missing[name] = str(error).splitlines()[0]
    seconds = take_turns(launches, target, rounds=rounds, order=order)
    tile = f"{chosen.tile.keys}:{chosen.tile.queries}"
    return {"length": work.seqlen_q, "flops": work.flops, "seconds": seconds, "missing": missing, "tile": tile}


def _ours(
    kernel: tilekernels.Kernel, work: BackwardWorkload, inputs: Tensors, outputs: Tensors
) -> Callable[[], object]:
    scale = work.head_dim**-0.5
    return lambda: kernel.launch(*inputs.values(), *outputs.values(), scale)


def _torch(
    backend: SDPBackend, work: BackwardWorkload, inputs: Tensors
) -> tuple[Callable[[], object], tuple[torch.Tensor, ...]]:
    """Return the backward call of one backend, and the gradients that it gives, seen as BSHD."""
    leaves = [inputs[name].detach().clone().requires_grad_() for name in "QKV"]
    grad = inputs["dO"].transpose(1, 2)
    context = nullcontext() if grad.device.type == "cpu" else sdpa_kernel(backend)
    if grad.device.type == "cpu" and backend is not SDPBackend.FLASH_ATTENTION:
        raise RuntimeError("not on a CPU")
    with context:
        q, k, v = (x.transpose(1, 2) for x in leaves)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=work.causal, enable_gqa=work.heads != work.kv_heads)

    def launch() -> tuple[torch.Tensor, ...]:
        return torch.autograd.grad(out, leaves, grad, retain_graph=True)

    return launch, launch()


def _check(name: str, work: BackwardWorkload, inputs: Tensors, gradients: Tensors) -> None:
    try:
        FAMILY.check(work, inputs, gradients, _CHECKED_SCORES)
    except WrongResult as error:
        # Torch's own kernels round more than plain PyTorch does; what is ours has to be right.
        if name not in _PEERS:
            raise
        print(f"{name} at length {work.seqlen_q} is beyond the tolerance: {error}", file=sys.stderr)


def _print_table(rows: list[dict[str, Any]], mask: str, args: argparse.Namespace, dtype: str, target: str) -> None:
    where = describe(target)["device"].get("name", "CPU")
    print(f"\n{where}: backward, {mask}, {dtype}, batch {args.batch}, heads {args.heads}/{args.kv_heads},")
    print(f"head dimension {args.head_dim}; TFLOP/s, median (quartiles)\n")
    names = list(dict.fromkeys(name for row in rows for name in row["seconds"]))
    print("| length | " + " | ".join(names) + " | tile, adaptive (keys:queries) |")
    print("|---:|" + "---:|" * len(names) + "---|")
    for row in rows:
        cells = []
        for name in names:
            if name in row["seconds"]:
                low, middle, high = quartiles(row["seconds"][name], row["flops"] / 1e12)
                cells.append(f"{middle:.3g} ({low:.3g}-{high:.3g})")
            else:
                cells.append("-")
        print(f"| {row['length']} | " + " | ".join(cells) + f" | {row['tile']} |")
    for name, reason in {n: r for row in rows for n, r in row["missing"].items()}.items():
        print(f"\n{name}: not available ({reason})")


if __name__ == "__main__":
    sys.exit(main())
