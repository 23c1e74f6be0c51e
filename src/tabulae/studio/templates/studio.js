"use strict";
/* Sends what was typed, and shows what the server says of it. */
(() => {
  const byId = (id) => document.getElementById(id);
  const [text, told, saved, frame, list] = ["text", "told", "saved", "plan", "problems"].map(byId);
  const PAUSE = 250, SOON = 200, LATER = 3000; // milliseconds
  let typed = 0, answered = 0, pausing, asking, shown = 0;

  function write(element, words) {
    if (element.textContent !== words) element.textContent = words;
  }

  async function ask(path, body) {
    const request = body && {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
    };
    const answer = await fetch(path, request);
    if (!answer.ok) throw new Error((await answer.text()).trim());
    return answer.json();
  }

  /* The line of a mistake is selected and brought into view. */
  function goTo(line) {
    const lines = text.value.split("\n");
    const start = lines.slice(0, line - 1).reduce((sum, each) => sum + each.length + 1, 0);
    text.focus();
    text.setSelectionRange(start, start + (lines[line - 1] || "").length);
    text.scrollTop = (line - 4) * parseFloat(getComputedStyle(text).lineHeight);
  }

  function mistake({ path, line, message }) {
    const item = document.createElement("li"), button = document.createElement("button");
    button.type = "button";
    button.textContent = `${line ? `Line ${line}, ` : ""}${path}: ${message}`;
    button.addEventListener("click", () => (line ? goTo(line) : text.focus()));
    item.append(button);
    return item;
  }

  /* A new plan takes the place of the old one, where the reader was. */
  function showPlan(version) {
    if (version === shown) return;
    shown = version;
    const top = frame.contentWindow.scrollY;
    frame.addEventListener("load", () => frame.contentWindow.scrollTo(0, top), { once: true });
    frame.contentWindow.location.replace(`/plan?version=${version}`);
  }

  function show(state) {
    const mistakes = state.problems.length;
    write(saved, state.unsaved ? "Not saved yet." : "Saved.");
    byId("changed").hidden = !state.changed;
    if (!state.busy) list.replaceChildren(...state.problems.map(mistake));
    write(told, state.busy ? "Planning." : mistakes ? `Mistakes: ${mistakes}. The plan is of an earlier text.` : "The plan is of this text.");
    text.setAttribute("aria-invalid", String(mistakes > 0));
    showPlan(state.plan);
    clearTimeout(asking);
    asking = setTimeout(() => tell("/state"), state.busy ? SOON : LATER);
  }

  /* Answers come in any order: only that to the last question is shown, and none while something typed is unsent. */
  async function tell(path, body) {
    const mine = ++answered, edit = typed;
    try {
      const state = await ask(path, body);
      if (mine === answered && edit === typed) show(state);
    } catch (error) {
      write(told, error instanceof TypeError ? "The studio was stopped in its terminal." : `${error.message}.`);
    }
  }

  async function send() {
    clearTimeout(pausing);
    await tell("/edit", { text: text.value });
  }

  async function save(over) {
    await send();
    await tell("/save", { text: text.value, over });
  }

  text.addEventListener("input", () => {
    typed += 1;
    clearTimeout(pausing);
    clearTimeout(asking);
    pausing = setTimeout(send, PAUSE);
  });
  byId("save").addEventListener("click", () => save(false));
  byId("over").addEventListener("click", () => save(true));
  document.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key === "s") {
      event.preventDefault();
      save(false);
    }
  });
  tell("/state");
})();
