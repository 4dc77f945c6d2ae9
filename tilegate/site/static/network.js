"use strict";
// The same estimator as tilegate/history/network.py, for any two versions that a reader asks for: weighted least squares on
// the graph of comparisons, and effective resistances. A test holds the two against each other.

/** The versions of a case at a place; -1 where its code is not known. */
Tilegate.versionAt = (history, place) => {
  const { start, code } = history;
  if (!start.length || place < start[0]) return -1;
  let low = 0;
  let high = start.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (start[middle] <= place) low = middle;
    else high = middle - 1;
  }
  return code[low];
};

/** Decode a segment's columns, and invert its Laplacian, once. */
Tilegate.solved = (segment) => {
  if (segment.covariance) return segment;
  segment.levels = Tilegate.floats(segment.level);
  segment.times = Tilegate.floats(segment.seconds);
  segment.index = new Map(segment.versions.map((version, at) => [version, at]));
  const edges = segment.edges;
  for (const key of ["log", "error", "freedom", "flagged"]) if (typeof edges[key] === "string") edges[key] = Tilegate.floats(edges[key]);
  const n = segment.versions.length;
  const matrix = new Float64Array(n * n);
  const grounded = new Set();
  const seen = new Set();
  segment.part.forEach((part, at) => {
    if (!seen.has(part)) grounded.add(at);
    seen.add(part);
  });
  segment.counting = [];
  for (let e = 0; e < edges.base.length; e++) {
    if (!Number.isNaN(edges.flagged[e])) continue; // the others contradict it: it does not count
    const u = segment.index.get(edges.base[e]);
    const v = segment.index.get(edges.head[e]);
    if (u === v) continue;
    const weight = 1 / edges.error[e] ** 2;
    segment.counting.push({ u, v, weight, error: edges.error[e], freedom: edges.freedom[e] });
    matrix[u * n + u] += weight;
    matrix[v * n + v] += weight;
    matrix[u * n + v] -= weight;
    matrix[v * n + u] -= weight;
  }
  // One version of each part is grounded: its row and column become those of the identity, and its covariance 0.
  for (const g of grounded) {
    for (let j = 0; j < n; j++) matrix[g * n + j] = matrix[j * n + g] = 0;
    matrix[g * n + g] = 1;
  }
  segment.covariance = Tilegate.inverse(matrix, n);
  for (const g of grounded) segment.covariance[g * n + g] = 0;
  return segment;
};

/** The inverse of a positive definite matrix, by Cholesky's decomposition; rows that are 0 stay so. */
Tilegate.inverse = (a, n) => {
  const l = new Float64Array(n * n);
  for (let i = 0; i < n; i++) {
    for (let j = 0; j <= i; j++) {
      let sum = a[i * n + j];
      for (let k = 0; k < j; k++) sum -= l[i * n + k] * l[j * n + k];
      if (i === j) l[i * n + i] = sum > 0 ? Math.sqrt(sum) : 0;
      else l[i * n + j] = l[j * n + j] > 0 ? sum / l[j * n + j] : 0;
    }
  }
  const m = new Float64Array(n * n); // the inverse of l
  for (let j = 0; j < n; j++) {
    if (!(l[j * n + j] > 0)) continue;
    m[j * n + j] = 1 / l[j * n + j];
    for (let i = j + 1; i < n; i++) {
      if (!(l[i * n + i] > 0)) continue;
      let sum = 0;
      for (let k = j; k < i; k++) sum -= l[i * n + k] * m[k * n + j];
      m[i * n + j] = sum / l[i * n + i];
    }
  }
  const inverse = new Float64Array(n * n);
  for (let i = 0; i < n; i++) {
    for (let j = 0; j <= i; j++) {
      let sum = 0;
      for (let k = i; k < n; k++) sum += m[k * n + i] * m[k * n + j];
      inverse[i * n + j] = inverse[j * n + i] = sum;
    }
  }
  return inverse;
};

