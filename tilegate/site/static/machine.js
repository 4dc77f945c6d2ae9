"use strict";

(() => {
  const { h, format } = Tilegate;

  Tilegate.views.machine = async (page, argument, state) => {
    const { overview } = Tilegate;
    const { cases, weeks, runs } = await Tilegate.load("machine");
    for (const key of ["error", "spread"]) if (typeof cases[key] === "string") cases[key] = Tilegate.floats(cases[key]);
    const rows = Array.from({ length: Tilegate.count }, (_, at) => at).filter((at) => Number.isFinite(cases.error[at]));
    const sorts = { error: (at) => cases.error[at], spread: (at) => cases.spread[at], flagged: (at) => cases.flagged[at] };
    const sorted = sorts[state.sort] ? state.sort : "error";
    rows.sort((a, b) => sorts[sorted](b) - sorts[sorted](a));
    const percent = (value, digits = 2) => (Number.isFinite(value) ? `${(100 * value).toFixed(digits)}\u202f%` : "\u2013");
    page.append(h("h1", null, "How well it is measured"));
    const plots = [];
    for (const [environment, found] of Object.entries(weeks)) {
      const listed = overview.environments[environment];
      const error = Tilegate.floats(found.error);
      const own = runs[environment];
      const health = own ? Object.fromEntries(["shift", "worst", "scatter", "bias"].map((key) => [key, Tilegate.floats(own[key])])) : {};
      const sum = (values) => values.reduce((a, b) => a + b, 0);
      const facts = [
        ["Last seen", `${format.date(listed?.last)}, ${format.ago(listed?.last ?? null)}`],
        ["Comparisons", `${format.count(sum(found.count))}, ${format.count(sum(found.flagged))} of them left out as contradicted`],
        ["Median error, last week", percent(error[error.length - 1])],
      ];
      if (own) {
        const last = own.created.length - 1;
        facts.push(["Controls in the last gate", own.controls[last] ? [`${own.controls[last]}, moved by ${format.change(health.shift[last])}`, h("small", null, ` at most ${format.change(health.worst[last])}`)] : "none"]);
        facts.push(["Disturbed pairs", percent(sum(own.disturbed) / Math.max(1, sum(own.pairs) + sum(own.disturbed)), 1)]);
      }
      const charts = [
        ["Scatter factor of the comparisons, by week", "Residuals over stated errors: 1 where the errors that are stated are the errors that are made", found.week, Tilegate.floats(found.scatter), 1, (value) => value.toFixed(2)],
        own && ["Scatter factor of the controls, by gate", "Identical code, timed as if it were two commits: 1 where it scatters as the noise model says", own.created, health.scatter, 1, (value) => value.toFixed(2)],
        own && ["Shift of the controls, by gate", "0 where identical code takes the same time", own.created, health.shift, 0, (value) => `${(100 * Math.expm1(value)).toFixed(2)} %`],
        own && ["Bias between replicates, by gate", "Standard deviation between fresh pairs of processes: more pairs do not cure it", own.created, health.bias, NaN, (value) => `${(100 * value).toFixed(2)} %`],
      ].filter((chart) => chart && Array.from(chart[3]).some(Number.isFinite));
      page.append(
        h("section", null, h("h2", null, listed?.name ?? "unknown"), h("dl.facts", null, facts.map(([term, value]) => h("div", null, h("dt", null, term), h("dd", null, value)))), h("div.charts", null, charts.map(([title, text, ...rest]) => {
          const holder = h("div.plot", { role: "img", "aria-label": `${title} on ${listed?.name}` });
          plots.push([holder, ...rest]);
          return h("figure.chart", null, h("figcaption", null, h("b", null, title), h("small", null, text)), holder);
        }))),
      );
    }
    page.append(
      h("h2", null, "The noisiest cases"),
      Tilegate.table(
        [
          { title: "case", head: true, cell: (at) => Tilegate.caseLink(at) },
          { title: "median error", numeric: true, sort: "error", cell: (at) => percent(cases.error[at]) },
          { title: "pairs", numeric: true, cell: (at) => String(Math.round(cases.pairs[at] ?? 0)) },
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
      drawn = plots.filter(([holder]) => holder.isConnected).map(([holder, when, values, reference, show]) => {
        const style = () => ({ stroke: Tilegate.css("--muted"), grid: { stroke: Tilegate.css("--grid"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" });
        // Several gates may have begun in one second.
        const x = when.map((time, at) => time + at * 1e-3);
        return new uPlot(
          {
            width: holder.clientWidth,
            height: 150,
            legend: { show: false },
            cursor: { drag: { x: false } },
            scales: { x: { range: (u, low, high) => (low === high ? [low - 43200, high + 43200] : [low, high]) } },
            axes: [style(), { ...style(), size: 62, space: 26, values: (u, ticks) => ticks.map(show) }],
            series: [{}, { stroke: Tilegate.css("--line"), width: 2, points: { show: true, size: 5 } }, { stroke: Tilegate.css("--muted"), dash: [4, 4], width: 1, points: { show: false } }],
          },
          [x, Array.from(values, (value) => (Number.isFinite(value) ? value : null)), x.map(() => (Number.isNaN(reference) ? null : reference))],
          holder,
        );
      });
    };
    return { ready: draw, recolour: draw, close: () => drawn.forEach((plot) => plot.destroy()) };
  };
})();
