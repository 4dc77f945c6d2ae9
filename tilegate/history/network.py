"""Levels of code versions from comparisons in turns: weighted least squares on a graph, and honest intervals.

Nodes are code versions of one case in one environment. An edge (u, v) says that v takes exp(y) times as long as u, with a
standard error. With the weights w = 1 / error**2 the levels solve L x = b, L the graph's Laplacian; the variance of x[v] - x[u]
is the effective resistance between the two (Ghosh, Boyd and Saberi 2008, doi 10.1137/050645452). Where two paths lead from one
version to another, the edges check each other: an edge whose residual is larger than chance allows is flagged, left out, and
never averaged in.

Edges come from several cards of a model. What cards differ by beyond their errors is a variance component: estimated from edges
of the same two versions on different cards, and added to the error of each.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from scipy import sparse, special
from scipy.sparse import linalg

FALSE_FLAGS = 0.005
"""Chance that a case without a bad edge has one flagged, over all its edges (Bonferroni)."""

LEVEL = 0.95
"""Of the intervals."""

_MOST_FREEDOM = 1e6
_COLUMNS = 512  # right sides that are solved at once: bounds the memory of a large network
_FEWEST_CARDS = 3  # edges that a variance between cards is estimated from; fewer say too little


@dataclass(frozen=True)
class Edge:
    """A comparison.

    Attributes:
        base, head: the two versions.
        log_ratio: ln(head / base).
        error: standard error.
        freedom: degrees of freedom of `error`; infinite if it is known.
        card: which card measured it.
        name: of its record.
    """

    base: str
    head: str
    log_ratio: float
    error: float
    freedom: float = math.inf
    card: str = ""
    name: str = ""


@dataclass(frozen=True)
class Contrast:
    """How much slower one version is than another: ln, its standard error, and the interval at `LEVEL`."""

    estimate: float
    error: float
    low: float
    high: float

    @property
    def certain(self) -> bool:
        """Whether the interval excludes no change."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True)
class Network:
    """The levels of the versions of a case.

    Attributes:
        levels: by version, ln relative to the first version of its component.
        component: by version; between components nothing is known.
        flagged: edges that contradict the others, with how many standard errors they are off; they do not count.
        disputed: edges that count although one of them or of the flagged is wrong, and nothing says which.
        edges: those that count, with the cards' variance in their errors.
        residuals: of each of `edges`, how many standard errors it is off what the others say; infinite where nothing checks it.
        card_spread: standard deviation between cards, in log ratio; 0 if it cannot be told from none.
    """

    levels: Mapping[str, float]
    component: Mapping[str, int]
    flagged: tuple[tuple[Edge, float], ...]
    disputed: tuple[Edge, ...]
    edges: tuple[Edge, ...]
    residuals: tuple[float, ...]
    card_spread: float
    _index: Mapping[str, int] = field(repr=False, default_factory=dict)
    _solver: _Solver | None = field(repr=False, default=None)

    def contrast(self, base: str, head: str) -> Contrast | None:
        """Return how much slower `head` is than `base`, None if no comparisons connect them."""
        if base == head and base in self.component:
            return Contrast(0.0, 0.0, 0.0, 0.0)
        if self._solver is None or self.component.get(base, -1) != self.component.get(head, -2):
            return None
        variance = self._solver.resistance(self._index[base], self._index[head])
        return interval(self.levels[head] - self.levels[base], math.sqrt(variance), self.freedom(base, head))

    def errors(self, reference: str) -> dict[str, float]:
        """Return the standard error of every version of the reference's component against it."""
        if self._solver is None:
            return {version: 0.0 for version in self.component if version == reference}
        here = [version for version in self.component if self.component[version] == self.component[reference]]
        at = self._index[reference]
        return {version: math.sqrt(self._solver.resistance(at, self._index[version])) for version in here}

    def freedom(self, base: str, head: str) -> float:
        """Degrees of freedom of a contrast (Satterthwaite): each edge's share of the variance, by the current through it."""
        if self._solver is None:
            return math.inf
        currents = self._solver.currents(self._index[base], self._index[head])
        shares = np.array([(current * edge.error) ** 2 for current, edge in zip(currents, self.edges, strict=True)])
        freedoms = np.array([min(edge.freedom, _MOST_FREEDOM) for edge in self.edges])
        spread = float((shares**2 / freedoms).sum())
        return float(shares.sum() ** 2 / spread) if spread > 0 else math.inf


