/* Keyboard shortcuts, the same on all pages; `?` lists them.

   They do nothing while the user types, while a dialog is open, or with Ctrl, Alt or Meta, which belong to the browser
   and to screen readers. In lists (`[data-keyboard-rows]`) j and k focus the first link of the next or previous row, so
   Enter opens it. */

import { changeTheme } from "./theme.js";

const CHORD_MS = 1_500; // from g to the letter of a page
let goUntil = 0;

const isTyping = (target) =>
  target.closest?.("input:not([type=checkbox], [type=radio]), textarea, select, [contenteditable]");

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (isTyping(event.target)) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (document.querySelector("dialog[open]")) return;
  if (handleKey(event)) event.preventDefault();
});

function handleKey(event) {
  if (goUntil > event.timeStamp) {
    goUntil = 0;
    return goToPage(event.key);
  }
  switch (event.key) {
    case "/":
      return focusSearch();
    case "?":
      return showKeyboardHelp();
    case "t":
      return announce(`Theme: ${changeTheme()}`);
    case "j":
      return moveToRow(event.target, 1);
    case "k":
      return moveToRow(event.target, -1);
    case "g":
      goUntil = event.timeStamp + CHORD_MS;
      return true;
    case "Escape":
      return closeMenus();
    default:
      return false;
  }
}

function goToPage(key) {
  const link = document.querySelector(`[data-shortcut="${CSS.escape(key)}"]`);
  link?.click();
  return Boolean(link);
}

function focusSearch() {
  const field = document.querySelector("[data-search-field]");
  field?.focus();
  field?.select();
  return Boolean(field);
}

function moveToRow(from, step) {
  const rows = [...document.querySelectorAll("[data-keyboard-rows] > *")].filter((row) =>
    row.querySelector("a[href], button"),
  );
  if (!rows.length) return false;
  const at = rows.findIndex((row) => row.contains(from));
  const next = rows[Math.min(rows.length - 1, Math.max(0, at < 0 ? (step > 0 ? 0 : rows.length - 1) : at + step))];
  const target = next.querySelector("a[href], button");
  target.focus();
  next.scrollIntoView({ block: "nearest" });
  return true;
}

function closeMenus() {
  const open = document.querySelectorAll("details.menu[open]");
  for (const menu of open) {
    menu.open = false;
    menu.querySelector("summary").focus();
  }
  return open.length > 0;
}

function showKeyboardHelp() {
  const dialog = document.getElementById("keyboard-dialog");
  dialog?.showModal();
  return Boolean(dialog);
}

function announce(text) {
  const place = document.getElementById("announcements");
  if (place) place.textContent = text;
  return true;
}

document.addEventListener("click", (event) => {
  for (const menu of document.querySelectorAll("details.menu[open]"))
    if (!menu.contains(event.target)) menu.open = false;
});
