"""What one launch computes and moves, as the suite states it: turns a time into a rate, and shows times that cannot be."""

from __future__ import annotations

KINDS = ("flops", "bytes", "tokens")
LONGEST_SHAPE = 40  # characters
_MOST = 1e30  # beyond what any launch does, and well within JSON


def verified_work(stated: object) -> dict[str, float | str]:
    """Return what a suite's `work` said, if it makes sense.

    Args:
        stated: ``{"flops": floating-point operations, "bytes": read and written at least once, "tokens": that a
            server gets done, "shape": in a few words}``; at least one of the first three.

    Raises:
        ValueError: anything else, a number that is not above 0 and at most 1e30, or a shape that is no printable text of
            1 to 40 characters.
    """
    if not isinstance(stated, dict) or not set(stated) <= {*KINDS, "shape"} or not set(stated) & set(KINDS):
        raise ValueError(f"work() must return a dict with {' or '.join(KINDS)}, not {stated!r:.200}")
    amounts = {kind: stated[kind] for kind in KINDS if kind in stated}
    for kind, amount in amounts.items():
        if isinstance(amount, bool) or not isinstance(amount, int | float) or not 0 < amount <= _MOST:
            raise ValueError(f"work() must return numbers above 0, not {amount!r:.200} {kind}")
    known: dict[str, float | str] = {kind: float(amount) for kind, amount in amounts.items()}
    if "shape" in stated:
        shape = stated["shape"]
        if not isinstance(shape, str) or not 0 < len(shape) <= LONGEST_SHAPE or not shape.isprintable():
            raise ValueError(
                f"work() must return a shape of 1 to {LONGEST_SHAPE} printable characters, not {shape!r:.200}"
            )
        known["shape"] = shape
    return known
