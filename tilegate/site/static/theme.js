"use strict";
// Runs before the page is drawn, so that a chosen theme never flashes.
(() => {
  let chosen = null;
  try {
    chosen = localStorage.getItem("tilegate-theme");
  } catch {
    // Storage may be closed to a page from file://; the system's preference then decides.
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
