"use strict";
/* Sends what was typed and what the form's controls hold, and shows what the server says of it. */
(() => {
  const byId = (id) => document.getElementById(id);
  const [text, told, saved, frame, list, form] = ["text", "told", "saved", "plan", "problems", "form"].map(byId);
  const PAUSE = 250, SOON = 200, LATER = 3000, HELD = 3000; // milliseconds
  const opened = new Set(["source", "privacy"]);
  let typed = false, pausing, asking, version = -1, shown = 0, drawn = -1, latest, queue = Promise.resolve(), waiting = 0, lifted;

  function write(element, words) {
    if (element.textContent !== words) element.textContent = words;
  }

  async function ask(path, body) {
    const request = body && {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
    };
    const answer = await fetch(path, request);
    if (!answer.ok) throw new Error((await answer.text()).trim());
    return answer.headers.get("Content-Type").startsWith("application/json") ? answer.json() : answer.text();
  }

  /* One request after the other, so that each is about the text that the one before it left. */
  function next(step) {
    waiting += 1;
    form.setAttribute("aria-busy", "true");
    queue = queue.then(step).catch((error) => {
      write(told, error instanceof TypeError ? "The studio was stopped in its terminal." : `${error.message}.`);
      return error;
    }).finally(() => {
      waiting -= 1;
      form.setAttribute("aria-busy", String(waiting > 0));
    });
    return queue;
  }

  /* The line of a mistake is selected and brought into view. */
  function goTo(line) {
    const lines = text.value.split("\n");
    const start = lines.slice(0, line - 1).reduce((sum, each) => sum + each.length + 1, 0);
    text.focus();
    text.setSelectionRange(start, start + (lines[line - 1] || "").length);
    scrollTo(line);
  }

  function scrollTo(line) {
    text.scrollTop = (line - 4) * parseFloat(getComputedStyle(text).lineHeight);
  }

  const seconds = (left) => (left >= 90 ? `${Math.round(left / 60)} min` : `${Math.max(1, Math.round(left))} s`);

  /* What can be run, and how far a run is; drawn anew when a run or the file has another state. */
  async function showRuns({ run, unsaved, changed, version, problems }) {
    const running = run?.state === "running", pane = byId("runs");
    if (pane.hidden) return;
    const now = JSON.stringify([run?.state, run?.charged, unsaved, changed, version, problems.length]);
    if (pane.dataset.now !== now) {
      const held = document.activeElement?.id;
      pane.innerHTML = await ask("/runs");
      pane.dataset.now = now;
      if (held) byId(held)?.focus();
      byId("cancel").addEventListener("click", () => act("/cancel", () => ({})).then((error) => error && write(byId("price"), error.message)));
      byId("stop").addEventListener("click", () => act("/stop", () => ({})));
      byId("stop").hidden = !run?.charged;
      byId("cancel").hidden = Boolean(run?.charged);
      if (running && run.charged) write(byId("price"), "The ledger is charged. Stopping now gives nothing back: noise that is not stored yet is lost, and what is stored waits for Resume.");
    }
    byId("progress").hidden = !run;
    if (!run) return;
    byId("share").hidden = !running;
    byId("cancel").disabled = byId("stop").disabled = !running;
    byId("cancel").hidden ||= !running;
    byId("stop").hidden ||= !running;
    if (run.share === null) byId("share").removeAttribute("value");
    else byId("share").value = run.share;
    const left = run.left === null ? "" : `, about ${seconds(run.left)} left`;
    write(byId("step"), running ? `${run.step[0].toUpperCase()}${run.step.slice(1)}${left}.` : run.state === "done" ? "Done." : run.message);
  }

  function see(runs) {
    byId("runs").hidden = !runs;
    frame.hidden = runs;
    byId("budget").hidden = runs;
    byId("see-plan").setAttribute("aria-pressed", String(!runs));
    byId("see-runs").setAttribute("aria-pressed", String(runs));
    next(look);
  }

  /* A text from the server takes the place of the old one, with what differs in view. */
  function setText(now) {
    const before = text.value;
    if (typed || now === before) return;
    let same = 0;
    while (same < now.length && now[same] === before[same]) same += 1;
    text.value = now;
    text.setSelectionRange(same, same);
    scrollTo(now.slice(0, same).split("\n").length);
  }

  function mistake({ path, line, message }) {
    const item = document.createElement("li"), button = document.createElement("button");
    button.type = "button";
    button.textContent = `${line ? `Line ${line}, ` : ""}${path}: ${message}`;
    button.addEventListener("click", () => (line ? goTo(line) : text.focus()));
    item.append(button);
    return item;
  }

  const within = (path, at) => path === at || path.startsWith(`${at}.`) || path.startsWith(`${at}[`);

  /* Each mistake stands at the control of its key, or at the nearest that is shown. */
  function mark() {
    for (const each of form.querySelectorAll("[aria-invalid]")) {
      each.removeAttribute("aria-invalid");
      const kept = (each.getAttribute("aria-describedby") || "").split(" ").filter((name) => !name.startsWith("m-"));
      kept.length ? each.setAttribute("aria-describedby", kept.join(" ")) : each.removeAttribute("aria-describedby");
    }
    for (const each of form.querySelectorAll(".mistake")) each.remove();
    for (const each of form.querySelectorAll(".wrong")) each.classList.remove("wrong");
    const places = [...form.querySelectorAll("[data-at]")];
    for (const { path, message } of latest.problems) {
      const around = places.filter((each) => within(path, each.dataset.at));
      const place = around.sort((a, b) => b.dataset.at.length - a.dataset.at.length)[0];
      if (place) point(place, message);
    }
  }

  function point(place, message) {
    place.closest("details.entry")?.classList.add("wrong");
    if (place.matches("details:not([open])")) return;
    const note = document.createElement("p");
    note.className = "mistake";
    note.textContent = message;
    if (place.matches("input, select, textarea")) {
      place.setAttribute("aria-invalid", "true");
      note.id = `m-${place.id}`;
      place.setAttribute("aria-describedby", `${note.id} ${place.getAttribute("aria-describedby") || ""}`.trim());
      place.after(note);
    } else (place.querySelector("summary, legend") || place.lastChild).after(note);
  }

  /* The form is drawn anew, with the focus, and what is being typed, where it was. */
  async function draw() {
    const wanted = () => [...opened].map((each) => `open=${encodeURIComponent(each)}`).join("&");
    let query, page;
    do {
      page = await ask(`/form?${query = wanted()}`);
      await lifted;
    } while (query !== wanted()); // what was opened meanwhile stays open
    const held = document.activeElement, mine = form.contains(held) && held.id;
    const unsent = mine && "value" in held && held.value !== held.defaultValue ? held.value : null;
    const top = form.parentElement.scrollTop;
    form.innerHTML = page;
    form.parentElement.scrollTop = top;
    const again = mine && byId(mine);
    if (again) {
      if (unsent !== null && again.matches("input:not([type=checkbox]), textarea")) {
        again.value = unsent;
        again.dataset.unsent = "";
      }
      again.focus({ preventScroll: true });
    }
    drawn = version;
    mark();
    margins();
  }

  /* From the click on: the browser tells of it in an event that comes later, and never where the form was drawn meanwhile. */
  function turn({ dataset: { open: name } }, open) {
    if (!name || opened.has(name) === open) return;
    open ? opened.add(name) : opened.delete(name);
    if (open) next(draw);
  }

  function margins() {
    for (const each of form.querySelectorAll("[data-costs]")) write(each, latest.costs[each.dataset.costs] || "");
    for (const each of form.querySelectorAll("[data-margin]")) write(each, latest.margins[each.dataset.margin] || "");
  }

  /* A new plan takes the place of the old one, where the reader was. */
  function showPlan(plan) {
    if (plan === shown) return;
    shown = plan;
    const top = frame.contentWindow.scrollY;
    frame.addEventListener("load", () => frame.contentWindow.scrollTo(0, top), { once: true });
    frame.contentWindow.location.replace(`/plan?version=${plan}`);
    byId("budget").disabled = false;
  }

  async function show(state) {
    const mistakes = state.problems.length;
    latest = state;
    write(saved, state.unsaved ? "Not saved yet." : "Saved.");
    byId("changed").hidden = !state.changed;
    byId("undo").disabled = !state.undo;
    byId("redo").disabled = !state.redo;
    if (state.read) list.replaceChildren(...state.problems.map(mistake));
    const older = state.plan ? "The plan is of an earlier text." : "There is no plan yet.";
    write(told, state.busy ? "Planning." : mistakes ? `Mistakes: ${mistakes}. ${older}` : "The plan is of this text.");
    byId("unplanned").hidden = state.plan > 0 || frame.hidden;
    text.setAttribute("aria-invalid", String(mistakes > 0));
    showPlan(state.plan);
    if (state.version !== version && !typed) {
      if (!("text" in state)) Object.assign(state, await ask("/text"));
      version = state.version;
      setText(state.text);
    }
    if (drawn !== version) await draw();
    else if (!state.busy) mark();
    margins();
    await showRuns(state);
    clearTimeout(asking);
    asking = setTimeout(() => next(look), state.busy || state.run?.state === "running" ? SOON : LATER);
  }

  const look = async () => show(await ask("/state"));

  /* What was typed and is not sent goes first. */
  async function flush() {
    clearTimeout(pausing);
    if (!typed) return;
    typed = false;
    const state = await ask("/edit", { text: text.value });
    if (!typed) version = state.version;
    await show(state);
  }

  function act(path, body) {
    return next(async () => {
      await flush();
      await show(await ask(path, body()));
    });
  }

  const change = (element, value, op = element.dataset.op) =>
    act("/change", () => ({ op, path: JSON.parse(element.dataset.path), value, version })).then((error) => {
      if (error && element.isConnected) point(element.matches("input, select, textarea") ? element : element.lastElementChild, error.message);
    });

  const save = (over) => act("/save", () => ({ text: text.value, over }));

  text.addEventListener("input", () => {
    typed = true;
    clearTimeout(pausing);
    pausing = setTimeout(() => next(flush), PAUSE);
  });
  form.addEventListener("change", ({ target }) => {
    const { op, name, kind } = target.dataset;
    if (op === "member") change(target, { name, value: target.checked });
    else if (op) change(target, { kind, value: target.type === "checkbox" ? (target.checked ? "on" : "") : target.value });
  });
  form.addEventListener("focusout", ({ target }) => {
    if (!("unsent" in target.dataset)) return;
    delete target.dataset.unsent; // the browser does not tell a change of what a script put back
    target.dispatchEvent(new Event("change", { bubbles: true }));
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const { target } = event, values = Object.fromEntries(new FormData(target));
    const { op, path } = target.dataset;
    if (op === "add") {
      const at = JSON.parse(path), count = form.querySelectorAll(`[data-at^="${at[0]}["]`).length;
      opened.add(at.length === 1 && values.name && !["table", "derived"].includes(at[0]) ? `${at[0]}.${values.name}` : `${at[0]}[${count}]`);
    }
    target.reset(); // before the form is drawn anew, with what is not sent yet
    change(target, values).then((error) => {
      if (error && target.isConnected) for (const [name, value] of Object.entries(values)) target.elements[name].value = value;
    });
  });
  form.addEventListener("click", (event) => {
    const { target } = event;
    if (target.matches("button[data-op]")) change(target, null);
    const above = target.closest("summary")?.parentElement;
    if (above) turn(above, !above.open);
    if (target.matches("[data-cost]")) act("/cost", () => ({ table: Number(target.dataset.cost) }));
    const strip = target.closest("svg.strip");
    if (strip) {
      const box = strip.getBoundingClientRect(), { low, high } = strip.dataset;
      const at = Math.round(Number(low) + ((event.clientX - box.left) / box.width) * (high - low + 1));
      if (at > Number(low) && at <= Number(high)) change(strip, { at }, "edge");
    }
  });
  /* Nothing is drawn anew under a finger: what it pressed would be gone when it lifts, and with it the click. */
  form.addEventListener("pointerdown", ({ target }) => {
    if (target.matches("select")) return; // its list takes the end of the press
    lifted = new Promise((done) => {
      for (const end of ["pointerup", "pointercancel"]) addEventListener(end, () => setTimeout(done), { once: true }); // after the click
      setTimeout(done, HELD);
    });
  });
  form.addEventListener("toggle", ({ target }) => turn(target, target.open), true);
  byId("see-plan").addEventListener("click", () => see(false));
  byId("see-runs").addEventListener("click", () => see(true));
  byId("runs").addEventListener("submit", (event) => {
    event.preventDefault();
    const { post, rehearse, resume } = event.target.dataset, values = Object.fromEntries(new FormData(event.target));
    act(post, () => ({ ...values, rehearse: rehearse === "", resume: resume === "" })).then((error) => {
      if (error && event.target.isConnected) point(event.target.lastElementChild, error.message);
    });
  });
  byId("save").addEventListener("click", () => save(false));
  byId("over").addEventListener("click", () => save(true));
  byId("undo").addEventListener("click", () => act("/undo", () => ({})));
  byId("redo").addEventListener("click", () => act("/redo", () => ({})));
  byId("budget").addEventListener("click", () => {
    const line = frame.contentDocument.querySelector('[data-live="line"]')?.textContent.split("\n")[0] || "";
    const budget = /"(.*)"/.exec(line);
    if (budget) act("/change", () => ({ op: "set", path: ["privacy", "budget"], value: { kind: "text", value: budget[1] }, version }));
  });
  document.addEventListener("keydown", (event) => {
    if (!(event.ctrlKey || event.metaKey)) return;
    const key = event.key.toLowerCase(), { activeElement: held } = document;
    if (key === "s") {
      event.preventDefault();
      save(false);
    } else if (key === "z" || key === "y") {
      if (held.matches("input, textarea") && held !== text && held.value !== held.defaultValue) return;
      event.preventDefault();
      act(key === "y" || event.shiftKey ? "/redo" : "/undo", () => ({}));
    }
  });
  next(look);
})();
