"""Packed sequences of other lengths: the longest of the case's own becomes the length, the others keep their share."""

import itertools

import torch


def lengths(length, shape):
    """Rows and keys of each sequence; an empty one stays empty."""
    longest = max(shape["keys"])
    return [[-(-n * length // longest) for n in shape[name]] for name in ("rows", "keys")]


def bounds(length, shape, device):
    """Where sequences begin and end among all rows, and among all keys: int32."""
    return [
        torch.tensor([0, *itertools.accumulate(each)], dtype=torch.int32, device=device)
        for each in lengths(length, shape)
    ]


def slices(bounds_q, bounds_k):
    """Rows and keys of each sequence."""
    pairs = [itertools.pairwise(each.tolist()) for each in (bounds_q, bounds_k)]
    return [(slice(*rows), slice(*keys)) for rows, keys in zip(*pairs, strict=True)]