/** Student's t at the level of the intervals, from the build's table over 1 / freedom. */
Tilegate.quantile = (freedom) => {
  const table = Tilegate.overview.quantiles;
  const at = Math.min(1, Number.isFinite(freedom) && freedom > 0 ? 1 / freedom : 0) * (table.length - 1);
  const below = Math.min(Math.floor(at), table.length - 2);
  return table[below] + (at - below) * (table[below + 1] - table[below]);
};

Tilegate.withInterval = (log, error, freedom) => {
  const reach = error * Tilegate.quantile(freedom);
  return { log, error, low: log - reach, high: log + reach };
};

/** How much slower version v is than version u of a segment; null where no comparisons connect the two. */
Tilegate.contrastIn = (segment, u, v) => {
  Tilegate.solved(segment);
  const i = segment.index.get(u);
  const j = segment.index.get(v);
  if (i === undefined || j === undefined || segment.part[i] !== segment.part[j]) return null;
  if (i === j) return { log: 0, error: 0, low: 0, high: 0 };
  const n = segment.versions.length;
  const c = segment.covariance;
  const variance = Math.max(0, c[i * n + i] + c[j * n + j] - 2 * c[i * n + j]);
  // Satterthwaite's degrees of freedom: each edge's share of the variance, by the current through it.
  let shares = 0;
  let spread = 0;
  for (const edge of segment.counting) {
    const current = edge.weight * (c[edge.v * n + j] - c[edge.v * n + i] - c[edge.u * n + j] + c[edge.u * n + i]);
    const share = (current * edge.error) ** 2;
    shares += share;
    if (Number.isFinite(edge.freedom)) spread += share ** 2 / edge.freedom;
  }
  return Tilegate.withInterval(segment.levels[j] - segment.levels[i], Math.sqrt(variance), spread > 0 ? shares ** 2 / spread : Infinity);
};

/** How much slower a case is with version v than with u, by the first segment that connects the two; null: not known. */
Tilegate.contrast = (history, u, v) => {
  if (u < 0 || v < 0) return null;
  if (u === v) return { log: 0, error: 0, low: 0, high: 0 };
  for (const segment of history.segments) {
    const found = Tilegate.contrastIn(segment, u, v);
    if (found) return found;
  }
  return null;
};

/** The rule of tilegate/site/states.py. */
Tilegate.stateOf = (contrast) => {
  if (!contrast || !Number.isFinite(contrast.log)) return "unmeasured";
  const { log, error, low, high } = contrast;
  const { smallest } = Tilegate.overview;
  if (error === 0) return "identical";
  if (low > 0 && log >= smallest) return "slower";
  if (high < 0 && log <= -smallest) return "faster";
  return low >= -smallest && high <= smallest ? "same" : "undecided";
};

/** Seconds at level 0 of a segment: the median over its versions, so that one slow run does not show. */
Tilegate.scaleOf = (segment) => {
  Tilegate.solved(segment);
  const reference = segment.index.get(segment.reference);
  const joined = [];
  segment.times.forEach((seconds, at) => {
    if (seconds > 0 && segment.part[at] === segment.part[reference]) joined.push(Math.log(seconds) - segment.levels[at]);
  });
  if (!joined.length) return NaN;
  joined.sort((a, b) => a - b);
  const middle = joined.length >> 1;
  return Math.exp(joined.length % 2 ? joined[middle] : (joined[middle - 1] + joined[middle]) / 2);
};

/** Every change of a case's code: {place, before, version, contrast, state}, in order. */
Tilegate.changesOf = (history) => {
  if (history.changes) return history.changes;
  const changes = [];
  let before = -1;
  let last = -1; // the last place that had `before`
  history.start.forEach((place, run) => {
    const version = history.code[run];
    const end = (history.start[run + 1] ?? Tilegate.overview.commits.count) - 1;
    if (version >= 0) {
      if (before >= 0 && version !== before) {
        const contrast = Tilegate.contrast(history, before, version);
        changes.push({ place, good: last, before, version, contrast, state: Tilegate.stateOf(contrast) });
      }
      before = version;
      last = end;
    }
  });
  history.changes = changes;
  return changes;
};
