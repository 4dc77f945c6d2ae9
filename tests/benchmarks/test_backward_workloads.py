"""What the numbers of a backward workload mean."""

from benchmarks.families.backward import WORKLOADS, BackwardWorkload
from benchmarks.workloads import Workload


def test_flops_are_those_of_five_products_and_bytes_by_hand():
    for causal in (False, True):
        shape = (2, 8, 2, 3, 5, 64, "float16", causal, ("cpu",), "smoke", "")
        work, forward = BackwardWorkload("x", *shape), Workload("x", *shape)
        assert 2 * work.flops == 5 * forward.flops
        rows, keys, lse = 2 * 3 * 8 * 64, 2 * 5 * 2 * 64, 2 * 8 * 3
        # read Q, O, dO and K, V; written dQ and dK, dV
        assert work.bytes == 2 * (3 * rows + 2 * keys + rows + 2 * keys) + 4 * lse


def test_training_shapes_of_both_models_are_there():
    rows = {(w.heads, w.kv_heads, w.seqlen_q) for w in WORKLOADS if "cuda" in w.targets and w.causal}
    assert {(*heads, length) for heads in ((28, 4), (40, 8)) for length in (2048, 4096, 8192)} <= rows


def test_smoke_on_the_cpu_is_a_matter_of_milliseconds():
    smoke = [w for w in WORKLOADS if "cpu" in w.targets and w.tier == "smoke"]
    assert {w.head_dim for w in smoke} == {64, 128}
    assert all(w.flops < 0.05e9 for w in smoke)
