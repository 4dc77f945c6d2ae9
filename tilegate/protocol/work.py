"""What one launch computes and moves, as the suite states it: turns a time into a rate, and shows times that cannot be."""

from __future__ import annotations

KINDS = ("flops", "bytes")
_MOST = 1e30  # beyond what any launch does, and well within JSON


def verified_work(stated: object) -> dict[str, float]:
    """Return what a suite's `work` said, if it makes sense.

    Args:
        stated: ``{"flops": floating-point operations, "bytes": read and written at least once}``, either or both.

    Raises:
        ValueError: anything else, or a number that is not above 0 and at most 1e30.
    """
    if not isinstance(stated, dict) or not stated or not set(stated) <= set(KINDS):
        raise ValueError(f"work() must return a dict with {' or '.join(KINDS)}, not {stated!r:.200}")
    for kind, amount in stated.items():
        if isinstance(amount, bool) or not isinstance(amount, int | float) or not 0 < amount <= _MOST:
            raise ValueError(f"work() must return numbers above 0, not {amount!r:.200} {kind}")
    return {kind: float(amount) for kind, amount in stated.items()}
