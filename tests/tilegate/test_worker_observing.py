"""What a launch does is seen: calls on the host, nodes of a graph as a driver lists them."""

from __future__ import annotations

import ctypes
import json

import numpy as np

from tilegate.worker.observing import CudaKernel, HipKernel, nodes_of, observe

VALUES = np.ones(8)


def launch():
    VALUES.sum()
    return len(VALUES)


def copying():
    VALUES.copy()
    launch()


def test_a_copy_more_is_seen_and_the_packages_own_functions_are_not():
    seen = observe(launch, "cpu", (__name__,))
    assert seen == ["calls ndarray.ndarray.sum"]
    assert observe(lambda: [launch()], "cpu", (__name__,)) == seen
    assert observe(copying, "cpu", (__name__,)) == ["calls ndarray.ndarray.copy", *seen]
    assert observe(lambda: [launch() for _ in range(3)], "cpu", (__name__,)) == seen  # how often is not told


def test_what_does_not_do_the_same_twice_is_not_observed():
    chance = iter([True, False])
    assert observe(lambda: copying() if next(chance) else launch(), "cpu", (__name__,)) is None


def test_what_a_library_does_inside_is_its_own_affair():
    assert observe(lambda: json.loads(json.dumps([1])), "cpu", (__name__,)) == [
        "calls json.dumps",
        "calls json.loads",
    ]


class Driver:
    """A driver with a graph of a kernel, a copy and a fill."""

    def __init__(self, kernel: type[ctypes.Structure], version: str = "") -> None:
        self._kernel = kernel
        prefix = "cuGraph" if kernel is CudaKernel else "hipGraph"
        setattr(self, f"{prefix}GetNodes", self._get_nodes)
        setattr(self, f"{prefix}NodeGetType", self._get_type)
        setattr(self, f"{prefix}KernelNodeGetParams{version}", self._get_kernel)

    def _get_nodes(self, graph, nodes, count):
        assert graph.value == 7
        count._obj.value = 3
        if nodes is not None:
            nodes[:] = [10, 11, 12]
        return 0

    def _get_type(self, node, kind):
        kind._obj.value = node.value - 10
        return 0

    def _get_kernel(self, node, found):
        of = found._obj
        assert isinstance(of, self._kernel)
        of.grid[:], of.block[:], of.shared, of.function = (4, 2, 1), (128, 1, 1), 4096, 99
        return 0


class CudaDriver(Driver):
    def cuFuncGetName(self, name, function):  # noqa: N802 - the driver's name
        assert function.value == 99
        name._obj.value = b"attention_forward"
        return 0


def test_the_nodes_of_a_graph_are_read_from_the_driver():
    shape = "grid [4, 2, 1] block [128, 1, 1] shared 4096"
    cuda, hip = CudaDriver(CudaKernel, "_v2"), Driver(HipKernel)
    assert nodes_of(7, cuda, "cuGraph") == [f"kernel attention_forward {shape}", "copy", "fill"]
    assert nodes_of(7, hip, "hipGraph") == [f"kernel {shape}", "copy", "fill"]
