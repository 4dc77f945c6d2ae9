"use strict";

(() => {
  const { h, format } = Tilegate;

  Tilegate.views.commit = async (page, hash) => {
    const { overview } = Tilegate;
    const commits = await Tilegate.commits();
    const place = Tilegate.findCommit(commits, hash);
    if (place < 0) throw new Error(`${hash || "(nothing)"} is no commit of this history.`);
    const commit = Tilegate.commitAt(commits, place);
    const step = (to, text) => (to >= 0 && to < commits.hash.length ? h("a", { href: `#/commit/${commits.hash[to].slice(0, 12)}` }, text) : h("span.muted", null, text));
    page.append(
      h("p.crumbs", null, step(place - 1, "\u2190 before"), "  ", step(place + 1, "after \u2192")),
      h("h1", null, commit.subject || "(no subject)"),
      h("p", null, h("code.hash", null, commit.hash), Tilegate.releaseAt(place) ? h("span.tag", null, Tilegate.releaseAt(place)) : null, ` ${commit.author}, ${format.date(commit.date)} `, overview.repository ? h("a", { href: `${overview.repository}commit/${commit.hash}`, rel: "noreferrer" }, "on the web") : null),
    );
    const entries = overview.entries.filter((entry) => entry.kind === "step" && entry.bad === place);
    if (entries.length) page.append(h("h2", null, "Regressions that it began"), h("div.cards", null, entries.map(Tilegate.entryCard)));

    const numbers = commits.changed[place];
    const histories = await Tilegate.histories(numbers);
    const rows = numbers.map((at, number) => ({ at, history: histories[number], change: Tilegate.changesOf(histories[number]).find((change) => change.place === place) })).filter((row) => row.change);
    rows.sort((a, b) => (b.change.contrast?.log ?? -9) - (a.change.contrast?.log ?? -9));
    const others = overview.cases.versions.filter((count) => count > 0).length - rows.length;
    page.append(
      h("h2", null, "Cases whose code it changed", h("span.count.quiet", null, String(rows.length))),
      Tilegate.table(
        [
          { title: "case", head: true, cell: ({ at }) => Tilegate.caseLink(at, null, `?mark=${place}`) },
          { title: "change", numeric: true, cell: ({ change }) => Tilegate.figure(change.contrast, change.state) },
          { title: "95 %", numeric: true, cell: ({ change }) => (change.contrast ? format.interval(change.contrast.low, change.contrast.high) : "") },
          { title: "against", cell: ({ change }) => Tilegate.commitLink(commits.hash[change.good]) },
          { title: "what changed in the code", cell: (row) => causes(row).join("; ") || h("span.muted", null, "not recorded") },
        ],
        rows,
        { caption: "Cases whose code this commit changed", empty: "It changed the code of no case: nothing had to be measured." },
      ),
      rows.length ? h("p.muted", null, `The code of the other ${format.plural(others, "case")} is the same as before.`) : null,
    );
    const failed = await failures(place, numbers);
    if (failed.length) page.append(h("h2", null, "Cases without code here"), h("ul.plain", null, failed.map(([at, why]) => h("li", null, Tilegate.caseLink(at), h("span.muted", null, ` ${why}`)))));
    const gates = runs(rows);
    page.append(
      h("h2", null, "Gates that compared it"),
      Tilegate.table(
        [
          { title: "run", head: true, cell: (run) => h("code", null, run.name) },
          { title: "when", cell: (run) => format.date(run.created) },
          { title: "device", cell: (run) => run.device },
          { title: "cases", numeric: true, cell: (run) => String(run.states.length) },
          { title: "they say", cell: (run) => Object.keys(Tilegate.states).filter((state) => run.states.includes(state)).map((state) => h("span.chip", null, Tilegate.mark(state), ` ${run.states.filter((each) => each === state).length} ${Tilegate.states[state].name}`)) },
        ],
        gates,
        { caption: "Gates that compared this commit's code", empty: "None compared its code." },
      ),
    );
    if (place > 0) page.append(h("h2", null, "Measure it again"), Tilegate.command(`tilegate gate --base ${commits.hash[place - 1].slice(0, 12)} --base-exact --head ${commit.hash.slice(0, 12)}`));
  };

  const causes = ({ history, change }) => {
    const found = [];
    for (const segment of history.segments) {
      const { edges } = segment;
      edges.base.forEach((base, e) => {
        if (base === change.before && edges.head[e] === change.version) found.push(...(edges.causes[e] ?? []));
      });
    }
    return [...new Set(found)];
  };

  /** Why cases have no code at this place: only shards that are loaded already are asked, and those of the changed cases. */
  const failures = async (place, numbers) => {
    const found = [];
    const loaded = Array.from({ length: Tilegate.count }, (_, at) => at).filter((at) => Tilegate.shards.has(`cases/${Tilegate.overview.shards[at]}`) || numbers.includes(at));
    const histories = await Tilegate.histories(loaded);
    loaded.forEach((at, number) => {
      const { failed } = histories[number];
      const which = failed ? failed.place.indexOf(place) : -1;
      if (which >= 0) found.push([at, failed.reasons[failed.reason[which]]]);
    });
    return found;
  };

  const runs = (rows) => {
    const found = new Map();
    for (const { history, change } of rows) {
      for (const segment of history.segments) {
        Tilegate.solved(segment);
        const { edges } = segment;
        edges.head.forEach((head, e) => {
          if (head !== change.version) return;
          const name = segment.runs[edges.run[e]];
          const run = found.get(name) ?? { name, created: edges.created[e], device: Tilegate.overview.environments[segment.environment]?.name ?? "unknown", states: [] };
          const contrast = Tilegate.withInterval(edges.log[e], edges.error[e], edges.freedom[e]);
          run.states.push(Number.isNaN(edges.flagged[e]) ? Tilegate.stateOf(contrast) : "contradicted");
          found.set(name, run);
        });
      }
    }
    return [...found.values()].sort((a, b) => (b.created ?? 0) - (a.created ?? 0));
  };
})();
