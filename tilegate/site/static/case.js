"use strict";

(() => {
  const { h, format } = Tilegate;

  Tilegate.views.case = async (page, id, state) => {
    const at = Tilegate.indexOf.get(id);
    if (at === undefined) throw new Error("There is no such case; it may have been renamed since this address was made.");
    const [history, commits] = await Promise.all([Tilegate.history(at), Tilegate.commits()]);
    const changes = Tilegate.changesOf(history);
    const base = state.base ? Tilegate.findCommit(commits, state.base) : Tilegate.overview.base;
    const units = Tilegate.units(history);
    const unitName = units[state.unit] ? state.unit : Object.keys(units)[0];
    const axis = state.axis === "time" ? "time" : "commits";
    const parts = Tilegate.drawn(history, base < 0 ? Tilegate.overview.base : base);
    const lines = [{ name: Tilegate.caseName(at), history, parts }];
    const besides = neighbours(at);
    const beside = state.beside ? Tilegate.indexOf.get(state.beside) : undefined;
    if (beside !== undefined && beside !== at) {
      const other = await Tilegate.history(beside);
      lines.push({ name: Tilegate.caseName(beside), history: other, parts: Tilegate.drawn(other, base) });
    }

    const figures = figuresOf(history);
    const shownFigure = figures.includes(state.figure) ? state.figure : (figures.find((each) => / vgprs$/.test(each)) ?? figures[0]);
    const kernel = Tilegate.overview.kernels[Tilegate.overview.cases.kernel[at]];
    page.append(
      h("p.crumbs", null, h("a", { href: "#/today" }, "Today"), " / ", h("span", { title: kernel }, kernel)),
      h("h1", null, Tilegate.fullName(at)),
      facts(at, history, changes, commits),
    );
    if (history.before) page.append(h("p.muted", null, `It was called ${history.before.join(", ")} before.`));

    const detail = h("section.detail", { id: "detail", "aria-live": "polite" });
    const seams = new Map(parts.slice(1).map((part, number) => [part.first, { before: parts[number], after: part }]));
    const handle = {};
    let marked = NaN;
    const shownMark = (current) => (current.mark === undefined ? null : Number(current.mark));
    const drawDetail = (current) => {
      const place = shownMark(current);
      const key = `${place}${current.seam ?? ""}`;
      if (key === marked) return;
      marked = key;
      detail.replaceChildren(...(current.seam ? seamDetail(seams.get(place), place, commits) : changeDetail(at, history, changes.find((change) => change.place === place), commits)).filter(Boolean));
    };

    if (Object.keys(units).length && (parts.length || history.observed)) {
      const plot = Tilegate.casePlot({
        lines,
        commits,
        unit: units[unitName],
        axis,
        marks: changes.map((change) => ({ ...change, state: contradicted(history, change) ? "contradicted" : change.state })),
        seams,
        below: figureBelow(history, shownFigure),
        onmark: (place, seam) => Tilegate.go({ mark: place, seam: seam ? 1 : null }),
        onrange: (range) => Tilegate.go({ from: range?.[0] ?? null, to: range?.[1] ?? null }),
      });
      page.append(
        h(
          "div.bar",
          null,
          Tilegate.choices("Show", Object.entries(units).map(([key, unit]) => [key, unit.name]), unitName, (value) => Tilegate.go({ unit: value })),
          Tilegate.choices("Across", [["commits", "commits"], ["time", "time"]], axis, (value) => Tilegate.go({ axis: value === "time" ? value : null })),
          besides.length
            ? h(
                "label.choices",
                null,
                h("span.muted", null, "Beside"),
                h("select", { id: "beside", onchange: (event) => Tilegate.go({ beside: event.target.value || null, unit: event.target.value && unitName === "change" ? "time" : state.unit }) }, h("option", { value: "" }, "nothing"), besides.map((other) => h("option", { value: Tilegate.overview.cases.id[other], selected: other === beside }, Tilegate.caseName(other)))),
              )
            : null,
          figures.length
            ? h("label.choices", null, h("span.muted", null, "Below"), h("select", { id: "figure", onchange: (event) => Tilegate.go({ figure: event.target.value }) }, figures.map((each) => h("option", { value: each, selected: each === shownFigure }, each))))
            : null,
        ),
        plot.element,
        h("p.hint.muted", null, lines.length > 1 ? `Solid: ${lines[0].name}. Dashed: ${lines[1].name}. ` : "", !parts.length ? "" : unitName === "change" ? `Against ${parts.length && parts[parts.length - 1].reference === Tilegate.versionAt(history, base) ? nameAt(commits, base) : "the first measured code"}; the band is its 95 % interval. ` : "The band is the 95 % interval of the change. ", history.observed ? "Independent runs (asv, pytest-benchmark) are points: each is off by a percent or two, and they decide nothing. " : "", "Drag to zoom, double-click for everything; \u2190 \u2192 from change to change."),
      );
      handle.ready = () => plot.ready(asPlace(state.from), asPlace(state.to), shownMark(state));
      handle.close = plot.close;
      handle.recolour = plot.recolour;
      const keys = ["unit", "axis", "beside", "base", "figure"];
      const before = keys.map((key) => state[key] ?? "").join("|");
      handle.update = (next) => {
        if (keys.map((key) => next[key] ?? "").join("|") !== before) {
          return Tilegate.redraw();
        }
        plot.update(asPlace(next.from), asPlace(next.to), shownMark(next));
        drawDetail(next);
        return undefined;
      };
    } else {
      page.append(h("p", null, "Nothing was measured yet. This measures it:"), Tilegate.command(`tilegate history update --minutes 20`));
    }
    page.append(detail, changeTable(changes, history, commits), h("details", null, h("summary", null, "Environments"), environments(history)), h("p.muted", null, h("a", { href: `json/cases/${id}.json` }, "JSON")));
    drawDetail(state);
    return handle;
  };

  /** Everything that compiler or emulator say of a case's code: "gfx942 isa vgprs". */
  const figuresOf = (history) => Object.entries(history.figures ?? {}).flatMap(([chip, named]) => Object.keys(named).map((name) => `${chip} ${name}`));

  /** One of them on the same commits: {label, column(count)}. */
  const figureBelow = (history, wanted) => {
    for (const [chip, named] of Object.entries(history.figures ?? {})) {
      for (const [name, [versions, values]] of Object.entries(named)) {
        if (`${chip} ${name}` !== wanted) continue;
        const known = new Map(versions.map((version, at) => [version, values[at]]));
        const column = (count) => {
          const found = new Array(count).fill(null);
          history.start.forEach((begin, run) => found.fill(known.get(history.code[run]) ?? null, begin, history.start[run + 1] ?? count));
          return found;
        };
        return { label: wanted, column };
      }
    }
    return null;
  };

  /** Figures of the compiled code that differ between two versions: what a comparison stated, and what the compiler said. */
  const differences = (history, change, found) => {
    const rows = new Map();
    for (const { segment, e, base, head } of found) {
      if (base !== change.before || head !== change.version) continue;
      for (const [name, [before, after]] of Object.entries(segment.edges.figures[e] ?? {})) rows.set(name, [name, before, after]);
    }
    for (const [chip, named] of Object.entries(history.figures ?? {})) {
      for (const [name, [versions, values]] of Object.entries(named)) {
        const [before, after] = [change.before, change.version].map((version) => values[versions.indexOf(version)]);
        if (before !== undefined && after !== undefined && before !== after) rows.set(`${chip} ${name}`, [`${chip} ${name}`, before, after]);
      }
    }
    return [...rows.values()];
  };

  const asPlace = (text) => (text === undefined || !Number.isFinite(Number(text)) ? undefined : Number(text));
  const nameAt = (commits, place) => Tilegate.releaseAt(place) ?? (place >= 0 ? Tilegate.short(commits.hash[place]) : "the first commit");

  /** Cases of the same kernel that differ in one parameter, such as the other tile policy. */
  const neighbours = (at) => {
    const { cases } = Tilegate.overview;
    const own = cases.parameters[at];
    const found = [];
    for (let other = 0; other < Tilegate.count; other++) {
      const values = cases.parameters[other];
      if (other === at || cases.kernel[other] !== cases.kernel[at] || values.length !== own.length) continue;
      const different = values.filter((value, number) => value !== own[number]).length;
      if (different === 1) found.push([values[values.length - 1] !== own[own.length - 1] ? 0 : 1, other]);
    }
    return found.sort((a, b) => a[0] - b[0]).slice(0, 40).map(([, other]) => other);
  };

  const facts = (at, history, changes, commits) => {
    const { cases, environments: listed } = Tilegate.overview;
    const now = Tilegate.standing(at);
    const state = cases.state[at];
    const certain = changes.filter((change) => change.state === "slower");
    const worst = certain.sort((a, b) => b.contrast.log - a.contrast.log)[0];
    const head = cases.place[at];
    const cells = [];
    cells.push(["Now, against " + Tilegate.baseName(), Tilegate.figure(now, state)]);
    if (worst) {
      const since = Tilegate.contrast(history, worst.before, Tilegate.versionAt(history, head));
      const sinceState = Tilegate.stateOf(since);
      cells.push(["Slower since", [Tilegate.figure(worst.contrast, "slower"), " ", h("button.link", { type: "button", onclick: () => Tilegate.go({ mark: worst.place, seam: null }) }, Tilegate.short(commits.hash[worst.place])), h("small.muted", null, ` ${commits.subject[worst.place].slice(0, 60)}`)]]);
      cells.push(["Still so?", sinceState === "slower" ? ["Yes: ", Tilegate.figure(since, sinceState)] : since ? ["No: ", Tilegate.figure(since, sinceState)] : "Head is not compared with it."]);
    } else cells.push(["Slower since", h("span.muted", null, "No change of its code made it 1 % slower.")]);
    const seconds = cases.seconds[at];
    const rates = [];
    if (Number.isFinite(seconds)) {
      if (cases.flops[at] > 0) rates.push(format.scaled(cases.flops[at] / seconds, "FLOP/s", 3));
      if (cases.bytes[at] > 0) rates.push(format.scaled(cases.bytes[at] / seconds, "B/s", 3));
    }
    cells.push(["Takes", [h("b", null, format.seconds(seconds)), rates.length ? h("small.muted", null, ` ${rates.join(", ")}`) : null]]);
    const where = listed[cases.environment[at]];
    const peak = where?.peak;
    if (peak && Number.isFinite(seconds) && (cases.flops[at] > 0 || cases.bytes[at] > 0)) {
      const share = Math.max((cases.flops[at] || 0) / peak.flops, (cases.bytes[at] || 0) / peak.bandwidth) / seconds;
      cells.push(["Share of the roofline", h("span", { title: "against the device's fastest dense number format and its memory" }, `${(100 * share).toFixed(0)}\u202f%`)]);
    }
    if (where) cells.push(["Measured on", [where.name, h("small.muted", null, ` ${format.plural(cases.comparisons[at], "comparison")}, last `, h("span.nowrap", null, format.date(cases.measured[at])))]]);
    if (cases.place[at] >= 0 && cases.place[at] < Tilegate.overview.commits.count - 1) cells.push(["Newest known code", [Tilegate.commitLink(commits.hash[head]), h("small.muted", null, ` ${format.plural(Tilegate.overview.commits.count - 1 - head, "commit")} before head`)]]);
    return h("dl.facts", null, cells.map(([term, value]) => h("div", null, h("dt", null, term), h("dd", null, value))));
  };

  /** Whether a direct comparison of this change was left out, since others contradict it. */
  const contradicted = (history, change) =>
    history.segments.some((segment) => {
      Tilegate.solved(segment);
      const { base, head, flagged } = segment.edges;
      return base.some((version, e) => !Number.isNaN(flagged[e]) && version === change.before && head[e] === change.version);
    });

  /** Comparisons of a version, those with the code before it first. */
  const comparisonsOf = (history, change) => {
    const found = [];
    for (const segment of history.segments) {
      Tilegate.solved(segment);
      const { edges } = segment;
      edges.base.forEach((base, e) => {
        const head = edges.head[e];
        if (base !== change.version && head !== change.version) return;
        const direct = base === change.before || head === change.before;
        found.push({ segment, e, base, head, direct });
      });
    }
    return found.sort((a, b) => Number(b.direct) - Number(a.direct) || segmentTime(b) - segmentTime(a));
  };
  const segmentTime = ({ segment, e }) => segment.edges.created[e] ?? 0;

  const firstPlace = (history, version) => {
    const run = history.code.indexOf(version);
    return run < 0 ? -1 : history.start[run];
  };

  const changeDetail = (at, history, change, commits) => {
    if (!change) return [];
    const { overview } = Tilegate;
    const name = overview.cases.name[at];
    const good = commits.hash[change.good].slice(0, 12);
    const bad = commits.hash[change.place].slice(0, 12);
    const found = comparisonsOf(history, change);
    const causes = found.filter(({ direct }) => direct).flatMap(({ segment, e }) => segment.edges.causes[e] ?? []);
    const numbers = differences(history, change, found);
    const versionName = (version) => {
      const place = firstPlace(history, version);
      return place < 0 ? h("span.muted", null, "code outside the branch") : h("span", null, Tilegate.commitLink(commits.hash[place]), Tilegate.releaseAt(place) ? h("span.tag", null, Tilegate.releaseAt(place)) : null);
    };
    return [
      h("div.detail-head", null, h("h2", null, Tilegate.figure(change.contrast, change.state)), h("button.quiet", { type: "button", "aria-label": "Close", onclick: () => Tilegate.go({ mark: null, seam: null }) }, "\u2715")),
      h("p", null, Tilegate.commitLine(Tilegate.commitAt(commits, change.place), change.place)),
      h("p.muted", null, change.place - change.good === 1 ? ["The code before it: ", Tilegate.commitLine(Tilegate.commitAt(commits, change.good), change.good)] : ["The last commit whose older code is known: ", Tilegate.commitLine(Tilegate.commitAt(commits, change.good), change.good), ` (${format.plural(change.place - change.good, "commit")} before)`]),
      change.contrast ? h("p", null, "95 %: ", h("b", null, format.interval(change.contrast.low, change.contrast.high)), `, from all comparisons together.`) : h("p", null, "Its code changed here, and nothing compares the two yet."),
      causes.length || numbers.length ? h("h3", null, "What changed in the code") : h("p.muted", null, "What changed in the compiled code was not recorded."),
      causes.length ? h("ul", null, [...new Set(causes)].map((line) => h("li", null, line))) : null,
      numbers.length ? Tilegate.table([{ title: "figure", head: true, cell: ([name]) => name }, { title: "before", numeric: true, cell: ([, before]) => String(before ?? "\u2013") }, { title: "after", numeric: true, cell: ([, , after]) => String(after ?? "\u2013") }], numbers, { caption: "Figures of the compiled code" }) : null,
      h("h3", null, "Comparisons of this code"),
      Tilegate.table(
        [
          { title: "from", head: true, cell: ({ base }) => versionName(base) },
          { title: "to", cell: ({ head }) => versionName(head) },
          { title: "change", numeric: true, cell: ({ segment, e }) => Tilegate.figure(edgeContrast(segment, e), Number.isNaN(segment.edges.flagged[e]) ? undefined : "contradicted") },
          { title: "95 %", numeric: true, cell: ({ segment, e }) => format.interval(edgeContrast(segment, e).low, edgeContrast(segment, e).high) },
          { title: "samples", numeric: true, cell: ({ segment, e }) => `${segment.edges.pairs[e]} pairs in ${format.plural(segment.edges.replicates[e], "replicate")}` },
          { title: "device", cell: ({ segment, e }) => [overview.environments[segment.environment]?.name ?? "unknown", h("small", null, ` card ${segment.cards[segment.edges.card[e]].slice(0, 8)}`)] },
          { title: "when", className: "nowrap", cell: ({ segment, e }) => format.date(segment.edges.created[e]) },
          { title: "agrees", cell: ({ segment, e }) => (Number.isNaN(segment.edges.flagged[e]) ? "counts" : `left out: ${Math.abs(segment.edges.flagged[e]).toFixed(1)} errors off the others`) },
          { title: "see it", cell: ({ base, head }) => reproButton(name, history, commits, base, head) },
        ],
        found.slice(0, 40),
        { caption: "Comparisons of this code version", empty: "None yet." },
      ),
      h("h3", null, "See it yourself"),
      Tilegate.isCall(name) ? null : Tilegate.command(Tilegate.repro(name, good, bad)),
      Tilegate.command(`tilegate gate --base ${good} --base-exact --head ${bad} -b ${Tilegate.shell(Tilegate.expression(name))}`),
    ];
  };

  /** Copies the line that makes a folder of the two codes; nothing for a call, and for code outside the branch. */
  const reproButton = (name, history, commits, base, head) => {
    const [from, to] = [base, head].map((version) => firstPlace(history, version));
    if (Tilegate.isCall(name) || from < 0 || to < 0) return "";
    const line = Tilegate.repro(name, commits.hash[from].slice(0, 12), commits.hash[to].slice(0, 12));
    return h("span", { title: line }, Tilegate.copyButton("Copy repro", () => line));
  };

  const edgeContrast = (segment, e) => Tilegate.withInterval(segment.edges.log[e], segment.edges.error[e], segment.edges.freedom[e]);

  const seamDetail = (seam, place, commits) => {
    if (!seam) return [];
    const after = Tilegate.overview.environments[seam.after.segment.environment];
    return [
      h("h2", null, "Another environment begins here"),
      h("p", null, "Before and after are not compared: each side has a zero of its own. From here on: ", h("b", null, after?.name ?? "unknown"), ", at ", Tilegate.commitLine(Tilegate.commitAt(commits, place), place)),
      Tilegate.table([{ title: "setting", head: true, cell: ([key]) => key }, { title: "before", cell: ([, before]) => before }, { title: "after", cell: ([, , value]) => value }], after?.since ?? [], { caption: "What differs", empty: "No difference was recorded." }),
    ];
  };

  const changeTable = (changes, history, commits) => {
    const newest = [...changes].reverse();
    const rows = (list) =>
      Tilegate.table(
        [
          { title: "commit", head: true, cell: (change) => Tilegate.commitLine(Tilegate.commitAt(commits, change.place), change.place) },
          { title: "change", numeric: true, cell: (change) => Tilegate.figure(change.contrast, change.state) },
          { title: "95 %", numeric: true, className: "wide", cell: (change) => (change.contrast ? format.interval(change.contrast.low, change.contrast.high) : "") },
          { title: "", cell: (change) => h("button.quiet", { type: "button", "aria-label": `Details of ${Tilegate.short(commits.hash[change.place])}`, onclick: () => { Tilegate.go({ mark: change.place, seam: null }); document.getElementById("detail").scrollIntoView({ block: "nearest" }); } }, "Details") },
        ],
        list,
        { caption: "Changes of this case's code", empty: "Its code never changed on this branch." },
      );
    const holder = h("section", null, h("h2", null, "Changes of its code", h("span.count.quiet", null, String(changes.length))), rows(newest.slice(0, 12)));
    if (newest.length > 12) {
      holder.append(h("button.quiet", { type: "button", onclick: (event) => { event.target.previousSibling.replaceWith(rows(newest)); event.target.remove(); } }, `Show all ${newest.length}`));
    }
    return holder;
  };

  const environments = (history) =>
    history.segments.map((segment) => {
      const listed = Tilegate.overview.environments[segment.environment];
      const flagged = Tilegate.solved(segment).edges.flagged.filter((value) => !Number.isNaN(value)).length;
      return h(
        "div",
        null,
        h("h3", null, listed?.name ?? "unknown"),
        h("p", null, `${format.plural(segment.edges.base.length, "comparison")}, ${flagged} left out as contradicted; ${segment.spread ? `cards differ by ${(100 * segment.spread).toFixed(2)}\u202f% (one standard deviation)` : "no difference between cards is seen"}.`),
        h("ul.plain.facts-list", null, (listed?.facts ?? []).map(([key, value]) => h("li", null, h("span.muted", null, `${key}: `), value))),
      );
    });
})();