def interval(estimate: float, error: float, freedom: float = math.inf) -> Contrast:
    """Return the interval of an estimate at `LEVEL` by Student's t."""
    reach = error * quantile(min(freedom, _MOST_FREEDOM))
    return Contrast(estimate, error, estimate - reach, estimate + reach)


@functools.lru_cache(maxsize=1 << 14)  # a history asks for few different ones, often
def quantile(freedom: float) -> float:
    """Return how many standard errors an interval at `LEVEL` reaches to either side: Student's t."""
    return float(special.stdtrit(freedom, (1 + LEVEL) / 2))  # scipy.stats has it, too, and takes a second to import


def solve(versions: Sequence[str], edges: Iterable[Edge]) -> Network:
    """Return the levels of `versions`, in the order of the branch; edges that name others add them at the end.

    Args:
        versions: the first of each component is its level 0.
        edges: in any order; from a version to itself: ignored.
    """
    given = [edge for edge in edges if edge.base != edge.head]
    names = list(dict.fromkeys([*versions, *(name for edge in given for name in (edge.base, edge.head))]))
    index = {name: place for place, name in enumerate(names)}
    spread = card_spread(given)
    kept = [replace(edge, error=math.hypot(edge.error, spread)) for edge in given]
    kept, flagged, disputed, residuals, solver = _without_contradictions(index, kept)
    levels = solver.levels if solver is not None else np.zeros(len(names))
    component = solver.component if solver is not None else np.arange(len(names))
    first: dict[int, float] = {}
    for place in range(len(names)):
        first.setdefault(int(component[place]), float(levels[place]))
    return Network(
        {name: float(levels[place]) - first[int(component[place])] for name, place in index.items()},
        {name: int(component[place]) for name, place in index.items()},
        tuple(flagged),
        tuple(disputed),
        tuple(kept),
        residuals,
        spread,
        index,
        solver,
    )


def card_spread(edges: Sequence[Edge]) -> float:
    """Return the standard deviation between cards, from comparisons of the same two versions on different ones.

    DerSimonian and Laird's moment estimator (1986, doi 10.1016/0197-2456(86)90046-2), pooled over such groups of edges.
    """
    groups: dict[tuple[str, str], list[tuple[float, float, str]]] = {}
    for edge in edges:
        low, high = sorted((edge.base, edge.head))
        sign = 1 if edge.base == low else -1
        groups.setdefault((low, high), []).append((sign * edge.log_ratio, edge.error, edge.card))
    scatter = freedom = scale = 0.0
    for group in groups.values():
        if len({card for _, _, card in group}) < 2:
            continue
        y, error = (np.array([item[place] for item in group]) for place in (0, 1))
        w = 1 / error**2
        mean = (w * y).sum() / w.sum()
        scatter += float((w * (y - mean) ** 2).sum())
        freedom += len(y) - 1
        scale += float(w.sum() - (w**2).sum() / w.sum())
    if freedom + 1 < _FEWEST_CARDS or scale <= 0:
        return 0.0
    return math.sqrt(max(0.0, (scatter - freedom) / scale))


