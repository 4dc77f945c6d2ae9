"use strict";

(() => {
  const { h, format } = Tilegate;

  Tilegate.views.machine = async (page, argument, state) => {
    const { overview } = Tilegate;
    const { cases, weeks } = await Tilegate.load("machine");
    for (const key of ["error", "pairs", "spread"]) if (typeof cases[key] === "string") cases[key] = Tilegate.floats(cases[key]);
    const rows = Array.from({ length: Tilegate.count }, (_, at) => at).filter((at) => Number.isFinite(cases.error[at]));
    const sorts = { error: (at) => cases.error[at], spread: (at) => cases.spread[at], flagged: (at) => cases.flagged[at] };
    const sorted = sorts[state.sort] ? state.sort : "error";
    rows.sort((a, b) => sorts[sorted](b) - sorts[sorted](a));
    const percent = (value, digits = 2) => (Number.isFinite(value) ? `${(100 * value).toFixed(digits)}\u202f%` : "\u2013");
    page.append(h("h1", null, "How well it is measured"), h("p.lead", null, "The scatter factor is 1 where the errors that are stated are the errors that are made. Well above 1, the device or the machine is less steady than its own runs say."));
    const plots = [];
    for (const [environment, found] of Object.entries(weeks)) {
      const listed = overview.environments[environment];
      const scatter = Tilegate.floats(found.scatter);
      const error = Tilegate.floats(found.error);
      const known = Array.from(scatter).filter(Number.isFinite);
      const last = known[known.length - 1];
      const holder = h("div.plot.small", { role: "img", "aria-label": `Scatter factor by week on ${listed?.name}; last ${last?.toFixed(2) ?? "unknown"}` });
      plots.push([holder, found.week, scatter]);
      page.append(
        h(
          "section",
          null,
          h("h2", null, listed?.name ?? "unknown"),
          h("dl.facts", null, [
            ["Last seen", `${format.date(listed?.last)}, ${format.ago(listed?.last ?? null)}`],
            ["Comparisons", format.count(found.count.reduce((a, b) => a + b, 0))],
            ["Left out as contradicted", format.count(found.flagged.reduce((a, b) => a + b, 0))],
            ["Median error", percent(error[error.length - 1])],
            ["Scatter factor, last week", last === undefined ? h("span.muted", null, "no comparison checks another") : h("b", { class: last > 1.5 ? "is-slower" : "" }, last.toFixed(2))],
          ].map(([term, value]) => h("div", null, h("dt", null, term), h("dd", null, value)))),
          known.length ? holder : null,
          known.length ? h("p.hint.muted", null, "Scatter factor by week; the dashed line is 1.") : null,
        ),
      );
    }
    page.append(
      h("h2", null, "The noisiest cases"),
      Tilegate.table(
        [
          { title: "case", head: true, cell: (at) => Tilegate.caseLink(at) },
          { title: "median error", numeric: true, sort: "error", cell: (at) => percent(cases.error[at]) },
          { title: "pairs", numeric: true, cell: (at) => (Number.isFinite(cases.pairs[at]) ? String(Math.round(cases.pairs[at])) : "") },
          { title: "between cards", numeric: true, sort: "spread", cell: (at) => (cases.spread[at] > 0 ? percent(cases.spread[at]) : h("span.muted", null, "none seen")) },
          { title: "left out", numeric: true, sort: "flagged", cell: (at) => String(cases.flagged[at]) },
          { title: "comparisons", numeric: true, cell: (at) => String(overview.cases.comparisons[at]) },
        ],
        rows.slice(0, 50),
        { caption: "The noisiest cases", sorted, onsort: (value) => Tilegate.go({ sort: value }), empty: "Nothing was compared yet." },
      ),
    );
    let drawn = [];
    const draw = () => {
      drawn.forEach((plot) => plot.destroy());
      drawn = plots.filter(([holder]) => holder.isConnected).map(([holder, week, scatter]) => {
        const style = () => ({ stroke: Tilegate.css("--muted"), grid: { stroke: Tilegate.css("--grid"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" });
        return new uPlot(
          {
            width: holder.clientWidth,
            height: 150,
            legend: { show: false },
            cursor: { drag: { x: false } },
            scales: { y: { range: (u, low, high) => [0, Math.max(2, high * 1.1)] } },
            axes: [style(), { ...style(), size: 40 }],
            series: [{}, { stroke: Tilegate.css("--line"), width: 2, points: { size: 5 } }, { stroke: Tilegate.css("--muted"), dash: [4, 4], width: 1, points: { show: false } }],
          },
          [week, Array.from(scatter, (value) => (Number.isFinite(value) ? value : null)), week.map(() => 1)],
          holder,
        );
      });
    };
    return { ready: draw, recolour: draw, close: () => drawn.forEach((plot) => plot.destroy()) };
  };
})();
