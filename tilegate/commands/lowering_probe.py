"""Asks TileLang for which chips it can generate code here. Run as a script, in a process of its own.

Prints one JSON line a chip, ``{"arch": "gfx942", "lowers": true, "error": null}``, as soon as it is known: a compiler
that kills the process takes only the chips after it along. The kernel, a copy, is there to have something to lower.
"""

# mypy: disable-error-code="untyped-decorator, valid-type, no-untyped-def"
# TileLang reads annotations as values; they are no types.

import json
import sys

import tilelang
import tilelang.language as T

HIP = {"kind": "hip", "mtriple": "amdgcn-amd-amdhsa-hcc", "thread_warp_size": 64}
TARGETS = {
    "gfx942": {**HIP, "mcpu": "gfx942"},
    "gfx90a": {**HIP, "mcpu": "gfx90a"},
    "gfx950": {**HIP, "mcpu": "gfx950"},
    "sm_90": {"kind": "cuda", "arch": "sm_90"},
}


def copy_kernel() -> object:
    """Return a kernel that copies 4096 floats with 256 threads a block."""

    @T.prim_func
    def copy(source: T.Tensor((4096,), "float32"), target: T.Tensor((4096,), "float32")):
        with T.Kernel(16, threads=256) as block:
            for i in T.Parallel(256):
                target[block * 256 + i] = source[block * 256 + i]

    return copy


def lower(arch: str) -> str:
    """Return the source that TileLang generates for `arch`."""
    target = tilelang.tvm.target.Target(TARGETS[arch])
    with target:
        lowered = tilelang.lower(copy_kernel(), target=target, enable_device_compile=False)
    return str(lowered.kernel_source)


def main() -> None:
    """Try the chips named as arguments, or all."""
    for arch in sys.argv[1:] or TARGETS:
        error = None
        try:
            if "__global__" not in lower(arch):
                error = "the generated text holds no kernel"
        except Exception as raised:
            error = f"{type(raised).__name__}: {raised}".splitlines()[0]
        print("\n" + json.dumps({"arch": arch, "lowers": error is None, "error": error}), flush=True)


if __name__ == "__main__":
    main()
