/* The picture of a workload under pointer and keys.

   Cells are links to the same page with one pod in full, which is all there is without scripts. Here the whole picture
   is one stop of the tab key (`rove`). What a pod is doing is shown beside its cell while it has focus or the pointer;
   Enter or a click pins that until Escape.

   The invariant: nothing is kept here that the page does not say; after each refresh it is read off the page again. */

import { age } from "./relative-time.js";
import { createRovingFocus } from "./roving-focus.js";

const SLOW_MS = 120; // a pointer that only passes by asks nothing
const popover = document.getElementById("pod-popover");
const answers = new Map(); // by name of the pod: what the server last said, for a moment
const KNOWN_MS = 2_000;
let shownPod = ""; // the pod that is shown
let pinned = false;
let timer = 0;
let asking = null;

const picture = () => document.getElementById("picture");
const nameOf = (cell) => cell.id.slice("pod-".length);

const roving = createRovingFocus(picture, "a.cell");

document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || !shownPod) return;
  hidePopover();
  event.preventDefault();
});

/* ---- what a pod is doing, beside its cell */

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
  popover.innerHTML = html; // the server's own fragment, escaped there
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

/* What is pinned stands in the address, so that it can be sent to somebody. */
function pin(isPinned) {
  pinned = isPinned;
  // Who hears the page is told the label of a cell anyway; the rest is read out when it is asked for.
  popover.ariaLive = pinned ? "polite" : "off";
  const url = new URL(location.href);
  if (pinned) url.searchParams.set("pod", shownPod);
  else url.searchParams.delete("pod");
  history.replaceState(history.state, "", url);
}

const cellOf = (event) => event.target.closest?.("#picture a.cell");

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
const cellHasFocus = () => document.activeElement?.matches("#picture a.cell:focus-visible");

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

/* ---- while the picture changes */

document.addEventListener("live:refreshed", (event) => {
  if (event.target.id !== "picture") return;
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
