"use strict";

(() => {
  const { h, format } = Tilegate;

  /** Cases as [number], worst first: the certain ones by size, the rest after them. */
  const ranked = (state) =>
    Array.from({ length: Tilegate.count }, (_, at) => at)
      .filter((at) => Tilegate.overview.cases.state[at] === state)
      .sort((a, b) => Math.abs(Tilegate.overview.cases.log[b]) - Math.abs(Tilegate.overview.cases.log[a]));

  Tilegate.views.today = (page) => {
    const { overview } = Tilegate;
    if (!Tilegate.count) {
      page.append(h("h1", null, "Nothing is known yet"), h("p", null, "The history has no case. Measure one:"), Tilegate.command("tilegate history update --minutes 20"));
      return undefined;
    }
    const open = overview.entries.filter((entry) => entry.open);
    page.append(answer(open), ...regressions(open), heatMap(), lower(), devices());
    return undefined;
  };

  /** The page in one sentence: is anything slower, by how much, since when. */
  const answer = (open) => {
    const slower = ranked("slower");
    const base = Tilegate.baseName();
    const { cases, commits } = Tilegate.overview;
    const counts = {};
    for (const state of cases.state) counts[state] = (counts[state] ?? 0) + 1;
    const chips = Object.keys(Tilegate.states).filter((state) => counts[state]).map((state) => h("a.chip", { href: `#/compare?state=${state}&base=${encodeURIComponent(base)}&head=HEAD` }, Tilegate.mark(state), ` ${format.count(counts[state])} ${Tilegate.states[state].name}`));
    const head = Tilegate.mentioned(commits.count - 1);
    const against = slower.length ? [`Against ${base}, `, h("b.is-slower", null, `${format.plural(slower.length, "case is", "cases are")} slower`), ": ", Tilegate.caseLink(slower[0]), " by ", h("b.is-slower", null, format.change(cases.log[slower[0]])), slower.length > 1 ? " at worst." : "."] : open.length ? `Nothing got slower since ${base}.` : `Nothing is slower than ${base}.`;
    return h(
      "section",
      { class: `answer ${slower.length || open.length ? "is-bad" : "is-good"}` },
      h("h1", null, open.length ? `${format.plural(open.length, "regression is", "regressions are")} open` : slower.length ? `${format.plural(slower.length, "case is", "cases are")} slower than ${base}` : `Nothing is slower than ${base}`),
      h("p.lead", null, open.length ? [h("b.is-slower", null, format.change(open[0].affected[0].step[0])), " at worst, since ", Tilegate.commitLine(Tilegate.mentioned(open[0].bad), open[0].bad), ". "] : null, open.length || slower.length ? against : "No regression is open."),
      h("p.chips", null, chips, h("span.muted", null, `against ${base}`)),
      h("p.muted", null, "Head is ", head ? Tilegate.commitLine(head) : "unknown", "."),
    );
  };

  const regressions = (open) => {
    if (!open.length) return [];
    return [
      h("section", null, h("h2", null, `Open regressions`, h("span.count", null, String(open.length))), h("div.cards", null, open.slice(0, 12).map(Tilegate.entryCard)), open.length > 12 ? h("p", null, h("a", { href: "#/inbox" }, `All ${open.length}`)) : null),
    ];
  };

  /** Kernels down, workloads across, a tile for each case; it says its change in a sign, in a figure and in colour. */
  const heatMap = () => {
    const { cases, kernels } = Tilegate.overview;
    const small = Tilegate.count > 120;
    const said = h("p.told", { "aria-hidden": "true" }, "Point at a tile.");
    const regressed = openOf();
    const rows = kernels.map((kernel, number) => {
      const own = Array.from({ length: Tilegate.count }, (_, at) => at).filter((at) => cases.kernel[at] === number);
      own.sort((a, b) => Number(regressed.has(b)) - Number(regressed.has(a)) || order(cases.state[a]) - order(cases.state[b]) || cases.log[b] - cases.log[a]);
      return h(
        "div.row",
        null,
        h("h3", { title: kernel }, Tilegate.kernelName(kernel), h("small.muted", null, ` ${own.length}`)),
        h("div.tiles", { class: small ? "tiles small" : "tiles", role: "list" }, own.map((at) => tile(at, small, said, regressed.get(at)))),
      );
    });
    return h("section", null, h("h2", null, `Every case against ${Tilegate.baseName()}`), h("div.heat", null, rows), small ? said : null, legend());
  };
  const order = (state) => ["slower", "contradicted", "undecided", "faster", "same", "identical", "unmeasured"].indexOf(state);

  /** How strong the colour is: 1 to 3 %, to 6 %, more. */
  const strength = (log) => (Math.abs(log) >= 0.06 ? 3 : Math.abs(log) >= 0.03 ? 2 : 1);

  /** By case, the open regression that it has, as {entry, now}. */
  const openOf = () => {
    const found = new Map();
    for (const entry of Tilegate.overview.entries.filter((each) => each.open)) for (const each of entry.affected) if (!found.has(each.case)) found.set(each.case, { entry, now: Tilegate.contrastOf(each.now) ?? Tilegate.contrastOf(each.step) });
    return found;
  };

  const tile = (at, small, said, regression) => {
    const { cases } = Tilegate.overview;
    const state = cases.state[at];
    const figure = Number.isFinite(cases.log[at]) && state !== "identical" ? format.change(cases.log[at], 1) : Tilegate.states[state].name;
    const since = regression ? `, ${format.change(regression.now.log, 1)} since ${Tilegate.short(Tilegate.mentioned(regression.entry.bad).hash)}` : "";
    const label = `${Tilegate.fullName(at)}: ${Tilegate.states[state].name}${figure === Tilegate.states[state].name ? "" : `, ${figure}`}${since}`;
    const tell = () => (said.textContent = label);
    return h(
      "a.tile",
      { href: `#/case/${cases.id[at]}`, role: "listitem", "aria-label": label, title: label, class: `tile on-${state} strength-${strength(cases.log[at])}${regression ? " has-regression" : ""}`, onmouseenter: tell, onfocus: tell },
      small
        ? h("span", { "aria-hidden": "true" }, regression ? Tilegate.states.slower.mark : Tilegate.states[state].mark)
        : [h("span.name", { "aria-hidden": "true" }, Tilegate.caseName(at)), h("span.value", { "aria-hidden": "true" }, h("span", null, Tilegate.states[state].mark), state === "identical" || state === "unmeasured" || (regression && state !== "slower") ? "" : ` ${figure}`, regression && state !== "slower" ? h("span.since", null, `\u25b2 ${format.change(regression.now.log, 1)}`) : null)],
    );
  };

  const legend = () =>
    h("p.legend", null, h("span", null, h("span.swatch.has-regression", { "aria-hidden": "true" }, "\u25b2"), "open regression, against its last good commit"), Object.keys(Tilegate.states).filter((state) => state !== "contradicted").map((state) => h("span", null, h(`span.swatch.on-${state}.strength-2`, { "aria-hidden": "true" }, Tilegate.states[state].mark), Tilegate.states[state].name)));

  const lower = () => {
    const lists = [
      ["faster", "Faster", "Nothing got faster by 1 % or more."],
      ["undecided", "Undecided", "Every comparison is narrow enough."],
      ["unmeasured", "Not measured", "Every case is compared."],
    ];
    return h(
      "section.columns",
      null,
      lists.map(([state, title, none]) => {
        const found = ranked(state);
        return h("div", null, h("h2", null, title, h("span.count.quiet", null, String(found.length))), found.length ? h("ul.plain", null, found.slice(0, 8).map((at) => h("li", null, Tilegate.caseLink(at), state === "unmeasured" ? null : Tilegate.figure(Tilegate.standing(at), state)))) : h("p.muted", null, none), found.length > 8 ? h("p", null, h("a", { href: `#/compare?state=${state}&base=${encodeURIComponent(Tilegate.baseName())}&head=HEAD` }, `All ${found.length}`)) : null);
      }),
    );
  };

  const devices = () => {
    const { environments, unreadable, broken } = Tilegate.overview;
    const listed = environments.filter((each) => each.last).sort((a, b) => b.last - a.last);
    return h(
      "section",
      null,
      h("h2", null, "Where it is measured"),
      Tilegate.table(
        [
          { title: "device", head: true, cell: (each) => each.name },
          { title: "target", cell: (each) => `${each.target} ${each.arch}` },
          { title: "comparisons", numeric: true, cell: (each) => format.count(each.comparisons) },
          { title: "cards", numeric: true, cell: (each) => String(each.cards) },
          { title: "last seen", cell: (each) => h("span", { title: format.date(each.last) }, `${format.date(each.last)}, ${format.ago(each.last)}`) },
        ],
        listed,
        { caption: "Devices", empty: "Nothing was measured yet." },
      ),
      unreadable ? h("details", null, h("summary", null, `${format.plural(unreadable, "file")} of the store cannot be read, and is left out`), h("ul", null, broken.map(([path, why]) => h("li", null, h("code", null, path), ` ${why}`)))) : null,
    );
  };
})();
