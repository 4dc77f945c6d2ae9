"use strict";
// The page's one global: scripts of data report to it, views register with it.
const Tilegate = { views: {}, shards: new Map(), waiting: new Map(), overview: null };

/** Called by every script of data: data/NAME.js is the one statement `Tilegate.receive(NAME, {...})`. */
Tilegate.receive = (name, content) => {
  Tilegate.shards.set(name, content);
  if (name === "overview") Tilegate.overview = content;
};

/** Load data/NAME.js once, as a classic script: fetch and modules are blocked on file://. */
Tilegate.load = (name) => {
  if (Tilegate.shards.has(name)) return Promise.resolve(Tilegate.shards.get(name));
  if (!Tilegate.waiting.has(name)) {
    const promise = new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = `data/${name}.js?v=${Tilegate.overview.stamp}`;
      script.onload = () => {
        script.remove();
        if (Tilegate.shards.has(name)) resolve(Tilegate.shards.get(name));
        else reject(new Error(`data/${name}.js holds something else. Reload the page.`));
      };
      script.onerror = () => {
        script.remove();
        Tilegate.waiting.delete(name);
        reject(new Error(`data/${name}.js cannot be loaded. If the site was just rebuilt, reload the page.`));
      };
      document.head.append(script);
    });
    Tilegate.waiting.set(name, promise);
  }
  return Tilegate.waiting.get(name);
};

/** Base64 of little-endian Float32 -> Float32Array; NaN stands for what was not measured. */
Tilegate.floats = (text) => {
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return new Float32Array(bytes.buffer);
};

/** Decode the overview's columns once. */
Tilegate.begin = () => {
  const { cases } = Tilegate.overview;
  for (const key of ["log", "low", "high", "error", "seconds", "flops", "bytes"]) cases[key] = Tilegate.floats(cases[key]);
  Tilegate.count = cases.id.length;
  Tilegate.indexOf = new Map(cases.id.map((id, at) => [id, at]));
};

/** All commits, oldest first, as columns {hash, author, date, subject, changed}. */
Tilegate.commits = async () => {
  if (Tilegate.allCommits) return Tilegate.allCommits;
  const { count, block } = Tilegate.overview.commits;
  const names = Array.from({ length: Math.ceil(count / block) }, (_, i) => `commits/${i}`);
  const parts = await Promise.all(names.map(Tilegate.load));
  const all = { hash: [], author: [], date: [], subject: [], changed: [] };
  for (const part of parts) for (const key of Object.keys(all)) all[key] = all[key].concat(part[key]);
  Tilegate.allCommits = all;
  return all;
};

/** The history of the case with this number. */
Tilegate.history = async (at) => {
  const { shards, cases } = Tilegate.overview;
  return (await Tilegate.load(`cases/${shards[at]}`))[cases.id[at]];
};

/** The histories of all these cases, in the same order. */
Tilegate.histories = (numbers) => Promise.all(numbers.map(Tilegate.history));

/** The place of the commit that `text` names: a release, "HEAD", or the beginning of a hash; -1 for none. */
Tilegate.findCommit = (commits, text) => {
  if (!text) return -1;
  if (text === "HEAD") return commits.hash.length - 1;
  const release = Tilegate.overview.releases.find(([name]) => name === text);
  if (release) return release[1];
  return text.length < 4 ? -1 : commits.hash.findIndex((hash) => hash.startsWith(text.toLowerCase()));
};

Tilegate.short = (hash) => hash.slice(0, 9);

Tilegate.releaseAt = (place) => (Tilegate.overview.releases.find(([, at]) => at === place) ?? [null])[0];

/** The commit at a place, of those that the overview mentions. */
Tilegate.mentioned = (place) => Tilegate.overview.mentioned[place];

/** What head is compared with, as a person would name it. */
Tilegate.baseName = () => {
  const { base } = Tilegate.overview;
  const release = Tilegate.releaseAt(base);
  if (release) return release;
  const commit = Tilegate.mentioned(base);
  return commit ? Tilegate.short(commit.hash) : "the first commit";
};

