/* The selection of pods with pointer and keyboard, while the grid stays live.

   Each cell that can be deleted is a checkbox; links select the checkboxes of a replica, node or component, and without
   scripts do so by loading the page. The grid is one tab stop, as on the page of the workload.

   The invariant: the button counts exactly the pods that the form would send. After each refresh the script restores the
   selection; it drops pods that are gone, and says so. */

import { createRovingFocus } from "./roving-focus.js";

const section = () => document.getElementById("pods");
const form = document.getElementById("command-form");
const boxes = (within = section()) => [...(within?.querySelectorAll('input[name="pod"]') ?? [])];
const button = form?.querySelector("button.primary");
const buttonText = button?.textContent ?? "";
const droppedNotice = document.getElementById("dropped-pods");
let selected = new Set(
  boxes()
    .filter((box) => box.checked)
    .map((box) => box.value),
);

const roving = createRovingFocus(section, 'input[name="pod"]');

function updateCounts() {
  const number = selected.size;
  if (button)
    button.textContent = number
      ? buttonText.replace(/^Delete( the selected pods)?/, `Delete ${number} ${number === 1 ? "pod" : "pods"}`)
      : buttonText;
  for (const link of document.querySelectorAll("#pods [data-select-all]")) {
    const own = boxesOf(link);
    link.toggleAttribute("data-all-selected", own.length > 0 && own.every((box) => box.checked));
  }
}

function readSelection() {
  selected = new Set(
    boxes()
      .filter((box) => box.checked)
      .map((box) => box.value),
  );
  updateCounts();
}

/* The checkboxes of a link: those of a component, of its tile, or all. */
function boxesOf(link) {
  const name = link.dataset.selectAll;
  const group = link.closest("[data-tile]");
  if (group) return boxes(group);
  return name ? boxes().filter((box) => box.dataset.components.split(" ").includes(name)) : boxes();
}

/* One event for all checkboxes, so that one request computes the preview. */
function setSelected(these, isChosen) {
  for (const box of these) box.checked = isChosen;
  readSelection();
  form.dispatchEvent(new Event("change", { bubbles: true }));
}

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("#pods [data-select-all], #pods [data-select-none], #pods [data-group-by]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  if ("groupBy" in link.dataset) switchView(link);
  else if ("selectNone" in link.dataset) setSelected(boxes(), false);
  else setSelected(boxesOf(link), !link.hasAttribute("data-all-selected"));
});

document.addEventListener("change", (event) => {
  if (event.target.name === "pod") readSelection();
});

/* Fetch another view of the same pods; the selection stays. */
async function switchView(link) {
  const src = new URL(section().dataset.liveSrc, location.href);
  src.search = link.dataset.groupBy ? `?by=${link.dataset.groupBy}` : "";
  // A redirect means that the session has ended: follow the link then.
  const response = await fetch(src, { headers: { "X-Live": "1" }, redirect: "manual" });
  if (!response.ok) return location.assign(link.href);
  await htmx.swap({ text: await response.text(), target: section(), sourceElement: section(), swap: "outerMorph" });
  history.replaceState(history.state, "", link.href);
  return restoreSelection();
}

/* Restore the selection, and drop pods that can no longer be selected. */
function restoreSelection() {
  const there = new Map(boxes().map((box) => [box.value, box]));
  for (const [value, box] of there) box.checked = selected.has(value);
  const gone = [...selected].filter((value) => !there.has(value)).map((value) => value.split("/")[0]);
  readSelection();
  roving.restoreFocus();
  if (!gone.length) return;
  const few = gone.slice(0, 3).join(", ");
  const names = `${few}${gone.length > 3 ? ` and ${gone.length - 3} more` : ""}`;
  droppedNotice.textContent = `${gone.length} of the pods that you selected can no longer be deleted (${droppedNotice.dataset.reasons}): ${names}.`;
  droppedNotice.hidden = false;
  form.dispatchEvent(new Event("change", { bubbles: true }));
}

document.addEventListener("live:refreshed", (event) => event.target.id === "pods" && restoreSelection());
document.addEventListener("pointerover", ({ target }) => {
  if (target.name === "pod" && !target.title) target.title = target.getAttribute("aria-label");
});
updateCounts();
