/* Pods that are being chosen, under pointer and keys, while the picture of them goes on living.

   Each cell that may be deleted is a box to tick; links choose the boxes of a replica, node or component, and without
   scripts do so by loading the page anew. The whole picture is one stop of the tab key, as on the page of the workload.

   The invariant: what is counted is what would be sent. After each refresh the boxes are ticked again that were; those
   that are there no more are dropped, and that is said. */

import { rove } from "./rove.js";

const section = () => document.getElementById("pods");
const form = document.getElementById("desk");
const boxes = (within = section()) => [...(within?.querySelectorAll('input[name="pod"]') ?? [])];
const button = form?.querySelector("button.primary");
const words = button?.textContent ?? "";
const vanished = document.getElementById("vanished");
let chosen = new Set(boxes().filter((box) => box.checked).map((box) => box.value));

const roving = rove(section, 'input[name="pod"]');

function tell() {
  const number = chosen.size;
  if (button) button.textContent = number ? words.replace(/^Delete( the selected pods)?/, `Delete ${number} ${number === 1 ? "pod" : "pods"}`) : words;
  for (const link of document.querySelectorAll("#pods [data-all]")) {
    const own = meant(link);
    link.toggleAttribute("data-full", own.length > 0 && own.every((box) => box.checked));
  }
}

function note() {
  chosen = new Set(boxes().filter((box) => box.checked).map((box) => box.value));
  tell();
}

/* The boxes that a link is for: of a component by name, of all, or of the group that it stands in. */
function meant(link) {
  const name = link.dataset.all;
  const group = link.closest("[data-group]");
  if (group) return boxes(group);
  return name ? boxes().filter((box) => box.dataset.of.split(" ").includes(name)) : boxes();
}

/* One event however many boxes: what they would do is asked once. */
function choose(these, isChosen) {
  for (const box of these) box.checked = isChosen;
  note();
  form.dispatchEvent(new Event("change", { bubbles: true }));
}

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("#pods [data-all], #pods [data-none], #pods [data-by]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  if ("by" in link.dataset) show(link);
  else if ("none" in link.dataset) choose(boxes(), false);
  else choose(meant(link), !link.hasAttribute("data-full"));
});

document.addEventListener("change", (event) => {
  if (event.target.name === "pod") note();
});

/* Another view of the same pods: the element is fetched from another address, what is chosen stays. */
async function show(link) {
  const src = new URL(section().dataset.liveSrc, location.href);
  src.search = link.dataset.by ? `?by=${link.dataset.by}` : "";
  // Who is signed out is sent to another page, which is no view of pods: then the link is followed like any other.
  const response = await fetch(src, { headers: { "X-Live": "1" }, redirect: "manual" });
  if (!response.ok) return location.assign(link.href);
  await htmx.swap({ text: await response.text(), target: section(), sourceElement: section(), swap: "outerMorph" });
  history.replaceState(history.state, "", link.href);
  return settle();
}

/* Tick again what was ticked, and drop what cannot be chosen any more. */
function settle() {
  const there = new Map(boxes().map((box) => [box.value, box]));
  for (const [value, box] of there) box.checked = chosen.has(value);
  const gone = [...chosen].filter((value) => !there.has(value)).map((value) => value.split("/")[0]);
  note();
  roving.settle();
  if (!gone.length) return;
  const few = gone.slice(0, 3).join(", ");
  vanished.textContent = `Not selected any more, for it is gone, on its way out or up to date: ${few}${gone.length > 3 ? ` and ${gone.length - 3} more` : ""}.`;
  vanished.hidden = false;
  form.dispatchEvent(new Event("change", { bubbles: true }));
}

document.addEventListener("live:refreshed", (event) => event.target.id === "pods" && settle());
document.addEventListener("pointerover", ({ target }) => {
  if (target.name === "pod" && !target.title) target.title = target.getAttribute("aria-label");
});
tell();
