"use strict";

/** The box in the head: cases by any part of their id, commits by hash, subject, author or release. */
Tilegate.startSearch = () => {
  const { h, overview } = Tilegate;
  const input = document.getElementById("search");
  const list = document.getElementById("found");
  const MOST = 8;
  let chosen = -1;
  let commits = null;

  const close = () => {
    list.hidden = true;
    list.replaceChildren();
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
    chosen = -1;
  };
  const fits = (text, words) => words.every((word) => text.includes(word));
  const find = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length) return close();
    const found = [];
    for (let at = 0; at < Tilegate.count && found.length < MOST; at++) {
      if (fits(overview.cases.name[at].toLowerCase(), words)) found.push([`#/case/${overview.cases.id[at]}`, Tilegate.mark(overview.cases.state[at]), Tilegate.fullName(at), "case"]);
    }
    const most = found.length + MOST;
    for (let at = (commits?.hash.length ?? 0) - 1; at >= 0 && found.length < most; at--) {
      const text = `${commits.hash[at]} ${commits.subject[at]} ${commits.author[at]} ${Tilegate.releaseAt(at) ?? ""}`.toLowerCase();
      if (fits(text, words)) found.push([`#/commit/${commits.hash[at].slice(0, 12)}`, h("span.hash", null, Tilegate.short(commits.hash[at])), commits.subject[at], Tilegate.releaseAt(at) ?? "commit"]);
    }
    list.replaceChildren(
      ...found.map(([href, sign, text, kind], at) => h("a", { href, role: "option", id: `found-${at}`, tabindex: "-1", "aria-selected": "false", onclick: () => { input.value = ""; close(); } }, sign, h("span.subject", null, text), h("small", null, kind))),
    );
    if (!found.length) list.replaceChildren(h("p.muted", null, commits ? "Nothing fits." : "Looking \u2026"));
    list.hidden = false;
    input.setAttribute("aria-expanded", "true");
    chosen = -1;
  };
  const choose = (at) => {
    const options = list.querySelectorAll("a");
    if (!options.length) return;
    options[chosen]?.setAttribute("aria-selected", "false");
    chosen = (at + options.length) % options.length;
    options[chosen].setAttribute("aria-selected", "true");
    options[chosen].scrollIntoView({ block: "nearest" });
    input.setAttribute("aria-activedescendant", `found-${chosen}`);
  };
  input.addEventListener("input", find);
  input.addEventListener("focus", async () => {
    commits = await Tilegate.commits();
    if (input.value) find();
  });
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown") choose(chosen + 1);
    else if (event.key === "ArrowUp") choose(chosen - 1);
    else if (event.key === "Enter") list.querySelectorAll("a")[Math.max(chosen, 0)]?.click();
    else if (event.key === "Escape") close();
    else return;
    event.preventDefault();
  });
  document.addEventListener("click", (event) => {
    if (!event.target.closest(".search")) close();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && !event.ctrlKey && !event.metaKey && !event.altKey && !/^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) {
      event.preventDefault();
      input.focus();
    }
  });
};
