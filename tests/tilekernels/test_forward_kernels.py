"""One kernel object for all problems that the same kernel serves, compiled once."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from problem_strategies import problems

from tilekernels import forward, handle
from tilekernels.chips import CHIPS
from tilekernels.forward import ForwardKernel, forward_kernel, precompile
from tilekernels.functional import attention
from tilekernels.policy import POLICIES, variants
from tilekernels.problem import AttentionProblem

PROBLEM = AttentionProblem(2, 6, 3, 100, 100, 64, "float32", True)


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The names of the kernels compiled during the test, which starts with none in memory."""
    names: list[str] = []
    lock = threading.Lock()

    def count(function: Callable) -> Callable:
        def compile_kernel(prim_func: object, target: str) -> object:
            with lock:
                names.append(prim_func.attrs["global_symbol"])
            return function(prim_func, target)

        return compile_kernel

    monkeypatch.setattr(handle, "_kernels", {})
    monkeypatch.setattr(handle, "compile_kernel", count(handle.compile_kernel))
    forward._find.cache_clear()
    yield names
    forward._find.cache_clear()


@given(problems(CHIPS["cpu"]))
def test_the_same_kernel_is_the_same_object(problem: AttentionProblem) -> None:
    kernel = forward_kernel(problem, device="cpu")
    assert kernel.tile in variants(CHIPS["cpu"], problem.head_dim, problem.dtype)
    assert kernel.problem_key == (problem.head_dim, problem.dtype, problem.causal)
    other = replace(problem, batch=problem.batch // 2, heads=3 * problem.heads, kv_heads=3 * problem.kv_heads)
    assert forward_kernel(other, device="cpu").problem_key == kernel.problem_key
    if forward_kernel(other, device="cpu").tile == kernel.tile:
        assert forward_kernel(other, device=torch.device("cpu")) is kernel


def test_new_lengths_heads_and_batches_do_not_recompile(compilations: list[str]) -> None:
    for policy in POLICIES:
        for length in (1, 2, 15, 16, 17, 31, 33, 63, 64, 65, 100, 127, 128, 129, 200):
            for batch, heads, kv_heads in ((1, 1, 1), (2, 4, 2), (1, 7, 1)):
                q = torch.zeros(batch, length, heads, 64)
                k = torch.zeros(batch, 2 * length, kv_heads, 64)
                attention(q, k, k, policy=policy)
    expected = {tile for policy in POLICIES for tile in variants(CHIPS["cpu"], 64, "float32", policy)}
    assert 1 < len(compilations) == len(handle._kernels) <= len(expected)


def test_head_dim_dtype_and_mask_are_compiled_in(compilations: list[str]) -> None:
    keys = {(64, "float32", True), (64, "float32", False), (64, "float16", True)}
    kernels = {
        forward_kernel(replace(PROBLEM, head_dim=d, dtype=dtype, causal=causal), device="cpu")
        for d, dtype, causal in keys
    }
    assert {kernel.problem_key for kernel in kernels} == keys
    assert compilations == []  # nothing before the first launch


def test_threads_compile_a_kernel_once(compilations: list[str]) -> None:
    kernel = forward_kernel(PROBLEM, device="cpu")
    threads = [threading.Thread(target=kernel.compile) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(compilations) == 1


def test_precompiling_leaves_nothing_to_compile(compilations: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    wanted = [PROBLEM, replace(PROBLEM, batch=1), replace(PROBLEM, causal=False)]
    precompile(wanted, device="cpu")
    assert "2/2" in capfd.readouterr().err
    assert len(handle._kernels) == 2
    precompile(wanted, device="cpu")
    assert capfd.readouterr().err == ""
    q, k = torch.zeros(2, 100, 6, 64), torch.zeros(2, 100, 3, 64)
    attention(q, k, k, causal=True)
    attention(q, k, k)
    assert compilations == []  # compile_many has its own way to the compiler; launches found nothing to do


def test_artifacts_need_no_device_and_no_launch(compilations: list[str]) -> None:
    kernel = forward_kernel(replace(PROBLEM, dtype="float16"), device="gfx942")
    (made,) = kernel.artifacts()
    assert "hip_runtime.h" in made.source
    assert made.launch["block"] == [kernel.tile.threads, 1, 1]
    assert compilations == []


def test_artifacts_of_the_cpu_are_what_runs() -> None:
    (made,) = forward_kernel(PROBLEM, device="cpu").artifacts()
    (compiled,) = forward_kernel(PROBLEM, device="cpu").compile()
    # The first line is a comment that spells the target out, in more or fewer words.
    assert compiled.get_kernel_source(kernel_only=True).partition("\n")[2] == made.source.partition("\n")[2]
    assert made.source.count("\n") > 50


def test_a_kernel_says_what_it_is() -> None:
    text = repr(forward_kernel(replace(PROBLEM, dtype="float16"), "fixed", device="gfx942"))
    assert text == "ForwardKernel(gfx942 float16 d64 causal 64x64/256/1r)"
    assert isinstance(forward_kernel(PROBLEM, device="cpu"), ForwardKernel)
