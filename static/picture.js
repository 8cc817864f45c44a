/* The picture of a workload under pointer and keys.

   Cells are links to the same page with one pod in full, which is all there is without scripts. Here the whole picture
   is one stop of the tab key (`rove`). What a pod is doing is shown beside its cell while it has focus or the pointer;
   Enter or a click pins that until Escape.

   The invariant: nothing is kept here that the page does not say; after each refresh it is read off the page again. */

import { age } from "./ages.js";
import { rove } from "./rove.js";

const SLOW_MS = 120; // a pointer that only passes by asks nothing
const peek = document.getElementById("peek");
const known = new Map(); // by name of the pod: what the server last said, for a moment
const KNOWN_MS = 2_000;
let shown = ""; // the pod that is shown
let pinned = false;
let timer = 0;
let asking = null;

const picture = () => document.getElementById("picture");
const nameOf = (cell) => cell.id.slice("pod-".length);

const roving = rove(picture, "a.cell");

document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || !shown) return;
  hide();
  event.preventDefault();
});

/* ---- what a pod is doing, beside its cell */

function show(cell) {
  clearTimeout(timer);
  shown = nameOf(cell);
  const kept = known.get(shown);
  if (kept && performance.now() - kept.at < KNOWN_MS) return fill(kept.html);
  if (peek.dataset.pod !== shown) {
    peek.textContent = cell.getAttribute("aria-label");
    peek.dataset.pod = shown;
  }
  stand(cell);
  return ask(shown);
}

async function ask(pod) {
  asking?.abort();
  asking = new AbortController();
  try {
    const response = await fetch(`${peek.dataset.src}${pod}/`, { headers: { "X-Live": "1" }, signal: asking.signal, redirect: "manual" });
    if (!response.ok) return;
    const html = await response.text();
    known.set(pod, { html, at: performance.now() });
    if (known.size > 50) known.delete(known.keys().next().value);
    if (pod === shown) fill(html);
  } catch (error) {
    if (error.name !== "AbortError") peek.dataset.pod = "";
  }
}

function fill(html) {
  peek.innerHTML = html; // the server's own fragment, escaped there
  peek.dataset.pod = shown;
  for (const time of peek.querySelectorAll("time[data-age]")) time.textContent = age((Date.now() - Date.parse(time.dateTime)) / 1000);
  const cell = document.getElementById(`pod-${shown}`);
  if (cell) stand(cell);
}

function stand(cell) {
  peek.hidden = false;
  const at = cell.getBoundingClientRect();
  const size = peek.getBoundingClientRect();
  const left = Math.max(12, Math.min(at.left, document.documentElement.clientWidth - size.width - 12));
  const below = at.bottom + 8 + size.height < innerHeight || at.top < size.height + 8;
  peek.style.left = `${left + scrollX}px`;
  peek.style.top = `${(below ? at.bottom + 8 : at.top - size.height - 8) + scrollY}px`;
  for (const other of document.querySelectorAll("a.cell[aria-current]")) if (other !== cell) other.removeAttribute("aria-current");
  if (pinned) cell.setAttribute("aria-current", "true");
}

function hide() {
  clearTimeout(timer);
  asking?.abort();
  if (pinned) pin(false);
  shown = "";
  peek.hidden = true;
  for (const cell of document.querySelectorAll("a.cell[aria-current]")) cell.removeAttribute("aria-current");
}

/* What is pinned stands in the address, so that it can be sent to somebody. */
function pin(isPinned) {
  pinned = isPinned;
  // Who hears the page is told the label of a cell anyway; the rest is read out when it is asked for.
  peek.ariaLive = pinned ? "polite" : "off";
  const url = new URL(location.href);
  if (pinned) url.searchParams.set("pod", shown);
  else url.searchParams.delete("pod");
  history.replaceState(history.state, "", url);
}

const cellOf = (event) => event.target.closest?.("#picture a.cell");

document.addEventListener("focusin", (event) => {
  const cell = cellOf(event);
  if (cell) {
    if (!pinned && cell.matches(":focus-visible")) show(cell);
  } else if (!pinned && shown && !peek.contains(event.target)) hide();
});
document.addEventListener("pointerover", (event) => {
  const cell = cellOf(event);
  if (pinned || event.pointerType === "touch") return;
  clearTimeout(timer);
  if (cell) timer = setTimeout(() => show(cell), peek.hidden ? SLOW_MS : 30);
  else if (shown && !peek.contains(event.target) && !cellHasFocus()) timer = setTimeout(hide, SLOW_MS);
});
const cellHasFocus = () => document.activeElement?.matches("#picture a.cell:focus-visible");

document.addEventListener("click", (event) => {
  const pod = event.target.closest?.("a[data-pod]")?.dataset.pod;
  const named = pod && document.getElementById(`pod-${pod}`);
  if (named) named.focus();
  const cell = named || cellOf(event);
  if (!cell) {
    if (pinned && !peek.contains(event.target)) hide();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  event.preventDefault();
  const again = pinned && shown === nameOf(cell);
  if (again && !named) return hide();
  shown = nameOf(cell);
  pin(true);
  show(cell);
});

/* ---- while the picture changes */

document.addEventListener("live:refreshed", (event) => {
  if (event.target.id !== "picture") return;
  roving.settle();
  if (!shown) return;
  const cell = document.getElementById(`pod-${shown}`);
  if (!cell && !pinned) hide();
  else if (cell) {
    known.delete(shown);
    show(cell);
  }
});

addEventListener("resize", () => shown && document.getElementById(`pod-${shown}`) && stand(document.getElementById(`pod-${shown}`)));
