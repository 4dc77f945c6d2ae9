"""Attention of one head, by plain sums."""

import math
from pathlib import Path

import numpy as np


def attend(q, k, v, out, causal):
    scores = np.einsum("id,jd->ij", q, k) / math.sqrt(q.shape[1])
    if causal:
        rows, keys = scores.shape
        scores[np.arange(keys)[None, :] > np.arange(rows)[:, None] + keys - rows] = -np.inf
    scores -= scores.max(axis=1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=1, keepdims=True)
    np.einsum("ij,jd->id", scores, v, out=out)


class Kernel:
    def __init__(self, causal):
        self.causal = causal

    def launch(self, q, k, v, out):
        attend(q, k, v, out, self.causal)

    def source(self):
        return Path(__file__).read_text()
