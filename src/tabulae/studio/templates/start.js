"use strict";
/* Asks for what was picked, and shows it. */
for (const button of document.querySelectorAll("[data-start]")) {
  button.addEventListener("click", async () => {
    const body = JSON.stringify({ choice: Number(button.dataset.start) });
    const answer = await fetch("/start", { method: "POST", headers: { "Content-Type": "application/json" }, body });
    if (answer.ok) location.reload();
    else document.getElementById("told").textContent = await answer.text();
  });
}
