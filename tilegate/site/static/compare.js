"use strict";

(() => {
  const { h, format } = Tilegate;

  Tilegate.views.compare = async (page, argument, state) => {
    const { overview } = Tilegate;
    const commits = await Tilegate.commits();
    const baseText = state.base ?? Tilegate.baseName();
    const headText = state.head ?? "HEAD";
    const base = Tilegate.findCommit(commits, baseText);
    const head = Tilegate.findCommit(commits, headText);
    page.append(h("h1", null, "Compare two commits"), pickers(baseText, headText));
    if (base < 0 || head < 0) {
      page.append(h("p", null, `${base < 0 ? baseText : headText} is no commit or release of this history.`));
      return;
    }
    const all = Array.from({ length: Tilegate.count }, (_, at) => at);
    const histories = await Tilegate.histories(all);
    const rows = all.map((at) => {
      const u = Tilegate.versionAt(histories[at], base);
      const v = Tilegate.versionAt(histories[at], head);
      const contrast = Tilegate.contrast(histories[at], u, v);
      return { at, contrast, state: Tilegate.stateOf(contrast), why: u < 0 ? `no code known at ${baseText}` : v < 0 ? `no code known at ${headText}` : "no comparisons connect the two" };
    });
    const counts = {};
    for (const row of rows) counts[row.state] = (counts[row.state] ?? 0) + 1;
    const words = (state.find ?? "").toLowerCase().split(/\s+/).filter(Boolean);
    const found = rows.filter((row) => (!state.state || row.state === state.state) && words.every((word) => overview.cases.name[row.at].toLowerCase().includes(word)));
    const sorts = {
      certainty: ({ contrast }) => (contrast && contrast.error > 0 ? Math.abs(contrast.log) / contrast.error : contrast ? -1 : -2),
      size: ({ contrast }) => (contrast ? Math.abs(contrast.log) : -1),
      change: ({ contrast }) => (contrast ? contrast.log : -Infinity),
    };
    const sorted = sorts[state.sort] ? state.sort : "certainty";
    if (state.sort === "case") found.sort((a, b) => (overview.cases.name[a.at] < overview.cases.name[b.at] ? -1 : 1));
    else found.sort((a, b) => sorts[sorted](b) - sorts[sorted](a));
    const name = (place) => commits.hash[place].slice(0, 12);
    const compared = found.filter((row) => row.contrast);
    const excluded = found.filter((row) => !row.contrast);

    page.append(
      h("p", null, "From ", Tilegate.commitLine(Tilegate.commitAt(commits, base), base)),
      h("p", null, "to ", Tilegate.commitLine(Tilegate.commitAt(commits, head), head)),
      h("div.bar", null, Tilegate.choices("Only", [["", `all ${rows.length}`], ...Object.keys(Tilegate.states).filter((each) => counts[each]).map((each) => [each, `${Tilegate.states[each].mark} ${Tilegate.states[each].name} ${counts[each]}`])], state.state ?? "", (value) => Tilegate.go({ state: value })), filter(state.find)),
      h("div.bar", null, Tilegate.copyButton("Copy as Markdown", () => markdown(compared, baseText, headText)), Tilegate.copyButton("Copy as CSV", () => csv(found)), h("span.muted", null, `${format.plural(compared.length, "case")} compared`)),
      Tilegate.table(
        [
          { title: "case", head: true, sort: "case", cell: ({ at }) => [Tilegate.mark(rows[at].state), " ", Tilegate.caseLink(at)] },
          { title: "change", numeric: true, sort: "change", cell: ({ contrast, state: each }) => (each === "identical" ? h("span.muted", null, "identical code") : h("b", { class: `is-${each}` }, format.change(contrast.log))) },
          { title: "95 %", numeric: true, className: "wide", cell: ({ contrast, state: each }) => (each === "identical" ? "" : format.interval(contrast.low, contrast.high)) },
          { title: "size over error", numeric: true, sort: "certainty", cell: ({ contrast }) => (contrast.error > 0 ? (Math.abs(contrast.log) / contrast.error).toFixed(1) : "") },
          { title: "see it", className: "wide", cell: ({ at, state: each }) => reproButton(overview.cases.name[at], each, name(base), name(head)) },
          { title: "history", className: "wide", cell: ({ at, state: each }) => Tilegate.spark(Tilegate.floats(overview.cases.line[at]), each) },
        ],
        compared,
        { caption: `Changes from ${baseText} to ${headText}`, sorted: state.sort === "case" ? "case" : sorted, onsort: (value) => Tilegate.go({ sort: value }), empty: "Nothing that fits is compared." },
      ),
    );
    if (excluded.length) {
      page.append(h("details", null, h("summary", null, `${format.plural(excluded.length, "case is", "cases are")} not compared`), h("ul.plain", null, excluded.slice(0, 400).map((row) => h("li", null, Tilegate.caseLink(row.at), h("span.muted", null, ` ${row.why}`))))));
    }
    page.append(h("h2", null, "Measure it again"), Tilegate.command(`tilegate gate --base ${name(base)} --base-exact --head ${name(head)}`), Tilegate.command(`tilegate history compare ${name(base)} ${name(head)}`));
  };

  /** Copies the line that shows a change with torch and TileLang alone; equal code and calls have none. */
  const reproButton = (name, state, base, head) => {
    if (state === "identical" || Tilegate.isCall(name)) return "";
    const line = Tilegate.repro(name, base, head);
    return h("span", { title: line }, Tilegate.copyButton("Copy repro", () => line));
  };

  const pickers = (baseText, headText) => {
    const choices = ["HEAD", ...Tilegate.overview.releases.map(([name]) => name).reverse()];
    const input = (id, label, value) => h("label", null, h("span.muted", null, label), h("input", { id, list: "revisions", value, size: "16", autocomplete: "off", spellcheck: "false" }));
    const submit = (event) => {
      event.preventDefault();
      Tilegate.go({ base: document.getElementById("compare-base").value.trim(), head: document.getElementById("compare-head").value.trim() });
    };
    const swap = () => Tilegate.go({ base: headText, head: baseText });
    return h("form.bar", { onsubmit: submit }, input("compare-base", "from", baseText), input("compare-head", "to", headText), h("button", { type: "submit" }, "Compare"), h("button.quiet", { type: "button", onclick: swap }, "Swap"), h("datalist", { id: "revisions" }, choices.map((value) => h("option", { value }))));
  };

  let waiting = 0;
  const filter = (value) =>
    h("label.choices", null, h("span.muted", null, "Name has"), h("input", { id: "compare-find", type: "search", value: value ?? "", oninput: (event) => { clearTimeout(waiting); const text = event.target.value; waiting = setTimeout(() => Tilegate.go({ find: text }, { replace: true }), 250); } }));

  const percent = (log) => format.change(log).replace("\u202f", " ").replace("\u2212", "-");
  /** A name in a code span that it cannot leave; a pipe would end the table's cell. */
  const code = (text) => {
    const fence = "`".repeat(Math.max(0, ...(text.match(/`+/g) ?? []).map((run) => run.length)) + 1);
    const shown = text.replaceAll("|", "\u2502").replace(/\s+/g, " ");
    return fence.length > 1 ? `${fence} ${shown} ${fence}` : `\`${shown}\``;
  };
  const markdown = (rows, baseText, headText) =>
    [`| case | ${code(headText)} against ${code(baseText)} | 95 % |`, "|---|--:|---|", ...rows.map(({ at, contrast, state }) => `| ${code(Tilegate.overview.cases.name[at])} | ${state === "identical" ? "0 %" : percent(contrast.log)} | ${state === "identical" ? "identical code" : `${percent(contrast.low)} \u2026 ${percent(contrast.high)}`} |`)].join("\n");
  // A spreadsheet takes a cell that begins with one of these for a formula.
  const cell = (text) => `"${(/^[=+\-@\t\r]/.test(text) ? `'${text}` : text).replaceAll('"', '""')}"`;
  const csv = (rows) =>
    ["case,state,ratio,low,high", ...rows.map(({ at, contrast, state, why }) => [cell(Tilegate.overview.cases.name[at]), cell(contrast ? state : why), ...["log", "low", "high"].map((key) => (contrast ? Math.exp(contrast[key]).toFixed(6) : ""))].join(","))].join("\n");
})();