def next_edge(
    network: Network, base: str, head: str, error: float, candidates: Sequence[str]
) -> tuple[str, str] | None:
    """Return the comparison of two candidates whose measuring lowers the variance of head against base most.

    A rank-one update of the inverse Laplacian: measuring (u, v) with error e lowers it by
    (c' C a)**2 / (e**2 + a' C a), c the contrast asked for, a the new edge, C the covariance.

    Args:
        network: of the case.
        base, head: the contrast asked for. If nothing connects them, it is they that are to be measured.
        error: standard error that a new comparison will have.
        candidates: versions that can be measured.
    """
    if network.contrast(base, head) is None:
        return (base, head) if {base, head} <= set(candidates) else None
    assert network._solver is not None  # noqa: S101 - a contrast of two versions has edges
    here = [version for version in candidates if network.component.get(version) == network.component[base]]
    places = [network._index[version] for version in here]
    answer = network._solver.potentials(network._index[base], network._index[head])[places]
    resistances = network._solver.resistances(places)
    gain = (answer[:, None] - answer[None, :]) ** 2 / (error**2 + resistances)
    best = np.unravel_index(int(np.argmax(gain)), gain.shape)
    return (here[min(best)], here[max(best)]) if gain[best] > 0 else None


@dataclass(frozen=True)
class _Solver:
    """The factored Laplacian of the edges, one version of each component grounded."""

    levels: NDArray[np.float64]
    component: NDArray[np.int32]
    incidence: sparse.csr_matrix
    weights: NDArray[np.float64]
    kept: NDArray[np.intp]
    place: NDArray[np.intp]
    factor: linalg.SuperLU

    @staticmethod
    def of(size: int, index: Mapping[str, int], edges: Sequence[Edge]) -> _Solver | None:
        if not edges:
            return None
        count = len(edges)
        rows = np.repeat(np.arange(count), 2)
        columns = np.array([place for edge in edges for place in (index[edge.base], index[edge.head])])
        incidence = sparse.csr_matrix((np.tile([-1.0, 1.0], count), (rows, columns)), shape=(count, size))
        weights = np.array([edge.error**-2 for edge in edges])
        laplacian = (incidence.T @ sparse.diags(weights) @ incidence).tocsc()
        _, component = sparse.csgraph.connected_components(laplacian, directed=False)
        _, grounded = np.unique(component, return_index=True)
        kept = np.setdiff1d(np.arange(size), grounded)
        place = np.full(size, -1, dtype=np.intp)
        place[kept] = np.arange(len(kept))
        factor = linalg.splu(laplacian[kept][:, kept])
        ratios = np.array([edge.log_ratio for edge in edges])
        levels = np.zeros(size)
        levels[kept] = factor.solve((incidence.T @ (weights * ratios))[kept])
        return _Solver(levels, component, incidence, weights, kept, place, factor)

    def potentials(self, base: int, head: int) -> NDArray[np.float64]:
        """The column of the covariance for the contrast head - base, for every version."""
        right = np.zeros(len(self.kept))
        for node, sign in ((base, -1.0), (head, 1.0)):
            if self.place[node] >= 0:
                right[self.place[node]] += sign
        found = np.zeros(len(self.levels))
        found[self.kept] = self.factor.solve(right)
        return found

    def resistance(self, base: int, head: int) -> float:
        found = self.potentials(base, head)
        return max(0.0, float(found[head] - found[base]))

    def between(self, bases: NDArray[np.intp], heads: NDArray[np.intp]) -> NDArray[np.float64]:
        """Effective resistance of each pair (bases[i], heads[i])."""
        found = np.empty(len(bases))
        for begin in range(0, len(bases), _COLUMNS):
            base, head = (self.place[nodes[begin : begin + _COLUMNS]] for nodes in (bases, heads))
            columns = np.arange(len(base))
            right = np.zeros((len(self.kept), len(base)))
            np.add.at(right, (base[base >= 0], columns[base >= 0]), -1.0)
            np.add.at(right, (head[head >= 0], columns[head >= 0]), 1.0)
            solved = self.factor.solve(right)
            found[begin : begin + _COLUMNS] = (right * solved).sum(axis=0)
        return np.maximum(0.0, found)

    def resistances(self, nodes: Sequence[int]) -> NDArray[np.float64]:
        """Effective resistance between all pairs of these nodes."""
        right = np.zeros((len(self.kept), len(nodes)))
        for column, node in enumerate(nodes):
            if self.place[node] >= 0:
                right[self.place[node], column] = 1.0
        solved = np.zeros((len(self.levels), len(nodes)))
        solved[self.kept] = self.factor.solve(right)
        between = solved[list(nodes)]
        own = np.diag(between)
        return np.asarray(np.maximum(0.0, own[:, None] + own[None, :] - between - between.T))

    def currents(self, base: int, head: int) -> NDArray[np.float64]:
        """How much of the contrast goes through each edge."""
        return np.asarray(self.weights * (self.incidence @ self.potentials(base, head)))


