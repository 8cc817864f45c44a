/* Roving focus: makes the cells of a pod grid one tab stop.

   Arrow keys move to the nearest cell in that direction, Home and End to the first and last cell of a replica, Page Up and
   Down between replicas. When the focused cell disappears, the cell that takes its place gets the focus.

     const roving = createRovingFocus(() => document.getElementById("pod-grid"), "a.cell");
     roving.restoreFocus(); // after the cells have been replaced

   The invariant: exactly one cell is reachable with the Tab key. */

const KEYS = new Set(["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End", "PageUp", "PageDown"]);

export function createRovingFocus(root, selector) {
  let place = 0; // the index of the cell with the tab stop, in case it disappears
  let lastId = "";
  let lostFocus = false;
  const cells = () => [...(root()?.querySelectorAll(selector) ?? [])];
  const cellOf = (event) => {
    const cell = event.target.closest?.(selector);
    return cell && root()?.contains(cell) ? cell : null;
  };

  function setTabStop(wanted) {
    const all = cells();
    if (!all.length) return;
    const stop =
      wanted ??
      all.find((cell) => cell === document.activeElement) ??
      all.find((cell) => cell.id === lastId) ??
      all[Math.min(place, all.length - 1)];
    for (const cell of all) cell.tabIndex = cell === stop ? 0 : -1;
    place = all.indexOf(stop);
    lastId = stop.id;
  }

  function restoreFocus() {
    const active = document.activeElement;
    if (lostFocus && (!active || active === document.body)) {
      const all = cells();
      all[Math.min(place, all.length - 1)]?.focus({ preventScroll: true });
    }
    lostFocus = false;
    setTabStop();
  }

  document.addEventListener("keydown", (event) => {
    const cell = cellOf(event);
    if (!cell || event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || !KEYS.has(event.key))
      return;
    event.preventDefault();
    const next = findTarget(cells(), cell, event.key);
    if (!next) return;
    setTabStop(next);
    next.focus({ preventScroll: true });
    next.scrollIntoView({ block: "nearest", inline: "nearest" });
  });
  document.addEventListener("focusin", (event) => {
    const cell = cellOf(event);
    if (cell) setTabStop(cell);
  });
  document.addEventListener("focusout", (event) => {
    // Removing a cell from the page loses the focus.
    if (event.target.matches?.(selector) && !event.relatedTarget) lostFocus = true;
  });
  document.addEventListener("pointerdown", () => {
    lostFocus = false;
  });
  setTabStop();
  return { restoreFocus };
}

function findTarget(all, from, key) {
  const unit = from.closest(".replica, .tile");
  const own = all.filter((cell) => unit?.contains(cell));
  if (key === "Home") return own[0];
  if (key === "End") return own.at(-1);
  if (key === "PageDown")
    return all.find(
      (cell) => from.compareDocumentPosition(cell) & Node.DOCUMENT_POSITION_FOLLOWING && !unit?.contains(cell),
    );
  if (key === "PageUp") {
    const before = all.findLast(
      (cell) => from.compareDocumentPosition(cell) & Node.DOCUMENT_POSITION_PRECEDING && !unit?.contains(cell),
    );
    return before && all.find((cell) => before.closest(".replica, .tile").contains(cell));
  }
  if (key === "ArrowRight") return all[all.indexOf(from) + 1];
  if (key === "ArrowLeft") return all[all.indexOf(from) - 1];
  return findNearestInNextRow(from, all, key === "ArrowDown" ? 1 : -1);
}

/* The nearest cell in the next visible row of that direction, whichever element contains it. */
function findNearestInNextRow(from, all, direction) {
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
