"""Problems that `tilegate repro` writes: they need torch alone, and their `error` agrees with torch's own attention."""

from __future__ import annotations

import ast
import dataclasses
import functools
import math
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from benchmarks import reproduction
from benchmarks.families import families

torch.set_num_threads(1)  # small tensors: on a shared machine more threads wait for each other
FAMILIES = families()
ROWS = [
    (name, work)
    for name, family in FAMILIES.items()
    for work in family.workloads
    if "cpu" in work.targets and work.tier == "smoke"
]
FIRST = {name: work.id for name, work in reversed(ROWS)}
"""One of each family; the others are thorough, as generating a kernel takes seconds."""
SHOWN = [
    pytest.param(row, id=row[1].id, marks=() if row[1].id in FIRST.values() else pytest.mark.thorough) for row in ROWS
]


@functools.cache
def describe(name: str, id: str) -> dict[str, Any]:
    return reproduction.describe(FAMILIES[name], FAMILIES[name].workload(id), "adaptive", "cpu", [])


@pytest.fixture(params=SHOWN)
def described(request: pytest.FixtureRequest) -> tuple[str, Any, dict[str, Any]]:
    name, work = request.param
    return name, work, describe(name, work.id)


def problem_of(text: str) -> Any:
    module = ModuleType("problem")
    exec(compile(text, "problem.py", "exec"), module.__dict__)  # noqa: S102 - what repro.py does with the file
    return module


def test_it_imports_nothing_of_ours(described: tuple[str, Any, dict[str, Any]]) -> None:
    _, _, answer = described
    for part, allowed in (("problem", {"torch"}), ("kernel", {"tilelang"}), ("dialect", {"tilelang"})):
        imported = set()
        for node in ast.walk(ast.parse(answer[part])):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add(str(node.module).partition(".")[0])
        assert imported - set(sys.stdlib_module_names) <= allowed, part
    assert answer["tiles"].keys() == {str(length) for length in answer["lengths"]}


def test_its_own_length_is_the_case(described: tuple[str, Any, dict[str, Any]]) -> None:
    name, work, answer = described
    amount, unit = problem_of(answer["problem"]).work(answer["lengths"][-1], answer["shape"])
    if unit == "TFLOP/s":
        assert amount == work.flops
    else:  # of a cache alone: what else moves is below a tenth of it
        assert 0.9 * work.bytes < amount <= work.bytes or name == "mla" or work.rows > 1
    if hasattr(work, "seqlen_q"):
        own = problem_of(answer["problem"]).inputs(answer["lengths"][-1], answer["shape"], "cpu")
        assert own[0].shape[1] == work.seqlen_q
        assert own[1].shape[1] == work.seqlen_k


def sequences(name: str, given: list[Any]) -> list[tuple[torch.Tensor, ...]]:
    """(Q, K, V, dO) of each, as (heads, rows, D)."""
    q, k, v = given[:3]
    grad = given[4] if "backward" in name else torch.zeros_like(q)
    if "varlen" not in name:
        return [tuple(x.transpose(0, 1) for x in entry) for entry in zip(q, k, v, grad, strict=True)]
    bounds = given[-4:-2] if name == "varlen_backward" else given[3:5]
    ends = [[*zip(each.tolist(), each.tolist()[1:], strict=False)] for each in bounds]
    return [
        tuple(
            x[slice(*part)].transpose(0, 1) for x, part in zip((q, k, v, grad), (mine, seen, seen, mine), strict=True)
        )
        for mine, seen in zip(*ends, strict=True)
    ]


def by_torch(name: str, given: list[Any], shape: dict[str, Any]) -> list[list[torch.Tensor]]:
    """(O, LSE, dQ, dK, dV) of each sequence by autograd in float64, as (rows, heads, D)."""
    found = []
    for *inputs, grad in sequences(name, given):
        q, k, v = (x.double().requires_grad_() for x in inputs)
        scores = q @ k.repeat_interleave(len(q) // len(k), 0).transpose(1, 2) * shape["softmax_scale"]
        if shape["causal"]:
            hidden = torch.ones(scores.shape[1:], dtype=torch.bool).triu(scores.shape[2] - scores.shape[1] + 1)
            scores = scores.masked_fill(hidden, -math.inf)
        lse = torch.logsumexp(scores, -1)
        weights = torch.where(lse[..., None] == -math.inf, 0.0, (scores - lse.clamp(min=-1e30)[..., None]).exp())
        out = weights @ v.repeat_interleave(len(q) // len(v), 0)
        grads = torch.autograd.grad(out, (q, k, v), grad.double(), allow_unused=True)
        found.append([x.detach().transpose(0, 1) for x in (out, *grads)] + [lse.detach()])
    return found


@pytest.mark.parametrize("row", [row for row in SHOWN if row.values[0][0] not in ("decode", "mla")])
def test_what_torch_computes_is_right_and_what_is_off_is_not(row: tuple[str, Any]) -> None:
    name, work = row
    answer = describe(name, work.id)
    problem, shape, length = problem_of(answer["problem"]), answer["shape"], answer["lengths"][-1]
    tile = SimpleNamespace(**answer["tiles"][str(length)])
    given, results = problem.inputs(length, shape, "cpu"), problem.outputs(length, shape, "cpu", tile)
    assert problem.error([*given, *results], shape) == math.inf  # NaN everywhere
    parts = by_torch(name, given, shape)
    join = torch.cat if "varlen" in name else torch.stack
    if "backward" in name:
        right = [results[0], *(join([part[i] for part in parts]) for i in (1, 2, 3))]
        assert torch.allclose(given[3].double(), join([part[0] for part in parts]), atol=1e-2)  # O that it is given
    else:
        lse = (
            torch.cat([part[4] for part in parts], 1) if "varlen" in name else torch.stack([part[4] for part in parts])
        )
        right = [join([part[0] for part in parts]), lse]
    right = [x.to(own.dtype) for x, own in zip(right, results, strict=True)]
    assert problem.error([*given, *right], shape) <= 0.5
    for index, each in enumerate(right):
        if "backward" in name and index == 0:
            continue  # statistics, no result
        off = [x.clone() for x in right]
        off[index] = torch.where(each.isinf(), each, 1.01 * each)
        assert problem.error([*given, *off], shape) > 1, index


def test_packed_sequences_keep_their_shares() -> None:
    family = FAMILIES["varlen"]
    work = family.workload("cpu-varlen-g7-d64-n4")
    half = reproduction._at(family, work, 32)
    assert (half.rows, half.keys) == ((17, 0, 32, 1), (17, 0, 32, 1))
    assert reproduction._at(family, work, max(work.keys)) == work


def test_new_rows_over_a_cache_stay_as_many() -> None:
    family = FAMILIES["forward"]
    work = family.workload("cpu-g8-d64-q33-k160")
    assert reproduction._at(family, work, 64) == dataclasses.replace(work, seqlen_k=64)
    assert reproduction._ladder(family, work) == [64, 128, 160]
