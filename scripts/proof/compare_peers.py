"""Times forward attention beside torch's own backends, all contenders interleaved in one run, and prints TFLOP/s.

Every contender sees the same inputs. In each round the contenders take their turns in a new random order, timed by the
clock that the gate uses (device events, cold cache); the table shows the median over all rounds. Each contender is first
held against the double-precision reference.

    python scripts/proof/compare_peers.py                            # the table of docs/h200.md
    python scripts/proof/compare_peers.py --head-dim 64 --heads 14 --kv-heads 2 --json d64.json
    python scripts/proof/compare_peers.py --tiles 128x128/256/2 192x128/384/2    # the rates of tilekernels/policy.py

A tile is spelled as `tilekernels.TileConfig` prints it: rows x keys / threads / stages, "o" for overlap, "*2" for two workgroups a
multiprocessor. One that does not compile, or computes something else, is named and left out.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

sys.path[:0] = [str(Path(__file__).parents[2])]  # `benchmarks` is not installed

import tilekernels  # noqa: E402
from benchmarks import reference  # noqa: E402
from benchmarks.inputs import qkv  # noqa: E402
from benchmarks.problems import problem  # noqa: E402
from benchmarks.workloads import Workload  # noqa: E402
from tilegate.measuring.environment import describe  # noqa: E402
from tilegate.protocol import WrongResult, clock_for, selection  # noqa: E402

_GPU_LENGTHS = (1024, 2048, 4096, 8192, 16384, 32768, 4097)
_CPU_LENGTHS = (128, 256)
_PEERS = {
    "torch SDPA, flash": SDPBackend.FLASH_ATTENTION,
    "torch SDPA, cuDNN": SDPBackend.CUDNN_ATTENTION,
}
_WARM_UP_SECONDS = 0.1
_CHECKED_SCORES = 1 << 30


class TorchPeer:
    """One backend of torch's scaled_dot_product_attention, on BSHD tensors seen as BHSD."""

    def __init__(self, backend: SDPBackend, work: Workload) -> None:
        """Name the backend and the problem."""
        self._backend, self._work = backend, work

    def launcher(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Callable[[], torch.Tensor]:
        """Return the call to time; its result is (batch, heads, seqlen, head_dim)."""
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        grouped = self._work.heads != self._work.kv_heads
        return lambda: F.scaled_dot_product_attention(q, k, v, is_causal=self._work.causal, enable_gqa=grouped)

    def selected(self) -> Any:
        """Return the context in which torch takes this backend and no other."""
        return sdpa_kernel(self._backend)


class OurKernel:
    """The forward kernel with one tile."""

    def __init__(self, kernel: tilekernels.ForwardKernel) -> None:
        """Compile, or load from the cache."""
        self._kernel = kernel
        self._kernel.compile()
        self.tile = str(self._kernel.tile)

    def launcher(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Callable[[], torch.Tensor]:
        """Return the call to time; its result is (batch, heads, seqlen, head_dim)."""
        out = torch.empty_like(q)
        lse = torch.empty(q.shape[0], q.shape[2], q.shape[1], dtype=torch.float32, device=q.device)
        scale = q.shape[3] ** -0.5

        def launch() -> torch.Tensor:
            self._kernel.launch(q, k, v, out, lse, scale)
            return out.transpose(1, 2)

        return launch

    def selected(self) -> Any:
        """Nothing needs to be selected."""
        return nullcontext()


def main() -> int:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", help="sequence lengths (default: 1k to 32k and 4097)")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--heads", type=int, default=28)
    parser.add_argument("--kv-heads", type=int, default=4)
    parser.add_argument("--head-dim", type=int, default=128)
    parser.add_argument("--dtype", default=None, help="default: float16 on a GPU, float32 on the CPU")
    parser.add_argument("--full", action="store_true", help="without the causal mask")
    parser.add_argument("--rounds", type=int, default=12, help="turns of each contender (default: 12)")
    parser.add_argument(
        "--tiles", type=_tile, nargs="+", default=[], metavar="MxN/THREADS/STAGES[o][*2]", help="also time these tiles"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the order of turns (default: 0)")
    parser.add_argument("--json", type=Path, help="also write times and environment to this file")
    args = parser.parse_args()
    if args.rounds < 3:
        parser.error("--rounds must be at least 3: a median of fewer says nothing")

    target = selection().target
    device = torch.device("cpu" if target == "cpu" else "cuda")
    dtype = args.dtype or ("float32" if target == "cpu" else "float16")
    lengths = args.lengths or (_CPU_LENGTHS if target == "cpu" else _GPU_LENGTHS)
    template = Workload(
        "peers", args.batch, args.heads, args.kv_heads, 0, 0, args.head_dim, dtype, not args.full, (target,), "full", ""
    )
    order = random.Random(args.seed)  # noqa: S311 - an order of turns, not a secret
    rows = []
    for length in lengths:
        print(f"measuring length {length} …", file=sys.stderr, flush=True)
        work = replace(template, id=f"peers-{length}", seqlen_q=length, seqlen_k=length)
        rows.append(_measure(work, device, target, args.tiles, rounds=args.rounds, order=order))
    _print_table(template, rows, target)
    if args.json:
        document = {"environment": describe(target), "workload": vars(template), "rounds": args.rounds, "rows": rows}
        args.json.write_text(json.dumps(document, indent=1, default=str) + "\n", encoding="utf-8")
    return 0


def _tile(text: str) -> tilekernels.TileConfig:
    try:
        return tilekernels.TileConfig.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _measure(
    work: Workload,
    device: torch.device,
    target: str,
    tiles: list[tilekernels.TileConfig],
    *,
    rounds: int,
    order: random.Random,
) -> dict[str, Any]:
    kernels = {
        f"tilekernels, {policy}": tilekernels.forward_kernel(problem(work), policy, device)
        for policy in tilekernels.POLICIES
    }
    for tile in tiles:
        kernel = kernels["tilekernels, adaptive"]
        kernels[str(tile)] = tilekernels.ForwardKernel(kernel.chip, kernel.spec, tile)
    inputs, clock = qkv(work, device), clock_for(target)
    launchers, seconds, notes = {}, {}, {}
    with suppress(tilekernels.CompilationError):  # the others are compiled then; that of each is met again below
        tilekernels.compile_kernels(kernels.values())
    contenders: dict[str, TorchPeer | OurKernel] = {}
    for name, kernel in kernels.items():
        try:
            contenders[name] = OurKernel(kernel)
        except tilekernels.CompilationError as error:
            notes[name] = str(error).splitlines()[0]
    contenders |= {name: TorchPeer(backend, work) for name, backend in _PEERS.items()}
    for name, contender in contenders.items():
        try:
            with contender.selected():
                launchers[name] = contender.launcher(*inputs)
                _check(work, inputs, launchers[name]())
                clock.warm_up(launchers[name], _WARM_UP_SECONDS)
        except RuntimeError as error:  # torch has no such backend for this problem
            del launchers[name]
            notes[name] = str(error).splitlines()[0]
            continue
        except WrongResult as error:
            if name.startswith("tilekernels, "):
                raise SystemExit(f"{name} at length {work.seqlen_q} is wrong: {error}") from None
            del launchers[name]
            notes[name] = f"wrong: {error}".splitlines()[0]
            continue
        seconds[name] = []
    for _ in range(rounds):
        turn = list(launchers)
        order.shuffle(turn)
        for name in turn:
            with contenders[name].selected():
                # The first launch of a turn meets what the contender before it left behind.
                seconds[name] += clock.measure(launchers[name], 3)[1:]
    return {
        "length": work.seqlen_q,
        "flops": work.flops,
        "seconds": seconds,
        "unavailable": notes,
        "tiles": {name: c.tile for name, c in contenders.items() if isinstance(c, OurKernel)},
    }


def _check(work: Workload, inputs: tuple[torch.Tensor, ...], out: torch.Tensor) -> None:
    """Compare an output with the reference. Torch's backends give no LSE, so only the output is compared."""
    scale = work.head_dim**-0.5
    reference.check(*inputs, out.transpose(1, 2), None, causal=work.causal, softmax_scale=scale, limit=_CHECKED_SCORES)


def _print_table(work: Workload, rows: list[dict[str, Any]], target: str) -> None:
    mask = "causal" if work.causal else "full"
    print(f"\n{describe(target)['device'].get('name', 'CPU')}: forward, {mask}, {work.dtype}, batch {work.batch}, ")
    print(f"heads {work.heads}/{work.kv_heads}, head dimension {work.head_dim}; TFLOP/s, median (quartiles)\n")
    names = list(dict.fromkeys(name for row in rows for name in row["seconds"]))
    print("| length | " + " | ".join(names) + " | tile, adaptive |")
    print("|---:|" + "---:|" * len(names) + "---|")
    for row in rows:
        cells = []
        for name in names:
            times = row["seconds"].get(name)
            if times is None:
                cells.append("-")
                continue
            low, middle, high = (row["flops"] / t / 1e12 for t in reversed(statistics.quantiles(times, n=4)))
            cells.append(f"{middle:.3g} ({low:.3g}-{high:.3g})")
        print(f"| {row['length']} | " + " | ".join(cells) + f" | {row['tiles']['tilekernels, adaptive']} |")
    for name, reason in {n: r for row in rows for n, r in row["unavailable"].items()}.items():
        print(f"\n{name}: not available ({reason})")


if __name__ == "__main__":
    sys.exit(main())
