"use strict";
// Every text on the page passes through here, and only ever becomes text: there is no innerHTML anywhere.

/** h("a.name", {href, onclick, "aria-label"}, children...): an element. Strings become text nodes. */
Tilegate.h = (spec, attributes, ...children) => {
  const [tag, ...classes] = spec.split(".");
  const element = document.createElement(tag || "div");
  if (classes.length) element.className = classes.join(" ");
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "style") Object.assign(element.style, value);
    else if (key === "value" || key === "checked" || key === "selected") element[key] = value;
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
};

Tilegate.svg = (tag, attributes, ...children) => {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes ?? {})) element.setAttribute(key, String(value));
  element.append(...children);
  return element;
};

/** The mark of a state, with its name for a screen reader. */
Tilegate.mark = (state) => {
  const { mark, name } = Tilegate.states[state];
  return Tilegate.h(`span.mark.is-${state}`, { role: "img", "aria-label": name, title: name }, mark);
};

/** A change with its interval: "▲ +2.31 % ±0.12". */
Tilegate.figure = (contrast, state = Tilegate.stateOf(contrast)) => {
  const { h, format, mark, states } = Tilegate;
  if (state === "unmeasured" || state === "identical") {
    return h("span.figure", null, mark(state), h("span.muted", null, states[state].name));
  }
  const { log, low, high } = contrast;
  return h("span.figure", { title: `95 %: ${format.interval(low, high)}` }, mark(state), h(`b.is-${state}`, null, format.change(log)), h("small", null, format.half(low, high)));
};

/** table([{title, sort, numeric, head, cell(row)}], rows, {caption, sorted, onsort}) */
Tilegate.table = (columns, rows, { caption, sorted, onsort, empty } = {}) => {
  const { h } = Tilegate;
  if (!rows.length && empty) return h("p.muted", null, empty);
  const heads = columns.map((column) => {
    const attributes = { scope: "col", class: [column.numeric && "numeric", column.className].filter(Boolean).join(" ") || null };
    if (!column.sort || !onsort) return h("th", attributes, column.title);
    const active = sorted === column.sort;
    attributes["aria-sort"] = active ? "descending" : "none";
    return h("th", attributes, h("button.sort", { type: "button", id: `sort-${column.sort}`, onclick: () => onsort(column.sort) }, column.title, active ? " \u2193" : ""));
  });
  const cell = (column, row) =>
    h(column.head ? "th" : "td", { class: [column.numeric && "numeric", column.className].filter(Boolean).join(" ") || null, scope: column.head ? "row" : null }, column.cell(row));
  return h(
    "div.scroll",
    { tabindex: "0", role: "region", "aria-label": caption },
    h("table", null, h("caption.hidden", null, caption), h("thead", null, h("tr", null, heads)), h("tbody", null, rows.map((row) => h("tr", null, columns.map((column) => cell(column, row)))))),
  );
};

/** A row of choices that are one value of the URL's state. */
Tilegate.choices = (label, options, current, choose) => {
  const { h } = Tilegate;
  return h(
    "div.choices",
    { role: "group", "aria-label": label },
    h("span.muted", { "aria-hidden": "true" }, label),
    options.map(([value, text]) => h("button", { type: "button", id: `choice-${label}-${value}`.replaceAll(" ", "-"), "aria-pressed": String(value === current), onclick: () => choose(value) }, text)),
  );
};

/** A command in a box, with a button that copies it. */
Tilegate.command = (text) => Tilegate.h("div.command", null, Tilegate.h("code", { tabindex: "0" }, text), Tilegate.copyButton("Copy", () => text));

Tilegate.copyButton = (label, make) => {
  const button = Tilegate.h("button.quiet", { type: "button" }, label);
  button.addEventListener("click", async () => {
    button.textContent = (await Tilegate.copy(make())) ? "Copied" : "Select and copy by hand";
    Tilegate.say(button.textContent);
    setTimeout(() => (button.textContent = label), 1500);
  });
  return button;
};

