/* Keeps what is shown as new as the cluster is.

   One connection to the change feed says what changed, never what it looks like now. An element that shows something
   live says what it depends on and where its newest rendering is to be had:

     <section id="pods" data-live="workload:sandbox/default/chat#pods,cliques" data-live-src="/…/pods/live/">

   `data-live` holds words kind[:key][#part,part]: any workload, this one, these parts of it; the key is percent-encoded.
   `data-live-src` answers with the element itself, which is morphed into the one that is there: focus, selection,
   scrolling and open <details> stay. `data-live-every` asks every so many seconds as well. Children of an element with
   `data-live-order` keep their places; what is new comes last, and [data-live-unsorted] is shown. An attribute that
   scripts own survives when the element names it in `data-keep`. After each change `live:refreshed` is fired on it.

   The invariant: whatever was missed, while hidden or away, is fetched anew before "Live" is said again. */

const GAP_MS = 400; // between two looks at the same element, so that bursts become one
const MOST_GAP_MS = 4_000; // a server that is slow to answer is asked less often, up to this
const SILENCE_MS = 45_000; // the feed is heard at least every 15 s; three missed ones are a dead connection
const RETRY_MS = [1_000, 2_000, 4_000, 8_000, 15_000];

const indicator = document.getElementById("live");
const looks = new Map(); // by id of the element: how its last look went
let source = null;
let failures = 0;
let heardAt = 0;
let hasBeats = false; // servers before this one said nothing that a page can hear
let isStale = false; // connected, but the server itself is told nothing
let isOver = false; // signed out

const waitAfter = (times) => RETRY_MS[Math.min(times, RETRY_MS.length) - 1];

/* ---- what changed, and whom it concerns */

function concerns(element, change) {
  return element.dataset.live.split(/\s+/).some((word) => {
    const [about, parts] = word.split("#");
    const [kind, key] = about.split(/:(.*)/s);
    if (kind !== change.kind || (key && decodeURIComponent(key) !== change.key)) return false;
    return !parts || !change.what.length || parts.split(",").some((part) => change.what.includes(part));
  });
}

const liveElements = () => document.querySelectorAll("[data-live][data-live-src][id]");

function refreshAll() {
  for (const element of liveElements()) ask(element);
}

/* ---- looking again */

function ask(element) {
  const look = looks.get(element.id) ?? { etag: "", endedAt: 0, gap: GAP_MS, failures: 0, isBusy: false, isWanted: false, timer: 0 };
  looks.set(element.id, look);
  if (look.isBusy) look.isWanted = true;
  else if (!look.timer) look.timer = setTimeout(() => refresh(element.id, look), Math.max(0, look.endedAt + look.gap - performance.now()));
}

async function refresh(id, look) {
  look.timer = 0;
  if (document.hidden) return; // everything is fetched anew when the tab is shown
  const element = document.getElementById(id);
  if (!element?.dataset.liveSrc || isOver) {
    looks.delete(id);
    return;
  }
  look.isBusy = true;
  look.isWanted = false;
  const began = performance.now();
  try {
    const src = element.dataset.liveSrc; // the element may show something else by the time of the answer
    await show(element, look, src, await fetchFragment(src, look));
    look.failures = 0;
  } catch {
    look.failures += 1;
    look.isWanted = true; // until then this element is old
  }
  look.endedAt = performance.now();
  look.gap = look.failures ? waitAfter(look.failures) : Math.min(MOST_GAP_MS, Math.max(GAP_MS, 3 * (look.endedAt - began)));
  look.isBusy = false;
  if (look.isWanted && source?.readyState === EventSource.OPEN) ask(element);
}

function fetchFragment(src, look) {
  const headers = { "X-Live": "1" };
  // Another source is another thing, whatever it looked like before.
  if (look.etag && look.src === src) headers["If-None-Match"] = look.etag;
  return fetch(src, { headers, cache: "no-store", redirect: "manual", signal: AbortSignal.timeout(20_000) });
}

async function show(element, look, src, response) {
  if (response.type === "opaqueredirect" || response.status === 401 || response.status === 403) return end();
  if (response.status === 404 || response.status === 410) return element.setAttribute("data-gone", "");
  if (response.status === 304 || response.status === 204) return undefined;
  if (!response.ok) throw new Error(response.status);
  const text = await response.text();
  const now = document.getElementById(element.id);
  if (now?.dataset.liveSrc !== src) return undefined; // moved on meanwhile
  look.etag = response.headers.get("ETag") ?? "";
  look.src = src;
  await htmx.swap({ text, target: now, sourceElement: now, swap: "outerMorph", isLive: true });
  showAges();
  now.dispatchEvent(new CustomEvent("live:refreshed", { bubbles: true }));
  return undefined;
}

