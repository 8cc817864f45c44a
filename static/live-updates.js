/* Keeps what is shown as new as the cluster is.

   One connection to the server brings each part of the page whenever it looks different. An element that shows
   something live says what it depends on and where it is to be had:

     <section id="pods" data-live="workload:sandbox%2Fdefault%2Fchat#pods,cliques every:30" data-live-src="/…/pods/live/">

   `data-live` holds words kind[:key][#part,part]: any workload, this one, these parts of it; every:n asks for a look every
   n seconds as well. The server decides by them (rollouts/live/stream.py). What it brings is the element itself, which is
   morphed into the one that is there: focus, selection, scrolling and open <details> stay. Of a picture it brings the tiles
   that changed since the rendering that is shown; the others are left alone (rollouts/live/tiles.py). What it cannot bring
   is fetched from `data-live-src` when it says so. Children of an element with `data-live-order` keep their places; what is
   new comes last, and [data-live-unsorted] is shown. An attribute that scripts own survives when the element names it in
   `data-keep`. After each change `live:refreshed` is fired on it.

   The invariant: whatever was missed, while hidden or away, is brought before "Live" is said again. */

import { age } from "./relative-time.js";

const GAP_MS = 400; // between two fetches of the same element, so that bursts become one
const MOST_GAP_MS = 4_000; // who is slow to answer or to draw is asked less often, up to this
const HEARTBEAT_TIMEOUT_MS = 45_000; // the server is heard at least every 15 s; three missed ones are a dead connection
const RETRY_MS = [1_000, 2_000, 4_000, 8_000, 15_000];

const indicator = document.getElementById("live");
const elementStates = new Map(); // by id of the element: what it shows, and how that went
let source = null;
let connectedTo = ""; // what the server was told is shown
let failures = 0;
let heardAt = 0;
let silentSince = 0; // heard, or connected
let isCurrent = false; // everything shown is as new as the server knows
let wasCurrent = false; // once, since the page was opened
let isStale = false; // connected, but the server itself is told nothing
let isOver = false; // signed out

const waitAfter = (times) => RETRY_MS[Math.min(times, RETRY_MS.length) - 1];

const liveElements = () => [...document.querySelectorAll("[data-live][data-live-src][id]")];

/* ---- bringing an element up to date */

function stateOf(id) {
  const fresh = {
    src: "",
    etag: "",
    coming: null,
    endedAt: 0,
    gap: 0,
    failures: 0,
    isBusy: false,
    isWanted: false,
    timer: 0,
  };
  if (!elementStates.has(id)) elementStates.set(id, fresh);
  return elementStates.get(id);
}

/* What the server brings; of several only the newest is shown. */
function receiveFragment(part) {
  for (const { id, dataset } of liveElements()) {
    if (dataset.liveSrc !== part.src) continue;
    const state = stateOf(id);
    state.coming = mergeFragments(state.coming, part);
    scheduleRefresh(id, state);
  }
}

/* What comes while something is not shown yet: a part that builds on it is shown together with it. */
function mergeFragments(former, part) {
  if (!part.base || part.base !== former?.etag) return part;
  return { ...part, base: former.base, tiles: { ...former.tiles, ...part.tiles } };
}

/* Have an element fetched from its address. */
function requestFetch(id) {
  const state = stateOf(id);
  state.isWanted = true;
  scheduleRefresh(id, state);
}

function scheduleRefresh(id, state) {
  if (state.isBusy || state.timer) return;
  state.timer = setTimeout(() => refresh(id, state), Math.max(0, state.endedAt + state.gap - performance.now()));
}

async function refresh(id, state) {
  state.timer = 0;
  if (document.hidden) return; // everything is brought when the tab is shown
  const element = document.getElementById(id);
  if (!element?.dataset.liveSrc || isOver) {
    elementStates.delete(id);
    return;
  }
  state.isBusy = true;
  const began = performance.now();
  const isFetched = !state.coming;
  try {
    await (isFetched ? fetchInto(element, state) : applyFragment(id, state));
    state.failures = 0;
  } catch {
    state.failures += 1;
    state.isWanted = true; // until then this element is old
  }
  state.endedAt = performance.now();
  state.gap = state.failures
    ? waitAfter(state.failures)
    : Math.min(MOST_GAP_MS, Math.max(isFetched ? GAP_MS : 0, 3 * (state.endedAt - began)));
  state.isBusy = false;
  if (state.coming || (state.isWanted && source?.readyState === EventSource.OPEN)) scheduleRefresh(id, state);
}

