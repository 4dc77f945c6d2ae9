"""Which part of a kernel is its main loop, and which part of that runs in every round."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tilegate.isa.assembly import Block


@dataclass(frozen=True)
class Loop:
    """A natural loop.

    Attributes:
        header: index of the block through which it is entered.
        blocks: indices of all its blocks.
        steady: those that every round passes through. A block that is skipped only if no lane has work in it (a guard
            around loads, say) counts as passed; one behind a uniform branch (a mask for the last tile, say) does not.
    """

    header: int
    blocks: frozenset[int]
    steady: frozenset[int]


def innermost_loops(blocks: Sequence[Block]) -> tuple[Loop, ...]:
    """Find the loops that hold no other loop, in the order of their headers."""
    successors = [block.successors for block in blocks]
    dominators = _dominators(successors, entry=0, nodes=range(len(blocks)))
    bodies: dict[int, set[int]] = {}
    latches: dict[int, set[int]] = {}
    for tail, targets in enumerate(successors):
        for head in targets:
            if head in dominators.get(tail, ()):
                bodies.setdefault(head, {head}).update(_body(head, tail, successors))
                latches.setdefault(head, set()).add(tail)
    inner = [head for head in sorted(bodies) if not any(other != head and other in bodies[head] for other in bodies)]
    return tuple(
        Loop(head, frozenset(bodies[head]), _steady(blocks, head, bodies[head], latches[head])) for head in inner
    )


def main_loop(blocks: Sequence[Block], weight: Callable[[Block], tuple[int, int]]) -> Loop | None:
    """Return the innermost loop of the greatest total weight, the first of equals; None without loops.

    Args:
        blocks: the kernel's control flow.
        weight: of a block; the tuples are added up over a loop and compared in order.
    """

    def total(loop: Loop) -> tuple[int, int]:
        weights = [weight(blocks[index]) for index in loop.blocks]
        return sum(first for first, _ in weights), sum(second for _, second in weights)

    return max(innermost_loops(blocks), key=total, default=None)


def _steady(blocks: Sequence[Block], head: int, body: set[int], latches: set[int]) -> frozenset[int]:
    """The blocks on every path from the header to every latch, once branches around idle lanes are taken as not taken."""
    # Paths end in an artificial node after the latches, so that one set of dominators answers for all of them.
    end = len(blocks)
    successors: list[tuple[int, ...]] = [()] * (end + 1)
    for index in body:
        block = blocks[index]
        kept = tuple(
            target
            for target in block.successors
            if target in body and target != head and (target != block.skips_idle or len(block.successors) == 1)
        )
        successors[index] = (*kept, end) if index in latches else kept
    dominators = _dominators(successors, entry=head, nodes=[*body, end])
    return frozenset(dominators.get(end, {head}) - {end})


def _body(head: int, tail: int, successors: Sequence[tuple[int, ...]]) -> set[int]:
    """Everything that reaches `tail` without passing `head`."""
    predecessors: dict[int, list[int]] = {}
    for index, targets in enumerate(successors):
        for target in targets:
            predecessors.setdefault(target, []).append(index)
    found, pending = {head, tail}, [tail] if tail != head else []
    while pending:
        for before in predecessors.get(pending.pop(), ()):
            if before not in found:
                found.add(before)
                pending.append(before)
    return found


def _dominators(successors: Sequence[tuple[int, ...]], entry: int, nodes: Iterable[int]) -> dict[int, frozenset[int]]:
    """For every node that `entry` reaches, the nodes that are on every path to it, itself included."""
    order = _reverse_postorder(successors, entry)
    wanted = set(nodes)
    predecessors: dict[int, list[int]] = {node: [] for node in order}
    for node in order:
        for target in successors[node]:
            if target in predecessors:
                predecessors[target].append(node)
    dominators: dict[int, frozenset[int]] = {entry: frozenset({entry})}
    changed = True
    while changed:
        changed = False
        for node in order[1:]:
            known = [dominators[before] for before in predecessors[node] if before in dominators]
            found = frozenset.intersection(*known) | {node} if known else frozenset({node})
            if dominators.get(node) != found:
                dominators[node], changed = found, True
    return {node: found for node, found in dominators.items() if node in wanted}


def _reverse_postorder(successors: Sequence[tuple[int, ...]], entry: int) -> list[int]:
    order: list[int] = []
    seen = {entry}
    stack = [(entry, iter(successors[entry]))]
    while stack:
        node, targets = stack[-1]
        following = next((target for target in targets if target not in seen), None)
        if following is None:
            order.append(node)
            stack.pop()
        else:
            seen.add(following)
            stack.append((following, iter(successors[following])))
    return order[::-1]
