"use strict";
// Lines of levels with their bands, on uPlot: zoom, overview strip, marks that are real buttons.

(() => {
  const { h } = Tilegate;
  const MOST_MARKS = 60; // more would hide the line; the keyboard and the table reach them all

  /** What is drawn in which unit: {label, of(log, scale), show}; a rate needs the work of one launch. */
  Tilegate.units = (history) => {
    const { format } = Tilegate;
    const work = history.work ?? {};
    const units = {};
    if (history.segments.length) units.change = { name: "change", label: "change, %", of: (log) => 100 * Math.expm1(log), show: (value) => `${value > 0 ? "+" : value < 0 ? "\u2212" : "\u00b1"}${Math.abs(value).toFixed(2)}\u202f%` };
    units.time = { name: "time", label: "time of a launch", of: (log, scale) => scale * Math.exp(log), show: (value) => format.seconds(value), absolute: true };
    if (work.flops > 0) units.flops = { name: "FLOP/s", label: "FLOP/s", of: (log, scale) => work.flops / (scale * Math.exp(log)), show: (value) => format.scaled(value, "FLOP/s"), absolute: true };
    if (work.bytes > 0) units.bytes = { name: "B/s", label: "B/s", of: (log, scale) => work.bytes / (scale * Math.exp(log)), show: (value) => format.scaled(value, "B/s"), absolute: true };
    return units;
  };

  /**
   * The parts of the branch that each segment draws, in order: the newest that knows the last code draws back to where only an
   * older one knows more, and so on.
   */
  Tilegate.drawn = (history, base) => {
    const { start, code } = history;
    const left = history.segments.map((segment) => {
      Tilegate.solved(segment);
      const reference = chosenReference(history, segment, base);
      const part = segment.part[segment.index.get(reference)];
      const levels = new Map();
      for (const version of segment.versions) {
        if (segment.part[segment.index.get(version)] === part) levels.set(version, Tilegate.contrastIn(segment, reference, version));
      }
      return { segment, reference, levels };
    });
    const parts = [];
    let last = Tilegate.overview.commits.count - 1;
    let run = start.length - 1;
    while (run >= 0) {
      const found = left.find(({ levels }) => levels.has(code[run]));
      if (!found) {
        run -= 1;
        continue;
      }
      let first = run;
      while (run >= 0 && (found.levels.has(code[run]) || !left.some((other) => other !== found && other.levels.has(code[run])))) {
        if (found.levels.has(code[run])) first = run;
        run -= 1;
      }
      parts.push({ ...found, first: start[first], last });
      last = start[first] - 1;
      run = first - 1;
      left.splice(left.indexOf(found), 1);
    }
    return parts.reverse();
  };

  const chosenReference = (history, segment, base) => {
    const wanted = Tilegate.versionAt(history, base);
    const own = segment.index.get(segment.reference);
    const at = segment.index.get(wanted);
    return at !== undefined && segment.part[at] === segment.part[own] ? wanted : segment.reference;
  };

  /** Columns for uPlot: [x, then level, low, high for each part]. */
  Tilegate.columnsOf = (history, parts, unit, x) => {
    const count = x.length;
    const data = [x];
    for (const { segment, reference, levels, first, last } of parts) {
      const scale = Tilegate.scaleOf(segment) * Math.exp(segment.levels[segment.index.get(reference)] - segment.levels[segment.index.get(segment.reference)]);
      const columns = [0, 1, 2].map(() => new Array(count).fill(null));
      history.start.forEach((begin, run) => {
        const contrast = levels.get(history.code[run]);
        if (!contrast) return;
        const values = [contrast.log, contrast.low, contrast.high].map((log) => unit.of(log, scale));
        const end = Math.min(history.start[run + 1] ?? count, last + 1);
        for (let place = Math.max(begin, first); place < end; place++) columns.forEach((column, at) => (column[place] = values[at]));
      });
      data.push(...columns);
    }
    return data;
  };

  /** A plot of a case: {element, update(state), select(place), close()}. */
  Tilegate.casePlot = ({ lines, commits, unit, axis, marks, seams, below, onmark, onrange }) => {
    const count = commits.hash.length;
    const x = axis === "time" ? times(commits.date) : Array.from({ length: count }, (_, at) => at);
    const data = [x];
    const series = [{}];
    const bands = [];
    const colours = () => lines.map((line, at) => Tilegate.css(at === 0 ? "--line" : "--beside"));
    const faded = (colour) => `${colour}2e`;
    lines.forEach((line, number) => {
      const columns = Tilegate.columnsOf(line.history, line.parts, unit, x);
      for (let at = 1; at < columns.length; at += 3) {
        const place = data.length;
        data.push(columns[at], columns[at + 2], columns[at + 1]);
        const stepped = uPlot.paths.stepped({ align: 1 });
        series.push(
          { stroke: () => colours()[number], width: 2, paths: stepped, points: { show: false }, spanGaps: false, dash: number ? [6, 3] : undefined },
          { stroke: "transparent", width: 0, paths: stepped, points: { show: false } },
          { stroke: "transparent", width: 0, paths: stepped, points: { show: false } },
        );
        bands.push({ series: [place + 1, place + 2], fill: () => faded(colours()[number]) });
      }
      const { observed } = line.history;
      if (observed && unit.absolute) {
        const column = new Array(count).fill(null);
        const seconds = Tilegate.floats(observed.seconds);
        observed.place.forEach((place, at) => (column[place] = unit.of(0, seconds[at])));
        data.push(column);
        series.push({ stroke: () => Tilegate.css("--muted"), paths: () => null, points: { show: true, size: 5, fill: () => Tilegate.css("--muted") } });
      }
    });

    const holder = h("div.plot", { tabindex: "0", role: "application", "aria-label": `Level by commit, ${unit.label}. Arrow keys go from change to change, plus and minus zoom, 0 shows everything. The table below holds the same.` });
    const tip = h("div.tip", { hidden: true });
    const layer = h("div.marks");
    const strip = h("div.strip", { "aria-hidden": "true" });
    const under = h("div.under", { role: "img", "aria-label": below ? `${below.label} by commit` : null });
    const element = h("div.plots", null, holder, below ? [h("p.under-title.muted", null, below.label), under] : null, strip);
    let range = [0, count - 1];
    let selected = null;
    let plot = null;
    let overview = null;
    let lower = null;

    const xOf = (place) => x[Math.max(0, Math.min(count - 1, Math.round(place)))];
    const margin = () => (x[count - 1] - x[0] || 1) * 0.01;
    const window_ = () => {
      const low = xOf(range[0]);
      const high = xOf(range[1]);
      const pad = range[0] === 0 && range[1] === count - 1 ? margin() : 0;
      return { min: low - pad, max: Math.max(high + pad, low + pad + 1e-9) };
    };

    const axisStyle = () => ({ stroke: Tilegate.css("--muted"), grid: { stroke: Tilegate.css("--grid"), width: 1 }, ticks: { stroke: Tilegate.css("--grid"), width: 1 }, font: "12px system-ui, sans-serif" });
    const span = (u, low, high) => {
      if (low === null || high === null) return [0, 1];
      const least = unit.absolute ? Math.abs(high) * 0.02 : 2;
      const room = Math.max(high - low, least);
      const middle = (low + high) / 2;
      return [middle - room * 0.62, middle + room * 0.62];
    };

    const drawLines = (u) => {
      const { ctx } = u;
      const { top, height, left, width } = u.bbox;
      const ratio = devicePixelRatio;
      ctx.save();
      ctx.beginPath();
      ctx.rect(left, top - 16 * ratio, width, height + 16 * ratio);
      ctx.clip();
      ctx.font = `${11 * ratio}px system-ui, sans-serif`;
      if (!unit.absolute) {
        const zero = u.valToPos(0, "y", true);
        ctx.strokeStyle = Tilegate.css("--muted");
        ctx.setLineDash([2 * ratio, 3 * ratio]);
        ctx.beginPath();
        ctx.moveTo(left, zero);
        ctx.lineTo(left + width, zero);
        ctx.stroke();
      }
      let free = -Infinity;
      for (const [name, place] of Tilegate.overview.releases) {
        const at = u.valToPos(xOf(place), "x", true);
        ctx.strokeStyle = Tilegate.css("--release");
        ctx.setLineDash([]);
        ctx.beginPath();
        ctx.moveTo(at, top);
        ctx.lineTo(at, top + height);
        ctx.stroke();
        if (at < free || at < left) continue;
        ctx.fillStyle = Tilegate.css("--muted");
        ctx.fillText(name, at + 3 * ratio, top - 4 * ratio);
        free = at + ctx.measureText(name).width + 12 * ratio;
      }
      for (const place of seams.keys()) {
        const at = u.valToPos(xOf(place), "x", true);
        ctx.strokeStyle = Tilegate.css("--seam");
        ctx.lineWidth = 2 * ratio;
        ctx.setLineDash([5 * ratio, 4 * ratio]);
        ctx.beginPath();
        ctx.moveTo(at, top);
        ctx.lineTo(at, top + height);
        ctx.stroke();
      }
      ctx.restore();
    };

    const buttons = new Map();
    const button = (mark) => {
      if (!buttons.has(mark.place)) {
        const made = h(
          "button",
          { type: "button", tabindex: "-1", class: `dot is-${mark.state}`, "data-place": mark.place, "aria-label": `${Tilegate.short(commits.hash[mark.place])}: ${Tilegate.states[mark.state].name}${mark.contrast ? `, ${Tilegate.format.change(mark.contrast.log)}` : ""}`, onclick: () => onmark(mark.place) },
          h("span", { "aria-hidden": "true" }, Tilegate.states[mark.state].mark),
        );
        // Else uPlot takes the click for the beginning of a drag.
        for (const kind of ["mousedown", "mouseup", "dblclick"]) made.addEventListener(kind, (event) => event.stopPropagation());
        buttons.set(mark.place, made);
      }
      return buttons.get(mark.place);
    };
    const seamButton = (place) => {
      const key = `seam${place}`;
      if (!buttons.has(key)) {
        const made = h("button.seam", { type: "button", tabindex: "-1", "aria-label": "Another environment begins here", title: "Another environment begins here", onclick: () => onmark(place, true) }, "\u2195");
        for (const kind of ["mousedown", "mouseup", "dblclick"]) made.addEventListener(kind, (event) => event.stopPropagation());
        buttons.set(key, made);
      }
      return buttons.get(key);
    };

    /** The value that the first line has at a place. */
    const valueAt = (place) => {
      for (let at = 1; at < 1 + 3 * lines[0].parts.length; at += 3) if (data[at][place] !== null) return data[at][place];
      return null;
    };

    const drawMarks = (u) => {
      const { min, max } = u.scales.x;
      const visible = marks.filter((mark) => xOf(mark.place) >= min && xOf(mark.place) <= max && valueAt(mark.place) !== null);
      const weight = (mark) => (mark.state === "slower" || mark.state === "faster" || mark.state === "contradicted" ? 1e6 : 0) + (mark.contrast ? Math.abs(mark.contrast.log) / (mark.contrast.error || 1) : 0);
      const kept = visible.length > MOST_MARKS ? [...visible].sort((a, b) => weight(b) - weight(a)).slice(0, MOST_MARKS) : visible;
      const wanted = new Set();
      for (const mark of kept) {
        const made = button(mark);
        made.style.transform = `translate(${u.valToPos(xOf(mark.place), "x")}px, ${u.valToPos(valueAt(mark.place), "y")}px)`;
        made.classList.toggle("chosen", mark.place === selected);
        made.classList.toggle("minor", mark.state === "same" || mark.state === "identical");
        wanted.add(made);
      }
      for (const place of seams.keys()) {
        if (xOf(place) < min || xOf(place) > max) continue;
        const made = seamButton(place);
        made.style.transform = `translate(${u.valToPos(xOf(place), "x")}px, 8px)`;
        wanted.add(made);
      }
      for (const child of [...layer.children]) if (!wanted.has(child)) child.remove();
      for (const made of wanted) if (made.parentNode !== layer) layer.append(made);
    };

    const tell = (u) => {
      const at = u.cursor.idx;
      if (at === null || at === undefined || u.cursor.left < 0) {
        tip.hidden = true;
        return;
      }
      const rows = [];
      lines.forEach((line) => {
        for (const part of line.parts) {
          if (at < part.first || at > part.last) continue;
          const version = Tilegate.versionAt(line.history, at);
          const contrast = part.levels.get(version);
          if (!contrast) continue;
          const scale = Tilegate.scaleOf(part.segment) * Math.exp(part.segment.levels[part.segment.index.get(part.reference)] - part.segment.levels[part.segment.index.get(part.segment.reference)]);
          rows.push(h("p", null, lines.length > 1 ? h("span.muted", null, `${line.name}: `) : null, h("b", null, unit.show(unit.of(contrast.log, scale))), contrast.error ? h("small", null, ` ${Tilegate.format.half(contrast.low, contrast.high)}\u202f%`) : null));
        }
      });
      if (!rows.length) rows.push(h("p.muted", null, why(lines[0].history, at)));
      tip.replaceChildren(h("p", null, h("span.hash", null, Tilegate.short(commits.hash[at])), Tilegate.releaseAt(at) ? h("span.tag", null, Tilegate.releaseAt(at)) : null), h("p.subject", null, commits.subject[at]), h("p.muted", null, `${commits.author[at]}, ${Tilegate.format.date(commits.date[at])}`), rows);
      tip.hidden = false;
      const room = u.over.clientWidth;
      const left = u.cursor.left + 14 + tip.offsetWidth > room ? u.cursor.left - tip.offsetWidth - 14 : u.cursor.left + 14;
      tip.style.transform = `translate(${Math.max(0, left)}px, ${Math.max(0, Math.min(u.cursor.top, u.over.clientHeight - tip.offsetHeight))}px)`;
    };

    const why = (history, place) => {
      const at = history.failed ? history.failed.place.indexOf(place) : -1;
      if (at >= 0) return `No code: ${history.failed.reasons[history.failed.reason[at]]}`.slice(0, 160);
      return Tilegate.versionAt(history, place) < 0 ? "Its code is not known here." : "Not measured.";
    };

    const placeOf = (value) => {
      if (axis !== "time") return Math.round(value);
      let low = 0;
      let high = count - 1;
      while (low < high) {
        const middle = (low + high) >> 1;
        if (x[middle] < value) low = middle + 1;
        else high = middle;
      }
      return low;
    };
    const clamp = (from, to) => {
      const width = Math.max(2, Math.min(count - 1, to - from));
      const begin = Math.max(0, Math.min(count - 1 - width, from));
      return [Math.round(begin), Math.round(begin + width)];
    };
    const zoom = (from, to, settled = true) => {
      range = count < 3 ? [0, count - 1] : clamp(from, to);
      plot.setScale("x", window_());
      lower?.setScale("x", window_());
      mirror();
      if (settled) onrange(range[0] === 0 && range[1] === count - 1 ? null : range);
    };
    const mirror = () => {
      if (!overview || overview.status !== 1) return;
      const low = overview.valToPos(xOf(range[0]), "x");
      const high = overview.valToPos(xOf(range[1]), "x");
      overview.setSelect({ left: low, width: Math.max(2, high - low), top: 0, height: overview.over.clientHeight }, false);
    };

    const size = () => ({ width: Math.max(280, holder.clientWidth), height: Math.max(220, Math.min(420, Math.round(innerHeight * 0.42))) });
    const create = () => {
      plot?.destroy();
      overview?.destroy();
      lower?.destroy();
      buttons.clear();
      layer.replaceChildren();
      plot = new uPlot(
        {
          ...size(),
          padding: [18, 12, 0, 4],
          legend: { show: false },
          cursor: { drag: { x: true, y: false, setScale: false }, points: { size: 7 }, dataIdx: (u, number, at) => at, focus: { prox: -1 } },
          scales: { x: { time: axis === "time", range: () => [window_().min, window_().max] }, y: { range: span } },
          axes: [
            { ...axisStyle(), values: axis === "time" ? undefined : (u, ticks) => ticks.map((tick) => (Number.isInteger(tick) && tick >= 0 && tick < count ? Tilegate.short(commits.hash[tick]).slice(0, 7) : "")), space: 80 },
            { ...axisStyle(), size: 74, values: (u, ticks) => ticks.map((tick) => (unit.absolute ? unit.show(tick) : `${tick > 0 ? "+" : tick < 0 ? "\u2212" : ""}${Number(Math.abs(tick).toFixed(2))}\u202f%`)) },
          ],
          series,
          bands,
          hooks: {
            drawClear: [drawLines],
            draw: [drawMarks],
            setCursor: [tell],
            setSelect: [(u) => {
              if (u.select.width > 4) zoom(placeOf(u.posToVal(u.select.left, "x")), placeOf(u.posToVal(u.select.left + u.select.width, "x")));
              u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
            }],
          },
        },
        data,
        holder,
      );
      plot.over.append(layer, tip);
      plot.over.addEventListener("dblclick", () => zoom(0, count - 1));
      plot.over.addEventListener("mouseleave", () => (tip.hidden = true));
      plot.over.addEventListener("wheel", wheel, { passive: false });
      if (below) {
        lower = new uPlot(
          {
            width: size().width,
            height: 96,
            padding: [6, 12, 0, 4],
            legend: { show: false },
            cursor: { drag: { x: false }, y: false },
            scales: { x: { time: axis === "time", range: () => [window_().min, window_().max] }, y: { range: (u, low, high) => (low === null ? [0, 1] : low === high ? [low - 1, high + 1] : [low - (high - low) * 0.15, high + (high - low) * 0.15]) } },
            axes: [{ ...axisStyle(), values: () => [], size: 8 }, { ...axisStyle(), size: 74, space: 24 }],
            series: [{}, { stroke: () => Tilegate.css("--muted"), width: 2, paths: uPlot.paths.stepped({ align: 1 }), points: { show: false } }],
          },
          [x, below.column(count)],
          under,
        );
      }
      const first = lines[0].parts.length;
      overview = new uPlot(
        {
          width: size().width,
          height: 54,
          padding: [4, 12, 4, 78],
          legend: { show: false },
          cursor: { x: false, y: false, points: { show: false }, drag: { x: true, y: false, setScale: false } },
          scales: { x: { time: false, range: () => [x[0] - margin(), x[count - 1] + margin()] }, y: { range: span } },
          axes: [{ show: false }, { show: false }],
          series: [{}, ...Array.from({ length: first }, () => ({ stroke: () => Tilegate.css("--muted"), width: 1.2, paths: uPlot.paths.stepped({ align: 1 }), points: { show: false } }))],
          hooks: {
            ready: [() => queueMicrotask(mirror)],
            setSelect: [(u) => {
              const width = u.select.width;
              const from = placeOf(u.posToVal(u.select.left, "x"));
              // A click moves the window there, a drag draws another.
              if (width < 4) zoom(from - (range[1] - range[0]) / 2, from + (range[1] - range[0]) / 2);
              else zoom(from, placeOf(u.posToVal(u.select.left + width, "x")));
            }],
          },
        },
        [x, ...Array.from({ length: first }, (_, at) => data[1 + 3 * at])],
        strip,
      );
      mirror();
    };

    let settling = 0;
    const wheel = (event) => {
      const width = range[1] - range[0];
      if (event.ctrlKey) {
        const middle = placeOf(plot.posToVal(plot.cursor.left, "x"));
        const factor = event.deltaY > 0 ? 1.25 : 0.8;
        zoom(middle - (middle - range[0]) * factor, middle + (range[1] - middle) * factor, false);
      } else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        zoom(range[0] + (event.deltaX / plot.over.clientWidth) * width, range[1] + (event.deltaX / plot.over.clientWidth) * width, false);
      } else return;
      event.preventDefault();
      clearTimeout(settling);
      settling = setTimeout(() => onrange(range[0] === 0 && range[1] === count - 1 ? null : range), 400);
    };

    holder.addEventListener("keydown", (event) => {
      const width = range[1] - range[0];
      const middle = (range[0] + range[1]) / 2;
      const keys = {
        "+": () => zoom(middle - width / 4, middle + width / 4),
        "=": () => zoom(middle - width / 4, middle + width / 4),
        "-": () => zoom(middle - width, middle + width),
        0: () => zoom(0, count - 1),
        Escape: () => onmark(null),
        ArrowRight: () => (event.shiftKey ? zoom(range[0] + width / 5, range[1] + width / 5) : step(1)),
        ArrowLeft: () => (event.shiftKey ? zoom(range[0] - width / 5, range[1] - width / 5) : step(-1)),
      };
      if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      keys[event.key]();
    });
    const step = (direction) => {
      if (!marks.length) return;
      const at = marks.findIndex((mark) => mark.place === selected);
      const next = at < 0 ? (direction > 0 ? 0 : marks.length - 1) : Math.max(0, Math.min(marks.length - 1, at + direction));
      const { place } = marks[next];
      if (place < range[0] || place > range[1]) zoom(place - (range[1] - range[0]) / 2, place + (range[1] - range[0]) / 2);
      onmark(place);
    };

    const watcher = new ResizeObserver(() => {
      if (!plot || Math.abs(plot.width - size().width) < 2) return;
      plot.setSize(size());
      overview.setSize({ width: size().width, height: 54 });
      lower?.setSize({ width: size().width, height: 96 });
      mirror();
    });

    return {
      element,
      ready(from, to, mark) {
        selected = mark;
        range = clamp(from ?? 0, to ?? count - 1);
        if (count < 3) range = [0, count - 1];
        create();
        watcher.observe(holder);
      },
      update(from, to, mark) {
        selected = mark;
        const next = count < 3 ? [0, count - 1] : clamp(from ?? 0, to ?? count - 1);
        if (next[0] !== range[0] || next[1] !== range[1]) zoom(next[0], next[1], false);
        else drawMarks(plot);
      },
      recolour: create,
      close() {
        watcher.disconnect();
        plot?.destroy();
        overview?.destroy();
        lower?.destroy();
      },
    };
  };

  /** Dates in order: the branch's order counts, and clocks that disagree with it are moved up. */
  const times = (dates) => {
    let last = -Infinity;
    return dates.map((date) => {
      last = Math.max(Number.isFinite(date) ? date : last, last + 1e-3);
      return Number.isFinite(last) ? last : 0;
    });
  };
})();