async function fetchInto(element, state) {
  const src = element.dataset.liveSrc; // the element may show something else by the time of the answer
  state.isWanted = false;
  const headers = { "X-Live": "1" };
  if (state.etag && state.src === src) headers["If-None-Match"] = state.etag;
  const response = await fetch(src, {
    headers,
    cache: "no-store",
    redirect: "manual",
    signal: AbortSignal.timeout(20_000),
  });
  if (response.type === "opaqueredirect" || response.status === 401 || response.status === 403) return signOut();
  if (response.status === 404 || response.status === 410) return markGone(element, state);
  if (response.status === 304 || response.status === 204) return undefined;
  if (!response.ok) throw new Error(response.status);
  const html = await response.text();
  state.coming ??= { src, html, etag: response.headers.get("ETag") ?? "" }; // what was brought meanwhile is no older
  return applyFragment(element.id, state);
}

const TILE_PLACEHOLDER = /<(\w+) id="([^"]+)" data-unchanged><\/\1>/g; // of a tile, which is brought with it or is as it was

async function applyFragment(id, state) {
  const { src, etag, base, html, tiles } = state.coming;
  state.coming = null;
  state.isWanted = false;
  const element = document.getElementById(id);
  if (element?.dataset.liveSrc !== src) return; // moved on meanwhile
  const shown = state.src === src ? state.etag : "";
  if (etag && shown === etag) return;
  state.etag = ""; // until it is shown, nobody knows what is
  if (base && shown !== base) return reconnect(); // and be brought all of it
  const text = html.replace(TILE_PLACEHOLDER, (place, _, tile) => tiles?.[tile] ?? place);
  await htmx.swap({ text, target: element, sourceElement: element, swap: "outerMorph", isLive: true });
  state.src = src;
  state.etag = etag;
  showAges();
  document.getElementById(id)?.dispatchEvent(new CustomEvent("live:refreshed", { bubbles: true }));
}

/* What an element shows is not there any more. It stays, as the last that was seen of it, until it comes back. */
function markGone(element, state) {
  state.etag = "";
  element.setAttribute("data-gone", "");
}

/* ---- what stays as the reader left it */

htmx.registerExtension("grove-keep", {
  /* Of hundreds of tiles few look different; the others are passed over whole, with what scripts have put on them. */
  htmx_before_morph_node: (_, { newNode }) => !newNode.hasAttribute("data-unchanged"),
  htmx_before_morph_attr(element, { attrName }) {
    if (attrName === "open" && (element.tagName === "DETAILS" || element.tagName === "DIALOG")) return false;
    return !(element.dataset.keep ?? "").split(" ").includes(attrName);
  },
});

document.addEventListener("htmx:before:swap", ({ detail }) => {
  for (const { target, fragment } of detail.tasks) {
    if (!detail.ctx.isLive) discardEtag(target);
    else
      for (const list of fragment.querySelectorAll("[data-live-order][id]"))
        keepOrder(document.getElementById(list.id), list);
  }
});

/* What is put there by somebody else the server does not know of: nothing that it brings can build on it. */
function discardEtag(target) {
  for (const element of liveElements()) if (target.contains?.(element)) stateOf(element.id).etag = "";
}

function keepOrder(shown, coming) {
  if (!shown) return;
  const sorted = [...coming.children];
  const places = new Map([...shown.children].map((child, index) => [child.id, index]));
  const fresh = sorted.filter((child) => !places.has(child.id));
  const known = sorted
    .filter((child) => places.has(child.id))
    .toSorted((one, other) => places.get(one.id) - places.get(other.id));
  for (const child of fresh) if (places.size) child.classList.add("fresh");
  for (const child of shown.querySelectorAll(":scope > .fresh"))
    coming.querySelector(`#${CSS.escape(child.id)}`)?.classList.add("fresh");
  const kept = [...known, ...fresh];
  coming.append(...kept);
  const isSorted = kept.every((child, index) => child === sorted[index]);
  const notice = coming.getRootNode().querySelector("[data-live-unsorted]");
  if (notice) notice.hidden = isSorted;
  const count = notice?.querySelector("[data-live-count]");
  const number = coming.querySelectorAll(":scope > .fresh").length;
  if (count) count.textContent = number ? `${number} new` : "The order changed";
}

/* ---- the connection */

const describeShown = () => liveElements().map(({ dataset }) => `${dataset.liveSrc} ${dataset.live}`);

function address() {
  const url = new URL(document.body.dataset.streamUrl, location.href);
  for (const { id, dataset } of liveElements()) {
    const state = elementStates.get(id);
    const etag = state?.src === dataset.liveSrc && state.etag ? state.etag : "-"; // another source is another thing
    url.searchParams.append("show", `${etag} ${dataset.liveSrc} ${dataset.live}`);
  }
  return url;
}

