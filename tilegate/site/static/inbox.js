"use strict";

(() => {
  const { h, format } = Tilegate;

  Tilegate.entryState = (entry) => (entry.recovered ? "recovered" : entry.expired ? "acceptance expired" : entry.state);

  /** Is it still so? Head against the last good commit, in words. */
  const still = (entry) => {
    const now = Tilegate.contrastOf(entry.affected[0].now);
    if (!now) return "Head is not compared with it.";
    if (entry.recovered) return ["Recovered: head is ", h("b", null, now.error === 0 ? "the old code again" : format.change(now.log)), " against the last good commit."];
    return ["Still so: head is ", h("b.is-slower", null, format.change(now.log)), " ", h("small.muted", null, format.half(now.low, now.high)), " against the last good commit."];
  };

  const place = (entry) => {
    const { releaseAt, mentioned } = Tilegate;
    const bad = mentioned(entry.bad);
    if (entry.kind === "creep") return ["Slower little by little since ", releaseAt(entry.good) ?? Tilegate.commitLink(mentioned(entry.good).hash), "; no single commit shows it."];
    if (entry.bad - entry.good === 1) return ["Since ", Tilegate.commitLine(bad, entry.bad)];
    return [`Between ${Tilegate.short(mentioned(entry.good).hash)} and `, Tilegate.commitLine(bad, entry.bad), h("span.muted", null, ` (${format.plural(entry.bad - entry.good, "commit")}; those between are not measured)`)];
  };

  /** A regression in one look: how much, what, since when, is it still so. */
  Tilegate.entryCard = (entry) => {
    const worst = entry.affected[0];
    const step = Tilegate.contrastOf(worst.step);
    const more = entry.affected.length - 1;
    const query = entry.kind === "step" ? `?mark=${entry.bad}` : "";
    return h(
      "article.card",
      { id: `entry-${entry.id}` },
      h("div.size", null, h("b.is-slower", null, format.change(step.log)), h("small", null, format.half(step.low, step.high))),
      h(
        "div.what",
        null,
        h("p.kernel", null, Tilegate.caseLink(worst.case, null, query), more ? h("span.muted", null, ` and ${format.plural(more, "other case")} of this kernel`) : null),
        h("p", null, place(entry)),
        h("p", null, still(entry)),
        worst.cause.length ? h("p.muted", null, worst.cause.slice(0, 2).join("; ")) : null,
      ),
      h("div.side", null, Tilegate.spark(Tilegate.floats(Tilegate.overview.cases.line[worst.case]), entry.recovered ? "same" : "slower", { width: 150, height: 40, mark: entry.bad / Math.max(1, Tilegate.overview.commits.count - 1) }), h("p", null, h("a", { href: `#/inbox/${entry.id}`, class: `state is-${entry.open ? "open" : "closed"}` }, Tilegate.entryState(entry)), entry.owner ? h("span.muted", null, ` ${entry.owner}`) : null)),
    );
  };

  const one = (page, entry) => {
    page.append(
      h("p.crumbs", null, h("a", { href: "#/inbox" }, "Regressions"), ` / ${entry.id}`),
      h("h1", null, `${Tilegate.kernelName(entry.kernel)}: ${format.change(entry.affected[0].step[0])}`),
      Tilegate.entryCard(entry),
    );
    if (entry.note || entry.owner || entry.expires) {
      page.append(h("p", null, entry.note ? `\u201c${entry.note}\u201d ` : null, h("span.muted", null, [entry.owner && `Owner: ${entry.owner}.`, entry.expires && ` Accepted until ${entry.expires}.`].filter(Boolean).join(""))));
    }
    page.append(
      h("h2", null, "Cases"),
      Tilegate.table(
        [
          { title: "case", head: true, cell: (each) => Tilegate.caseLink(each.case, null, entry.kind === "step" ? `?mark=${entry.bad}` : "") },
          { title: "change there", numeric: true, cell: (each) => Tilegate.figure(Tilegate.contrastOf(each.step)) },
          { title: "head against the last good commit", numeric: true, cell: (each) => Tilegate.figure(Tilegate.contrastOf(each.now)) },
          { title: "history", cell: (each) => Tilegate.sparkOf(each.case) },
          { title: "what changed in the code", cell: (each) => each.cause.join("; ") || h("span.muted", null, "not recorded") },
        ],
        entry.affected,
        { caption: "Cases of this regression" },
      ),
      h("h2", null, "Decide"),
      h("p.muted", null, "The state lives in the history's store. One of these changes it; the next build shows it."),
      Tilegate.command(`tilegate history triage ${entry.id} --state investigating --owner NAME`),
      Tilegate.command(`tilegate history triage ${entry.id} --state accepted --expires YYYY-MM-DD --note WHY`),
    );
  };

  Tilegate.views.inbox = (page, id, state) => {
    const { entries } = Tilegate.overview;
    if (id) {
      const entry = entries.find((each) => each.id === id);
      if (!entry) throw new Error(`There is no regression ${id}.`);
      one(page, entry);
      return;
    }
    const which = state.show ?? "open";
    const groups = { open: (entry) => entry.open, decided: (entry) => !entry.open && !entry.recovered, recovered: (entry) => entry.recovered, all: () => true };
    const count = (name) => entries.filter(groups[name]).length;
    const found = entries.filter(groups[which] ?? groups.all);
    page.append(
      h("h1", null, "Regressions"),
      h("p.lead", null, "A slowdown of 1 % or more whose interval excludes no change. Cases of one kernel that change at the same commit are one entry."),
      Tilegate.choices("Show", [["open", `open ${count("open")}`], ["decided", `decided ${count("decided")}`], ["recovered", `recovered ${count("recovered")}`], ["all", `all ${entries.length}`]], which, (value) => Tilegate.go({ show: value })),
      found.length ? h("div.cards", null, found.map(Tilegate.entryCard)) : h("p.muted", null, which === "open" ? "None is open." : "There is none."),
    );
  };
})();
