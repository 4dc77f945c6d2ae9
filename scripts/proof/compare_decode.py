"""Times decoding beside torch's own backends and beside a plain copy, all in one run, and prints TB/s.

Decoding is bound by memory: what counts is how much of the copy's bandwidth is reached. All contenders take turns in random
order, from a cold cache, by the clock that the gate uses, after each has been held against the double-precision reference.
Ours read pages in any order; torch reads a contiguous cache of the same keys, and "packed" is told that the query heads of a
group are rows over one head, which reads each key once.

    python scripts/proof/compare_decode.py                                       # the rows of the tiers smoke and pr
    python scripts/proof/compare_decode.py decode-7b-b1-k32768-p16 --candidates 64x64/128@16 64x128/128@auto
    python scripts/proof/compare_decode.py mla-v3-tp8-b32-k4096-p64 --candidates 64x64/256@auto --json mla.json

A candidate is rows x keys / threads @ splits. One that does not compile, or computes something else, is named and left out.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

sys.path[:0] = [str(Path(__file__).parents[2])]  # `benchmarks` is not installed

import tilekernels  # noqa: E402
from benchmarks import reference_decode  # noqa: E402
from benchmarks.families import decode, mla  # noqa: E402
from benchmarks.family import Family  # noqa: E402
from benchmarks.turns import quartiles, take_turns  # noqa: E402
from benchmarks.workloads import select  # noqa: E402
from tilegate.measuring.environment import describe  # noqa: E402
from tilegate.protocol import Selection, WrongResult, selection  # noqa: E402
from tilekernels.handle import shared  # noqa: E402

_CHECKED_SCORES = 1 << 27
_COPIED_BYTES = {"cpu": 1 << 24, "cuda": 1 << 30, "hip": 1 << 30}
_PEERS = {
    "torch flash": (SDPBackend.FLASH_ATTENTION, False),
    "torch flash, packed": (SDPBackend.FLASH_ATTENTION, True),
    "torch cuDNN": (SDPBackend.CUDNN_ATTENTION, False),
    "torch cuDNN, packed": (SDPBackend.CUDNN_ATTENTION, True),
    "torch efficient, packed": (SDPBackend.EFFICIENT_ATTENTION, True),
}

Launch = Callable[[], object]


def main() -> int:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", metavar="ROW", help="ids of rows (default: those of the tier pr)")
    parser.add_argument("--candidates", type=_candidate, nargs="+", default=[], metavar="MxN/THREADS@SPLITS")
    parser.add_argument("--rounds", type=int, default=8, help="turns of each (default: 8)")
    parser.add_argument("--no-peers", action="store_true", help="ours and the copy alone")
    parser.add_argument("--seed", type=int, default=0, help="of the order of turns (default: 0)")
    parser.add_argument("--json", type=Path, help="also write times and environment to this file")
    args = parser.parse_args()
    if args.rounds < 3:
        parser.error("--rounds must be at least 3: a median of fewer says nothing")
    target = selection().target
    found = {}
    for family in (decode.FAMILY, mla.FAMILY):
        found |= {work.id: (family, work) for work in family.workloads if target in work.targets}
    wanted = args.rows or [work.id for family in (decode.FAMILY, mla.FAMILY) for work in _usual(target, family)]
    unknown = [id for id in wanted if id not in found]
    if unknown:
        parser.error(f"no row {unknown[0]!r} for {target}; there are {', '.join(found)}")
    order = random.Random(args.seed)  # noqa: S311 - an order of turns, not a secret
    rows = []
    for id in wanted:
        print(f"measuring {id} …", file=sys.stderr, flush=True)
        rows.append(_measure(*found[id], target, args, order))
        _print(rows[-1])
        if args.json:  # after every row: what is measured is not lost
            document = {"environment": describe(target), "rounds": args.rounds, "rows": rows}
            args.json.write_text(json.dumps(document, indent=1, default=str) + "\n", encoding="utf-8")
    return 0


def _usual(target: str, family: Family) -> tuple[Any, ...]:
    return select(Selection(target, "pr"), family.workloads)


def _candidate(text: str) -> tuple[int, int, int, int]:
    match = re.fullmatch(r"(\d+)x(\d+)/(\d+)@(\d+|auto)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no candidate; write it like 64x64/128@16 or 64x64/128@auto")
    m, n, threads, splits = match.groups()
    return int(m), int(n), int(threads), 0 if splits == "auto" else int(splits)


def _measure(family: Family, work: Any, target: str, args: argparse.Namespace, order: random.Random) -> dict[str, Any]:
    device = "cpu" if target == "cpu" else "cuda"
    kernels = {policy: family.kernel(work, policy, device) for policy in family.policies}
    for m, n, threads, splits in args.candidates:
        chosen = kernels["adaptive"]
        tile = replace(chosen.tile, block_m=m, block_n=n, threads=threads, splits=splits)
        spec = replace(chosen.spec, split=splits != 1)
        name = f"{m}x{n}/{threads}@{splits or 'auto'}"
        kernels[name] = shared(type(chosen), chosen.chip, spec, tile)
    with suppress(tilekernels.CompilationError):  # the others are compiled then; that of each is met again below
        tilekernels.compile_kernels(kernels.values(), progress=False)
    inputs = family.inputs(work, device, 0)
    launches: dict[str, Launch] = {}
    notes: dict[str, str] = {}
    splits_of = {}
    for name, kernel in kernels.items():
        try:
            launches[name] = _ours(family, work, kernel, inputs, device)
            splits_of[name] = family.symbols(work, kernel)["splits"]
        except (tilekernels.CompilationError, WrongResult) as error:
            if name in family.policies and isinstance(error, WrongResult):
                raise SystemExit(f"{name} of {work.id} is wrong: {error}") from None
            notes[name] = str(error).splitlines()[0]
    if not args.no_peers and len(set(work.lengths)) == 1:
        for name, (backend, packed) in _PEERS.items():
            try:
                launches[name] = _peer(family, work, inputs, backend, packed=packed)
            except (RuntimeError, WrongResult) as error:  # torch has no such backend for this problem
                notes[name] = str(error).splitlines()[0]
    source = torch.empty(_COPIED_BYTES[target], dtype=torch.uint8, device=device).fill_(1)
    sink = torch.empty_like(source)
    launches["copy"] = lambda: sink.copy_(source)
    seconds = take_turns(launches, target, rounds=args.rounds, order=order)
    moved = {name: work.bytes for name in launches} | {"copy": 2 * source.numel()}
    return {
        "id": work.id,
        "shape": work.shape,
        "flops": work.flops,
        "bytes": moved,
        "seconds": seconds,
        "splits": splits_of,
        "unavailable": notes,
        "tiles": {name: str(kernel.tile) for name, kernel in kernels.items()},
    }


def _ours(family: Family, work: Any, kernel: Any, inputs: dict[str, torch.Tensor], device: str) -> Launch:
    """The launch of a kernel, checked."""
    outputs = family.outputs(work, kernel, device)
    given = (*inputs.values(), *outputs.values(), *family.numbers(work, kernel).values())
    kernel.launch(*given)
    family.check(work, inputs, outputs, _CHECKED_SCORES)
    return lambda: kernel.launch(*given)


def _peer(family: Family, work: Any, inputs: dict[str, torch.Tensor], backend: SDPBackend, *, packed: bool) -> Launch:
    latent = family is mla.FAMILY
    kv_heads, key_dim = (1, 576) if latent else (work.kv_heads, work.head_dim)
    keys = inputs["KV" if latent else "K"].view(-1, work.page, kv_heads, key_dim)
    values = keys[..., :512] if latent else inputs["V"].view(keys.shape)
    scale = family.numbers(work, next(iter(family.shipped(tilekernels.CHIPS["cpu"]))))["softmax_scale"]
    table, q = inputs["BlockTable"].long(), inputs["Q"]
    k, v = (x[table].flatten(1, 2)[:, : work.context].transpose(1, 2).contiguous() for x in (keys, values))
    group = work.heads // kv_heads
    if work.rows > 1:
        raise RuntimeError("torch's causal mask is aligned top left: one new row only")
    rows = q.view(work.batch, kv_heads, group, key_dim) if packed else q.transpose(1, 2)

    def launch() -> torch.Tensor:
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(rows, k, v, scale=scale, enable_gqa=not packed and group > 1)

    out = launch().reshape(work.batch, 1, work.heads, v.shape[-1])
    tables = (inputs["BlockTable"], inputs["Lengths"])
    options = {"causal": True, "softmax_scale": scale, "limit": _CHECKED_SCORES}
    reference_decode.check(q, keys, values, *tables, out, None, **options)
    return launch


def _print(row: dict[str, Any]) -> None:
    (_, copy, _) = quartiles(row["seconds"]["copy"], row["bytes"]["copy"] / 1e12)
    print(f"\n{row['id']} ({row['shape']}); the copy moves {copy:.3g} TB/s\n")
    print("| | us | TB/s | of the copy | TFLOP/s | splits |\n|---|---:|---:|---:|---:|---:|")
    for name, times in row["seconds"].items():
        if name == "copy":
            continue
        low, middle, high = quartiles(times, row["bytes"][name] / 1e12)
        rate = row["flops"] / row["bytes"][name] * middle
        cells = f"{row['bytes'][name] / middle / 1e6:.1f} | {middle:.3g} ({low:.3g}-{high:.3g}) | {middle / copy:.0%}"
        print(f"| {name} | {cells} | {rate:.3g} | {row['splits'].get(name, '')} |", flush=True)
    for name, note in row["unavailable"].items():
        print(f"\n{name}: {note[:200]}")


if __name__ == "__main__":
    sys.exit(main())