function connect() {
  if (source || !document.body.dataset.streamUrl || isOver || document.hidden || !liveElements().length) return;
  connectedTo = describeShown().join("\n");
  source = new EventSource(address());
  silentSince = Date.now();
  source.addEventListener("open", () => {
    failures = 0;
    for (const [id, state] of elementStates) if (state.isWanted) scheduleRefresh(id, state); // it failed while nobody answered
    recordHeartbeat();
  });
  source.addEventListener("error", () => {
    isCurrent = false;
    if (source?.readyState === EventSource.CLOSED) retryLater();
    updateIndicator();
  });
  listen("fragment", receiveFragment);
  listen("look", ({ src }) => liveElements().forEach(({ id, dataset }) => dataset.liveSrc === src && requestFetch(id)));
  listen("gone", ({ src }) =>
    liveElements().forEach((element) => element.dataset.liveSrc === src && markGone(element, stateOf(element.id))),
  );
  listen("current", () => markCurrent(source));
  listen("stale", () => (isStale = true)); // until everything is current again
  listen("heartbeat", () => {});
}

function listen(name, act) {
  source.addEventListener(name, (event) => {
    act(JSON.parse(event.data));
    recordHeartbeat();
  });
}

/* Once what was brought is shown. */
function markCurrent(speaker) {
  if (source !== speaker) return;
  if ([...elementStates.values()].some((state) => state.coming || state.isBusy)) {
    setTimeout(markCurrent, 20, speaker);
    return;
  }
  isCurrent = wasCurrent = true;
  isStale = false;
  updateIndicator();
}

function disconnect() {
  isCurrent = false;
  for (const state of elementStates.values()) state.coming = null; // what is not shown is brought again
  source?.close();
  source = null;
}

/* Other elements are shown, or from other addresses: the server is to know. The word stays "Live": what changes in
   between is brought before anything else. */
function reconnectIfChanged() {
  if (source && describeShown().join("\n") !== connectedTo) reconnect();
}

function reconnect() {
  source?.close();
  source = null;
  connect();
}

function retryLater() {
  disconnect();
  failures += 1;
  setTimeout(connect, waitAfter(failures));
  // Whether one is signed out is said to a fetch only.
  const [first] = liveElements();
  if (first) requestFetch(first.id);
}

function signOut() {
  isOver = true;
  disconnect();
  const link = Object.assign(document.createElement("a"), {
    href: location.href,
    textContent: "Signed out: sign in again",
  });
  indicator.dataset.state = "lost";
  indicator.replaceChildren(link);
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) disconnect();
  else connect();
  updateIndicator();
});
// A page that the browser keeps for going back must not keep a connection.
addEventListener("pagehide", disconnect);
addEventListener("pageshow", (event) => event.persisted && connect());
addEventListener("online", () => {
  if (source?.readyState !== EventSource.OPEN) {
    disconnect();
    connect();
  }
});
document.addEventListener("htmx:after:swap", () => reconnectIfChanged());

/* ---- what is said of it */

const STATE_TEXTS = {
  live: "Live",
  gone: "No longer there",
  stale: "The server hears nothing",
  old: "Cannot refresh",
  new: "Connecting…",
  lost: "Reconnecting…",
  paused: "Paused",
};

function connectionState() {
  if (!isCurrent && document.hidden) return "paused";
  if (!isCurrent) return wasCurrent || failures ? "lost" : "new";
  if ([...elementStates.values()].some((state) => state.failures > 1)) return "old";
  if (isStale) return "stale";
  return document.querySelector("[data-gone]") ? "gone" : "live";
}

function recordHeartbeat() {
  heardAt = silentSince = Date.now();
  updateIndicator();
}

function updateIndicator() {
  if (!indicator || isOver) return;
  const state = connectionState();
  indicator.dataset.state = state;
  setText(indicator.querySelector("[data-live-text]"), STATE_TEXTS[state]);
  setText(indicator.querySelector("[data-live-age]"), heardAt ? ` · ${age((Date.now() - heardAt) / 1000)} ago` : "");
}

function setText(element, text) {
  if (element && element.textContent !== text) element.textContent = text;
}

function showAges() {
  for (const time of document.querySelectorAll("time[data-age]"))
    setText(time, age((Date.now() - Date.parse(time.dateTime)) / 1000));
}

setInterval(() => {
  if (document.hidden) return;
  showAges();
  updateIndicator();
  reconnectIfChanged();
  if (source && Date.now() - silentSince > HEARTBEAT_TIMEOUT_MS) retryLater();
}, 1_000);

if (indicator) connect();
