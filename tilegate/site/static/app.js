"use strict";
// The address is the state: #/view/argument?key=value. Views read it, and change it by Tilegate.go.

(() => {
  const PAGES = [
    ["today", "Today"],
    ["inbox", "Regressions"],
    ["compare", "Compare"],
    ["machine", "Measuring"],
    ["roofline", "Roofline"],
  ];
  const { h } = Tilegate;

  Tilegate.address = () => {
    const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
    const [view, ...rest] = path.split("/");
    let argument = rest.join("/");
    try {
      argument = decodeURIComponent(argument);
    } catch {
      // A broken escape is taken as it is written.
    }
    return { view: view || "today", argument, state: Object.fromEntries(new URLSearchParams(query)) };
  };

  /** Change parts of the state; null takes one away. `replace` leaves no step for the back button. */
  Tilegate.go = (changes, { replace = false } = {}) => {
    const { view, argument, state } = Tilegate.address();
    const next = { ...state, ...changes };
    const query = new URLSearchParams(Object.entries(next).filter(([, value]) => value !== null && value !== undefined && value !== "")).toString();
    const hash = `#/${view}${argument ? `/${encodeURIComponent(argument)}` : ""}${query ? `?${query}` : ""}`;
    if (hash === location.hash) return;
    if (replace) {
      history.replaceState(null, "", hash);
      show();
    } else location.hash = hash;
  };

  let shown = { view: null, argument: null };
  let turn = 0;

  const show = async () => {
    const { view, argument, state } = Tilegate.address();
    const main = document.getElementById("main");
    // The same page with another state: a view that can change in place does, and keeps focus and scroll.
    if (shown.view === view && shown.argument === argument && shown.update) {
      shown.update(state);
      return;
    }
    const mine = ++turn;
    const same = shown.view === view && shown.argument === argument;
    const focused = same ? document.activeElement?.id : null;
    const scroll = same ? window.scrollY : 0;
    shown.close?.();
    shown = { view, argument };
    for (const link of document.querySelectorAll("#nav a")) {
      if (link.dataset.view === view) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    const page = h("div.page", { class: `page page-${view}` });
    try {
      const draw = Tilegate.views[view];
      if (!draw) throw new Error(`There is no page called ${view}.`);
      const handle = (await draw(page, argument, state)) ?? {};
      if (mine !== turn) {
        handle.close?.();
        return;
      }
      main.replaceChildren(page);
      handle.ready?.();
      shown = { view, argument, ...handle };
      const heading = page.querySelector("h1");
      document.title = `${heading ? heading.textContent : view} \u2013 ${Tilegate.overview.title}`;
      if (focused && focused !== "main") document.getElementById(focused)?.focus();
      else if (!same && turn > 1) main.focus({ preventScroll: true });
      window.scrollTo(0, scroll);
    } catch (error) {
      if (mine !== turn) return;
      main.replaceChildren(h("div.page", null, h("h1", null, "This cannot be shown"), h("p", null, error.message), h("p", null, h("a", { href: "#/today" }, "Back to today"))));
    }
    main.dataset.shown = location.hash || "#/today";
  };

  /** Draw the page again, though only its state changed. */
  Tilegate.redraw = () => {
    delete shown.update;
    return show();
  };

  const THEMES = { "": ["light", "\u25d0", "the system's"], light: ["dark", "\u2600", "light"], dark: ["", "\u263e", "dark"] };
  const drawTheme = () => {
    const current = document.documentElement.dataset.theme ?? "";
    const button = document.getElementById("theme");
    const [, sign, name] = THEMES[current];
    button.textContent = sign;
    button.setAttribute("aria-label", `Colours: ${name}. Change`);
    button.title = `Colours: ${name}`;
  };

  const start = () => {
    if (!Tilegate.overview) {
      document.getElementById("main").replaceChildren(h("h1", null, "No data"), h("p", null, "data/overview.js is missing. Build the site again: tilegate site build."));
      return;
    }
    Tilegate.begin();
    document.getElementById("title").textContent = Tilegate.overview.title;
    const open = Tilegate.overview.entries.filter((entry) => entry.open).length;
    document.getElementById("nav").append(
      ...PAGES.map(([view, name]) => h("a", { href: `#/${view}`, "data-view": view }, name, view === "inbox" && open ? h("span.count", { "aria-label": `${open} open` }, String(open)) : null)),
    );
    document.getElementById("foot").append(
      h("span", null, `${Tilegate.format.plural(Tilegate.overview.commits.count, "commit")}, ${Tilegate.format.plural(Tilegate.count, "case")}. Intervals are 95 %.`),
      h("span", null, h("a", { href: "feed.xml" }, "Feed"), " \u00b7 ", h("a", { href: "json/today.json" }, "JSON")),
    );
    document.getElementById("theme").addEventListener("click", () => {
      const [next] = THEMES[document.documentElement.dataset.theme ?? ""];
      if (next) document.documentElement.dataset.theme = next;
      else delete document.documentElement.dataset.theme;
      try {
        localStorage.setItem("tilegate-theme", next);
      } catch {
        // Not kept, then.
      }
      drawTheme();
      shown.recolour?.();
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => shown.recolour?.());
    document.getElementById("skip").addEventListener("click", (event) => {
      event.preventDefault(); // the address is taken by the state
      document.getElementById("main").focus();
    });
    drawTheme();
    Tilegate.startSearch();
    window.addEventListener("hashchange", show);
    show();
  };
  start();
})();
