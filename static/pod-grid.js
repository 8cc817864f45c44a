/* The pod grid of a workload with pointer and keyboard.

   Cells are links to the same page with the details of one pod; without scripts that is all. With scripts the grid is one
   tab stop (`createRovingFocus`). A popover shows the details of the pod that has focus or the pointer; Enter or a click
   pins it until Escape.

   The invariant: this script keeps no state that the page does not show; it reads the page again after each refresh. */

import { age } from "./relative-time.js";
import { createRovingFocus } from "./roving-focus.js";

const SLOW_MS = 120; // a pointer that only passes by causes no request
const popover = document.getElementById("pod-popover");
const answers = new Map(); // the last answers of the server, by pod name
const KNOWN_MS = 2_000;
let shownPod = ""; // the name of the pod in the popover
let pinned = false;
let timer = 0;
let asking = null;

const podGrid = () => document.getElementById("pod-grid");
const nameOf = (cell) => cell.id.slice("pod-".length);

const roving = createRovingFocus(podGrid, "a.cell");

document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || !shownPod) return;
  hidePopover();
  event.preventDefault();
});

/* ---- the popover */

function showPod(cell) {
  clearTimeout(timer);
  shownPod = nameOf(cell);
  const kept = answers.get(shownPod);
  if (kept && performance.now() - kept.at < KNOWN_MS) return renderPopover(kept.html);
  if (popover.dataset.pod !== shownPod) {
    popover.textContent = cell.getAttribute("aria-label");
    popover.dataset.pod = shownPod;
  }
  positionPopover(cell);
  return fetchPod(shownPod);
}

async function fetchPod(pod) {
  asking?.abort();
  asking = new AbortController();
  try {
    const response = await fetch(`${popover.dataset.podUrl}${pod}/`, {
      headers: { "X-Live": "1" },
      signal: asking.signal,
      redirect: "manual",
    });
    if (!response.ok) return;
    const html = await response.text();
    answers.set(pod, { html, at: performance.now() });
    if (answers.size > 50) answers.delete(answers.keys().next().value);
    if (pod === shownPod) renderPopover(html);
  } catch (error) {
    if (error.name !== "AbortError") popover.dataset.pod = "";
  }
}

function renderPopover(html) {
  popover.innerHTML = html; // rendered and escaped by the server
  popover.dataset.pod = shownPod;
  for (const time of popover.querySelectorAll("time[data-age]"))
    time.textContent = age((Date.now() - Date.parse(time.dateTime)) / 1000);
  const cell = document.getElementById(`pod-${shownPod}`);
  if (cell) positionPopover(cell);
}

function positionPopover(cell) {
  popover.hidden = false;
  const at = cell.getBoundingClientRect();
  const size = popover.getBoundingClientRect();
  const left = Math.max(12, Math.min(at.left, document.documentElement.clientWidth - size.width - 12));
  const below = at.bottom + 8 + size.height < innerHeight || at.top < size.height + 8;
  popover.style.left = `${left + scrollX}px`;
  popover.style.top = `${(below ? at.bottom + 8 : at.top - size.height - 8) + scrollY}px`;
  for (const other of document.querySelectorAll("a.cell[aria-current]"))
    if (other !== cell) other.removeAttribute("aria-current");
  if (pinned) cell.setAttribute("aria-current", "true");
}

function hidePopover() {
  clearTimeout(timer);
  asking?.abort();
  if (pinned) pin(false);
  shownPod = "";
  popover.hidden = true;
  for (const cell of document.querySelectorAll("a.cell[aria-current]")) cell.removeAttribute("aria-current");
}

/* The URL names the pinned pod, so that users can share it. */
function pin(isPinned) {
  pinned = isPinned;
  // Screen readers announce the label of a cell anyway; the details only when pinned.
  popover.ariaLive = pinned ? "polite" : "off";
  const url = new URL(location.href);
  if (pinned) url.searchParams.set("pod", shownPod);
  else url.searchParams.delete("pod");
  history.replaceState(history.state, "", url);
}

const cellOf = (event) => event.target.closest?.("#pod-grid a.cell");

document.addEventListener("focusin", (event) => {
  const cell = cellOf(event);
  if (cell) {
    if (!pinned && cell.matches(":focus-visible")) showPod(cell);
  } else if (!pinned && shownPod && !popover.contains(event.target)) hidePopover();
});
document.addEventListener("pointerover", (event) => {
  const cell = cellOf(event);
  if (pinned || event.pointerType === "touch") return;
  clearTimeout(timer);
  if (cell) timer = setTimeout(() => showPod(cell), popover.hidden ? SLOW_MS : 30);
  else if (shownPod && !popover.contains(event.target) && !cellHasFocus()) timer = setTimeout(hidePopover, SLOW_MS);
});
const cellHasFocus = () => document.activeElement?.matches("#pod-grid a.cell:focus-visible");

document.addEventListener("click", (event) => {
  const pod = event.target.closest?.("a[data-pod]")?.dataset.pod;
  const named = pod && document.getElementById(`pod-${pod}`);
  if (named) named.focus();
  const cell = named || cellOf(event);
  if (!cell) {
    if (pinned && !popover.contains(event.target)) hidePopover();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  event.preventDefault();
  const again = pinned && shownPod === nameOf(cell);
  if (again && !named) return hidePopover();
  shownPod = nameOf(cell);
  pin(true);
  showPod(cell);
});

/* ---- after a refresh */

document.addEventListener("live:refreshed", (event) => {
  if (event.target.id !== "pod-grid") return;
  roving.restoreFocus();
  if (!shownPod) return;
  const cell = document.getElementById(`pod-${shownPod}`);
  if (!cell && !pinned) hidePopover();
  else if (cell) {
    answers.delete(shownPod);
    showPod(cell);
  }
});

addEventListener(
  "resize",
  () =>
    shownPod &&
    document.getElementById(`pod-${shownPod}`) &&
    positionPopover(document.getElementById(`pod-${shownPod}`)),
);
