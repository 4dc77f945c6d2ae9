"""What the suite gives the emulator: problems, arguments, and a check that notices what is wrong."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from benchmarks import emulated, kernels, reference
from tilegate import emulator
from tilegate.protocol import WrongResult

ARCH = "gfx942"
IDS = [id for id in kernels.configurations(ARCH) if id.startswith("forward ")]
BFLOAT, HALF = (next(id for id in IDS if dtype in id) for dtype in (" bfloat16 ", " float16 "))


@pytest.mark.parametrize("id", [BFLOAT, HALF])
def test_the_reference_itself_passes_the_check_and_another_value_does_not(id):
    problem = emulated.problems(id, ARCH)[0]
    arguments = emulated.arguments(id, ARCH, problem)
    with pytest.raises(WrongResult, match="out: "):
        emulated.check(id, ARCH, problem, arguments)  # nothing was written
    dtype = torch.bfloat16 if id == BFLOAT else torch.float16
    q, k, v, out = (torch.from_numpy(arguments[name]).view(dtype) for name in "QKVO")
    expected, lse = reference.attention(q, k, v, causal="causal" in id, softmax_scale=arguments["softmax_scale"])
    out.copy_(expected)
    arguments["LSE"][:] = lse.numpy()
    emulated.check(id, ARCH, problem, arguments)
    arguments["LSE"][0, 0, 128] += 0.1
    with pytest.raises(WrongResult, match="lse"):
        emulated.check(id, ARCH, problem, arguments)


def test_arguments_are_the_same_each_time_and_fit_the_shape():
    one, two = (emulated.arguments(BFLOAT, ARCH, "b1 h7/1 q257 k5") for _ in range(2))
    assert one.keys() == two.keys()
    assert all(np.array_equal(one[name], two[name], equal_nan=True) for name in ("Q", "K", "V", "LSE"))
    assert one["Q"].dtype == np.uint16
    assert one["Q"].shape[:3] == (one["batch"], one["seqlen_q"], one["heads"])
    assert one["K"].shape[:3] == (one["batch"], one["seqlen_k"], one["kv_heads"])
    assert math.isnan(one["LSE"].max())


@pytest.mark.parametrize("call", [emulated.arguments, lambda *a: emulated.check(*a, {})])
def test_an_unknown_kernel_or_problem_is_refused(call):
    with pytest.raises(ValueError, match="no kernel 'nonsense'"):
        call("nonsense", ARCH, "b1 h7/1 q1 k1")
    with pytest.raises(ValueError, match="no problem 'huge'; there are 'b1"):
        call(IDS[0], ARCH, "huge")


def test_problems_leave_tiles_partly_filled_on_both_sides():
    names = emulated.problems(IDS[0], ARCH)
    assert len(names) == len(set(names))
    first = emulated.arguments(IDS[0], ARCH, names[0])
    for tile in (32, 64, 128):
        assert first["seqlen_q"] % tile
        assert first["seqlen_k"] % tile


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("__2.x = (v__1.x*v__2.x)", "__2.x = (v__1.x)"),  # a part of the output
        ("((row_sum[0] * rescale[0]) + tile_sum[0])", "(row_sum[0] + tile_sum[0])"),
    ],
    ids=["output", "sum"],
)
def test_the_first_problem_notices_that_what_came_before_a_new_maximum_is_not_rescaled(old, new):
    try:
        emulator.toolchain()
    except emulator.ToolchainMissing as error:
        pytest.skip(str(error))
    id = next(id for id in IDS if "bfloat16 d64 causal 128x64" in id)
    (artifact,) = kernels.lower(id, ARCH)
    assert old in artifact.source
    program = emulator.compile_kernel(
        artifact.source.replace(old, new),
        artifact.name,
        arch=ARCH,
        shared_bytes=int(artifact.launch["dynamic_shared_bytes"]),
        traced=False,
    )
    problem = emulated.problems(id, ARCH)[0]
    arguments = emulated.arguments(id, ARCH, problem)
    integers = {name: value for name, value in arguments.items() if isinstance(value, int)}
    grid = emulator.grid_of(artifact.launch["grid"], integers)
    assert emulator.run(program, arguments, grid, artifact.launch["block"]).completed
    with pytest.raises(WrongResult, match="out: "):
        emulated.check(id, ARCH, problem, arguments)
