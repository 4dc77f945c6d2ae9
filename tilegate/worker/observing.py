"""What a launch does, as it is seen and not as the package says: for cases whose generated code is the same.

On a GPU the launch is captured as a CUDA or HIP graph, and the graph's nodes are read from the driver: kernels with grid,
block and shared memory, copies, fills, and whatever else there is. On the host the calls out of the package are noted, such
as those into torch: nothing of the package's own, so that it may be rewritten. What cannot be captured, or is not twice the
same, is not observed, and then says nothing.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

_CUDA_KINDS = {0: "kernel", 1: "copy", 2: "fill", 3: "host function", 4: "graph", 5: "empty", 6: "wait", 7: "record"}
"""CUgraphNodeType and hipGraphNodeType (cuda.h, hip_runtime_api.h) begin alike."""
_IGNORED_MODULES = ("tilegate.worker", "sys")


def observe(launch: Callable[[], object], target: str, own: Sequence[str]) -> list[str] | None:
    """Return what one launch does, a line for each thing; None if it does not do the same twice.

    Args:
        launch: has been made before.
        target: "cpu", "cuda" or "hip".
        own: packages whose own functions do not count.
    """
    first, again = _calls(launch, own), _calls(launch, own)
    if first != again:
        return None
    return first if target == "cpu" else first + _nodes(launch, target)


def _calls(launch: Callable[[], object], own: Sequence[str]) -> list[str]:
    """Return the calls that a launch makes out of `own`, many of the same in a row as one."""
    seen: list[str] = []
    within: list[bool] = []  # of each call that goes on: whether it was noted, and what it calls is its own affair

    def note(frame: Any, event: str, argument: Any) -> None:
        if event in ("return", "c_return", "c_exception"):
            del within[-1:]
            return
        if event == "call":
            module, name = str(frame.f_globals.get("__name__")), frame.f_code.co_qualname
        else:
            module = getattr(argument, "__module__", None) or type(getattr(argument, "__self__", None)).__name__
            name = argument.__qualname__
        known = any(module == of or module.startswith(f"{of}.") for of in (*own, "builtins", *_IGNORED_MODULES))
        if not known and True not in within:
            seen.append(f"calls {module}.{name}")
        within.append(not known)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        launch()
    finally:
        sys.setprofile(before)
    return [line for line, _ in groupby(seen)]


def _nodes(launch: Callable[[], object], target: str) -> list[str]:
    """Return the nodes of the launch's graph, or why there are none. Versions of torch before 2.8 do not hand it out."""
    import torch  # noqa: PLC0415 - the protocol is imported without it

    try:
        graph = torch.cuda.CUDAGraph(keep_graph=True)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            launch()
        raw = graph.raw_cuda_graph()
        driver = ctypes.CDLL("libcuda.so.1" if target == "cuda" else "libamdhip64.so")
    except Exception as error:  # it waits for the device, or allocates; or this torch cannot
        return [f"cannot be captured: {type(error).__name__}"]
    return nodes_of(raw, driver, "cuGraph" if target == "cuda" else "hipGraph")


class CudaKernel(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2 of cuda.h."""

    _fields_ = (
        ("function", ctypes.c_void_p),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("parameters", ctypes.c_void_p),
        ("extra", ctypes.c_void_p),
        ("kernel", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
    )


class HipKernel(ctypes.Structure):
    """The members of hipKernelNodeParams of hip_runtime_api.h, in their order."""

    _fields_ = (
        ("block", ctypes.c_uint * 3),
        ("extra", ctypes.c_void_p),
        ("function", ctypes.c_void_p),
        ("grid", ctypes.c_uint * 3),
        ("parameters", ctypes.c_void_p),
        ("shared", ctypes.c_uint),
    )


def nodes_of(graph: int, driver: Any, prefix: str) -> list[str]:
    """Return the nodes of a graph, a line for each.

    Args:
        graph: its handle.
        driver: the library that made it.
        prefix: of its functions, "cuGraph" or "hipGraph".
    """
    count = ctypes.c_size_t(0)
    get_nodes = getattr(driver, f"{prefix}GetNodes")
    handle = ctypes.c_void_p(graph)
    if get_nodes(handle, None, ctypes.byref(count)):
        return ["cannot be read"]
    nodes = (ctypes.c_void_p * count.value)()
    if count.value and get_nodes(handle, nodes, ctypes.byref(count)):
        return ["cannot be read"]
    found = []
    for node in nodes:
        kind = ctypes.c_int(-1)
        getattr(driver, f"{prefix}NodeGetType")(ctypes.c_void_p(node), ctypes.byref(kind))
        name = _CUDA_KINDS.get(kind.value, f"node of type {kind.value}")
        found.append(f"{name}{_kernel(ctypes.c_void_p(node), driver, prefix) if name == 'kernel' else ''}")
    return found


def _kernel(node: ctypes.c_void_p, driver: Any, prefix: str) -> str:
    cuda = prefix == "cuGraph"
    of = CudaKernel() if cuda else HipKernel()
    if getattr(driver, f"{prefix}KernelNodeGetParams{'_v2' if cuda else ''}")(node, ctypes.byref(of)):
        return ""
    name = ctypes.c_char_p()
    if cuda and of.function and hasattr(driver, "cuFuncGetName"):
        driver.cuFuncGetName(ctypes.byref(name), ctypes.c_void_p(of.function))
    elif cuda and of.kernel and hasattr(driver, "cuKernelGetName"):
        driver.cuKernelGetName(ctypes.byref(name), ctypes.c_void_p(of.kernel))
    called = f" {name.value.decode(errors='replace')}" if name.value else ""
    return f"{called} grid {list(of.grid)} block {list(of.block)} shared {of.shared}"