/* ---- what stays as the reader left it */

htmx.registerExtension("grove-keep", {
  htmx_before_morph_attr(element, { attrName }) {
    if (attrName === "open" && (element.tagName === "DETAILS" || element.tagName === "DIALOG")) return false;
    return !(element.dataset.keep ?? "").split(" ").includes(attrName);
  },
});

document.addEventListener("htmx:before:swap", ({ detail }) => {
  if (!detail.ctx.isLive) return;
  for (const task of detail.tasks) {
    for (const list of task.fragment.querySelectorAll("[data-live-order][id]")) keepOrder(document.getElementById(list.id), list);
  }
});

function keepOrder(shown, coming) {
  if (!shown) return;
  const sorted = [...coming.children];
  const places = new Map([...shown.children].map((child, index) => [child.id, index]));
  const fresh = sorted.filter((child) => !places.has(child.id));
  const known = sorted.filter((child) => places.has(child.id)).sort((one, other) => places.get(one.id) - places.get(other.id));
  for (const child of fresh) if (places.size) child.classList.add("fresh");
  for (const child of shown.querySelectorAll(":scope > .fresh")) coming.querySelector(`#${CSS.escape(child.id)}`)?.classList.add("fresh");
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

function connect() {
  const url = document.body.dataset.feed;
  if (source || !url || isOver || document.hidden || !liveElements().length) return;
  source = new EventSource(url);
  source.onopen = () => {
    failures = 0;
    isStale = false;
    hear();
    refreshAll(); // a new connection knows nothing of what came before it
  };
  source.onerror = () => {
    if (source?.readyState === EventSource.CLOSED) retry();
    tell();
  };
  source.addEventListener("change", (event) => {
    hear();
    const change = JSON.parse(event.data);
    for (const element of liveElements()) if (concerns(element, change)) ask(element);
  });
  source.addEventListener("reset", () => {
    isStale = false;
    hear();
    refreshAll();
  });
  source.addEventListener("stale", () => {
    isStale = true; // until a reset says that it hears again
    hear();
  });
  source.addEventListener("heartbeat", () => {
    hasBeats = true;
    hear();
  });
}

function disconnect() {
  source?.close();
  source = null;
}

function retry() {
  disconnect();
  failures += 1;
  setTimeout(connect, waitAfter(failures));
}

function end() {
  isOver = true;
  disconnect();
  const link = Object.assign(document.createElement("a"), { href: location.href, textContent: "Signed out: sign in again" });
  indicator.dataset.state = "lost";
  indicator.replaceChildren(link);
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) disconnect();
  else connect();
  tell();
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

/* ---- what is said of it */

const WORDS = { live: "Live", stale: "The server hears nothing", old: "Cannot refresh", lost: "Reconnecting…", paused: "Paused" };

function stateNow() {
  if (source?.readyState !== EventSource.OPEN) return document.hidden ? "paused" : "lost";
  if ([...looks.values()].some((look) => look.failures > 1)) return "old";
  return isStale ? "stale" : "live";
}

function hear() {
  heardAt = Date.now();
  tell();
}

function tell() {
  if (!indicator || isOver) return;
  const state = stateNow();
  indicator.dataset.state = state;
  setText(indicator.querySelector("[data-live-word]"), WORDS[state]);
  setText(indicator.querySelector("[data-live-age]"), heardAt ? ` · ${age((Date.now() - heardAt) / 1000)} ago` : "");
}

function setText(element, text) {
  if (element && element.textContent !== text) element.textContent = text;
}

/* The same words as the server's: see rollouts/web/words.py. */
export function age(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min`;
  if (whole < 2 * 86400) return `${Math.floor(whole / 3600)} h`;
  return `${Math.floor(whole / 86400)} d`;
}

function showAges() {
  for (const time of document.querySelectorAll("time[data-age]")) setText(time, age((Date.now() - Date.parse(time.dateTime)) / 1000));
}

let seconds = 0;
setInterval(() => {
  if (document.hidden) return;
  seconds += 1;
  showAges();
  tell();
  if (hasBeats && source && Date.now() - heardAt > SILENCE_MS) retry();
  for (const element of document.querySelectorAll("[data-live-every][data-live-src][id]")) {
    if (seconds % Number(element.dataset.liveEvery) === 0) ask(element);
  }
}, 1_000);

if (indicator) connect();
