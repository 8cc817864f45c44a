/* Keeps open pages up to date.

   Over one connection the server sends each fragment of the page whenever it changes. A live element declares its
   dependencies and its URL:

     <section id="pods" data-live="workload:sandbox%2Fdefault%2Fchat#pods,cliques every:30" data-live-src="/…/pods/live/">

   `data-live` lists dependencies kind[:key][#part,part]: any workload, one workload, parts of it; every:n also refreshes
   the element every n seconds (rollouts/live/stream.py). The server sends the new element, and this script morphs it into
   the old one: focus, selection, scrolling and open <details> stay. Of a pod grid the server sends only the tiles that
   differ from the shown rendering (rollouts/live/tiles.py). When it cannot send a fragment, it asks this script to fetch
   `data-live-src`. Children of an element with `data-live-order` keep their places: new ones come last, and
   [data-live-unsorted] appears. After each change `live:refreshed` is fired on it.

   The invariant: the page says "Live" only after it has received everything that it missed while hidden or disconnected. */

import { age } from "./relative-time.js";

const GAP_MS = 400; // between two fetches of an element, so that a burst becomes one
const MOST_GAP_MS = 4_000; // the longest gap: slow answers or slow drawing cause fewer fetches
const HEARTBEAT_TIMEOUT_MS = 45_000; // the server sends a heartbeat every 15 s; after three missed ones the connection is dead
const RETRY_MS = [1_000, 2_000, 4_000, 8_000, 15_000];

const indicator = document.getElementById("live");
const elementStates = new Map(); // by element id: what it shows, and the result of the last refresh
let source = null;
let connectedTo = ""; // the elements that the server knows of
let failures = 0;
let heardAt = 0;
let silentSince = 0; // the time of the last message or connect
let isCurrent = false; // the server has nothing newer than the page
let wasCurrent = false; // at least once since the page was opened
let isStale = false; // connected, but the server itself receives no changes
let isOver = false; // signed out

const waitAfter = (times) => RETRY_MS[Math.min(times, RETRY_MS.length) - 1];

const liveElements = () => [...document.querySelectorAll("[data-live][data-live-src][id]")];

/* ---- refreshing an element */

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

/* Receive a fragment; of several only the newest is shown. */
function receiveFragment(part) {
  for (const { id, dataset } of liveElements()) {
    if (dataset.liveSrc !== part.src) continue;
    const state = stateOf(id);
    state.coming = mergeFragments(state.coming, part);
    scheduleRefresh(id, state);
  }
}

/* Merge a fragment into one that is not shown yet, if it builds on that one. */
function mergeFragments(former, part) {
  if (!part.base || part.base !== former?.etag) return part;
  return { ...part, base: former.base, tiles: { ...former.tiles, ...part.tiles } };
}

/* Fetch an element from its URL. */
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
  if (document.hidden) return; // the server sends everything when the tab is shown again
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
    state.isWanted = true; // the element stays out of date until then
  }
  state.endedAt = performance.now();
  state.gap = state.failures
    ? waitAfter(state.failures)
    : Math.min(MOST_GAP_MS, Math.max(isFetched ? GAP_MS : 0, 3 * (state.endedAt - began)));
  state.isBusy = false;
  if (state.coming || (state.isWanted && source?.readyState === EventSource.OPEN)) scheduleRefresh(id, state);
}

async function fetchInto(element, state) {
  const src = element.dataset.liveSrc; // the element may have another URL when the answer comes
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
  state.coming ??= { src, html, etag: response.headers.get("ETag") ?? "" }; // a fragment that came meanwhile is as new
  return applyFragment(element.id, state);
}

const TILE_PLACEHOLDER = /<(\w+) id="([^"]+)" data-unchanged><\/\1>/g; // stands for a tile that came along or is unchanged

async function applyFragment(id, state) {
  const { src, etag, base, html, tiles } = state.coming;
  state.coming = null;
  state.isWanted = false;
  const element = document.getElementById(id);
  if (element?.dataset.liveSrc !== src) return; // it shows something else meanwhile
  const shown = state.src === src ? state.etag : "";
  if (etag && shown === etag) return;
  state.etag = ""; // unknown until the swap is complete
  if (base && shown !== base) return reconnect(); // to receive the whole fragment
  const text = html.replace(TILE_PLACEHOLDER, (place, _, tile) => tiles?.[tile] ?? place);
  await htmx.swap({ text, target: element, sourceElement: element, swap: "outerMorph", isLive: true });
  state.src = src;
  state.etag = etag;
  showAges();
  document.getElementById(id)?.dispatchEvent(new CustomEvent("live:refreshed", { bubbles: true }));
}

/* Mark an element whose object was deleted. It keeps the last state until the object comes back. */
function markGone(element, state) {
  state.etag = "";
  element.setAttribute("data-gone", "");
}

/* ---- what survives a refresh */

htmx.registerExtension("grove-keep", {
  /* Of hundreds of tiles few change; the morph skips the others with everything that scripts put on them. */
  htmx_before_morph_node: (_, { newNode }) => !newNode.hasAttribute("data-unchanged"),
  htmx_before_morph_attr: (element, { attrName }) =>
    !(attrName === "open" && (element.tagName === "DETAILS" || element.tagName === "DIALOG")),
});

document.addEventListener("htmx:before:swap", ({ detail }) => {
  for (const { target, fragment } of detail.tasks) {
    if (!detail.ctx.isLive) discardEtag(target);
    else
      for (const list of fragment.querySelectorAll("[data-live-order][id]"))
        keepOrder(document.getElementById(list.id), list);
  }
});

/* The server does not know what another script put there, so no fragment can build on it. */
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
    const etag = state?.src === dataset.liveSrc && state.etag ? state.etag : "-"; // another URL is another fragment
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
    for (const [id, state] of elementStates) if (state.isWanted) scheduleRefresh(id, state); // it failed while disconnected
    recordHeartbeat();
  });
  source.addEventListener("error", () => {
    isCurrent = false;
    if (source?.readyState === EventSource.CLOSED) retryLater();
    updateIndicator();
  });
  listen("fragment", receiveFragment);
  listen("fetch", ({ src }) =>
    liveElements().forEach(({ id, dataset }) => dataset.liveSrc === src && requestFetch(id)),
  );
  listen("gone", ({ src }) =>
    liveElements().forEach((element) => element.dataset.liveSrc === src && markGone(element, stateOf(element.id))),
  );
  listen("current", () => markCurrent(source));
  listen("stale", () => (isStale = true)); // until the next current event
  listen("heartbeat", () => {});
}

function listen(name, act) {
  source.addEventListener(name, (event) => {
    act(JSON.parse(event.data));
    recordHeartbeat();
  });
}

/* Wait until every received fragment is shown. */
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
  for (const state of elementStates.values()) state.coming = null; // the server sends it again
  source?.close();
  source = null;
}

/* Tell the server when the page shows other elements or URLs. The indicator stays "Live": the server sends first what has
   changed in between. */
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
  // Only a fetch learns that the session has ended.
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
// A page in the back/forward cache must not keep a connection.
addEventListener("pagehide", disconnect);
addEventListener("pageshow", (event) => event.persisted && connect());
addEventListener("online", () => {
  if (source?.readyState !== EventSource.OPEN) {
    disconnect();
    connect();
  }
});
document.addEventListener("htmx:after:swap", () => reconnectIfChanged());

/* ---- the indicator */

const STATE_TEXTS = {
  live: "Live",
  gone: "Deleted",
  stale: "Updates are delayed",
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