def _without_contradictions(
    index: Mapping[str, int], edges: Sequence[Edge]
) -> tuple[list[Edge], list[tuple[Edge, float]], list[Edge], tuple[float, ...], _Solver | None]:
    """Leave out, one after the other, the edge that the rest contradicts most, while one is beyond what chance allows.

    An edge is held against what all others say of its two versions: y - x of the rest, over the root of both variances. An
    edge that closes no cycle is contradicted by nothing, and stays. In a lone cycle all edges are off alike, and nothing says
    which of them is wrong: the one that spans most versions is left out, since each of the others is the only word on its own
    two, and the rest of the cycle is disputed until another comparison decides. Comparisons of the same two versions that
    disagree, and no third, are all left out.
    """
    kept = list(edges)
    flagged: list[tuple[Edge, float]] = []
    disputed: list[Edge] = []
    off = np.full(len(kept), math.inf)
    solver = _Solver.of(len(index), index, kept)
    while solver is not None and len(kept) > 1:
        off = _studentised(solver, index, kept)
        checked = np.isfinite(off)
        if not checked.any():
            break
        freedoms = np.array([min(edge.freedom, _MOST_FREEDOM) for edge in kept])
        chance = np.where(checked, 2 * special.stdtr(freedoms, -np.abs(np.where(checked, off, 0.0))), 1.0)
        worst = int(np.argmin(chance))
        if chance[worst] * checked.sum() > FALSE_FLAGS:
            break
        alike = [int(place) for place in np.flatnonzero(checked & np.isclose(np.abs(off), abs(off[worst]), rtol=1e-6))]
        spans = {place: abs(index[kept[place].head] - index[kept[place].base]) for place in alike}
        dropped = [place for place in alike if spans[place] == max(spans.values())] if len(alike) > 1 else alike
        disputed += [kept[place] for place in alike if place not in dropped]
        for place in sorted(dropped, reverse=True):
            flagged.append((kept[place], float(off[place])))
            del kept[place]
            off = np.delete(off, place)
        solver = _Solver.of(len(index), index, kept)
    return kept, flagged, [edge for edge in disputed if edge in kept], tuple(map(float, off)), solver


def _studentised(solver: _Solver, index: Mapping[str, int], edges: Sequence[Edge]) -> NDArray[np.float64]:
    """Return of each edge its residual against all others, in standard errors; infinite where nothing checks it.

    With h the edge's leverage (its weight times its effective resistance), the residual against the rest is r / (1 - h), of
    variance error**2 / (1 - h).
    """
    bases = np.array([index[edge.base] for edge in edges])
    heads = np.array([index[edge.head] for edge in edges])
    errors = np.array([edge.error for edge in edges])
    leverages = solver.between(bases, heads) / errors**2
    residuals = np.array([edge.log_ratio for edge in edges]) - (solver.levels[heads] - solver.levels[bases])
    checked = leverages < 1 - 1e-9
    found = np.full(len(edges), math.inf)
    found[checked] = residuals[checked] / (errors[checked] * np.sqrt(1 - leverages[checked]))
    return found