/** The last part of a kernel's dotted name, and the parameters of a case in one line. */
Tilegate.kernelName = (kernel) => kernel.slice(kernel.lastIndexOf(".") + 1);
Tilegate.caseName = (at) => {
  const { cases, kernels } = Tilegate.overview;
  const values = cases.parameters[at];
  return values.length ? values.join(" · ") : Tilegate.kernelName(kernels[cases.kernel[at]]);
};
Tilegate.fullName = (at) => {
  const { cases, kernels } = Tilegate.overview;
  return [Tilegate.kernelName(kernels[cases.kernel[at]]), ...cases.parameters[at]].join(" · ");
};

// ---- figures --------------------------------------------------------------------------------------------------------

const MINUS = "\u2212";

Tilegate.format = {
  /** A log ratio as a change: "+2.31 %". */
  change(log, digits) {
    if (!Number.isFinite(log)) return "\u2013";
    const percent = 100 * Math.expm1(log);
    const places = digits ?? (Math.abs(percent) >= 100 ? 0 : Math.abs(percent) >= 10 ? 1 : 2);
    const text = Math.abs(percent).toFixed(places);
    const sign = Number(text) === 0 ? "\u00b1" : percent > 0 ? "+" : MINUS;
    return `${sign}${text}\u202f%`;
  },
  interval(low, high) {
    return Number.isFinite(low) ? `${this.change(low)} \u2026 ${this.change(high)}` : "not measured";
  },
  /** Half the width of an interval in percent: "±0.12". */
  half(low, high) {
    const half = 50 * (Math.expm1(high) - Math.expm1(low));
    return Number.isFinite(half) ? `\u00b1${half.toFixed(half >= 10 ? 0 : half >= 1 ? 1 : 2)}` : "";
  },
  seconds(value) {
    return this.scaled(value, "s");
  },
  scaled(value, unit, digits = 4) {
    if (!Number.isFinite(value)) return "\u2013";
    if (value === 0) return `0\u202f${unit}`;
    const steps = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""], [1e-3, "m"], [1e-6, "\u00b5"], [1e-9, "n"]];
    const [scale, prefix] = steps.find(([s]) => Math.abs(value) >= s * 0.9995) ?? steps[steps.length - 1];
    return `${Number((value / scale).toPrecision(digits))}\u202f${prefix}${unit}`;
  },
  count(value) {
    return String(value).replace(/\B(?=(\d{3})+$)/g, "\u202f");
  },
  date(seconds) {
    return Number.isFinite(seconds) && seconds !== null ? new Date(seconds * 1000).toISOString().slice(0, 10) : "\u2013";
  },
  ago(seconds) {
    if (seconds === null || !Number.isFinite(seconds)) return "never";
    const hours = (Date.now() / 1000 - seconds) / 3600;
    if (hours < 1) return "less than an hour ago";
    if (hours < 48) return `${this.plural(Math.round(hours), "hour")} ago`;
    return `${this.plural(Math.round(hours / 24), "day")} ago`;
  },
  plural(count, one, many) {
    return `${this.count(count)} ${count === 1 ? one : many ?? `${one}s`}`;
  },
};

/** What a state looks like without colour, and what it is called. */
Tilegate.states = {
  slower: { mark: "\u25b2", name: "slower" },
  faster: { mark: "\u25bc", name: "faster" },
  same: { mark: "=", name: "no change" },
  identical: { mark: "\u2261", name: "identical code" },
  undecided: { mark: "?", name: "undecided" },
  unmeasured: { mark: "\u00b7", name: "not measured" },
  contradicted: { mark: "\u25c6", name: "contradicted" },
};

/** A word for a POSIX shell, in the quotes that need the fewest escapes. */
Tilegate.shell = (text) => {
  if (/^[\w./:@%+=-]+$/.test(text)) return text;
  if (text.includes("'") && !/["$`!\n]|\\["$`\\\n]|\\$/.test(text)) return `"${text}"`;
  return `'${text.replaceAll("'", "'\\''")}'`;
};

/** Whether a case times a call on the host, which has no kernel to show by itself. */
Tilegate.isCall = (id) => id.split("(")[0].split(".").at(-1).startsWith("call_");

/** The line that makes a folder which shows a case at two commits with torch and TileLang alone. */
Tilegate.repro = (id, base, head) => `tilegate repro ${Tilegate.shell(id)} --base ${base} --rev ${head}`;

/** An expression that finds this id. */
Tilegate.expression = (id) => id.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
