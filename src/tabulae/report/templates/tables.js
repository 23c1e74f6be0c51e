"use strict";
/* Sorts and filters the tables marked data-sort. The page is whole without it. */
(() => {
  const words = new Intl.Collator("en", { numeric: true, sensitivity: "base" });
  const MANY = 8;

  /* What a cell is sorted by: its rank, or its first number where the column is one of numbers, or its text. */
  function key(cell, numbers) {
    if (cell.dataset.rank !== undefined) return Number(cell.dataset.rank);
    const text = cell.textContent.trim();
    if (!numbers) return text;
    const found = text.replace(/\u2212/g, "-").replace(/,/g, "").match(/^±?(-?[\d.]+)/);
    return found ? Number(found[1]) : null;
  }

  function compare(a, b) {
    return typeof a === "number" ? a - b : words.compare(a, b);
  }

  /* Rows by one column; equal ones keep their order, and cells without a value stand last in either direction. */
  function sorted(rows, column, numbers, sign) {
    const keyed = rows.map((row) => ({ row, key: key(row.cells[column], numbers) }));
    const known = keyed.filter((each) => each.key !== null).sort((a, b) => sign * compare(a.key, b.key));
    return [...known, ...keyed.filter((each) => each.key === null)].map((each) => each.row);
  }

  function sortable(table) {
    const body = table.tBodies[0];
    const original = [...body.rows];
    const heads = table.tHead.rows[table.tHead.rows.length - 1].cells;
    for (const head of heads) {
      if (head.tagName !== "TH") continue;
      const button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.append(...head.childNodes);
      head.append(button);
      const numbers = head.classList.contains("n") || head.classList.contains("trust");
      button.addEventListener("click", () => {
        const before = head.getAttribute("aria-sort");
        for (const other of heads) other.removeAttribute("aria-sort");
        if (before === "descending") {
          body.append(...original);
          return;
        }
        const after = before === "ascending" ? "descending" : "ascending";
        head.setAttribute("aria-sort", after);
        body.append(...sorted(original, head.cellIndex, numbers, after === "ascending" ? 1 : -1));
      });
    }
  }

  /* A field that keeps the rows in which every word of it occurs, and says how many they are. */
  function filterable(table, place) {
    const rows = [...table.tBodies[0].rows];
    if (rows.length < MANY) return;
    const texts = rows.map((row) => row.textContent.toLowerCase() + " ");
    const region = table.parentElement;
    const tools = document.createElement("div");
    tools.className = "tools";
    const label = document.createElement("label");
    label.htmlFor = `filter-${place}`;
    const { rows: all, file } = table.dataset;
    const here = rows.length.toLocaleString("en");
    label.textContent = all ? `Filter these ${here} of ${all} rows` : "Filter rows";
    const hidden = document.createElement("span");
    hidden.className = "hear";
    hidden.textContent = ` of ${region.getAttribute("aria-label")}`;
    label.append(hidden);
    const field = document.createElement("input");
    field.type = "search";
    field.id = label.htmlFor;
    field.autocomplete = "off";
    const told = document.createElement("p");
    told.setAttribute("role", "status");
    told.setAttribute("aria-live", "polite");
    tools.append(label, field, told);
    region.before(tools);
    field.addEventListener("input", () => {
      const asked = field.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      rows.forEach((row, i) => {
        row.hidden = !asked.every((word) => texts[i].includes(word));
        if (!row.hidden) shown += 1;
      });
      const searched = all ? `the ${here} rows on this page` : `${here} rows`;
      const rest = all ? `; all ${all} rows are in ${file}` : "";
      told.textContent = asked.length ? `${shown} of ${searched} have “${field.value.trim()}”${rest}` : "";
    });
  }

  [...document.querySelectorAll("table[data-sort]")].forEach((table, i) => {
    filterable(table, i + 1);
    sortable(table);
  });

  /* On paper nothing is folded. */
  const folded = () => [...document.querySelectorAll("details:not([open])")];
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = folded();
    for (const each of opened) each.open = true;
  });
  addEventListener("afterprint", () => {
    for (const each of opened) each.open = false;
  });
})();