Tilegate.copy = async (text) => {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // No clipboard on an insecure origin: the old way still works there.
    const area = Tilegate.h("textarea.hidden", { value: text, "aria-hidden": "true" });
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
};

Tilegate.say = (text) => {
  document.getElementById("said").textContent = text;
};

Tilegate.caseLink = (at, text, query = "") => {
  const { cases } = Tilegate.overview;
  return Tilegate.h("a", { href: `#/case/${cases.id[at]}${query}`, title: cases.name[at] }, text ?? Tilegate.fullName(at));
};

Tilegate.commitLink = (hash, text) => Tilegate.h("a.hash", { href: `#/commit/${hash.slice(0, 12)}` }, text ?? Tilegate.short(hash));

/** A commit in one line: hash, subject, who and when. */
Tilegate.commitLine = (commit, place) => {
  const { h, format } = Tilegate;
  if (!commit) return h("span.muted", null, "unknown commit");
  const release = place === undefined ? null : Tilegate.releaseAt(place);
  return h("span.commit", null, Tilegate.commitLink(commit.hash), release && h("span.tag", null, release), h("span.subject", { title: commit.subject }, commit.subject), h("span.muted.who", null, `${commit.author}, ${format.date(commit.date)}`));
};

Tilegate.commitAt = (commits, place) => ({ hash: commits.hash[place], author: commits.author[place], subject: commits.subject[place], date: commits.date[place] });

/** A small line of levels; it says nothing to a screen reader that the figure beside it does not. */
Tilegate.spark = (levels, state = "same", { width = 96, height = 22, mark = NaN } = {}) => {
  const known = Array.from(levels).filter(Number.isFinite);
  const picture = Tilegate.svg("svg", { class: `spark is-${state}`, viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true" });
  if (!known.length) return picture;
  const low = Math.min(...known);
  const high = Math.max(...known);
  const span = Math.max(high - low, 0.02); // 2 % at least, so that nothing that small looks like a cliff
  const middle = (low + high) / 2;
  const y = (value) => height / 2 - ((value - middle) / span) * (height - 6);
  const x = (at) => 2 + (at / Math.max(1, levels.length - 1)) * (width - 6);
  let path = "";
  let down = false;
  levels.forEach((value, at) => {
    if (!Number.isFinite(value)) {
      down = false;
      return;
    }
    path += down ? `H${x(at).toFixed(1)}V${y(value).toFixed(1)}` : `M${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
    down = true;
  });
  picture.append(Tilegate.svg("path", { d: path, fill: "none" }));
  if (Number.isFinite(mark)) picture.append(Tilegate.svg("line", { x1: x(mark * (levels.length - 1)), x2: x(mark * (levels.length - 1)), y1: 0, y2: height }));
  const last = levels.length - 1;
  if (Number.isFinite(levels[last])) picture.append(Tilegate.svg("circle", { cx: x(last), cy: y(levels[last]), r: 2.2 }));
  return picture;
};

Tilegate.sparkOf = (at, options) => Tilegate.spark(Tilegate.floats(Tilegate.overview.cases.line[at]), Tilegate.overview.cases.state[at], options);

/** Where a case stands now, from the overview. */
Tilegate.standing = (at) => {
  const { cases } = Tilegate.overview;
  return { log: cases.log[at], low: cases.low[at], high: cases.high[at], error: cases.error[at] };
};

/** [log, error, low, high] of the overview's entries -> a contrast, null where it is not known. */
Tilegate.contrastOf = ([log, error, low, high]) => (log === null ? null : { log, error, low, high });

Tilegate.css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Which of --series-0 to --series-5 each name has: what its letters say, or the next that is free among the names beside it. */
Tilegate.seriesNumbers = (names) => {
  const taken = new Set();
  const numbers = new Map();
  for (const name of [...new Set(names)].sort()) {
    let number = 0;
    for (let i = 0; i < name.length; i++) number = (number * 31 + name.charCodeAt(i)) >>> 0;
    number %= 6;
    while (taken.has(number) && taken.size < 6) number = (number + 1) % 6;
    taken.add(number);
    numbers.set(name, number);
  }
  return numbers;
};
