"""The kernel at two lengths, with and without a causal mask."""

import math
import random

import mykernels
import numpy as np

from tilegate.protocol import Artifact, Buffers, WrongResult, verify_origin

verify_origin(mykernels)
WIDTH = 64
VALUES = {"normal": 1.0, "equal": 0.0, "huge": 30.0, "subnormal": 1e-310}


def _draw(rows, keys, seed, values="normal"):
    chance = np.random.default_rng(seed)
    drawn = {name: chance.standard_normal((n, WIDTH)) for name, n in (("q", rows), ("k", keys), ("v", keys))}
    return {name: np.full_like(x, 0.5) if values == "equal" else VALUES[values] * x for name, x in drawn.items()}


def _compare(inputs, out, causal):
    q, k, v = inputs["q"], inputs["k"], inputs["v"]
    scores = q @ k.T / math.sqrt(WIDTH)
    if causal:
        rows, keys = scores.shape
        scores[np.arange(keys)[None, :] > np.arange(rows)[:, None] + keys - rows] = -np.inf
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    right = weights @ v / weights.sum(axis=1, keepdims=True)
    most = np.linalg.norm(q, axis=1).max() * np.linalg.norm(k, axis=1).max() / math.sqrt(WIDTH)
    allowed = 64 * 2.0**-53 * (1 + most) * np.abs(v).max() + 1e-322
    error = np.abs(out - right).max() if out.shape == right.shape else math.inf
    if not error <= allowed:
        raise WrongResult(
            f"out: largest error {error:.3g}, allowed {allowed:.3g}, {q.shape[0]} rows, {k.shape[0]} keys"
        )


class Attention:
    params = ([96, 160], [True, False])
    param_names = ("length", "causal")
    version = "1"

    def setup(self, length, causal):
        self._kernel = mykernels.Kernel(causal)
        self._inputs = _draw(length, length, 0)
        self._out = np.full((length, WIDTH), np.nan)

    def latency_attention(self, length, causal):
        self._kernel.launch(*self._inputs.values(), self._out)

    def check(self, length, causal):
        inputs, out = _draw(length, length, 1), np.full((length, WIDTH), np.nan)
        mykernels.Kernel(causal).launch(*(x.copy() for x in inputs.values()), out)
        _compare(inputs, out, causal)

    def inputs(self, length, causal):
        return _draw(length, length, 0)

    def buffers(self, length, causal):
        return [Buffers(self._inputs, {"out": self._out})]

    def verify(self, inputs, outputs, length, causal):
        _compare(inputs, outputs["out"], causal)

    def probe(self, seed, length, causal):
        inputs = self._problem(seed)
        out = np.full((len(inputs["q"]), WIDTH), np.nan)
        mykernels.Kernel(causal).launch(*inputs.values(), out)
        return {"out": out}

    def verify_probe(self, seed, outputs, length, causal):
        _compare(self._problem(seed), outputs["out"], causal)

    @classmethod
    def probed(cls):
        return [(96, None)]  # a kernel that no case times

    def _problem(self, seed):
        chance = random.Random(seed >> 8)  # noqa: S311 - not for secrets
        keys = chance.randint(1, 200)
        values = list(VALUES)[(seed >> 8) % len(VALUES)]
        return _draw(chance.choice((keys, chance.randint(1, keys))), keys, seed, values)

    def artifacts(self, length, causal):
        return [
            Artifact(
                "attention", mykernels.Kernel(causal).source(), {"grid": [1], "block": [1], "causal": repr(causal)}
            )
        ]
