"""CUDA kernels: reading ptxas's report, and compiling where nvcc is."""

from __future__ import annotations

import pytest

from tilegate.isa import ptxas
from tilegate.isa.explain import explain
from tilegate.isa.ptxas import Report
from tilegate.lowering.store import Store
from tilegate.protocol import Artifact
from tilegate.tools import compiler_path

# nvcc 12.8, -Xptxas -v
REPORT = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'first' for 'sm_90a'
ptxas info    : Function properties for first
    424 bytes stack frame, 420 bytes spill stores, 416 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 424 bytes cumulative stack size, 1024 bytes smem
ptxas info    : Compile time = 20.1 ms
ptxas info    : Compiling entry function 'second' for 'sm_90a'
ptxas info    : Function properties for second
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 168 registers, used 0 barriers
"""

SOURCE = """
extern "C" __global__ void __launch_bounds__(1024, 2) kernel(float *x, int stride) {
  float kept[COUNT];
  #pragma unroll
  for (int i = 0; i < COUNT; ++i) kept[i] = x[i * stride + threadIdx.x];
  __syncthreads();
  #pragma unroll
  for (int i = 0; i < COUNT; ++i) x[i * stride + threadIdx.x] = kept[i] * kept[COUNT - 1 - i];
}
"""


def kernel(count: int, dynamic: int = 0) -> Artifact:
    return Artifact("kernel", SOURCE.replace("COUNT", str(count)), {"block": [1024], "dynamic_shared_bytes": dynamic})


def test_the_report_is_read() -> None:
    assert ptxas.parse(REPORT) == {"first": Report(32, 1024, 424, 420, 416), "second": Report(168, 0, 0, 0, 0)}
    assert ptxas.parse("nothing") == {}


def test_the_causes_come_from_the_report(monkeypatch: pytest.MonkeyPatch, store: Store) -> None:
    reports = {8: Report(24, 0, 0, 0, 0), 9: Report(32, 0, 8, 16, 12)}
    monkeypatch.setattr(ptxas, "report", lambda artifact, arch, store: reports[len(artifact.source)])
    base, head = Artifact("k", " " * 8, {"dynamic_shared_bytes": 1024}), Artifact("k", " " * 9, {})
    worse = [
        "bytes spilled (stores) 0 -> 16",
        "bytes spilled (loads) 0 -> 12",
        "registers a thread 24 -> 32",
        "stack, bytes 0 -> 8",
    ]
    assert explain(base, head, "sm_90", store) == worse
    everything = explain(base, head, "sm_90", store, slower=False)
    assert everything == [*worse[:3], "dynamic shared memory, bytes 1,024 -> 0", worse[3]]


def test_what_got_better_is_no_cause(monkeypatch: pytest.MonkeyPatch, store: Store) -> None:
    reports = {8: Report(32, 0, 8, 12, 12), 9: Report(24, 0, 0, 0, 0)}
    monkeypatch.setattr(ptxas, "report", lambda artifact, arch, store: reports[len(artifact.source)])
    base, head = Artifact("k", " " * 8), Artifact("k", " " * 9)
    assert explain(base, head, "sm_90", store) == [
        "none of the numbers of the compiled code that are compared got worse"
    ]
    assert "bytes spilled (stores) 12 -> 0" in explain(base, head, "sm_90", store, slower=False)


def test_without_nvcc_one_sentence_says_so(monkeypatch: pytest.MonkeyPatch, store: Store) -> None:
    monkeypatch.setattr(ptxas, "compiler_path", lambda target: None)
    (sentence,) = explain(kernel(4), kernel(8), "sm_90", store)
    assert "no nvcc" in sentence


@pytest.mark.slow
@pytest.mark.skipif(compiler_path("cuda") is None, reason="nvcc is not installed; it comes with the CUDA toolkit")
def test_spills_are_found_with_the_real_compiler(store: Store) -> None:
    sentences = explain(kernel(8), kernel(96), "sm_90", store)
    assert sentences[0].startswith("bytes spilled (stores) 0 -> ")
    assert explain(kernel(8), kernel(8), "sm_90", store) == []
    (failure,) = explain(Artifact("kernel", "no kernel", {}), kernel(8), "sm_90", store)
    assert "nvcc rejects the kernel" in failure
