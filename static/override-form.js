// Shows the effect of an override while the user fills in the form. The server checks; this script decides when to ask and
// where to put the answer. Without it the form still works, and shows the same after saving.
(() => {
  "use strict";
  const sheet = document.getElementById("override");
  if (!sheet) return;

  const form = sheet.closest("form");
  const panel = document.getElementById("override-check");
  const status = document.getElementById("override-status");
  const table = document.querySelector("#components tbody");
  const touched = new Set();
  const PAUSE = 300; // milliseconds without typing
  let timer = 0;
  let asked = null;

  const fieldOf = (element) => element.closest("[data-field]")?.dataset.field;

  function showErrors(errors) {
    for (const box of sheet.querySelectorAll("[data-field]")) {
      const name = box.dataset.field;
      const sentences = touched.has(name) ? errors[name] || [] : [];
      box.classList.toggle("bad", sentences.length > 0);
      box.querySelector(".grove-error").textContent = sentences.join(" ");
      const input = box.querySelector("#id_" + name);
      if (!input) continue;
      input.setAttribute("aria-invalid", sentences.length > 0 ? "true" : "false");
      input.setAttribute("aria-describedby", `id_${name}_error id_${name}_helptext`);
    }
  }

  function showComponents(names) {
    const known = document.getElementById("components-known");
    known.replaceChildren(...names.map((name) => Object.assign(document.createElement("option"), { value: name })));
  }

  async function fetchCheck() {
    asked?.abort();
    asked = new AbortController();
    panel.setAttribute("aria-busy", "true");
    try {
      const answer = await fetch(sheet.dataset.checkUrl, {
        method: "POST",
        body: new FormData(form),
        headers: { Accept: "application/json" },
        signal: asked.signal,
      });
      if (!answer.ok) throw new Error(String(answer.status));
      const found = await answer.json();
      panel.innerHTML = found.html;
      showErrors(found.errors);
      showComponents(found.components);
      status.textContent = panel.querySelector("[data-summary]")?.textContent || "";
      panel.removeAttribute("aria-busy");
    } catch (error) {
      if (error.name === "AbortError") return;
      panel.removeAttribute("aria-busy");
      const note = Object.assign(document.createElement("p"), {
        className: "grove-problem",
        textContent: "The check is not available now. Saving runs it as well.",
      });
      panel.replaceChildren(note);
    }
  }

  function scheduleCheck() {
    clearTimeout(timer);
    timer = setTimeout(fetchCheck, PAUSE);
  }

  function addRow() {
    const rows = document.getElementById("components");
    const markup = document.getElementById("components-row").innerHTML.replaceAll("NUMBER", rows.dataset.next);
    rows.dataset.next = Number(rows.dataset.next) + 1;
    table.insertAdjacentHTML("beforeend", markup);
    const row = table.lastElementChild;
    row.querySelector("[data-remove]").hidden = false;
    row.querySelector("input").focus();
  }

  function setDuration(hours) {
    const until = document.getElementById("id_expires_at");
    const at = new Date(Date.now() + hours * 3600 * 1000);
    until.value = at.toISOString().slice(0, 16); // the field is in UTC
    until.dispatchEvent(new Event("input", { bubbles: true }));
  }

  form.addEventListener("input", (event) => {
    touched.add(fieldOf(event.target));
    scheduleCheck();
  });
  form.addEventListener("focusout", (event) => {
    const name = fieldOf(event.target);
    if (!name || touched.has(name)) return;
    touched.add(name);
    scheduleCheck();
  });
  form.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.id === "components-add") addRow();
    if (button.dataset.hours) setDuration(Number(button.dataset.hours));
    if ("remove" in button.dataset) {
      button.closest("tr").remove();
      document.getElementById("components-add").focus();
      scheduleCheck();
    }
  });

  for (const hidden of [document.getElementById("components-add"), document.getElementById("durations")]) {
    hidden.hidden = false;
  }
  for (const button of table.querySelectorAll("[data-remove]")) button.hidden = false;
  for (const box of sheet.querySelectorAll("[data-field].bad")) touched.add(box.dataset.field);
  fetchCheck();
})();
