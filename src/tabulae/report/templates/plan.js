"use strict";
/* Moves the budget among those whose numbers stand in the page. The page is whole without it. */
(() => {
  const plan = JSON.parse(document.getElementById("plan-data").textContent);
  const slider = document.getElementById("slider");
  const moving = [...document.querySelectorAll("[data-live]")];
  const rows = [...document.querySelectorAll("[data-row]")].map((row) => ({
    numbers: [...row.querySelectorAll("[data-number]")],
    met: row.querySelector("[data-met]"),
  }));
  const STATES = ["✗ missed", "✓ met", "? not told"];

  /* Only what differs is written, so that a live region tells changes alone. */
  function write(element, text) {
    if (element.textContent !== text) element.textContent = text;
  }

  function show(at) {
    const stop = plan.stops[at];
    for (const element of moving) write(element, stop.texts[element.dataset.live]);
    rows.forEach(({ numbers, met }, i) => {
      numbers.forEach((cell, j) => write(cell, stop.rows[i][j]));
      if (!met || !plan.targets[i]) return;
      write(met, STATES[stop.met[i]]);
      met.className = `nowrap met-${stop.met[i]}`;
    });
    slider.setAttribute("aria-valuetext", stop.said);
  }

  function go(at) {
    slider.value = String(at);
    show(at);
  }

  slider.addEventListener("input", () => show(Number(slider.value)));
  document.getElementById("to-own").addEventListener("click", () => go(plan.own));
  document.getElementById("to-smallest")?.addEventListener("click", () => go(plan.smallest));
  document.getElementById("slide").hidden = false;
  go(plan.own);
})();
