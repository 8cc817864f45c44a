/* The theme: that of the system, light or dark. A cookie keeps it, so that the server renders it and pages do not flash. */

const NEXT = { "": "dark", dark: "light", light: "" };
const NAMES = { "": "the system's", dark: "dark", light: "light" };
const YEAR = 365 * 24 * 3600;

export function changeTheme() {
  const root = document.documentElement;
  const theme = NEXT[root.dataset.theme ?? ""];
  if (theme) root.dataset.theme = theme;
  else delete root.dataset.theme;
  document.cookie = `theme=${theme}; path=/; max-age=${theme ? YEAR : 0}; samesite=lax`;
  return NAMES[theme];
}

for (const button of document.querySelectorAll("[data-theme-toggle]")) {
  button.hidden = false;
  button.addEventListener("click", () => {
    button.title = `Theme: ${changeTheme()} (t)`;
  });
}
