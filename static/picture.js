/* The picture of a workload under pointer and keys.

   Cells are links to the same page with one pod in full, which is all there is without scripts. Here the whole picture
   is one stop of the tab key: arrows move to the nearest cell that way, Home and End to the first and last of a replica,
   Page Up and Down between replicas. What a pod is doing is shown beside its cell while it has focus or the pointer;
   Enter or a click pins that until Escape. Pods come and go while somebody looks: focus goes to what took the place.

   The invariant: nothing is kept here that the page does not say; after each refresh it is read off the page again. */

import { age } from "./live.js";

const SLOW_MS = 120; // a pointer that only passes by asks nothing
const peek = document.getElementById("peek");
const known = new Map(); // by name of the pod: what the server last said, for a moment
const KNOWN_MS = 2_000;
let shown = ""; // the pod that is shown
let pinned = false;
let timer = 0;
let asking = null;
let place = 0; // where the cell with the tab stop is, should it vanish

const picture = () => document.getElementById("picture");
const cells = () => [...(picture()?.querySelectorAll("a.cell") ?? [])];
const nameOf = (cell) => cell.id.slice("pod-".length);

/* ---- one stop of the tab key */

function keepOneStop(wanted) {
  const all = cells();
  if (!all.length) return;
  const stop = wanted ?? all.find((cell) => cell === document.activeElement) ?? all.find((cell) => cell.id === lastId) ?? all[Math.min(place, all.length - 1)];
  for (const cell of all) cell.tabIndex = cell === stop ? 0 : -1;
  place = all.indexOf(stop);
  lastId = stop.id;
}
let lastId = "";

function move(from, key) {
  const all = cells();
  const unit = from.closest(".replica, .tile");
  const own = all.filter((cell) => unit?.contains(cell));
  if (key === "Home") return own[0];
  if (key === "End") return own.at(-1);
  if (key === "PageDown") return all.find((cell) => from.compareDocumentPosition(cell) & Node.DOCUMENT_POSITION_FOLLOWING && !unit?.contains(cell));
  if (key === "PageUp") {
    const before = all.findLast((cell) => from.compareDocumentPosition(cell) & Node.DOCUMENT_POSITION_PRECEDING && !unit?.contains(cell));
    return before && all.find((cell) => before.closest(".replica, .tile").contains(cell));
  }
  if (key === "ArrowRight") return all[all.indexOf(from) + 1];
  if (key === "ArrowLeft") return all[all.indexOf(from) - 1];
  return nearest(from, all, key === "ArrowDown" ? 1 : -1);
}

/* The next row that way, and in it the cell that is nearest: rows are what the eye sees, whatever holds them. */
function nearest(from, all, direction) {
  const here = from.getBoundingClientRect();
  let best = null;
  let least = [Infinity, Infinity];
  for (const cell of all) {
    const there = cell.getBoundingClientRect();
    const down = (there.top - here.top) * direction;
    if (down < here.height / 2) continue;
    const aside = Math.abs(there.left - here.left);
    if (down < least[0] - 4 || (Math.abs(down - least[0]) <= 4 && aside < least[1])) {
      best = cell;
      least = [down, aside];
    }
  }
  return best;
}

const KEYS = new Set(["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End", "PageUp", "PageDown"]);

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && shown) {
    hide();
    event.preventDefault();
    return;
  }
  const cell = event.target.closest?.("#picture a.cell");
  if (!cell || event.ctrlKey || event.metaKey || event.altKey || !KEYS.has(event.key)) return;
  event.preventDefault();
  const next = move(cell, event.key);
  if (!next) return;
  keepOneStop(next);
  next.focus({ preventScroll: true });
  next.scrollIntoView({ block: "nearest", inline: "nearest" });
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
    keepOneStop(cell);
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
  if (lostFocus && !document.activeElement?.matches("a.cell") && (document.activeElement === document.body || !document.activeElement)) {
    const all = cells();
    all[Math.min(place, all.length - 1)]?.focus({ preventScroll: true });
  }
  lostFocus = false;
  keepOneStop();
  if (!shown) return;
  const cell = document.getElementById(`pod-${shown}`);
  if (!cell && !pinned) hide();
  else if (cell) {
    known.delete(shown);
    show(cell);
  }
});
let lostFocus = false;
document.addEventListener("focusout", (event) => {
  // A cell that is taken out of the page gives its focus to nobody.
  if (cellOf(event) && !event.relatedTarget) lostFocus = true;
});
document.addEventListener("pointerdown", () => {
  lostFocus = false;
});

addEventListener("resize", () => shown && document.getElementById(`pod-${shown}`) && stand(document.getElementById(`pod-${shown}`)));
keepOneStop();
