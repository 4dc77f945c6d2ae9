"""A repository with a library of two small HIP kernels, and a suite that has problems for them."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

LIBRARY = '''
KERNEL = """#include <hip/hip_runtime.h>
extern "C" __global__ void __launch_bounds__(128) reverse_kernel(float* __restrict__ A, float* __restrict__ B, int n) {
  extern __shared__ __align__(1024) float tile[];
  int row = (int)blockIdx.x, t = (int)threadIdx.x;
  tile[t] = t < n ? A[row * n + t] : 0.0f;
  __syncthreads();
  if (t < n) {
    B[row * n + t] = FACTOR * tile[n - 1 - t];
  }
}
"""
FACTORS = {"double": 2, "triple": 3}


def source(name):
    return KERNEL.replace("FACTOR", f"{FACTORS[name]}.0f")
'''
KERNELS = """
import hiptoy
from tilegate.protocol import Artifact, verify_origin

verify_origin(hiptoy)


def configurations(arch):
    return {name: [f"toy.Run.latency_run('{name}')"] for name in hiptoy.FACTORS}


def lower(id, arch):
    launch = {"grid": ["rows"], "block": [128, 1, 1], "dynamic_shared_bytes": 512}
    return [Artifact("reverse_kernel", hiptoy.source(id), launch)]
"""
EMULATED = """
import numpy as np
from tilegate.protocol import WrongResult

SHAPES = {"one row": (1, 65), "rows": (3, 100)}


def problems(id, arch):
    return list(SHAPES)


def arguments(id, arch, problem):
    rows, n = SHAPES[problem]
    values = np.random.default_rng(0).standard_normal((rows, n)).astype(np.float32)
    return {"A": values, "B": np.full_like(values, np.nan), "n": n, "rows": rows}


def check(id, arch, problem, arguments):
    expected = {"double": 2, "triple": 3}[id] * arguments["A"][:, ::-1]
    error = np.abs(arguments["B"] - expected).max()
    if not error <= 1e-6:
        raise WrongResult(f"B: largest error {error:.3g}, allowed 1e-06")
"""
PYPROJECT = '[tool.tilegate]\npackage = "hiptoy"\nsuite = "hipbench"\n'
LIBRARY_FILE = "hiptoy/__init__.py"
BARRIER = "  __syncthreads();\n"


@dataclass(frozen=True)
class HipToy:
    """The repository; its first commit is `base`."""

    path: Path

    def write(self, name: str, text: str) -> None:
        (self.path / name).parent.mkdir(exist_ok=True, parents=True)
        (self.path / name).write_text(text)

    def replace(self, old: str, new: str, file: str = LIBRARY_FILE) -> None:
        """Replace text of a file, which must be in it."""
        text = (self.path / file).read_text()
        assert old in text, f"{old!r} is not in {file}"
        self.write(file, text.replace(old, new))

    def commit(self, message: str = "toy") -> str:
        self.git("add", "-A")
        self.git("commit", "-q", "-m", message)
        return self.git("rev-parse", "HEAD")

    def git(self, *arguments: str) -> str:
        identity = ("-c", "user.name=Toy", "-c", "user.email=toy@example.invalid")
        done = subprocess.run(["git", *identity, *arguments], cwd=self.path, capture_output=True, text=True, check=True)
        return done.stdout.strip()


def make(path: Path) -> HipToy:
    path.mkdir()
    toy = HipToy(path)
    toy.git("init", "-q", "-b", "main")
    for name, text in ((LIBRARY_FILE, LIBRARY), ("hipbench/__init__.py", ""), ("hipbench/kernels.py", KERNELS),
                       ("hipbench/emulated.py", EMULATED), ("pyproject.toml", PYPROJECT)):  # fmt: skip
        toy.write(name, text)
    toy.commit("Base")
    toy.git("tag", "base")
    return toy


def lines_with(text: str, needle: str) -> list[str]:
    return [line for line in text.splitlines() if re.search(needle, line)]
