"use strict";

(() => {
  const { h, format } = Tilegate;

  Tilegate.views.roofline = (page, argument, state) => {
    const { cases, environments } = Tilegate.overview;
    const known = Array.from({ length: Tilegate.count }, (_, at) => at).filter((at) => cases.seconds[at] > 0 && cases.flops[at] > 0 && cases.bytes[at] > 0 && cases.environment[at] >= 0);
    page.append(h("h1", null, "Roofline"));
    const chips = [...new Set(known.map((at) => cases.environment[at]))];
    if (!chips.length) page.append(h("p", null, "No case that was timed states its operations and bytes. A suite does so with `work` (docs/protocol.md)."));
    const chosen = chips.includes(Number(state.chip)) ? Number(state.chip) : chips[0];
    if (chips.length > 1) page.append(Tilegate.choices("Chip", chips.map((chip) => [String(chip), environments[chip].name]), String(chosen), (value) => Tilegate.go({ chip: value })));
    if (chips.length) {
      const own = known.filter((at) => cases.environment[at] === chosen);
      const { peak } = environments[chosen];
      page.append(
        h("p.lead", null, environments[chosen].name, ": each point is a case at its newest code. ", peak ? `The roof is ${format.scaled(peak.flops, "FLOP/s", 3)} in its fastest dense number format (16-bit formats reach half of it where that is FP8) and ${format.scaled(peak.bandwidth, "B/s", 3)} of memory.` : "No data sheet of this device is known here, so no roof is drawn."),
        chart(own, peak),
        Tilegate.table(
          [
            { title: "case", head: true, cell: (at) => Tilegate.caseLink(at) },
            { title: "time", numeric: true, cell: (at) => format.seconds(cases.seconds[at]) },
            { title: "rate", numeric: true, cell: (at) => format.scaled(cases.flops[at] / cases.seconds[at], "FLOP/s", 3) },
            { title: "memory", numeric: true, cell: (at) => format.scaled(cases.bytes[at] / cases.seconds[at], "B/s", 3) },
            { title: "operations a byte", numeric: true, cell: (at) => (cases.flops[at] / cases.bytes[at]).toPrecision(3) },
            ...(peak ? [{ title: "of the roof", numeric: true, cell: (at) => `${(100 * share(at, peak)).toFixed(0)}\u202f%` }] : []),
          ],
          [...own].sort((a, b) => cases.flops[b] / cases.seconds[b] - cases.flops[a] / cases.seconds[a]).slice(0, 100),
          { caption: "Cases and their rates" },
        ),
      );
    }
    page.append(...policies());
  };

  const share = (at, peak) => {
    const { cases } = Tilegate.overview;
    return Math.max(cases.flops[at] / peak.flops, cases.bytes[at] / peak.bandwidth) / cases.seconds[at];
  };

  /** Both axes logarithmic: operations a byte across, operations a second up. */
  const chart = (own, peak) => {
    const { cases, kernels } = Tilegate.overview;
    const width = 900;
    const height = 360;
    const left = 70;
    const bottom = 40;
    const points = own.map((at) => ({ at, x: Math.log10(cases.flops[at] / cases.bytes[at]), y: Math.log10(cases.flops[at] / cases.seconds[at]) }));
    const xs = points.map((point) => point.x).concat(peak ? [Math.log10(peak.flops / peak.bandwidth)] : []);
    const ys = points.map((point) => point.y).concat(peak ? [Math.log10(peak.flops)] : []);
    const [x0, x1] = [Math.floor(Math.min(...xs) - 0.2), Math.ceil(Math.max(...xs) + 0.2)];
    const [y0, y1] = [Math.floor(Math.min(...ys) - 0.1), Math.ceil(Math.max(...ys) + 0.1)];
    const X = (x) => left + ((x - x0) / (x1 - x0)) * (width - left - 16);
    const Y = (y) => height - bottom - ((y - y0) / (y1 - y0)) * (height - bottom - 20);
    const { svg } = Tilegate;
    const numbers = Tilegate.seriesNumbers(kernels);
    const picture = svg("svg", { class: "roofline", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Roofline: operations a second against operations a byte. The table below holds the same." });
    for (let x = x0; x <= x1; x++) picture.append(svg("line", { x1: X(x), x2: X(x), y1: Y(y0), y2: Y(y1), class: "grid" }), svg("text", { x: X(x), y: height - bottom + 18, "text-anchor": "middle" }, String(x >= 0 ? 10 ** x : (10 ** x).toPrecision(1))));
    for (let y = y0; y <= y1; y++) picture.append(svg("line", { x1: X(x0), x2: X(x1), y1: Y(y), y2: Y(y), class: "grid" }), svg("text", { x: left - 8, y: Y(y) + 4, "text-anchor": "end" }, format.scaled(10 ** y, "", 3).trim()));
    picture.append(svg("text", { x: width / 2, y: height - 4, "text-anchor": "middle" }, "operations a byte"), svg("text", { x: left, y: 10 }, "FLOP/s"));
    if (peak) {
      const ridge = Math.log10(peak.flops / peak.bandwidth);
      const bandwidth = Math.log10(peak.bandwidth);
      const start = Math.max(x0, y0 - bandwidth);
      picture.append(svg("path", { class: "roof", d: `M${X(start)} ${Y(start + bandwidth)}L${X(ridge)} ${Y(Math.log10(peak.flops))}L${X(x1)} ${Y(Math.log10(peak.flops))}`, fill: "none" }));
    }
    for (const { at, x, y } of points) {
      const link = svg("a", { href: `#/case/${cases.id[at]}` });
      const dot = svg("circle", { cx: X(x), cy: Y(y), r: 5, class: `series-${numbers.get(kernels[cases.kernel[at]])}` });
      dot.append(svg("title", {}, `${Tilegate.fullName(at)}: ${format.scaled(10 ** y, "FLOP/s", 3)}`));
      link.append(dot);
      picture.append(link);
    }
    const used = [...new Set(own.map((at) => kernels[cases.kernel[at]]))];
    return h("figure", null, picture, h("figcaption.legend", null, used.map((kernel) => h("span", null, h("span", { class: `swatch round series-${numbers.get(kernel)}`, "aria-hidden": "true" }), Tilegate.kernelName(kernel)))));
  };

  /** Cases of one kernel and work that differ in their last parameter alone: the tile policies, side by side. */
  const policies = () => {
    const { cases, kernels } = Tilegate.overview;
    const groups = new Map();
    for (let at = 0; at < Tilegate.count; at++) {
      const values = cases.parameters[at];
      if (values.length < 2 || !(cases.seconds[at] > 0)) continue;
      const key = JSON.stringify([cases.kernel[at], ...values.slice(0, -1)]);
      groups.set(key, [...(groups.get(key) ?? []), at]);
    }
    const rows = [...groups.values()].filter((group) => group.length > 1);
    if (!rows.length) return [];
    const names = [...new Set(rows.flatMap((group) => group.map((at) => cases.parameters[at][cases.parameters[at].length - 1])))].sort();
    const of = (group, name) => group.find((at) => cases.parameters[at][cases.parameters[at].length - 1] === name);
    return [
      h("h2", null, "Policies side by side"),
      h("p.muted", null, "The same work under another last parameter, such as the tile policy. These times were not taken in turns: trust no difference of a few per cent."),
      Tilegate.table(
        [
          { title: "kernel", head: true, cell: (group) => Tilegate.kernelName(kernels[cases.kernel[group[0]]]) },
          { title: "work", cell: (group) => cases.parameters[group[0]].slice(0, -1).join(" \u00b7 ") },
          ...names.map((name) => ({ title: name, numeric: true, cell: (group) => (of(group, name) === undefined ? "" : h("a", { href: `#/case/${cases.id[of(group, name)]}` }, format.seconds(cases.seconds[of(group, name)]))) })),
          ...(names.length === 2
            ? [{ title: `${names[0]} takes`, numeric: true, cell: (group) => {
                const [a, b] = names.map((name) => of(group, name));
                return a === undefined || b === undefined ? "" : h("b", null, `${(cases.seconds[a] / cases.seconds[b]).toFixed(2)} \u00d7`);
              } }]
            : []),
        ],
        rows,
        { caption: "Policies side by side" },
      ),
    ];
  };
})();
